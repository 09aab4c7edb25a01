"""Every combination of channels, layout, type and range gives a picture or a clear error."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from ignite_hooks.drawing.images import as_array, as_images, resized
from ignite_hooks.drawing.theme import NOT_A_NUMBER

CHANNELS = (1, 2, 3, 4, 5, 13)
TYPES: list[Any] = [
    torch.uint8,
    torch.int16,
    torch.int64,
    torch.bool,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
]


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize("channels", CHANNELS)
def test_every_channel_count_layout_and_type_gives_a_picture(channels: int, dtype: torch.dtype, layout: str) -> None:
    values = (torch.arange(2 * channels * 20 * 24).reshape(2, channels, 20, 24) % 200).to(dtype)
    batch = values if layout == "NCHW" else values.permute(0, 2, 3, 1)
    pictures = as_images(batch)
    assert [picture.shape for picture in pictures] == [(20, 24, 3)] * 2
    assert all(picture.dtype == np.uint8 for picture in pictures)
    assert np.array_equal(pictures[0], as_images(values)[0]), "the layout is found"
    assert np.array_equal(pictures[0], as_images(batch.numpy() if dtype != torch.bfloat16 else batch.float())[0])


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ((7, 4, 4), (4, 4)),
        ((12, 8, 8), (8, 8)),
        ((8, 8, 12), (8, 8)),
        ((3, 8, 8), (8, 8)),
        ((8, 8, 3), (8, 8)),
        ((1, 1, 28), (1, 28)),
        ((1, 28, 1), (28, 1)),
        ((3, 3, 40), (3, 40)),
    ],
)
def test_two_equal_dimensions_are_the_image_the_third_channels(shape: Any, size: Any) -> None:
    assert as_images(np.zeros((2, *shape)))[0].shape == (*size, 3)


def test_mean_and_std_may_be_arrays() -> None:
    images = torch.tensor([0.0, 1.0, -1.0]).reshape(1, 3, 1, 1).expand(1, 3, 2, 2)
    for kind in (list, np.array, torch.tensor):
        found = as_images(images, mean=kind([0.5, 0.5, 0.5]), std=kind([0.1, 0.2, 0.3]))
        assert found[0][0, 0].tolist() == [128, 179, 51]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0, 0.5, 1.0], [0, 128, 255]),
        ([-1.0, 0.0, 1.0], [0, 128, 255]),
        ([0.0, 127.0, 254.0], [0, 127, 254]),
        ([-2.0, 1.0, 4.0], [0, 128, 255]),
        ([7.0, 7.0, 7.0], [7, 7, 7]),
        ([300.0, 300.0, 300.0], [128, 128, 128]),
    ],
)
def test_the_range_of_numbers_is_found(values: list[float], expected: list[int]) -> None:
    assert as_images(np.array([[values]]))[0][0, :, 0].tolist() == expected


@pytest.mark.parametrize("of", [1.0, 255.0])
def test_normalised_images_regain_their_colours(of: float) -> None:
    mean, std = [0.485 * of, 0.456 * of, 0.406 * of], [0.229 * of, 0.224 * of, 0.225 * of]
    image = np.random.default_rng(0).random((1, 3, 6, 6)).astype(np.float32) * of
    normalised = (image - np.reshape(mean, (1, 3, 1, 1))) / np.reshape(std, (1, 3, 1, 1))
    found = as_images(normalised.astype(np.float32), mean=mean, std=std)[0]
    expected = (image[0].transpose(1, 2, 0) / of * 255).round()
    assert np.abs(found.astype(float) - expected).max() <= 1


def test_only_pixels_that_are_not_finite_are_magenta() -> None:
    image = torch.tensor([[[0.0, 1.0], [float("nan"), float("inf")]]])
    picture = as_images(image)[0]
    assert picture[0].tolist() == [[0, 0, 0], [255, 255, 255]]
    assert picture[1].tolist() == [list(NOT_A_NUMBER)] * 2
    assert as_images(torch.full((1, 3, 4, 4), float("nan")))[0][0, 0].tolist() == list(NOT_A_NUMBER)


def test_images_may_differ_in_size_and_strides() -> None:
    images = [torch.rand(3, 8, 10), torch.rand(3, 12, 6)]
    assert [picture.shape for picture in as_images(images)] == [(8, 10, 3), (12, 6, 3)]
    assert as_images(np.zeros((2, 8, 8, 3), np.uint8)[:, ::-1, ::-1])[0].flags.c_contiguous


@pytest.mark.parametrize("count", [0, 1, 3])
def test_the_number_of_images_is_limited(count: int) -> None:
    assert len(as_images(torch.zeros(count, 1, 4, 4), limit=2)) == min(count, 2)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (torch.zeros(8, 4), r"N x C x H x W, N x H x W x C, or N x H x W if grey, not \(8, 4\)"),
        (torch.zeros(2, 3, 4, 4, 4), "not \\(2, 3, 4, 4, 4\\)"),
        (torch.zeros(2, 3, 0, 4), "no pixels"),
        (torch.zeros(2, 3, 4, 4, dtype=torch.complex64), "hold numbers, not complex64"),
        ("images", "a tensor, an array or a list of these, not 'images'"),
        ([torch.zeros(4)], "C x H x W, H x W x C, or H x W if grey"),
    ],
)
def test_invalid_images_raise_a_clear_error(batch: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        as_images(batch)


def test_the_error_for_a_mean_names_the_right_length() -> None:
    with pytest.raises(ValueError, match="mean has 3 values for images of 1 channels: give 1 or 1"):
        as_images(torch.zeros(1, 1, 4, 4), mean=[0.5, 0.5, 0.5])


def test_small_pictures_are_enlarged_by_whole_factors_large_ones_reduced() -> None:
    shapes = [(8, 8), (25, 20), (224, 224), (2000, 1000)]
    shown = [resized(np.zeros((*shape, 3), np.uint8)).shape[:2] for shape in shapes]
    assert shown == [(128, 128), (150, 120), (224, 224), (512, 256)]


def test_tensors_of_any_kind_become_arrays() -> None:
    with torch.inference_mode():
        inference = torch.ones(2)
    tensors = [torch.ones(2, requires_grad=True), inference, torch.ones(2).bfloat16(), torch.ones(2).to_sparse()]
    assert all(as_array(tensor).tolist() == [1, 1] for tensor in tensors)


def test_random_batches_never_fail() -> None:
    seed = 20
    print("seed", seed)
    draw = np.random.default_rng(seed)
    for channels, high, wide in itertools.product((1, 2, 3, 4, 6), (1, 2, 5), (1, 3, 7)):
        scale = 10.0 ** draw.integers(-6, 7)
        batch = draw.standard_normal((2, channels, high, wide)) * scale
        assert [picture.shape[2] for picture in as_images(batch)] == [3, 3]
