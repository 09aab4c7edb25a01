"""The lifecycle of an evaluation: every run of an evaluator, during a training run or outside of one."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from ignite.engine import Engine, Events

from ignite_hooks.checkpoint.rng_state import random_state, set_random_state
from ignite_hooks.distributed.metric_merging import SharedEvaluation
from ignite_hooks.engine.fast_path import IterationBox
from ignite_hooks.engine.handlers import HandlerOrder, Handlers
from ignite_hooks.engine.run_wrapper import RunWrapper
from ignite_hooks.engine.stop_vote import VotePoint
from ignite_hooks.errors import ConfigError, Problem
from ignite_hooks.plan.schedule import NEVER

if TYPE_CHECKING:
    from ignite_hooks.engine.dispatch import Dispatcher
    from ignite_hooks.engine.fast_path import IterationBoxes
    from ignite_hooks.engine.stop_vote import Stopping
    from ignite_hooks.run.runner import Runner


class EvaluationRun:
    """One evaluation. It exists for as long as the evaluator runs.

    Args:
        name: The name of the evaluator.
        engine: The evaluator.
        runner: The run as hooks see it.
        dispatcher: Calls the hooks.
        stopping: Takes requests to end the run.
        boxes: The iteration events that are handled.
        shared: How the ranks share the evaluation; None if each rank runs all of it.
    """

    def __init__(
        self,
        name: str,
        engine: Engine,
        runner: Runner,
        dispatcher: Dispatcher,
        stopping: Stopping,
        boxes: IterationBoxes,
        shared: SharedEvaluation | None,
    ) -> None:
        self.name, self.engine, self.runner, self.shared = name, engine, runner, shared
        self.kind = "test" if name == "test" else "val"
        self._dispatcher, self._stopping, self._boxes = dispatcher, stopping, boxes
        self._handlers = Handlers(engine)
        self._has_begun = False
        self._before: IterationBox | None = None
        self._after: IterationBox | None = None

    def open(self) -> None:
        """Register everything on the evaluator, before its first event."""
        dispatcher, engine, kind = self._dispatcher, self.engine, self.kind
        self._before = IterationBox(dispatcher, engine, f"before_{kind}_iter")
        self._after = IterationBox(dispatcher, engine, f"after_{kind}_iter", self._end_iteration, self._next_vote)
        self._handlers.add_table(EVALUATION, self)
        if self.runner.plan.at(f"before_{kind}_iter"):
            self._handlers.add(Events.ITERATION_STARTED, self._before.handler, HandlerOrder.FIRST)
        self._handlers.add(Events.ITERATION_COMPLETED, self._after.handler)
        self._boxes.add(f"{self.name}.before", self._before)
        self._boxes.add(f"{self.name}.after", self._after)

    def start(self) -> None:
        """Call ``before_val``."""
        self._has_begun = True
        for box in (self._before, self._after):
            if box is not None:
                box.start()
        self._dispatcher.run(f"before_{self.kind}")

    def start_epoch(self) -> None:
        """Call ``before_val_epoch``."""
        self._dispatcher.run(f"before_{self.kind}_epoch")

    def end_epoch(self) -> None:
        """Publish the metrics and call ``after_val_epoch``."""
        runner = self.runner
        evaluators = [name for name in runner.evaluators if name != "test"] or [self.name]
        state = runner.trainer_state
        runner.trainer_metrics.latest.publish_evaluation(
            self.name,
            dict(self.engine.state.metrics),
            int(state.iteration),
            first=self.name == evaluators[0],
            taken={*(state.metrics or {}), "loss"},
        )
        self._dispatcher.run(f"after_{self.kind}_epoch")

    def finish(self) -> None:
        """Call ``after_val`` once, however the evaluation ends."""
        self._finish()

    def fail(self) -> None:
        """Call ``after_val`` while an exception propagates."""
        # Ignite keeps the generator of a failed run, which would make the next run return None at once.
        self.engine._internal_run_generator = None
        self._finish(quietly=True)

    def _finish(self, quietly: bool = False) -> None:
        if self._has_begun:
            self._has_begun = False
            self._dispatcher.run(f"after_{self.kind}", quietly=quietly)

    def close(self) -> None:
        """Leave the evaluator as it was."""
        self._boxes.remove(f"{self.name}.before")
        self._boxes.remove(f"{self.name}.after")
        self._before = self._after = None
        self._handlers.remove_all()

    def _end_iteration(self) -> None:
        """End the evaluation if a signal ends the run."""
        step = int(self.engine.state.iteration)
        # If not all ranks are known to reach this point, they agree at the end of the evaluation instead.
        if self.shared is not None and self._votes_after(step, self.shared):
            self._stopping.take_vote(self.runner.trainer, VotePoint.IN_EVALUATION, step)
        if self.runner.state.aborting:
            self.engine.terminate()

    def _votes_after(self, step: int, shared: SharedEvaluation) -> bool:
        """Return whether the ranks vote after this step, which every rank reaches."""
        vote = self._stopping.vote
        return self.runner.state.running and vote.needed and vote.next_step <= step <= shared.common

    def _next_vote(self) -> int:
        vote = self._stopping.vote
        return vote.next_step if vote.needed and self.shared is not None else NEVER


EVALUATION = (
    (Events.STARTED, HandlerOrder.FIRST, EvaluationRun.start),
    (Events.EPOCH_STARTED, HandlerOrder.FIRST, EvaluationRun.start_epoch),
    (Events.EPOCH_COMPLETED, HandlerOrder.LAST, EvaluationRun.end_epoch),
    (Events.COMPLETED, HandlerOrder.LAST, EvaluationRun.finish),
)
"""Each row: an event of the evaluator, the order among the script's handlers, and what to call."""


class Evaluations:
    """Runs evaluations, during a training run or outside of one.

    Args:
        dispatcher: Calls the hooks.
        stopping: Takes requests to end the run.
        boxes: The iteration events that are handled.
    """

    def __init__(self, dispatcher: Dispatcher, stopping: Stopping, boxes: IterationBoxes) -> None:
        self._dispatcher, self._stopping, self._boxes = dispatcher, stopping, boxes
        self.count = 0
        """The number of evaluations so far."""

    def add(self, name: str, engine: Engine, runner: Runner) -> Callable[[], None]:
        """Treat the runs of an engine as evaluations of this name; return the function that undoes it."""
        if not name.isidentifier():
            raise ConfigError([Problem(f"evaluators.{name}", "a name of letters, digits and _ is needed")])
        reference = weakref.ref(runner)

        def open_run(running: Engine, data: object, run: Callable[[], object]) -> AbstractContextManager[None]:
            runner = reference()
            if runner is None:
                return contextlib.nullcontext()
            return self.around(name, running, data, run, runner)

        remove = RunWrapper.wrap(engine, open_run, f"evaluator {name!r}")
        runner.evaluators[name] = engine
        return remove

    @contextlib.contextmanager
    def around(
        self, name: str, engine: Engine, data: object, run: Callable[[], object], runner: Runner
    ) -> Iterator[None]:
        """Wrap ``evaluator.run``: run the extra evaluations that hooks ask for, then this one."""
        if _is_training_data(name, data, runner):
            # Scripts may run the same evaluator on the training data, which is not a validation.
            yield
            measured = {f"train_{key}": value for key, value in engine.state.metrics.items()}
            runner.metrics.publish(measured, runner.global_step)
            return
        shared, merging = _shared_by(engine, runner), Handlers(engine)
        if shared is not None:
            merging.add(Events.EPOCH_COMPLETED, shared.merge, HandlerOrder.FIRST)
            merging.add(Events.EPOCH_COMPLETED, shared.restore, HandlerOrder.AFTER_METRICS)
        try:
            _run_extra_evaluations(name, engine, run, runner)
            with self._evaluation(name, engine, runner):
                yield
        finally:
            merging.remove_all()
            if shared is not None:
                shared.restore()

    @contextlib.contextmanager
    def _evaluation(self, name: str, engine: Engine, runner: Runner) -> Iterator[None]:
        state, shared = runner.state, _shared_by(engine, runner)
        with self._dispatcher.ready(runner):
            evaluation = EvaluationRun(name, engine, runner, self._dispatcher, self._stopping, self._boxes, shared)
            self.count += 1
            outer = state.evaluating, state.in_iteration
            state.evaluating, state.in_iteration = name, False
            evaluation.open()
            try:
                try:
                    yield
                except BaseException:
                    evaluation.fail()
                    raise
                evaluation.finish()
            finally:
                evaluation.close()
                self._stopping.vote.vote_next_iteration()
                self._stopping.schedule_vote()
                state.evaluating, state.in_iteration = outer
                if not state.running:
                    runner.writer.close()
                    runner.checkpoints.close()


def evaluate(name: str, runner: Runner) -> dict[str, Any]:
    """Run the evaluation of this name now and return its metrics."""
    for hook in runner.hooks.values():
        if getattr(hook, "evaluates", None) == name:
            return dict(hook.evaluate(runner))
    engine, loader = runner.evaluators.get(name), runner.get_service(f"{name}_loader")
    if engine is None or loader is None:
        missing = f"evaluators={{{name!r}: ...}}" if engine is None else f"{name}_loader=..."
        raise ConfigError(
            f"cannot evaluate {name!r}: pass {missing} to attach_hooks(), or add an EvalHook of this name"
        )
    engine.run(loader)
    return dict(engine.state.metrics)


def _shared_by(engine: Engine, runner: Runner) -> SharedEvaluation | None:
    """Return how the ranks share the evaluation of this engine, which may run inside another evaluation."""
    shared = runner.evaluation_options.shared
    return shared if shared is not None and shared.engine is engine else None


def _run_extra_evaluations(name: str, engine: Engine, run: Callable[[], object], runner: Runner) -> None:
    """Run the extra evaluations that hooks ask for; the engine keeps the metrics of the main evaluation."""
    for suffix, around in runner.evaluation_options.extra.items():
        random_before = random_state()
        with around():
            run()
        set_random_state(random_before)
        found = {f"{name}_{suffix}_{key}": value for key, value in engine.state.metrics.items()}
        runner.metrics.publish(found, runner.global_step)


def _is_training_data(name: str, data: object, runner: Runner) -> bool:
    """Return whether the data is known to be training data; False if the script passed no loaders."""
    services: Mapping[str, Any] = runner.services
    train, mine = services.get("train_loader"), services.get(f"{name}_loader")
    train = runner.trainer_state.dataloader if train is None and mine is not None else train
    chosen = any(
        getattr(hook, "evaluates", None) == name and getattr(hook, "loader", None) is data
        for hook in runner.hooks.values()
    )
    return data is not None and data is train and data is not mine and not chosen
