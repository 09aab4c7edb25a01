"""Memory that the end of a run leaves held: batches, outputs, the frames of tracebacks, the outputs of cells."""

from __future__ import annotations

import gc
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from ignite_hooks.measure.machine import is_out_of_memory
from ignite_hooks.system.devices import empty_cache
from ignite_hooks.terminal import ipython_shell

if TYPE_CHECKING:
    from ignite.engine import State

_MARK: Final = "ended_a_run"
"""The attribute of an exception that has ended a run in a shell, which keeps it for ``%debug``."""


def free_memory(*states: State) -> None:
    """Let go of the last batch and output of engines and of the last exception, and return cached GPU memory.

    The traceback of an exception keeps each of its frames with everything in it, and an interactive shell keeps the
    traceback for ``%debug``.
    """
    _drop_batches(*states)
    for error in _kept_by_shell():
        clear_frames(error)
    gc.collect()
    empty_cache()


def after_failure(error: BaseException, *states: State) -> None:
    """Let go of everything large after out-of-memory and Ctrl-C in a shell, which keeps the traceback for ``%debug``.

    The next thing is another try. After any other exception the frames stay until `forget_failures`.

    Args:
        error: What has left the run.
        states: The states of its engines.
    """
    if ipython_shell() is None:
        return
    if isinstance(error, KeyboardInterrupt) or any(map(is_out_of_memory, _with_causes(error))):
        clear_frames(error)
        _drop_batches(*states)
    else:
        setattr(error, _MARK, True)


def forget_failures() -> None:
    """Clear the frames of the exceptions that have ended runs: the cell is run again, or the run is given up."""
    for error in _kept_by_shell():
        if any(hasattr(one, _MARK) for one in _with_causes(error)):
            clear_frames(error)


def _kept_by_shell() -> Iterator[BaseException]:
    for name in ("last_value", "last_exc"):
        error = getattr(sys, name, None)
        if isinstance(error, BaseException):
            yield error


def clear_frames(error: BaseException) -> None:
    """Clear the frames of an exception and of those that led to it; the lines of the traceback stay."""
    for one in _with_causes(error):
        traceback.clear_frames(one.__traceback__)
        for frame, _ in traceback.walk_tb(one.__traceback__):
            # Before Python 3.13 a frame keeps the copy of its variables that a shell has made to show the traceback.
            _ = frame.f_locals


def forget_outputs(shell: Any, is_gone: Callable[[Any], bool]) -> bool:
    """Drop what is gone from the outputs of cells, each of which IPython keeps as ``Out[n]``; return whether any was.

    Args:
        shell: The shell.
        is_gone: Returns whether an output belongs to a run that no longer exists.
    """
    outputs, display = shell.user_ns.get("_oh", {}), shell.displayhook
    numbers = [number for number, output in outputs.items() if is_gone(output)]
    for number in numbers:
        del outputs[number]
        for names in (shell.user_ns, shell.user_ns_hidden):
            names.pop(f"_{number}", None)
    for name in ("_", "__", "___"):
        output = getattr(display, name, None)
        if output is not None and is_gone(output):
            setattr(display, name, "")
            for names in (shell.user_ns, shell.user_ns_hidden):
                if names.get(name) is output:
                    names[name] = ""  # as in a new shell
    return bool(numbers)


def _drop_batches(*states: State) -> None:
    for state in states:
        state.batch = state.output = None


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and those that led to it or are in it."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            yield one
            waiting += [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]
