from __future__ import annotations

import pytest
import torch

from ignite_hooks.errors import ExportError
from ignite_hooks.export.example import Example, example_inputs
from tests.export.models import Named


def test_a_batch_of_another_size_repeats_the_samples() -> None:
    example = Example.of(torch.nn.Linear(1, 1), torch.tensor([[1.0], [2.0]]))
    assert example.resized(5).args[0].flatten().tolist() == [1, 2, 1, 2, 1]
    assert example.resized(1).args[0].tolist() == [[1.0]]


def test_a_mapping_gives_the_arguments_that_the_model_names() -> None:
    inputs = {"x": torch.zeros(2, 3), "mask": torch.ones(2), "id": torch.arange(2)}
    example = Example.of(Named(), inputs)
    assert sorted(example.kwargs) == ["mask", "x"]
    assert example.described() == [
        {"shape": ["batch", 3], "dtype": "float32"},
        {"shape": ["batch"], "dtype": "float32"},
    ]
    assert example.dynamic_shapes("b") == {"x": {0: "b"}, "mask": {0: "b"}}


def test_only_floating_point_numbers_are_cast() -> None:
    example = Example.of(torch.nn.Identity(), [torch.zeros(2), torch.arange(2)]).cast(torch.float16)
    assert [each.dtype for each in example.tensors()] == [torch.float16, torch.int64]


@pytest.mark.parametrize("inputs", [3, torch.tensor(1.0), torch.zeros(0, 2), "text"])
def test_inputs_without_samples_are_refused(inputs: object) -> None:
    with pytest.raises(ExportError, match="a batch of tensors is needed"):
        Example.of(torch.nn.Identity(), inputs)


def test_the_inputs_are_those_of_the_first_batch() -> None:
    assert example_inputs([(torch.ones(2), torch.zeros(2))]).tolist() == [1, 1]
    for data in ([], [(1, 2, 3)]):
        with pytest.raises(ExportError, match="give ExportHook the setting inputs"):
            example_inputs(data)
