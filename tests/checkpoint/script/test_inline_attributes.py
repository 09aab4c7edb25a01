"""Attributes of engines and states are looked for without a look at their dictionaries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ignite.engine import Engine, Events, State

from ignite_hooks import attach_hooks
from ignite_hooks.checkpoint.script.inline_attributes import may_have_others
from tests.tools import echo_trainer

OF_STATE = [*vars(State()), "scaler"]


def test_a_fresh_state_and_engine_have_no_others() -> None:
    assert not may_have_others(State(), OF_STATE)
    assert not may_have_others(echo_trainer(), vars(echo_trainer()))


def test_one_more_attribute_is_seen_also_where_a_known_one_is_gone() -> None:
    state: Any = State()
    state.best = 1
    assert may_have_others(state, OF_STATE)
    del state.seed
    assert may_have_others(state, OF_STATE)


def test_a_method_of_the_class_is_no_attribute_and_one_in_its_place_is() -> None:
    trainer = echo_trainer()
    known = [*vars(echo_trainer()), "run"]
    assert not may_have_others(trainer, known)
    trainer.run = lambda *_: None  # type: ignore[method-assign, assignment]
    assert not may_have_others(trainer, known)
    trainer.best = 1  # type: ignore[attr-defined]
    assert may_have_others(trainer, known)


def test_one_more_is_seen_in_a_state_whose_dictionary_was_seen() -> None:
    state: Any = State()
    state.best = len(vars(state))
    assert may_have_others(state, OF_STATE)


def in_state(trainer: Any) -> None:
    trainer.state.counted = getattr(trainer.state, "counted", 0) + 1


def in_engine(trainer: Any) -> None:
    trainer.counts["n"] += 1


@pytest.mark.parametrize("count", [in_state, in_engine])
def test_an_attribute_of_the_script_is_saved_and_resumed(count: Callable[[Engine], None], tmp_path: Path) -> None:
    def run(stop: int | None, resume: str | None) -> Any:
        trainer: Any = echo_trainer()
        if count is in_engine:
            trainer.counts = {"n": 0}
        trainer.add_event_handler(Events.ITERATION_COMPLETED, count)
        hooks = [{"type": "CheckpointHook", "save_best": False}]
        attach_hooks(trainer, hooks, work_dir=tmp_path, resume=resume)
        if stop:
            trainer.add_event_handler(Events.ITERATION_COMPLETED(once=stop), trainer.terminate)
        trainer.run(range(3), max_epochs=4)
        return trainer.counts["n"] if count is in_engine else trainer.state.counted

    run(6, None)
    assert run(None, "auto") == 12
