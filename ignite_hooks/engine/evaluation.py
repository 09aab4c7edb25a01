"""The points of an evaluation, around every run of an evaluator: seat, run, publish."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ignite.engine import Engine, Events

from ignite_hooks.distributed.metric_merging import SharedEvaluation
from ignite_hooks.engine.agreement import IN_EVALUATION
from ignite_hooks.engine.fast_path import IterationBox
from ignite_hooks.plan.schedule import NEVER
from ignite_hooks.store.plain import random_state, set_random_state

if TYPE_CHECKING:
    from ignite_hooks.engine.dispatch import Calls
    from ignite_hooks.engine.stopping import Stopping
    from ignite_hooks.run.runner import Runner


class Evaluations:
    """Every evaluation, in a run or outside of one.

    Args:
        runner: The run.
        calls: How hooks are called.
        stopping: Whether the run goes on; an evaluation is ended by a signal.
        seats: Takes seats for handlers on an engine.
    """

    def __init__(self, runner: Runner, calls: Calls, stopping: Stopping, seats: Callable[[Engine], Any]) -> None:
        self.runner, self._calls, self._stopping, self._seats = runner, calls, stopping, seats
        self.count = 0
        """How many evaluations there were."""

    @contextlib.contextmanager
    def around(self, name: str, engine: Engine, data: object, run: Callable[[], object]) -> Iterator[None]:
        """Around ``evaluator.run``: seat, run, publish; ``after_val`` comes however it ends."""
        runner = self.runner
        if self._is_training_data(name, data):
            # Scripts measure the training data with the same evaluator; that is no validation.
            yield
            measured = {f"train_{key}": value for key, value in engine.state.metrics.items()}
            runner.metrics.publish(measured, runner.global_step)
            return
        shared, gathering = self._shared_by(engine), self._seats(engine)
        if shared is not None:
            gathering.take(Events.EPOCH_COMPLETED, shared.merge, "first")
            gathering.take(Events.EPOCH_COMPLETED, shared.restore, "after metrics")
        try:
            self._rehearse(name, engine, run)
            with self._evaluation(name, engine):
                yield
        finally:
            gathering.leave()
            if shared is not None:
                shared.restore()

    @contextlib.contextmanager
    def _evaluation(self, name: str, engine: Engine) -> Iterator[None]:
        runner, shared = self.runner, self._shared_by(engine)
        if not self._stopping.running:
            self._calls.prepare(self.runner.plan)
        kind = "test" if name == "test" else "val"
        seats = self._seats(engine)
        self.count += 1
        outer = runner.evaluating, runner.in_iteration
        runner.evaluating, runner.in_iteration = name, False
        begun = False

        def on_started() -> None:
            nonlocal begun
            begun = True
            for box in boxes.values():
                box.start()
            self._calls.meet(f"before_{kind}")

        def on_epoch_completed() -> None:
            runner.publish_evaluation(name, engine)
            self._calls.meet(f"after_{kind}_epoch")

        def finish(quietly: bool = False) -> None:
            nonlocal begun
            if begun:
                begun = False
                self._calls.meet(f"after_{kind}", quietly=quietly)

        def abort_if_wanted() -> None:
            step = int(engine.state.iteration)
            # Where it is not known that all ranks come by here, they hear of it at the end.
            if shared is not None and self._votes_in(shared, step):
                self._stopping.vote(IN_EVALUATION, step)
            if self.runner.aborting:
                engine.terminate()

        boxes = {
            f"{name}.before": IterationBox(self._calls, engine, f"before_{kind}_iter"),
            f"{name}.after": IterationBox(
                self._calls, engine, f"after_{kind}_iter", abort_if_wanted, self._next_step(shared)
            ),
        }
        seats.take(Events.STARTED, on_started, "first")
        seats.take(Events.EPOCH_STARTED, lambda: self._calls.meet(f"before_{kind}_epoch"), "first")
        if self.runner.plan.at(f"before_{kind}_iter"):
            seats.take(Events.ITERATION_STARTED, boxes[f"{name}.before"].handler, "first")
        seats.take(Events.ITERATION_COMPLETED, boxes[f"{name}.after"].handler)
        seats.take(Events.EPOCH_COMPLETED, on_epoch_completed)
        # Without a parameter, or Ignite passes the engine in its place.
        seats.take(Events.COMPLETED, lambda: finish())
        self._stopping.boxes.update(boxes)
        try:
            try:
                yield
            except BaseException:
                engine._internal_run_generator = None
                finish(quietly=True)
                raise
            finish()
        finally:
            for key, box in boxes.items():
                self._stopping.boxes.pop(key, None)
                box.close()
            seats.leave()
            self._stopping.agreement.soon()
            self._stopping.come_by()
            runner.evaluating, runner.in_iteration = outer
            if not self._stopping.running:
                self._calls.forget()
                runner.close_outputs()

    def _shared_by(self, engine: Engine) -> SharedEvaluation | None:
        """How the ranks share the evaluation of this engine: another one may go on around it."""
        shared = self.runner.shared_evaluation
        return shared if shared is not None and shared.engine is engine else None

    def _votes_in(self, shared: SharedEvaluation, step: int) -> bool:
        """Whether the ranks vote after this step of an evaluation; all have so many."""
        agreement = self._stopping.agreement
        return self._stopping.running and agreement.needed and agreement.next_step <= step <= shared.common

    def _next_step(self, shared: SharedEvaluation | None) -> Callable[[], int]:
        agreement = self._stopping.agreement
        return lambda: agreement.next_step if agreement.needed and shared is not None else NEVER

    def _rehearse(self, name: str, engine: Engine, run: Callable[[], object]) -> None:
        """Do an evaluation in the ways that hooks ask for besides; the engine keeps the metrics of the plain one."""
        for ending, around in self.runner.rehearsals.items():
            random_before = random_state()
            with around():
                run()
            set_random_state(random_before)
            found = {f"{name}_{ending}_{key}": value for key, value in engine.state.metrics.items()}
            self.runner.metrics.publish(found, self.runner.global_step)

    def _is_training_data(self, name: str, data: object) -> bool:
        """Whether the data is known to be for training; nothing is guessed where the script named no loaders."""
        runner = self.runner
        train, mine = runner.get_service("train_loader"), runner.get_service(f"{name}_loader")
        train = runner.trainer.state.dataloader if train is None and mine is not None else train
        chosen = any(
            getattr(hook, "evaluates", None) == name and getattr(hook, "loader", None) is data
            for hook in runner.hooks.values()
        )
        return data is not None and data is train and data is not mine and not chosen
