"""The wrapper of `engine.run`."""

from __future__ import annotations

import contextlib
import copy
import inspect
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ignite.engine import Engine, Events
from ignite.metrics import Average

from ignite_hooks import ConfigError, attach_hooks
from ignite_hooks.engine.run_wrapper import RunWrapper
from ignite_hooks.testing import RecordingHook, tiny_run
from tests.tools import echo_trainer

RUNNER: Any = Engine(lambda engine, batch: batch)
"""Stands for the runner that opens the runs."""


def watched(engine: Engine, log: list[object]) -> object:
    @contextlib.contextmanager
    def opened(running: Engine, data: object, run: object) -> Iterator[None]:
        log.append(("open", data))
        try:
            yield
        finally:
            log.append("close")

    return RunWrapper.wrap(engine, opened, "trainer", RUNNER)


def test_a_run_happens_inside_with_its_arguments_and_result() -> None:
    trainer, log = echo_trainer(), []
    watched(trainer, log)
    data = [1, 2]
    assert trainer.run(data, max_epochs=2).iteration == 4
    assert log == [("open", data), "close"]
    log.clear()
    assert trainer.run(max_epochs=3, data=data).iteration == 6
    assert log == [("open", data), "close"]


def test_it_closes_when_the_run_is_refused() -> None:
    trainer, log = echo_trainer(), []
    watched(trainer, log)
    with pytest.raises(TypeError, match="iterable"):
        trainer.run(5)
    assert log == [("open", 5), "close"]


def test_it_is_put_once_and_taken_away_whole() -> None:
    trainer, log = echo_trainer(), []
    take_away = watched(trainer, log)
    with pytest.raises(ConfigError, match="already has hooks"):
        watched(trainer, log)
    take_away()
    take_away()
    assert "run" not in vars(trainer)
    trainer.run([1])
    assert log == []


def test_it_looks_like_the_method_it_stands_for() -> None:
    trainer = echo_trainer()
    watched(trainer, [])
    assert inspect.getdoc(trainer.run) == inspect.getdoc(Engine.run)
    assert list(inspect.signature(trainer.run).parameters)[-4:] == ["data", "max_epochs", "max_iters", "epoch_length"]


def test_it_keeps_no_engine_alive_and_is_not_copied() -> None:
    trainer, log = echo_trainer(), []
    watched(trainer, log)
    twin = copy.deepcopy(trainer)
    twin.run([1, 2, 3])
    assert (twin.state.iteration, trainer.state.iteration, log) == (3, 0, [])
    gone = weakref.ref(trainer)
    run = trainer.run
    del trainer
    assert gone() is None
    with pytest.raises(ReferenceError, match="no longer exists"):
        run([1])


class Fitter(Engine):
    """A trainer of a script with a method of its own for running."""

    def fit(self, data: object) -> object:
        return super().run(data)


class Legacy(Engine):
    """An engine without generators, which Ignite still has."""

    interrupt_resume_enabled = False


def taken_before(engine: Engine) -> Callable[[object], object]:
    return engine.run


WAYS = {
    "the method": (Engine, lambda engine: lambda data: engine.run(data)),
    "a method taken before": (Engine, taken_before),
    "the class": (Engine, lambda engine: lambda data: Engine.run(engine, data)),
    "super": (Fitter, lambda engine: engine.fit),
    "legacy, the class": (Legacy, lambda engine: lambda data: Engine.run(engine, data)),
}
"""The ways in which a script may run an engine: its class, and the function that runs it."""


@pytest.mark.parametrize("way", WAYS)
def test_a_run_is_opened_once_whichever_way_it_is_reached(way: str) -> None:
    kind, of = WAYS[way]
    engine, log = kind(lambda engine, batch: batch), []
    run = of(engine)
    take_away = watched(engine, log)
    data = [1, 2]
    for _ in range(2):
        assert run(data).iteration == 2
        assert log == [("open", data), "close"]
        log.clear()
    take_away()
    run(data)
    assert log == []
    assert not {"run", "_internal_run", "_internal_run_legacy"} & set(vars(engine))


@pytest.mark.parametrize("way", WAYS)
def test_hooks_take_part_in_every_run_and_evaluation(way: str, tmp_path: Path) -> None:
    kind, of = WAYS[way]
    tiny, log = tiny_run(), []
    trainer, evaluator = (kind(e._process_function) for e in (tiny.trainer, tiny.evaluator))
    Average(output_transform=lambda output: float(len(output[1]))).attach(evaluator, "size")
    train, evaluate = of(trainer), of(evaluator)
    seen: list[dict[str, float]] = []

    @trainer.on(Events.EPOCH_COMPLETED)
    def validate() -> None:
        evaluate(tiny.val_data)
        seen.append(runner.metrics)

    hooks = [RecordingHook(log=log, name="recorder"), {"type": "EMAHook", "evaluate": "both"}]
    runner = attach_hooks(trainer, hooks, evaluators=evaluator, work_dir=tmp_path, model=tiny.model)
    train(tiny.data)
    called = [at for _, at, *_ in log]
    assert [at for at in called if at in ("before_run", "after_epoch", "cleanup")] == [
        "before_run",
        "after_epoch",
        "cleanup",
    ]
    assert called.count("after_val_iter") == len(tiny.val_data) == evaluator.state.iteration
    # The evaluation of the raw weights, which a hook asks for, comes before the script's own.
    assert seen[0]["val_raw_size"] == seen[0]["val_size"]
    assert evaluator.state.epoch == 1


def test_an_exception_leaves_a_run_through_the_class_and_the_next_one_runs(tmp_path: Path) -> None:
    failing, log = [True], []

    def step(engine: Engine, batch: int) -> None:
        if failing[0]:
            raise RuntimeError("broken step")

    trainer = Engine(step)
    attach_hooks(trainer, [RecordingHook(log=log, name="recorder")], work_dir=tmp_path)
    with pytest.raises(Exception, match="broken step"):
        Engine.run(trainer, [1])
    assert [at for _, at, *_ in log][-2:] == ["on_exception", "cleanup"]
    failing[0] = False
    assert Engine.run(trainer, [1]).iteration == 1
