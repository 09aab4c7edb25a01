"""Batches that are mappings reach models by the names of their inputs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ignite_hooks.model.mapped_batches import call, predicted, prepare_batch


class Named(nn.Module):
    def forward(self, input_ids: Tensor, attention_mask: Any = None, labels: Any = None) -> Any:
        return input_ids, attention_mask, labels


class Free(nn.Module):
    def forward(self, **inputs: Any) -> Any:
        return inputs


class Plain(nn.Module):
    def forward(self, images: Tensor) -> Any:
        return images


@pytest.mark.parametrize("name", ["labels", "label", "targets", "target", "y"])
def test_the_targets_are_found_by_their_name(name: str) -> None:
    inputs, targets = prepare_batch({"x": torch.ones(2), name: torch.zeros(2)})
    assert (list(inputs), targets.tolist()) == (["x"], [0, 0])


def test_a_pair_stays_a_pair() -> None:
    inputs, targets = prepare_batch((torch.ones(2), torch.zeros(2)), "meta")
    assert (inputs.device.type, targets.device.type) == ("meta", "meta")


def test_a_batch_without_targets_is_an_error_that_names_what_it_has() -> None:
    with pytest.raises(ValueError, match=r"a batch of \['x', 'gold'\] has no targets: name them labels, label"):
        prepare_batch({"x": torch.ones(2), "gold": torch.ones(2)})


def test_a_model_gets_what_its_parameters_name() -> None:
    batch = {"input_ids": torch.ones(2), "attention_mask": torch.zeros(2), "sample_id": torch.ones(2)}
    ids, mask, labels = call(Named(), batch)
    assert (ids, mask, labels) == (batch["input_ids"], batch["attention_mask"], None)
    assert call(Free(), batch) == batch
    assert call(nn.DataParallel(Free()), batch) == batch


def test_one_input_needs_no_name() -> None:
    assert call(Plain(), {"pixel_values": 3}) == call(Plain(), 3) == 3


def test_inputs_that_no_parameter_names_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"the model takes \['images'\], and the batch holds \['a', 'b'\]: rename one"):
        call(Plain(), {"a": 1, "b": 2})


def test_predictions_are_the_logits_of_an_output() -> None:
    assert predicted({"loss": 1, "logits": 2}) == predicted(SimpleNamespace(logits=2)) == predicted(2) == 2
    assert predicted({"boxes": 1}) == {"boxes": 1}
