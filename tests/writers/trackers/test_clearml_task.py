"""The configuration in a task, against the real SDK's interface; the rest is in `tests/config/connected`."""

from __future__ import annotations

import contextlib
import gc
import os
from typing import Any
from unittest.mock import Mock

import pytest

from ignite_hooks.errors import ConfigError, Problem
from ignite_hooks.writers.trackers import clearml_task
from ignite_hooks.writers.trackers.clearml_task import (
    Views,
    abandon_task,
    failing_task,
    record_in,
    recorded_in,
    stopping_on_abort,
    under_agent,
)


class Task:
    """Keeps what a task of the SDK keeps, by the same calls."""

    def __init__(self, **parameters: Any) -> None:
        self.parameters: dict[str, Any] = parameters
        self.objects: dict[str, str] = {}

    def reload(self) -> None:
        pass

    def get_parameters(self, cast: bool = False) -> dict[str, Any]:
        return dict(self.parameters)

    def set_parameters(self, parameters: dict[str, Any]) -> None:
        self.parameters = parameters

    def set_configuration_object(self, name: str, config_text: str, config_type: str) -> None:
        self.objects[name] = config_text

    def get_configuration_object(self, name: str) -> str | None:
        return self.objects.get(name)


def test_parameters_of_others_stay_and_removed_ones_go() -> None:
    task = Task(**{"Args/depth": "3", "Hooks/EMAHook/decay": "0.9", "Run/seed": "1"})
    views = Views("seed: 2", "seed: 2", {"Run/seed": "2"}, stale=["Hooks/EMAHook/decay"])
    record_in(task, views)
    found = recorded_in(task)
    assert found == ("seed: 2", "seed: 2", {"Args/depth": "3", "Run/seed": "2"})


def test_values_come_back_as_text() -> None:
    assert recorded_in(Task(a=None, b=3)).parameters == {"a": "", "b": "3"}
    assert Views("t", "b", {}).as_content() == {"text": "t", "base": "b", "parameters": {}, "stale": ()}


@pytest.mark.parametrize("variable", ["CLEARML_TASK_ID", "TRAINS_TASK_ID"])
def test_an_agent_names_its_task_in_a_variable(variable: str) -> None:
    assert under_agent({variable: "4"})
    assert not under_agent({variable: ""})


def test_by_hand_a_wrong_configuration_touches_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLEARML_TASK_ID", raising=False)
    monkeypatch.setattr(clearml_task, "OURS", {"a task"})
    with pytest.raises(ConfigError), failing_task():
        raise ConfigError([Problem("seed", "wrong")])


def test_a_task_whose_server_has_died_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    clearml: Any = pytest.importorskip("clearml")
    task = Task()
    monkeypatch.setattr(clearml.Task, "_Task__main_task", task)
    monkeypatch.setenv("CLEARML_PROC_MASTER_ID", f"{os.getpid()}:3f")
    abandon_task()
    assert clearml.Task.current_task() is None, "a later run begins its own"
    assert vars(task)["_at_exit_called"] is True, "the end of the process does not wait for it"
    abandon_task()


def test_the_script_hears_of_an_abort_when_the_run_is_closed() -> None:
    called: list[str] = []
    worker = Mock(_abort_cb=lambda: called.append("of the script"))
    task = Mock(_dev_worker=worker)
    with stopping_on_abort(task, lambda: called.append("closed"), 1.0):
        task.register_abort_callback.call_args.args[0]()
    # The SDK asks and calls again each second until the process has ended.
    task.register_abort_callback.call_args.args[0]()
    assert called == ["closed", "of the script"]
    with stopping_on_abort(task, lambda: None, 1.0):
        pass
    assert task.register_abort_callback.call_args.args[0] is worker._abort_cb, "as it was: nobody has aborted the task"


@pytest.mark.parametrize("dropped", [True, False])
def test_a_watch_that_is_dropped_asks_no_server(dropped: bool) -> None:
    """It goes at the end of a process whose task was abandoned, because its server answers no more."""
    task, stack = Mock(_dev_worker=None), contextlib.ExitStack()
    stack.enter_context(stopping_on_abort(task, lambda: None, 1.0))
    if not dropped:
        stack.close()
    del stack
    gc.collect()
    assert task.register_abort_callback.call_count == (1 if dropped else 2)
