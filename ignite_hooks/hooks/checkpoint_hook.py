"""Saves checkpoints: periodic ones, the best and the last."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import Ge

from ignite_hooks import checkpoint as checkpoints
from ignite_hooks.errors import CheckpointError, MetricError
from ignite_hooks.hooks.base_hook import BaseHook, PriorityLike, Situation, settings
from ignite_hooks.improvement import rule_for
from ignite_hooks.points import Priority
from ignite_hooks.schedule import scheduled
from ignite_hooks.store.manifest import check_name
from ignite_hooks.store.retention import to_delete

if TYPE_CHECKING:
    from ignite_hooks.plan import Foreseen
    from ignite_hooks.runner import Runner
    from ignite_hooks.store.manifest import Entry, Kind


@dataclass
class Progress:
    """What this hook remembers."""

    best_file: str | None = None
    best_score: float | None = None
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

    # A resume needs what every other hook has made of this iteration or epoch: saved last of all.
    point_priority: ClassVar[Mapping[str, int]] = {"after_train_iter": 0, "after_epoch": 0}

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
        self._ranks = self.save_best

    def check(self, situation: Situation) -> Iterator[tuple[str, str]]:
        if "save_best" in self.given and self.save_best and situation.complete and not situation.evaluates:
            yield "save_best", "nothing evaluates: give attach_hooks val_loader or evaluators, or add an EvalHook"
        if self.save_best:
            try:
                rule_for(self.best_metric, self.rule, setting="rule")
            except ValueError as error:
                yield "rule", str(error)

    def monitors(self) -> Mapping[str, str]:
        return {self.best_metric: self.rule} if self.save_best else {}

    @property
    def counts_epochs(self) -> bool:
        """Whether periodic checkpoints are made at epochs."""
        return self.when.unit == "epoch"

    def before_run(self, runner: Runner) -> None:
        import ignite.distributed as idist

        if runner.global_step == 0:
            self.state = Progress()
        if idist.get_rank() == 0:
            # Taken now: a folder that cannot be written is found out before the training, not after.
            store = runner.store(self._folder(runner)).open()
            earlier = store.start_afresh() if runner.global_step == 0 and not runner.resume_from else None
            if earlier is not None:
                runner.logger.info("checkpoints of an earlier run are now in %s", earlier)
        if runner.model is None:
            runner.logger.warning("checkpoints will hold no weights: give attach_hooks model=...")
        self._ranks = self.save_best and bool(runner.evaluators)
        if self.save_best and not self._ranks:
            runner.logger.info("save_best is off: nothing evaluates")

    @scheduled
    def after_train_iter(self, runner: Runner) -> None:
        self._save_periodic(runner, runner.global_step)

    def after_val_epoch(self, runner: Runner) -> None:
        if not self._ranks:
            return
        try:
            score = runner.fresh(self.best_metric)
        except MetricError as error:
            if "save_best" in self.given or "best_metric" in self.given:
                raise
            runner.logger.info("save_best is off: %s", error)
            self._ranks = False
            return
        if score is not None:
            self._save_if_best(runner, score)

    # Not after_train_epoch: a script steps its scheduler and evaluates when the epoch completes, between the two.
    @scheduled
    def after_epoch(self, runner: Runner) -> None:
        if runner.epoch_complete:
            self._save_periodic(runner, runner.epoch + 1)

    def after_train(self, runner: Runner) -> None:
        if self.state.failed:
            runner.logger.error("checkpoints that could not be saved: %d", self.state.failed)
        if self.save_last:
            self._save(runner, "last.pth", "last")

    def foreseen(self, method: str, run: Foreseen) -> tuple[str, ...]:
        """The points that a call will lead to."""
        saves = method in ("after_train_iter", "after_epoch") or (method == "after_train" and self.save_last)
        return ("before_save_checkpoint", "after_save_checkpoint") if saves else ()

    def _save_if_best(self, runner: Runner, score: float) -> None:
        metric, step, epoch = self.best_metric, runner.global_step, int(runner.trainer.state.epoch)
        # Another hook may have offered the same score before.
        is_best = runner.best.offer(metric, score, step=step, epoch=epoch, rule=rule_for(metric, self.rule))
        if not is_best or runner.best[metric].score == self.state.best_score:
            return
        count = f"epoch_{epoch}" if self.counts_epochs else f"iter_{step}"
        name = f"best_{re.sub(r'[^A-Za-z0-9._=+@-]', '_', metric)}_{count}.pth"
        before = self.state
        self.state = replace(before, best_file=name, best_score=runner.best[metric].score)
        runner.best.name_file(metric, str(Path(self.out_dir or "", name)))
        if self._try_to_save(runner, name, "best"):
            old = [entry for entry in self._entries(runner) if entry.name == before.best_file != name]
            self._delete(runner, [entry for entry in old if entry.name not in _resumed_from(runner)])
        else:
            self.state = replace(before, failed=self.state.failed)
            runner.best.name_file(metric, None)

    def _save_periodic(self, runner: Runner, number: int) -> None:
        name = self.filename_tmpl.format(number)
        if self._try_to_save(runner, name, "periodic"):
            # What another hook saves in this folder is that hook's to delete.
            mine = [entry for entry in self._entries(runner) if entry.name == self._periodic_name(entry)]
            # After going back to an older checkpoint, what was just saved is not the newest by iteration.
            self._delete(runner, to_delete(mine, self.max_keep_ckpts, {name, *_resumed_from(runner)}))

    def _periodic_name(self, entry: Entry) -> str:
        return self.filename_tmpl.format(entry.epoch if self.counts_epochs else entry.iteration)

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
        checkpoints.save(
            runner,
            name,
            kind=kind,
            folder=self._folder(runner),
            optimizer=self.save_optimizer,
            scheduler=self.save_scheduler,
        )

    def _entries(self, runner: Runner) -> list[Entry]:
        """What is in the folder; only rank 0 looks, as only rank 0 writes."""
        import ignite.distributed as idist

        return runner.store(self._folder(runner)).entries() if idist.get_rank() == 0 else []

    def _delete(self, runner: Runner, entries: Iterable[Entry]) -> None:
        going = list(entries)
        try:
            if going:
                runner.store(self._folder(runner)).delete(going)
        except CheckpointError as error:
            runner.logger.error("%s; the run goes on", error)

    def _folder(self, runner: Runner) -> Path:
        return runner.folder(self.out_dir)


def _resumed_from(runner: Runner) -> set[str]:
    return {runner.resumed_from.name} if runner.resumed_from else set()


def check_template(template: str) -> None:
    """Refuse a template of names that leaves the folder, looks into objects or makes no name for a file.

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
    try:
        check_name(template.format(1))
    except CheckpointError as error:
        raise ValueError(f"filename_tmpl: {error}") from None
