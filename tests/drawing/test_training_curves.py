from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

from ignite_hooks.drawing.layout import as_pixels
from ignite_hooks.drawing.training_curves import MAX_POINTS, curves, thinned


def test_training_and_validation_of_a_number_share_axes() -> None:
    figure = curves({"loss": [(1, 1.0)], "val_loss": [(1, 2.0)], "val/accuracy": [(1, 0.5)], "accuracy": [(1, 0.4)]})
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["loss", "accuracy"]
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["train", "val"]


def test_the_same_evaluator_has_the_same_colour_in_every_picture() -> None:
    names = ("loss", "val_loss", "val_accuracy", "test_f1", "lr")
    figure = curves({name: [(1, 0.5)] for name in names})
    colours = {
        (axes.get_title(loc="left"), line.get_label()): line.get_color()
        for axes in figure.axes
        for line in axes.get_lines()
    }
    assert colours["accuracy", "val"] == colours["loss", "val"] != colours["loss", "train"] == colours["lr", "train"]
    assert colours["f1", "test"] not in (colours["loss", "val"], colours["loss", "train"])
    legends = {axes.get_title(loc="left"): axes.get_legend() for axes in figure.axes}
    assert legends["accuracy"] is not None, "otherwise nothing shows that it is of val"
    assert legends["lr"] is None
    twins = curves({"val_loss": [(1, 1.0)], "val/loss": [(1, 2.0)]}).axes[0].get_lines()
    assert len({line.get_color() for line in twins}) == 2


@pytest.mark.parametrize("at", [1, 50, 100])
@pytest.mark.parametrize("value", [0.0, 12345.678])
def test_the_best_value_is_legible_wherever_it_lies(at: int, value: float) -> None:
    points = [(n, 12345.678 - value if n != at else value) for n in range(1, 101)]
    figure = curves(dict.fromkeys("abc", points), best=dict.fromkeys("abc", (at, value)))
    as_pixels(figure)
    for axes in figure.axes:
        (text,) = axes.texts
        place, panel = text.get_window_extent(), axes.get_window_extent()
        assert panel.x0 <= place.x0 < place.x1 <= panel.x1, text.get_text()
        assert panel.y0 <= place.y0 < place.y1 <= panel.y1, text.get_text()


def test_a_number_that_was_never_finite_has_no_scale() -> None:
    (axes,) = curves({"loss": [(1, math.nan), (2, math.inf)]}).axes
    assert [text.get_text() for text in axes.texts] == ["no finite value"]
    assert not list(axes.get_yticks())


def test_unusual_values_are_drawn_without_warnings() -> None:
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
    kept = thinned(points, MAX_POINTS)
    assert len(kept) == MAX_POINTS
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    (line,) = curves({"loss": points}).axes[0].get_lines()
    assert len(np.asarray(line.get_xdata())) == MAX_POINTS
