"""Where a run is in its data, and how a resumed run gets there again."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from ignite_hooks.checkpoint.data.deterministic_engine import (
    arranges_its_data,
    is_remade,
    iterate_as_before,
    random_state_of_pass,
    replace_loader,
    restore_seed,
    seed_of,
    skipped_batches,
)
from ignite_hooks.checkpoint.data.loader_parts import order_of
from ignite_hooks.checkpoint.data.origin import DataPosition, IteratorOrigin
from ignite_hooks.checkpoint.data.position_format import check_position, doubts_about, kind_of, length_of
from ignite_hooks.checkpoint.data.rest_of_epoch import Rest, counts_of, iterate_rest, length_offset, recount
from ignite_hooks.checkpoint.data.skip import (
    end_of,
    ends_with_a_draw,
    is_reused,
    iterate_by_index,
    iterate_by_state,
    state_of_loader,
    watch_workers,
)
from ignite_hooks.checkpoint.rng_state import RngState, random_state, restore_rng, rng_state
from ignite_hooks.checkpoint.script.own_state import OwnState
from ignite_hooks.model.loader_workers import is_loader
from ignite_hooks.model.worker_generators import WorkerReport
from ignite_hooks.model.wrapping import has_buffers
from ignite_hooks.run.progress import Progress, progress_of

if TYPE_CHECKING:
    from pathlib import Path

    from ignite.engine import Engine

    from ignite_hooks.run.runner import Runner

IN_EVALUATION = "it was saved in the middle of an evaluation"
IN_STEP = "it was saved after a step had begun, which may have changed buffers such as the statistics of BatchNorm"
IN_ITERATION = "it was saved in the middle of an iteration"
BEFORE_SCRIPT = "it was saved before the script's own handlers of the end of its epoch, such as a scheduler's step"
BEFORE_HOOKS = "it was saved by a handler of the script, before the hooks did what they do after each iteration"
IN_OTHER_DATA = "it was saved while data given by set_data was in use"
_UNDER_WAY = ("GET_BATCH_STARTED", "GET_BATCH_COMPLETED", "DATALOADER_STOP_ITERATION", "ITERATION_STARTED")


class PositionTracker:
    """Follows one run through its data, and leads a resumed run back to the saved position.

    Ignite keeps an iterator over the data until it is exhausted, whatever the length of an epoch. So a position is
    defined by the random state from which the iterator was made and the number of batches drawn from it since. To
    get back, an iterator is made from the same random state, and as many batches are drawn and discarded. The random
    state includes what samplers and data keep themselves, as far as `OwnState` knows it.
    """

    def __init__(self, runner: Runner, trainer: Engine) -> None:
        # Weak: the trainer owns the runner, and the runner owns this.
        self._runner_ref, self._trainer_ref = weakref.ref(runner), weakref.ref(trainer)
        self._origin: IteratorOrigin | None = None
        self._length: int | None = None
        """The length of data that does not know its own, once it has been read to its end."""
        self._position: DataPosition | None = None
        self._resuming = False
        self._rest: Rest | None = None
        """What is left of the epoch, if it is counted in another way than before."""
        self._rng_at_first_batch: RngState | None = None
        """The random state to continue with at the first batch of a resumed run."""
        self._rng_at_run_end: RngState | None = None
        self._failed = False
        self._is_there = False
        """Whether the iterator of a resumed run was made at its position."""
        self._workers: WorkerReport | None = None
        """What the workers of the iterator say about their generators."""
        self._own_state: tuple[object, OwnState] | None = None
        self._data_of_run: object = None
        """The data that was given to ``run()``."""

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
        replace_loader(self._trainer)
        # Before a resumed run puts anything back: what counters were at first is the same in each process.
        self._own(self._trainer.state.dataloader)
        self._data_of_run = self._trainer.state.dataloader
        if not self._resuming:
            self._position = self._position_now("run")

    def epoch_started(self) -> None:
        """Note the position before an epoch does anything else."""
        if self._resuming:
            assert self._position is not None
            state = self._trainer.state
            restore_seed(self._trainer, self._position.data)
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
            if self._runner.state.length_offset:
                self._trainer._init_iter = self.iterations_done()
            self.iterator_made()
            origin, random = self._origin, random_state_of_pass(self._trainer)
            if origin is not None and random is not None:
                origin.skipped = skipped_batches(self._trainer)
                origin.iteration -= origin.skipped
                origin.rng["random"] = random
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
        length = self._length if length_of(data) is None else length_of(data)
        length = length if origin.rest is None else origin.rest.batches
        drawn = int(engine.state.iteration) - origin.iteration
        # An epoch of unknown length ended where the data did.
        return drawn != (length if origin.sized else engine.state.epoch_length)

    def iterator_made(self) -> None:
        """Note the origin of an iterator right before Ignite makes it."""
        state, origin = self._trainer.state, self._origin
        data = state.dataloader
        if data is None or (isinstance(data, Iterator) and origin is not None and origin.data is data):
            return
        if (
            origin is not None
            and origin.data is data
            and length_of(data) is None
            and state.iteration > origin.iteration
        ):
            self._length = state.iteration - origin.iteration
        sized = state.epoch_length is not None
        self._origin = IteratorOrigin(data, int(state.iteration), rng_state(data, self._own(data)), sized=sized)
        self._watch_workers(data)

    def _watch_workers(self, data: object) -> None:
        """Let the workers of the iterator that is made next say whether they draw."""
        self._iterator_is_made()
        self._workers = watch_workers(data)

    def _iterator_is_made(self) -> None:
        if self._workers is not None:
            self._workers.give_back()

    def first_batch_comes(self) -> None:
        """Note the random state right before the first batch is drawn from an iterator."""
        self._iterator_is_made()
        origin = self._origin
        if origin is None or origin.rest is not None:
            return
        if origin.iteration + origin.skipped == self._trainer.state.iteration:
            origin.first = rng_state(origin.data, self._own(origin.data))

    def run_ends(self) -> None:
        """Note the random state before anything that is only done because the run ends."""
        if self._rng_at_run_end is None:
            data = self._trainer.state.dataloader
            self._rng_at_run_end = rng_state(data, self._own(data))

    def run_fails(self) -> None:
        """Note before hooks hear of a failure that something was left half done."""
        self._failed = True

    def close(self) -> None:
        """Leave nothing behind in an engine whose run ended before its first batch, nor in a loader."""
        self._iterator_is_made()
        if self._resuming:
            # A run that had nothing to train leaves its position to the next, which may ask for more epochs.
            self._resuming, self._trainer._init_iter = self._runner.state.idle_limit is not None, None

    @property
    def resuming(self) -> bool:
        """Whether the run is still to be led to the position of a checkpoint."""
        return self._resuming

    def begin_again(self) -> bool:
        """Return whether the run that begins is still to be led to the position of the checkpoint."""
        self._rng_at_run_end, self._failed = None, False
        return self._resuming

    def _has_other_data(self) -> bool:
        """Return whether the data is not what ``run()`` was given: the script has called ``set_data``."""
        data = self._trainer.state.dataloader
        return data is not self._data_of_run and not is_remade(data, self._data_of_run)

    def _own(self, data: object) -> OwnState:
        """Return what is known of the state of this data since it was first used."""
        if self._own_state is None or self._own_state[0] is not data:
            self._own_state = (data, OwnState(data))
        return self._own_state[1]

    # -- saving -----------------------------------------------------------------------------------------------

    def capture(self, progress: Progress) -> tuple[dict[str, Any] | None, Mapping[str, Any]]:
        """Return the position for a checkpoint, and the state of the generators that belongs to it."""
        if arranges_its_data(self._trainer):
            return None, random_state()
        position = self._position
        if position is None:
            position = self._position_now("run", progress)
        elif (position.iteration, position.epoch) != (progress.iteration, progress.epoch):
            ended = progress.epoch == self._trainer.state.epoch
            position = self._position_now("epoch" if ended else "iteration", progress, self._doubt(ended))
        elif self._runner.state.evaluating is not None:
            return {**position.data, "doubt": IN_EVALUATION}, position.random
        elif progress.in_step and has_buffers(self._runner.model):
            return {**position.data, "doubt": IN_STEP}, position.random
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
        self._iterator_is_made()
        with (own := self._own(data)).one_walk():
            now, unkept, still = self._rng_at_run_end or rng_state(data, own), own.unkept(), own.still()
        length = self._length if length_of(data) is None else length_of(data)
        foreign = engine._dataloader_iter is not None if origin is None else origin.data is not data
        if data is not None and foreign:
            doubt, origin = IN_OTHER_DATA, None
        drawn = 0 if origin is None else iteration - origin.iteration
        # An epoch of unknown length ended where the data did.
        over = at == "epoch" and origin is not None and not origin.sized and drawn == engine.state.epoch_length
        last = length if origin is None or origin.rest is None else origin.rest.batches
        over = origin is not None and (over or (drawn == last and not isinstance(data, Iterator)))
        used = origin is not None and drawn and doubt is None
        if over and not ends_with_a_draw(data):
            origin, drawn = None, 0
        noted = (now,) if origin is None else (now, origin.rng, origin.first)
        own.complete(*(state.get("own", {}) for state in noted if state is not None))
        found = {
            "kind": kind_of(data),
            "length": length,
            "workers": getattr(data, "num_workers", 0) if is_loader(data) else 0,
            "at": at,
            "done": 0 if at == "epoch" else iteration - runner.state.epoch_began_at,
            "drawn": drawn,
            "counts": counts_of(data, None if origin is None else origin.rest),
            "skipped": origin.rest.seen if origin is not None and origin.rest is not None else 0,
            "made": origin and origin.rng,
            "first": origin and origin.first,
            "over": over,
            "sized": origin is None or origin.sized,
            # In the middle of an iteration they are one batch ahead; reading again leaves them where they belong.
            "generators": {} if doubt == IN_ITERATION else now["generators"],
            "epochs": now["epochs"],
            "own": {} if doubt == IN_ITERATION else now["own"],
            "unkept": unkept,
            "order": order_of(data),
            "switched": self._has_other_data(),
            "seed": seed_of(engine),
            "again": bool(getattr(data, "persistent_workers", False)) and is_reused(data, origin),
            "doubt": doubt,
            "loader": state_of_loader(data) if used else None,
            "still": still,
            "untouched": self._workers is not None and self._workers.untouched(),
        }
        return DataPosition(iteration, progress.epoch, found, now["random"])

    def _doubt(self, ended: bool) -> str | None:
        """Return why a run cannot continue exactly from a checkpoint made now, or None."""
        runner, engine = self._runner, self._trainer
        if runner.state.evaluating is not None:
            return IN_EVALUATION
        event = str(getattr(engine.last_event_name, "name", ""))
        if event in _UNDER_WAY:
            return IN_ITERATION
        if event == "ITERATION_COMPLETED" and not runner.state.in_iteration and runner.installation.counts_iterations():
            return BEFORE_HOOKS
        if ended and runner.state.script_to_come:
            return BEFORE_SCRIPT
        if (ended or engine.should_terminate_single_epoch) and not runner.state.epoch_complete:
            return "it was saved before everything was done that belongs to the end of its epoch"
        return "it was saved when the run failed, with what it was doing half done" if self._failed else None

    # -- resuming ---------------------------------------------------------------------------------------------

    def resume(self, state: Mapping[str, Any], path: Path, others: Iterable[str] = ()) -> None:
        """Continue from the position in a checkpoint; warn of everything that cannot be exact, and of other doubts."""
        engine, saved, progress = self._trainer, state.get("data"), state.get("trainer", {})
        if arranges_its_data(engine):
            doubts = [f"{type(engine).__name__} arranges its data itself"]
        elif saved is None or "random" not in state or "iteration" not in progress:
            doubts = ["it does not say where in its data the run was"]
        else:
            check_position(saved, progress, path)
            if engine.state.epoch_length is None:
                # Ignite finds it out in the first epoch, of which this run may see only a part.
                engine.state.epoch_length = progress["epoch_length"]
            data, length = engine.state.dataloader, engine.state.epoch_length
            self._rest = rest = recount(saved, progress["epoch_length"], data, length)
            self._position = DataPosition(progress["iteration"], progress["epoch"], rest.position, state["random"])
            self._resuming = True
            self._runner.state.length_offset = length_offset(progress, rest.position["done"], length)
            if length_of(data) is None and saved["kind"] == kind_of(data):
                self._length = saved["length"]
            doubts = [*doubts_about(saved, data, recounted=bool(rest.told)), *rest.told]
        if doubts := [*doubts, *others]:
            self._runner.logger.warning("resuming from %s is approximate: %s", path.name, "; ".join(doubts))

    def iterations_done(self) -> int:
        """Return how many iterations of its epoch a run that starts has behind it."""
        state = self._trainer.state
        length = state.epoch_length
        if self._resuming and self._position is not None and self._position.data["at"] != "run":
            # Cannot be derived from the iteration count if an epoch ended early.
            done = int(self._position.data["done"])
            if length is None or done < length:
                return done
        return (int(state.iteration) - self._runner.state.length_offset) % length if length else 0

    def _prepare_iterator(self) -> None:
        """Restore what is needed so that the iterator is made as it was made before."""
        assert self._position is not None
        engine = self._trainer
        data: Any = engine.state.dataloader
        saved, iteration = self._position.data, self._position.iteration
        if saved.get("switched") and saved["doubt"] != IN_OTHER_DATA and not self._has_other_data():
            self._runner.logger.warning(
                "resuming is approximate: %s, and the script has not given it again", IN_OTHER_DATA
            )
        self._rng_at_first_batch = rng_state(data, self._own(data)) if saved["at"] == "epoch" else self._position.rng
        engine._init_iter = self.iterations_done()
        random_state_of_pass(engine)
        if saved["again"] and getattr(data, "_iterator", self) is None:
            # The first iterator of such a loader draws one number more than the later ones.
            iter(data)
            restore_rng(data, self._rng_at_first_batch)
        self._origin = None
        if self._rest is not None and self._rest.batches is not None:
            engine._dataloader_iter = iterate_rest(saved, data, self._rest.seen)
            self._origin = IteratorOrigin(
                data, iteration, saved["made"], saved["first"], saved["sized"], rest=self._rest
            )
            restore_rng(data, self._rng_at_first_batch)
        elif self._continues_by_state(saved, data):
            if saved["over"]:
                # Its next batch is of the next pass, or it says that it is at its end.
                self.iterator_made()
            else:
                self._origin = self._position.origin(data)
        elif saved["over"] and data is not None and engine.state.epoch_length is not None:
            # As in the original run: the iterator is at its end, and Ignite is about to find out.
            engine._dataloader_iter = iter(()) if saved["made"] is None else end_of(data, saved)
            restore_rng(data, self._rng_at_first_batch)
        elif saved["made"] is not None and data is not None:
            self._origin = self._position.origin(data)
            batches = iterate_by_index(saved, data, self._runner.checkpoints.skip, self._watch_workers)
            self._is_there = batches is not None
            if batches is not None:
                engine._dataloader_iter = batches
                restore_rng(data, self._rng_at_first_batch, read_again=True)
            else:
                restore_rng(data, saved["made"])
                self._watch_workers(data)
                iterate_as_before(engine)
        else:
            self.iterator_made()

    def _continues_by_state(self, saved: Mapping[str, Any], data: Any) -> bool:
        """Return whether the iterator was made from the state that the loader has kept itself."""
        assert self._rng_at_first_batch is not None
        batches = iterate_by_state(saved, data, self._runner.checkpoints.skip)
        self._is_there = batches is not None
        if batches is not None:
            self._trainer._dataloader_iter = batches
            restore_rng(data, self._rng_at_first_batch, read_again=True)
        return self._is_there

    def skip_to_position(self) -> None:
        """Draw the batches of a resumed run that its position has behind it; do nothing in other runs."""
        if not self._resuming:
            return
        assert self._position is not None
        runner, engine, origin = self._runner, self._trainer, self._origin
        saved, rng = self._position.data, self._rng_at_first_batch
        batches: Any = engine._dataloader_iter
        assert rng is not None
        if origin is not None and origin.rest is None and saved["made"] is not None:
            if saved["first"] is not None and not self._is_there:
                restore_rng(origin.data, saved["first"], read_again=True)
            if saved["drawn"] and not saved["over"]:
                how = "skipping the first %d batches" if self._is_there else "reading %d batches again"
                runner.logger.info(f"{how} to get back to the saved position", saved["drawn"])
            for number in range(0 if self._is_there else saved["drawn"]):
                if runner.state.stop_reason is not None:
                    return
                try:
                    next(batches)
                except StopIteration:
                    runner.logger.warning("the data ended after %d of %d batches", number, saved["drawn"])
                    break
        if saved["at"] == "iteration" or (self._origin is not None and saved["made"] is not None):
            restore_rng(engine.state.dataloader, rng, read_again=saved["made"] is not None)
        self._resuming, self._is_there = False, False
