"""Stops a run that no longer improves."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import Ge

from ignite_hooks.checkpoint.capture import weights_of
from ignite_hooks.checkpoint.restore import load_weights
from ignite_hooks.errors import CheckpointError
from ignite_hooks.hooks.base_hook import BaseHook, PriorityLike, Situation, settings
from ignite_hooks.plan.priority import Priority
from ignite_hooks.run.best import Rule, fresh_score, is_better, rule_for
from ignite_hooks.text import counted

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner


@dataclass
class Progress:
    """What this hook remembers."""

    best_score: float | None = None
    best_epoch: int = 0
    wait_count: int = 0
    stopped_epoch: int = 0
    score_to_beat: float | None = None
    """The last score that was better by more than ``min_delta``; small steps do not move it."""
    last_score: float | None = None
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

    collective: ClassVar[bool] = True

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
        restores = "restore_best_weights" in self.given and self.restore_best_weights
        if situation.complete and restores and "model" not in situation.services:
            yield "restore_best_weights", "needs the model: give attach_hooks model=..."
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

    def before_run(self, runner: Runner) -> None:
        self._stopped = False
        if runner.global_step == 0:
            self.state, self._best_weights = Progress(), None

    def before_train(self, runner: Runner) -> None:
        """A run that had been stopped stays so, unless the settings have changed."""
        state = self.state
        if state.stopped_epoch and state.last_score is not None:
            self._stop_if(runner, self._reason_to_stop(state.last_score), state.stopped_epoch)

    def after_val_epoch(self, runner: Runner) -> None:
        state, step, epoch = self.state, runner.global_step, int(runner.trainer.state.epoch)
        score = fresh_score(runner, self.monitor)
        if score is None or state.judged_step == step:
            return
        state.judged_step = step
        runner.best.offer(self.monitor, score, step=step, epoch=epoch, rule=self.rule)
        improved, reason = self.judge(score, epoch)
        if improved:
            state.best_step = step
            if self.restore_best_weights and runner.model is not None:
                self._best_weights = copied(weights_of(runner))
        self._stop_if(runner, reason, epoch)

    def after_train(self, runner: Runner) -> None:
        if self.state.judged_step == -1 and not runner.state.aborting:
            runner.logger.warning("no evaluation published %r: there was nothing to judge", self.monitor)
        if self._stopped and self.restore_best_weights and self.state.best_score is not None:
            self._restore(runner)

    def state_dict(self) -> dict[str, Any]:
        """The progress, and the best weights where no file holds them."""
        saved = super().state_dict()
        if self._best_weights is not None and self._best_file(self.runner) is None:
            saved["best_weights"] = self._best_weights
        return saved

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._best_weights = state.get("best_weights") if self.restore_best_weights else None

    def judge(self, score: float, epoch: int) -> tuple[bool, str | None]:
        """Whether a score is the best so far, and why it ends the run if it does."""
        state, rule = self.state, self.rule
        state.last_score = score
        improved = is_better(score, state.best_score, rule)
        if improved:
            state.best_score, state.best_epoch = score, epoch
        enough = is_better(score, state.score_to_beat, rule, self.min_delta)
        if enough:
            state.score_to_beat = score
        if enough and (self.baseline is None or is_better(score, self.baseline, rule)):
            state.wait_count = 0
        else:
            state.wait_count += 1
        return improved, self._reason_to_stop(score)

    def _reason_to_stop(self, score: float) -> str | None:
        """Why the run ends at this score, the last one judged, or None."""
        state, rule, monitor = self.state, self.rule, self.monitor
        opposite: Rule = "less" if rule == "greater" else "greater"
        if self.check_finite and not math.isfinite(score):
            return f"{monitor} is {score}"
        if math.isfinite(score) and _reached(score, self.stopping_threshold, rule):
            return f"{monitor} {score:g} has reached {self.stopping_threshold:g}"
        if _reached(score, self.divergence_threshold, opposite):
            return f"{monitor} {score:g} has diverged beyond {self.divergence_threshold:g}"
        if state.wait_count < self.patience:
            return None
        best = "" if state.best_score is None else f", best {state.best_score:g} in epoch {state.best_epoch}"
        return f"{monitor} has not improved for {counted(state.wait_count, 'evaluation')}{best}"

    def _stop_if(self, runner: Runner, reason: str | None, epoch: int) -> None:
        self._stopped = reason is not None
        self.state.stopped_epoch = epoch if self._stopped else 0
        if reason is not None:
            runner.stop(reason)

    def _restore(self, runner: Runner) -> None:
        epoch, logger = self.state.best_epoch, runner.logger
        if runner.model is None:
            logger.warning("the weights of epoch %d cannot be restored: give attach_hooks model=...", epoch)
            return
        weights = self._best_weights or self._weights_from_file(runner)
        if weights is None:
            logger.warning("the weights of epoch %d are not here any more: the model keeps the last ones", epoch)
            return
        load_weights(runner, weights)
        logger.info("the model has the weights of epoch %d again", epoch)

    def _best_file(self, runner: Runner) -> Path | None:
        """The checkpoint of the best evaluation, if there is one."""
        record = runner.best.get(self.monitor)
        if record is None or record.file is None or record.step != self.state.best_step:
            return None
        return runner.work_dir / record.file

    def _weights_from_file(self, runner: Runner) -> dict[str, Any] | None:
        """After a resume the weights are no longer in memory."""
        path = self._best_file(runner)
        try:
            state = {} if path is None else runner.store(path.parent).load(path)
        except CheckpointError as error:
            runner.logger.warning("%s", error)
            return None
        return state if "state_dict" in state else None


def _reached(score: float, threshold: float | None, rule: Rule) -> bool:
    if threshold is None:
        return False
    return score >= threshold if rule == "greater" else score <= threshold


def copied(weights: Any) -> Any:
    """An independent copy of nested mappings of tensors."""
    if isinstance(weights, Mapping):
        return {name: copied(value) for name, value in weights.items()}
    # A module's extra state need not be a tensor.
    return weights.detach().clone() if hasattr(weights, "detach") else copy.deepcopy(weights)
