"""Where a run is in its data, and how a resumed run gets there again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ignite_hooks.checkpoint.capture import finished_epochs, finished_iterations
from ignite_hooks.errors import CheckpointError
from ignite_hooks.store.plain import random_state, set_random_state

if TYPE_CHECKING:
    from pathlib import Path

    from ignite.engine import Engine

    from ignite_hooks.run.runner import Runner

Dice = dict[str, Any]
"""Everything that decides what random numbers and which order come next, as plain types and tensors."""

IN_EVALUATION = "it was saved in the middle of an evaluation"
IN_ITERATION = "it was saved in the middle of an iteration"
_UNDER_WAY = ("GET_BATCH_STARTED", "GET_BATCH_COMPLETED", "DATALOADER_STOP_ITERATION", "ITERATION_STARTED")


@dataclass
class Mark:
    """A place from which a run goes on exactly, for as long as no further iteration is finished."""

    iteration: int
    epoch: int
    data: dict[str, Any]
    random: Mapping[str, Any]

    @property
    def dice(self) -> Dice:
        return {"random": self.random, "generators": self.data["generators"], "epochs": self.data["epochs"]}


@dataclass
class Made:
    """How the iterator that is in use was made: of which data, after which iteration, from which dice."""

    data: object
    iteration: int
    dice: Dice
    first: Dice | None = None
    """The dice at its first batch, where handlers were called between."""
    sized: bool = True
    """Whether Ignite knew the length of the epoch then."""


class Position:
    """Where one run of a trainer is in its data.

    Ignite keeps an iterator over the data until it is exhausted, whatever the length of an epoch. So a place is
    known by the dice from which the iterator was made, and by how many batches were drawn from it since. To get there
    again, an iterator is made from the same dice and as many batches are drawn and thrown away. What a dataset
    remembers by itself in this process is not known here.
    """

    def __init__(self) -> None:
        self._made: Made | None = None
        self._length: int | None = None
        """The length of data that does not know its own, once it has been read to its end."""
        self._mark: Mark | None = None
        self._resuming = False
        self._then: Dice | None = None
        """The dice to go on with at the first batch of a resumed run."""
        self._end: Dice | None = None
        self._failed = False

    # -- noting -----------------------------------------------------------------------------------------------

    def run_started(self, runner: Runner) -> None:
        """Before anything else that a run does."""
        self._mark = self._mark_now(runner, "run")

    def epoch_started(self, runner: Runner) -> None:
        """Before anything else that an epoch does."""
        if self._resuming:
            assert self._mark is not None
            state = runner.trainer.state
            if (self._mark.iteration, self._mark.epoch + 1) != (state.iteration, state.epoch):
                # The script has gone somewhere else in the meantime.
                self._resuming = False
            elif self._mark.data["at"] == "run":
                self._resuming = False
            else:
                if self._mark.data["at"] == "epoch":
                    _throw(runner.trainer.state.dataloader, self._mark.dice)
                return
        self._mark = self._mark_now(runner, "epoch")

    def iterator_due(self, runner: Runner) -> bool:
        """After all else that begins an epoch; whether the next batch is the first of an iterator."""
        engine = runner.trainer
        if self._resuming:
            self._prepare(engine)
            return True
        if engine._dataloader_iter is None:
            self.iterator_made(engine)
            return True
        return False

    def batches_left(self, engine: Engine) -> bool:
        """At the beginning of an epoch: whether the iterator in use may have batches left."""
        data, made = engine.state.dataloader, self._made
        if engine._dataloader_iter is None:
            return False
        if made is None or made.data is not data:
            return True
        length = self._length if _length(data) is None else _length(data)
        drawn = int(engine.state.iteration) - made.iteration
        # An epoch of unknown length ended where the data did.
        return drawn != (length if made.sized else engine.state.epoch_length)

    def iterator_made(self, engine: Engine) -> None:
        """Right before Ignite makes an iterator."""
        data, made = engine.state.dataloader, self._made
        if data is None or (isinstance(data, Iterator) and made is not None and made.data is data):
            return
        if made is not None and made.data is data and _length(data) is None and engine.state.iteration > made.iteration:
            self._length = engine.state.iteration - made.iteration
        sized = engine.state.epoch_length is not None
        self._made = Made(data, int(engine.state.iteration), _dice(data), sized=sized)

    def first_batch_comes(self, engine: Engine) -> None:
        """Right before the first batch is drawn from an iterator."""
        if self._made is not None and self._made.iteration == engine.state.iteration:
            self._made.first = _dice(self._made.data)

    def run_ends(self, engine: Engine) -> None:
        """Before anything that is only done because the run ends."""
        if self._end is None:
            self._end = _dice(engine.state.dataloader)

    def run_fails(self) -> None:
        """Before hooks hear of the failure: something was left half done."""
        self._failed = True

    def close(self, engine: Engine) -> None:
        """Leave nothing behind in an engine whose run ended before its first batch."""
        if self._resuming:
            self._resuming, engine._init_iter = False, None

    # -- saving -----------------------------------------------------------------------------------------------

    def saved(self, runner: Runner) -> tuple[dict[str, Any] | None, Mapping[str, Any]]:
        """The place for a checkpoint, and the state of the generators that belongs to it."""
        if _arranges_data_itself(runner.trainer):
            return None, random_state()
        mark = self._mark
        if mark is None:
            mark = self._mark_now(runner, "run")
        elif (mark.iteration, mark.epoch) != (finished_iterations(runner), finished_epochs(runner)):
            ended = finished_epochs(runner) == runner.trainer.state.epoch
            mark = self._mark_now(runner, "epoch" if ended else "iteration", self._doubt(runner, ended))
        elif runner.state.evaluating is not None:
            return {**mark.data, "doubt": IN_EVALUATION}, mark.random
        return mark.data, mark.random

    def _mark_now(self, runner: Runner, at: Literal["run", "epoch", "iteration"], doubt: str | None = None) -> Mark:
        engine, made = runner.trainer, self._made
        data, iteration = engine.state.dataloader, finished_iterations(runner)
        now = self._end or _dice(data)
        length = self._length if _length(data) is None else _length(data)
        if data is not None and (engine._dataloader_iter is not None if made is None else made.data is not data):
            doubt, made = "it was saved while data given by set_data was in use", None
        drawn = 0 if made is None else iteration - made.iteration
        # An epoch of unknown length ended where the data did.
        over = at == "epoch" and made is not None and not made.sized and drawn == engine.state.epoch_length
        over = made is not None and (over or (drawn == length and not isinstance(data, Iterator)))
        if over and not _ends_with_a_draw(data):
            made, drawn = None, 0
        found = {
            "kind": _kind(data),
            "length": length,
            "workers": getattr(data, "num_workers", 0) if _is_loader(data) else 0,
            "at": at,
            "done": 0 if at == "epoch" else iteration - runner.state.epoch_began_at,
            "drawn": drawn,
            "made": made and made.dice,
            "first": made and made.first,
            "over": over,
            "sized": made is None or made.sized,
            # In the middle of an iteration they are a batch ahead; reading again leaves them where they belong.
            "generators": {} if doubt == IN_ITERATION else now["generators"],
            "epochs": now["epochs"],
            "again": bool(getattr(data, "persistent_workers", False)) and self._is_used(data, made),
            "doubt": doubt,
        }
        return Mark(iteration, finished_epochs(runner), found, now["random"])

    def _doubt(self, runner: Runner, ended: bool) -> str | None:
        """Why a checkpoint that is made now cannot be gone on from exactly."""
        if runner.state.evaluating is not None:
            return IN_EVALUATION
        if str(getattr(runner.trainer.last_event_name, "name", "")) in _UNDER_WAY:
            return IN_ITERATION
        if (ended or runner.trainer.should_terminate_single_epoch) and not runner.state.epoch_complete:
            return "it was saved before everything was done that belongs to the end of its epoch"
        return "it was saved when the run failed, with what it was doing half done" if self._failed else None

    def _is_used(self, data: Any, made: Made | None) -> bool:
        """Whether the iterator to be made is not the first of a loader that keeps its workers."""
        return getattr(data, "_iterator", None) is not None if made is None else bool(made.dice["used"])

    # -- resuming ---------------------------------------------------------------------------------------------

    def resume(self, runner: Runner, state: Mapping[str, Any], path: Path) -> None:
        """Go on from the place that a checkpoint names; what cannot be exact is told."""
        engine, saved, progress = runner.trainer, state.get("data"), state.get("trainer", {})
        if _arranges_data_itself(engine):
            doubts = [f"{type(engine).__name__} arranges its data itself"]
        elif saved is None or "random" not in state or "iteration" not in progress:
            doubts = ["it does not say where in its data the run was"]
        else:
            check_place(saved, progress, path)
            self._mark = Mark(progress["iteration"], progress["epoch"], saved, state["random"])
            self._resuming = True
            if engine.state.epoch_length is None:
                # Ignite finds it out in the first epoch; this run may not see the whole of one.
                engine.state.epoch_length = progress["epoch_length"]
            data = engine.state.dataloader
            if _length(data) is None and saved["kind"] == _kind(data):
                self._length = saved["length"]
            doubts = list(_doubts(saved, data))
        if doubts:
            runner.logger.warning("going on from %s is approximate: %s", path.name, "; ".join(doubts))

    def made_up(self, runner: Runner) -> None:
        """Something was done now that should have been done before the checkpoint, with the random numbers it took."""
        if self._resuming and self._mark is not None:
            now = _dice(runner.trainer.state.dataloader)
            self._mark.random = now["random"]
            self._mark.data = {**self._mark.data, "generators": now["generators"], "epochs": now["epochs"]}

    def done(self, engine: Engine) -> int:
        """How many iterations of its epoch a run that starts has behind it."""
        iteration, length = int(engine.state.iteration), engine.state.epoch_length
        if self._resuming and self._mark is not None and self._mark.data["at"] != "run":
            # Not to be had from the number of iterations where an epoch ended early.
            done = int(self._mark.data["done"])
            if length is None or done < length:
                return done
        return iteration % length if length else 0

    def _prepare(self, engine: Engine) -> None:
        """Let the iterator be made as it was made before."""
        assert self._mark is not None
        data: Any = engine.state.dataloader
        saved, iteration = self._mark.data, self._mark.iteration
        self._then = _dice(data) if saved["at"] == "epoch" else self._mark.dice
        engine._init_iter = self.done(engine)
        if saved["again"] and getattr(data, "_iterator", self) is None:
            # The first iterator of such a loader draws a number more than the later ones.
            iter(data)
            _throw(data, self._then)
        self._made = None
        if saved["over"] and data is not None and engine.state.epoch_length is not None:
            # As in the run that is gone on with: the iterator has come to its end, and Ignite is about to find out.
            engine._dataloader_iter = iter(()) if saved["made"] is None else _end_of(data, saved)
            _throw(data, self._then)
        elif saved["made"] is not None and data is not None:
            self._made = Made(data, iteration - saved["drawn"], saved["made"], saved["first"], saved["sized"])
            _throw(data, saved["made"])
        else:
            self.iterator_made(engine)

    def first_batch(self, runner: Runner) -> None:
        """Before anything else that is done for the first batch of a resumed run: get to the saved place."""
        if not self._resuming:
            return
        assert self._mark is not None
        engine, saved, then = runner.trainer, self._mark.data, self._then
        batches: Any = engine._dataloader_iter
        assert then is not None
        if self._made is not None and saved["made"] is not None:
            if saved["first"] is not None:
                _throw(self._made.data, saved["first"])
            if saved["drawn"]:
                runner.logger.info("reading %d batches again to go on where the run was", saved["drawn"])
            for number in range(saved["drawn"]):
                if runner.stop_reason is not None:
                    return
                try:
                    next(batches)
                except StopIteration:
                    runner.logger.warning("the data ended after %d of %d batches", number, saved["drawn"])
                    break
        if saved["at"] == "iteration" or (self._made is not None and saved["made"] is not None):
            _throw(engine.state.dataloader, then)
        self._resuming = False


PLACE: Mapping[str, Callable[[Any], bool]] = {
    "kind": lambda value: isinstance(value, str) and value != "",
    "length": lambda value: value is None or _is_count(value),
    "workers": lambda value: _is_count(value),
    "at": lambda value: isinstance(value, str) and value in ("run", "epoch", "iteration"),
    "done": lambda value: _is_count(value),
    "drawn": lambda value: _is_count(value),
    "made": lambda value: value is None or _are_dice(value),
    "first": lambda value: value is None or _are_dice(value),
    "over": lambda value: isinstance(value, bool),
    "sized": lambda value: isinstance(value, bool),
    "generators": lambda value: isinstance(value, dict),
    "epochs": lambda value: isinstance(value, dict) and all(map(_is_count, value.values())),
    "again": lambda value: isinstance(value, bool),
    "doubt": lambda value: value is None or isinstance(value, str),
}
"""What a checkpoint says of a place, and how each of it looks: a file may hold anything."""


def check_place(saved: Any, progress: Any, path: Path) -> None:
    """Refuse what cannot be a place in the data."""
    whole = isinstance(saved, dict) and isinstance(progress, dict)
    wrong = [name for name, fits in PLACE.items() if name not in saved or not fits(saved[name])] if whole else ["data"]
    if not wrong:
        counts = [progress.get("iteration"), progress.get("epoch")]
        length = progress.get("epoch_length")
        if not all(map(_is_count, counts)) or not (length is None or _is_count(length)):
            wrong = ["trainer"]
        elif saved["drawn"] > progress["iteration"]:
            wrong = ["drawn"]
    if wrong:
        raise CheckpointError(f"{path} says nonsense of the place in the data: {', '.join(wrong)}")


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _are_dice(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("random"), dict) or "used" not in value:
        return False
    return all(word in value and PLACE[word](value[word]) for word in ("generators", "epochs"))


def _doubts(saved: Mapping[str, Any], data: Any) -> Iterator[str]:
    """Why going on with this data cannot be exact."""
    if saved["doubt"] is not None:
        yield saved["doubt"]
    if saved["kind"] != _kind(data):
        yield f"the data was {_words(saved['kind'])} and is {_words(_kind(data))}"
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


def _words(kind: str) -> str:
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
    """Whether a generator may be drawn from when the end of the data is found out, as RandomSampler does."""
    return _is_loader(data) and data.num_workers == 0 and not _is_stream(data) and bool(_generators(_parts(data)))


def _end_of(data: Any, saved: Mapping[str, Any]) -> Iterator[Any]:
    """An iterator that ends as that of a loader does; the batches are not loaded, their indices are enough."""
    if not _ends_with_a_draw(data):
        return iter(())
    _throw(data, saved["first"] or saved["made"])
    indices = iter(data.sampler if data.batch_sampler is None else data.batch_sampler)
    for _ in range(saved["drawn"]):
        next(indices, None)

    def end() -> Iterator[Any]:
        next(indices, None)
        yield from ()

    return end()


def _length(data: Any) -> int | None:
    if _is_stream(data) and data.num_workers > 1:
        # Torch computes it as if one worker made all batches, and each may give a last one that is not full.
        return None
    try:
        return len(data) if hasattr(data, "__len__") else None
    except TypeError:
        # A loader has the method whether or not its dataset has a length.
        return None


def _arranges_data_itself(engine: Engine) -> bool:
    """Whether an engine, such as Ignite's DeterministicEngine, has a way of its own to make the iterator."""
    from ignite.engine import Engine

    return type(engine)._setup_engine is not Engine._setup_engine


@contextlib.contextmanager
def drawn_again(data: object) -> Iterator[None]:
    """What is drawn at random within, from the data or anywhere else, will be drawn again afterwards."""
    dice = _dice(data)
    try:
        yield
    finally:
        _throw(data, dice)


def _dice(data: object) -> Dice:
    parts = _parts(data)
    return {
        "random": random_state(),
        "generators": {name: generator.get_state() for name, generator in _generators(parts).items()},
        "epochs": {name: part.epoch for name, part in parts.items() if _counts_epochs(part)},
        "used": getattr(data, "_iterator", None) is not None,
    }


def _throw(data: object, dice: Dice) -> None:
    """Put everything back that decides what comes next; what is not there any more is left out."""
    set_random_state(dice["random"])
    parts = _parts(data)
    for name, generator in _generators(parts).items():
        if name in dice["generators"]:
            try:
                generator.set_state(dice["generators"][name])
            except (TypeError, RuntimeError) as error:
                raise CheckpointError(f"the state of the generator {name} cannot be restored: {error}") from error
    for name, epoch in dice["epochs"].items():
        if _counts_epochs(parts.get(name)) and parts[name].epoch != epoch:
            parts[name].set_epoch(epoch)


def _parts(data: object) -> dict[str, Any]:
    """A loader and its samplers, samplers of samplers included."""
    found: dict[str, Any] = {}
    rest = [("", data)]
    while rest:
        place, part = rest.pop(0)
        if part is None or place.count(".") > 4 or any(part is other for other in found.values()):
            continue
        found[place] = part
        rest += [(f"{place}{name}.", getattr(part, name, None)) for name in ("sampler", "batch_sampler")]
    return found


def _generators(parts: Mapping[str, Any]) -> dict[str, Any]:
    import torch

    found: dict[str, Any] = {}
    for place, part in parts.items():
        for name, value in getattr(part, "__dict__", {}).items():
            if isinstance(value, torch.Generator) and not any(value is other for other in found.values()):
                found[f"{place}{name}"] = value
    return found


def _counts_epochs(part: Any) -> bool:
    return callable(getattr(part, "set_epoch", None)) and isinstance(getattr(part, "epoch", None), int)
