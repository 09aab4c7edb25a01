"""Saves checkpoints: periodic ones, the best and the last."""

from __future__ import annotations

import functools
import re
import string
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import Ge

from ignite_hooks.checkpoint import capture as checkpoints
from ignite_hooks.checkpoint.retention import to_delete
from ignite_hooks.checkpoint.save import Order
from ignite_hooks.distributed.collectives import is_main_process
from ignite_hooks.errors import CheckpointError, MetricError, SettingError
from ignite_hooks.hooks.base_hook import BaseHook, PriorityLike, Situation, settings
from ignite_hooks.plan.priority import Priority
from ignite_hooks.plan.schedule import scheduled
from ignite_hooks.run.best import among_best, fresh_score, is_better, rule_for
from ignite_hooks.store.manifest import check_name

if TYPE_CHECKING:
    from ignite_hooks.checkpoint.save import Then
    from ignite_hooks.plan.simulate import PlanSimulation
    from ignite_hooks.run.runner import Runner
    from ignite_hooks.store.interface import Retire
    from ignite_hooks.store.manifest import Entry, Kind


@dataclass
class Progress:
    """What this hook remembers."""

    best: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Of each metric the files that hold its best, the best first: name, score and step."""
    saved_at: int = -1
    """The iteration whose state was last given to the store for resuming."""
    failed: int = 0


@settings
class CheckpointHook(BaseHook):
    """Save checkpoints periodically, at every new best, at the end, and when the run fails.

    That of a sharded model (FSDP2) is a folder without the ``.pth`` that all ranks write to; the training waits for it.

    Args:
        interval: How many epochs, or iterations, lie between two checkpoints.
        by_epoch: Whether the interval counts epochs.
        start: The first epoch or iteration that is saved.
        save_optimizer: Whether a checkpoint holds the optimizer.
        save_scheduler: Whether a checkpoint holds the scheduler.
        max_keep_ckpts: How many periodic checkpoints are kept; -1 keeps all. The best and the last do not count.
        save_last: Whether ``last.pth`` is saved at the end.
        save_best: Whether the best is saved, or by which metrics; it needs something that evaluates.
        keep_best: How many of the best are kept, of each metric.
        best_metric: The metric that decides where save_best names none.
        rule: Whether more (greater, max) or less (less, min) is better; auto goes by the name of the metric.
        save_on_exception: Whether the last good state is saved when the run fails.
        published_keys: What the slim copies of the last and the best hold that are made at the end, if any.
        async_save: Whether the training goes on while a checkpoint is written.
        out_dir: The folder, relative to the work directory, which is also the default.
        filename_tmpl: The names of periodic checkpoints, with {} for the epoch or iteration; iter_{}.pth by iteration.

    Reads: model, optimizer, scheduler, best_metric.
    Writes: best.
    Saves: epoch_{}.pth or iter_{}.pth, best_<metric>_epoch_<N>.pth, last.pth, exception_iter_<N>.pth.
    """

    interval: Annotated[int, Ge(1)] = 1
    by_epoch: bool = True
    start: Annotated[int, Ge(0)] = 0
    save_optimizer: bool = True
    save_scheduler: bool = True
    max_keep_ckpts: Annotated[int, Ge(-1)] = 5
    save_last: bool = True
    save_best: bool | str | list[str] = True
    keep_best: Annotated[int, Ge(1)] = 1
    best_metric: str = "accuracy"
    rule: Literal["greater", "less", "max", "min", "auto"] = "greater"
    save_on_exception: bool = True
    published_keys: str | list[str] | None = None
    async_save: bool = True
    out_dir: str | None = None
    filename_tmpl: str = "epoch_{}.pth"
    priority: PriorityLike = Priority.BELOW_NORMAL
    state: Progress = field(init=False, default_factory=Progress)

    collective: ClassVar[bool] = True

    # A resume needs what every other hook has made of this iteration or epoch: saved last of all.
    point_priority: ClassVar[Mapping[str, int]] = {"after_train_iter": 0, "after_epoch": 0}

    def __post_init__(self) -> None:
        if self.max_keep_ckpts == 0:
            raise SettingError("max_keep_ckpts", "0 would keep nothing: give 1 or more, or -1 to keep all")
        if "rule" not in self.given and ("best_metric" in self.given or not isinstance(self.save_best, bool)):
            self.rule = "auto"
        if self.save_best == []:
            raise SettingError("save_best", "name at least one metric, or say false")
        if "filename_tmpl" not in self.given and not self.counts_epochs:
            self.filename_tmpl = "iter_{}.pth"
        check_template(self.filename_tmpl)
        if self.out_dir is not None and ".." in Path(self.out_dir).parts:
            raise SettingError("out_dir", f"{self.out_dir!r} leaves the work directory")
        self._ranked = self.ranked_metrics
        self._waits_for_epoch = False

    def check(self, situation: Situation) -> Iterator[tuple[str, str]]:
        if "save_best" in self.given and self.save_best and situation.complete and not situation.evaluates:
            yield "save_best", "nothing evaluates: give attach_hooks val_loader or evaluators, or add an EvalHook"
        for metric in self.ranked_metrics:
            try:
                rule_for(metric, self.rule, setting="rule")
            except ValueError as error:
                yield "rule", str(error)

    def monitors(self) -> Mapping[str, str]:
        return dict.fromkeys(self.ranked_metrics, self.rule)

    @property
    def ranked_metrics(self) -> list[str]:
        """The metrics whose best is saved."""
        if isinstance(self.save_best, bool):
            return [self.best_metric] if self.save_best else []
        return [self.save_best] if isinstance(self.save_best, str) else list(dict.fromkeys(self.save_best))

    @property
    def counts_epochs(self) -> bool:
        """Whether periodic checkpoints are made at epochs."""
        return self.when.unit == "epoch"

    def before_run(self, runner: Runner) -> None:
        self._waits_for_epoch = False
        if runner.global_step == 0:
            self.state = Progress()
        if is_main_process():
            # Taken now: a folder that cannot be written is found out before the training, not after.
            store = runner.store(self._folder(runner)).open()
            earlier = store.start_afresh() if runner.global_step == 0 and not runner.state.resume_from else None
            if earlier is not None:
                runner.logger.info("checkpoints of an earlier run are now in %s", earlier)
        if runner.model is None:
            runner.logger.warning("checkpoints will hold no weights: give attach_hooks model=...")
        if self.async_save or self.save_on_exception:
            runner.watch_steps()
        self._ranked = self.ranked_metrics if runner.evaluators else []
        if self.save_best and not self._ranked:
            runner.logger.info("save_best is off: nothing evaluates")

    @scheduled
    def after_train_iter(self, runner: Runner) -> None:
        # What a script does at the end of an epoch, its scheduler and its evaluation, is to be in the file.
        self._waits_for_epoch = runner.at_last_batch or bool(runner.trainer.should_terminate_single_epoch)
        if not self._waits_for_epoch:
            self._save_periodic(runner, runner.global_step)

    def after_val_epoch(self, runner: Runner) -> None:
        for metric in list(self._ranked):
            try:
                score = fresh_score(runner, metric)
            except MetricError as error:
                if "save_best" in self.given or "best_metric" in self.given:
                    raise
                runner.logger.info("save_best is off: %s", error)
                self._ranked = []
                return
            if score is not None:
                self._save_if_best(runner, metric, score)

    # Not after_train_epoch: a script steps its scheduler and evaluates when the epoch completes, between the two.
    def after_epoch(self, runner: Runner) -> None:
        if self._waits_for_epoch:
            self._waits_for_epoch = False
            self._save_periodic(runner, runner.global_step)
        elif self.counts_epochs and runner.state.epoch_complete and self.when.due(runner.epoch + 1):
            self._save_periodic(runner, runner.epoch + 1)

    def after_train(self, runner: Runner) -> None:
        if self.state.failed:
            runner.logger.error("checkpoints that could not be saved: %d", self.state.failed)
        if self.save_last:
            self.state.saved_at = runner.global_step
            last = checkpoints.name_for(runner, "last.pth")
            overtaken = functools.partial(_overtaken, {last, *_resumed_from(runner)})
            runner.save(replace(self._order(runner, last, "last"), retire=overtaken))
        if self.published_keys is not None:
            self._publish(runner)

    def on_exception(self, runner: Runner, exception: BaseException) -> None:
        """Save what was reached, unless it is torn, broken or saved already."""
        if not self.save_on_exception or not isinstance(exception, Exception) or runner.model is None:
            return
        done = checkpoints.finished_iterations(runner)
        if done == 0 or self.state.saved_at == done:
            return
        if reason := _why_not_good(runner):
            runner.logger.error("the state of iteration %d is not saved: %s", done, reason)
            return
        name = checkpoints.name_for(runner, f"exception_iter_{done}.pth")
        going = {name, *_resumed_from(runner)}
        self._try_to_save(
            runner,
            name,
            "exception",
            lambda entries: [e for e in entries if e.kind == "exception" and e.name not in going],
        )

    def how_often(self, method: str) -> str | None:
        if method != "after_epoch":
            return None
        return str(self.when) if self.counts_epochs else "where an iteration that is due ends it"

    def leads_to(self, method: str, simulation: PlanSimulation) -> tuple[str, ...]:
        """Return what a call of this method leads to in a simulated run."""
        if method == "after_train" and self.save_last:
            return ("before_save_checkpoint", "after_save_checkpoint")
        at_end = simulation.iteration % simulation.iterations == 0
        due = {
            "after_train_iter": not at_end,
            "after_epoch": self.when.due(simulation.epoch if self.counts_epochs else simulation.iteration),
        }
        if not due.get(method):
            return ()
        # Beside the training, the second comes when the file is there.
        return ("before_save_checkpoint",) if self.async_save else ("before_save_checkpoint", "after_save_checkpoint")

    def _save_if_best(self, runner: Runner, metric: str, score: float) -> None:
        rule, step, epoch = rule_for(metric, self.rule), runner.global_step, int(runner.trainer.state.epoch)
        # Another hook may have offered the same score before.
        runner.best.offer(metric, score, step=step, epoch=epoch, rule=rule)
        count = f"epoch_{epoch}" if self.counts_epochs else f"iter_{step}"
        name = checkpoints.name_for(runner, f"best_{re.sub(r'[^A-Za-z0-9._=+@-]', '_', metric)}_{count}.pth")
        # An epoch has one file: an evaluation in its middle may have made it.
        same = [file for file in self.state.best.get(metric, []) if file["name"] == name]
        before = [file for file in self.state.best.get(metric, []) if file["name"] != name]
        if any(file["step"] == step or not is_better(score, file["score"], rule) for file in same):
            return
        if not among_best(score, [file["score"] for file in before], self.keep_best, rule):
            return
        new = {"name": name, "score": score, "step": step}
        ranking = sorted([*before, new], key=lambda file: file["score"], reverse=rule == "greater")
        self.state.best[metric] = ranking[: self.keep_best]
        dropped = ranking[self.keep_best :]
        going = {file["name"] for file in dropped} - {name, *_resumed_from(runner)}
        if runner.best[metric].step == step:
            runner.best.name_file(metric, str(Path(self.out_dir or "", name)))

        def then(error: CheckpointError | None) -> None:
            if error is not None:
                # The older files are still there: nothing goes before the new one has come.
                left = [file for file in [*self.state.best[metric], *dropped] if file is not new]
                self.state.best[metric] = sorted(left, key=lambda f: f["score"], reverse=rule == "greater")
                if runner.best[metric].step == step:
                    runner.best.name_file(metric, None)

        self._try_to_save(runner, name, "best", lambda entries: [e for e in entries if e.name in going], then)

    def _save_periodic(self, runner: Runner, number: int) -> None:
        name = checkpoints.name_for(runner, self.filename_tmpl.format(number))
        # After going back to an older checkpoint, what was just saved is not the newest by iteration.
        stays = {name, *_resumed_from(runner)}

        def beyond(entries: list[Entry]) -> list[Entry]:
            # What another hook saves in this folder is that hook's to delete.
            mine = [entry for entry in entries if entry.name in self._periodic_names(entry)]
            return [*to_delete(mine, self.max_keep_ckpts, stays), *_overtaken(stays, entries)]

        self._try_to_save(runner, name, "periodic", beyond)

    def _periodic_names(self, entry: Entry) -> tuple[str, str]:
        name = self.filename_tmpl.format(entry.epoch if self.counts_epochs else entry.iteration)
        return name, checkpoints.folder_name(name)

    def _try_to_save(self, runner: Runner, name: str, kind: Kind, retire: Retire, then: Then | None = None) -> None:
        """A save that fails is reported and the run goes on; the end says how many there were."""
        saved_before = self.state.saved_at

        def ended(error: CheckpointError | None) -> None:
            if then is not None:
                then(error)
            if error is not None:
                self.state.failed += 1
                self.state.saved_at = saved_before
                runner.logger.error("%s; the run goes on without it", error)

        if kind != "best":
            self.state.saved_at = checkpoints.finished_iterations(runner)
        background = self.async_save and kind != "exception"
        order = self._order(runner, name, kind)
        runner.save(replace(order, background=background, retire=retire, then=ended))

    def _order(self, runner: Runner, name: str, kind: Kind) -> Order:
        return Order(
            name,
            kind,
            folder=self._folder(runner),
            optimizer=self.save_optimizer,
            scheduler=self.save_scheduler,
        )

    def _publish(self, runner: Runner) -> None:
        """Make slim copies of the last and the best."""
        if not is_main_process():
            return
        wanted = [self.published_keys] if isinstance(self.published_keys, str) else list(self.published_keys or ())
        store = runner.store(self._folder(runner)).open()
        best = {file["name"] for files in self.state.best.values() for file in files}
        last = checkpoints.name_for(runner, "last.pth")
        for entry in [e for e in store.entries() if e.name == last or e.name in best]:
            try:
                state = store.load(self._folder(runner) / entry.name)
                missing = [key for key in wanted if key not in state]
                if missing:
                    runner.logger.warning("published_keys: %s holds no %s", entry.name, ", ".join(missing))
                slim, stem = {key: state[key] for key in wanted if key in state}, Path(entry.name).stem
                path = store.save(
                    f"{stem}-{{hash}}.pth",
                    slim,
                    kind="published",
                    epoch=entry.epoch,
                    iteration=entry.iteration,
                    metrics=entry.metrics,
                    retire=functools.partial(_published_before, stem),
                )
                runner.logger.info("published %s", path)
            except CheckpointError as error:
                self.state.failed += 1
                runner.logger.error("%s; it is not published", error)

    def _folder(self, runner: Runner) -> Path:
        return runner.work_dir / (self.out_dir or "")


def _overtaken(stays: Collection[str], entries: list[Entry]) -> list[Entry]:
    """What failing runs saved and the run has left behind since."""
    reached = entries[-1].iteration  # the one that was just saved
    return [e for e in entries if e.kind == "exception" and e.iteration <= reached and e.name not in stays]


def _published_before(stem: str, entries: list[Entry]) -> list[Entry]:
    """All but the newest of the published files of this name."""
    found = [
        e for e in entries if e.kind == "published" and re.fullmatch(rf"{re.escape(stem)}-[0-9a-f]{{8}}\.pth", e.name)
    ]
    return found[:-1]


def _why_not_good(runner: Runner) -> str | None:
    """Why the state of a run that has just failed is not one to go on from, or None."""
    import ignite.distributed as idist
    import torch

    if idist.get_world_size() > 1:
        return "the other ranks may have failed elsewhere"
    if runner.step_has_begun:
        return "the run failed after the optimizer had begun to change it"
    weights = [weight for weight in runner.model.parameters() if weight.is_floating_point()]
    if not all(bool(torch.isfinite(weight.detach()).all()) for weight in weights):
        return "its weights are not finite"
    return None


def _resumed_from(runner: Runner) -> set[str]:
    return {runner.state.resumed_from.name} if runner.state.resumed_from else set()


def check_template(template: str) -> None:
    """Refuse a template of names that leaves the folder, looks into objects or makes no name for a file.

    Example:
        >>> check_template("model_{:04d}.pth")
        >>> try:
        ...     check_template("../{}.pth")
        ... except SettingError as error:
        ...     print(error)
        filename_tmpl: '../{}.pth' is no file name: it may not contain / or begin with a dot
    """
    if "/" in template or "\\" in template or "\0" in template or template.startswith("."):
        raise SettingError("filename_tmpl", f"{template!r} is no file name: it may not contain / or begin with a dot")
    try:
        fields: list[Any] = [name for _, name, _, _ in string.Formatter().parse(template) if name is not None]
        fits = fields == [""] and template.format(1) != template.format(2)
    except (ValueError, IndexError, KeyError, AttributeError):
        fits = False
    if not fits:
        raise SettingError(
            "filename_tmpl", f"{template!r} needs one {{}} where the number goes, as in 'epoch_{{}}.pth'"
        )
    try:
        check_name(template.format(1))
    except CheckpointError as error:
        raise SettingError("filename_tmpl", str(error)) from None
