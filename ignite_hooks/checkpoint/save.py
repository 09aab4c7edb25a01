"""The checkpoints of one run: saved, on their way to the store, loaded, resumed from."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ignite_hooks.checkpoint.capture import capture, steady_tensors
from ignite_hooks.checkpoint.changed_settings import ResumeSettings
from ignite_hooks.checkpoint.data.position import PositionTracker
from ignite_hooks.checkpoint.data.skip import Skip
from ignite_hooks.checkpoint.find import find_checkpoint
from ignite_hooks.checkpoint.homes import Homes
from ignite_hooks.checkpoint.left_out import LeftOut
from ignite_hooks.checkpoint.machine_copies import of_first_rank
from ignite_hooks.checkpoint.restore import Check, restore_objects, restore_progress
from ignite_hooks.checkpoint.resume import resume_run
from ignite_hooks.checkpoint.retention import Replace, RetentionRule, folder_name, retired_by
from ignite_hooks.checkpoint.script.objects import script_optimizers
from ignite_hooks.checkpoint.script.state import ScriptState
from ignite_hooks.checkpoint.staging import Staging
from ignite_hooks.checkpoint.unreported import Unreported
from ignite_hooks.distributed.collectives import all_gather, all_reduce_max, world_size
from ignite_hooks.errors import CheckpointError, HookError
from ignite_hooks.model.optimizers import when_stepping
from ignite_hooks.model.parts import each, parts_of
from ignite_hooks.model.wrapping import is_sharded, weights_not_finite
from ignite_hooks.results.checkpoint_table import CheckpointTable
from ignite_hooks.run.progress import Progress, progress_of
from ignite_hooks.store.interface import ShardedStore
from ignite_hooks.store.plain import UnsavableError

if TYPE_CHECKING:
    from ignite.engine import Engine

    from ignite_hooks.run.runner import Runner
    from ignite_hooks.store.interface import Retire, Saving, Store
    from ignite_hooks.store.manifest import Kind

OnEnd = Callable[[CheckpointError | None], None]


@dataclass(frozen=True)
class SaveRequest:
    """A request to save a checkpoint.

    Args:
        name: The file name.
        kind: The purpose of the file.
        folder: The folder; the work directory by default.
        optimizer: Whether the optimizer is part of it.
        scheduler: Whether the scheduler is part of it.
        background: Whether the training continues while it is written.
        rules: Which older files are deleted once this one is committed; the file resumed from is kept.
        on_end: Called in the training thread with the error or None; without it a failure is raised.
        state: What is saved; by default the state of the run, which hooks may edit.
        on_wait: Called with the seconds for which training waited for earlier saves to be written.
    """

    name: str
    kind: Kind
    folder: Path | None = None
    optimizer: bool = True
    scheduler: bool = True
    background: bool = False
    rules: tuple[RetentionRule, ...] = ()
    on_end: OnEnd | None = None
    state: dict[str, Any] | None = None
    on_wait: Callable[[float], None] | None = None


@dataclass(eq=False)
class _Pending:
    """A save that has begun and has not been reported."""

    request: SaveRequest
    state: dict[str, Any]
    path: Path
    saving: Saving | None = None
    retire: Retire | None = None
    error: CheckpointError | None = None

    @property
    def ended(self) -> bool:
        """Whether the file is there or has failed, or this rank writes nothing of it."""
        return self.error is not None or self.saving is None or self.saving.done()


class Checkpoints:
    """The checkpoints of one run: save, load, resume, and wait for what is on its way to the store.

    Args:
        runner: The run.
        make_store: Makes the store of a folder.
        resume_settings: Which settings of the optimizer a resumed run has, where configuration and checkpoint differ.
    """

    def __init__(
        self, runner: Runner, make_store: Callable[[Path], Store], resume_settings: ResumeSettings = "config"
    ) -> None:
        trainer = runner.trainer
        # Weak: the trainer owns the runner, and the runner owns this.
        self._runner_ref, self._trainer_ref = weakref.ref(runner), weakref.ref(trainer)
        self.make_store = make_store
        """Makes the store of a folder."""
        self._stores: dict[Path, Store] = {}
        self.homes = Homes(runner, self.store)
        """Where its checkpoints are kept."""
        self._pending: list[_Pending] = []
        self._unreported = Unreported()
        self.staging = Staging()
        """What reads the state beside the training."""
        self.wait_for_staging = self.staging.wait
        """Returns once the state may change."""
        self._copy_synchronously = False
        self._step_watch: list[Any] | None = None
        self._stepped_at: dict[str, int] = {}
        """The iteration in which each optimizer last began a step, by name; nothing where nobody watches."""
        self.left_out = LeftOut(lambda words: self._runner.logger.warning("%s", words))
        """The parts of the state that cannot be in a checkpoint."""
        self.script = ScriptState(runner, self.left_out)
        """The state of what the script has attached itself."""
        self.position = PositionTracker(runner, trainer)
        """Where the run is in its data."""
        self.skip: Skip = "auto"
        """How a resumed run gets to its position in the data."""
        self.resume_settings = resume_settings
        """Which settings of the optimizer a resumed run has, where the configuration and the checkpoint differ."""

    @property
    def _runner(self) -> Runner:
        runner = self._runner_ref()
        if runner is None:
            raise ReferenceError("the run of these checkpoints is gone")
        return runner

    @property
    def _trainer(self) -> Engine:
        trainer = self._trainer_ref()
        if trainer is None:
            raise ReferenceError("the trainer of these checkpoints is gone")
        return trainer

    def begin_run(self) -> None:
        """Forget the data position of the former run, unless that run was resumed and had nothing to train."""
        if not self.position.begin_again():
            self.position = PositionTracker(self._runner, self._trainer)
            self.script = ScriptState(self._runner, self.left_out, self.script)

    # -- stores -----------------------------------------------------------------------------------------------

    def store(self, folder: Path | None = None) -> Store:
        """Return the store of a folder, by default of the work directory."""
        folder = folder or self._runner.work_dir
        if folder not in self._stores:
            self._stores[folder] = self.make_store(folder)
        store = self._stores[folder]
        store.run = self._runner.state.run_id
        return store

    def prepare(self, size: int) -> None:
        """Make memory for copies of a state of this size, beside the training, in the folders that are open."""
        for store in self._stores.values():
            store.prepare(size)

    def name_for(self, name: str) -> str:
        """Return a file name, or the name of a folder in its place where the model is sharded."""
        return folder_name(name) if is_sharded(self._runner.model) else name

    # -- saving -----------------------------------------------------------------------------------------------

    def save(self, request: SaveRequest) -> Path:
        """Save the current state; hooks may edit it before, and learn its path after."""
        runner = self._runner
        self.settle_ended()
        sharded = is_sharded(runner.model)
        new = _Pending(request, {}, (request.folder or runner.work_dir) / self.name_for(request.name))
        try:
            new.state = state_of_run(runner, request) if request.state is None else request.state
        except HookError as failure:
            # A hook refuses a save so; with several ranks on all of them.
            if not isinstance(failure.__cause__, CheckpointError):
                raise
            if request.on_end is None:
                raise failure.__cause__ from None
            # It is reported after those before it, which may be on their way.
            new.error = failure.__cause__
        else:
            if self.left_out.known:
                new.state = self.left_out.plain(new.state)
            if self.homes.has_copies(new.path.parent) and not sharded:
                new.state = of_first_rank(runner, new.state)
            if sharded or self.homes.writes(new.path.parent):
                try:
                    if sharded:
                        self._write_shards(new)
                    else:
                        self._hand_over_savable(new)
                except CheckpointError as failure:
                    new.error = failure
            if request.on_wait is not None and request.background:
                request.on_wait(0.0 if new.saving is None else new.saving.waited)
        self._pending.append(new)
        self._unreported.files.append(new)
        if not request.background:
            self.settle()
        return new.path

    def would_wait(self, folder: Path) -> bool:
        """Return whether a save beside the training would wait for earlier ones, on any rank."""
        return any(all_gather(folder in self._stores and self._stores[folder].busy()))

    def save_manually(self, name: str | None = None) -> Path:
        """Save a checkpoint that no retention rule deletes; return once it is committed."""
        return self.save(SaveRequest(name or f"iter_{progress_of(self._runner).begun}.pth", "manual"))

    def _write_shards(self, new: _Pending) -> None:
        """Write a state of which every rank has a part; all ranks do it together."""
        from ignite_hooks.store.sharded.saving import begin_sharded, save_sharded

        store, name, details = self.store(new.request.folder), new.path.name, self._details(new)
        if not isinstance(store, ShardedStore):
            raise CheckpointError(f"{new.path} cannot be saved: {type(store).__name__} takes no sharded models")
        self.wait_for_staging()
        if not new.request.background:
            new.path = save_sharded(store, name, new.state, **details)
            return
        new.saving = self.staging.saving = begin_sharded(
            store, name, new.path, new.state, **details, steady=self._steady(), done=self._runner.installation.wake
        )

    def _hand_over_savable(self, new: _Pending) -> None:
        try:
            self._hand_over(new)
        except UnsavableError:
            # A part that became so after the start of the run: it is named once, and left out from now on.
            new.state = self.left_out.plain(new.state)
            self._hand_over(new)

    def _hand_over(self, new: _Pending) -> None:
        request, state, details = new.request, new.state, self._details(new)
        store = self.store(request.folder).open()
        self.wait_for_staging()
        if not request.background:
            new.path = store.save(request.name, state, **details)
            return
        new.saving = self.staging.saving = store.begin(
            request.name, state, **details, steady=self._steady(), done=self._runner.installation.wake
        )

    def _steady(self) -> list[Any]:
        """Return the tensors whose copy may take until the optimizer steps next."""
        runner = self._runner
        # Between two iterations only the optimizer changes weights; at the end of an epoch a script may.
        overlap = runner.state.in_iteration and not self._copy_synchronously and self.watch_steps()
        return steady_tensors(runner.optimizer, runner.hooks.registered) if overlap else []

    def _details(self, new: _Pending) -> dict[str, Any]:
        """Return what the store is given along with a state."""
        request, state = new.request, new.state
        details = {
            "kind": request.kind,
            "epoch": state["meta"]["epoch"],
            "iteration": state["meta"]["iter"],
            "metrics": {metric: entry["value"] for metric, entry in state["metrics"].items()},
        }
        retire = new.retire = retired_by(request.rules, {new.path.name, *self._resumed_from()})
        return details if retire is None else {**details, "retire": self._unreported.spare(retire, new.path.parent)}

    def _resumed_from(self) -> set[str]:
        path = self._runner.state.resumed_from
        return set() if path is None else {path.name}

    def retire(self, folder: Path, rules: Collection[RetentionRule]) -> None:
        """Delete what the rules delete, at the end of a run that saves no last checkpoint."""
        retire = retired_by(rules, self._resumed_from())
        if retire is not None and self.homes.writes(folder):
            self.store(folder).open().retire(retire)
            if folder in self.homes.mirrors:
                self.homes.mirrors[folder].retire(retire)

    def publish(self, folder: Path, names: Collection[str], keys: Collection[str]) -> int:
        """Save slim copies of files, with a hash in their names; return how many failed.

        Args:
            folder: Where the files are.
            names: The files that are copied.
            keys: The entries that a copy holds.
        """
        logger, store, failed = self._runner.logger, self.store(folder).open(), 0
        for entry in [entry for entry in store.entries() if entry.name in names]:
            try:
                state = store.load(folder / entry.name)
                missing = [key for key in keys if key not in state]
                if missing:
                    logger.warning("published_keys: %s holds no %s", entry.name, ", ".join(missing))
                name = f"{Path(entry.name).stem}-{{hash}}.pth"
                path = store.save(
                    name,
                    {key: state[key] for key in keys if key in state},
                    kind="published",
                    epoch=entry.epoch,
                    iteration=entry.iteration,
                    metrics=entry.metrics,
                    retire=retired_by([Replace("published", name)]),
                )
                self.homes.committed(path, None)
                logger.info("published %s", path)
            except CheckpointError as error:
                failed += 1
                logger.error("%s; it is not published", error)
        return failed

    # -- what is on its way -----------------------------------------------------------------------------------

    def watch_steps(self) -> bool:
        """Make the optimizer wait for a staging copy before each step, and record the step.

        Return False if it has no step hooks.
        """
        if self._step_watch is None:
            state = self._trainer.state

            def before_step_of(name: str) -> Callable[..., None]:
                def before_step(*_: Any) -> None:
                    if self.staging.saving is not None:
                        self.wait_for_staging()
                    self._stepped_at[name] = state.iteration

                return before_step

            optimizers = parts_of(self._runner.optimizer)
            if optimizers:
                others = script_optimizers(self._runner)
                optimizers |= {f"script.{place}": one for place, one in enumerate(others)}
            self._step_watch = when_stepping(optimizers, before_step_of)
            self._stepped_at = {} if self._step_watch is None else dict.fromkeys(optimizers, 0)
        return self._step_watch is not None

    def step_has_begun(self) -> bool:
        """Return whether the optimizer may have changed the weights since the last iteration ended."""
        progress = progress_of(self._runner)
        return progress.in_step and (self._step_watch is None or progress.begun in self._stepped_at.values())

    def why_not_good(self) -> str | None:
        """Return why the state of a run that has just failed is not one to resume from, or None."""
        if world_size() > 1:
            return "the other ranks may have failed elsewhere"
        if self.step_has_begun():
            return "the run failed after the optimizer had begun to change it"
        if any(weights_not_finite(model) for model in each(self._runner.model)):
            return "its weights are not finite"
        return None

    def accumulating(self, progress: Progress) -> list[str]:
        """Return the names of the optimizers that may yet have to use gradients of the last iteration."""
        if progress.in_step:
            return []
        # What nobody watches may have such gradients at any time.
        names = parts_of(self._runner.optimizer)
        return [name for name in names if self._stepped_at.get(name) != progress.begun]

    def wait_until_finished(self, *, alone: bool = False) -> None:
        """Wait for all saves and report them; ``alone`` where other ranks may be gone."""
        self.settle(alone=alone)

    @property
    def ended(self) -> int:
        """How many of the saves that are to be reported next have ended on this rank."""
        return sum(1 for _ in takewhile(lambda one: one.ended, self._pending))

    def settle_ended(self) -> None:
        """Report the saves that have ended; with several ranks, those that have ended on all of them."""
        # All have begun the same saves, so all of them ask, or none.
        self.settle(-all_reduce_max([-self.ended])[0] if self._pending else 0)

    def settle(self, count: int | None = None, *, alone: bool = False) -> None:
        """Wait for saves and report them, in order.

        Args:
            count: How many; all by default. The same on all ranks.
            alone: Whether other ranks may be gone.
        """
        problem: Exception | None = None
        left = len(self._pending) if count is None else count
        while self._pending and left > 0:
            left -= 1
            first = self._pending[0]
            del self._pending[0]
            try:
                if first.saving is not None:
                    try:
                        first.path = first.saving.wait()
                    except CheckpointError as failure:
                        # Perhaps the script changes weights by hand: one failure is enough to learn of it.
                        first.error, self._copy_synchronously = failure, True
                if not alone:
                    first.error = self.homes.agreed(first.path.parent, first.error)
                try:
                    self._report(first)
                except Exception as error:
                    # The others are reported too.
                    problem = problem or error
            finally:
                self._unreported.files.remove(first)
        for folder, retire in self._unreported.spared():
            self.store(folder).retire(retire)
        if problem is not None:
            raise problem

    def _report(self, ended: _Pending) -> None:
        if ended.error is None:
            runner = self._runner
            runner.checkpoint = ended.state
            # A run that is killed continues from here: what was written before has to be in its files.
            runner.writer.flush()
            self.homes.committed(ended.path, ended.retire)
            try:
                self._runner.installation.call("after_save_checkpoint", {"checkpoint": ended.state, "path": ended.path})
            finally:
                runner.checkpoint = None
        if ended.request.on_end is not None:
            ended.request.on_end(ended.error)
        elif ended.error is not None:
            raise ended.error

    # -- loading ----------------------------------------------------------------------------------------------

    def resume_at_start(self, wanted: str | Path | bool | dict[str, Any] | None) -> None:
        """Resume from a checkpoint, or what it holds, when the next run starts."""
        self._runner.state.resume_from = wanted

    def load(self, wanted: str | Path) -> dict[str, Any]:
        """Load a checkpoint that is named by its path, or by its bare name in a folder of this run, and return it."""
        return self.load_file(find_checkpoint(self._runner, wanted))

    def load_file(self, path: Path, check: Check | None = None, given: dict[str, Any] | None = None) -> dict[str, Any]:
        """Put a checkpoint back into model, optimizer, scheduler, hooks and trainer, and return it.

        Args:
            path: The checkpoint.
            check: Looks at the state before anything is changed, and may raise an error.
            given: What it holds, where that is no file; the path is then its name in messages.
        """
        self.wait_for_staging()
        runner = self._runner
        # An error that says so if it no longer exists.
        _ = runner.trainer
        objects = runner.services
        state = restore_objects(runner, objects, path, check, given)
        runner.checkpoint = state
        try:
            restore_progress(runner, objects, state, path)
            self._runner.installation.call("after_load_checkpoint", {"checkpoint": state, "path": path})
        finally:
            runner.checkpoint = None
        return state

    def resume(self, wanted: str | Path | bool | dict[str, Any] = "auto") -> None:
        """Continue from a checkpoint or what it holds; ``"auto"`` takes the newest intact one, if there is one."""
        resume_run(self._runner, wanted)

    def table(self) -> CheckpointTable:
        """Return what there is as data, which prints as a table."""
        runner = self._runner
        return CheckpointTable.of(runner.work_dir, runner.best)

    def __repr__(self) -> str:
        return repr(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()

    def close(self) -> None:
        """Release the optimizer and the folders; to be called when nothing is on its way any more."""
        self.wait_for_staging()
        if self._step_watch is not None:
            for watch in self._step_watch:
                watch.remove()
            self._step_watch, self._stepped_at = None, {}
        try:
            self.homes.close()
        finally:
            for store in self._stores.values():
                store.close()
            self._stores.clear()


def state_of_run(runner: Runner, request: SaveRequest) -> dict[str, Any]:
    """Return the state of the run, as hooks have edited it."""
    runner.checkpoint = state = capture(runner, optimizer=request.optimizer, scheduler=request.scheduler)
    try:
        runner.installation.call("before_save_checkpoint", {"checkpoint": state})
    finally:
        runner.checkpoint = None
    return state
