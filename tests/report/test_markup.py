from __future__ import annotations

import re
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ignite_hooks.report.markup import Markup, escaped, facts, link, link_out, table, tag
from tests.properties import ANY_TEXT, tried

HOSTILE = "\"'><script>alert(1)</script>&amp;\x00\u202e"


def test_texts_and_attributes_are_escaped_exactly_once() -> None:
    found = tag("p", tag("b", HOSTILE), title=HOSTILE)
    assert found.count("<") == 4
    assert "&amp;amp;" in found
    assert escaped(found) == found


def test_invisible_characters_are_replaced() -> None:
    assert escaped("a\x00b\u202ec\ud800") == "a\ufffdb\ufffdc\ufffd"


@pytest.mark.parametrize("path", ["javascript:alert(1)", "//host/x", "http://host", "a?b#c", "ä ö.pth", "\ud800"])
def test_a_link_stays_beside_the_page(path: str) -> None:
    address = link(path).partition('"')[2].partition('"')[0]
    assert address.startswith("./")
    assert not set(address) & set(":?# ")


def test_columns_without_content_are_omitted() -> None:
    found = table([{"a": "1", "b": ""}, {"a": "2", "b": None}], numbers=["a"])
    assert ">a</th>" in found
    assert ">b</th>" not in found
    assert table([]).count("<td") == 0


def test_markup_in_facts_is_not_escaped() -> None:
    assert facts({"<": Markup("<i>x</i>")}) == "<dl><dt>&lt;</dt><dd><i>x</i></dd></dl>"


class Read(HTMLParser):
    """What a browser would find in a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


# HTML has no others; what turns the direction of a text shows another one.
UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
MARKUP = ANY_TEXT | st.lists(st.sampled_from(["<", ">", "&", "&lt;", '"', "'", "b", "=", "/", "!--", "\r", " "])).map(
    "".join
)


@tried(300)
@given(text=MARKUP, title=MARKUP)
def test_any_text_is_shown_as_it_is_and_adds_no_element(text: str, title: str) -> None:
    read = Read(tag("p", text, title=title))
    assert read.tags == [("p", {"title": UNSEEN.sub("\ufffd", title)})]
    assert read.text == UNSEEN.sub("\ufffd", text)


@tried(300)
@given(
    MARKUP
    | st.lists(st.sampled_from(["http", "javascript", ":", "//", "..", "/", "?", "#", "a b", "%2e"])).map("".join)
)
def test_any_link_is_to_a_file_beside_the_page(path: str) -> None:
    [(_, attributes)] = Read(link(path)).tags
    address = urlsplit(attributes["href"] or "")
    assert (address.scheme, address.netloc, address.query, address.fragment) == ("", "", "", "")
    assert unquote(address.path, errors="strict") == "./" + path.encode(errors="replace").decode()
    assert all(
        each["href"].startswith(("http://", "https://")) for _, each in Read(link_out(path)).tags if each["href"]
    )
