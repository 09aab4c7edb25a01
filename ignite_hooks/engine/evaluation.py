"""The lifecycle of an evaluation: every run of an evaluator, during a training run or outside of one."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from ignite.engine import Engine, Events

from ignite_hooks.checkpoint.rng_state import preserve_rng
from ignite_hooks.distributed.metric_merging import SharedEvaluation
from ignite_hooks.engine.fast_path import IterationBox
from ignite_hooks.engine.handlers import HandlerOrder, Handlers
from ignite_hooks.engine.run_wrapper import RunWrapper
from ignite_hooks.engine.stop_vote import VotePoint
from ignite_hooks.engine.training_data import is_training_data
from ignite_hooks.errors import ConfigError, Problem
from ignite_hooks.model.class_names import labels_of
from ignite_hooks.plan.schedule import NEVER
from ignite_hooks.run.logger import loggers_of, warnings_on_screen
from ignite_hooks.run.metrics import has_results, of_training_data
from ignite_hooks.run.ranking import is_training_name, main_evaluator

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
        self._has_begun = self._told = False
        self._shown = contextlib.ExitStack()
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
        self._handlers.reseat(Events.EPOCH_STARTED)
        self._dispatcher.run(f"before_{self.kind}_epoch")

    def end_epoch(self) -> None:
        """Publish the metrics and call ``after_val_epoch``."""
        runner = self.runner
        state, latest = runner.trainer_state, runner.trainer_metrics.latest
        if has_results(self.engine.state.metrics):
            latest.labels = labels_of(runner)
        latest.publish_evaluation(
            self.name,
            dict(self.engine.state.metrics),
            int(state.iteration),
            plain=self.name == main_evaluator(runner.evaluators),
            taken={*(state.metrics or {}), "loss"},
        )
        self._dispatcher.run(f"after_{self.kind}_epoch")
        # What our hooks have taken out of the model stays in it for the script, until its last handlers have run.
        shown, runner.evaluation_options.for_script = runner.evaluation_options.for_script, {}
        if len(self.engine._event_handlers[Events.COMPLETED]) > 1:
            for show in shown.values():
                self._shown.enter_context(show())

    def finish(self) -> None:
        """Call ``after_val`` once, however the evaluation ends."""
        self._finish()

    def fail(self) -> None:
        """Call ``after_val`` while an exception propagates."""
        # Ignite keeps the generator of a failed run, which would make the next run return None at once.
        self.engine._internal_run_generator = None
        self._finish(quietly=True)

    def _finish(self, quietly: bool = False) -> None:
        self._shown.close()
        if self._has_begun:
            self._has_begun = False
            self._dispatcher.run(f"after_{self.kind}", quietly=quietly)

    def close(self) -> None:
        """Leave the evaluator as it was."""
        self.runner.evaluation_options.for_script.clear()
        self._boxes.remove(f"{self.name}.before")
        self._boxes.remove(f"{self.name}.after")
        self._before = self._after = None
        self._handlers.remove_all()

    def _end_iteration(self) -> None:
        """End the evaluation if a signal ends the run and a resumed run repeats it."""
        step = int(self.engine.state.iteration)
        # If not all ranks are known to reach this point, they agree at the end of the evaluation instead.
        if self.shared is not None and self._votes_after(step, self.shared):
            self._stopping.take_vote(self.runner.trainer, VotePoint.IN_EVALUATION, step)
        if self.runner.state.aborting and self.runner.evaluation_options.repeated is self.engine:
            # The script's handlers of its end are not called with half of the metrics.
            self.engine.terminate(skip_completed=True)
        elif self.runner.state.aborting and not self._told:
            self._told = True
            self.runner.logger.info(
                "%s: the evaluation %r goes on to its end, as the script reads its metrics; the run stops after it, "
                "and a second signal stops it at once",
                self.runner.state.stop_reason,
                self.name,
            )

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
        self._left_alone = False

    def add(self, name: str, engine: Engine, runner: Runner) -> Callable[[], None]:
        """Treat the runs of an engine as evaluations of this name; return the function that undoes it."""
        if not name.isidentifier():
            raise ConfigError([Problem(f"evaluators.{name}", "a name of letters, digits and _ is needed")])
        reference = weakref.ref(runner)

        def open_run(running: Engine, data: object, run: Callable[[], object]) -> AbstractContextManager[None]:
            runner = reference()
            if runner is None or self._left_alone:
                return contextlib.nullcontext()
            return self.around(name, running, data, run, runner)

        remove = RunWrapper.wrap(engine, open_run, f"evaluator {name!r}", runner)
        runner.evaluators[name] = engine
        return remove

    @contextlib.contextmanager
    def left_alone(self) -> Iterator[None]:
        """Call no hooks in the evaluations of a run that has none."""
        self._left_alone = True
        try:
            yield
        finally:
            self._left_alone = False

    @contextlib.contextmanager
    def around(
        self, name: str, engine: Engine, data: object, run: Callable[[], object], runner: Runner
    ) -> Iterator[None]:
        """Wrap ``evaluator.run``: run the extra evaluations that hooks ask for, then this one."""
        if _is_training_data(name, data, runner):
            # Scripts may run the same evaluator on the training data, which is not a validation.
            yield
            with self._dispatcher.ready(runner):
                self._dispatcher.run("after_training_data", {"measured": of_training_data(engine, runner)})
            measured = {f"train_{key}": value for key, value in engine.state.metrics.items()}
            runner.metrics.publish(measured, runner.global_step)
            runner.note_once(
                f"the evaluator {name!r} has run over training data: its metrics are train_<name>, and no validation; "
                f"to validate on this data, pass {name}_loader=... to attach_hooks()"
            )
            return
        shared, merging = _shared_by(engine, runner), Handlers(engine)
        if shared is not None:
            merging.add(Events.EPOCH_COMPLETED, shared.merge, HandlerOrder.FIRST)
            merging.add(Events.EPOCH_COMPLETED, shared.restore, HandlerOrder.AFTER_METRICS)
        try:
            _run_extra_evaluations(name, engine, data, run, runner)
            with self._evaluation(name, engine, runner):
                yield
        finally:
            merging.remove_all()
            if shared is not None:
                shared.restore()

    @contextlib.contextmanager
    def _evaluation(self, name: str, engine: Engine, runner: Runner) -> Iterator[None]:
        state, shared = runner.state, _shared_by(engine, runner)
        outside = contextlib.nullcontext() if state.running else warnings_on_screen(loggers_of(runner))
        with self._dispatcher.ready(runner), outside:
            evaluation = EvaluationRun(name, engine, runner, self._dispatcher, self._stopping, self._boxes, shared)
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
        runner.installation.finish_detaching()


def evaluate(name: str, runner: Runner) -> dict[str, Any]:
    """Run the evaluation of this name now and return its metrics; random generators stay as they are."""
    for hook in runner.hooks.values():
        if getattr(hook, "evaluates", None) == name:
            return dict(hook.evaluate(runner))
    engine, loader = runner.evaluators.get(name), runner.get_service(f"{name}_loader")
    if engine is None or loader is None:
        missing = f"evaluators={{{name!r}: ...}}" if engine is None else f"{name}_loader=..."
        raise ConfigError(
            f"cannot evaluate {name!r}: pass {missing} to attach_hooks(), or add an EvalHook of this name"
        )
    with preserve_rng(loader):
        engine.run(loader)
    return dict(engine.state.metrics)


def _shared_by(engine: Engine, runner: Runner) -> SharedEvaluation | None:
    """Return how the ranks share the evaluation of this engine, which may run inside another evaluation."""
    shared = runner.evaluation_options.shared
    return shared if shared is not None and shared.engine is engine else None


def _run_extra_evaluations(name: str, engine: Engine, data: object, run: Callable[[], object], runner: Runner) -> None:
    """Run the extra evaluations that hooks ask for; the engine keeps the metrics of the main evaluation."""
    # Where weights are chosen, they alone are evaluated.
    options = runner.evaluation_options
    extra = {} if options.weights is not None else options.extra
    found = options.found_by_extra[name] = {}
    for suffix, around in extra.items():
        with preserve_rng(data), around():
            run()
        measured = {f"{suffix}_{key}": value for key, value in engine.state.metrics.items()}
        found |= measured
        runner.metrics.publish({f"{name}_{key}": value for key, value in measured.items()}, runner.global_step)


def _is_training_data(name: str, data: object, runner: Runner) -> bool:
    """Return whether an evaluation is one of training data that nobody has chosen to validate on."""
    if any(is_training_name(evaluator) for evaluator in runner.evaluators):
        # The script tells them apart itself.
        return False
    services: Mapping[str, Any] = runner.services
    chosen = [services.get(f"{name}_loader")]
    chosen += [
        getattr(hook, "loader", None) for hook in runner.hooks.values() if getattr(hook, "evaluates", None) == name
    ]
    if any(data is one for one in chosen):
        return False
    trained = [services.get("train_loader"), runner.trainer_state.dataloader]
    return any(is_training_data(data, train) for train in trained)
