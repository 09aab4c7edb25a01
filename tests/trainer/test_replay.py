"""`replay.py`: where two runs part is found to the iteration, also between two digests."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import torch
from torch.utils.data import Dataset, get_worker_info

from ignite_hooks import BaseHook, BaseTrainer
from ignite_hooks.errors import ResultError
from ignite_hooks.results.parting import DIGESTS
from ignite_hooks.store.files import write_whole
from ignite_hooks.trainer import replay
from ignite_hooks.trainer.datasets import digits
from ignite_hooks.trainer.replay import again, config_of_replay, part_by_checkpoints, part_with_replay
from tests import warm

# Its first import draws a random number.
pytest.importorskip("sklearn.datasets", reason="the extra 'demo' is not installed")
pytestmark = pytest.mark.usefixtures("quick")
EMPTY: Mapping[str, Any] = MappingProxyType({})


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


class Push(Once):
    """Changes what the optimizer remembers, after its step."""

    def before_train_iter(self, runner: Any) -> None:
        pass

    def after_train_iter(self, runner: Any) -> None:
        if runner.global_step == self.iteration:
            next(iter(runner.optimizer.state.values()))["momentum_buffer"].view(-1)[3] += 1e-3


class Noisy(Dataset[Any]):
    """Images with noise of which each worker draws its own; the second may draw other noise from some sample on."""

    def __init__(self, images: Any, other_from: int | None) -> None:
        self.images, self.other_from, self.drawn = images, other_from, 0

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Any:
        image, target = self.images[index]
        worker = get_worker_info()
        if worker is not None:
            if worker.id == 1 and self.drawn == self.other_from:
                torch.manual_seed(worker.seed + 1)
            self.drawn += 1
            image = image + torch.randn(image.shape) / 10
        return image, target


def noisy(other_from: int | None = None) -> Any:
    """Digits with noise.

    Args:
        other_from: The sample from which on the second worker has another seed.
    """
    found = digits()
    return replace(found, train=Noisy(found.train, other_from))


@contextmanager
def threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    yield
    torch.set_num_threads(before)


def trained(folder: Path, *hooks: Any, interval: int = 5, changed: Mapping[str, Any] = EMPTY, **training: Any) -> Path:
    """Train four epochs of five iterations, with a dropout that draws random numbers."""
    digests = [{"type": "DeterminismHook", "seed": 3, "deterministic": False, "interval": interval}] if interval else []
    config = {
        "imports": [__name__],
        "model": {"type": "mlp", "hidden": [8], "dropout": 0.5},
        "dataset": {"type": "digits"},
        "training": {"epochs": 4, "epoch_length": 5, "batch_size": 16, "seed": 0, **training},
        "hooks": [{"type": "CheckpointHook", "save_best": False, "max_keep_ckpts": 9}, *digests, *hooks],
    }
    BaseTrainer({**config, **changed}, work_dir=folder).train()
    return folder


def entry(cls: type, iteration: int) -> dict[str, Any]:
    return {"type": f"{__name__}:{cls.__name__}", "iteration": iteration}


LONG = os.environ.get("IGNITE_HOOKS_LONG") == "1"


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the processes that run a part again; the long form starts them as users do."""
    if not LONG:
        monkeypatch.setattr(subprocess, "run", partial(warm.run, also=warm.LEARNS))


SGD = {"type": "SGD", "lr": 0.01, "momentum": 0.9}
NOISY: dict[str, Any] = {"type": f"{__name__}:noisy"}


class Case(NamedTuple):
    """Two runs that differ in one thing."""

    iteration: int
    """The first that this changes."""
    first: str
    """What it changes first."""
    says: str = ""
    """What tells of the thing itself."""
    hook: Mapping[str, Any] | None = None
    training: Mapping[str, Any] = EMPTY
    """How the other run is trained otherwise."""
    both: Mapping[str, Any] = EMPTY
    """How both are trained otherwise."""
    changed: tuple[Mapping[str, Any], Mapping[str, Any]] = (EMPTY, EMPTY)
    """Other sections of each."""
    threads: tuple[int, int] = (1, 1)
    since: int | None = None
    """The iteration with which the part that is run again begins, where that says something."""


CASES = {
    "one changed weight": Case(12, "weights of layers.1.weight", "Nudge", hook=entry(Nudge, 12)),
    "a draw more": Case(7, "random numbers", "Draw", hook=entry(Draw, 7)),
    "another state of the optimizer": Case(9, "optimizer state", "Push", hook=entry(Push, 9)),
    "another rate from the third epoch": Case(
        11,
        "learning rate",
        "training.scheduler",
        training={"scheduler": {"type": "StepLR", "step_size": 2, "gamma": 0.5}},
    ),
    "another rate from the start": Case(
        0, "learning rate", "training.optimizer.lr: 0.01 and 0.02", training={"optimizer": {**SGD, "lr": 0.02}}
    ),
    "another seed in a worker": Case(
        2,
        "data: the batch is another one",
        "dataset.other_from: – and 0",
        both={"num_workers": 2},
        changed=({"dataset": NOISY}, {"dataset": {**NOISY, "other_from": 0}}),
    ),
    "another seed in a worker from its seventh batch": Case(
        14,
        "data: the batch is another one",
        "dataset.other_from: – and 96",
        both={"num_workers": 2},
        changed=({"dataset": NOISY}, {"dataset": {**NOISY, "other_from": 96}}),
    ),
    # Workers that draw stay from epoch to epoch: a resumed run would draw other numbers.
    "one changed weight in a later epoch of workers that draw": Case(
        7,
        "loss",
        "Nudge",
        hook=entry(Nudge, 7),
        both={"num_workers": 2, "batch_size": 300, "epoch_length": None},
        changed=({"dataset": NOISY},) * 2,
        since=0,
    ),
    "three threads": Case(
        1,
        "weights of",
        "torch threads: 1 and 3",
        changed=({"model": {"type": "cnn", "channels": [16, 32]}},) * 2,
        threads=(1, 3),
    ),
}


@pytest.mark.slow
@pytest.mark.faults  # `make faults` tries all cases
@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("interval", [5, 0] if LONG else [5], ids=lambda interval: f"interval {interval}")
@pytest.mark.parametrize("name", CASES if LONG else ["one changed weight"])
def test_the_iteration_between_two_digests_or_checkpoints_is_found(name: str, interval: int, tmp_path: Path) -> None:
    case = CASES[name]
    training = {"optimizer": SGD, **case.both}
    with threads(case.threads[0]):
        one = trained(tmp_path / "one", interval=interval, changed=case.changed[0], **training)
    hooks = [case.hook] if case.hook else []
    with threads(case.threads[1]):
        other = trained(
            tmp_path / "other", *hooks, interval=interval, changed=case.changed[1], **{**training, **case.training}
        )
    parting = part_with_replay(one, other)
    assert parting.iteration == case.iteration
    assert str(parting.differences[0]).startswith(case.first)
    assert parting.equal_until == (case.iteration - 1 if case.iteration else None)
    lines = list(parting.lines())
    # The first digest is that of iteration 0.
    assert (parting.replayed is None) == (case.iteration == 0 and interval > 0)
    if parting.replayed is not None:
        assert "  iterations {} to {} of both were run again to find it".format(*parting.replayed) in lines
        assert case.since in (None, parting.replayed[0])
    assert any(case.says in line for line in lines), lines


def test_what_a_checkpoint_does_not_repeat_is_run_from_the_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def written(folder: Path, digests: Mapping[int, str]) -> Path:
        folder.mkdir()
        lines = [json.dumps({"iteration": n, "all": one, "head": one}) for n, one in digests.items()]
        (folder / DIGESTS).write_text("\n".join(lines) + "\n")
        return folder

    def run_again(run: Path, after: int, until: int, folder: Path) -> bool:
        assert until == 10
        if after:
            written(folder, dict.fromkeys(range(after + 1, until + 1), "drawn anew"))
        else:
            written(folder, {n: "a" if n < 7 else run.name for n in range(until + 1)})
        return after > 0

    monkeypatch.setattr(replay, "again", run_again)
    one, other = (written(tmp_path / name, {0: "a", 5: "a", 10: name}) for name in ("one", "other"))
    parting = part_with_replay(one, other)
    assert (parting.iteration, parting.equal_until, parting.replayed) == (7, 6, (0, 10))
    written(tmp_path / "third", {0: "a", 5: "a", 10: "by hand"})
    with pytest.raises(ResultError, match="third: run again to iteration 10 it differs from what it was, first in"):
        part_with_replay(one, tmp_path / "third")


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
