"""A checkpoint that does not fit leaves model, optimizer and scheduler as they were."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ignite_hooks import CheckpointError
from ignite_hooks.checkpoint.all_or_nothing import fits
from tests.checkpoint.runs import same, script

pytestmark = pytest.mark.usefixtures("quick")


@pytest.mark.parametrize("part", ["state_dict", "optimizer", "scheduler"])
def test_a_part_that_does_not_fit_leaves_all_as_it_was(part: str, tmp_path: Path) -> None:
    script(tmp_path).run(2)
    state = torch.load(tmp_path / "last.pth", weights_only=True)
    if part == "state_dict":
        state[part]["3.weight"] = torch.zeros(3, 3)
    elif part == "optimizer":
        del state[part]["state"]
    else:
        state[part] = 3
    torch.save(state, tmp_path / "other.pth")
    now = script(tmp_path)
    objects: list[Any] = [now.model, now.optimizer, now.runner.scheduler]
    before = [copy.deepcopy(each.state_dict()) for each in objects]
    with pytest.raises(CheckpointError, match="does not fit the"):
        now.runner.load_checkpoint(tmp_path / "other.pth")
    assert all(same(each.state_dict(), then) for each, then in zip(objects, before, strict=True))


@pytest.mark.parametrize(
    ("state", "right"),
    [
        ({"weight": torch.ones(1, 2), "bias": torch.ones(1)}, True),
        ({"weight": torch.ones(2, 2), "bias": torch.ones(1)}, False),
        ({"weight": torch.ones(1, 2)}, False),
        (3, False),
    ],
)
def test_a_state_fits_by_names_and_shapes(state: Any, right: bool) -> None:
    assert fits(nn.Linear(2, 1), state) == right
