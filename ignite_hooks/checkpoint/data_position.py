"""Where a run is in its data, and how a resumed run gets there again."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ignite_hooks.checkpoint.rng_state import (
    RngState,
    loader_generators,
    loader_parts,
    random_state,
    restore_rng,
    rng_state,
)
from ignite_hooks.errors import CheckpointError
from ignite_hooks.run.progress import Progress, progress_of

if TYPE_CHECKING:
    from pathlib import Path

    from ignite.engine import Engine

    from ignite_hooks.run.runner import Runner

IN_EVALUATION = "it was saved in the middle of an evaluation"
IN_ITERATION = "it was saved in the middle of an iteration"
_UNDER_WAY = ("GET_BATCH_STARTED", "GET_BATCH_COMPLETED", "DATALOADER_STOP_ITERATION", "ITERATION_STARTED")


@dataclass
class DataPosition:
    """A position from which a run continues exactly, as long as no further iteration is finished."""

    iteration: int
    epoch: int
    data: dict[str, Any]
    random: Mapping[str, Any]

    @property
    def rng(self) -> RngState:
        """The state of all generators at this position."""
        return {"random": self.random, "generators": self.data["generators"], "epochs": self.data["epochs"]}


@dataclass
class IteratorOrigin:
    """How the iterator that is in use was made: from which data, after which iteration, with which random state."""

    data: object
    iteration: int
    rng: RngState
    first: RngState | None = None
    """The random state at its first batch, where handlers ran in between."""
    sized: bool = True
    """Whether Ignite knew the length of the epoch at that time."""


class PositionTracker:
    """Follows one run through its data, and leads a resumed run back to the saved position.

    Ignite keeps an iterator over the data until it is exhausted, whatever the length of an epoch. So a position is
    defined by the random state from which the iterator was made and the number of batches drawn from it since. To
    get back, an iterator is made from the same random state, and as many batches are drawn and discarded. State that
    a dataset keeps inside this process is not known here.
    """

    def __init__(self, runner: Runner, trainer: Engine) -> None:
        # Weak: the trainer owns the runner, and the runner owns this.
        self._runner_ref, self._trainer_ref = weakref.ref(runner), weakref.ref(trainer)
        self._origin: IteratorOrigin | None = None
        self._length: int | None = None
        """The length of data that does not know its own, once it has been read to its end."""
        self._position: DataPosition | None = None
        self._resuming = False
        self._rng_at_first_batch: RngState | None = None
        """The random state to continue with at the first batch of a resumed run."""
        self._rng_at_run_end: RngState | None = None
        self._failed = False

    @property
    def _runner(self) -> Runner:
        runner = self._runner_ref()
        assert runner is not None
        return runner

    @property
    def _trainer(self) -> Engine:
        trainer = self._trainer_ref()
        assert trainer is not None
        return trainer

    # -- following the run ------------------------------------------------------------------------------------

    def run_started(self) -> None:
        """Note the position before a run does anything else."""
        self._position = self._position_now("run")

    def epoch_started(self) -> None:
        """Note the position before an epoch does anything else."""
        if self._resuming:
            assert self._position is not None
            state = self._trainer.state
            if (self._position.iteration, self._position.epoch + 1) != (state.iteration, state.epoch):
                # The script has moved the run somewhere else in the meantime.
                self._resuming = False
            elif self._position.data["at"] == "run":
                self._resuming = False
            else:
                if self._position.data["at"] == "epoch":
                    restore_rng(state.dataloader, self._position.rng)
                return
        self._position = self._position_now("epoch")

    def iterator_due(self) -> bool:
        """Prepare for a new iterator when all handlers that begin an epoch have run; return whether there is one."""
        if self._resuming:
            self._prepare_iterator()
            return True
        if self._trainer._dataloader_iter is None:
            self.iterator_made()
            return True
        return False

    def batches_left(self) -> bool:
        """Return at the beginning of an epoch whether the iterator in use may have batches left."""
        engine, origin = self._trainer, self._origin
        data = engine.state.dataloader
        if engine._dataloader_iter is None:
            return False
        if origin is None or origin.data is not data:
            return True
        length = self._length if _length(data) is None else _length(data)
        drawn = int(engine.state.iteration) - origin.iteration
        # An epoch of unknown length ended where the data did.
        return drawn != (length if origin.sized else engine.state.epoch_length)

    def iterator_made(self) -> None:
        """Note the origin of an iterator right before Ignite makes it."""
        state, origin = self._trainer.state, self._origin
        data = state.dataloader
        if data is None or (isinstance(data, Iterator) and origin is not None and origin.data is data):
            return
        if origin is not None and origin.data is data and _length(data) is None and state.iteration > origin.iteration:
            self._length = state.iteration - origin.iteration
        sized = state.epoch_length is not None
        self._origin = IteratorOrigin(data, int(state.iteration), rng_state(data), sized=sized)

    def first_batch_comes(self) -> None:
        """Note the random state right before the first batch is drawn from an iterator."""
        if self._origin is not None and self._origin.iteration == self._trainer.state.iteration:
            self._origin.first = rng_state(self._origin.data)

    def run_ends(self) -> None:
        """Note the random state before anything that is only done because the run ends."""
        if self._rng_at_run_end is None:
            self._rng_at_run_end = rng_state(self._trainer.state.dataloader)

    def run_fails(self) -> None:
        """Note before hooks hear of a failure that something was left half done."""
        self._failed = True

    def close(self) -> None:
        """Leave nothing behind in an engine whose run ended before its first batch."""
        if self._resuming:
            self._resuming, self._trainer._init_iter = False, None

    # -- saving -----------------------------------------------------------------------------------------------

    def capture(self, progress: Progress) -> tuple[dict[str, Any] | None, Mapping[str, Any]]:
        """Return the position for a checkpoint, and the state of the generators that belongs to it."""
        if _arranges_data_itself(self._trainer):
            return None, random_state()
        position = self._position
        if position is None:
            position = self._position_now("run", progress)
        elif (position.iteration, position.epoch) != (progress.iteration, progress.epoch):
            ended = progress.epoch == self._trainer.state.epoch
            position = self._position_now("epoch" if ended else "iteration", progress, self._doubt(ended))
        elif self._runner.state.evaluating is not None:
            return {**position.data, "doubt": IN_EVALUATION}, position.random
        return position.data, position.random

    def _position_now(
        self,
        at: Literal["run", "epoch", "iteration"],
        progress: Progress | None = None,
        doubt: str | None = None,
    ) -> DataPosition:
        engine, runner, origin = self._trainer, self._runner, self._origin
        progress = progress or progress_of(runner)
        data, iteration = engine.state.dataloader, progress.iteration
        now = self._rng_at_run_end or rng_state(data)
        length = self._length if _length(data) is None else _length(data)
        foreign = engine._dataloader_iter is not None if origin is None else origin.data is not data
        if data is not None and foreign:
            doubt, origin = "it was saved while data given by set_data was in use", None
        drawn = 0 if origin is None else iteration - origin.iteration
        # An epoch of unknown length ended where the data did.
        over = at == "epoch" and origin is not None and not origin.sized and drawn == engine.state.epoch_length
        over = origin is not None and (over or (drawn == length and not isinstance(data, Iterator)))
        if over and not _ends_with_a_draw(data):
            origin, drawn = None, 0
        found = {
            "kind": _kind(data),
            "length": length,
            "workers": getattr(data, "num_workers", 0) if _is_loader(data) else 0,
            "at": at,
            "done": 0 if at == "epoch" else iteration - runner.state.epoch_began_at,
            "drawn": drawn,
            "made": origin and origin.rng,
            "first": origin and origin.first,
            "over": over,
            "sized": origin is None or origin.sized,
            # In the middle of an iteration they are one batch ahead; reading again leaves them where they belong.
            "generators": {} if doubt == IN_ITERATION else now["generators"],
            "epochs": now["epochs"],
            "again": bool(getattr(data, "persistent_workers", False)) and _is_reused(data, origin),
            "doubt": doubt,
        }
        return DataPosition(iteration, progress.epoch, found, now["random"])

    def _doubt(self, ended: bool) -> str | None:
        """Return why a run cannot continue exactly from a checkpoint made now, or None."""
        runner, engine = self._runner, self._trainer
        if runner.state.evaluating is not None:
            return IN_EVALUATION
        if str(getattr(engine.last_event_name, "name", "")) in _UNDER_WAY:
            return IN_ITERATION
        if (ended or engine.should_terminate_single_epoch) and not runner.state.epoch_complete:
            return "it was saved before everything was done that belongs to the end of its epoch"
        return "it was saved when the run failed, with what it was doing half done" if self._failed else None

    # -- resuming ---------------------------------------------------------------------------------------------

    def resume(self, state: Mapping[str, Any], path: Path) -> None:
        """Continue from the position in a checkpoint; warn of everything that cannot be exact."""
        engine, saved, progress = self._trainer, state.get("data"), state.get("trainer", {})
        if _arranges_data_itself(engine):
            doubts = [f"{type(engine).__name__} arranges its data itself"]
        elif saved is None or "random" not in state or "iteration" not in progress:
            doubts = ["it does not say where in its data the run was"]
        else:
            check_position(saved, progress, path)
            self._position = DataPosition(progress["iteration"], progress["epoch"], saved, state["random"])
            self._resuming = True
            if engine.state.epoch_length is None:
                # Ignite finds it out in the first epoch, of which this run may see only a part.
                engine.state.epoch_length = progress["epoch_length"]
            data = engine.state.dataloader
            if _length(data) is None and saved["kind"] == _kind(data):
                self._length = saved["length"]
            doubts = list(_doubts(saved, data))
        if doubts:
            self._runner.logger.warning("resuming from %s is approximate: %s", path.name, "; ".join(doubts))

    def redo_evaluation(self) -> None:
        """Take over the random state after an evaluation that was due before the checkpoint and is done only now."""
        if self._resuming and self._position is not None:
            now = rng_state(self._trainer.state.dataloader)
            self._position.random = now["random"]
            self._position.data = {**self._position.data, "generators": now["generators"], "epochs": now["epochs"]}

    def iterations_done(self) -> int:
        """Return how many iterations of its epoch a run that starts has behind it."""
        state = self._trainer.state
        length = state.epoch_length
        if self._resuming and self._position is not None and self._position.data["at"] != "run":
            # Cannot be derived from the iteration count if an epoch ended early.
            done = int(self._position.data["done"])
            if length is None or done < length:
                return done
        return int(state.iteration) % length if length else 0

    def _prepare_iterator(self) -> None:
        """Restore what is needed so that the iterator is made as it was made before."""
        assert self._position is not None
        engine = self._trainer
        data: Any = engine.state.dataloader
        saved, iteration = self._position.data, self._position.iteration
        self._rng_at_first_batch = rng_state(data) if saved["at"] == "epoch" else self._position.rng
        engine._init_iter = self.iterations_done()
        if saved["again"] and getattr(data, "_iterator", self) is None:
            # The first iterator of such a loader draws one number more than the later ones.
            iter(data)
            restore_rng(data, self._rng_at_first_batch)
        self._origin = None
        if saved["over"] and data is not None and engine.state.epoch_length is not None:
            # As in the original run: the iterator is at its end, and Ignite is about to find out.
            engine._dataloader_iter = iter(()) if saved["made"] is None else _end_of(data, saved)
            restore_rng(data, self._rng_at_first_batch)
        elif saved["made"] is not None and data is not None:
            self._origin = IteratorOrigin(
                data, iteration - saved["drawn"], saved["made"], saved["first"], saved["sized"]
            )
            restore_rng(data, saved["made"])
        else:
            self.iterator_made()

    def skip_to_position(self) -> None:
        """Draw the batches of a resumed run that its position has behind it; do nothing in other runs."""
        if not self._resuming:
            return
        assert self._position is not None
        runner, engine, origin = self._runner, self._trainer, self._origin
        saved, rng = self._position.data, self._rng_at_first_batch
        batches: Any = engine._dataloader_iter
        assert rng is not None
        if origin is not None and saved["made"] is not None:
            if saved["first"] is not None:
                restore_rng(origin.data, saved["first"])
            if saved["drawn"]:
                runner.logger.info("reading %d batches again to get back to the saved position", saved["drawn"])
            for number in range(saved["drawn"]):
                if runner.state.stop_reason is not None:
                    return
                try:
                    next(batches)
                except StopIteration:
                    runner.logger.warning("the data ended after %d of %d batches", number, saved["drawn"])
                    break
        if saved["at"] == "iteration" or (self._origin is not None and saved["made"] is not None):
            restore_rng(engine.state.dataloader, rng)
        self._resuming = False


VALID: Mapping[str, Callable[[Any], bool]] = {
    "kind": lambda value: isinstance(value, str) and value != "",
    "length": lambda value: value is None or _is_count(value),
    "workers": lambda value: _is_count(value),
    "at": lambda value: isinstance(value, str) and value in ("run", "epoch", "iteration"),
    "done": lambda value: _is_count(value),
    "drawn": lambda value: _is_count(value),
    "made": lambda value: value is None or _is_rng_state(value),
    "first": lambda value: value is None or _is_rng_state(value),
    "over": lambda value: isinstance(value, bool),
    "sized": lambda value: isinstance(value, bool),
    "generators": lambda value: isinstance(value, dict),
    "epochs": lambda value: isinstance(value, dict) and all(map(_is_count, value.values())),
    "again": lambda value: isinstance(value, bool),
    "doubt": lambda value: value is None or isinstance(value, str),
}
"""The entries of a position in a checkpoint, and when each is valid: a file may hold anything."""


def check_position(saved: Any, progress: Any, path: Path) -> None:
    """Raise `CheckpointError` for what cannot be a position in the data."""
    whole = isinstance(saved, dict) and isinstance(progress, dict)
    wrong = [name for name, fits in VALID.items() if name not in saved or not fits(saved[name])] if whole else ["data"]
    if not wrong:
        counts = [progress.get("iteration"), progress.get("epoch")]
        length = progress.get("epoch_length")
        if not all(map(_is_count, counts)) or not (length is None or _is_count(length)):
            wrong = ["trainer"]
        elif saved["drawn"] > progress["iteration"]:
            wrong = ["drawn"]
    if wrong:
        raise CheckpointError(f"{path}: invalid data position ({', '.join(wrong)})")


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _is_rng_state(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("random"), dict) or "used" not in value:
        return False
    return all(word in value and VALID[word](value[word]) for word in ("generators", "epochs"))


def _doubts(saved: Mapping[str, Any], data: Any) -> Iterator[str]:
    """Yield every reason why continuing with this data cannot be exact."""
    if saved["doubt"] is not None:
        yield saved["doubt"]
    if saved["kind"] != _kind(data):
        yield f"the data was {_with_article(saved['kind'])} and is {_with_article(_kind(data))}"
        return
    if _length(data) is not None and saved["length"] != _length(data):
        yield f"the data had {saved['length']} batches and has {_length(data)}"
    workers = data.num_workers if _is_loader(data) else 0
    if saved["workers"] != workers:
        yield f"the loader had {saved['workers']} workers and has {workers}"
    if saved["drawn"] and (isinstance(data, Iterator) or _length(data) is None or _is_stream(data)):
        yield "its data is read again from the start, and may not give the same batches"
    if saved["again"]:
        yield "workers that stay from epoch to epoch (persistent_workers) draw other random numbers"


def _with_article(kind: str) -> str:
    return kind if kind == "nothing" else f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def _kind(data: object) -> str:
    if data is None:
        return "nothing"
    return "DataLoader" if _is_loader(data) else "iterator" if isinstance(data, Iterator) else type(data).__name__


def _is_loader(data: object) -> bool:
    from torch.utils.data import DataLoader

    return isinstance(data, DataLoader)


def _is_stream(data: Any) -> bool:
    from torch.utils.data import IterableDataset

    return _is_loader(data) and isinstance(data.dataset, IterableDataset)


def _ends_with_a_draw(data: Any) -> bool:
    """Return whether reaching the end of the data may draw from a generator, as RandomSampler does."""
    loads_here = _is_loader(data) and data.num_workers == 0 and not _is_stream(data)
    return loads_here and bool(loader_generators(loader_parts(data)))


def _end_of(data: Any, saved: Mapping[str, Any]) -> Iterator[Any]:
    """Return an iterator that ends as that of a loader does; only the indices of the batches are drawn."""
    if not _ends_with_a_draw(data):
        return iter(())
    restore_rng(data, saved["first"] or saved["made"])
    indices = iter(data.sampler if data.batch_sampler is None else data.batch_sampler)
    for _ in range(saved["drawn"]):
        next(indices, None)

    def end() -> Iterator[Any]:
        next(indices, None)
        yield from ()

    return end()


def _length(data: Any) -> int | None:
    if _is_stream(data) and data.num_workers > 1:
        # Torch assumes that one worker makes all batches, but each worker may yield a last one that is not full.
        return None
    try:
        return len(data) if hasattr(data, "__len__") else None
    except TypeError:
        # A loader has the method whether or not its dataset has a length.
        return None


def _is_reused(data: Any, origin: IteratorOrigin | None) -> bool:
    """Return whether the iterator to be made is not the first of a loader that keeps its workers."""
    return getattr(data, "_iterator", None) is not None if origin is None else bool(origin.rng["used"])


def _arranges_data_itself(engine: Engine) -> bool:
    """Return whether an engine makes the iterator in another way, as Ignite's DeterministicEngine does."""
    from ignite.engine import Engine

    return type(engine)._setup_engine is not Engine._setup_engine
