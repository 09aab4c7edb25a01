"""Steps learning rate schedulers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from ignite_hooks.checkpoint.left_out import without_methods
from ignite_hooks.errors import ConfigError, Problem
from ignite_hooks.hooks.base_hook import BaseHook, settings
from ignite_hooks.model.parts import each
from ignite_hooks.plan.schedule import scheduled
from ignite_hooks.run.progress import finished_epochs
from ignite_hooks.run.ranking import follows_training, fresh_score, is_training_name, main_evaluator

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner


@dataclass
class ParamSchedulerState:
    """The state of this hook, which checkpoints hold."""

    judged: dict[int, int] = field(default_factory=dict)
    """The iteration in which a scheduler, by its number, was last given a score."""


@settings
class ParamSchedulerHook(BaseHook):
    """Step schedulers of PyTorch and Ignite, by epoch or by iteration, before a checkpoint is saved.

    Schedulers of PyTorch are stepped after an epoch or iteration; those of Ignite set a value before it. One that
    follows a metric is stepped after each evaluation that measures the metric, or, where training does, after each
    epoch or iteration. A scheduler that the script steps itself is left alone, with a warning.

    Args:
        scheduler: One, or a list or mapping of them; the service of this name by default.
        by_epoch: Whether they are stepped by epochs.
        monitor: The metric that ReduceLROnPlateau follows; one of Ignite's knows its own.

    Reads: scheduler, monitor.
    Saves: schedulers that are not a service.
    """

    scheduler: Any = None
    by_epoch: bool = True
    monitor: str | None = None
    state: ParamSchedulerState = field(init=False, default_factory=ParamSchedulerState)

    changes_training: ClassVar[bool] = True
    may_end_a_run: ClassVar[bool] = False
    collective: ClassVar[bool] = True

    # After the rate of the iteration has been logged, before a checkpoint of any kind; after an epoch also after
    # everything that the script does at its end.
    point_priority: ClassVar[Mapping[str, int]] = {"after_train_iter": 10, "after_epoch": 10, "after_val_epoch": 65}

    def __post_init__(self) -> None:
        self._all: list[Any] = []
        self._marks: dict[int, Any] = {}
        self._steps: dict[int, int] = {}
        self._saved: list[Any] = []

    def attached(self) -> None:
        for scheduler in self._wanted(self.runner):
            self._check(scheduler)

    def before_run(self, runner: Runner) -> None:
        if runner.global_step == 0:
            self.state = ParamSchedulerState()
        self._all = self._wanted(runner)
        for scheduler in self._all:
            self._check(scheduler)
        if not self._all:
            runner.logger.warning("there is no scheduler to step: pass scheduler=... to attach_hooks()")

    def before_train(self, runner: Runner) -> None:
        """Find the schedulers, after a checkpoint has been loaded."""
        self._steps = {id(scheduler): 0 for scheduler in self._all}
        self._marks = {id(scheduler): mark_of(scheduler) for scheduler in self._all}
        for scheduler in list(self._all):
            if is_attached(scheduler, runner):
                self._leave_alone(runner, scheduler)

    @scheduled
    def before_train_epoch(self, runner: Runner) -> None:
        # An epoch that is resumed in its middle has its value already.
        if runner.global_step == runner.state.epoch_began_at:
            self._set_values(runner)

    @scheduled
    def before_train_iter(self, runner: Runner) -> None:
        self._set_values(runner)

    @scheduled
    def after_train_iter(self, runner: Runner) -> None:
        self._step(runner)

    @scheduled
    def after_epoch(self, runner: Runner) -> None:
        # An epoch that was ended in its middle is continued by a resume.
        if finished_epochs(runner) == runner.trainer.state.epoch:
            self._step(runner)

    def after_val_epoch(self, runner: Runner) -> None:
        if was_stopped_in_an_epoch(runner):
            # A run that is not stopped there does not evaluate there either.
            return
        for scheduler in self._mine(runner):
            metric = self._metric_of(scheduler)
            if metric is not None and is_measured(metric, scheduler, runner):
                self._judge(runner, scheduler, metric)

    def cleanup(self) -> None:
        self._all = []

    def state_dict(self) -> dict[str, Any]:
        """Return the progress, and the states of schedulers that nobody else saves."""
        return {**super().state_dict(), "schedulers": [without_methods(one.state_dict()) for one in self._unsaved()]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        for scheduler, saved in zip(self._unsaved(), state.get("schedulers", ()), strict=False):
            scheduler.load_state_dict(saved)

    # -- one scheduler ----------------------------------------------------------------------------------------

    def _wanted(self, runner: Runner) -> list[Any]:
        return list(each(runner.scheduler if self.scheduler is None else self.scheduler))

    def _check(self, scheduler: Any) -> None:
        if not is_of_ignite(scheduler) and not callable(getattr(scheduler, "step", None)):
            message = f"a scheduler of PyTorch or Ignite is needed, not {type(scheduler).__name__}"
            raise ConfigError([Problem(f"{type(self).__name__}.scheduler", message)])
        if follows_metric(scheduler) and self._metric_of(scheduler) is None:
            message = f"{type(scheduler).__name__} follows a metric: name it, such as 'val_loss'"
            raise ConfigError([Problem(f"{type(self).__name__}.monitor", message)])

    def _metric_of(self, scheduler: Any) -> str | None:
        """Return the metric that a scheduler follows, if it follows one."""
        if not follows_metric(scheduler):
            return None
        return str(scheduler.metric_name) if is_of_ignite(scheduler) else self.monitor

    def _unsaved(self) -> list[Any]:
        runner = self.runner
        services = list(runner.services.values())
        return [
            scheduler
            for scheduler in self._wanted(runner)
            if hasattr(scheduler, "state_dict") and not any(scheduler is thing for thing in services)
        ]

    def _mine(self, runner: Runner) -> list[Any]:
        """Return the schedulers that nobody else has stepped since they were stepped here."""
        for scheduler in list(self._all):
            if mark_of(scheduler) != self._marks[id(scheduler)]:
                self._leave_alone(runner, scheduler)
        return list(self._all)

    def _leave_alone(self, runner: Runner, scheduler: Any) -> None:
        self._all = [other for other in self._all if other is not scheduler]
        times = self._steps[id(scheduler)]
        before = f"; it has been stepped here {times} times" if times else ""
        name = type(scheduler).__name__
        runner.logger.warning("the script steps the %s itself: it is left alone%s", name, before)

    def _set_values(self, runner: Runner) -> None:
        for scheduler in self._mine(runner):
            if is_of_ignite(scheduler) and not follows_metric(scheduler):
                scheduler(runner.trainer)
                self._note(scheduler)

    def _step(self, runner: Runner) -> None:
        for scheduler in self._mine(runner):
            metric = self._metric_of(scheduler)
            if metric is not None:
                # With the score of an evaluation it was stepped when that ended.
                of_ignite = is_of_ignite(scheduler)
                if metric in runner.trainer.state.metrics if of_ignite else follows_training(runner, metric):
                    self._judge(runner, scheduler, metric if is_training_name(metric) else f"train_{metric}")
            elif not is_of_ignite(scheduler):
                scheduler.step()
                self._note(scheduler)

    def _judge(self, runner: Runner, scheduler: Any, metric: str) -> None:
        number = next(i for i, other in enumerate(self._wanted(runner)) if other is scheduler)
        if self.state.judged.get(number) == runner.global_step:
            return
        if is_of_ignite(scheduler):
            scheduler(runner.engine)
        else:
            ranked = fresh_score(runner, metric)
            if ranked is None:
                return
            scheduler.step(ranked.score)
        self.state.judged[number] = runner.global_step
        self._note(scheduler)

    def _note(self, scheduler: Any) -> None:
        self._marks[id(scheduler)] = mark_of(scheduler)
        self._steps[id(scheduler)] += 1


def is_of_ignite(scheduler: Any) -> bool:
    """Return whether a scheduler is called with an engine."""
    from ignite.handlers.param_scheduler import BaseParamScheduler, ParamGroupScheduler

    return isinstance(scheduler, (BaseParamScheduler, ParamGroupScheduler))


def follows_metric(scheduler: Any) -> bool:
    """Return whether a scheduler is stepped with a score."""
    from ignite.handlers.param_scheduler import ReduceLROnPlateauScheduler
    from torch.optim.lr_scheduler import ReduceLROnPlateau

    return isinstance(scheduler, (ReduceLROnPlateau, ReduceLROnPlateauScheduler))


def is_measured(metric: str, scheduler: Any, runner: Runner) -> bool:
    """Return whether the evaluation that ends has measured a metric; training may have one of the same name."""
    measured = set(runner.engine.state.metrics)
    if is_of_ignite(scheduler):
        return metric in measured
    names = {f"{runner.state.evaluating}_{name}" for name in measured}
    if runner.state.evaluating == main_evaluator(runner.evaluators):
        names |= measured
    return metric.replace("/", "_") in {name.replace("/", "_") for name in names}


def was_stopped_in_an_epoch(runner: Runner) -> bool:
    """Return whether a run has ended in the middle of an epoch."""
    has_ended = getattr(runner.trainer.last_event_name, "name", "") == "COMPLETED"
    return has_ended and finished_epochs(runner) != runner.trainer.state.epoch


def mark_of(scheduler: Any) -> Any:
    """Return what changes when a scheduler is stepped by anybody."""
    inner = getattr(scheduler, "schedulers", None)
    if isinstance(inner, (list, tuple)):
        return [mark_of(one) for one in inner]
    counts = [getattr(scheduler, name, None) for name in ("last_epoch", "event_index", "duration")]
    if counts == [None, None, None] and callable(getattr(scheduler, "get_last_lr", None)):
        return [float(rate) for rate in scheduler.get_last_lr()]
    return counts


def is_attached(scheduler: Any, runner: Runner) -> bool:
    """Return whether the script has attached a scheduler of Ignite to an event."""
    engines = [runner.trainer, *runner.evaluators.values()]
    return callable(scheduler) and any(engine.has_event_handler(scheduler) for engine in engines)
