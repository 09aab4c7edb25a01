"""Stops a run that a search has given up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import Ge

from ignite_hooks.distributed.collectives import broadcast_object, fail_on_all_ranks, is_main_process, world_size
from ignite_hooks.hooks.base_hook import BaseHook, PriorityLike, Situation, settings
from ignite_hooks.measure.losses import is_number
from ignite_hooks.plan.priority import Priority
from ignite_hooks.plan.schedule import When
from ignite_hooks.results.better import Rule, rule_for
from ignite_hooks.results.outcome import is_pruning
from ignite_hooks.run.ranking import fresh_score, is_training_name, ranking_methods, ranks_training
from ignite_hooks.run.trials import Trial, current_trial, pruned_error, stored_trial

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner


@dataclass
class PruningState:
    """The state of this hook."""

    reported: int = 0
    judged_step: int = -1


@settings
class PruningHook(BaseHook):
    """Report a metric to a search after each evaluation, and stop the run in good order when the search prunes it.

    The search is asked (a trial of Optuna, here or in a storage) or told (a function that raises when the run is to
    end, as that of Ray Tune does). Rank 0 asks for all ranks. A pruned run is stopped, not failed: it is saved and
    cleaned up as at any stop, and only then the exception of the library leaves ``trainer.run``.

    Args:
        monitor: Metric to report; of the training it is train_loss, or another metric of the trainer.
        mode: Whether smaller (min) or greater (max) is better; auto decides by the name of the metric.
        trial: The trial to ask, with methods report and should_prune; by default the service of that name.
        storage: Address of the storage of an Optuna study, for a trial that another process has asked for.
        study: Name of the study in the storage.
        number: Number of the trial in the study.
        pruner: Pruner that judges a trial in a storage: a name such as MedianPruner, or a mapping of type and settings.
        report: Function that is told the numbers of each evaluation, such as ray.tune.report.
        raises: Whether trainer.run ends with Optuna's exception; by default where a trial of Optuna was given.

    Reads: monitor.
    Saves: the number of reports.
    """

    monitor: str = "val_loss"
    mode: Literal["min", "max", "auto", "less", "greater"] = "auto"
    trial: Any = None
    storage: str | None = None
    study: str | None = None
    number: Annotated[int, Ge(0)] | None = None
    pruner: str | Mapping[str, Any] | None = None
    report: Callable[..., Any] | None = None
    raises: bool | None = None
    # After hooks that judge the same evaluation for themselves.
    priority: PriorityLike = Priority.VERY_LOW
    state: PruningState = field(init=False, default_factory=PruningState)

    collective: ClassVar[bool] = True
    # All ranks hear the answer at the same place, so there is nothing to vote on.
    may_end_a_run: ClassVar[bool] = False
    derived_settings: ClassVar[Sequence[str]] = ("trial", "storage", "study", "number", "pruner", "report", "raises")

    def __post_init__(self) -> None:
        self._trial: Trial | None = None

    @property
    def when(self) -> When:
        """Always: every evaluation is reported."""
        return When()

    @property
    def rule(self) -> Rule:
        """The rule of what is better: greater or less."""
        return rule_for(self.monitor, self.mode)

    def check(self, situation: Situation) -> Iterator[tuple[str, str]]:
        try:
            rule_for(self.monitor, self.mode)
        except ValueError as error:
            yield "mode", str(error)
        where = (self.storage, self.study, self.number)
        if any(one is not None for one in where) and None in where:
            yield "storage", "a trial in a storage is named by storage, study and number together"
        if self.trial is not None and not isinstance(self.trial, Trial):
            yield "trial", "an object with the methods report(value, step) and should_prune() is needed"
        if not situation.complete:
            return
        if self.waits_for and current_trial() is None and "trial" not in situation.services:
            yield "trial", "nobody to ask: pass trial=... to attach_hooks(), or set storage, study and number"
        if not situation.evaluates and not is_training_name(self.monitor):
            remedy = "pass val_loader=... or evaluators=... to attach_hooks(), or add an EvalHook"
            yield "monitor", f"nothing evaluates, so {self.monitor!r} never exists: {remedy}"

    @property
    def waits_for(self) -> str:
        """What this hook asks for that its settings do not say, as a note on a configuration; empty if nothing."""
        if any(one is not None for one in (self.trial, self.storage, self.report)):
            return ""
        return (
            "asks a trial: pass trial=... to attach_hooks(), call it within search(), or set storage, study and number"
        )

    def monitors(self) -> Mapping[str, str]:
        return {self.monitor: self.mode}

    def before_run(self, runner: Runner) -> None:
        if runner.global_step == 0:
            self.state = PruningState()
        self._trial = fail_on_all_ranks(lambda: self._find(runner)) if world_size() > 1 else self._find(runner)

    def answers(self) -> Mapping[str, Callable[..., Any]]:
        return ranking_methods(super().answers(), self.monitor)

    def after_val_epoch(self, runner: Runner) -> None:
        self._report_now(runner)

    def after_epoch(self, runner: Runner) -> None:
        if runner.state.epoch_complete and ranks_training(runner, self.monitor):
            self._report_now(runner)

    def after_train(self, runner: Runner) -> None:
        if not self.state.reported and not runner.state.aborting:
            runner.logger.warning("no evaluation published %r, so nothing was reported to the search", self.monitor)

    def cleanup(self) -> None:
        self._trial = None

    def _find(self, runner: Runner) -> Trial | None:
        """Return the trial that rank 0 asks."""
        if self.storage is None or self.study is None or self.number is None:
            given = self.trial if self.trial is not None else runner.get_service("trial")
            return given if given is not None else current_trial()
        return stored_trial(self.storage, self.study, self.number, self.pruner) if is_main_process() else None

    def _report_now(self, runner: Runner) -> None:
        state, step = self.state, runner.global_step
        ranked = fresh_score(runner, self.monitor)
        if ranked is None or state.judged_step == step or runner.stop_reason is not None:
            return
        state.judged_step, state.reported = step, state.reported + 1
        epoch = int(runner.trainer_state.epoch)
        runner.best.offer(ranked.name, ranked.score, step=step, epoch=epoch, rule=self.rule)
        words, error = self._answer(lambda: self._ask(runner, ranked.name, ranked.score))
        if words:
            runner.stop(words, kind="pruned", leave_with=error)

    @staticmethod
    def _answer(ask: Callable[[], tuple[str, BaseException | None]]) -> tuple[str, BaseException | None]:
        """Return the answer that rank 0 gets, and there the exception with which to leave."""
        if world_size() == 1:
            return ask()
        words, error = fail_on_all_ranks(lambda: ask() if is_main_process() else ("", None))
        return broadcast_object(words), error

    def _ask(self, runner: Runner, name: str, score: float) -> tuple[str, BaseException | None]:
        """Report a score; return why the run is to end, or an empty text, and the exception with which to leave."""
        reported = self.state.reported
        if self.report is not None:
            numbers = {key: float(value) for key, value in runner.metrics.items() if is_number(value)}
            try:
                self.report({**numbers, name: score})
            except BaseException as error:
                # Ray ends the thread of a trial so. Ctrl-C comes as another exception.
                if not isinstance(error, SystemExit) and not is_pruning(error):
                    raise
                return f"pruned by the search at {name} {score:g}", error
        trial = self._trial
        if trial is None:
            return "", None
        trial.report(score, reported)
        if not trial.should_prune():
            return "", None
        words = f"pruned by the search at {name} {score:g}, report {reported}"
        given = self.storage is None
        return words, pruned_error(trial, words) if (given if self.raises is None else self.raises) else None
