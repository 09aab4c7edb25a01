"""Installs the hooks of a runner on its engines: adds and removes them, calls them by hand, detaches them."""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ignite.engine import Engine, State

from ignite_hooks.checkpoint.capture import hook_state
from ignite_hooks.checkpoint.delivered import Averaging, ChosenWeights, weights_in_model
from ignite_hooks.checkpoint.state_dict import copy_of_state, state_dict_of
from ignite_hooks.distributed.collectives import broadcast_object
from ignite_hooks.engine.attachments import note_attached, note_detached, release_earlier_runs
from ignite_hooks.engine.continuing import has_been_done
from ignite_hooks.engine.data_waits import DataWaits
from ignite_hooks.engine.dispatch import Dispatcher
from ignite_hooks.engine.ending import record_late_test
from ignite_hooks.engine.evaluation import Evaluations, evaluate
from ignite_hooks.engine.fast_path import IterationBoxes
from ignite_hooks.engine.handlers import is_trial, remove_events
from ignite_hooks.engine.lifecycle import Lifecycle
from ignite_hooks.engine.orders import Orders
from ignite_hooks.engine.registration import add_hook, hand_runner
from ignite_hooks.engine.reporting import report_with_findings
from ignite_hooks.engine.run_wrapper import RunWrapper
from ignite_hooks.engine.signals import Signals
from ignite_hooks.engine.stop_vote import Stopping, StopVote
from ignite_hooks.errors import ConfigError
from ignite_hooks.model.loader_workers import ShieldedWorkers
from ignite_hooks.plan.hook_events import HookEvents
from ignite_hooks.plan.methods import method_of
from ignite_hooks.plan.plan import Plan
from ignite_hooks.plan.points import CHECKPOINT_POINTS
from ignite_hooks.run.logger import loggers_of, warnings_on_screen
from ignite_hooks.run.memory import after_failure, forget_failures
from ignite_hooks.text import did_you_mean

if TYPE_CHECKING:
    from ignite_hooks.results.outcome import StopKind
    from ignite_hooks.run.report import Report
    from ignite_hooks.run.runner import Runner


class Installation:
    """Everything that a runner does to its engines. The runner owns it; it holds the runner weakly.

    The trainer's wrapped ``run`` holds the runner, so hooks live as long as their trainer or the runner.

    Args:
        runner: The run as hooks see it.
        trainer: The engine that trains.
        accept: Returns the hook that an object is, or one made of it; raises an error that says what is wrong.
        now: Returns the time in seconds.
        overhead_budget: The share of the time that an observing hook may take; None for no limit.
        rank_timeout: The seconds without a heartbeat after which a rank counts as hanging; 0 for no watchdog.
        signals: What is done at which signal, besides what is done at SIGINT and SIGTERM.
        requeue: Whether a save that a signal has asked for makes Slurm start the job again.
    """

    def __init__(
        self,
        runner: Runner,
        trainer: Engine,
        accept: Callable[[Any], Any],
        now: Callable[[], float] = time.monotonic,
        overhead_budget: float | None = None,
        rank_timeout: float = 30.0,
        signals: Mapping[int, str] | None = None,
        requeue: bool = False,
    ) -> None:
        self._runner = weakref.ref(runner)
        self._accept = accept
        self._now, self._overhead_budget, self._rank_timeout = now, overhead_budget, rank_timeout
        runner.plan = Plan({})
        self.dispatcher = Dispatcher(_agree, now)
        self.boxes = IterationBoxes()
        self.dispatcher.on_switched_off = self.boxes.leave_out
        self.stopping = Stopping(runner.state, StopVote(now), self.boxes)
        self._actions = dict(signals or {})
        self.starts_from = ""
        """The weights that were loaded when the hooks were attached, in words."""
        self.starts_from_file: Path | None = None
        """The file of the weights that a new training starts from."""
        self.stopping.requeues, self.stopping.vote.asked_for = requeue, bool(self._actions)
        self.evaluations = Evaluations(self.dispatcher, self.stopping, self.boxes)
        self._run: Lifecycle | None = None
        self._handling, self._detach_requested = 0, False
        self._on_detach: list[Callable[[], None]] = []
        self._on_detach.append(
            RunWrapper.wrap(
                trainer,
                lambda engine, data, _run: runner.installation.training(engine, data),
                "trainer",
                runner,
                lambda limits: has_been_done(runner, limits),
            )
        )
        new, reference = [event for event in HookEvents if event not in trainer._allowed_events], weakref.ref(trainer)
        trainer.register_events(*new)
        self._on_detach.append(lambda: remove_events(reference(), new))
        runner.installation = self
        note_attached(runner)

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
        """Check that a hook, or what one can be made of, can run here, and add it."""
        self.register_all([(name, self._accept(hook))], priority)

    def register_all(
        self, hooks: Iterable[tuple[str | None, Any]], priority: object = None, *, are_checked: bool = False
    ) -> None:
        """Check that hooks can run here and add them, with one new plan for all of them.

        Args:
            hooks: The hooks, with their names.
            priority: Their priority.
            are_checked: Whether each has just been built, and checked by itself.
        """
        self._must_be_attached()
        others = self.runner.hooks.registered
        added: list[Any] = []
        try:
            for name, hook in hooks:
                add_hook(self.runner, hook, name, priority, self._on_detach, is_checked=are_checked)
                added.append(hook)
            self.refresh()
            if self._run is not None:
                self._run.let_begin(added)
        except BaseException:
            # A run that continues after this continues without the hooks.
            self._clean_up_later(added)
            for hook in added:
                hand_runner(hook, None)
            self.runner.hooks.registered = others
            self.refresh()
            raise

    def _must_be_attached(self) -> None:
        if not self._on_detach:
            raise ConfigError(
                "the hooks of this runner have been detached: call attach_hooks() again, or run the engine"
            )

    def remove(self, name: str) -> None:
        """Remove a hook."""
        runner = self.runner
        if name not in runner.hooks:
            raise KeyError(f"no hook is called {name!r}{did_you_mean(name, runner.hooks)}")
        gone = runner.hooks[name]
        if runner.state.running:
            self._clean_up_later([gone])
        runner.hooks.registered = {n: hook for n, hook in runner.hooks.registered.items() if hook is not gone}
        self.refresh()

    def _clean_up_later(self, gone: Iterable[object]) -> None:
        """Clean up hooks of a run after the point being handled, which continues with a list that may hold them."""
        if self._run is not None and self.running:
            hooks = {id(hook) for hook in gone}
            slots = tuple(slot for slot in self.runner.plan.at("cleanup") if id(slot.owner) in hooks)
            self.dispatcher.removed.append(slots)
            self.wake()

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
        slowed = None if budget is None else budget.factors
        return Plan(self.runner.hooks.registered, progress, slowed, self.runner.plan)

    def service_added(self) -> None:
        """Give a new service to the hooks of a run that has begun; one that begins later gives it to them then."""
        if self._run is not None:
            self.refresh()

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
        if self._run is None and is_trial(trainer):
            message = (
                "FastaiLRFinder tries learning rates: this run has no hooks, and a pending resume= waits for the next"
            )
            self.runner.logger.info(message)
            with self.evaluations.left_alone():
                yield
            return
        with self._signals(data), warnings_on_screen(loggers_of(self.runner)):
            run = self._run or self._open(trainer)
            try:
                yield
            except BaseException as error:
                run.blame_dead_rank(error)
                # Ignite keeps the generator of a failed run, which would make the next run return None at once.
                trainer._internal_run_generator = None
                with self.handling():
                    run.fail(error)
                    self.close(failed=True)
                after_failure(error, *self._states(trainer))
                raise
            interrupted = getattr(trainer, "_internal_run_generator", None) is not None
            if not interrupted:
                with self.handling():
                    self.close()
                self.stopping.leave()

    def _open(self, trainer: Engine) -> Lifecycle:
        runner = self.runner
        release_earlier_runs(trainer)
        self.dispatcher.bind(runner)
        orders = Orders(runner, self.stopping, requeues=self.stopping.requeues)
        run = Lifecycle(trainer, runner, self.dispatcher, self.stopping, self.boxes, orders, self.refresh, self._now)
        try:
            run.open(self.make_plan(), self._overhead_budget, self._rank_timeout)
        except BaseException:
            self.dispatcher.forget()
            raise
        self._run = run
        if runner.claim is not None:
            runner.claim.ended = False
        return run

    def _states(self, trainer: Engine) -> list[State]:
        return [trainer.state, *(engine.state for engine in self.runner.evaluators.values())]

    @contextlib.contextmanager
    def _signals(self, data: object) -> Iterator[None]:
        """Handle signals during the run, and make the workers of its loaders ignore them."""
        shield = ShieldedWorkers([data, *self.runner.services.values()], self._actions)
        with Signals(self.stopping.on_signal, self._actions) as self.stopping.signals, shield:
            try:
                yield
            finally:
                # `Stopping` outlives the signal handlers.
                self.stopping.signals = None

    def close(self, *, failed: bool = False) -> None:
        """End the run that is in progress, if any."""
        run, self._run = self._run, None
        if run is not None:
            try:
                run.close(failed=failed)
            finally:
                if self.runner.claim is not None:
                    self.runner.claim.ended = True

    # -- calling by hand --------------------------------------------------------------------------------------

    def call(self, point: str, payload: Mapping[str, Any]) -> None:
        """Call the hooks of a point; checkpoint points fire their Ignite event too."""
        runner = self.runner
        with self.handling():
            with self.dispatcher.ready(runner):
                self.dispatcher.run(point, payload)
            if point in CHECKPOINT_POINTS:
                _fire(runner.trainer, HookEvents[point.upper()])

    def hook_states(self) -> dict[str, dict[str, Any]]:
        """Return the state that each hook saves in checkpoints; hooks without one are left out."""
        hooks = self.runner.hooks.registered
        states = {name: ask(hook) for name, hook in hooks.items() if (ask := method_of(hook, "state_dict"))}
        return {name: dict(state) for name, state in states.items() if state}

    def evaluate(
        self, name: str, checkpoint: str | Path | None = None, weights: Averaging | None = None
    ) -> dict[str, Any]:
        """Run the evaluation of this name now, with weights of the run, and return its metrics."""
        return self.evaluate_weights(name, checkpoint, weights)[0]

    def evaluate_weights(
        self, name: str, checkpoint: str | Path | None, weights: Averaging | None
    ) -> tuple[dict[str, Any], ChosenWeights]:
        """Do the same, and return also of which weights the metrics are; a test after the run belongs to its result."""
        self._must_be_attached()
        runner, was_running = self.runner, self.runner.state.running
        with weights_in_model(runner, checkpoint, weights) as chosen:
            metrics = evaluate(name, runner)
        if name == "test" and not was_running:
            record_late_test(
                runner, metrics, chosen, asked=checkpoint not in (None, "delivered") or weights is not None
            )
        return metrics, chosen

    def save_checkpoint(self, name: str | None) -> Path:
        """Write a checkpoint now, wait for it and return its path."""
        runner = self.runner
        with self.handling():
            try:
                return runner.checkpoints.save_manually(name)
            finally:
                if not runner.state.running:
                    runner.writer.close()
                    runner.checkpoints.close()

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint would hold."""
        with self.handling():
            return state_dict_of(self.runner)

    def load_state_dict(self, state: object) -> None:
        """Resume from what `state_dict` has returned when the next run starts."""
        self.runner.checkpoints.resume_at_start(copy_of_state(state))

    def counts_iterations(self) -> bool:
        """Return whether a hook has a state that changes after each iteration, such as averages."""
        calls, _ = self.dispatcher.at("after_train_iter")
        return any(hook_state(self.runner.hooks.registered[call.slot.hook]) for call in calls)

    def data_waits(self, clock: Callable[[], float]) -> DataWaits:
        """Return what measures the wait for data in a few iterations now and then."""
        return DataWaits(self.runner.trainer, clock)

    def stop(self, reason: str, kind: StopKind = "", leave_with: BaseException | None = None) -> None:
        """Ask for the end of the run after the current iteration."""
        self.stopping.request(reason, kind, leave_with)

    def at_interrupt(self, act: Callable[[], None]) -> None:
        """Do this at the end of the present run if Ctrl-C ends it, in place of raising KeyboardInterrupt."""
        if self.stopping.signals is not None:
            self.stopping.signals.on_interrupt = act

    def wake(self) -> None:
        """Ask for a check after the current iteration, because something has finished; any thread may call this."""
        self.boxes.request_recheck()

    # -- the end ----------------------------------------------------------------------------------------------

    def report(self) -> Report:
        """Return calls, time, failures and findings so far; those until then, once the hooks are detached."""
        if not self._on_detach:
            return self.dispatcher.report
        if self._run is not None:
            self._run.count()
            self.dispatcher.report.seconds = self._run.seconds
        return report_with_findings(self.dispatcher, self.runner)

    @contextlib.contextmanager
    def handling(self) -> Iterator[None]:
        """Handle an event of the trainer; a hook that detaches in it detaches at its end."""
        self._handling += 1
        try:
            yield
        finally:
            self._handling -= 1
            self.finish_detaching()

    def finish_detaching(self) -> bool:
        """Detach now if that was asked for; return whether it was, and nothing is left to be finished first."""
        if self._detach_requested:
            self.detach()
            return not self._detach_requested
        return False

    def detach(self) -> None:
        """Remove everything from the engines, which are then as they were before.

        In an event that is being handled, in an iteration or an evaluation, this waits for its end.
        """
        state = self.runner.state
        self._detach_requested = bool(self._handling or state.in_iteration or state.evaluating is not None)
        if self._detach_requested:
            self.wake()
            return
        self.close()
        if self.dispatcher.report.tallies:
            self.report()
        while self._on_detach:
            self._on_detach.pop()()
        for hook in self.runner.hooks.values():
            hand_runner(hook, None)
        note_detached(self.runner)
        forget_failures()
        if self.runner.claim is not None:
            self.runner.claim.release()


def _fire(trainer: Engine, event: HookEvents) -> None:
    last = trainer.last_event_name
    try:
        trainer.fire_event(event)
    finally:
        # Ignite's own handlers and many scripts read this name later.
        trainer.last_event_name = last


def _agree(mask: int, pause: int) -> tuple[int, int]:
    """Return the answer of rank 0."""
    mask, pause = broadcast_object([mask, pause])
    return mask, pause
