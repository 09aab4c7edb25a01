"""The keys ``signals`` and ``requeue``: what a run does when the system, or a scheduler, sends it a signal."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping
from typing import Any

from ignite_hooks.errors import Problem
from ignite_hooks.system.host import SYSTEM
from ignite_hooks.text import below, did_you_mean, shown

NAMES = ("TERM", "INT", "USR1", "USR2", "HUP", "QUIT", "XCPU")
"""The signals that a configuration may name; the others cannot be handled, or mean something else to Python."""

ACTIONS = ("save", "stop", "save and stop")

ENDS = ("TERM", "INT")
"""The signals that Slurm or a user sends to be rid of a job: it is not started again because of these."""


def read_signals(content: Mapping[str, Any], problems: list[Problem]) -> dict[int, str]:
    """Return the actions by the number of the signal; what is wrong is added to the problems.

    Example:
        >>> read_signals({"signals": {"USR1": "save", "SIGTERM": "save and stop"}}, [])[signal.SIGUSR1]
        'save'
    """
    wanted = content.get("signals")
    if wanted is None:
        return {}
    if not isinstance(wanted, Mapping):
        message = f"a mapping of signals to actions is needed, as in {{USR1: save}}, not {shown(wanted)}"
        problems.append(Problem("signals", message))
        return {}
    found: dict[int, str] = {}
    for key, action in wanted.items():
        place, name = below("signals", key), str(key).upper().removeprefix("SIG")
        if not isinstance(key, str) or name not in NAMES:
            hint = did_you_mean(name, NAMES) or f"; there are {', '.join(NAMES)}"
            problems.append(Problem(place, f"no signal that can be handled{hint}"))
        elif not hasattr(signal, f"SIG{name}"):
            problems.append(Problem(place, f"this system ({SYSTEM}) has no such signal: leave it out"))
        elif action not in ACTIONS:
            problems.append(Problem(place, f"'save', 'stop' or 'save and stop' is needed, not {shown(action)}"))
        elif (number := int(signal.Signals[f"SIG{name}"])) in found:
            problems.append(Problem(place, "is named twice: give one of them"))
        else:
            found[number] = action
    return found


def read_requeue(content: Mapping[str, Any], problems: list[Problem]) -> bool:
    """Return whether Slurm is to start the job again after a save that a signal has asked for."""
    wanted = content.get("requeue")
    if wanted is None or isinstance(wanted, bool):
        named = content.get("signals")
        names = [str(name).upper().removeprefix("SIG") for name in named] if isinstance(named, Mapping) else []
        if wanted and not set(names) - set(ENDS):
            remedy = "name the signal that Slurm sends before the limit, as in signals: {USR1: save}"
            problems.append(Problem("requeue", f"no signal leads to it, as TERM and INT end a job for good: {remedy}"))
        return bool(wanted)
    problems.append(Problem("requeue", f"true or false is needed, not {shown(wanted)}"))
    return False


def unsaved_signals(actions: Mapping[int, str], hooks: Iterable[object]) -> list[Problem]:
    """Return a problem for each signal that asks for a save where no hook saves."""
    if any(hasattr(type(hook), "save_now") for hook in hooks):
        return []
    return [
        Problem(f"signals.{signal.Signals(number).name.removeprefix('SIG')}", f"no hook saves: {remedy}")
        for number, action in actions.items()
        if action != "stop"
        for remedy in ("add {type: CheckpointHook}",)
    ]
