"""`Runner.state_dict`: Ignite's own `Checkpoint` saves a run, and it goes on to the bits of one that never stopped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from ignite.engine import Engine, Events
from ignite.handlers import Checkpoint, DiskSaver

from ignite_hooks import CheckpointError, LambdaHook, Runner, attach_hooks
from tests.checkpoint.runs import EMA, LENGTH, STOPPING, same, script

pytestmark = pytest.mark.usefixtures("quick")

HOOKS = [EMA, STOPPING]


def result(made: SimpleNamespace) -> dict[str, Any]:
    """Return what a run has come to."""
    state = made.runner.state_dict()
    return {key: state[key] for key in ("state_dict", "ema_state_dict", "optimizer", "scheduler", "best", "hooks")}


def saved_by_ignite(made: SimpleNamespace, folder: Path, at: int, *, as_hook: bool = True) -> Path:
    """Run a script until Ignite's handler has saved at an iteration, and return the file."""
    handler = Checkpoint({"model": made.model, "hooks": made.runner}, DiskSaver(str(folder)), n_saved=None)

    def save(engine: Engine) -> None:
        if engine.state.iteration == at:
            handler(engine)
            made.runner.stop("here")

    if as_hook:
        made.runner.register_hook(LambdaHook(after_train_iter=lambda runner: save(runner.trainer)), "highest")
    else:
        made.trainer.add_event_handler(Events.ITERATION_COMPLETED, save)
    made.run(4)
    return folder / str(handler.last_checkpoint)


def holder_of(runner: Runner) -> Callable[[], object]:
    return lambda: runner.plan


@pytest.mark.parametrize("at", [1, LENGTH + 2])
@pytest.mark.parametrize("as_hook", [True, False], ids=["as a hook", "as a handler"])
def test_a_run_goes_on_from_a_file_of_ignites_checkpoint_exactly_or_says_so(
    as_hook: bool, at: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = script(tmp_path / "whole", HOOKS)
    whole.run(4)
    path = saved_by_ignite(script(tmp_path / "first", HOOKS), tmp_path / "theirs", at, as_hook=as_hook)

    other = script(tmp_path / "other", HOOKS)
    Checkpoint.load_objects({"model": other.model, "hooks": other.runner}, torch.load(path, weights_only=True))
    other.run(4)

    assert other.trainer.state.iteration == 4 * LENGTH
    assert ("is approximate" in caplog.text) is not as_hook
    if as_hook:
        assert same(result(other), result(whole))
        assert other.counter.seen == whole.counter.seen


def test_a_state_of_the_last_iteration_of_an_epoch_is_told_to_be_approximate(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = saved_by_ignite(script(tmp_path / "first", HOOKS), tmp_path / "theirs", LENGTH)
    other = script(tmp_path / "other", HOOKS)
    other.runner.load_state_dict(torch.load(path, weights_only=True)["hooks"])
    other.run(2)
    assert "before everything was done that belongs to the end of its epoch" in caplog.text


def test_weights_are_once_in_a_file_of_ignites_checkpoint(tmp_path: Path) -> None:
    made = script(tmp_path / "run", [], width=4096)
    alone = tmp_path / "alone.pth"
    torch.save({"model": made.model.state_dict()}, alone)
    path = saved_by_ignite(made, tmp_path / "theirs", 1)
    # The optimizer has its momentum, and gradients that it may have yet to use.
    momentum = sum(weight.nbytes for weight in made.model.parameters())
    assert path.stat().st_size < alone.stat().st_size + 2 * momentum + 50_000


def test_what_happens_after_load_state_dict_does_not_change_the_state(tmp_path: Path) -> None:
    first = script(tmp_path / "first", HOOKS)
    first.run(1)
    state = first.runner.state_dict()
    begun = {name: weight.clone() for name, weight in state["state_dict"].items()}
    second = script(tmp_path / "second", HOOKS)
    second.runner.load_state_dict(state)
    first.run(2)
    assert not same(dict(state["state_dict"]), begun)
    seen = []
    second.trainer.add_event_handler(Events.STARTED, lambda: seen.append(second.model.state_dict()["0.weight"].clone()))
    second.run(1)
    assert second.trainer.state.iteration == LENGTH
    assert torch.equal(second.model.state_dict()["0.weight"], begun["0.weight"])


def test_a_runner_that_handlers_hold_is_no_part_of_its_own_state(tmp_path: Path) -> None:
    made, other = script(tmp_path / "one", []), script(tmp_path / "two", [])
    for runner in (made.runner, other.runner):
        made.trainer.add_event_handler(Events.EPOCH_COMPLETED, runner.__repr__)
        made.trainer.add_event_handler(Events.EPOCH_COMPLETED, holder_of(runner))
    made.run(1)
    assert "runner" not in made.runner.state_dict()["services"]
    assert not [
        entry for entry in made.runner.state_dict().get("script", {}).get("objects", []) if "Runner" in str(entry)
    ]


@pytest.mark.parametrize("given", [{}, {"weights": 3}, "last.pth"])
def test_load_state_dict_says_that_it_takes_a_state_of_ours(given: Any, tmp_path: Path) -> None:
    trainer = Engine(lambda engine, batch: batch)
    runner = attach_hooks(trainer, [], work_dir=tmp_path)
    with pytest.raises(CheckpointError, match=r"takes what Runner\.state_dict\(\) has returned"):
        runner.load_state_dict(given)
