"""Stops a run that no longer improves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import Ge

from ignite_hooks.checkpoint import unwrapped
from ignite_hooks.hooks.base_hook import BaseHook, PriorityLike, Situation, settings
from ignite_hooks.improvement import Rule, is_better, rule_for
from ignite_hooks.points import Priority

if TYPE_CHECKING:
    from ignite_hooks.runner import Runner


@dataclass
class Progress:
    """What this hook remembers."""

    best_score: float | None = None
    best_epoch: int = 0
    wait_count: int = 0
    stopped_epoch: int = 0
    judged_step: int = -1
    best_step: int = -1


@settings
class EarlyStoppingHook(BaseHook):
    """Stop the run when a metric has not improved for some evaluations.

    Args:
        monitor: The metric that is watched.
        patience: How many evaluations without improvement are borne.
        min_delta: How much better a score has to be to count as an improvement.
        mode: Whether less (min) or more (max) is better; auto goes by the name of the metric.
        baseline: A score that has to be beaten before an improvement resets the count.
        restore_best_weights: Whether the model gets the weights of its best evaluation back when the run is stopped.
        check_finite: Whether a score that is NaN or infinite stops the run at once.
        stopping_threshold: A score so good that the run is stopped at once.
        divergence_threshold: A score so bad that the run is stopped at once.

    Reads: model, monitor.
    """

    monitor: str = "val_loss"
    patience: Annotated[int, Ge(1)] = 10
    min_delta: Annotated[float, Ge(0)] = 0.0
    mode: Literal["min", "max", "auto", "less", "greater"] = "auto"
    baseline: float | None = None
    restore_best_weights: bool = True
    check_finite: bool = True
    stopping_threshold: float | None = None
    divergence_threshold: float | None = None
    priority: PriorityLike = Priority.VERY_LOW
    state: Progress = field(init=False, default_factory=Progress)

    # Last of all at the end, so that the last checkpoint holds the state a resume needs.
    point_priority: ClassVar[Mapping[str, int]] = {"after_train": 0}

    def __post_init__(self) -> None:
        self._best_weights: dict[str, Any] | None = None
        self._stopped = False

    @property
    def rule(self) -> Rule:
        """Whether more or less is better."""
        return rule_for(self.monitor, self.mode)

    @property
    def best_score(self) -> float | None:
        """The best score so far."""
        return self.state.best_score

    @property
    def best_epoch(self) -> int:
        """The epoch of the best score, counted from 1."""
        return self.state.best_epoch

    @property
    def wait_count(self) -> int:
        """How many evaluations there were since the last improvement."""
        return self.state.wait_count

    @property
    def stopped_epoch(self) -> int:
        """The epoch in which the run was stopped, counted from 1; 0 while it was not."""
        return self.state.stopped_epoch

    def check(self, situation: Situation) -> Iterator[tuple[str, str]]:
        try:
            rule_for(self.monitor, self.mode)
        except ValueError as error:
            yield "mode", str(error)
        if situation.complete and not situation.evaluates:
            yield (
                "monitor",
                (
                    f"nothing evaluates, so {self.monitor!r} never exists: "
                    "give attach_hooks val_loader or evaluators, or add an EvalHook"
                ),
            )

    def monitors(self) -> Mapping[str, str]:
        return {self.monitor: self.mode}

    def before_run(self) -> None:
        self._stopped = False

    def after_val_epoch(self, runner: Runner) -> None:
        score = runner.metrics.fresh(self.monitor, runner.global_step)
        state = self.state
        if score is None or state.judged_step == runner.global_step:
            return
        state.judged_step = runner.global_step
        epoch = int(runner.trainer.state.epoch)
        improved, reason = self.judge(score, epoch)
        if improved:
            state.best_step = runner.global_step
            if self.restore_best_weights and runner.model is not None:
                self._best_weights = _copy(unwrapped(runner.model).state_dict())
        if reason is not None:
            self._stopped, state.stopped_epoch = True, epoch
            runner.stop(reason)

    def after_train(self, runner: Runner) -> None:
        if self._stopped and self.restore_best_weights and runner.model is not None:
            self._restore(runner)

    def judge(self, score: float, epoch: int) -> tuple[bool, str | None]:
        """Whether a score is an improvement, and why it ends the run if it does."""
        state, rule = self.state, self.rule
        if not math.isfinite(score):
            state.wait_count += 1
            return False, f"{self.monitor} is {score}" if self.check_finite else self._patience_reason()
        improved = is_better(score, state.best_score, rule, self.min_delta)
        if improved:
            state.best_score, state.best_epoch = score, epoch
        if improved and (self.baseline is None or is_better(score, self.baseline, rule)):
            state.wait_count = 0
        else:
            state.wait_count += 1
        if _reached(score, self.stopping_threshold, rule):
            return improved, f"{self.monitor} {score:g} has reached {self.stopping_threshold:g}"
        if _reached(score, self.divergence_threshold, "less" if rule == "greater" else "greater"):
            return improved, f"{self.monitor} {score:g} has diverged beyond {self.divergence_threshold:g}"
        return improved, self._patience_reason()

    def _patience_reason(self) -> str | None:
        state = self.state
        if state.wait_count < self.patience:
            return None
        best = "" if state.best_score is None else f", best {state.best_score:g} in epoch {state.best_epoch}"
        evaluations = "evaluation" if state.wait_count == 1 else "evaluations"
        return f"{self.monitor} has not improved for {state.wait_count} {evaluations}{best}"

    def _restore(self, runner: Runner) -> None:
        weights = self._best_weights or self._weights_from_file(runner)
        if weights is None:
            runner.logger.warning("the weights of epoch %d are not here any more", self.state.best_epoch)
            return
        unwrapped(runner.model).load_state_dict(weights)
        runner.logger.info("the model has the weights of epoch %d again", self.state.best_epoch)

    def _weights_from_file(self, runner: Runner) -> dict[str, Any] | None:
        """After a resume the weights are no longer in memory, but perhaps in the best checkpoint."""
        record = runner.best.get(self.monitor)
        if record is None or record.file is None or record.step != self.state.best_step:
            return None
        state = runner.store().load(runner.work_dir / record.file).get("state_dict")
        return dict(state) if state is not None else None


def _reached(score: float, threshold: float | None, rule: Rule) -> bool:
    if threshold is None:
        return False
    return score >= threshold if rule == "greater" else score <= threshold


def _copy(weights: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.detach().clone() for name, value in weights.items()}
