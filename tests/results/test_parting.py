"""`parting.py`: the first iteration at which two runs part, and what parted first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine
from torch.utils.data import DataLoader, TensorDataset

from ignite_hooks import BaseHook, attach_hooks
from ignite_hooks.errors import ResultError
from ignite_hooks.results.parting import DIGESTS, differences, part, read_lines


class At(BaseHook):
    """Does something once, before an iteration."""

    def __init__(self, iteration: int, what: Any) -> None:
        super().__init__()
        self.iteration, self.what = iteration, what

    def before_train_iter(self, runner: Any) -> None:
        if runner.global_step == self.iteration:
            self.what(runner)


def a_run(
    folder: Path, *hooks: Any, seed: int = 0, noise: Any = None, threads: int | None = None, interval: int = 1
) -> Path:
    """Train two epochs of five batches, with a dropout that draws random numbers."""
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    data = torch.linspace(-1, 1, 60).reshape(20, 3)
    if noise is not None:
        data[noise] += 0.5

    def step(engine: Engine, batch: Any) -> float:
        optimizer.zero_grad()
        loss = model(batch[0]).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    trainer = Engine(step)
    determinism = {
        "type": "DeterminismHook",
        "seed": seed,
        "interval": interval,
        "deterministic": False,
        "threads": threads,
    }
    attach_hooks(trainer, [determinism, *hooks], work_dir=folder, model=model, optimizer=optimizer)
    trainer.run(DataLoader(TensorDataset(data), 4), max_epochs=2)
    return folder


def change_weight(runner: Any) -> None:
    with torch.no_grad():
        runner.model[2].bias.add_(1e-6)


def change_rate(runner: Any) -> None:
    runner.optimizer.param_groups[0]["lr"] = 0.02


def change_state(runner: Any) -> None:
    # A moment that this iteration does not read any more is not there: it is seen after the step.
    runner.optimizer.state[runner.model[0].weight]["exp_avg"][0, 0] = 0.3


CASES = [
    ("another seed", {"seed": 1}, None, 0, "random numbers"),
    ("another batch", {"noise": 9}, None, 3, "data: the batch is another one"),
    ("a draw more", {}, (4, lambda runner: torch.rand(1)), 4, "random numbers"),
    ("another rate from the second epoch", {}, (6, change_rate), 6, "learning rate: [0.01] and [0.02]"),
    ("one changed weight", {}, (7, change_weight), 7, "loss"),
    ("a changed state of the optimizer", {}, (8, change_state), 8, "weights of 0.weight"),
]


@pytest.mark.parametrize(
    ("given", "at", "iteration", "first"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_the_iteration_and_what_parts_first_are_named(
    given: dict[str, Any], at: Any, iteration: int, first: str, tmp_path: Path
) -> None:
    one, same = a_run(tmp_path / "one"), a_run(tmp_path / "same")
    assert part(one, same).iteration is None
    other = a_run(tmp_path / "other", *([At(*at)] if at else []), **given)
    parting = part(one, other)
    assert (parting.iteration, str(parting.differences[0]).startswith(first)) == (iteration, True), [*parting.lines()]


def test_a_weight_that_changes_after_a_step_is_named_alone(tmp_path: Path) -> None:
    class After(At):
        def after_train_iter(self, runner: Any) -> None:
            At.before_train_iter(self, runner)

        before_train_iter = BaseHook.before_train_iter

    one, other = a_run(tmp_path / "one"), a_run(tmp_path / "other", After(3, change_weight))
    parting = part(one, other)
    assert (parting.iteration, [str(one) for one in parting.differences]) == (3, ["weights of 2.bias"])


def test_threads_are_named_beside_the_iteration(tmp_path: Path) -> None:
    logger = {"type": "LoggerHook"}
    one, other = a_run(tmp_path / "one", logger, threads=1), a_run(tmp_path / "other", logger, threads=3, seed=1)
    assert "what decides the bits: torch threads: 1 and 3" in part(one, other).lines()


def test_what_lies_between_two_digests_is_said(tmp_path: Path) -> None:
    one = a_run(tmp_path / "one", interval=4)
    other = a_run(tmp_path / "other", At(6, change_rate), interval=4)
    lines = list(part(one, other).lines())
    assert lines[0].startswith("the runs part in iteration 8 (equal until iteration 4), first in: loss")
    assert any("what came between 4 and 8 is not recorded" in line for line in lines)


def test_runs_that_cannot_be_compared_are_explained(tmp_path: Path) -> None:
    one = a_run(tmp_path / "one")
    (tmp_path / "metrics.jsonl").touch()
    with pytest.raises(ResultError, match=r"add \{type: DeterminismHook"):
        part(one, tmp_path)
    (tmp_path / DIGESTS).write_text(json.dumps({"iteration": 1000, "all": "0"}) + "\n")
    with pytest.raises(ResultError, match="the same interval"):
        part(one, tmp_path)
    (tmp_path / DIGESTS).write_text("[}\n")
    with pytest.raises(ResultError, match="not a file of digests"):
        read_lines(tmp_path / DIGESTS)


def test_files_from_before_have_only_weights() -> None:
    old, new = {"all": "1", "head": "2"}, {"all": "3", "head": "4", "run": {"loss": 0.5}, "tensors": {"head.bias": "5"}}
    assert [str(one) for one in differences(old, new)] == ["weights of head"]
