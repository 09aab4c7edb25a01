"""Series to SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ignite_hooks.report.curves import Mark, Series
from ignite_hooks.report.markup import Markup, joined, tag
from ignite_hooks.report.style import COLOURS, look

WIDTH, HEIGHT = 420, 236
LEFT, RIGHT, TOP, BOTTOM = 50, 14, 12, 34
MAX_HOVERED = 40
"""Maximum number of points of a series that show their value under the pointer."""
DECADES = 2.0
"""Losses that span more decades have a logarithmic scale."""


def chart(
    series: Sequence[Series],
    last_step: int,
    best: Sequence[Mark | None] = (),
    label: str = "",
    colours: Sequence[int] = (),
) -> Markup:
    """Return a chart of lines over iterations; the range of values that one point stands for is shaded.

    Args:
        series: Lines to draw.
        last_step: End of the axis, the same for all charts of a page.
        best: Value to mark for each line, or None.
        label: Text for a reader who cannot see the chart.
        colours: Number of the look of each line; by default colours in their order.
    """
    chosen = colours or [number % COLOURS for number in range(len(series))]
    drawn = [one for one in series if one.points]
    if not drawn:
        nothing = tag("text", "no finite value", x=WIDTH / 2, y=HEIGHT / 2, text_anchor="middle")
        return tag("svg", nothing, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=label)
    low = min((p.low for s in drawn for p in s.points), default=0.0)
    high = max((p.high for s in drawn for p in s.points), default=1.0)
    scale = Scale(low, high, logarithmic=_spans_decades(drawn, low, high))
    end = max(last_step, 1)

    def x(step: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * step / end

    def y(value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - scale.place(value))

    marks = [*best, *[None] * len(series)]
    parts = [
        *_grid(scale, y),
        *(
            tag("text", count(step), x=f"{x(step):.1f}", y=HEIGHT - BOTTOM + 15, text_anchor="middle")
            for step in ticks(0, end, 4)
            if step == int(step)
        ),
        tag("text", "iteration", x=WIDTH - RIGHT, y=HEIGHT - 4, text_anchor="end", class_="axis"),
    ]
    for number, one in enumerate(series):
        colour = look(chosen[number])
        if any(point.high > point.low for point in one.points):
            above = [f"{x(p.step):.1f},{y(p.high):.1f}" for p in one.points]
            below = [f"{x(p.step):.1f},{y(p.low):.1f}" for p in reversed(one.points)]
            parts.append(tag("polygon", points=" ".join(above + below), class_=f"band {colour}"))
    for number, one in enumerate(series):
        colour = look(chosen[number])
        line = " ".join(f"{x(p.step):.1f},{y(p.value):.1f}" for p in one.points)
        if len(one.points) > 1:
            parts.append(tag("polyline", points=line, class_=f"line {colour}"))
        every = max(1, math.ceil(len(one.points) / MAX_HOVERED))
        has_dots = len(one.points) <= 25
        for point in one.points[::every]:
            hint = tag("title", f"{one.name} {value(point.value)} at iteration {point.step:.0f}")
            at = {"cx": f"{x(point.step):.1f}", "cy": f"{y(point.value):.1f}"}
            if has_dots and len(one.points) > 1:
                parts.append(tag("circle", **at, r="2.6", class_=f"dot {colour}"))
            parts.append(tag("circle", hint, **at, r="8", class_="hover"))
    for number, mark in enumerate(marks[: len(series)]):
        if mark is not None and series[number].points:
            hint = tag("title", f"best {series[number].name}: {value(mark.value)} at iteration {mark.step}")
            place = f"translate({x(mark.step):.1f} {y(mark.value):.1f})"
            parts.append(tag("path", hint, d=STAR, transform=place, class_=f"star {look(chosen[number])}"))
    for number, one in enumerate(series):
        if len(one.points) == 1:
            # A ring, so that a star or a line at the same place is still seen.
            at = {"cx": f"{x(one.points[0].step):.1f}", "cy": f"{y(one.points[0].value):.1f}"}
            parts.append(tag("circle", **at, r="5", class_=f"ring {look(chosen[number])}"))
    if scale.logarithmic:
        parts.append(tag("text", "log scale", x=LEFT + 4, y=HEIGHT - BOTTOM - 5, class_="axis"))
    return tag("svg", *parts, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=label)


STAR = "M0-7.5 2-2.4 7.4-2.3 3.2 1.1 4.7 6.3 0 3.3-4.7 6.3-3.2 1.1-7.4-2.3-2-2.4Z"


def _grid(scale: Scale, y: object) -> list[Markup]:
    found = []
    for tick in scale.ticks():
        at = f"{y(tick):.1f}"  # type: ignore[operator]
        found.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=at, y2=at, class_="grid"))
        found.append(tag("text", value(tick), x=LEFT - 6, y=at, text_anchor="end", dominant_baseline="middle"))
    return found


def _spans_decades(series: Sequence[Series], low: float, high: float) -> bool:
    less = all(one.rule == "less" for one in series)
    return bool(series) and less and low > 0 and math.log10(high / low) > DECADES


class Scale:
    """A scale of values between the bottom (0) and the top (1)."""

    def __init__(self, low: float, high: float, *, logarithmic: bool = False) -> None:
        self.logarithmic = logarithmic
        low, high = (math.log10(low), math.log10(high)) if logarithmic else (low, high)
        # Halves, since the difference of very large numbers overflows.
        margin = (high / 2 - low / 2) * 0.1 or abs(high) * 0.05 or 1.0
        self._low = max(-1e308, low - margin)
        self._high = min(1e308, high + margin)
        if low >= 0 and not logarithmic:
            self._low = max(0.0, self._low)

    def place(self, value: float) -> float:
        """Return a place between 0 and 1, for values in the range of this scale."""
        value = math.log10(value) if self.logarithmic else value
        return min(1.0, max(0.0, (value / 2 - self._low / 2) / (self._high / 2 - self._low / 2)))

    def ticks(self) -> list[float]:
        """Return the round values to label."""
        if self.logarithmic:
            first, last = max(-307, math.ceil(self._low)), min(308, math.floor(self._high))
            every = max(1, math.ceil((last - first + 1) / 5))
            return [10.0**power for power in range(first, last + 1, every)]
        return ticks(self._low, self._high, 5)


def ticks(low: float, high: float, about: int) -> list[float]:
    """Return round numbers from low to high, roughly as many as asked for.

    Example:
        >>> ticks(0.03, 0.97, 5), ticks(0, 1500, 4)
        ([0.2, 0.4, 0.6, 0.8], [0.0, 500.0, 1000.0, 1500.0])
    """
    span = high - low
    # The difference of very large numbers overflows.
    if not 0 < span < math.inf:
        return []
    rough = span / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next((power * factor for factor in (1, 2, 5) if power * factor >= rough * 0.999), power * 10)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{n * step:.12g}") for n in range(first, last + 1)]


def value(number: float) -> str:
    """Return a number in few characters.

    Example:
        >>> [value(number) for number in (0.98214, 12345.678, 0.000031, 0, 1500.0, 0.1)]
        ['0.9821', '12,346', '3.1e-05', '0', '1,500', '0.1']
    """
    size = abs(number)
    if size >= 1e6 or 0 < size < 1e-3:
        mantissa, _, power = f"{number:.3e}".partition("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{power}"
    if size >= 1000:
        return f"{number:,.0f}"
    return f"{number:.4f}".rstrip("0").rstrip(".") if size < 10 else f"{number:.2f}".rstrip("0").rstrip(".")


def count(number: float) -> str:
    """Return a number of iterations in few characters.

    Example:
        >>> count(500), count(20000), count(2500000)
        ('500', '20k', '2.5M')
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= size:
            return f"{number / (1e3 if letter == 'k' else size):g}{letter}"
    return f"{number:g}"


def bar(parts: Sequence[tuple[str, float]], colours: Sequence[int] = ()) -> Markup:
    """Return one bar of shares side by side, with a legend."""
    whole = sum(share for _, share in parts) or 1.0
    chosen = [*colours, *range(len(colours), len(parts))]
    places, at = [], 0.0
    for (name, share), number in zip(parts, chosen, strict=False):
        width = 100 * share / whole
        hint = tag("title", f"{name} {share / whole:.1%}")
        style = {"x": f"{at:.2f}", "width": f"{width:.2f}", "y": "0", "height": "6"}
        places.append(tag("rect", hint, **style, class_=f"part s{number % COLOURS}"))
        at += width
    legend = [
        tag("li", tag("i", class_=f"key s{number % COLOURS}"), tag("span", name, " ", tag("b", f"{share / whole:.0%}")))
        for (name, share), number in zip(parts, chosen, strict=False)
    ]
    drawing = tag("svg", *places, viewBox="0 0 100 6", preserveAspectRatio="none", role="img", class_="bar")
    return joined([drawing, tag("ul", *legend, class_="legend")])
