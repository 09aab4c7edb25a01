"""The page of a profile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ignite_hooks.measure.profile import Section
from ignite_hooks.report.markup import Markup, document, table, tag

NAMES = frozenset({"operator", "phase", "hook", "function", "called by"})
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
        shown.insert(1, tag("img", alt="where the time goes", src=source, class_="picture"))
    body = [tag("header", tag("h1", title)), tag("main", *shown), tag("footer")]
    return document(title, body)


def _inside(part: Section) -> Iterator[Markup]:
    yield from (tag("p", line) for line in part.lines if not line.startswith("- "))
    items = [tag("li", line[2:]) for line in part.lines if line.startswith("- ")]
    if items:
        yield tag("ul", *items, class_="said")
    if part.rows:
        yield table(part.rows, kind="profile", numbers=part.rows[0].keys() - NAMES)
