"""Installs the hooks of a runner on its engines: adds and removes them, calls them by hand, detaches them."""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ignite.engine import Engine

from ignite_hooks.distributed.collectives import broadcast_object
from ignite_hooks.engine.dispatch import Dispatcher
from ignite_hooks.engine.evaluation import Evaluations, evaluate
from ignite_hooks.engine.fast_path import IterationBoxes
from ignite_hooks.engine.handlers import tracking_new_handlers
from ignite_hooks.engine.lifecycle import Lifecycle
from ignite_hooks.engine.reporting import report_with_findings
from ignite_hooks.engine.run_wrapper import RunWrapper
from ignite_hooks.engine.signals import Signals
from ignite_hooks.engine.stop_vote import Stopping, StopVote
from ignite_hooks.errors import ConfigError, Problem
from ignite_hooks.hooks.base_hook import BaseHook
from ignite_hooks.model.loader_workers import ShieldedWorkers
from ignite_hooks.plan.hook_events import HookEvents
from ignite_hooks.plan.methods import default_name, method_of, own_method
from ignite_hooks.plan.plan import Plan
from ignite_hooks.plan.points import CHECKPOINT_POINTS
from ignite_hooks.plan.slots import problems_of
from ignite_hooks.run.best import rule_for
from ignite_hooks.text import did_you_mean, setting_place, shown

if TYPE_CHECKING:
    from ignite_hooks.run.report import Report
    from ignite_hooks.run.runner import Runner


class Installation:
    """Everything that a runner does to its engines. The runner owns it; it holds the runner weakly.

    The trainer's wrapped ``run`` holds the runner, so hooks live as long as their trainer or the runner.

    Args:
        runner: The run as hooks see it.
        trainer: The engine that trains.
        now: Returns the time in seconds.
        overhead_budget: The share of the time that an observing hook may take; None for no limit.
        rank_timeout: The seconds without a heartbeat after which a rank counts as hanging; 0 for no watchdog.
    """

    def __init__(
        self,
        runner: Runner,
        trainer: Engine,
        now: Callable[[], float] = time.monotonic,
        overhead_budget: float | None = None,
        rank_timeout: float = 30.0,
    ) -> None:
        self._runner = weakref.ref(runner)
        self._now, self._overhead_budget, self._rank_timeout = now, overhead_budget, rank_timeout
        runner.plan = Plan({})
        self.dispatcher = Dispatcher(_agree, now)
        self.boxes = IterationBoxes()
        self.stopping = Stopping(runner.state, StopVote(now), self.boxes)
        self.evaluations = Evaluations(self.dispatcher, self.stopping, self.boxes)
        self._run: Lifecycle | None = None
        self._on_detach: list[Callable[[], None]] = []
        self._on_detach.append(
            RunWrapper.wrap(trainer, lambda engine, data, _run: runner.installation.training(engine, data), "trainer")
        )
        events, reference = list(trainer._allowed_events), weakref.ref(trainer)
        trainer.register_events(*HookEvents)
        self._on_detach.append(lambda: _restore_events(reference(), events))
        runner.installation = self

    @property
    def runner(self) -> Runner:
        """The runner that owns this."""
        runner = self._runner()
        assert runner is not None
        return runner

    @property
    def running(self) -> bool:
        """Whether a run is in progress."""
        return self.runner.state.running

    # -- adding and removing hooks and evaluators -------------------------------------------------------------

    def register(self, hook: Any, priority: object = None, name: str | None = None) -> None:
        """Check that a hook can run here, and add it."""
        self.register_all([(name, hook)], priority)

    def register_all(self, hooks: Iterable[tuple[str | None, Any]], priority: object = None) -> None:
        """Check that hooks can run here and add them, with one new plan for all of them."""
        others = self.runner.hooks.registered
        added: list[Any] = []
        try:
            for name, hook in hooks:
                self._add(hook, name, priority)
                added.append(hook)
            self.refresh()
        except BaseException:
            # A run that continues after this continues without the hooks.
            for hook in added:
                hook.runner = None
            self.runner.hooks.registered = others
            self.refresh()
            raise

    def _add(self, hook: Any, name: str | None, priority: object) -> None:
        runner = self.runner
        if hook is None or isinstance(hook, (str, int, float, Mapping, list, tuple, type)):
            hint = ": pass it to build_hook() first" if isinstance(hook, (str, Mapping)) else ""
            raise ConfigError([Problem("register_hook", f"a hook is needed, not {shown(hook)}{hint}")])
        name = name or getattr(hook, "name", None) or default_name(hook)
        if name in runner.hooks.registered:
            raise ConfigError([Problem(name, "there is already a hook of this name: give one of them a name")])
        before = getattr(hook, "priority", None)
        if priority is not None:
            hook.priority = priority
        problems = problems_of(hook)
        if problems:
            hook.priority = before
            raise ConfigError([Problem(setting_place(name, setting), message) for setting, message in problems])
        hook.runner = runner
        try:
            for metric, rule in hook.monitors().items() if isinstance(hook, BaseHook) else ():
                runner.best.watch(metric, rule_for(metric, rule))
            runner.hooks.registered = {**runner.hooks.registered, name: hook}
            attached = own_method(type(hook), "attached")
            if attached:
                with tracking_new_handlers([runner.trainer, *runner.evaluators.values()], self._on_detach):
                    attached(hook)
        except BaseException:
            hook.runner = None
            raise

    def remove(self, name: str) -> None:
        """Remove a hook."""
        runner = self.runner
        if name not in runner.hooks:
            raise KeyError(f"no hook is called {name!r}{did_you_mean(name, runner.hooks)}")
        gone = runner.hooks[name]
        if runner.state.running:
            # Not at once: the point being handled continues with its list, which may still hold the hook.
            self.dispatcher.removed.append((name, gone))
            self.wake()
        runner.hooks.registered = {n: hook for n, hook in runner.hooks.registered.items() if hook is not gone}
        self.refresh()

    def add_evaluator(self, name: str, engine: Engine) -> None:
        """Treat the runs of an engine as evaluations of this name."""
        self._on_detach.append(self.evaluations.add(name, engine, self.runner))

    def make_plan(self) -> Plan:
        """Return a plan of the current hooks."""
        reference = self._runner

        def progress() -> tuple[int, int]:
            runner = reference()
            state = None if runner is None else runner.trainer_state
            return (0, 0) if state is None else (int(state.iteration), int(state.epoch))

        budget = None if self._run is None else self._run.budget
        return Plan(self.runner.hooks.registered, progress, None if budget is None else budget.factors)

    def refresh(self) -> None:
        """Make a new plan; the point that is being handled continues with the old one."""
        runner = self.runner
        runner.plan = self.make_plan()
        if self._run is not None:
            self.dispatcher.prepare(runner.plan)
            self.stopping.vote.use_plan(runner.plan)
            self._run.handle_iterations()
            self.boxes.fill()

    # -- a run ------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def training(self, trainer: Engine, data: object) -> Iterator[None]:
        """Wrap ``trainer.run``: register handlers, run, and clean up, whatever ends the run."""
        with self._signals(data):
            run = self._run or self._open(trainer)
            try:
                yield
            except BaseException as error:
                run.blame_dead_rank(error)
                # Ignite keeps the generator of a failed run, which would make the next run return None at once.
                trainer._internal_run_generator = None
                run.fail(error)
                self.close(failed=True)
                raise
            interrupted = getattr(trainer, "_internal_run_generator", None) is not None
            if not interrupted:
                self.close()

    def _open(self, trainer: Engine) -> Lifecycle:
        runner = self.runner
        self.dispatcher.bind(runner)
        run = Lifecycle(
            trainer, runner, self.dispatcher, self.stopping, self.boxes, self.evaluations, self.refresh, self._now
        )
        try:
            run.open(self.make_plan(), self._overhead_budget, self._rank_timeout)
        except BaseException:
            self.dispatcher.forget()
            raise
        self._run = run
        return run

    @contextlib.contextmanager
    def _signals(self, data: object) -> Iterator[None]:
        """Handle signals during the run, and make the workers of its loaders ignore them."""
        loaders = [data, *self.runner.services.values()]
        with Signals(self.stopping.on_signal) as self.stopping.signals, ShieldedWorkers(loaders):
            try:
                yield
            finally:
                # `Stopping` outlives the signal handlers.
                self.stopping.signals = None

    def close(self, *, failed: bool = False) -> None:
        """End the run that is in progress, if any."""
        run, self._run = self._run, None
        if run is not None:
            run.close(failed=failed)

    # -- calling by hand --------------------------------------------------------------------------------------

    def call(self, point: str, payload: Mapping[str, Any]) -> None:
        """Call the hooks of a point; checkpoint points fire their Ignite event too."""
        runner = self.runner
        with self.dispatcher.ready(runner):
            self.dispatcher.run(point, payload)
        if point in CHECKPOINT_POINTS:
            _fire(runner.trainer, HookEvents[point.upper()])

    def hook_states(self) -> dict[str, dict[str, Any]]:
        """Return the state that each hook saves in checkpoints; hooks without one are left out."""
        hooks = self.runner.hooks.registered
        states = {name: ask(hook) for name, hook in hooks.items() if (ask := method_of(hook, "state_dict"))}
        return {name: dict(state) for name, state in states.items() if state}

    def evaluate(self, name: str) -> dict[str, Any]:
        """Run the evaluation of this name now and return its metrics."""
        return evaluate(name, self.runner)

    def save_checkpoint(self, name: str | None) -> Path:
        """Write a checkpoint now, wait for it and return its path."""
        runner = self.runner
        try:
            return runner.checkpoints.save_manually(name)
        finally:
            if not runner.state.running:
                runner.writer.close()
                runner.checkpoints.close()

    def stop(self, reason: str) -> None:
        """Ask for the end of the run after the current iteration."""
        self.stopping.request(reason)

    def wake(self) -> None:
        """Ask for a check after the current iteration, because something has finished; any thread may call this."""
        self.boxes.request_recheck()

    # -- the end ----------------------------------------------------------------------------------------------

    def report(self) -> Report:
        """Return calls, time, failures and findings so far."""
        if self._run is not None:
            self._run.count()
            self.dispatcher.report.seconds = self._run.seconds
        return report_with_findings(self.dispatcher, self.runner)

    def detach(self) -> None:
        """Remove everything from the engines, which are then as they were before."""
        self.close()
        while self._on_detach:
            self._on_detach.pop()()
        for hook in self.runner.hooks.values():
            hook.runner = None


def _fire(trainer: Engine, event: HookEvents) -> None:
    last = trainer.last_event_name
    try:
        trainer.fire_event(event)
    finally:
        # Ignite's own handlers and many scripts read this name later.
        trainer.last_event_name = last


def _restore_events(trainer: Engine | None, events: list[Any]) -> None:
    if trainer is not None:
        trainer._allowed_events = events
        for event in HookEvents:
            trainer._event_handlers.pop(event, None)


def _agree(mask: int, pause: int) -> tuple[int, int]:
    """Return the answer of rank 0."""
    mask, pause = broadcast_object([mask, pause])
    return mask, pause
