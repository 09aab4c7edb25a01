"""What a search has tried, for the top of its page: values over trials, settings beside results, what matters."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ignite_hooks.report.chart import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Scale, ticks, value
from ignite_hooks.report.compare_page import Part
from ignite_hooks.report.evaluation import bars
from ignite_hooks.report.markup import Markup, joined, tag

MOST_LINES = 200
"""Maximum number of trials that are drawn as lines."""
AXIS = 120
"""Units between two settings."""


@dataclass(frozen=True)
class Tried:
    """One trial."""

    number: int
    state: str
    value: float | None
    values: Mapping[str, Any]


@dataclass(frozen=True)
class SearchPage:
    """What the page of a search shows above the comparison of its runs.

    Args:
        metric: What trials are ranked by.
        greater: Whether a greater value of it is better.
        trials: All trials, in their order.
        importance: How much each setting says about whether a trial is among the best.
        scales: On which scale numbers are tried, linear or log; what is not here has choices.
    """

    metric: str
    greater: bool
    trials: Sequence[Tried]
    importance: Mapping[str, float] = field(default_factory=dict)
    scales: Mapping[str, str] = field(default_factory=dict)

    @property
    def ranked(self) -> list[Tried]:
        """The finished trials with a finite value, best first."""
        finished = [one for one in self.trials if one.state == "finished" and _finite(one.value)]
        sign = -1 if self.greater else 1
        return sorted(finished, key=lambda one: sign * (one.value or 0.0))


def parts(page: SearchPage) -> list[Part]:
    """Return the sections of a search."""
    top = [part for part in (history(page), importance(page)) if part]
    shown = [
        ("trials", "Trials", tag("div", *top, class_="two") if top else ""),
        ("settings", "Settings and results", settings(page)),
    ]
    return [part for part in shown if part[2]]


def history(page: SearchPage) -> Markup | str:
    """Return a dot for each trial, and the best value so far as a line."""
    seen = [one for one in page.trials if _finite(one.value) and one.state in ("finished", "pruned")]
    if not page.ranked:
        return ""
    values = [one.value for one in seen if one.value is not None]
    scale = scale_of(values, logarithmic=not page.greater)
    end = max(1, max(one.number for one in page.trials))
    height = HEIGHT + 20

    def x(number: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * number / end

    def y(at: float) -> float:
        return TOP + (height - TOP - BOTTOM) * (1 - scale.place(at))

    drawn: list[Markup] = []
    for tick in scale.ticks():
        drawn.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=f"{y(tick):.1f}", y2=f"{y(tick):.1f}", class_="grid"))
        at = {"x": LEFT - 6, "y": f"{y(tick):.1f}"}
        drawn.append(tag("text", value(tick), **at, text_anchor="end", dominant_baseline="middle"))
    for tick in ticks(0, end, 6):
        if tick == int(tick):
            at = {"x": f"{x(tick):.1f}", "y": height - BOTTOM + 15}
            drawn.append(tag("text", f"{tick:.0f}", **at, text_anchor="middle"))
    drawn.append(tag("text", "trial", x=WIDTH - RIGHT, y=height - 4, text_anchor="end", class_="axis"))
    if scale.logarithmic:
        drawn.append(tag("text", "log scale", x=LEFT + 4, y=height - BOTTOM - 5, class_="axis over"))
    drawn.append(tag("polyline", points=_steps(page, x, y, end), class_="line s0"))
    for one in seen:
        hint = tag("title", f"trial {one.number}, {one.state}: {page.metric} {value(one.value or 0.0)}")
        place = {"cx": f"{x(one.number):.1f}", "cy": f"{y(one.value or 0.0):.1f}"}
        kind = "dot s0" if one.state == "finished" else "ring s1"
        drawn.append(tag("circle", hint, **place, r="3.2", class_=kind))
    label = f"{page.metric} of {len(seen)} trials, and the best so far"
    legend = [_key(0, f"{page.metric} of a trial; the line is the best so far")]
    if any(one.state == "pruned" for one in seen):
        legend.append(_key(1, "pruned: its last value"))
    svg = tag("svg", *drawn, viewBox=f"0 0 {WIDTH} {height}", role="img", aria_label=label)
    return tag("figure", tag("h3", f"{page.metric}, trial by trial"), svg, tag("ul", *legend, class_="legend"))


def _steps(page: SearchPage, x: Callable[[float], float], y: Callable[[float], float], end: int) -> str:
    places: list[tuple[float, float]] = []
    best: float | None = None
    for one in sorted(page.ranked, key=lambda each: each.number):
        if one.value is None or not (best is None or (one.value > best if page.greater else one.value < best)):
            continue
        if best is not None:
            places.append((one.number, best))
        best = one.value
        places.append((one.number, best))
    places.append((end, best or 0.0))
    return " ".join(f"{x(number):.1f},{y(at):.1f}" for number, at in places)


def settings(page: SearchPage) -> Markup | str:
    """Return a line for each finished trial through what it tried to what it reached; the best ones stand out."""
    ranked = page.ranked[:MOST_LINES]
    names = [name for name in (ranked[0].values if ranked else ()) if _differs([one.values[name] for one in ranked])]
    if len(ranked) < 2 or not names:
        return ""
    axes = [Axis(name, [one.values[name] for one in ranked], page.scales.get(name, "choices")) for name in names]
    axes.append(Axis(page.metric, [one.value for one in ranked], "linear" if page.greater else "log"))
    width, height, bottom = max(WIDTH, AXIS * len(axes)), HEIGHT + 60, 14
    top, margin = 30, 62
    between = (width - 2 * margin) / (len(axes) - 1)

    def x(number: int) -> float:
        return margin + between * number

    def y(place: float) -> float:
        return top + (height - top - bottom) * (1 - place)

    drawn: list[Markup] = []
    for one in reversed(ranked):
        rank = ranked.index(one)
        cells = [*(one.values[name] for name in names), one.value]
        line = " ".join(f"{x(i):.1f},{y(a.place(c)):.1f}" for i, (a, c) in enumerate(zip(axes, cells, strict=True)))
        words = ", ".join(f"{a.title} {a.words(c)}" for a, c in zip(axes, cells, strict=True))
        strong = rank < max(1, round(len(ranked) / 10))
        drawn.append(
            tag(
                "polyline",
                tag("title", f"trial {one.number}: {words}"),
                points=line,
                class_="line s0",
                style=""
                if strong
                else f"stroke: var(--faint); stroke-width: 1.2; opacity: {0.6 - 0.4 * rank / len(ranked):.2f}",
            )
        )
    for number, axis in enumerate(axes):
        at = f"{x(number):.1f}"
        drawn.append(tag("line", x1=at, x2=at, y1=top, y2=height - bottom, class_="grid"))
        drawn.append(tag("text", tag("title", axis.name), axis.title, x=at, y=14, text_anchor="middle", class_="axis"))
        for tick in axis.ticks():
            place = {"x": f"{x(number) - 5:.1f}", "y": f"{y(axis.place(tick)):.1f}"}
            look = {"text_anchor": "end", "dominant_baseline": "middle", "class_": "over"}
            drawn.append(tag("text", axis.words(tick), **place, **look))
    label = f"the settings of {len(ranked)} trials and their {page.metric}"
    svg = tag("svg", *drawn, viewBox=f"0 0 {width} {height}", role="img", aria_label=label)
    said = "A line is a finished trial; the best tenth is in colour."
    if len(page.ranked) > len(ranked):
        said += f" The best {len(ranked)} of {len(page.ranked)} are drawn."
    size = f"min-width: {width}px; max-width: {1.6 * width:.0f}px"
    box = tag("div", tag("div", svg, style=size), class_="wide", tabindex="0")
    return joined([tag("p", said, class_="faint"), box])


def importance(page: SearchPage) -> Markup | str:
    """Return a bar for each setting."""
    if not page.importance:
        return ""
    said = (
        "How well each setting tells the best trials from the others, by itself (PED-ANOVA); together they are 1. "
        "With few trials it is a hint, no more."
    )
    ranked = sorted(page.importance.items(), key=lambda item: -item[1])
    content = {"labels": [name for name, _ in ranked], "values": [share for _, share in ranked]}
    return tag("div", tag("h3", "what matters"), bars(content, mean=False), tag("p", said, class_="faint"))


class Axis:
    """One setting, or the result, as an upright axis.

    Args:
        name: The dotted place of the setting.
        values: What was tried.
        scale: What it was tried on: linear, log or choices.
    """

    def __init__(self, name: str, values: Sequence[Any], scale: str) -> None:
        self.name, self.title = name, name.rpartition(".")[2]
        self._scale = None if scale == "choices" else scale_of(values, scale == "log")
        self._choices = [] if self._scale else list(map(str, _sorted(values)))

    def place(self, given: Any) -> float:
        """Return a place between 0 and 1."""
        if self._scale is not None:
            return self._scale.place(given)
        return (self._choices.index(str(given)) + 0.5) / len(self._choices)

    def ticks(self) -> Sequence[Any]:
        """Return the values to label."""
        return self._choices if self._scale is None else self._scale.ticks()

    def words(self, given: Any) -> str:
        """Return a value in few characters."""
        text = value(given) if self._scale is not None else str(given)
        return text if len(text) <= 10 else f"{text[:9]}…"


def scale_of(values: Sequence[Any], logarithmic: bool) -> Scale:
    """Return a scale for some numbers; a logarithmic one only where they are positive and span a decade."""
    low, high = min(values), max(values)
    return Scale(low, high, logarithmic=logarithmic and low > 0 and high >= 10 * low)


def _key(colour: int, words: str) -> Markup:
    return tag("li", tag("i", class_=f"key s{colour}"), tag("span", words))


def _differs(values: Sequence[Any]) -> bool:
    return len({str(one) for one in values}) > 1


def _sorted(values: Sequence[Any]) -> list[Any]:
    """Return each value once: numbers by size, anything else in the order of the trials."""
    different = list({str(one): one for one in values}.values())
    return sorted(different) if all(isinstance(one, (int, float)) for one in different) else different


def _finite(one: float | None) -> bool:
    return one is not None and math.isfinite(one)
