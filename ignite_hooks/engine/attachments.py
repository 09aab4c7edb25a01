"""Who is attached to which engine: earlier runners are replaced, or named in an error."""

from __future__ import annotations

import gc
import logging
import threading
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ignite.engine import State

from ignite_hooks.engine.run_wrapper import RunWrapper, already_attached
from ignite_hooks.errors import Problem
from ignite_hooks.run.logger import LOGGER_NAME
from ignite_hooks.run.memory import forget_failures, forget_outputs
from ignite_hooks.terminal import ipython_shell

if TYPE_CHECKING:
    from ignite.engine import Engine

    from ignite_hooks.run.runner import Runner

_ATTACHED: weakref.WeakSet[Runner] = weakref.WeakSet()
_ENGINE_OF: weakref.WeakKeyDictionary[State, weakref.ref[Engine]] = weakref.WeakKeyDictionary()
"""The engines of the states that runs have returned."""
_LOCK = threading.Lock()


def note_attached(runner: Runner) -> None:
    """Remember a runner while it has hooks on engines."""
    with _LOCK:
        _ATTACHED.add(runner)


def note_detached(runner: Runner) -> None:
    """Forget a runner whose hooks have been taken off."""
    with _LOCK:
        _ATTACHED.discard(runner)


def runner_of(engine: Engine) -> Runner | None:
    """Return the runner whose hooks are on this engine."""
    run = getattr(engine, "run", None)  # what a script gives as an evaluator is judged elsewhere
    return run.runner() if isinstance(run, RunWrapper) else None


def owner_of(hook: object) -> tuple[Runner, str] | None:
    """Return the runner that a hook belongs to, and the name of the hook there."""
    with _LOCK:
        attached = list(_ATTACHED)
    for runner in attached:
        for name, known in runner.hooks.registered.items():
            if known is hook:
                return runner, name
    return None


def of_another_trainer(hook: object, name: str) -> Problem | None:
    """Return what is wrong with a hook that belongs to a runner already: it would see the model of two runs."""
    owner = owner_of(hook)
    if owner is None:
        return None
    runner, known_as = owner
    message = (
        f"this hook belongs to another trainer already, where it is called {known_as!r} ({runner.work_dir}): "
        "make a hook for each trainer, or call runner.detach() of that one first"
    )
    return Problem(name, message)


def release_earlier_runs(trainer: Engine) -> None:
    """Let go of what earlier runs have left in a shell, where a cell is run again: frames, trainers, shown objects.

    Args:
        trainer: The engine that is about to run.
    """
    shell = ipython_shell()
    if shell is None:
        return
    with _LOCK:
        _ENGINE_OF[trainer.state] = weakref.ref(trainer)
        running = [runner.state.running for runner in _ATTACHED]
    if any(running):
        return  # a run inside another one, perhaps in each of its iterations
    forget_failures()
    if len(running) > 1:
        # Engines and their handlers hold each other, and with them the model, until the collector comes by.
        gc.collect()
    if forget_outputs(shell, _is_gone):
        gc.collect()


def _is_gone(output: object) -> bool:
    """Return whether the output of a cell belongs to a run whose trainer no longer exists, or was replaced."""
    if isinstance(output, State):
        engine = _ENGINE_OF.get(output)
        return engine is not None and engine() is None
    held = _hooks_in(output)
    living = [runner.hooks.registered for runner in _ATTACHED if runner.has_trainer]
    here = {id(hook) for hooks in living for hook in hooks.values()}
    return bool(held) and not any(id(hook) in here for hook in held.values())


def _hooks_in(output: object) -> dict[str, Any]:
    """Return the hooks that a runner, its hooks or its plan hold; of any other object none."""
    if not type(output).__module__.startswith(f"{LOGGER_NAME}."):
        return {}
    hooks = getattr(output, "hooks", output)
    found = getattr(hooks, "registered", hooks)
    return found if isinstance(found, dict) else {}


class EarlierRunners:
    """The runners whose hooks are on the engines that hooks are to be attached to.

    Args:
        trainer: The engine that trains.
        evaluators: The engines that evaluate, by name.
        replace: Whether these runners may be replaced; None means in an IPython shell, where cells are run again.
    """

    def __init__(self, trainer: Engine, evaluators: Mapping[str, Engine], replace: bool | None) -> None:
        self._replace = in_ipython() if replace is None else replace
        self._trainer = trainer
        self._roles: dict[Runner, list[str]] = {}
        engines = [("trainer", trainer), *((f"evaluator {name!r}", engine) for name, engine in evaluators.items())]
        for role, engine in engines:
            runner = runner_of(engine)
            if runner is not None:
                self._roles.setdefault(runner, []).append(role)

    def problems(self, hooks: Mapping[str, Any]) -> list[Problem]:
        """Return why they cannot be replaced by a runner with these hooks."""
        problems = [Problem("", message) for runner in self._roles if (message := self._refusal(runner))]
        for name, hook in hooks.items():
            owner = owner_of(hook)
            if owner is None or owner[0] in self._roles:
                continue
            if self._replace and not owner[0].has_trainer:
                # The cell that made its trainer was run again.
                self._roles[owner[0]] = []
            else:
                problems += [problem for problem in [of_another_trainer(hook, name)] if problem is not None]
        return problems

    def _refusal(self, runner: Runner) -> str | None:
        where = " and ".join(self._roles[runner])
        if _is_running(runner):
            return (
                f"the {where} already has hooks attached, and they are running: let the run end before you replace "
                "them; runner.register_hook(...) adds one at once"
            )
        return None if self._replace else already_attached(where)

    def hand_on(self) -> None:
        """Leave the folder of each of them to the next attachment, which takes it if it is empty, or to resume."""
        for runner in self._roles:
            if runner.claim is not None:
                runner.claim.hand_on()

    def detach(self) -> None:
        """Take the hooks of each of them off its trainer and all its evaluators."""
        for runner in self._roles:
            trainer = "a trainer that no longer exists"
            if runner.has_trainer:
                trainer = "the trainer" if runner.trainer is self._trainer else "another trainer, which has none now"
            engines = [trainer, *(f"evaluator {name!r}" for name in runner.evaluators)]
            runner.detach()
            logging.getLogger(LOGGER_NAME).warning(
                "replaced the hooks of an earlier attach_hooks(): %s on %s",
                ", ".join(runner.hooks) or "none",
                ", ".join(engines),
            )


def in_ipython() -> bool:
    """Return whether this is a notebook or another shell of IPython."""
    return ipython_shell() is not None


def _is_running(runner: Runner) -> bool:
    """Return whether a run or an evaluation is in progress; a run that was interrupted is not."""
    if runner.state.evaluating is not None:
        return True
    generator = getattr(runner.trainer, "_internal_run_generator", None) if runner.has_trainer else None
    return runner.state.running and (generator is None or generator.gi_running)
