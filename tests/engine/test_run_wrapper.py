"""The wrapper of `engine.run`."""

from __future__ import annotations

import contextlib
import copy
import inspect
import weakref
from collections.abc import Iterator

import pytest
from ignite.engine import Engine

from ignite_hooks import ConfigError
from ignite_hooks.engine.run_wrapper import RunWrapper
from tests.tools import echo_trainer


def watched(engine: Engine, log: list[object]) -> object:
    @contextlib.contextmanager
    def opened(running: Engine, data: object, run: object) -> Iterator[None]:
        log.append(("open", data))
        try:
            yield
        finally:
            log.append("close")

    return RunWrapper.wrap(engine, opened, "trainer")


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
