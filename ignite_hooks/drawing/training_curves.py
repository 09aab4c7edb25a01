"""Learning curves as figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ignite_hooks.drawing.theme import INK, LINE, PALETTE, PAPER, Colour, font_file, readable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_POINTS = 1000
"""Maximum number of points of a line; more would not be visible."""

PREFIXES = ("val_", "test_", "train_")


def curves(
    history: Mapping[str, Sequence[tuple[float, float]]],
    *,
    title: str = "",
    best: Mapping[str, tuple[float, float]] | None = None,
) -> Figure:
    """Draw numbers over iterations; ``loss`` and ``val_loss`` share axes.

    Args:
        history: Points (iteration, value) of each number; values that are not finite leave a gap.
        title: Line above all axes.
        best: Point to mark, by number.

    Example:
        >>> figure = curves({"loss": [(1, 2.0), (2, 1.0)], "val_loss": [(2, 1.5)], "accuracy": [(2, 0.5)]})
        >>> [axes.get_title(loc="left") for axes in figure.axes]
        ['loss', 'accuracy']
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    groups: dict[str, list[str]] = {}
    for name in history:
        groups.setdefault(plain_name(name), []).append(name)
    columns = min(3, max(1, len(groups)))
    rows = -(-max(1, len(groups)) // columns)
    last = max((float(points[-1][0]) for points in history.values() if points), default=1.0) or 1.0
    width, height, head = 4.6 * columns, 3.2 * rows, 0.35 if title else 0.05
    figure = Figure(figsize=(width, height + head), dpi=110, facecolor=_part(PAPER))
    # Margins in inches: an automatic layout takes three times as long as the drawing itself.
    figure.subplots_adjust(
        left=0.6 / width,
        right=1 - 0.25 / width,
        bottom=0.5 / (height + head),
        top=1 - (head + 0.35) / (height + head),
        wspace=0.75 / (4.6 - 0.75),
        hspace=0.85 / (3.2 - 0.85),
    )
    if title:
        _write(figure.suptitle, title, x=0.15 / width, y=1 - 0.12 / (height + head), ha="left", va="top", fontsize=12)
    for index, (group, names) in enumerate(groups.items()):
        axes = figure.add_subplot(rows, columns, index + 1)
        _prepare(axes, group, "iteration")
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=1))
        axes.set_xlim(0, last * 1.04)
        colours = _colours_of(names)
        for name in names:
            points = np.array(thinned(history[name], MAX_POINTS), np.float64).reshape(-1, 2)
            points[~np.isfinite(points)] = np.nan
            colour = _part(colours[name])
            few = len(points) <= 30
            axes.plot(
                points[:, 0],
                points[:, 1],
                color=colour,
                linewidth=1.6,
                marker="o" if few else None,
                markersize=3.5,
                label=readable(_who(name)),
            )
            if best and name in best and np.isfinite(best[name]).all():
                axes.plot(*best[name], color=colour, marker="*", markersize=12, linestyle="none")
                axes.margins(y=0.2)
                side = "right" if best[name][0] > last / 2 else "left"
                text = f"{best[name][1]:.4g}"
                axes.annotate(text, best[name], (0, 7), textcoords="offset points", fontsize=8, ha=side)
        if not any(np.isfinite(line.get_ydata()).any() for line in axes.get_lines()):
            axes.set_yticks([])
            axes.text(0.5, 0.5, "no finite value", transform=axes.transAxes, ha="center", fontsize=8)
        if len(names) > 1 or _who(names[0]) != "train":
            legend = axes.legend(fontsize=8, frameon=False)
            for entry in legend.get_texts():
                _set_font(entry, 8)
    return figure


def range_test(points: Sequence[tuple[float, float]], chosen: float | None, *, title: str = "") -> Figure:
    """Draw losses over learning rates.

    Args:
        points: Learning rates and losses; losses far above the first are cut off.
        chosen: Learning rate to mark.
        title: Line above the axes.

    Example:
        >>> range_test([(1e-3, 2.0), (1e-2, 1.0), (1e-1, 3.0)], 1e-2).axes[0].get_xscale()
        'log'
    """
    from matplotlib.figure import Figure

    array = np.array(points, np.float64).reshape(-1, 2)
    figure = Figure(figsize=(6.0, 3.8), dpi=110, facecolor=_part(PAPER))
    figure.subplots_adjust(left=0.11, right=0.96, bottom=0.13, top=0.82)
    _write(figure.suptitle, title, x=0.03, y=0.97, ha="left", va="top", fontsize=12)
    axes = figure.add_subplot()
    _prepare(axes, "loss", "learning rate")
    axes.set_xscale("log")
    axes.plot(array[:, 0], array[:, 1], color=_part(PALETTE[0]), linewidth=1.8)
    losses = array[np.isfinite(array[:, 1]), 1]
    if len(losses):
        low, high = float(losses.min()), max(float(losses[0]), float(np.median(losses)))
        room = (high - low) * 0.15 or 1.0
        axes.set_ylim(low - room, high + 3 * room)
    if chosen is not None:
        colour = _part(PALETTE[1])
        axes.axvline(chosen, color=colour, linewidth=1.2, linestyle="--")
        place = (chosen, axes.get_ylim()[1])
        _write(axes.annotate, f"{chosen:.2g}", xy=place, xytext=(4, -11), textcoords="offset points", fontsize=9)
    return figure


def _prepare(axes: Any, title: str, across: str) -> None:
    axes.set_facecolor(_part(PAPER))
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(_part(LINE))
    axes.grid(color=_part(LINE), linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8, colors=_part(INK), length=0)
    _write(axes.set_title, title, loc="left", fontsize=10)
    axes.set_xlabel(across, fontsize=8, color=_part(INK))


def plain_name(name: str) -> str:
    """Return the name of a quantity without the prefix of its evaluator.

    Example:
        >>> plain_name("val_loss"), plain_name("val/loss"), plain_name("loss")
        ('loss', 'loss', 'loss')
    """
    plain = name.replace("/", "_")
    return next((plain.removeprefix(prefix) for prefix in PREFIXES if plain.startswith(prefix)), plain)


def thinned(points: Sequence[Any], most: int) -> list[Any]:
    """Return at most ``most`` points, evenly spread, with the first and the last.

    Example:
        >>> thinned(list(range(10)), 4)
        [0, 3, 6, 9]
    """
    if len(points) <= most:
        return list(points)
    return [points[round(at)] for at in np.linspace(0, len(points) - 1, most)]


def _who(name: str) -> str:
    plain = name.replace("/", "_")
    return next((prefix.rstrip("_") for prefix in PREFIXES if plain.startswith(prefix)), "train")


def _colours_of(names: Sequence[str]) -> dict[str, Colour]:
    """Return a colour for each number: that of its evaluator in all pictures, or the next if that is taken."""
    found: dict[str, Colour] = {}
    for name in names:
        wanted = {"train": 0, "val": 1, "test": 2}[_who(name)]
        order = [*PALETTE[wanted:], *PALETTE[:wanted]]
        found[name] = next((colour for colour in order if colour not in found.values()), order[0])
    return found


def _write(write: Any, text: str, **how: Any) -> None:
    _set_font(write(readable(text), color=_part(INK), **how), how["fontsize"])


def _set_font(text: Any, size: float) -> None:
    from matplotlib.font_manager import FontProperties

    file = font_file(text.get_text())
    if file is not None:
        text.set_fontproperties(FontProperties(fname=str(file), size=size))
    # A dollar sign in the name of a metric does not begin a formula.
    text.set_parse_math(False)


def _part(colour: tuple[int, int, int]) -> tuple[float, float, float]:
    return (colour[0] / 255, colour[1] / 255, colour[2] / 255)
