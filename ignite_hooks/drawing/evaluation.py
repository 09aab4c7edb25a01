"""Draws results of an evaluation: a confusion matrix, bars for the classes, curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ignite_hooks.drawing.confusion_matrix import confusion
from ignite_hooks.drawing.theme import INK, LINE, PALETTE, PAPER, Colour, readable

MOST_BARS = 50


def drawn(result: Mapping[str, Any], *, title: str = "") -> Any:
    """Return the picture or the figure of a result; None for a table, which is no picture.

    Args:
        result: What `Result.to_json` returned.
        title: Line above it.

    Example:
        >>> drawn({"kind": "vector", "values": [0.5, 1.0], "labels": ["cat", "dog"]}).axes[0].get_title(loc="left")
        ''
    """
    if result["kind"] == "matrix":
        return confusion(result["values"], result.get("labels") or None, title=title)
    if result["kind"] == "vector":
        return bars(result["values"], result.get("labels") or None, title=title)
    return lines(result["lines"], result["axes"], title=title) if result["kind"] == "curves" else None


def bars(values: Sequence[float], labels: Sequence[str] | None = None, *, title: str = "") -> Any:
    """Draw one bar for each class; of many classes those with the lowest values.

    Args:
        values: A number for each class.
        labels: The names of the classes.
        title: Line above the bars.
    """
    names = [readable(str(place if labels is None else labels[place])) for place in range(len(values))]
    chosen = list(range(len(values)))
    if len(chosen) > MOST_BARS:
        chosen = sorted(np.argsort(np.nan_to_num(np.asarray(values, float), nan=np.inf))[:MOST_BARS].tolist())
    figure, axes = _figure(6.0, 0.9 + 0.26 * len(chosen), title)
    shown = np.asarray([values[place] for place in chosen], float)
    axes.barh(range(len(chosen)), np.nan_to_num(shown), color=_part(PALETTE[0]), height=0.7)
    axes.set_yticks(range(len(chosen)), [names[place] for place in chosen], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(min(0.0, float(np.nanmin([*shown, 0.0]))), max(1.0, float(np.nanmax([*shown, 0.0]))))
    for place, value in enumerate(shown):
        axes.text(float(np.nan_to_num(value)), place, f" {value:.3g}", va="center", fontsize=8, color=_part(INK))
    figure.subplots_adjust(
        left=0.28, right=0.93, top=1 - 0.45 / figure.get_figheight(), bottom=0.35 / figure.get_figheight()
    )
    return figure


def lines(found: Mapping[str, Sequence[Sequence[float]]], axes_names: Sequence[str], *, title: str = "") -> Any:
    """Draw curves over each other.

    Args:
        found: The places on both axes, by label.
        axes_names: What the axes are.
        title: Line above the curves.
    """
    figure, axes = _figure(5.4, 4.2, title)
    for number, (label, (x, y)) in enumerate(found.items()):
        axes.plot(x, y, color=_part(PALETTE[number % len(PALETTE)]), linewidth=1.5, label=readable(label) or "_")
    axes.set_xlabel(axes_names[0], fontsize=9)
    axes.set_ylabel(axes_names[1], fontsize=9)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.02)
    if any(found):
        axes.legend(fontsize=7, frameon=False)
    figure.subplots_adjust(left=0.13, right=0.97, top=0.9, bottom=0.13)
    return figure


def _figure(width: float, height: float, title: str) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=110, facecolor=_part(PAPER))
    axes = figure.add_subplot()
    axes.set_facecolor(_part(PAPER))
    axes.set_title(readable(title), loc="left", fontsize=10)
    axes.tick_params(labelsize=8, colors=_part(INK))
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(_part(LINE))
    return figure, axes


def _part(colour: Colour) -> tuple[float, float, float]:
    red, green, blue = (channel / 255 for channel in colour)
    return red, green, blue
