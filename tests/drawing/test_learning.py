from __future__ import annotations

import math
import warnings

import numpy as np

from ignite_hooks.drawing.layout import as_pixels
from ignite_hooks.drawing.learning import MOST_POINTS, curves, thinned


def test_train_and_val_of_one_number_stand_in_one_picture() -> None:
    figure = curves({"loss": [(1, 1.0)], "val_loss": [(1, 2.0)], "val/accuracy": [(1, 0.5)], "accuracy": [(1, 0.4)]})
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["loss", "accuracy"]
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["train", "val"]


def test_anything_that_can_happen_to_a_number_gives_a_picture_without_a_warning() -> None:
    histories: list[dict[str, list[tuple[float, float]]]] = [
        {},
        {"loss": []},
        {"loss": [(1, math.nan)]},
        {"loss": [(1, 1.0), (2, math.inf), (3, 2.0)]},
        {"loss": [(1, 1e30), (2, -1e30)]},
        {"$x_1$": [(1, 1.0)]},
        {"准确率": [(1, 1.0)], "val_准确率": [(1, 1.0)]},
        {f"metric {n}": [(1, n)] for n in range(9)},
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for history in histories:
            assert as_pixels(curves(history, title="曲线", best={"loss": (1, 1.0)})).ndim == 3


def test_many_points_are_thinned_and_keep_both_ends() -> None:
    points = [(n, float(n)) for n in range(100_000)]
    kept = thinned(points, MOST_POINTS)
    assert len(kept) == MOST_POINTS
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    (line,) = curves({"loss": points}).axes[0].get_lines()
    assert len(np.asarray(line.get_xdata())) == MOST_POINTS
