from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import one_hot

from ignite_hooks.drawing.masks import IGNORED, agreement, as_mask, coloured, difference, edges, legend_of, overlay
from ignite_hooks.drawing.theme import PALETTE, WRONG

INDEX = torch.tensor([[0, 0, 1, 1], [2, 2, 1, 0]])


@pytest.mark.parametrize(
    "given",
    [
        INDEX,
        INDEX[None],
        INDEX.float(),
        INDEX.to(torch.uint8),
        one_hot(INDEX).permute(2, 0, 1),
        one_hot(INDEX).permute(2, 0, 1).bool(),
        one_hot(INDEX).permute(2, 0, 1) * 7.5 - 3.0,
        (one_hot(INDEX).permute(2, 0, 1) * 7.5 - 3.0).bfloat16(),
        INDEX.numpy(),
    ],
    ids=["index", "1 x index", "floats", "bytes", "one-hot", "booleans", "logits", "bfloat16", "array"],
)
def test_masks_are_read_in_every_usual_form(given: Any) -> None:
    assert as_mask(given).tolist() == INDEX.tolist()


@pytest.mark.parametrize(("values", "expected"), [([[-0.5, 3.2]], [[0, 1]]), ([[0.2, 0.7]], [[0, 1]])])
def test_a_single_plane_is_logits_or_probabilities_of_one_class(values: Any, expected: Any) -> None:
    assert as_mask(np.array([values])).tolist() == expected


def test_pixels_without_a_class_are_ignored_in_one_hot() -> None:
    planes = one_hot(INDEX).permute(2, 0, 1).clone()
    planes[:, 0, 0] = 0
    assert as_mask(planes, ignore_index=255)[0, 0] == 255


def test_logits_that_are_not_a_number_lose() -> None:
    assert as_mask(np.array([[[np.nan]], [[-5.0]]])).tolist() == [[1]]


@pytest.mark.parametrize("wrong", [np.zeros(4), np.zeros((2, 2, 2, 2)), np.zeros((0, 4)), np.array([["a"]])])
def test_invalid_masks_raise_a_clear_error(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"a mask must have the shape H x W, 1 x H x W or C x H x W, not"):
        as_mask(wrong)


def test_opacity_hides_the_picture_and_edges_are_not_mixed() -> None:
    picture = np.full((4, 6, 3), 200, np.uint8)
    mask = np.array([[0, 0, 0, 1, 1, 1]] * 4)
    assert np.array_equal(overlay(picture, mask, opacity=0.0, show_edge=False), picture)
    assert np.array_equal(overlay(picture, mask, opacity=1.0), coloured(mask))
    half = overlay(picture, mask, opacity=0.5)
    assert half[0, 0].tolist() == [round((200 + v) / 2 + 0.1) for v in PALETTE[0]]
    assert half[0, 2].tolist() == list(PALETTE[0]), "an edge"


def test_edges_lie_on_both_sides_of_borders_only() -> None:
    assert edges(np.array([[1, 1], [1, 2]])).tolist() == [[False, True], [True, True]]
    assert not edges(np.ones((5, 5), int)).any()


def test_the_difference_shows_wrong_and_ignored_pixels() -> None:
    truth, guess = np.array([[0, 1, 255]]), np.array([[0, 0, 0]])
    found = difference(truth, guess, ignore_index=255)
    assert found[0, 1].tolist() == list(WRONG)
    assert found[0, 2].tolist() == list(IGNORED)
    assert agreement(truth, guess, 255) == 0.5
    assert agreement(np.array([[255]]), np.array([[0]]), 255) == 1.0


def test_the_legend_has_the_classes_that_occur() -> None:
    assert legend_of([np.array([[1, 255]])], ["sky", "road"], None, 255) == [("road", PALETTE[1]), ("ignored", IGNORED)]


@pytest.mark.parametrize("label", [-1, 300, 10**6])
def test_every_class_index_has_a_colour(label: int) -> None:
    assert coloured(np.array([[label]])).shape == (1, 1, 3)


def test_different_sizes_raise_an_error() -> None:
    with pytest.raises(ValueError, match="a mask of 2 x 2 does not fit an image of 3 x 3"):
        overlay(np.zeros((3, 3, 3), np.uint8), np.zeros((2, 2), int))
    with pytest.raises(ValueError, match="a truth of 2 x 2 cannot be compared with a prediction of 3 x 3"):
        difference(np.zeros((2, 2), int), np.zeros((3, 3), int))
