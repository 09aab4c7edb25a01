from __future__ import annotations

import gc
import sys
import traceback
import types
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ignite_hooks import attach_hooks
from ignite_hooks.run.memory import clear_frames
from ignite_hooks.testing import tiny_run


class Activation:
    """Something large that a step holds."""


def fail_with(error: BaseException, held: list[weakref.ref[Activation]]) -> None:
    activation = Activation()
    held.append(weakref.ref(activation))
    raise error


def test_the_frames_of_an_exception_and_of_its_cause_let_go() -> None:
    held: list[weakref.ref[Activation]] = []
    try:
        try:
            fail_with(ValueError("first"), held)
        except ValueError as first:
            fail_with_cause = KeyError("second")
            fail_with_cause.__cause__ = first
            fail_with(fail_with_cause, held)
    except KeyError as error:
        kept = error
    assert [one() is not None for one in held] == [True, True]
    clear_frames(kept)
    gc.collect()
    assert [one() for one in held] == [None, None]
    assert kept.__traceback__ is not None, "its lines can still be printed"


@pytest.fixture
def in_a_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ignite_hooks.run.memory.ipython_shell", object)


def failed(
    error: BaseException, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Any, Any, weakref.ref[Activation]]:
    """Return a run that has failed, its runner, and what its step held; a shell keeps the exception."""
    run, held = tiny_run(), []
    run.trainer._process_function = lambda engine, batch: fail_with(error, held)
    runner = attach_hooks(run.trainer, [], work_dir=folder, **run.services)
    with pytest.raises(type(error)) as caught:
        run.trainer.run(run.data, max_epochs=1)
    # As an interactive shell does.
    monkeypatch.setattr(sys, "last_value", caught.value, raising=False)
    assert [frame.f_locals for frame, _ in traceback.walk_tb(caught.value.__traceback__)] != [], "as it shows the lines"
    gc.collect()
    return run, runner, held[0]


def out_of_memory() -> BaseException:
    return torch.OutOfMemoryError("CUDA out of memory")


def out_of_memory_in_a_hook() -> BaseException:
    error = RuntimeError("in a hook")
    error.__cause__ = out_of_memory()
    return error


def out_of_memory_in_a_group() -> BaseException:
    return BaseExceptionGroup("two", [out_of_memory()])


def mistake() -> BaseException:
    return ValueError("for %debug")


@pytest.mark.usefixtures("in_a_shell")
@pytest.mark.parametrize(
    ("make", "kept"),
    [
        (out_of_memory, False),
        (out_of_memory_in_a_hook, False),
        (out_of_memory_in_a_group, False),
        (KeyboardInterrupt, False),
        (mistake, True),
    ],
)
def test_after_out_of_memory_and_ctrl_c_nothing_keeps_batches(
    make: Callable[[], BaseException], kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _, held = failed(make(), tmp_path, monkeypatch)
    assert (held() is not None) is kept
    assert (run.trainer.state.batch is not None) is kept


@pytest.mark.usefixtures("in_a_shell")
@pytest.mark.parametrize("until", ["run again", "another run", "detach", "free"])
def test_frames_stay_for_debug_until(until: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = types.SimpleNamespace(user_ns={}, user_ns_hidden={}, displayhook=None)
    monkeypatch.setattr("ignite_hooks.engine.attachments.ipython_shell", lambda: shell)
    run, runner, held = failed(mistake(), tmp_path / "failed", monkeypatch)
    assert held() is not None
    if until == "run again":
        run.trainer._process_function = lambda engine, batch: 0.0
        run.trainer.run(run.data, max_epochs=1)
    elif until == "another run":
        other = tiny_run()
        attach_hooks(other.trainer, [], work_dir=tmp_path / "other")
        other.trainer.run(other.data, max_epochs=1)
    else:
        getattr(runner, until)()
    gc.collect()
    assert held() is None


def test_a_script_keeps_the_frames_of_its_exceptions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, runner, held = failed(out_of_memory(), tmp_path, monkeypatch)
    runner.detach()
    assert held() is not None
    assert run.trainer.state.batch is not None


def test_free_lets_go_of_batch_output_and_last_exception(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tiny_run()
    runner = attach_hooks(run.trainer, ["LoggerHook"], work_dir=tmp_path, **run.services)
    run.trainer.run(run.data, max_epochs=1)
    assert run.trainer.state.batch is not None
    held: list[Any] = []
    try:
        fail_with(ValueError("shown in a cell"), held)
    except ValueError as error:
        # As an interactive shell does.
        monkeypatch.setattr(sys, "last_value", error, raising=False)
    runner.free()
    assert (run.trainer.state.batch, run.trainer.state.output, held[0]()) == (None, None, None)
