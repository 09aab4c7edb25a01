"""Figures of a profile and of the flow of gradients."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ignite_hooks.drawing.theme import BLUE, GREEN, GREY, PHASES, as_hex

MAX_NAME_LENGTH = 32


def draw_profile(phases: Mapping[str, float], operators: Sequence[tuple[str, float]]) -> Any:
    """Draw a bar of the phases of an iteration, and a bar for each of the most expensive operators, in milliseconds."""
    from matplotlib.figure import Figure

    shown = {name: value for name, value in phases.items() if value > 0}
    figure = Figure(figsize=(9, 1.9 + 0.3 * max(1, len(operators))), layout=_margins())
    above, below = figure.subplots(2, 1, height_ratios=[1.1, max(1, 0.35 * len(operators))])
    left = 0.0
    for name, value in shown.items():
        share = value / sum(shown.values())
        above.barh(0, value, left=left, color=as_hex(PHASES.get(name, GREY)), label=f"{name} {share:.0%}")
        left += value
    above.set_yticks([])
    above.set_title("an iteration, by phase", loc="left", fontsize=10, pad=22)
    above.set_xlabel("ms", loc="right", fontsize=8)
    above.set_xlim(0, left or 1)
    if shown:
        close = {"handlelength": 0.9, "handletextpad": 0.4, "columnspacing": 1.0, "borderaxespad": 0, "borderpad": 0.2}
        above.legend(ncols=6, fontsize=8, frameon=False, loc="lower left", bbox_to_anchor=(0, 1), **close)
    names = [_short(name) for name, _ in operators]
    below.barh(range(len(names)), [value for _, value in operators], color=as_hex(BLUE))
    below.set_yticks(range(len(names)), names, fontsize=8)
    below.invert_yaxis()
    below.set_title("the slowest operators, per iteration", loc="left", fontsize=10)
    below.set_xlabel("ms", loc="right", fontsize=8)
    for axes in (above, below):
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def png(figure: Any) -> bytes:
    """Return a figure as the bytes of a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from ignite_hooks.drawing.layout import keep_pixels

    file, canvas = io.BytesIO(), FigureCanvasAgg(figure)
    canvas.print_png(file)  # type: ignore[no-untyped-call]
    keep_pixels(figure, canvas)
    return file.getvalue()


def _margins() -> Any:
    """Return the layout of a figure whose titles and names keep away from its edges."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    return ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12)


def _short(name: str) -> str:
    return name if len(name) <= MAX_NAME_LENGTH else f"{name[: MAX_NAME_LENGTH - 1]}…"


MAX_LABELS = 60


def decades(heights: Sequence[float]) -> tuple[float, float]:
    """Return the powers of ten around positive heights, so that an axis has at least two ticks.

    Example:
        >>> decades([0.02, 0.03]), decades([1.0])
        ((0.01, 0.1), (0.1, 10.0))
    """
    low, high = math.floor(math.log10(min(heights))), math.ceil(math.log10(max(heights)))
    low -= 10.0**low >= min(heights)
    return float(f"1e{low}"), float(f"1e{max(high, low + 1) + (float(f'1e{high}') <= max(heights))}")


def draw_gradient_flow(strengths: Mapping[str, tuple[float, float]], ratios: Mapping[str, float]) -> Any:
    """Draw the mean and the largest gradient of the weights of each layer, and below the relative size of updates.

    Args:
        strengths: Mean and largest gradient by layer, in the order of the model.
        ratios: Size of an update relative to the weights, by layer; without any, the lower part is omitted.
    """
    from matplotlib.figure import Figure

    names = list(strengths)
    # Every bar is drawn, but a deep model has too many names to label them all.
    step = max(1, -(-len(names) // MAX_LABELS))
    width = min(14.0, 3.5 + 0.28 * len(names))
    figure = Figure(figsize=(max(6.0, width), 6.4 if ratios else 4.2), layout=_margins())
    rows = figure.subplots(2 if ratios else 1, 1, sharex=True, squeeze=False)[:, 0]
    above = rows[0]
    places = range(len(names))
    above.bar(places, [strengths[name][1] for name in names], color=as_hex(BLUE), alpha=0.3, label="largest")
    above.bar(places, [strengths[name][0] for name in names], color=as_hex(BLUE), width=0.5, label="mean")
    above.set_title("gradient of a weight, by layer", loc="left", fontsize=10)
    above.legend(fontsize=8, frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderaxespad=0)
    if ratios:
        rows[1].bar(places, [ratios.get(name, 0.0) for name in names], color=as_hex(GREEN), width=0.5)
        rows[1].axhline(1e-3, color=as_hex(GREY), linewidth=0.8, linestyle=":")
        rows[1].set_title("update / weights, by layer (1e-3 is usual)", loc="left", fontsize=10)
    for axes in rows:
        heights = [patch.get_height() for patch in axes.patches]
        if any(height > 0 for height in heights):
            axes.set_yscale("log")
            axes.set_ylim(*decades([height for height in heights if height > 0]))
            axes.minorticks_off()
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    rows[-1].set_xticks(list(places)[::step], [_short(name) for name in names[::step]], rotation=90, fontsize=7)
    return figure
