from __future__ import annotations

import gc
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

from ignite_hooks import attach_hooks
from ignite_hooks.hooks.monitors.notebook_hook import NotebookHook
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


@pytest.mark.parametrize(
    ("error", "kept"), [(torch.OutOfMemoryError("CUDA out of memory"), False), (ValueError("for %debug"), True)]
)
def test_after_out_of_memory_no_frame_keeps_activations(error: BaseException, kept: bool, tmp_path: Path) -> None:
    run, held, hook = tiny_run(), [], NotebookHook()
    hook.show = lambda *_: None
    run.trainer._process_function = lambda engine, batch: fail_with(error, held)
    attach_hooks(run.trainer, [hook], work_dir=tmp_path, **run.services)
    with pytest.raises(type(error)) as caught:
        run.trainer.run(run.data, max_epochs=1)
    gc.collect()
    assert (held[0]() is not None) is kept
    assert caught.value.__traceback__ is not None


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
