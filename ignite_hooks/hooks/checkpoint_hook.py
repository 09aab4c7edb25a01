"""Saves checkpoints: periodic ones, the best and the last."""

from __future__ import annotations

import string
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import Ge

from ignite_hooks.checkpoint.data.skip import Skip
from ignite_hooks.checkpoint.delivered import save_delivered
from ignite_hooks.checkpoint.retention import DropFailures, KeepBest, KeepLast, Replace, RetentionRule
from ignite_hooks.checkpoint.save import SaveRequest
from ignite_hooks.distributed.collectives import is_main_process
from ignite_hooks.errors import CheckpointError, MetricError, SettingError
from ignite_hooks.hooks.base_hook import BaseHook, PriorityLike, Situation, settings
from ignite_hooks.plan.methods import at
from ignite_hooks.plan.priority import AtEnd, Priority
from ignite_hooks.plan.schedule import scheduled
from ignite_hooks.results.better import among_best, is_better, rule_for
from ignite_hooks.results.outcome import is_stop
from ignite_hooks.run.progress import at_last_batch, finished_iterations
from ignite_hooks.run.ranking import fresh_score, is_training_name, ranks_training
from ignite_hooks.run.save_outcomes import SaveOutcomes
from ignite_hooks.store.mirror.remote import mirror_of, why_no_mirror
from ignite_hooks.store.names import check_name, file_word

if TYPE_CHECKING:
    from ignite_hooks.checkpoint.save import OnEnd
    from ignite_hooks.plan.simulate import PlanSimulation
    from ignite_hooks.run.runner import Runner
    from ignite_hooks.store.manifest import Kind


@dataclass
class CheckpointState:
    """The state of this hook, which checkpoints hold."""

    best: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """For each metric the files that hold its best, the best first: name, score and step."""
    saved_at: int = -1
    """The iteration whose state was last given to the store for resuming."""
    failed: int = 0


@settings
class CheckpointHook(BaseHook):
    """Save checkpoints periodically, at every new best, at the end, and when the run fails.

    The checkpoint of a sharded model (FSDP2) is a folder, named without ``.pth``, that all ranks write to.

    Args:
        interval: How many epochs, or iterations, lie between two checkpoints.
        by_epoch: Whether the interval counts epochs.
        start: The first epoch or iteration that is saved.
        save_optimizer: Whether a checkpoint holds the optimizer.
        save_scheduler: Whether a checkpoint holds the scheduler.
        max_keep_ckpts: How many periodic checkpoints are kept; -1 keeps all. The best and the last do not count.
        save_last: Whether ``last.pth`` is saved at the end.
        save_best: Whether to save the best checkpoint, or the metrics to judge it by; needs an evaluation, unless it
            is train_loss or another metric of the trainer.
        keep_best: How many best checkpoints to keep per metric.
        best_metric: The metric used when save_best is true.
        rule: Whether more (greater, max) or less (less, min) is better; auto goes by the name of the metric.
        save_on_exception: Whether the last good state is saved when the run fails.
        published_keys: Entries to keep in small copies of the last and best checkpoints, made at the end of the run;
            null makes none.
        async_save: Whether the training continues while a checkpoint is written.
        when_busy: What a periodic checkpoint does that is due while earlier ones are still being written, so that it
            would hold the training: wait for them, or skip (it is left out, and the report lists it). The best and
            the last always wait.
        mirror: A second home of the run, as s3://bucket/run or any other URL of fsspec: checkpoints, their manifest,
            config.yaml, metrics.jsonl and what trackers know it by are copied there beside the training, files that
            retention deletes are deleted there, and a run that is resumed on an empty disk fetches the newest that
            verifies. Credentials come from the environment. s3:// needs the extra remote.
        mirror_timeout: The seconds for which the end of a run waits for its mirror; at most 10 after a signal.
        copies: With several machines, where checkpoints are kept: on the first one, or on each (per_machine), so that
            any of them can go on. Machines that see one folder keep one copy; a sharded model needs a folder that all
            machines see.
        skip: How a resumed run gets to its place in the middle of an epoch. auto: by indices where that gives the same
            batches and random numbers to the bit, else by reading the earlier batches again; index: always by indices,
            although what workers draw differs; read: always by reading.
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
    rule: Literal["greater", "less", "max", "min", "auto"] = "auto"
    save_on_exception: bool = True
    published_keys: str | list[str] | None = None
    async_save: bool = True
    when_busy: Literal["wait", "skip"] = "wait"
    mirror: str | None = None
    mirror_timeout: Annotated[float, Ge(0)] = 60.0
    copies: Literal["first_machine", "per_machine"] = "first_machine"
    skip: Skip = "auto"
    out_dir: Path | None = None
    filename_tmpl: str = "epoch_{}.pth"
    priority: PriorityLike = Priority.BELOW_NORMAL
    state: CheckpointState = field(init=False, default_factory=CheckpointState)

    collective: ClassVar[bool] = True
    saves_checkpoints: ClassVar[bool] = True

    # Saved last: a resume needs what every other hook did in this iteration or epoch.
    point_priority: ClassVar[Mapping[str, int]] = {
        "after_train_iter": 0,
        "after_epoch": 0,
        "after_train": AtEnd.SAVE_LAST,
    }

    def __post_init__(self) -> None:
        if self.max_keep_ckpts == 0:
            raise SettingError("max_keep_ckpts", "0 would keep nothing: give 1 or more, or -1 to keep all")
        if self.save_best == []:
            raise SettingError("save_best", "name at least one metric, or say false")
        if "filename_tmpl" not in self.given and not self.counts_epochs:
            self.filename_tmpl = "iter_{}.pth"
        check_template(self.filename_tmpl)
        if self.out_dir is not None:
            self.out_dir = Path(self.out_dir).expanduser()
            if ".." in self.out_dir.parts:
                raise SettingError("out_dir", f"{str(self.out_dir)!r} leaves the work directory")
        self._active_metrics = self.ranked_metrics
        self._save_deferred_to_epoch_end = False
        self._outcomes = SaveOutcomes()

    def check(self, situation: Situation) -> Iterator[tuple[str, str]]:
        evaluates = situation.evaluates or any(map(is_training_name, self.ranked_metrics))
        if "save_best" in self.given and self.save_best and situation.complete and not evaluates:
            remedy = "pass val_loader=... or evaluators=... to attach_hooks(), or add an EvalHook"
            yield "save_best", f"nothing evaluates: {remedy}"
        if self.mirror is not None and (problem := why_no_mirror(self.mirror)):
            yield "mirror", problem
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
        self._save_deferred_to_epoch_end = False
        self._outcomes = SaveOutcomes()
        runner.checkpoints.skip = self.skip
        is_new_run = runner.global_step == 0
        if is_new_run:
            self.state = CheckpointState()
        folder, homes = self._folder(runner), runner.checkpoints.homes
        # Here, so that an unwritable folder is found before training.
        homes.open(
            folder,
            is_new_run=is_new_run and not runner.state.resume_from,
            per_machine=self.copies == "per_machine",
        )
        if self.mirror is not None and is_main_process():
            homes.add_mirror(folder, mirror_of(self.mirror, runner.work_dir), self.mirror_timeout)
        # Also for the gradients that several iterations gather for one step.
        runner.checkpoints.watch_steps()
        of_training = [metric for metric in self.ranked_metrics if is_training_name(metric)]
        self._active_metrics = self.ranked_metrics if runner.evaluators else of_training
        if self.save_best and not self._active_metrics:
            runner.logger.info("save_best is off: nothing evaluates")

    def before_train(self, runner: Runner) -> None:
        runner.checkpoints.homes.begin_mirrors()

    @scheduled
    def after_train_iter(self, runner: Runner) -> None:
        # The file must contain what the script does when the epoch ends, such as a scheduler step.
        at_end = at_last_batch(runner) or bool(runner.trainer.should_terminate_single_epoch)
        self._save_deferred_to_epoch_end = at_end
        if not at_end:
            if not runner.evaluators:
                self._rank(runner, of_training=True)
            self._save_periodic(runner, runner.global_step)

    def after_val_epoch(self, runner: Runner) -> None:
        self._rank(runner)

    def _rank(self, runner: Runner, *, of_training: bool = False) -> None:
        """Save what is best now; ``of_training`` at a moment when only the trainer has measured something."""
        for metric in list(self._active_metrics):
            if of_training and not ranks_training(runner, metric):
                continue
            try:
                ranked = fresh_score(runner, metric)
            except MetricError as error:
                if "save_best" in self.given or "best_metric" in self.given:
                    raise
                runner.logger.info("save_best is off: %s", error)
                self._active_metrics = []
                return
            if ranked is not None:
                self._save_if_best(runner, ranked.name, ranked.score)

    # Not after_train_epoch: a script steps its scheduler and evaluates when the epoch completes, between the two.
    def after_epoch(self, runner: Runner) -> None:
        if runner.state.epoch_complete:
            self._rank(runner, of_training=True)
        if self._save_deferred_to_epoch_end:
            self._save_deferred_to_epoch_end = False
            self._save_periodic(runner, runner.global_step)
        elif self.counts_epochs and runner.state.epoch_complete and self.when.due(epoch := runner.epoch + 1):
            self._save_periodic(runner, epoch)

    def after_train(self, runner: Runner) -> None:
        if self.save_last or runner.state.save_at_end:
            self._save_last(runner)
        elif runner.stop_reason is None:
            # A run that was stopped continues, perhaps from a file that a failure has left.
            runner.checkpoints.retire(self._folder(runner), self._outlived(runner))

    @at("after_train", order=AtEnd.SAVE_DELIVERED)
    def save_delivered(self, runner: Runner) -> None:
        """Save the weights that the run delivers, if they are not the last ones; publish."""
        self._save_delivered(runner)
        if self.state.failed and not self._outcomes.ended_without_last:
            runner.logger.error("checkpoints that could not be saved: %d", self.state.failed)
        if self.published_keys is not None and is_main_process():
            best = {file["name"] for files in self.state.best.values() for file in files}
            delivered = runner.state.delivered
            best |= {Path(delivered.file).name} if delivered is not None and delivered.file else set()
            names = {*best, runner.checkpoints.name_for("last.pth")}
            keys = [self.published_keys] if isinstance(self.published_keys, str) else self.published_keys
            self.state.failed += runner.checkpoints.publish(self._folder(runner), names, keys)

    def on_exception(self, runner: Runner, exception: BaseException) -> None:
        """Save the last good state, unless it is inconsistent, not finite or already saved."""
        stopped = is_stop(exception) or not isinstance(exception, Exception)
        if not self.save_on_exception or stopped or runner.model is None:
            return
        done = finished_iterations(runner)
        if done == 0 or self.state.saved_at == done:
            return
        if reason := runner.checkpoints.why_not_good():
            runner.logger.error("the state of iteration %d is not saved: %s", done, reason)
            return
        self._try_to_save(runner, f"exception_iter_{done}.pth", "exception", Replace("exception"))

    def save_now(self, runner: Runner) -> Path | None:
        """Save ``last.pth`` and wait for it, because it was asked for from outside; return its path if it is there."""
        saved: list[Path] = []
        path = self._folder(runner) / runner.checkpoints.name_for("last.pth")

        def on_end(error: CheckpointError | None) -> None:
            saved.extend([] if error else [path])

        self._try_to_save(runner, "last.pth", "last", on_end=on_end)
        return saved[0] if saved else None

    def findings(self) -> list[str]:
        return self._outcomes.sentences()

    def how_often(self, method: str) -> str | None:
        if method != "after_epoch":
            return None
        return str(self.when) if self.counts_epochs else "if its last iteration is due"

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
        # In the background, the second comes when the file is there.
        return ("before_save_checkpoint",) if self.async_save else ("before_save_checkpoint", "after_save_checkpoint")

    def _folder(self, runner: Runner) -> Path:
        return runner.work_dir / (self.out_dir or "")

    def _save_if_best(self, runner: Runner, metric: str, score: float) -> None:
        rule, step, epoch = rule_for(metric, self.rule), runner.global_step, int(runner.trainer_state.epoch)
        # Another hook may have offered the same score before.
        runner.best.offer(metric, score, step=step, epoch=epoch, rule=rule)
        count = f"epoch_{epoch}" if self.counts_epochs else f"iter_{step}"
        file_name = f"best_{self._file_word(runner, metric)}_{count}.pth"
        name = runner.checkpoints.name_for(file_name)
        # An epoch has one file: an evaluation in its middle may have made it.
        same = [file for file in self.state.best.get(metric, []) if file["name"] == name]
        before = [file for file in self.state.best.get(metric, []) if file["name"] != name]
        if any(file["step"] == step or not is_better(score, file["score"], rule) for file in same):
            return
        if not among_best(score, [file["score"] for file in before], self.keep_best, rule):
            return
        new = {"name": name, "score": score, "step": step}
        ranking = _best_first([*before, new], rule)
        self.state.best[metric], dropped = ranking[: self.keep_best], ranking[self.keep_best :]
        if runner.best[metric].step == step:
            runner.best.name_file(metric, str(Path(self.out_dir or "", name)))

        def on_end(error: CheckpointError | None) -> None:
            if error is not None:
                # The older files are still there: nothing goes before the new one has come.
                left = [file for file in [*self.state.best[metric], *dropped] if file is not new]
                self.state.best[metric] = _best_first(left, rule)
                if runner.best[metric].step == step:
                    runner.best.name_file(metric, None)

        self._try_to_save(runner, file_name, "best", dropped=[file["name"] for file in dropped], on_end=on_end)

    def _save_periodic(self, runner: Runner, number: int) -> None:
        # What another hook saves in this folder is for that hook to delete.
        keep = KeepLast(self.max_keep_ckpts, self.filename_tmpl, by_epoch=self.counts_epochs)
        name = self.filename_tmpl.format(number)
        if self.when_busy == "skip" and self.async_save and runner.checkpoints.would_wait(self._folder(runner)):
            self._outcomes.leave_out(name, runner.logger)
            return
        self._try_to_save(runner, name, "periodic", keep)

    def _outlived(self, runner: Runner, dropped: Collection[str] = ()) -> list[RetentionRule]:
        """Return the rules for what the run has passed: failures, and best files that are not the best any more."""
        folder = self._folder(runner)
        # Another hook may rank the same metric in this folder, and keep more.
        here = [hook for hook in runner.hooks.values() if isinstance(hook, CheckpointHook)]
        here = [hook for hook in here if hook._folder(runner) == folder]
        kept = frozenset(file["name"] for hook in here for files in hook.state.best.values() for file in files)
        reached, gone = finished_iterations(runner), frozenset(dropped)
        words = [self._file_word(runner, metric) for metric in self.state.best]
        return [DropFailures(reached), *(KeepBest(word, kept, reached, gone) for word in words)]

    def _file_word(self, runner: Runner, metric: str) -> str:
        hooks = [hook for hook in runner.hooks.values() if isinstance(hook, CheckpointHook)]
        return file_word(metric, [other for hook in hooks for other in hook.ranked_metrics])

    def _try_to_save(
        self,
        runner: Runner,
        name: str,
        kind: Kind,
        *rules: RetentionRule,
        dropped: Collection[str] = (),
        on_end: OnEnd | None = None,
    ) -> None:
        """Save without stopping the run if that fails: a failure is logged, and the end says how many there were."""
        saved_before = self.state.saved_at

        def report(error: CheckpointError | None) -> None:
            if on_end is not None:
                on_end(error)
            if error is None:
                self._outcomes.succeeded(name, runner.logger)
            else:
                self.state.failed += 1
                self.state.saved_at = saved_before
                self._outcomes.failed_with(name, error, runner.logger)

        if kind != "best":
            self.state.saved_at = finished_iterations(runner)
        outlived = [] if kind == "exception" else self._outlived(runner, dropped)
        runner.checkpoints.save(self._save_request(runner, name, kind, *rules, *outlived, on_end=report))

    def _save_last(self, runner: Runner) -> None:
        """Save the last state; a run that has saved others ends without it if that fails, and says so."""
        saved_before, self.state.saved_at = self.state.saved_at, runner.global_step

        def report(error: CheckpointError | None) -> None:
            resumed_from = runner.state.resumed_from
            newest = self._outcomes.saved or (None if resumed_from is None else resumed_from.name)
            if error is None:
                self._outcomes.succeeded("last.pth", runner.logger)
            elif newest is None:
                # Nothing of the run would be left: its end must not look like a success.
                raise error
            else:
                self.state.failed += 1
                self.state.saved_at = saved_before
                self._outcomes.ended_without("last.pth", error, newest, runner.logger)

        request = self._save_request(runner, "last.pth", "last", *self._outlived(runner), on_end=report)
        runner.checkpoints.save(request)

    def _save_delivered(self, runner: Runner) -> None:
        """Save the delivered weights in a file of their own, of which there is one in a run."""
        found = runner.state.delivered
        if (
            found is None
            or next(hook for hook in runner.hooks.values() if isinstance(hook, CheckpointHook)) is not self
        ):
            return
        folder = self._folder(runner)

        def report(error: CheckpointError | None) -> None:
            if error is not None:
                self.state.failed += 1
                self._outcomes.failed_with("the delivered weights", error, runner.logger)

        word = "swa" if found.metric is None else f"best_{self._file_word(runner, found.metric)}"
        save_delivered(runner, folder, word, report)

    def _save_request(
        self, runner: Runner, name: str, kind: Kind, *rules: RetentionRule, on_end: OnEnd | None = None
    ) -> SaveRequest:
        """Return a request for this hook's folder; the last file and that of a failed run are waited for."""
        return SaveRequest(
            name,
            kind,
            folder=self._folder(runner),
            optimizer=self.save_optimizer,
            scheduler=self.save_scheduler,
            background=self.async_save and kind in ("periodic", "best"),
            rules=rules,
            on_end=on_end,
            on_wait=lambda seconds: self._outcomes.waited(name, seconds, runner.logger),
        )


def _best_first(files: list[dict[str, Any]], rule: str) -> list[dict[str, Any]]:
    """Return files of one metric, the best first."""
    return sorted(files, key=lambda file: float(file["score"]), reverse=rule == "greater")


def check_template(template: str) -> None:
    """Raise a SettingError for a template that leaves the folder, accesses attributes, or is no file name.

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
