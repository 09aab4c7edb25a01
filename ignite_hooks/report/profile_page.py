"""The page of a profile."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ignite_hooks.measure.profile import TRACES, Section
from ignite_hooks.report.markup import Markup, document, joined, link, table, tag

NAMES = frozenset({"operator", "phase", "function", "called by"})
"""Columns of names; all other columns hold numbers."""


def profile_page(title: str, parts: Sequence[Section], picture: str = "") -> str:
    """Return the report of a profile as a page that needs no other file.

    Args:
        title: Title of the page.
        parts: Sections of the profile.
        picture: PNG in base64, shown below the first section.
    """
    shown = [tag("section", tag("h2", part.title), *_inside(part)) for part in parts]
    if picture:
        source = f"data:image/png;base64,{picture}"
        drawn = tag("img", alt="where the time goes", src=source, class_="picture")
        shown.insert(1, tag("section", tag("div", drawn, class_="wide", tabindex="0")))
    body = [tag("header", tag("h1", title)), tag("main", *shown), tag("footer")]
    return document(title, body)


def _inside(part: Section) -> Iterator[Markup]:
    yield from (tag("p", line) for line in part.lines if not line.startswith("- "))
    items = [
        tag("li", link(line[2:]) if part.title == TRACES else line[2:]) for line in part.lines if line.startswith("- ")
    ]
    if items:
        yield tag("ul", *items, class_="said")
    if part.rows:
        rows = [{name: breakable(cell) if name in NAMES else cell for name, cell in row.items()} for row in part.rows]
        kind = "profile" if "phase" in part.rows[0] else "profile long"
        yield table(rows, kind=kind, numbers=part.rows[0].keys() - NAMES)


def breakable(name: str) -> Markup:
    """Return the name of an operator, which a narrow page breaks between its words.

    Example:
        >>> breakable("aten::add_")
        'aten::<wbr>add_'
    """
    return joined(filter(None, re.findall(r"[^:_.#]*[:_.#]*", name)), "<wbr>")
