"""Stops a run that no longer improves."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import Ge

from ignite_hooks.checkpoint.capture import weights_of
from ignite_hooks.checkpoint.delivered import deliver, independent_copy
from ignite_hooks.errors import CheckpointError, SettingError
from ignite_hooks.hooks.base_hook import BaseHook, PriorityLike, Situation, settings
from ignite_hooks.plan.priority import AtEnd, Priority
from ignite_hooks.plan.schedule import When
from ignite_hooks.results.better import Rule, is_better, rule_for
from ignite_hooks.run.ranking import (
    best_record,
    fresh_score,
    is_training_name,
    of_trainer,
    ranking_methods,
    ranks_training,
    recorded_name,
)
from ignite_hooks.run.state import Delivered
from ignite_hooks.text import counted

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner


@dataclass
class EarlyStoppingState:
    """The state of this hook."""

    best_score: float | None = None
    best_epoch: int = 0
    wait_count: int = 0
    stopped_epoch: int = 0
    score_to_beat: float | None = None
    """The last score that was better by more than ``min_delta``; smaller improvements do not change it."""
    last_score: float | None = None
    judged_step: int = -1
    best_step: int = -1
    best_metrics: dict[str, float] = field(default_factory=dict)
    """What the best evaluation has measured."""


@settings
class EarlyStoppingHook(BaseHook):
    """Stop the run when a metric has not improved for some evaluations.

    Args:
        monitor: Metric to watch; of the training it is train_loss, or another metric of the trainer.
        patience: Number of evaluations without improvement before stopping.
        min_delta: An improvement must be larger than this.
        threshold: Another name of min_delta, that of Ignite.
        threshold_mode: Whether min_delta is a difference (abs), or a share of the magnitude of the best score (rel).
        start: First epoch whose evaluations are judged; those before it may be worse or better.
        mode: Whether smaller (min) or greater (max) is better; auto decides by the name of the metric.
        baseline: Score that must be beaten before an improvement resets the count.
        restore_best_weights: Whether to restore the weights of the best evaluation when the run is stopped.
        check_finite: Whether a score that is NaN or infinite stops the run at once.
        stopping_threshold: Score at which the run stops at once because it is good enough.
        divergence_threshold: Score at which the run stops at once because it has diverged.

    Reads: model, monitor.
    """

    monitor: str = "val_loss"
    patience: Annotated[int, Ge(1)] = 10
    min_delta: Annotated[float, Ge(0)] = 0.0
    threshold: Annotated[float, Ge(0)] | None = None
    threshold_mode: Literal["abs", "rel"] = "abs"
    start: Annotated[int, Ge(0)] = 0
    mode: Literal["min", "max", "auto", "less", "greater"] = "auto"
    baseline: float | None = None
    restore_best_weights: bool = True
    check_finite: bool = True
    stopping_threshold: float | None = None
    divergence_threshold: float | None = None
    priority: PriorityLike = Priority.VERY_LOW
    state: EarlyStoppingState = field(init=False, default_factory=EarlyStoppingState)

    collective: ClassVar[bool] = True

    delivers: ClassVar[bool] = True

    # After the last checkpoint, which holds the weights that a resume needs, and before the test.
    point_priority: ClassVar[Mapping[str, int]] = {"after_train": AtEnd.RESTORE}

    def __post_init__(self) -> None:
        if self.threshold is not None:
            if "min_delta" in self.given:
                raise SettingError("threshold", "says the same as 'min_delta': give one of them")
            self.min_delta, self.threshold = self.threshold, None
        self._best_weights: dict[str, Any] | None = None
        self._stopped = False

    @property
    def when(self) -> When:
        """Always: an evaluation is judged whenever it comes, the training at the end of each epoch."""
        return When()

    @property
    def rule(self) -> Rule:
        """The rule of what is better: greater or less."""
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
        """Number of evaluations since the last improvement."""
        return self.state.wait_count

    @property
    def stopped_epoch(self) -> int:
        """The epoch in which the run was stopped, counted from 1; 0 if it was not."""
        return self.state.stopped_epoch

    def check(self, situation: Situation) -> Iterator[tuple[str, str]]:
        try:
            rule_for(self.monitor, self.mode)
        except ValueError as error:
            yield "mode", str(error)
        restores = "restore_best_weights" in self.given and self.restore_best_weights
        if situation.complete and restores and "model" not in situation.services:
            yield "restore_best_weights", "needs the model: pass model=... to attach_hooks()"
        if situation.complete and not situation.evaluates and not is_training_name(self.monitor):
            yield (
                "monitor",
                (
                    f"nothing evaluates, so {self.monitor!r} never exists: "
                    "pass val_loader=... or evaluators=... to attach_hooks(), or add an EvalHook"
                ),
            )

    def monitors(self) -> Mapping[str, str]:
        return {self.monitor: self.mode}

    def before_run(self, runner: Runner) -> None:
        self._stopped = False
        if runner.global_step == 0:
            self.state, self._best_weights = EarlyStoppingState(), None

    def before_train(self, runner: Runner) -> None:
        """Stop again a resumed run that had been stopped, unless the settings have changed."""
        state = self.state
        if state.stopped_epoch and state.last_score is not None:
            self._stop_if(runner, self._reason_to_stop(state.last_score), state.stopped_epoch)

    def answers(self) -> Mapping[str, Callable[..., Any]]:
        return ranking_methods(super().answers(), self.monitor)

    def after_val_epoch(self, runner: Runner) -> None:
        self._judge_now(runner)

    def after_epoch(self, runner: Runner) -> None:
        if runner.state.epoch_complete and ranks_training(runner, self.monitor):
            self._judge_now(runner)

    def _judge_now(self, runner: Runner) -> None:
        state, step, epoch = self.state, runner.global_step, int(runner.trainer_state.epoch)
        ranked = fresh_score(runner, self.monitor)
        if ranked is None or state.judged_step == step or epoch < self.start:
            return
        state.judged_step = step
        score = ranked.score
        runner.best.offer(ranked.name, score, step=step, epoch=epoch, rule=self.rule)
        improved, reason = self.judge(score, epoch)
        if improved:
            state.best_step, state.best_metrics = step, measured_now(runner)
            if self.restore_best_weights and runner.model is not None:
                self._best_weights = independent_copy(weights_of(runner))
        self._stop_if(runner, reason, epoch)

    def after_train(self, runner: Runner) -> None:
        if self.state.judged_step == -1 and not runner.state.aborting:
            runner.logger.warning("no evaluation published %r, so this hook never compared a score", self.monitor)
        wanted = self._stopped and self.restore_best_weights and not runner.state.aborting
        if wanted and self.state.best_score is not None and self.state.best_step != runner.global_step:
            self._restore(runner)

    def state_dict(self) -> dict[str, Any]:
        """Return the state, with the best weights if no checkpoint holds them."""
        saved = super().state_dict()
        if self._best_weights is not None and self._best_file(self.runner) is None:
            saved["best_weights"] = self._best_weights
        return saved

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._best_weights = state.get("best_weights") if self.restore_best_weights else None

    def judge(self, score: float, epoch: int) -> tuple[bool, str | None]:
        """Return whether a score is the best so far, and the reason to stop the run, or None."""
        state, rule = self.state, self.rule
        state.last_score = score
        improved = is_better(score, state.best_score, rule)
        if improved:
            state.best_score, state.best_epoch = score, epoch
        # Of the magnitude: a share of a negative best would make a worse score an improvement.
        of_best = abs(state.score_to_beat or 0.0) if self.threshold_mode == "rel" else 1.0
        enough = is_better(score, state.score_to_beat, rule, self.min_delta * of_best)
        if enough:
            state.score_to_beat = score
        if enough and (self.baseline is None or is_better(score, self.baseline, rule)):
            state.wait_count = 0
        else:
            state.wait_count += 1
        return improved, self._reason_to_stop(score)

    def _reason_to_stop(self, score: float) -> str | None:
        """Return the reason to stop the run at this score, the last one judged, or None."""
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
            runner.stop(reason, kind="planned")

    def _restore(self, runner: Runner) -> None:
        epoch, logger = self.state.best_epoch, runner.logger
        if runner.model is None:
            logger.warning("the weights of epoch %d cannot be restored: pass model=... to attach_hooks()", epoch)
            return
        weights = self._best_weights or self._weights_from_file(runner)
        if weights is None:
            logger.warning("the weights of epoch %d are lost: the model keeps the last ones", epoch)
            return
        deliver(runner, self._delivered(runner), weights)
        # What the run ends with is what its weights have reached.
        runner.metrics.publish(self.state.best_metrics, self.state.best_step)
        logger.info("restored the weights of epoch %d", epoch)

    def best_weights(self) -> tuple[Mapping[str, Any], str] | None:
        """Return the weights of the best evaluation and what they are; None if there are none."""
        if not self.restore_best_weights or self.state.best_score is None:
            return None
        weights = self._best_weights or self._weights_from_file(self.runner)
        return None if weights is None else (weights, str(self._delivered(self.runner)))

    def _delivered(self, runner: Runner) -> Delivered:
        """Return what the weights of the best evaluation are, and where."""
        state, path = self.state, self._best_file(runner)
        file = None if path is None else str(path.relative_to(runner.work_dir))
        metric = recorded_name(runner, self.monitor)
        return Delivered(f"the best {metric}", state.best_epoch, state.best_step, metric, state.best_score, file)

    def _best_file(self, runner: Runner) -> Path | None:
        """Return the checkpoint of the best evaluation, or None."""
        record = best_record(runner, self.monitor)
        if record is None or record.file is None or record.step != self.state.best_step:
            return None
        return runner.work_dir / record.file

    def _weights_from_file(self, runner: Runner) -> dict[str, Any] | None:
        """Load the best weights from their checkpoint, as they are not in memory after a resume."""
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


def measured_now(runner: Runner) -> dict[str, float]:
    """Return the numbers that evaluations have published at this step of the run."""
    metrics, step, own = runner.metrics, runner.global_step, of_trainer(runner)
    return {
        name: float(entry["value"])
        for name, entry in metrics.state_dict().items()
        if entry["step"] == step and name not in own
    }
