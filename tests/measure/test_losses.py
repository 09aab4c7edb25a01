"""Losses between two lines, and what counts as a number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from ignite_hooks.measure.losses import Window, numbers_of


def test_losses_are_not_fetched_between_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: torch.Tensor, *args: Any) -> Any:
        raise AssertionError("a device was waited for")

    window = Window()
    with monkeypatch.context() as patched:
        for method in ("item", "__float__", "tolist", "__bool__", "cpu"):
            patched.setattr(torch.Tensor, method, refuse)
        for value in (1.0, 3.0):
            window.add({"loss": torch.tensor(value), "aux": torch.tensor(2.0)})
    assert window.means() == {"loss": 2.0, "aux": 2.0}


def test_all_losses_are_fetched_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = []
    whole = torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "tolist", lambda self: fetched.append(len(self)) or whole(self))
    monkeypatch.setattr(torch.Tensor, "item", None)
    window = Window()
    window.add({name: torch.tensor(1.0) for name in "abc"})
    assert window.means() == {"a": 1.0, "b": 1.0, "c": 1.0}
    assert fetched == [3]


def test_a_kept_loss_does_not_keep_its_graph() -> None:
    window, weight = Window(), torch.ones(3, requires_grad=True)
    window.add((weight * 2).sum())
    (kept,) = window._values["loss"]
    assert kept.grad_fn is None


@pytest.mark.parametrize(
    "values",
    [
        [1.0, torch.tensor(3.0)],
        [torch.tensor([1.0]), torch.tensor(3.0)],
        [torch.tensor(1), torch.tensor(3.0)],
        [torch.tensor(1.0, dtype=torch.float64), 3],
        [numpy.float64(1.0), 3],
    ],
)
def test_losses_may_change_their_kind(values: list[Any]) -> None:
    window = Window()
    for value in values:
        window.add(value)
    assert window.means() == {"loss": 2.0}


def test_a_loss_that_comes_now_and_then_is_averaged_over_its_own() -> None:
    window = Window()
    for output in ({"loss": 1.0}, {"loss": 2.0, "aux": torch.tensor(4.0)}, {"loss": torch.tensor(3.0)}):
        window.add(output)
    assert window.means() == {"loss": 2.0, "aux": 4.0}


def test_only_single_numbers_are_numbers() -> None:
    given: dict[str, Any] = {
        "float": 0.5,
        "int": 3,
        "tensor": torch.tensor([2.0]),
        "numpy": numpy.float32(0.25),
        "bool": True,
        "matrix": torch.zeros(2, 2),
        "array": numpy.zeros(3),
        "text": "t",
        "none": None,
        "nested": {"a": 1},
    }
    assert numbers_of(given) == {"float": 0.5, "int": 3, "tensor": 2.0, "numpy": 0.25}
