from __future__ import annotations

import numpy as np
import pytest

from ignite_hooks.drawing.heatmaps import heat, heat_over
from ignite_hooks.drawing.theme import NOT_A_NUMBER


def test_higher_values_are_lighter_in_grey_too() -> None:
    picture = heat(np.linspace(0, 1, 64)[None])
    grey = picture[0].astype(float) @ [0.299, 0.587, 0.114]
    assert (np.diff(grey) >= -1).all()


def test_the_range_can_be_given() -> None:
    assert np.array_equal(heat([[0.5, 2.0]], 0.0, 1.0)[0, 1], heat([[0.0, 1.0]])[0, 1])


@pytest.mark.parametrize("values", [np.zeros((2, 2)), np.full((2, 2), 5.0), np.full((2, 2), np.nan), [[1, 2], [3, 4]]])
def test_constant_empty_and_whole_numbers_give_a_picture(values: object) -> None:
    assert heat(values).shape == (2, 2, 3)


def test_values_that_are_not_finite_are_magenta() -> None:
    assert heat([[0.0, np.inf, 1.0]])[0, 1].tolist() == list(NOT_A_NUMBER)
    assert heat_over(np.zeros((1, 3, 3), np.uint8), [[0.0, np.nan, 1.0]])[0, 1].tolist() == list(NOT_A_NUMBER)


@pytest.mark.parametrize("wrong", [np.zeros(3), np.zeros((0, 2)), np.zeros((1, 2, 3))])
def test_invalid_maps_raise_a_clear_error(wrong: object) -> None:
    with pytest.raises(ValueError, match="a map has the shape H x W, not"):
        heat(wrong)


def test_map_and_picture_need_the_same_size() -> None:
    with pytest.raises(ValueError, match=r"a map of \(2, 2\) does not fit a picture of \(3, 3\)"):
        heat_over(np.zeros((3, 3, 3), np.uint8), np.zeros((2, 2)))
