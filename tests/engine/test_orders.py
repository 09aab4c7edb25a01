"""`orders.py`: a run that is told to save, evaluate or stop does so after the iteration, and says so."""

from __future__ import annotations

import json
import logging
import os
import signal
import stat
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Events

from ignite_hooks import CheckpointError, Runner, attach_hooks
from ignite_hooks.engine import orders, tell
from ignite_hooks.store import FolderStore
from ignite_hooks.testing import tiny_run


class Telling:
    """A run that is told something in an iteration; its answers are kept."""

    def __init__(self, folder: Path, config: dict[str, Any], *, evaluates: bool = True) -> None:
        tiny = tiny_run()
        self.folder, self.trainer, self.data = folder, tiny.trainer, tiny.data
        services = {"evaluators": tiny.evaluator, "val_loader": tiny.val_data} if evaluates else {}
        self.runner: Runner = attach_hooks(
            tiny.trainer, config, model=tiny.model, optimizer=tiny.optimizer, work_dir=folder, **services
        )

    def tell(self, word: str, at: int) -> None:
        """Give an order in an iteration, as if the thread looked then."""

        @self.trainer.on(Events.ITERATION_STARTED(once=at))
        def order() -> None:
            (self.folder / tell.ORDER).write_text(json.dumps({"word": word, "number": "1"}))
            listening = self.runner.installation._run.orders  # type: ignore[union-attr]
            assert listening._listener is not None
            listening._listener.look()

    @property
    def answer(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / tell.ANSWER).read_text()))


@pytest.fixture
def config() -> dict[str, Any]:
    return {"hooks": [{"type": "CheckpointHook", "interval": 9, "save_last": False, "save_best": False}]}


def test_save_saves_after_the_iteration_and_goes_on(tmp_path: Path, config: dict[str, Any]) -> None:
    run = Telling(tmp_path, config)
    run.tell("save", at=2)
    run.trainer.run(run.data, max_epochs=2)
    assert run.trainer.state.iteration == 6
    assert torch.load(tmp_path / "last.pth", weights_only=True)["meta"]["iter"] == 2
    assert run.answer["state"] == "done"
    assert run.answer["text"] == f"saved {tmp_path / 'last.pth'} at iteration 2"


def test_a_run_resumed_from_an_ordered_save_ends_with_the_same_bits(tmp_path: Path) -> None:
    hooks = {"hooks": [{"type": "CheckpointHook", "save_best": False}]}
    whole = Telling(tmp_path / "whole", hooks)
    whole.trainer.run(whole.data, max_epochs=3)
    told = Telling(
        tmp_path / "told",
        {"hooks": [{"type": "CheckpointHook", "interval": 9, "save_best": False, "save_on_exception": False}]},
    )
    told.tell("save", at=5)
    told.trainer.add_event_handler(Events.ITERATION_STARTED(once=7), lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        told.trainer.run(told.data, max_epochs=3)
    again = Telling(tmp_path / "told", {**hooks, "resume": "required"})
    again.trainer.run(again.data, max_epochs=3)
    ends = [torch.load(tmp_path / name / "last.pth", weights_only=True)["state_dict"] for name in ("whole", "told")]
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


def test_stop_stops_in_order_and_is_answered_after_the_last_file(tmp_path: Path) -> None:
    run = Telling(tmp_path, {"hooks": [{"type": "CheckpointHook", "save_best": False}]})
    run.tell("stop", at=2)
    run.trainer.run(run.data, max_epochs=2)
    assert (run.runner.stop_reason, run.trainer.state.iteration) == ("told to stop", 2)
    assert run.answer["text"] == "stopped after iteration 2"
    assert (tmp_path / "last.pth").exists()


def test_evaluate_evaluates_in_the_middle_of_an_epoch(tmp_path: Path, config: dict[str, Any]) -> None:
    run = Telling(tmp_path, config)
    run.tell("evaluate", at=2)
    run.trainer.run(run.data, max_epochs=1)
    assert run.answer["text"].startswith("iteration 2: val_accuracy ")
    assert run.runner.metrics.step("val_accuracy") == 2


@pytest.mark.parametrize(
    ("word", "reason"),
    [("save", "no hook saves: add a CheckpointHook"), ("evaluate", "nothing evaluates: pass evaluators=...")],
)
def test_what_a_run_cannot_do_is_refused(word: str, reason: str, tmp_path: Path) -> None:
    run = Telling(tmp_path, {"hooks": []}, evaluates=False)
    run.tell(word, at=2)
    run.trainer.run(run.data, max_epochs=1)
    assert run.answer["state"] == "refused"
    assert run.answer["text"].startswith(reason)


def test_a_save_that_fails_is_answered_and_the_run_goes_on(
    tmp_path: Path, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> Path:
        raise CheckpointError("the disk is full")

    monkeypatch.setattr(FolderStore, "save", full)
    run = Telling(tmp_path, config)
    run.tell("save", at=2)
    run.trainer.run(run.data, max_epochs=1)
    assert run.trainer.state.iteration == 3
    assert run.answer["state"] == "refused"


@pytest.mark.parametrize("action", ["save", "save and stop"])
@pytest.mark.parametrize("code", [0, 1])
def test_slurm_is_asked_once_the_file_is_committed(
    action: str,
    code: int,
    tmp_path: Path,
    config: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    command = tmp_path / "scontrol"
    work = tmp_path / "run"
    command.write_text(f'#!/bin/sh\ntest -e {work}/last.pth && echo "$@" >> {tmp_path}/asked\nexit {code}\n')
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    config |= {"signals": {"USR1": action}, "requeue": True}
    run = Telling(work, config)
    handler = signals_of(run)
    run.trainer.add_event_handler(Events.ITERATION_STARTED(once=2), handler)
    with caplog.at_level(logging.INFO):
        if action == "save":
            run.trainer.run(run.data, max_epochs=1)
        else:
            with pytest.raises(SystemExit):
                run.trainer.run(run.data, max_epochs=1)
    assert (tmp_path / "asked").read_text() == "requeue 17\n"
    said = "job 17 is requeued: Slurm starts it again" if code == 0 else "job 17 cannot be requeued"
    assert said in caplog.text


def signals_of(run: Telling) -> Any:
    """Return a function that sends this process the signal of a batch system."""
    return lambda: os.kill(os.getpid(), signal.SIGUSR1)


def test_term_never_requeues(tmp_path: Path, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setattr(orders, "requeue", lambda job: pytest.fail("asked for a job that was cancelled"))
    run = Telling(tmp_path, {**config, "signals": {"TERM": "save and stop", "USR1": "save"}, "requeue": True})
    run.trainer.add_event_handler(Events.ITERATION_STARTED(once=2), lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(SystemExit):
        run.trainer.run(run.data, max_epochs=1)
    assert (tmp_path / "last.pth").exists()


def test_requeue_outside_of_slurm_is_said_once(
    tmp_path: Path, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    run = Telling(tmp_path, {**config, "signals": {"USR1": "save"}, "requeue": True})
    with caplog.at_level(logging.INFO):
        run.trainer.run(run.data, max_epochs=1)
    assert caplog.text.count("requeue has no effect: this is no Slurm job") == 1
