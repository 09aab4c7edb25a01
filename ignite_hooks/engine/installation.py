"""Slots -> Ignite handlers: seated when a run starts, gone when it ends. Nothing else registers handlers."""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from ignite.engine import Engine, EventEnum, Events
from ignite.metrics import Metric

from ignite_hooks.checkpoint import capture as checkpoints
from ignite_hooks.checkpoint.data_position import Position
from ignite_hooks.distributed.collectives import all_reduce_max, broadcast_object, world_size
from ignite_hooks.distributed.watchdog import Watchdog, is_of_another_rank
from ignite_hooks.engine.accounting import Report
from ignite_hooks.engine.agreement import (
    AT_EPOCH,
    AT_EPOCH_END,
    AT_START,
    IN_EPOCH,
    Agreement,
    compare_plans,
)
from ignite_hooks.engine.budget import Weighing
from ignite_hooks.engine.dispatch import Calls, on_error_of
from ignite_hooks.engine.evaluation import Evaluations
from ignite_hooks.engine.fast_path import IterationBox
from ignite_hooks.engine.run_wrapper import Guard
from ignite_hooks.engine.signals import Signals
from ignite_hooks.engine.stopping import Stopping
from ignite_hooks.errors import ConfigError, Problem
from ignite_hooks.hooks.base_hook import BaseHook
from ignite_hooks.model.loader_workers import ShieldedWorkers
from ignite_hooks.plan.plan import Plan, problems_of
from ignite_hooks.plan.points import CHECKPOINT_POINTS, method_of
from ignite_hooks.run.best import rule_for
from ignite_hooks.run.runner import Runner
from ignite_hooks.text import counted, did_you_mean, one_line, shown


class HookEvents(EventEnum):
    """The checkpoint points as Ignite events, registered on the trainer.

    Example:
        >>> HookEvents.BEFORE_SAVE_CHECKPOINT == "BEFORE_SAVE_CHECKPOINT"
        False
    """

    BEFORE_SAVE_CHECKPOINT = "hook_before_save_checkpoint"
    AFTER_SAVE_CHECKPOINT = "hook_after_save_checkpoint"
    AFTER_LOAD_CHECKPOINT = "hook_after_load_checkpoint"

    @property
    def name(self) -> str:
        """Prefixed: Ignite compares events by name, and these must never equal one of another make."""
        return f"HOOK_{self._name_}"

    def __hash__(self) -> int:
        return hash(self.name)


class Seats:
    """The handlers we have on one engine while it runs."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._taken: list[tuple[Any, Callable[..., Any]]] = []

    def take(self, event: Any, handler: Callable[..., Any], where: str = "last") -> None:
        """Add a handler as the first, the last, or the one right after the last metric of its event."""
        handlers = self._engine._event_handlers
        before = list(handlers.get(event, []))
        self._engine.add_event_handler(event, handler)
        ours = handlers[event][-1]
        at = {"first": 0, "last": len(before), "after metrics": _after_metrics(before)}[where]
        # A new list: Ignite may be going through the old one.
        handlers[event] = [*before[:at], ours, *before[at:]]
        self._taken.append((event, ours))

    def leave(self) -> None:
        """Take every handler away again."""
        for event, ours in self._taken:
            take_away(self._engine, {event: [ours]})
        self._taken.clear()


class Installation:
    """The hooks of one runner on their engines."""

    def __init__(
        self,
        runner: Runner,
        trainer: Engine,
        now: Callable[[], float] = time.monotonic,
        overhead_budget: float | None = None,
    ) -> None:
        self.runner = runner
        runner.plan = Plan({})
        self.calls = Calls(runner, _agree, now)
        self._now = now
        self._weighing = None if overhead_budget is None else Weighing(overhead_budget, runner, self.calls, now)
        self._agreement = Agreement(now)
        self._boxes: dict[str, IterationBox] = {}
        self._stopping = Stopping(runner, self._agreement, self._boxes)
        self._evaluations = Evaluations(runner, self.calls, self._stopping, Seats)
        self._vigil: Watchdog | None = None
        self._started_at = 0.0
        self._began = False
        self._awake = False
        self._leaving: list[tuple[str, object]] = []
        self._failed_with: BaseException | None = None
        self._seats: Seats | None = None
        self._first_batch: Seats | None = None
        self._undo: list[Callable[[], None]] = []
        # The trainer owns the installation through its guard; everything else knows it weakly.
        self._undo.append(Guard.put(trainer, lambda _engine, data, _run: self.training(data), "trainer"))
        events = list(trainer._allowed_events)
        trainer.register_events(*HookEvents)
        self._undo.append(lambda: _restore_events(runner.trainer, events))
        runner._host_ref = weakref.ref(self)

    # -- hooks and evaluators come and go ---------------------------------------------------------------------

    def register(self, hook: Any, priority: object = None, name: str | None = None) -> None:
        """Add a hook, after checking that it can run here."""
        if hook is None or isinstance(hook, (str, int, float, Mapping, list, tuple, type)):
            hint = ": build_hook() makes one of it" if isinstance(hook, (str, Mapping)) else ""
            raise ConfigError([Problem("register_hook", f"a hook is needed, not {shown(hook)}{hint}")])
        name = name or getattr(hook, "name", None) or type(hook).__name__
        if name in self.runner.hooks.by_name:
            raise ConfigError([Problem(name, "there is already a hook of this name: give one of them a name")])
        before = getattr(hook, "priority", None)
        if priority is not None:
            hook.priority = priority
        problems = problems_of(hook)
        if problems:
            hook.priority = before
            raise ConfigError([Problem(f"{name}.{setting}".rstrip("."), message) for setting, message in problems])
        others = self.runner.hooks.by_name
        hook.runner = self.runner
        try:
            for metric, rule in hook.monitors().items() if isinstance(hook, BaseHook) else ():
                self.runner.best.watch(metric, rule_for(metric, rule))
            self.runner.hooks.by_name = {**others, name: hook}
            attached = method_of(hook, "attached")
            if attached:
                with self._remembering_handlers():
                    attached(hook)
            self.refresh()
        except BaseException:
            # A run that goes on after this goes on without the hook.
            hook.runner, self.runner.hooks.by_name = None, others
            self.refresh()
            raise

    def remove(self, name: str) -> None:
        """Take a hook away."""
        if name not in self.runner.hooks:
            raise KeyError(f"no hook is called {name!r}{did_you_mean(name, self.runner.hooks)}")
        gone = self.runner.hooks[name]
        if self.running:
            # Not at once: the point in hand goes on with its list, on which it may still stand.
            self._leaving.append((name, gone))
            self.wake()
        self.runner.hooks.by_name = {n: hook for n, hook in self.runner.hooks.by_name.items() if hook is not gone}
        self.refresh()

    def add_evaluator(self, name: str, engine: Engine) -> None:
        """Seat the evaluation points on an engine whenever it runs."""
        if not name.isidentifier():
            raise ConfigError([Problem(f"evaluators.{name}", "a name of letters, digits and _ is needed")])
        me = weakref.ref(self)

        def opened(running: Engine, data: object, run: Callable[[], object]) -> AbstractContextManager[None]:
            installation = me()
            if installation is None:
                return contextlib.nullcontext()
            return installation._evaluations.around(name, running, data, run)

        self._undo.append(Guard.put(engine, opened, f"evaluator {name!r}"))
        self.runner.evaluators[name] = engine

    def refresh(self) -> None:
        """Make the plan anew; the point that is being handled goes on with the old one."""
        self.runner.plan = self._make_plan()
        if self.running:
            self.calls.prepare(self.runner.plan)
            self._agreement.follow(self.runner.plan)
            self._seat_iterations()
            for box in self._boxes.values():
                box.fill()

    def _make_plan(self) -> Plan:
        runner = weakref.ref(self.runner)

        def progress() -> tuple[int, int]:
            known = runner()
            return (0, 0) if known is None else known.progress()

        slowed = None if self._weighing is None else self._weighing.factors
        return Plan(self.runner.hooks.by_name, progress, slowed)

    @contextlib.contextmanager
    def _remembering_handlers(self) -> Iterator[None]:
        """What a handler of another make registers in here is undone by ``detach``."""
        engines = [self.runner.trainer, *self.runner.evaluators.values()]
        before = [{event: list(handlers) for event, handlers in e._event_handlers.items()} for e in engines]
        try:
            yield
        finally:
            for engine, seen in zip(engines, before, strict=True):
                new = {
                    event: [h for h in handlers if not any(h is old for old in seen.get(event, []))]
                    for event, handlers in engine._event_handlers.items()
                }
                reference = weakref.ref(engine)
                self._undo.append(lambda new=new, reference=reference: take_away(reference(), new))  # type: ignore[misc]

    # -- a run ------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def training(self, data: object) -> Iterator[None]:
        """Around ``trainer.run``: seat, run, clean up, whatever ends it."""
        trainer = self.runner.trainer
        loaders = [data, *self.runner.services.values()]
        with (
            Signals(self._stopping.on_signal) as self._stopping.signals,
            ShieldedWorkers(loaders),
            self._forgetting_signals(),
        ):
            if not self.running:
                self._open(trainer)
            try:
                yield
            except BaseException as error:
                self._explain(error)
                # Ignite keeps the generator of a failed run, and the next run would return None at once.
                trainer._internal_run_generator = None
                self._on_exception(error)
                self._close(failed=True)
                raise
            interrupted = getattr(trainer, "_internal_run_generator", None) is not None
            if not interrupted:
                self._close()

    @contextlib.contextmanager
    def _forgetting_signals(self) -> Iterator[None]:
        try:
            yield
        finally:
            # They hold this installation.
            self._stopping.signals = None

    def _open(self, trainer: Engine) -> None:
        self.runner.stop_reason, self.runner.aborting, self._began, self._failed_with = None, False, False, None
        self.calls.off.clear()
        self.calls.report = self.runner.last_report = Report()
        self.runner.publish_epoch()
        self._started_at = self._now()
        if self._weighing is not None:
            self._weighing.begin()
        self.runner.plan = self._make_plan()
        self.calls.prepare(self.runner.plan)
        self._meet_the_others()
        self.runner.position = Position()
        self._seats = seats = Seats(trainer)
        seats.take(Events.STARTED, self._on_started, "first")
        seats.take(Events.EPOCH_STARTED, self._on_epoch_started, "first")
        seats.take(Events.EPOCH_STARTED, self._on_epoch_opened)
        seats.take(Events.DATALOADER_STOP_ITERATION, self._on_data_ended)
        seats.take(Events.TERMINATE_SINGLE_EPOCH, self._on_data_dropped)
        seats.take(Events.EPOCH_COMPLETED, self._on_train_epoch_completed, "after metrics")
        seats.take(Events.EPOCH_COMPLETED, self._on_epoch_completed)
        seats.take(Events.TERMINATE, self._on_run_ends, "first")
        seats.take(Events.TERMINATE, self._close_epoch)
        seats.take(Events.COMPLETED, self._on_run_ends, "first")
        seats.take(Events.COMPLETED, self._on_completed)
        if Events.EXCEPTION_RAISED in trainer._event_handlers:
            # Ignite swallows an exception as soon as anything listens, so we listen only where the script does.
            seats.take(Events.EXCEPTION_RAISED, self._on_exception, "first")
        self._stopping.running = True
        self._seat_iterations()

    def _meet_the_others(self) -> None:
        """Be sure that all ranks do the same, and watch over them for as long as the run goes on."""
        runner = self.runner
        self._agreement.begin(runner.plan)
        if world_size() == 1:
            return
        compare_plans(runner.plan)
        for name, hook in runner.hooks.by_name.items():
            wanted = getattr(hook, "on_error", None) or "raise"
            if on_error_of(hook) != wanted:
                runner.logger.warning("%s: on_error %r is 'raise' here, as the other ranks need it", name, wanted)
        if runner.rank_timeout:
            self._vigil = Watchdog(runner.rank_timeout, runner.services["logs_dir"], runner.logger)
            self._vigil.begin()

    def _explain(self, error: BaseException) -> None:
        """Say which rank has died, where an error is only what is seen of it here; tell the others of the error."""
        if self._vigil is None:
            return
        if is_of_another_rank(error) and (explanation := self._vigil.explanation()) is not None:
            error.add_note(f"{explanation}: this rank cannot go on without it")
            self.runner.logger.error("%s: this rank cannot go on without it", explanation)
        self._vigil.end(error)
        self._vigil = None

    def _seat_iterations(self) -> None:
        """Seat the handlers of the trainer's iterations; the first only while a hook answers it."""
        if self._seats is None:
            return
        trainer = self.runner.trainer
        if "after_train_iter" not in self._boxes:
            votes = self._agreement
            box = IterationBox(self.calls, trainer, "after_train_iter", self._after_iteration, lambda: votes.next_vote)
            self._boxes["after_train_iter"] = box
            self._seats.take(Events.ITERATION_COMPLETED, box.handler)
        if "before_train_iter" not in self._boxes and self.runner.plan.at("before_train_iter"):
            box = IterationBox(self.calls, trainer, "before_train_iter")
            self._boxes["before_train_iter"] = box
            self._seats.take(Events.ITERATION_STARTED, box.handler, "first")

    @property
    def running(self) -> bool:
        """Whether a run has begun that has not ended."""
        return self._stopping.running

    def _on_started(self) -> None:
        self._began = True
        if not self.runner.global_step:
            # What a former run of this engine measured belongs to steps that are yet to come in this one.
            self.runner.metrics.clear()
            self.runner.best.load_state_dict({})
            self.runner.publish_epoch()
            if not self.runner.resume_from:
                self.runner.writer.began_anew()
        self.runner.position.run_started(self.runner)
        self.calls.meet("before_run")
        if self.runner.resume_from:
            self._resume()
        self._begin_epoch_at(self.runner.global_step)
        self.calls.start_clocks()
        if self._weighing is not None:
            # Here, because what comes before belongs to no iteration.
            self._weighing.begin()
            self._weighing.later()
        for box in self._boxes.values():
            box.start()
        evaluated = self._evaluations.count
        self.calls.meet("before_train")
        if self._evaluations.count != evaluated:
            # Where a signal prevented an evaluation, a hook has made up for it.
            self.runner.position.made_up(self.runner)
        self._stopping.if_wanted(AT_START)

    def _resume(self) -> None:
        wanted, self.runner.resume_from = self.runner.resume_from or "auto", None
        runner = self.runner
        if wanted is True or wanted == "auto":
            path = checkpoints.newest(runner)
            if path is None:
                runner.logger.info("nothing to resume from in %s: starting anew", runner.work_dir)
                runner.writer.began_anew()
                return
        else:
            path = Path(wanted) if Path(wanted).exists() else runner.folder(str(wanted))
        loaded = checkpoints.load(runner, path)
        runner.resumed_from, runner.epoch_complete = path, True
        state = runner.trainer.state
        runner.logger.info("resumed from %s: epoch %d, iteration %d", path, state.epoch, state.iteration)
        runner.writer.resumed(runner.global_step)
        runner.position.resume(runner, loaded, path)

    def _begin_epoch_at(self, iteration: int) -> None:
        # An epoch that is resumed in its middle began earlier.
        self.runner.epoch_began_at = iteration - self.runner.position.done(self.runner.trainer)

    def _on_epoch_started(self) -> None:
        self._close_epoch()
        if self.runner.trainer._dataloader_iter is None:
            self._begin_epoch_at(self.runner.global_step)
        else:
            # The one before may have been ended early: this one has its full length all the same.
            self.runner.epoch_began_at = self.runner.global_step
        self.runner.in_epoch, self.runner.epoch_complete = True, False
        self.runner.position.epoch_started(self.runner)
        self.calls.meet("before_epoch")
        self.calls.meet("before_train_epoch")
        self._stopping.if_wanted(AT_EPOCH)

    def _on_epoch_opened(self) -> None:
        if self.runner.position.iterator_due(self.runner):
            self._watch_first_batch()

    def _on_data_ended(self) -> None:
        self.runner.position.iterator_made(self.runner.trainer)

    def _on_data_dropped(self, *_: Any, **__: Any) -> None:
        self.runner.position.iterator_made(self.runner.trainer)
        self._watch_first_batch()

    def _watch_first_batch(self) -> None:
        """Be there around what is done for the first batch of an iterator; later ones are not slowed down."""
        self._forget_first_batch()
        trainer = self.runner.trainer
        self._first_batch = seats = Seats(trainer)
        # Without data Ignite fetches no batches.
        event = Events.ITERATION_STARTED if trainer.state.dataloader is None else Events.GET_BATCH_STARTED
        seats.take(event, self._on_first_batch, "first")
        seats.take(event, self._on_first_batch_comes)

    def _on_first_batch(self) -> None:
        self.runner.position.first_batch(self.runner)
        self._stopping.terminate_if_stopped()

    def _on_first_batch_comes(self) -> None:
        self._forget_first_batch()
        self.runner.position.first_batch_comes(self.runner.trainer)

    def _forget_first_batch(self) -> None:
        if self._first_batch is not None:
            self._first_batch.leave()
            self._first_batch = None

    def _on_run_ends(self) -> None:
        self.runner.position.run_ends(self.runner.trainer)

    def _on_train_epoch_completed(self) -> None:
        self.runner.epoch_complete = True
        self._on_train_epoch()

    def _on_train_epoch(self) -> None:
        self.runner.publish_epoch()
        self.calls.meet("after_train_epoch")

    def _on_epoch_completed(self) -> None:
        self.calls.meet("after_epoch")
        self._let_go()
        self.runner.settle_saves(wait=world_size() > 1)
        self.runner.in_epoch = False
        self._stopping.if_wanted(AT_EPOCH_END)

    def _close_epoch(self) -> None:
        """Close an epoch that ended early, so that every ``before_train_epoch`` has its ``after_train_epoch``."""
        if self.runner.in_epoch:
            self._on_train_epoch()
            self._on_epoch_completed()

    def _on_completed(self) -> None:
        self._close_epoch()
        self.runner.settle_saves(wait=True)
        self.calls.meet("after_train")
        self.runner.settle_saves(wait=True)
        self.calls.meet("after_run")

    def _on_exception(self, error: BaseException) -> None:
        if self._failed_with is error or isinstance(error, GeneratorExit) or not self._began:
            return
        self._failed_with = error
        self.runner.position.run_fails()
        self._count(unfinished=True)
        self.runner.in_iteration = False
        self._settle_saves(failed=True)
        self.calls.meet("on_exception", {"exception": error}, quietly=True)

    def _close(self, failed: bool = False) -> None:
        """What ends every run, exactly once."""
        if not self.running:
            return
        self.calls.report.seconds = self._now() - self._started_at
        self._stopping.running = False
        self.runner.in_iteration = False
        self._count()
        try:
            if self._began:
                try:
                    self._settle_saves(failed)
                    self._let_go()
                finally:
                    self._say_goodbye(failed)
                    self.calls.meet("cleanup", quietly=failed, to_the_end=True)
        finally:
            self.runner.in_epoch = False
            while self._boxes:
                self._boxes.popitem()[1].close()
            self._failed_with = None
            self.calls.forget()
            self.runner.position.close(self.runner.trainer)
            self._forget_first_batch()
            if self._seats is not None:
                self._seats.leave()
                self._seats = None
            try:
                self._leave_the_others()
            finally:
                self.runner.close_outputs()

    def _leave_the_others(self) -> None:
        """End the watch once all are here: one who is gone before would look like one who has died."""
        if self._vigil is None:
            return
        vigil, self._vigil = self._vigil, None
        try:
            all_reduce_max([0])
        except RuntimeError as error:
            vigil.end(error)
            raise
        vigil.end()

    def _settle_saves(self, failed: bool) -> None:
        """Wait for every save; nothing that comes of it may hide the exception that ends a run."""
        try:
            self.runner.settle_saves(wait=True, alone=failed)
        except Exception as error:
            if not failed:
                raise
            self.runner.logger.warning("%s", error)

    def _say_goodbye(self, failed: bool) -> None:
        runner, state = self.runner, self.runner.trainer.state
        if self.calls.report.rows():
            runner.logger.info("what the hooks cost:\n%s", self.report().brief())
        how = "failed" if failed else "stopped" if self.runner.stop_reason else "ended"
        done = counted(checkpoints.finished_epochs(runner), "epoch"), counted(state.iteration, "iteration")
        words = [f"run {how} after {', '.join(done)}"]
        words += [self.runner.stop_reason] if self.runner.stop_reason else []
        runner.logger.info("; ".join([*words, *self.calls.report.failure_lines()]))

    def _count(self, unfinished: bool = False) -> None:
        trainer = self.runner.trainer
        for point, box in self._boxes.items():
            box.count(unfinished and point.startswith("after_") and trainer.last_event_name == Events.ITERATION_STARTED)

    def stop(self, reason: str) -> None:
        """Ask for the end of the run; the running iteration is finished."""
        self._stopping.ask(reason)

    def wake(self) -> None:
        """Look after the running iteration at what has ended meanwhile; any thread may call it."""
        self._awake = True
        for box in list(self._boxes.values()):
            box.next_due = 0

    def _weigh(self) -> None:
        """Slow down the hooks that only observe and take more of the time than they may."""
        self._count()
        slowed = self._weighing.weigh() if self._weighing is not None else {}
        if self._weighing is not None and slowed:
            self.refresh()
            self._weighing.tell(slowed)

    def _let_go(self) -> None:
        """Clean up after the hooks that were taken away."""
        while self._leaving:
            self.calls.clean_up(*self._leaving.pop(0))

    def _after_iteration(self) -> None:
        # One process hears of a save as soon as it can; several do so together, where all of them come by.
        if self._awake:
            self._awake = False
            self._let_go()
            if world_size() == 1:
                self.runner.settle_saves(wait=False)
        if self.runner.global_step >= self.calls.next_weighing:
            self._weigh()
        # After the last iteration the end of the epoch comes at once, and the script may act on it.
        if self.runner.at_last_batch:
            return
        if not self._agreement.needed:
            self._stopping.if_wanted(IN_EPOCH)
        elif self._agreement.due(self.runner.global_step):
            began = time.perf_counter()
            self._stopping.if_wanted(IN_EPOCH)
            self.runner.waited_for_ranks += time.perf_counter() - began

    # -- calling by hand --------------------------------------------------------------------------------------

    def call(self, point: str, payload: Mapping[str, Any]) -> None:
        """Call a point; the checkpoint points fire their Ignite event too."""
        if not self.running:
            self.calls.prepare(self.runner.plan)
        self.calls.meet(point, payload)
        if point in CHECKPOINT_POINTS:
            self._fire(HookEvents[point.upper()])

    def _fire(self, event: HookEvents) -> None:
        trainer = self.runner.trainer
        last = trainer.last_event_name
        try:
            trainer.fire_event(event)
        finally:
            # Ignite's own handlers and many scripts read this name after us.
            trainer.last_event_name = last

    # -- the end ----------------------------------------------------------------------------------------------

    def report(self) -> Report:
        """Calls, time, failures and findings so far."""
        self._count()
        report = self.calls.report
        if self.running:
            report.seconds = self._now() - self._started_at
        report.findings = {
            name: said for name, hook in self.runner.hooks.items() if (said := self._findings(name, hook))
        }
        return report

    def _findings(self, name: str, hook: object) -> list[str]:
        if not isinstance(hook, BaseHook) or name in self.calls.off:
            return []
        try:
            return list(hook.findings())
        except Exception as error:
            self.runner.logger.warning("%s cannot say what it has found: %s", name, one_line(error))
            return []

    def close(self) -> None:
        """End a run that was interrupted and does not go on."""
        self._close()

    def detach(self) -> None:
        """Leave the engines as they were."""
        self._close()
        while self._undo:
            self._undo.pop()()
        for hook in self.runner.hooks.values():
            hook.runner = None


def take_away(engine: Engine | None, handlers: Mapping[Any, list[Any]]) -> None:
    """Remove entries of handler lists; an event without any is forgotten, as Ignite asks whether the key exists."""
    if engine is None:
        return
    for event, gone in handlers.items():
        left = [entry for entry in engine._event_handlers.get(event, []) if not any(entry is g for g in gone)]
        if left or not gone:
            engine._event_handlers[event] = left
        else:
            engine._event_handlers.pop(event, None)


def _after_metrics(handlers: list[Any]) -> int:
    metrics = [i for i, (handler, *_) in enumerate(handlers) if isinstance(getattr(handler, "__self__", None), Metric)]
    return max(metrics, default=-1) + 1


def _restore_events(trainer: Engine, events: list[Any]) -> None:
    trainer._allowed_events = events
    for event in HookEvents:
        trainer._event_handlers.pop(event, None)


def _agree(mask: int, pause: int) -> tuple[int, int]:
    """The answer of rank 0."""
    mask, pause = broadcast_object([mask, pause])
    return mask, pause
