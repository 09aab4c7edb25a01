from __future__ import annotations

import math

import pytest
import torch

from ignite_hooks.errors import ExportError
from ignite_hooks.export.verify import difference, outputs_of

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("wanted", "found", "expected"),
    [
        ([1.0, 2.0], [1.0, 2.5], 0.25),
        ([0.1], [0.2], 0.1),
        ([NAN, INF], [NAN, INF], 0.0),
        ([1.0], [NAN], INF),
        ([1.0], [INF], INF),
        ([], [], 0.0),
    ],
)
def test_the_largest_difference_is_relative_to_large_values(
    wanted: list[float], found: list[float], expected: float
) -> None:
    assert difference([torch.tensor(wanted)], [torch.tensor(found)]) == pytest.approx(expected)


def test_outputs_of_other_shapes_are_refused() -> None:
    with pytest.raises(ExportError, match="shapes"):
        difference([torch.zeros(2)], [torch.zeros(3)])
    with pytest.raises(ExportError, match="shapes"):
        difference([torch.zeros(2)], [])


def test_the_tensors_of_any_output_are_taken_in_order() -> None:
    found = outputs_of({"a": torch.tensor(1), "b": [torch.tensor(2), (torch.tensor(3.0), None)]})
    assert [float(each) for each in found] == [1, 2, 3]
    assert outputs_of(torch.tensor([1 + 2j]))[0].tolist() == [[1, 2]]
    with pytest.raises(ExportError, match="returns no tensor but str"):
        outputs_of("text")
