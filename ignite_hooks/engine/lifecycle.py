"""The lifecycle of a training run, from the start to the cleanup, as a table of the trainer's events."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ignite.engine import Engine, Events

from ignite_hooks.checkpoint.changed_settings import optimizer_settings, scheduler_settings
from ignite_hooks.checkpoint.environment import environment
from ignite_hooks.checkpoint.rehearsal import rehearse
from ignite_hooks.checkpoint.script.objects import script_objects
from ignite_hooks.distributed.collectives import all_reduce_max, world_size
from ignite_hooks.distributed.watchdog import Watchdog, is_of_another_rank
from ignite_hooks.engine.budget import BudgetController
from ignite_hooks.engine.closing import clean_up, log_summary
from ignite_hooks.engine.continuing import end_as_usual, end_by_epochs, note_idle_run
from ignite_hooks.engine.ending import how_it_ended, record_result
from ignite_hooks.engine.fast_path import IterationBox
from ignite_hooks.engine.handlers import HandlerOrder, Handlers, guarded, others_between
from ignite_hooks.engine.identity import identify
from ignite_hooks.engine.notes import log_notes, note_idle_evaluators, pass_on_config
from ignite_hooks.engine.rank_times import exchange_times
from ignite_hooks.engine.same_plan import compare_plans, warn_of_collective_hooks
from ignite_hooks.engine.stop_vote import VotePoint
from ignite_hooks.run.imports import import_for_writers
from ignite_hooks.run.progress import at_last_batch
from ignite_hooks.run.report import Report
from ignite_hooks.run.state import Phase

if TYPE_CHECKING:
    from ignite_hooks.engine.dispatch import Dispatcher
    from ignite_hooks.engine.fast_path import IterationBoxes
    from ignite_hooks.engine.orders import Orders
    from ignite_hooks.engine.stop_vote import Stopping
    from ignite_hooks.plan.plan import Plan
    from ignite_hooks.run.runner import Runner


class Lifecycle:
    """One run of the trainer. It exists only while the run does.

    Args:
        trainer: The engine that trains.
        runner: The run as hooks see it.
        dispatcher: Calls the hooks.
        stopping: Takes requests to end the run.
        boxes: The iteration events that are handled.
        orders: Does what is asked from outside.
        refresh: Makes a new plan.
        now: Returns the time in seconds.
    """

    def __init__(
        self,
        trainer: Engine,
        runner: Runner,
        dispatcher: Dispatcher,
        stopping: Stopping,
        boxes: IterationBoxes,
        orders: Orders,
        refresh: Callable[[], None],
        now: Callable[[], float],
    ) -> None:
        self.trainer, self.runner, self.state = trainer, runner, runner.state
        self.dispatcher, self.stopping, self._boxes = dispatcher, stopping, boxes
        self.orders, self._refresh, self._now = orders, refresh, now
        self.checkpoints = runner.checkpoints
        self.budget: BudgetController | None = None
        self._started_at = now()
        self._hooks_have_run = self.closed = False
        self._begun: list[str] = []
        self._failed_with: BaseException | None = None
        self._handlers = Handlers(trainer)
        self._first_batch = Handlers(trainer)
        self._watchdog: Watchdog | None = None

    # -- around the run ---------------------------------------------------------------------------------------

    def open(self, plan: Plan, overhead_budget: float | None, rank_timeout: float) -> None:
        """Prepare the hooks and register everything on the trainer, before its first event."""
        runner, dispatcher = self.runner, self.dispatcher
        self.stopping.reset()
        runner.noted.clear()
        dispatcher.disabled.clear()
        dispatcher.report = Report()
        runner.trainer_metrics.forget_seen()
        if overhead_budget is not None:
            self.budget = BudgetController(overhead_budget, runner, dispatcher, self._now)
            self.budget.begin()
        runner.plan = plan
        dispatcher.prepare(runner.plan)
        self._join_ranks(rank_timeout)
        if self.state.length_offset > 0:
            end_by_epochs(self.trainer)
        self.checkpoints.begin_run()
        self.position = self.checkpoints.position
        self._handlers.add_table(TRAINING, self, functools.partial(guarded, self))
        self._handlers.add_if_others_listen(Events.EXCEPTION_RAISED, self.fail)
        self.stopping.begin()
        checkpoints = self.checkpoints
        self.stopping.count_saves = lambda: checkpoints.ended
        self.orders.begin()
        self.handle_iterations()

    def _join_ranks(self, rank_timeout: float) -> None:
        """Check that all ranks run the same hooks, and start the watchdog for the other ranks."""
        runner = self.runner
        self.stopping.vote.begin(runner.plan)
        if world_size() == 1:
            return
        compare_plans(runner.plan)
        warn_of_collective_hooks(runner)
        if rank_timeout:
            advice = self.checkpoints.homes.advice
            self._watchdog = Watchdog(rank_timeout, runner.services.path_of("logs_dir"), runner.logger, advice)
            self._watchdog.begin()

    def blame_dead_rank(self, error: BaseException) -> None:
        """Name the dead rank if an error only follows from its death; report the error to the other ranks."""
        if self._watchdog is None:
            return
        if is_of_another_rank(error) and (explanation := self._watchdog.explanation()) is not None:
            error.add_note(explanation)
            self.runner.logger.error("%s", explanation)
        self._watchdog.end(error)
        self._watchdog = None

    def handle_iterations(self) -> None:
        """Handle the iterations of the trainer; handle their start only if a hook has that method."""
        trainer, boxes = self.trainer, self._boxes
        if "after_train_iter" not in boxes:
            vote = self.stopping.vote
            box = IterationBox(
                self.dispatcher,
                trainer,
                "after_train_iter",
                guarded(self, self.end_iteration),
                lambda: vote.next_iteration,
                self._handlers,
            )
            boxes.add("after_train_iter", box)
            self._handlers.add(Events.ITERATION_COMPLETED, box.handler)
        if "before_train_iter" not in boxes and self.runner.plan.at("before_train_iter"):
            box = IterationBox(self.dispatcher, trainer, "before_train_iter")
            boxes.add("before_train_iter", box)
            self._handlers.add(Events.ITERATION_STARTED, box.handler, HandlerOrder.FIRST)

    # -- the events, in the order of a run --------------------------------------------------------------------

    def start(self) -> None:
        """Call ``before_run``, resume, call ``before_train``."""
        self._hooks_have_run = True
        runner, state = self.runner, self.state
        if not self.trainer.state.iteration:
            # Metrics of an earlier run of this engine belong to steps that this run has not reached yet.
            runner.metrics.clear()
            runner.best.load_state_dict({})
            runner.trainer_metrics.forget_seen()
            state.length_offset = 0
            state.run_id = ""
            state.first_settings = optimizer_settings(runner.optimizer)
            if not state.resume_from:
                runner.writer.began_anew()
        state.idle_limit, state.completed, state.began = None, False, time.time()
        self.position.run_started()
        import_for_writers(runner)
        self._begun.append("before_run")
        objects = script_objects(runner)
        if not self.trainer.state.iteration:
            state.first_schedulers = scheduler_settings(runner, objects)
        if not self.position.resuming:
            self.checkpoints.script.begin(objects)
        pass_on_config(runner)
        self.dispatcher.run("before_run")
        log_notes(runner)
        if state.resume_from:
            wanted, state.resume_from = state.resume_from, None
            self.checkpoints.resume(wanted)
            if state.length_offset > 0:
                end_by_epochs(self.trainer)
            note_idle_run(runner)
        if runner.installation.starts_from and state.resumed_from is None and runner.global_step == 0:
            runner.note_once(f"starts from {runner.installation.starts_from}")
        state.first_iteration, state.rank_times = self.trainer.state.iteration, ()
        identify(runner)
        self._begin_epoch_at(self.trainer.state.iteration)
        self.dispatcher.start_clocks()
        if self.budget is not None:
            # Restart the clock: time spent before the first iteration must not count.
            self.budget.begin()
            self.budget.schedule_next()
        self._boxes.start()
        self._begun.append("before_train")
        self.dispatcher.run("before_train")
        self.stopping.stop_if_agreed(self.trainer, VotePoint.RUN_START)

    def let_begin(self, hooks: Iterable[object]) -> None:
        """Call the points at the beginning of the run of hooks that come later."""
        new = {id(hook) for hook in hooks}
        for point in self._begun:
            self.dispatcher.call_alone([slot for slot in self.runner.plan.at(point) if id(slot.owner) in new])

    def seat(self) -> None:
        """Put our handlers in their order among those that the script has added at the start of the run or epoch."""
        self._handlers.reseat(self.trainer.last_event_name)

    def _begin_epoch_at(self, iteration: int) -> None:
        # An epoch resumed in the middle began before this iteration.
        self.state.epoch_began_at = iteration - self.position.iterations_done()

    def start_epoch(self) -> None:
        """Call ``before_epoch`` and ``before_train_epoch``."""
        self.close_epoch()
        script, state, iteration = self.checkpoints.script, self.state, self.trainer.state.iteration
        with script.one_search():
            begins = script.started()
            if self.trainer._dataloader_iter is None:
                self._begin_epoch_at(iteration)
            else:
                # The previous epoch may have ended early, but this one has its full length.
                state.epoch_began_at = iteration
            state.in_epoch, state.epoch_complete = True, False
            self.position.epoch_started()
            if begins:
                rehearse(self.runner)
        self.dispatcher.run("before_epoch")
        self.dispatcher.run("before_train_epoch")
        self.stopping.stop_if_agreed(self.trainer, VotePoint.EPOCH_START)

    def watch_iterator(self) -> None:
        """Record the data position before Ignite makes a new iterator."""
        self.seat()
        if self.position.iterator_due():
            self._watch_first_batch()

    def restart_data(self, *_: Any, **__: Any) -> None:
        """Record that Ignite makes a new iterator because the old one is exhausted."""
        self.position.iterator_made()

    def drop_data(self, *_: Any, **__: Any) -> None:
        """Record that Ignite makes a new iterator because the script has ended the epoch."""
        self.position.iterator_made()
        self._watch_first_batch()

    def _watch_first_batch(self) -> None:
        """Handle the events around the first batch of an iterator; later batches pay nothing for it."""
        self._first_batch.remove_all()
        # Without data Ignite fetches no batches.
        event = Events.ITERATION_STARTED if self.trainer.state.dataloader is None else Events.GET_BATCH_STARTED
        self._first_batch.add(event, self._before_first_batch, HandlerOrder.FIRST)
        self._first_batch.add(event, self._at_first_batch)

    def _before_first_batch(self) -> None:
        self.position.skip_to_position()
        self.checkpoints.script.first_batch()
        self.stopping.terminate_if_stopped(self.trainer)

    def _at_first_batch(self) -> None:
        self._first_batch.remove_all()
        self.position.first_batch_comes()

    def end_iteration(self) -> None:
        """Do what is due after the hooks of an iteration: settle saves, check the overhead budget, vote."""
        runner, stopping = self.runner, self.stopping
        # A single process settles a save at once; several ranks do so at a point that every rank reaches.
        if self._boxes.recheck_requested:
            self._boxes.recheck_requested = False
            self.dispatcher.clean_up_removed()
            if world_size() == 1:
                self.checkpoints.settle_ended()
        iteration = self.trainer.state.iteration
        if iteration >= self.dispatcher.next_budget_check:
            self._check_budget()
        # After the last iteration the epoch ends at once, and the script may act on that.
        if at_last_batch(runner):
            return
        if not stopping.vote.needed:
            stopping.terminate_if_stopped(self.trainer)
        elif stopping.vote.is_due(iteration):
            began = time.perf_counter()
            stopping.stop_if_agreed(self.trainer, VotePoint.IN_EPOCH)
            self.checkpoints.settle(stopping.saves_ended)
            self.state.waited_for_ranks += time.perf_counter() - began
        self.orders.obey()

    def _check_budget(self) -> None:
        """Slow down the observing hooks that are over the overhead budget."""
        self._boxes.count()
        slowed = {} if self.budget is None else self.budget.slow_down()
        if self.budget is not None and slowed:
            self._refresh()
            self.budget.report(slowed)

    def complete_epoch(self) -> None:
        """Call ``after_train_epoch`` at the end of a complete epoch."""
        self.state.epoch_complete = True
        self._handlers.move_last_to_end(Events.EPOCH_COMPLETED)
        own = self.complete_epoch, self.end_epoch
        self.state.script_to_come = others_between(self.trainer, Events.EPOCH_COMPLETED, *own)
        self._end_train_epoch()

    def _end_train_epoch(self) -> None:
        self.runner.trainer_metrics.forget_seen()
        self.dispatcher.run("after_train_epoch")

    def end_epoch(self) -> None:
        """Call ``after_epoch``, settle finished saves, vote."""
        self.state.script_to_come = False
        self.dispatcher.run("after_epoch")
        note_idle_evaluators(self.runner)
        self.dispatcher.clean_up_removed()
        self.checkpoints.settle_ended()
        self.state.in_epoch = False
        self.stopping.stop_if_agreed(self.trainer, VotePoint.EPOCH_END)
        self.orders.obey()

    def close_epoch(self) -> None:
        """Close an epoch that ended early, so that every ``before_train_epoch`` has its ``after_train_epoch``."""
        if self.state.in_epoch:
            self._end_train_epoch()
            self.end_epoch()

    def note_end(self) -> None:
        """Record the data position before the handlers that run only because the run is ending.

        A resumed run must not start after their effects.
        """
        self.position.run_ends()

    def seat_last(self) -> None:
        """Put our last handler of this event behind those that the script has added during the run."""
        self._handlers.move_last_to_end(self.trainer.last_event_name)

    def complete(self) -> None:
        """Call ``after_train`` and ``after_run``; wait for every save before and after."""
        self.close_epoch()
        # A resumed run with nothing left to train has begun no epoch.
        self.checkpoints.script.started()
        self.checkpoints.wait_until_finished()
        exchange_times(self.runner)
        self.dispatcher.run("after_train")
        self.checkpoints.wait_until_finished()
        self.orders.complete()
        self.state.completed = True
        self.dispatcher.run("after_run")

    # -- the end ----------------------------------------------------------------------------------------------

    def fail(self, error: BaseException) -> None:
        """Call ``on_exception``, once per exception."""
        if self._failed_with is error or isinstance(error, GeneratorExit) or not self._hooks_have_run or self.closed:
            return
        self._failed_with = error
        self.position.run_fails()
        self.count(unfinished=True)
        self.state.in_iteration = False
        self._wait_for_saves(failed=True)
        self.dispatcher.run("on_exception", {"exception": error}, quietly=True)

    def close(self, *, failed: bool = False) -> None:
        """Call ``cleanup`` and remove our handlers from the trainer, exactly once for every run that was opened."""
        if not self.state.running:
            return
        self.dispatcher.report.seconds = self.seconds
        self.state.phase, self.state.in_iteration = Phase.CLOSING, False
        self.count()
        try:
            if self._hooks_have_run:
                try:
                    self._wait_for_saves(failed)
                    self.dispatcher.clean_up_removed()
                finally:
                    outcome = how_it_ended(self.runner, self._failed_with, failed)
                    log_summary(self.dispatcher, self.runner, outcome, failed)
                    # Before hooks restore what they have set, such as the number of threads.
                    bits = environment()
                    result = functools.partial(
                        record_result, self.runner, outcome, self.dispatcher.report.seconds, bits
                    )
                    clean_up(self.dispatcher, self.runner, failed, result)
        finally:
            self.state.phase, self.state.in_epoch, self.closed = Phase.IDLE, False, True
            self._boxes.remove_all()
            self._failed_with = None
            self.dispatcher.forget()
            self.position.close()
            end_as_usual(self.trainer)
            self._first_batch.remove_all()
            self._handlers.remove_all()
            self.orders.end()
            try:
                self._leave_ranks()
            finally:
                self.runner.writer.close()
                self.checkpoints.close()

    @property
    def seconds(self) -> float:
        """The seconds since the run was opened."""
        return self._now() - self._started_at

    def count(self, unfinished: bool = False) -> None:
        """Record the calls of iterations that were made without being timed."""
        self._boxes.count(unfinished and self.trainer.last_event_name == Events.ITERATION_STARTED)

    def _leave_ranks(self) -> None:
        """End the watchdog once every rank is here: a rank that leaves earlier would be taken for a dead one."""
        if self._watchdog is None:
            return
        watchdog, self._watchdog = self._watchdog, None
        try:
            all_reduce_max([0])
        except RuntimeError as error:
            watchdog.end(error)
            raise
        watchdog.end()

    def _wait_for_saves(self, failed: bool) -> None:
        """Wait for every save; do not let its failure hide the exception that ends a run."""
        try:
            self.checkpoints.wait_until_finished(alone=failed)
        except Exception as error:
            if not failed:
                raise
            self.runner.logger.warning("%s", error)


TRAINING = (
    (Events.STARTED, HandlerOrder.FIRST, Lifecycle.start),
    (Events.STARTED, HandlerOrder.LAST, Lifecycle.seat),
    (Events.EPOCH_STARTED, HandlerOrder.FIRST, Lifecycle.start_epoch),
    (Events.EPOCH_STARTED, HandlerOrder.LAST, Lifecycle.watch_iterator),
    (Events.DATALOADER_STOP_ITERATION, HandlerOrder.LAST, Lifecycle.restart_data),
    (Events.TERMINATE_SINGLE_EPOCH, HandlerOrder.LAST, Lifecycle.drop_data),
    (Events.EPOCH_COMPLETED, HandlerOrder.AFTER_METRICS, Lifecycle.complete_epoch),
    (Events.EPOCH_COMPLETED, HandlerOrder.LAST, Lifecycle.end_epoch),
    (Events.TERMINATE, HandlerOrder.FIRST, Lifecycle.note_end),
    (Events.TERMINATE, HandlerOrder.FIRST, Lifecycle.seat_last),
    (Events.TERMINATE, HandlerOrder.LAST, Lifecycle.close_epoch),
    (Events.COMPLETED, HandlerOrder.FIRST, Lifecycle.note_end),
    (Events.COMPLETED, HandlerOrder.FIRST, Lifecycle.seat_last),
    (Events.COMPLETED, HandlerOrder.LAST, Lifecycle.complete),
)
"""Each row: an event of the trainer, the order among the script's handlers, and what to call.

Iterations are handled separately, on a faster path: see ``Lifecycle.handle_iterations``.
"""
