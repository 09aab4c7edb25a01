from __future__ import annotations

import pytest

from ignite_hooks.report.markup import Markup, escaped, facts, link, table, tag

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
