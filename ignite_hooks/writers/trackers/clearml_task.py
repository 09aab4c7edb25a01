"""The task of an agent, and the configuration in a task of ClearML."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ignite_hooks.errors import ConfigError
from ignite_hooks.secrets import masked

TEXT, BASE = "ignite_hooks", "ignite_hooks.base"
"""The names of the configuration objects: the text, and what was recorded when the task was made."""
TRAINED = "ignite_hooks.trained"
"""The whole configuration, with defaults and with what is the script's, which is not read back."""
OURS: set[str] = set()
"""The tasks that were opened here, and are closed at the end of the run."""
WORK_DIR = "IGNITE_HOOKS_WORK_DIR"
"""The variable with the folder in which an agent's runs have their work directories."""
LOOKS_EVERY = "CLEARML_AGENT_QUEUE_POLL_FREQ_SEC"
"""The variable with the seconds after which an agent looks at the state of its task again; 5 by default."""
PATIENCE = 10.0
"""Seconds within which the server has to answer an agent's run."""


@dataclass(frozen=True)
class Views:
    """A configuration as a task shows it."""

    text: str
    base: str
    parameters: Mapping[str, str]
    stale: Sequence[str] = ()
    """Parameters that the task has, and that are no longer in the configuration."""

    def as_content(self) -> dict[str, Any]:
        """Return it as the content of a record."""
        return asdict(self)


class Recorded(NamedTuple):
    """What a task has of a configuration, as text."""

    text: str | None
    base: str | None
    parameters: dict[str, str]


def under_agent(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether an agent of ClearML runs this process for a task.

    Example:
        >>> under_agent({"CLEARML_TASK_ID": "3f"}), under_agent({})
        (True, False)
    """
    return bool(environment.get("CLEARML_TASK_ID") or environment.get("TRAINS_TASK_ID"))


def agent_has_heard_in(environment: Mapping[str, str] = os.environ) -> float:
    """Return the seconds in which an agent has heard of an abort itself, and does not judge by the exit code any more.

    Example:
        >>> agent_has_heard_in({}), agent_has_heard_in({"CLEARML_AGENT_QUEUE_POLL_FREQ_SEC": "20"})
        (8.0, 23.0)
    """
    try:
        looks_every = float(environment.get(LOOKS_EVERY) or 5.0)
    except ValueError:
        looks_every = 5.0
    return looks_every + 3.0


def begun_task(**settings: Any) -> Any:
    """Return a task of ours that begins: nothing is recorded a second time, and no generator of random numbers seeded.

    Args:
        **settings: Arguments of ``Task.init``.
    """
    from clearml import Task

    # The reporting process of ClearML takes seconds to end, a thread takes milliseconds.
    Task._report_subprocess_enabled = False
    seed = Task._random_seed
    # A task begins in a thread, beside the training.
    Task.set_random_seed(None)
    try:
        return Task.init(
            auto_connect_frameworks=False,
            auto_connect_arg_parser=False,
            auto_connect_streams=False,
            auto_resource_monitoring=False,
            **settings,
        )
    finally:
        Task._random_seed = seed


def folder_of_task(named: str | Path | None, stem: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the work directory of the task that an agent runs: a folder of its own below the one that is named.

    Args:
        named: The work directory that the configuration or the script names.
        stem: What a run is called that names none.
        environment: The variables. One may hold the folder for relative paths: the agent wipes its own.

    Example:
        >>> folder_of_task("digits", "run", {"CLEARML_TASK_ID": "3f", "IGNITE_HOOKS_WORK_DIR": "/data"}).as_posix()
        '/data/digits/3f'
    """
    folder = Path(environment.get(WORK_DIR) or "", Path(named) if named else Path("work_dirs", stem))
    return folder / (environment.get("CLEARML_TASK_ID") or environment["TRAINS_TASK_ID"])


def task_of_agent() -> Any:
    """Return the task that an agent runs here.

    Raises:
        ConnectionError: The server does not answer; the file's values must not be trained instead of the task's.
    """
    from clearml import Task

    current = Task.current_task()
    if current is not None:
        return current
    from clearml.backend_api import Session

    from ignite_hooks.writers.trackers.probe import answers

    server = Session.get_api_server_host()
    if not answers(f"{server}/debug.ping", PATIENCE):
        raise ConnectionError(f"{server} does not answer: the values of the task cannot be read, so nothing is trained")
    task = begun_task(reuse_last_task_id=False, continue_last_task=0)
    OURS.add(task.id)
    return task


def recorded_in(task: Any) -> Recorded:
    """Return what a task has of a configuration."""
    task.reload()
    given = task.get_parameters(cast=False) or {}
    # A number that a search has set may be one here.
    parameters = {name: "" if value is None else str(value) for name, value in given.items()}
    return Recorded(task.get_configuration_object(TEXT), task.get_configuration_object(BASE), parameters)


def record_in(task: Any, views: Views) -> None:
    """Write a configuration into a task; hyper-parameters of others stay."""
    dropped = {*views.parameters, *views.stale}
    others = {name: value for name, value in (task.get_parameters() or {}).items() if name not in dropped}
    task.set_parameters({**others, **views.parameters})
    task.set_configuration_object(TEXT, config_text=views.text, config_type="yaml")
    task.set_configuration_object(BASE, config_text=views.base, config_type="yaml")


@contextlib.contextmanager
def ending_whole(task: Any) -> Iterator[None]:
    """Let a task that is closed meanwhile write all it has.

    After a signal, an exception or a call of `sys.exit` anywhere in the process, the SDK takes the end for a crash: it
    neither waits for its thread nor ends it.
    """
    at_exit = getattr(type(task), "_Task__exit_hook", None)
    before = {name: getattr(at_exit, name) for name in ("exit_code", "exception", "signal") if hasattr(at_exit, name)}
    try:
        for name in before:
            setattr(at_exit, name, None)
        yield
    finally:
        for name, value in before.items():
            setattr(at_exit, name, value)


def abandon_task() -> None:
    """Let the SDK forget the task of this process, if it is still open.

    At the end of the process it would repeat its last calls for as long as the server does not answer, for minutes or
    for ever, and a later run would take the task for one of the script.
    """
    from clearml import Task

    task: Any = getattr(Task, "_Task__main_task", None)
    if task is None:
        return
    task._at_exit_called = True
    # It would flush, and wait for events that nobody takes.
    reporter = getattr(task, "_Task__reporter", None)
    if reporter is not None:
        atexit.unregister(reporter._handle_program_exit)
    for name in ("_Task__main_task", "_Task__forked_proc_main_pid"):
        if hasattr(Task, name):
            setattr(Task, name, None)
    # A variable of the process names the task: whoever asked for the current one would be given a new one.
    forget = getattr(Task, "_Task__update_master_pid_task", None)
    if forget is not None:
        forget(task=None)
    # At the end of the process logging closes all handlers, and that of the SDK would wait for its thread.
    handlers = [reference() for reference in getattr(logging, "_handlerList", ())]
    for handler in handlers:
        if type(handler).__module__.startswith("clearml.") and hasattr(handler, "_task_id"):
            handler._task_id = None


@contextlib.contextmanager
def ending_as_stopped(task: Any) -> Iterator[None]:
    """Let a task that is closed meanwhile end as stopped; the SDK closes every task as completed."""
    # What the SDK itself sets after an abort: with calls of its interface, the task would be completed for a moment.
    at_exit = getattr(type(task), "_Task__exit_hook", None)
    if at_exit is None:
        yield
        task.mark_stopped(force=True)
        return
    before, at_exit.remote_user_aborted = at_exit.remote_user_aborted, True
    try:
        yield
    finally:
        at_exit.remote_user_aborted = before


@contextlib.contextmanager
def stopping_on_abort(task: Any, stop: Callable[[], None], timeout: float, *, ours: bool = True) -> Iterator[None]:
    """Stop the run when somebody aborts the task, and then call what the script has registered for it.

    Args:
        task: The task.
        stop: Stops the run, and returns when everything is saved and closed: the SDK then ends the process.
        timeout: Seconds after which the SDK does not wait any longer.
        ours: Whether it is closed at the end of the run, with the state that this has; the script's own stays open.
    """
    theirs = getattr(getattr(task, "_dev_worker", None), "_abort_cb", None)
    was_aborted = False

    def stop_and_tell() -> None:
        nonlocal was_aborted
        was_aborted = True
        at_exit = getattr(type(task), "_Task__exit_hook", None)
        if at_exit is not None and not ours:
            # What the SDK sets before it ends the process; one that ends first would complete the task.
            at_exit.remote_user_aborted = True
        stop()
        if theirs is not None:
            theirs()

    task.register_abort_callback(stop_and_tell, timeout)
    was_dropped = False
    try:
        yield
    except GeneratorExit:
        # It goes with a task that was abandoned, at the end of the process: the SDK would ask its server for minutes.
        was_dropped = True
        raise
    finally:
        if not was_dropped:
            # The SDK asks on, until the process has ended: the script is told once.
            task.register_abort_callback((lambda: None) if was_aborted else theirs, timeout)


@contextlib.contextmanager
def failing_task() -> Iterator[None]:
    """Let the task of an agent fail with the problems of a configuration, which the page then shows."""
    try:
        yield
    except ConfigError as error:
        if OURS and under_agent():
            from clearml import Task

            task = Task.current_task()
            if task is not None and task.id in OURS:
                task.mark_failed(
                    ignore_errors=True, status_reason="the configuration is wrong", status_message=masked(str(error))
                )
        raise
