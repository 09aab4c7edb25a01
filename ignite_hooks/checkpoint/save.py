"""Checkpoints on their way to the store: handed over, written beside the training, and heard of when they are there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ignite_hooks.checkpoint.capture import collect, is_sharded, name_for, steady_tensors
from ignite_hooks.distributed.collectives import broadcast_object, is_main_process, world_size
from ignite_hooks.errors import CheckpointError
from ignite_hooks.store.interface import ShardedStore

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner
    from ignite_hooks.store.interface import Retire, Saving
    from ignite_hooks.store.manifest import Kind

Then = Callable[[CheckpointError | None], None]


@dataclass(frozen=True)
class Order:
    """What is to be saved, under which name, and what comes of it.

    Args:
        name: The file name.
        kind: What the file is kept for.
        folder: Where; the work directory by default.
        optimizer: Whether the optimizer belongs to it.
        scheduler: Whether the scheduler belongs to it.
        background: Whether the training goes on while it is written.
        retire: Which older files go once this one is there.
        then: Told how it ended, in the thread of the training; without it a failure is raised.
    """

    name: str
    kind: Kind
    folder: Path | None = None
    optimizer: bool = True
    scheduler: bool = True
    background: bool = False
    retire: Retire | None = None
    then: Then | None = None


@dataclass
class _UnderWay:
    order: Order
    state: dict[str, Any]
    path: Path
    saving: Saving | None = None
    error: CheckpointError | None = None

    @property
    def ended(self) -> bool:
        return self.error is not None or (self.saving is not None and self.saving.done())


class Saves:
    """The checkpoints of one run that are on their way."""

    def __init__(self) -> None:
        self._under_way: list[_UnderWay] = []
        self._copying: Saving | None = None
        self._at_once = False
        self._watch: Any = None
        self.stepped_at: int | None = None
        """The iteration in which the optimizer last began a step; None where that is not known."""

    def save(self, runner: Runner, order: Order) -> Path:
        """Take the state as it is now and write it; hooks may edit it before and learn its path after."""
        # Where there are several processes, all of them hear of a save at the same moment.
        self.settle(runner, wait=world_size() > 1)
        state = collect(runner, optimizer=order.optimizer, scheduler=order.scheduler)
        runner.checkpoint = state
        try:
            runner.call_hook("before_save_checkpoint", checkpoint=state)
        finally:
            runner.checkpoint = None
        name, sharded = name_for(runner, order.name), is_sharded(runner.model)
        new = _UnderWay(order, state, (order.folder or runner.work_dir) / name)
        if sharded or is_main_process():
            try:
                if sharded:
                    self._write_shards(runner, new)
                else:
                    self._hand_over(runner, new)
            except CheckpointError as failure:
                new.error = failure
        self._under_way.append(new)
        if sharded or not order.background:
            self.settle(runner, wait=True)
        return new.path

    def _write_shards(self, runner: Runner, new: _UnderWay) -> None:
        """Write what every rank has a part of: all of them do it together, so the training waits."""
        from ignite_hooks.store.sharded import save_sharded

        store = runner.store(new.order.folder)
        if not isinstance(store, ShardedStore):
            raise CheckpointError(f"{new.path} cannot be saved: {type(store).__name__} takes no sharded models")
        new.path = save_sharded(store, new.path.name, new.state, **_details(new))

    def _hand_over(self, runner: Runner, new: _UnderWay) -> None:
        order, state, details = new.order, new.state, _details(new)
        store = runner.store(order.folder).open()
        self.wait_for_copy()
        if not order.background:
            new.path = store.save(order.name, state, **details)
            return
        # Between two iterations nothing but the optimizer changes weights; at the end of an epoch a script may.
        hidden = runner.state.in_iteration and not self._at_once and self.watch(runner)
        steady = steady_tensors(runner) if hidden else []
        new.saving = self._copying = store.begin(
            order.name, state, **details, steady=steady, done=runner.installation.wake
        )

    def watch(self, runner: Runner) -> bool:
        """Let the optimizer wait for a copy before each step, and note the step; False where it cannot."""
        register = getattr(runner.optimizer, "register_step_pre_hook", None)
        if self._watch is None and register is not None:
            state = runner.trainer.state

            def before_step(*_: Any) -> None:
                if self._copying is not None:
                    self.wait_for_copy()
                self.stepped_at = state.iteration

            self.stepped_at = 0
            self._watch = register(before_step)
        return self._watch is not None

    def wait_for_copy(self) -> None:
        """Return once the state may change."""
        if self._copying is not None:
            self._copying.wait_copied()
            self._copying = None

    def settle(self, runner: Runner, *, wait: bool, alone: bool = False) -> None:
        """Hear of the saves that have ended, in order; ``wait`` for all, ``alone`` where other ranks may be gone."""
        problem: Exception | None = None
        while self._under_way:
            first = self._under_way[0]
            if not wait and not first.ended:
                break
            del self._under_way[0]
            if first.saving is not None:
                try:
                    first.path = first.saving.wait()
                except CheckpointError as failure:
                    # Perhaps the script changes weights by hand: once is enough to learn of it.
                    first.error, self._at_once = failure, True
            if not alone:
                first.error = _agreed(first.error)
            try:
                self._tell(runner, first)
            except Exception as error:
                # The others have a right to be heard of too.
                problem = problem or error
        if problem is not None:
            raise problem

    def _tell(self, runner: Runner, ended: _UnderWay) -> None:
        if ended.error is None:
            runner.checkpoint = ended.state
            # A run that is killed goes on from here: what was written before has to be where it belongs.
            runner.writer.flush()
            try:
                runner.call_hook("after_save_checkpoint", checkpoint=ended.state, path=ended.path)
            finally:
                runner.checkpoint = None
        if ended.order.then is not None:
            ended.order.then(ended.error)
        elif ended.error is not None:
            raise ended.error

    def close(self) -> None:
        """Let go of the optimizer; to be called when nothing is under way any more."""
        self.wait_for_copy()
        if self._watch is not None:
            self._watch.remove()
            self._watch = None
            self.stepped_at = None


def _details(new: _UnderWay) -> dict[str, Any]:
    """What the store is told of a checkpoint."""
    order, state = new.order, new.state
    found = {
        "kind": order.kind,
        "epoch": state["meta"]["epoch"],
        "iteration": state["meta"]["iter"],
        "metrics": {metric: entry["value"] for metric, entry in state["metrics"].items()},
    }
    return found if order.retire is None else {**found, "retire": order.retire}


def _agreed(error: CheckpointError | None) -> CheckpointError | None:
    """How a save ended, on every rank: rank 0 did it."""
    if world_size() == 1:
        return error
    said = broadcast_object(None if error is None else str(error))
    return CheckpointError(f"rank 0: {said}") if said is not None and not is_main_process() else error
