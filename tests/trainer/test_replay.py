"""`replay.py`: where two runs part is found to the iteration, also between two digests."""

from __future__ import annotations

import os
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from ignite_hooks import BaseHook, BaseTrainer
from ignite_hooks.errors import ResultError
from ignite_hooks.store.files import write_whole
from ignite_hooks.trainer.replay import again, config_of_replay, part_by_checkpoints, part_with_replay
from tests import warm

pytest.importorskip("sklearn")
pytestmark = pytest.mark.usefixtures("quick")


class Once(BaseHook):
    """Does something before one iteration."""

    def __init__(self, iteration: int = 0) -> None:
        super().__init__()
        self.iteration = iteration

    def before_train_iter(self, runner: Any) -> None:
        if runner.global_step == self.iteration:
            self.act(runner)

    def act(self, runner: Any) -> None:
        raise NotImplementedError


class Nudge(Once):
    """Changes one weight."""

    def act(self, runner: Any) -> None:
        with torch.no_grad():
            next(runner.model.parameters()).view(-1)[3] += 1e-3


class Draw(Once):
    """Draws a random number."""

    def act(self, runner: Any) -> None:
        torch.rand(1)


def trained(folder: Path, *hooks: Any, interval: int = 5, **training: Any) -> Path:
    """Train four epochs of five iterations, with a dropout that draws random numbers."""
    digests = [{"type": "DeterminismHook", "seed": 3, "deterministic": False, "interval": interval}] if interval else []
    config = {
        "imports": [__name__],
        "model": {"type": "mlp", "hidden": [8], "dropout": 0.5},
        "dataset": {"type": "digits"},
        "training": {"epochs": 4, "epoch_length": 5, "batch_size": 16, "seed": 0, **training},
        "hooks": [{"type": "CheckpointHook", "save_best": False, "max_keep_ckpts": 9}, *digests, *hooks],
    }
    BaseTrainer(config, work_dir=folder).train()
    return folder


def entry(cls: type, iteration: int) -> dict[str, Any]:
    return {"type": f"{__name__}:{cls.__name__}", "iteration": iteration}


LONG = os.environ.get("IGNITE_HOOKS_LONG") == "1"


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the processes that run a part again; the long form starts them as users do."""
    if not LONG:
        monkeypatch.setattr(subprocess, "run", partial(warm.run, also=warm.LEARNS))


CASES = {
    "one changed weight": ({"hooks": entry(Nudge, 12)}, 12, "weights of layers.1.weight"),
    "a draw more": ({"hooks": entry(Draw, 7)}, 7, "random numbers"),
    "another rate from the third epoch": (
        {"scheduler": {"type": "StepLR", "step_size": 2, "gamma": 0.5}},
        11,
        "learning",
    ),
    "another rate from the start": ({"optimizer": {"type": "SGD", "lr": 0.02}}, 0, "learning rate"),
}


@pytest.mark.slow
@pytest.mark.faults  # `make faults` tries all cases
@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("interval", [5, 0] if LONG else [5], ids=lambda interval: f"interval {interval}")
@pytest.mark.parametrize("case", CASES if LONG else ["one changed weight"])
def test_the_iteration_between_two_digests_or_checkpoints_is_found(case: str, interval: int, tmp_path: Path) -> None:
    given, iteration, first = CASES[case]
    given = dict(given)
    hooks = [given.pop("hooks")] if "hooks" in given else []
    plain = {"optimizer": {"type": "SGD", "lr": 0.01}}
    one = trained(tmp_path / "one", interval=interval, **plain)
    other = trained(tmp_path / "other", *hooks, interval=interval, **{**plain, **given})
    parting = part_with_replay(one, other)
    assert parting.iteration == iteration
    assert str(parting.differences[0]).startswith(first)
    assert parting.equal_until == (iteration - 1 if iteration else None)
    assert parting.replayed is not None
    assert f"  iterations {parting.replayed[0]} to {parting.replayed[1]} of both were run again to find it" in list(
        parting.lines()
    )


def test_checkpoints_say_between_which_of_them_two_runs_part(tmp_path: Path) -> None:
    one, same = trained(tmp_path / "one", interval=0), trained(tmp_path / "same", interval=0)
    other = trained(tmp_path / "other", entry(Nudge, 8), interval=0)
    assert part_by_checkpoints(one, same).iteration is None
    parting = part_by_checkpoints(one, other)
    assert (parting.equal_until, parting.iteration, parting.compared, parting.last) == (5, 10, 4, 20)
    for path in (*other.glob("*.pth"), other / "manifest.json"):
        path.unlink()
    with pytest.raises(ResultError, match="no checkpoints of the same iteration"):
        part_by_checkpoints(one, other)


def test_a_folder_that_is_no_run_is_said_first(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="nowhere: there is no such folder"):
        part_with_replay(tmp_path / "nowhere", tmp_path)


def test_runs_that_are_equal_are_not_run_again(tmp_path: Path) -> None:
    one, same = trained(tmp_path / "one"), trained(tmp_path / "same")
    (one / "config.yaml").unlink()
    assert part_with_replay(one, same).iteration is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be run again: .*config.yaml"),
        ("hooks: []\n", "does not come from a configuration alone"),
        *([("model: nothing\ndataset: digits\n", "cannot be run again: .*nothing")] if LONG else []),
    ],
)
def test_what_cannot_be_run_again_is_said_with_the_reason(content: str | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        write_whole(tmp_path / "config.yaml", content.encode())
    with pytest.raises(ResultError, match=message):
        again(tmp_path, 0, 5, tmp_path / "again")


@pytest.mark.parametrize("section", ["hooks", "custom_hooks"])
def test_a_determinism_hook_keeps_its_settings_and_looks_at_each_iteration(section: str) -> None:
    given = {"type": "DeterminismHook", "threads": 2, "interval": 50}
    content = config_of_replay({section: [given, {"type": "LoggerHook"}]}, begins=True)
    assert content["custom_hooks"] == [{**given, "seed": None, "deterministic": False, "interval": 1}]
    assert content.get("hooks", []) == []
