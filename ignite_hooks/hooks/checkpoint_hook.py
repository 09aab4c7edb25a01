"""Saves checkpoints: periodic ones, the best and the last."""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge

from ignite_hooks import checkpoint as checkpoints
from ignite_hooks.errors import CheckpointError, MetricError
from ignite_hooks.hooks.base_hook import BaseHook, PriorityLike, Situation, settings
from ignite_hooks.improvement import rule_for
from ignite_hooks.points import Priority
from ignite_hooks.schedule import scheduled

if TYPE_CHECKING:
    from ignite_hooks.plan import Foreseen
    from ignite_hooks.runner import Runner
    from ignite_hooks.store.manifest import Kind


@dataclass
class Progress:
    """What this hook remembers."""

    saved_at: int = -1
    failed: int = 0


@settings
class CheckpointHook(BaseHook):
    """Save checkpoints periodically, at every new best and at the end.

    Args:
        interval: How many epochs, or iterations, lie between two checkpoints.
        by_epoch: Whether the interval counts epochs.
        start: The first epoch or iteration that is saved.
        save_optimizer: Whether a checkpoint holds the optimizer.
        save_scheduler: Whether a checkpoint holds the scheduler.
        max_keep_ckpts: How many periodic checkpoints are kept; -1 keeps all. The best and the last do not count.
        save_last: Whether ``last.pth`` is saved at the end.
        save_best: Whether the best is saved; it needs something that evaluates.
        best_metric: The metric that decides.
        rule: Whether more (greater, max) or less (less, min) is better; auto goes by the name of the metric.
        out_dir: The folder, relative to the work directory, which is also the default.
        filename_tmpl: The names of periodic checkpoints, with {} for the epoch or iteration; iter_{}.pth by iteration.

    Reads: model, optimizer, scheduler, best_metric.
    Writes: best.
    Saves: epoch_{}.pth or iter_{}.pth, best_<metric>_epoch_<N>.pth, last.pth.
    """

    interval: Annotated[int, Ge(1)] = 1
    by_epoch: bool = True
    start: Annotated[int, Ge(0)] = 0
    save_optimizer: bool = True
    save_scheduler: bool = True
    max_keep_ckpts: Annotated[int, Ge(-1)] = 5
    save_last: bool = True
    save_best: bool = True
    best_metric: str = "accuracy"
    rule: Literal["greater", "less", "max", "min", "auto"] = "greater"
    out_dir: str | None = None
    filename_tmpl: str = "epoch_{}.pth"
    priority: PriorityLike = Priority.BELOW_NORMAL
    state: Progress = field(init=False, default_factory=Progress)

    def __post_init__(self) -> None:
        if self.max_keep_ckpts == 0:
            raise ValueError("max_keep_ckpts: 0 would keep nothing: give 1 or more, or -1 to keep all")
        if "rule" not in self.given and "best_metric" in self.given:
            self.rule = "auto"
        if "filename_tmpl" not in self.given and not self.counts_epochs:
            self.filename_tmpl = "iter_{}.pth"
        check_template(self.filename_tmpl)
        if self.out_dir is not None and ".." in Path(self.out_dir).parts:
            raise ValueError(f"out_dir: {self.out_dir!r} leaves the work directory")

    def check(self, situation: Situation) -> Iterator[tuple[str, str]]:
        if "save_best" in self.given and self.save_best and situation.complete and not situation.evaluates:
            yield "save_best", "nothing evaluates: give attach_hooks val_loader or evaluators, or add an EvalHook"
        if self.save_best:
            try:
                rule_for(self.best_metric, self.rule)
            except ValueError as error:
                yield "rule", str(error).replace("mode", "rule")

    def monitors(self) -> Mapping[str, str]:
        return {self.best_metric: self.rule} if self.save_best else {}

    @property
    def counts_epochs(self) -> bool:
        """Whether periodic checkpoints are made at epochs."""
        return self.when.unit == "epoch"

    def before_run(self, runner: Runner) -> None:
        import ignite.distributed as idist

        if idist.get_rank() == 0:
            # Taken now: a folder that cannot be written is found out before the training, not after.
            runner.store(self._folder(runner)).open()
        if self.save_best and not runner.evaluators:
            runner.logger.info("save_best is off: nothing evaluates")

    @scheduled
    def after_train_iter(self, runner: Runner) -> None:
        self._save_periodic(runner, runner.global_step)

    @scheduled
    def after_train_epoch(self, runner: Runner) -> None:
        if runner.epoch_complete:
            self._save_periodic(runner, runner.epoch + 1)

    def after_val_epoch(self, runner: Runner) -> None:
        if not self.save_best:
            return
        try:
            score = runner.metrics.fresh(self.best_metric, runner.global_step)
        except MetricError as error:
            if "save_best" in self.given or "best_metric" in self.given:
                raise
            runner.logger.info("save_best is off: %s", error)
            self.save_best = False
            return
        if score is not None:
            self._save_best(runner, score)

    def after_train(self, runner: Runner) -> None:
        if self.save_last:
            self._save(runner, "last.pth", "last")

    def foreseen(self, method: str, run: Foreseen) -> tuple[str, ...]:
        """The points that a call will lead to."""
        saves = method in ("after_train_iter", "after_train_epoch") or (method == "after_train" and self.save_last)
        return ("before_save_checkpoint", "after_save_checkpoint") if saves else ()

    def _save_best(self, runner: Runner, score: float) -> None:
        metric, before = self.best_metric, runner.best.get(self.best_metric)
        step, rule = runner.global_step, rule_for(self.best_metric, self.rule)
        epoch = int(runner.trainer.state.epoch)
        improved = runner.best.offer(metric, score, step=step, epoch=epoch, rule=rule)
        if not improved or runner.best[metric].file is not None:
            return
        count = f"epoch_{epoch}" if self.counts_epochs else f"iter_{step}"
        name = f"best_{metric.replace('/', '_')}_{count}.pth"
        runner.best.name_file(metric, name)
        if self._try_to_save(runner, name, "best") and before is not None and before.file not in (None, name):
            store = runner.store(self._folder(runner))
            store.delete(entry for entry in store.entries() if entry.name == before.file)

    def _save_periodic(self, runner: Runner, number: int) -> None:
        if not self._try_to_save(runner, self.filename_tmpl.format(number), "periodic"):
            return
        import ignite.distributed as idist

        if idist.get_rank() == 0 and self.max_keep_ckpts > 0:
            protected = [runner.resumed_from.name] if runner.resumed_from else []
            runner.store(self._folder(runner)).prune(self.max_keep_ckpts, protected)

    def _try_to_save(self, runner: Runner, name: str, kind: Kind) -> bool:
        """A save that fails is reported and the run goes on; at the end it is an error."""
        try:
            self._save(runner, name, kind)
        except CheckpointError as error:
            self.state.failed += 1
            runner.logger.error("%s; the run goes on without it", error)
            return False
        return True

    def _save(self, runner: Runner, name: str, kind: Kind) -> None:
        self.state.saved_at = runner.global_step
        checkpoints.save(
            runner,
            name,
            kind=kind,
            folder=self._folder(runner),
            optimizer=self.save_optimizer,
            scheduler=self.save_scheduler,
        )

    def _folder(self, runner: Runner) -> Path:
        return runner.folder(self.out_dir)


def check_template(template: str) -> None:
    """Refuse a template of names that leaves the folder or looks into objects.

    Example:
        >>> check_template("model_{:04d}.pth")
        >>> check_template("../{}.pth")
        Traceback (most recent call last):
        ...
        ValueError: filename_tmpl: '../{}.pth' is no file name: it may not contain / or begin with a dot
    """
    if "/" in template or "\\" in template or "\0" in template or template.startswith("."):
        raise ValueError(f"filename_tmpl: {template!r} is no file name: it may not contain / or begin with a dot")
    try:
        fields: list[Any] = [name for _, name, _, _ in string.Formatter().parse(template) if name is not None]
        fits = fields == [""] and template.format(1) != template.format(2)
    except (ValueError, IndexError, KeyError, AttributeError):
        fits = False
    if not fits:
        raise ValueError(f"filename_tmpl: {template!r} needs one {{}} where the number goes, as in 'epoch_{{}}.pth'")
