"""The page that shows several runs side by side."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from ignite_hooks.report.chart import chart
from ignite_hooks.report.curves import CurveSet, Series
from ignite_hooks.report.markup import Markup, document, joined, table, tag
from ignite_hooks.report.style import look
from ignite_hooks.results.comparison import Comparison
from ignite_hooks.results.history import FILE_NAME
from ignite_hooks.store.files import write_whole
from ignite_hooks.writers.jsonl import Tail

MAX_LINES = 10
"""Maximum number of runs in a chart: the best of them."""
MAX_CHARTS = 24
Part = tuple[str, str, Markup | str]
"""The name of a section, its title and its content."""
PARTS = (
    ("configuration", "Configuration"),
    ("environment", "Environment"),
    ("bits", "What decides the bits"),
    ("plan", "Plan"),
)
SORT = """
document.querySelectorAll("table.runs th").forEach((head, column) => {
  head.tabIndex = 0; head.setAttribute("role", "button");
  const sort = () => {
    const body = head.closest("table").tBodies[0], up = head.dataset.up !== "1";
    const key = row => { const cell = row.cells[column], text = cell.querySelector("data")?.value ?? cell.textContent;
      return /^[-+.0-9]/.test(text) ? parseFloat(text.replaceAll(",", "")) : text; };
    const place = (a, b) => a === b ? 0 : typeof a === typeof b ? (a < b ? -1 : 1) : typeof a === "number" ? -1 : 1;
    head.dataset.up = up ? "1" : "0";
    [...body.rows].sort((a, b) => (up ? 1 : -1) * place(key(a), key(b))).forEach(row => body.append(row));
  };
  head.addEventListener("click", sort);
  head.addEventListener("keydown", event => { if (event.key === "Enter") sort(); });
});
"""
"""Sorts the table of runs by the column whose head is clicked; the page is whole without it."""


def write_comparison(
    comparison: Comparison,
    path: Path,
    sort: str | None = None,
    leave_out: Collection[str] = (),
    above: Sequence[Part] = (),
    title: str = "",
) -> None:
    """Write the page, whole or not at all, with the curves that the runs have recorded."""
    curves = []
    for run in comparison.runs:
        curves.append(CurveSet())
        curves[-1].add(Tail(run.path / FILE_NAME).new()[0])
    write_whole(path, render_comparison(comparison, curves, sort, leave_out, above, title).encode("utf-8", "replace"))


def render_comparison(
    comparison: Comparison,
    curves: Sequence[CurveSet],
    sort: str | None = None,
    leave_out: Collection[str] = (),
    above: Sequence[Part] = (),
    title: str = "",
) -> str:
    """Return the page as HTML.

    Args:
        comparison: The runs.
        curves: The numbers of each run, in the order of the runs.
        sort: The metric by which the best run comes first.
        leave_out: Names of differences that say nothing here.
        above: Sections that come first.
        title: The heading; by default the number of runs.
    """
    order = list(range(len(comparison.runs))) if sort is None else comparison.order(sort)
    learnt = [{one.name: one for group in each.learning().values() for one in group} for each in curves]
    # Evaluations first; a number of one run alone says nothing about another.
    names = [name for name in dict.fromkeys(chain(*learnt)) if sum(name in each for each in learnt) > 1]
    names.sort(key=lambda name: "/" not in name)
    drawn = {name: _drawn(name, learnt, order) for name in names[:MAX_CHARTS]}
    # The runs of the first chart all look different, and a run looks the same everywhere.
    looks = {index: number for number, index in enumerate(dict.fromkeys([*chain(*drawn.values()), *order]))}
    figures = [_chart(name, comparison, learnt, drawn[name], looks) for name in drawn]
    parts = [
        *above,
        ("runs", "Runs", _runs(comparison, order, sort, looks)),
        ("curves", "Curves", _charts(figures, len(names) - len(figures))),
        *((name, title, _differences(comparison, name, order, leave_out)) for name, title in PARTS),
    ]
    shown = [(name, title, content) for name, title, content in parts if content]
    links = [tag("a", title, href=f"#{name}") for name, title, _ in shown]
    words = title or f"{len(order)} runs"
    header = tag("header", tag("div", tag("h1", words), class_="title"), tag("nav", *links, aria_label="sections"))
    sections = [tag("section", tag("h2", title), content, id=name) for name, title, content in shown]
    return document(words, [header, tag("main", *sections)], script=SORT)


def _runs(comparison: Comparison, order: Sequence[int], sort: str | None, looks: Mapping[int, int]) -> Markup:
    rows: list[dict[str, Any]] = [dict(row) for row in comparison.rows(sort)]
    for row, index in zip(rows, order, strict=True):
        key = tag("i", class_=f"key {look(looks[index])}")
        row["run"] = tag("span", key, tag("span", row["run"]), class_="named")
        result = comparison.runs[index].result
        row["took"] = tag("data", row["took"], value="" if result is None else f"{result.seconds:.3f}")
        row["state"] = tag("span", row["state"], class_=f"pill {row['state']}")
    numbers = [name for name in rows[0] if name not in ("run", "state")]
    return table(rows, kind="runs", numbers=numbers)


def _charts(figures: Sequence[Markup], left_out: int) -> Markup | str:
    if not figures:
        return ""
    more = tag("p", f"{left_out} more numbers are in metrics.jsonl of the runs.", class_="faint") if left_out else ""
    return joined([tag("div", *figures, class_="charts"), more])


def _drawn(name: str, learnt: Sequence[dict[str, Series]], order: Sequence[int]) -> list[int]:
    """Return the best runs that have a number, in their order."""
    have = [index for index in order if name in learnt[index]]
    greater = next((learnt[index][name].rule for index in have), None) == "greater"

    def rank(index: int) -> float:
        mark = learnt[index][name].best
        return float("inf") if mark is None else -mark.value if greater else mark.value

    return sorted(sorted(have, key=rank)[:MAX_LINES], key=order.index)


def _chart(
    name: str,
    comparison: Comparison,
    learnt: Sequence[dict[str, Series]],
    drawn: Sequence[int],
    looks: Mapping[int, int],
) -> Markup:
    lines = [_named(learnt[index][name], comparison.names[index]) for index in drawn]
    colours = [looks[index] for index in drawn]
    end = max((each.last.step for index in drawn if (each := learnt[index][name]).last), default=0)
    legend = [
        tag("li", tag("i", class_=f"key {look(colour)}"), tag("span", line.name))
        for line, colour in zip(lines, colours, strict=True)
    ]
    have = sum(name in each for each in learnt)
    if have > len(drawn):
        legend.append(tag("li", f"the best {len(drawn)} of {have}"))
    drawing = chart(lines, end, label=f"{name} of {len(lines)} runs over iterations", colours=colours)
    return tag("figure", tag("h3", name), drawing, tag("ul", *legend, class_="legend"))


def _named(series: Series, name: str) -> Series:
    return Series(name, series.kind, points=series.points, last=series.last)


def _differences(comparison: Comparison, what: str, order: Sequence[int], leave_out: Collection[str]) -> Markup | str:
    rows = [row for row in comparison.differences(what) if row[""] not in leave_out]
    names = ["", *(comparison.names[index] for index in order)]
    return table([{name or "setting": row[name] for name in names} for row in rows], kind="notes") if rows else ""
