"""Where a model is wrong: confusion matrices, bars for the classes, curves and the worst samples, as HTML."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ignite_hooks.report.chart import HEIGHT, LEFT, TOP, WIDTH, value
from ignite_hooks.report.data import RunPage, ShownResult, position
from ignite_hooks.report.markup import Markup, joined, table, tag
from ignite_hooks.report.style import COLOURS
from ignite_hooks.writers.convert import PICTURE, shown_cell

MOST_CLASSES = 50
"""With more classes, only those with the lowest values, or the most mistakes, are shown."""
MOST_ROWS = 100


def evaluation(page: RunPage) -> Markup | str:
    """Return the results of the last evaluations, those of the test first."""
    kinds = sorted({one.kind for one in page.results.values()}, key=lambda kind: kind != "test")
    parts: list[Markup] = []
    for number, kind in enumerate(kinds):
        mine = {name: one for name, one in page.results.items() if one.kind == kind}
        last = max(mine.values(), key=lambda one: one.step)
        shown = [
            shown_result(name, one.content) for name, one in sorted(mine.items(), key=lambda item: _order(item[1]))
        ]
        words = f"{kind}, {position(last.epoch, last.step)}"
        content = tag("div", *shown, class_="results")
        if number:
            parts.append(tag("details", tag("summary", words), content))
        else:
            parts += [tag("p", words, class_="faint"), content]
    return joined(parts) if parts else ""


def _order(one: ShownResult) -> int:
    return ("matrix", "vector", "curves", "table").index(one.content["kind"])


def shown_result(name: str, content: Mapping[str, Any]) -> Markup:
    """Return one result below its name."""
    drawn = {"matrix": matrix, "vector": bars, "curves": curves, "table": rows}[content["kind"]](content)
    note = tag("p", content["note"], class_="faint") if content.get("note") else ""
    wide = "wide-result" if content["kind"] in ("table", "matrix") else None
    return tag("div", tag("h3", name), drawn, note, class_=wide)


def matrix(content: Mapping[str, Any]) -> Markup:
    """Return a square of numbers, darker where more samples of a class are; of many classes the worst confusions."""
    values, labels = content["values"], _labels(content)
    if len(values) > MOST_CLASSES:
        return _confusions(values, labels)
    head = tag("tr", tag("th", "true \\ predicted", scope="col"), *(tag("th", name, scope="col") for name in labels))
    body = []
    for place, (name, line) in enumerate(zip(labels, values, strict=True)):
        total = sum(one for one in line if math.isfinite(one)) or 1
        cells = [_cell(one, one / total, place == column) for column, one in enumerate(line)]
        body.append(tag("tr", tag("th", name, scope="row"), *cells))
    whole = tag("table", tag("thead", head), tag("tbody", *body), class_="confusion")
    return tag("div", whole, class_="wide", tabindex="0")


def _cell(count: float, share: float, right: bool) -> Markup:
    ink = "var(--good)" if right else "var(--bad)"
    # A rare mistake is seen too.
    percent = 0 if not math.isfinite(share) else min(100, round(20 + 80 * share))
    colour = f"background:color-mix(in srgb, {ink} {percent * 0.6:.0f}%, transparent)" if count else None
    return tag("td", f"{count:g}" if count else "·", style=colour, title=f"{share:.1%}" if count else None)


def _confusions(values: Sequence[Sequence[float]], labels: Sequence[str]) -> Markup:
    """Return a table of the pairs of classes that are taken for each other most often."""
    wrong = [(count, i, j) for i, line in enumerate(values) for j, count in enumerate(line) if i != j and count]
    found = [
        {
            "true": labels[i],
            "predicted": labels[j],
            "samples": f"{count:g}",
            "of the class": f"{count / sum(values[i]):.1%}",
        }
        for count, i, j in sorted(wrong, reverse=True)[:MOST_CLASSES]
    ]
    said = tag("p", f"{len(labels)} classes; the pairs that are confused most often.", class_="faint")
    return joined([said, table(found, numbers=("samples", "of the class"))]) if found else said


def bars(content: Mapping[str, Any], *, mean: bool = True) -> Markup:
    """Return a bar for each class, the lowest first where there are too many for all, and what they are on average."""
    pairs = list(zip(_labels(content), content["values"], strict=True))
    known = [one for _, one in pairs if one is not None and math.isfinite(one)]
    most = max([1.0, *known])
    left_out = len(pairs) - MOST_CLASSES
    if left_out > 0:
        pairs = sorted(pairs, key=lambda pair: pair[1] if pair[1] == pair[1] else math.inf)[:MOST_CLASSES]
    lines = []
    for number, (name, one) in enumerate(pairs):
        length = 100 * max(0.0, one) / most if one == one else 0
        bar = tag("span", tag("span", class_="share", style=f"width:{length:.1f}%"), class_="room")
        shown = value(one) if one == one else "none"
        lines.append(tag("li", tag("span", name, class_="of"), bar, tag("span", shown, class_="n"), value=number + 1))
    said = [f"mean {value(sum(known) / len(known))}"] if known and mean else []
    said += [f"the lowest of {len(pairs) + left_out} classes"] if left_out > 0 else []
    below = tag("p", "; ".join(said), class_="faint") if said else ""
    return joined([tag("ol", *lines, class_="bars"), below])


def curves(content: Mapping[str, Any]) -> Markup:
    """Return curves between 0 and 1 with the names of their axes."""
    width, height, top, bottom = WIDTH, HEIGHT + 60, TOP + 12, 34

    def at(x: float, y: float) -> str:
        across = LEFT + (width - LEFT - 14) * min(max(x, 0.0), 1.0)
        return f"{across:.1f},{top + (height - top - bottom) * (1 - min(max(y, 0.0), 1.0)):.1f}"

    parts: list[Markup] = []
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        (x0, y0), (x1, _) = (at(0, tick).split(","), at(1, tick).split(","))
        parts.append(tag("line", x1=x0, x2=x1, y1=y0, y2=y0, class_="grid"))
        parts.append(tag("text", value(tick), x=LEFT - 6, y=y0, text_anchor="end", dominant_baseline="middle"))
        parts.append(
            tag("text", value(tick), x=at(tick, 0).split(",")[0], y=height - bottom + 15, text_anchor="middle")
        )
    parts.append(tag("text", content["axes"][0], x=width - 14, y=height - 4, text_anchor="end", class_="axis"))
    parts.append(tag("text", content["axes"][1], x=4, y=TOP, class_="axis"))
    legend = []
    for number, (label, (xs, ys)) in enumerate(content["lines"].items()):
        places = [at(x, y) for x, y in zip(xs, ys, strict=True) if x is not None and y is not None]
        colour = f"s{number % COLOURS}"
        parts.append(tag("polyline", tag("title", label), points=" ".join(places), class_=f"line {colour}"))
        if label:
            legend.append(tag("li", tag("span", class_=f"key {colour}"), tag("span", label)))
    label = f"{content['axes'][1]} over {content['axes'][0]}"
    drawing = tag("svg", *parts, viewBox=f"0 0 {width} {height}", role="img", aria_label=label)
    return tag("figure", drawing, tag("ul", *legend, class_="legend") if len(content["lines"]) > 1 else "")


def rows(content: Mapping[str, Any]) -> Markup:
    """Return a table, in whose cells pictures are shown."""
    columns, found = content["columns"], content["rows"]
    names = [name or " " for name in columns]
    numbers = [n for n, column in zip(names, zip(*found, strict=True), strict=False) if _are_numbers(column)]
    lines = [dict(zip(names, map(_shown, row), strict=True)) for row in found[:MOST_ROWS]]
    more = len(found) - MOST_ROWS
    said = tag("p", f"{more:,} more rows.", class_="faint") if more > 0 else ""
    return (
        joined([table(lines, kind="samples", numbers=numbers), said]) if lines else tag("p", "No rows.", class_="faint")
    )


def _are_numbers(column: Sequence[Any]) -> bool:
    return all(isinstance(one, float) for one in column)


def _shown(cell: Any) -> Any:
    if isinstance(cell, str) and cell.startswith(PICTURE):
        return tag("img", src=cell, alt="the sample")
    return shown_cell(cell)


def _labels(content: Mapping[str, Any]) -> list[str]:
    return [str(name) for name in content.get("labels") or range(len(content["values"]))]
