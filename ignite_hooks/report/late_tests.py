"""Tests after the end of a run, on a page that was written before them too."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ignite_hooks.report.data import RunPage
from ignite_hooks.report.evaluation import shown_result
from ignite_hooks.report.markup import Markup, joined, table, tag
from ignite_hooks.results.result import RecordedTest, read_result
from ignite_hooks.store.files import write_whole
from ignite_hooks.text import number

TITLE: Final = "Tests after the run"
MOST_METRICS: Final = 12
"""The numbers of a test that the table has; all of them are in ``result.json``."""
_PLACE: Final = re.compile(r"(?<=<!--tests-->).*?(?=<!--/tests-->)", re.DOTALL)
"""Where the section is. A text of a run cannot hold these marks, as it is escaped."""


def tests(page: RunPage) -> Markup | str:
    """Return the tests of the run, and what the last one has found beside numbers."""
    if not page.tests:
        return ""
    parts: list[Markup] = [_table(page.tests)]
    if page.test_results:
        shown = [shown_result(name, content) for name, content in page.test_results.items()]
        parts.append(
            tag("details", tag("summary", "what the last one has found"), tag("div", *shown, class_="results"))
        )
    return joined(parts)


def section(page: RunPage) -> Markup:
    """Return the place of the section in a page, with the section where there are tests."""
    content = tests(page)
    whole = tag("section", tag("h2", TITLE), content, id="tests") if content else ""
    return joined([Markup("<!--tests-->"), whole, Markup("<!--/tests-->")])


def add_to_page(path: Path, folder: Path, results: Mapping[str, Mapping[str, Any]]) -> bool:
    """Bring the tests on a page of a run that has ended up to date; return whether there is such a page.

    Args:
        path: The page.
        folder: The folder with the result of the run.
        results: What the last test has found beside numbers, by name.
    """
    found = read_result(folder)
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    if found is None or not _PLACE.search(text):
        return False
    page = RunPage(folder.name, tests=found.tests, test_results=results)
    inner = _PLACE.search(section(page))
    assert inner is not None
    write_whole(path, _PLACE.sub(lambda _: inner[0], text, count=1).encode("utf-8", "replace"))
    return True


def _table(found: Mapping[str, RecordedTest]) -> Markup:
    # The entries of classes are bars.
    names = [name for one in found.values() for name in one.metrics if "/" not in name]
    shown: Sequence[str] = list(dict.fromkeys(names))[:MOST_METRICS]
    rows = []
    for key, one in found.items():
        cells = {name: number(one.metrics[name]) if name in one.metrics else "" for name in shown}
        split = key.removesuffix(f"/{one.checkpoint}/{one.weights}")
        weights = {"ema": "averages", "raw": "raw"}.get(one.weights, f"averages {one.weights!r}")
        rows.append({"data": split, "weights of": one.checkpoint, "weights": weights, **cells})
    return table(rows, numbers=shown)
