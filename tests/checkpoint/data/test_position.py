"""A resumed run sees the same batches and random numbers as an uninterrupted one, whatever its data is."""

from __future__ import annotations

import io
import logging
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from ignite.engine import Engine, Events
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from ignite_hooks import BaseHook, attach_hooks
from ignite_hooks.run.progress import at_last_batch
from ignite_hooks.store.plain import to_plain
from tests.faults.tools import LONG


class Noisy(Dataset[float]):
    """Data with random augmentation from three generators."""

    def __init__(self, size: int = 10) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> float:
        return index + (random.random() + float(numpy.random.rand()) + float(torch.rand(()))) / 4


class Stream(IterableDataset[float]):
    """Data that is read in order, and knows its length or not."""

    def __init__(self, size: int = 10, sized: bool = False) -> None:
        self.size, self.sized = size, sized

    def __iter__(self) -> Iterator[float]:
        info = torch.utils.data.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for number in range(first, self.size, step):
            yield number + random.random() / 2

    def __len__(self) -> int:
        if not self.sized:
            raise TypeError
        return self.size


class Again:
    """An iterable that is no loader and has no length."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(5))


class LoaderByName(DataLoader[float]):
    """A loader of the script's own, which never calls the constructor of its base class."""

    def __init__(self, loader: DataLoader[float]) -> None:
        self.loader = loader

    def __iter__(self) -> Any:
        yield from self.loader

    def __len__(self) -> int:
        return len(self.loader)


class LoaderWithoutLength(LoaderByName):
    __len__ = DataLoader.__len__


def generator(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def shared_generator(**options: Any) -> Any:
    mine = generator()
    return DataLoader(Noisy(), 2, sampler=RandomSampler(Noisy(), generator=mine), generator=mine, **options)


def distributed(**options: Any) -> Any:
    return DataLoader(Noisy(), 2, sampler=DistributedSampler(Noisy(), num_replicas=1, rank=0, seed=5), **options)


EXACT: dict[str, Callable[[], Any]] = {
    "shuffled": lambda: DataLoader(Noisy(), 2, shuffle=True),
    "in order": lambda: DataLoader(Noisy(), 2),
    "last batch smaller": lambda: DataLoader(Noisy(9), 2, shuffle=True),
    "drop_last": lambda: DataLoader(Noisy(11), 2, shuffle=True, drop_last=True),
    "own generator": lambda: DataLoader(Noisy(), 2, shuffle=True, generator=generator()),
    "sampler with a generator": lambda: DataLoader(Noisy(), 2, sampler=RandomSampler(Noisy(), generator=generator())),
    "one generator for loader and sampler": shared_generator,
    "batch_sampler": lambda: DataLoader(
        Noisy(), batch_sampler=BatchSampler(RandomSampler(Noisy(), generator=generator()), 2, False)
    ),
    "subset": lambda: DataLoader(Noisy(), 2, sampler=SubsetRandomSampler(range(10))),
    "replacement": lambda: DataLoader(Noisy(), 2, sampler=WeightedRandomSampler([1.0] * 10, 10, generator=generator())),
    "distributed sampler": distributed,
    "no batches": lambda: DataLoader(Noisy(5), batch_size=None, shuffle=True),
    "stream of known length": lambda: DataLoader(Stream(sized=True), 2),
    "own loader": lambda: LoaderByName(DataLoader(Noisy(), 2, shuffle=True)),
    "list": lambda: [1, 2, 3, 4, 5],
    "nothing": lambda: None,
}
ASSUMED: dict[str, Callable[[], Any]] = {
    "stream": lambda: DataLoader(Stream(), 2),
    "iterable": Again,
    "generator": lambda: (number for number in range(13)),
}
LENGTHS = {"as long as the data": None, "shorter": 3, "longer": 7, "twice": 10}


class Shelf:
    """A store of one checkpoint in memory; a file reads back the same, see the last tests."""

    def __init__(self) -> None:
        self.content: dict[str, Any] = {}

    def save(self, state: dict[str, Any]) -> None:
        self.content = to_plain(state, clone=True)

    def load(self, path: Path) -> Any:
        return self.content

    def close(self) -> None: ...


class Keeper(BaseHook):
    """Saves at some iterations, at the end of its epoch where that is due, and goes on."""

    def __init__(self, *stops: int) -> None:
        self.shelves = {at: Shelf() for at in stops}
        self.point_priority = {"after_train_iter": 0, "after_epoch": 0}

    def after_train_iter(self, runner: Any) -> None:
        ends = at_last_batch(runner) or runner.trainer.should_terminate_single_epoch
        if runner.global_step in self.shelves and not ends:
            self.take(runner)

    def after_epoch(self, runner: Any) -> None:
        if runner.global_step in self.shelves and runner.state.epoch_complete:
            self.take(runner)

    def take(self, runner: Any) -> None:
        from ignite_hooks.checkpoint.capture import capture

        self.shelves[runner.global_step].save(capture(runner))


class Taker(Keeper):
    """Saves at one iteration, and stops there."""

    def __init__(self, shelf: Shelf, at: int, then: Callable[[Any], None] | None = None) -> None:
        super().__init__()
        self.shelves, self.then = {at: shelf}, then

    def take(self, runner: Any) -> None:
        super().take(runner)
        (self.then or (lambda runner: runner.stop("killed")))(runner)


def script(
    make: Callable[[], Any],
    log: list[Any],
    *hooks: Any,
    shelf: Shelf | None = None,
    seed: int = 0,
    extra: Callable[[Any], None] | None = None,
    engine: type[Engine] = Engine,
    **limits: Any,
) -> SimpleNamespace:
    """Return a script that logs what its step sees and draws, and whose handlers draw numbers too."""
    random.seed(seed), numpy.random.seed(seed), torch.manual_seed(seed)
    data = make()

    def step(engine: Engine, batch: Any) -> None:
        state = engine.state
        seen = tuple(batch.flatten().tolist()) if isinstance(batch, torch.Tensor) else batch
        drawn = (random.random(), float(numpy.random.rand()), float(torch.rand(())))
        log.append((state.epoch, state.iteration, runner.batch_idx, runner.iter, at_last_batch(runner), seen, drawn))

    trainer = engine(step)
    for event in (Events.STARTED, Events.EPOCH_STARTED, Events.EPOCH_COMPLETED, Events.COMPLETED):
        trainer.add_event_handler(event, lambda: (random.random(), torch.rand(3), numpy.random.rand()))
    runner = attach_hooks(trainer, list(hooks), work_dir="unused")
    if extra is not None:
        extra(SimpleNamespace(trainer=trainer, data=data, log=log, runner=runner))
    if shelf is not None:
        runner.checkpoints.make_store = lambda folder: shelf  # type: ignore[assignment, return-value]
        runner.resume(Path(__file__))
    limits = {"max_epochs": 3, **limits}
    if limits.get("max_iters"):
        del limits["max_epochs"]
    return SimpleNamespace(trainer=trainer, runner=runner, data=data, run=lambda: trainer.run(data, **limits))


def run_in_parts(make: Callable[[], Any], stops: list[int], **options: Any) -> list[Any]:
    """Return what the steps see in a run that is stopped and resumed in new objects several times."""
    log: list[Any] = []
    shelf, source = Shelf(), None
    for number, at in enumerate([*stops, -1]):
        script(make, log, Taker(shelf, at), shelf=source, seed=100 * number, **options).run()
        if at >= 0:
            assert shelf.content, f"nothing was saved at {at}"
            assert log[-1][1] == at
        source = shelf
    return log


def whole_run(make: Callable[[], Any], **options: Any) -> list[Any]:
    log: list[Any] = []
    script(make, log, Taker(Shelf(), -1), **options).run()
    return log


def check_resumes(
    make: Callable[[], Any], stops: Iterable[int], checked: Callable[[], object] = lambda: None, **options: Any
) -> list[Any]:
    """Check that a run resumed from any of these iterations sees what a whole run does; return that.

    One run saves at all of them: to be stopped there changes nothing of what has just been saved.
    """
    whole = whole_run(make, **options)
    keeper, log = Keeper(*(at for at in stops if at < len(whole))), list[Any]()
    script(make, log, keeper, **options).run()
    assert log == whole, "to save changed the run"
    for at, shelf in keeper.shelves.items():
        assert shelf.content, f"nothing was saved at {at}"
        log = whole[:at]
        script(make, log, Keeper(), shelf=shelf, seed=100, **options).run()
        assert log == whole, at
        checked()
    return whole


def stops_of(case: str, length: int | None) -> list[int]:
    """Return where to stop a run of 13 iterations with epochs of a length.

    That is everywhere in the long form, else around the end of the first epoch and at two more iterations.
    """
    if LONG:
        return list(range(1, 13))
    length = length or 5
    around = {length - 1, length, length + 1}
    draw = random.Random(f"{random.random()} {case} {length}")
    return [*around, *draw.sample(sorted({*range(1, 13)} - around), 2)]


@pytest.fixture(autouse=True)
def warnings_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="ignite_hooks")


@pytest.mark.faults
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", EXACT)
def test_a_run_stopped_anywhere_resumes_with_equal_data_and_draws(
    name: str, length: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"epoch_length": LENGTHS[length] or (5 if name == "nothing" else None), "max_iters": 13}
    assert len(check_resumes(EXACT[name], stops_of(name, LENGTHS[length]), **options)) == 13
    if name != "stream of known length":
        assert "approximate" not in caplog.text


@pytest.mark.faults
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", ASSUMED)
@pytest.mark.filterwarnings("ignore:Data iterator can not provide data anymore")
def test_repeatable_data_resumes_exactly_and_the_assumption_is_reported(
    name: str, length: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"epoch_length": LENGTHS[length], "max_iters": 13}

    def is_told() -> None:
        reads = "batches again" in caplog.text
        assert reads == ("its data is read again from the start, and may not give the same" in caplog.text)
        caplog.clear()

    check_resumes(ASSUMED[name], stops_of(name, LENGTHS[length]), is_told, **options)


def test_a_loader_that_was_never_made_is_an_iterable_like_others(caplog: pytest.LogCaptureFixture) -> None:
    def make() -> Any:
        return LoaderWithoutLength(DataLoader(Noisy(), 2, shuffle=True))

    assert run_in_parts(make, [7], epoch_length=5) == whole_run(make, epoch_length=5)
    assert "may not give the same batches" in caplog.text


@pytest.mark.parametrize("name", ["shuffled", "own generator", "distributed sampler", "list", "nothing"])
@pytest.mark.parametrize("length", [5, 3, 7])
def test_a_run_may_be_stopped_many_times(name: str, length: int) -> None:
    whole = whole_run(EXACT[name], epoch_length=length)
    assert run_in_parts(EXACT[name], list(range(1, len(whole))), epoch_length=length) == whole


@pytest.mark.parametrize("stop", [1, 2, 4, 5, 6, 9, 10, 11])
def test_a_run_limited_by_iterations_resumes_exactly(stop: int) -> None:
    whole = whole_run(EXACT["shuffled"], max_iters=12)
    assert len(whole) == 12
    assert run_in_parts(EXACT["shuffled"], [stop], max_iters=12) == whole


@pytest.mark.parametrize("legacy", [True, False])
@pytest.mark.parametrize("length", [5, 3])
def test_both_of_ignites_ways_to_run_are_resumed_exactly(
    legacy: bool, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "interrupt_resume_enabled", not legacy)
    whole = whole_run(EXACT["shuffled"], epoch_length=length)
    for at in (2, 5, 6):
        assert run_in_parts(EXACT["shuffled"], [at], epoch_length=length) == whole


WORKERS: dict[str, Callable[[], Any]] = {
    "shuffled": lambda: DataLoader(Noisy(), 2, shuffle=True, num_workers=2),
    "one generator for loader and sampler": lambda: shared_generator(num_workers=2),
    "stream": lambda: DataLoader(Stream(sized=True), 2, num_workers=2),
}


@pytest.mark.parametrize("length", [None, 3])
@pytest.mark.parametrize("name", WORKERS)
def test_what_workers_draw_is_exact_too(name: str, length: int | None) -> None:
    # An odd length makes the workers of a stream give 3 batches each.
    whole = whole_run(WORKERS[name], epoch_length=length, max_epochs=2)
    assert run_in_parts(WORKERS[name], [2, 3, 5], epoch_length=length, max_epochs=2) == whole


@pytest.mark.parametrize("stops", [[2], [5], [7], [7, 8]])
def test_persistent_workers_give_the_same_data_and_differences_are_reported(
    stops: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    def make() -> Any:
        return DataLoader(list(range(10)), 2, shuffle=True, num_workers=2, persistent_workers=True)  # type: ignore[arg-type]

    whole = whole_run(make, max_epochs=2)
    assert run_in_parts(make, stops, max_epochs=2) == whole
    assert ("persistent_workers" in caplog.text) == (stops != [2])


@pytest.mark.parametrize("event", ["GET_BATCH_STARTED", "GET_BATCH_COMPLETED", "ITERATION_STARTED",
                                   "ITERATION_COMPLETED", "DATALOADER_STOP_ITERATION"])  # fmt: skip
@pytest.mark.parametrize("length", [None, 3, 7])
def test_handlers_of_the_script_draw_the_same_wherever_they_are(event: str, length: int | None) -> None:
    def extra(made: Any) -> None:
        made.trainer.add_event_handler(Events[event], lambda: made.log.append((0, made.trainer.state.iteration,
                                                                               float(torch.rand(())))))  # fmt: skip

    whole = whole_run(EXACT["shuffled"], extra=extra, epoch_length=length)
    for at in (at for at in (1, 3, 5, 6, 7, 10, 13) if at < whole[-1][1]):
        parts: list[Any] = []
        shelf = Shelf()
        script(EXACT["shuffled"], parts, Taker(shelf, at), extra=extra, epoch_length=length).run()
        script(EXACT["shuffled"], parts, Taker(shelf, -1), extra=extra, shelf=shelf, epoch_length=length, seed=9).run()
        assert parts == whole, at


# Where the end of the epoch is skipped, nothing is saved at it.
@pytest.mark.parametrize(
    ("at", "skip"), [(at, skip) for at in (1, 2, 3, 6, 7, 8, 9) for skip in (True, False) if at != 2 or not skip]
)
def test_a_run_resumes_exactly_after_an_epoch_ended_early(at: int, skip: bool) -> None:
    def extra(made: Any) -> None:
        made.trainer.add_event_handler(
            Events.ITERATION_COMPLETED(once=2), lambda: made.trainer.terminate_epoch(skip_epoch_completed=skip)
        )

    whole = whole_run(EXACT["shuffled"], extra=extra)
    assert [entry[2] for entry in whole[:8]] == [0, 1, 0, 1, 2, 3, 4, 0]
    assert run_in_parts(EXACT["shuffled"], [at], extra=extra) == whole


@pytest.mark.parametrize("point", ["STARTED", "EPOCH_STARTED"])
@pytest.mark.parametrize("iteration", [0, 5])
def test_a_checkpoint_from_before_the_first_batch_resumes_exactly(point: str, iteration: int) -> None:
    shelf = Shelf()

    def extra(made: Any) -> None:
        def save() -> None:
            from ignite_hooks.checkpoint.capture import capture

            if made.trainer.state.iteration == iteration and not shelf.content:
                shelf.save(capture(made.runner))

        made.trainer.add_event_handler(Events[point], save)
        made.trainer.add_event_handler(Events[point], lambda: torch.rand(2))

    whole: list[Any] = []
    script(EXACT["shuffled"], whole, extra=extra).run()
    if point == "STARTED" and iteration:
        assert not shelf.content
        return
    log: list[Any] = []
    script(EXACT["shuffled"], log, extra=extra, shelf=shelf, seed=7).run()
    assert whole[iteration:] == log


@pytest.mark.parametrize("at", [1, 4, 6])
@pytest.mark.parametrize("how", ["stopped", "failed", "stopped while reading"])
def test_a_resumed_run_ending_before_its_first_batch_changes_nothing(at: int, how: str) -> None:
    from ignite_hooks.checkpoint.capture import capture

    whole = whole_run(EXACT["shuffled"])
    first, second, log = Shelf(), Shelf(), []
    script(EXACT["shuffled"], log, Taker(first, at)).run()

    class Ends(BaseHook):
        def before_train_epoch(self, runner: Any) -> None:
            torch.rand(5)
            if how == "stopped":
                runner.stop("at once")
            elif how == "failed":
                raise ZeroDivisionError

        def after_train(self, runner: Any) -> None:
            second.save(capture(runner))

        def on_exception(self, runner: Any) -> None:
            second.save(capture(runner))

    def extra(made: Any) -> None:
        if how == "stopped while reading":
            made.runner.checkpoints.skip = "read"
            made.data.dataset.__class__ = type(
                "Stops", (Noisy,), {"__getitem__": lambda self, index: made.runner.stop("while reading") or 0.0}
            )

    ended = script(EXACT["shuffled"], log, Ends(), shelf=first, seed=3, extra=extra)
    try:
        ended.run()
    except Exception:
        assert how == "failed"
    assert ended.trainer._init_iter is None
    script(EXACT["shuffled"], log, shelf=second, seed=4).run()
    assert log == whole


@pytest.mark.parametrize("epochs", [1, 2])
def test_a_finished_run_continues_exactly_with_more_epochs(epochs: int) -> None:
    from ignite_hooks.checkpoint.capture import capture

    whole = whole_run(EXACT["shuffled"], max_epochs=4)
    shelf, log = Shelf(), []

    class Last(BaseHook):
        def after_train(self, runner: Any) -> None:
            shelf.save(capture(runner))

    script(EXACT["shuffled"], log, Last(), max_epochs=epochs).run()
    script(EXACT["shuffled"], log, shelf=shelf, max_epochs=4, seed=2).run()
    assert log == whole


def resumed_with(saved: Callable[[], Any], now: Callable[[], Any], at: int = 7, **options: Any) -> None:
    shelf, log = Shelf(), []
    script(saved, log, Taker(shelf, at)).run()
    script(now, log, shelf=shelf, **options).run()


@pytest.mark.parametrize(
    ("saved", "now", "words"),
    [
        (EXACT["list"], EXACT["shuffled"], "the data was a list and is a DataLoader"),
        (EXACT["shuffled"], lambda: DataLoader(Noisy(12), 2), "the data had 5 batches and has 6"),
        (EXACT["shuffled"], lambda: DataLoader(Noisy(), 2, num_workers=2), "the loader had 0 workers and has 2"),
        (EXACT["shuffled"], lambda: DataLoader(Noisy(2), 2), "the data ended after 1 of 2 batches"),
    ],
)
def test_changed_data_is_reported(saved: Any, now: Any, words: str, caplog: pytest.LogCaptureFixture) -> None:
    resumed_with(saved, now, epoch_length=5)
    assert words in caplog.text


def test_a_checkpoint_without_position_resumes_approximately_and_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    shelf, log = Shelf(), []
    script(EXACT["list"], log, Taker(shelf, 7)).run()
    state = shelf.load(Path())
    del state["data"]
    script(EXACT["list"], log, shelf=shelf).run()
    assert len(log) == 15
    assert "test_position.py is approximate: it does not say where in its data the run was" in caplog.text


class Arranging(Engine):
    """An engine that makes its iterators in a way of its own."""

    def _setup_engine(self) -> None:
        super()._setup_engine()


def test_an_engine_that_arranges_its_data_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    shelf, log = Shelf(), []
    script(EXACT["shuffled"], log, Taker(shelf, 7), engine=Arranging).run()
    script(EXACT["shuffled"], log, shelf=shelf, engine=Arranging).run()
    assert len(log) == 15
    assert "is approximate: Arranging arranges its data itself" in caplog.text


@pytest.mark.parametrize("when", ["in the middle of an iteration", "in the middle of an evaluation",
                                  "before everything was done that belongs to the end of its epoch",
                                  "while data given by set_data was in use",
                                  "when the run failed, with what it was doing half done"])  # fmt: skip
def test_a_checkpoint_that_cannot_resume_exactly_names_the_reason(when: str, caplog: pytest.LogCaptureFixture) -> None:
    from ignite_hooks.checkpoint.capture import capture

    shelf = Shelf()

    def extra(made: Any) -> None:
        trainer, runner = made.trainer, made.runner

        def save() -> None:
            shelf.save(capture(runner))

        if when.endswith("iteration"):
            trainer.add_event_handler(Events.ITERATION_STARTED(once=7), save)
        elif when.endswith("epoch"):
            trainer.add_event_handler(Events.ITERATION_COMPLETED(once=5), save)
        elif when.endswith("evaluation"):
            evaluator = Engine(lambda engine, batch: None)
            runner.installation.add_evaluator("val", evaluator)
            evaluator.add_event_handler(Events.ITERATION_COMPLETED(once=1), save)
            trainer.add_event_handler(Events.ITERATION_COMPLETED(once=7), lambda: evaluator.run([1, 2]))
        elif "failed" in when:
            runner.register_hook(type("Last", (BaseHook,), {"on_exception": lambda self: save()})())
            trainer.add_event_handler(Events.ITERATION_COMPLETED(once=7), lambda: 1 / 0)
        else:
            trainer.add_event_handler(Events.ITERATION_COMPLETED(once=6), lambda: trainer.set_data(made.data))
            trainer.add_event_handler(Events.ITERATION_COMPLETED(once=6), lambda: trainer.set_data([1, 2, 3, 4, 5]))
            trainer.add_event_handler(Events.ITERATION_COMPLETED(once=7), save)

    whole: list[Any] = []
    saved = script(EXACT["shuffled"], whole, extra=extra)
    if "failed" in when:
        with pytest.raises(ZeroDivisionError):
            saved.run()
        whole = whole_run(EXACT["shuffled"])
    else:
        saved.run()
    log: list[Any] = []
    resumed = script(EXACT["shuffled"], log, shelf=shelf)
    resumed.run()
    assert f"is approximate: it was saved {when}" in caplog.text
    assert [entry[:5] for entry in log] == [entry[:5] for entry in whole[-len(log) :]]


def test_a_failed_step_is_retried_with_its_batch() -> None:
    from ignite_hooks.checkpoint.capture import capture

    shelf, log = Shelf(), []

    class Last(BaseHook):
        def on_exception(self, runner: Any) -> None:
            shelf.save(capture(runner))

    def extra(made: Any) -> None:
        made.trainer.add_event_handler(Events.ITERATION_STARTED(once=8), lambda: 1 / 0)

    def make() -> Any:
        return DataLoader(list(range(10)), 2, shuffle=True)  # type: ignore[arg-type]

    whole = whole_run(make)
    with pytest.raises(ZeroDivisionError):
        script(make, log, Last(), extra=extra).run()
    script(make, log, shelf=shelf, seed=5).run()
    assert [entry[:6] for entry in log[:10]] == [entry[:6] for entry in whole[:10]]


def test_skipping_batches_is_logged_once_and_never_at_epoch_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    run_in_parts(EXACT["shuffled"], [5, 7, 10])
    told = [line for line in caplog.messages if "to get back" in line]
    assert told == ["skipping the first 2 batches to get back to the saved position"]


def test_a_file_holds_the_position_at_constant_size() -> None:
    sizes = []
    for at in (7, 47):
        shelf, buffer = Shelf(), io.BytesIO()
        script(EXACT["own generator"], [], Taker(shelf, at), max_epochs=10).run()
        torch.save(shelf.content["data"], buffer)
        sizes.append(len(buffer.getvalue()))
        loaded = torch.load(io.BytesIO(buffer.getvalue()), weights_only=True)
        assert repr(loaded) == repr(shelf.content["data"])
    assert abs(sizes[0] - sizes[1]) < 100
    assert sizes[0] < 100_000


def test_handlers_are_removed_after_a_run_and_batches_have_none() -> None:
    seen = []

    def extra(made: Any) -> None:
        made.trainer.add_event_handler(
            Events.ITERATION_COMPLETED, lambda: seen.append(len(made.trainer._event_handlers[Events.GET_BATCH_STARTED]))
        )

    made = script(EXACT["shuffled"], [], extra=extra)
    made.run()
    assert set(seen) == {0}
    ours = [h for handlers in made.trainer._event_handlers.values() for h, *_ in handlers if "Lifecycle" in repr(h)]
    assert ours == []


@pytest.mark.parametrize(("other", "words"), [("in order", "SequentialSampler"), ("weighted", "WeightedRandomSampler")])
def test_another_order_of_the_data_is_told(other: str, words: str, caplog: pytest.LogCaptureFixture) -> None:
    others = {"weighted": lambda: DataLoader(Noisy(), 2, sampler=WeightedRandomSampler([1.0] * 10, 10))}
    shelf = Shelf()
    script(EXACT["shuffled"], [], Taker(shelf, 7)).run()
    script({**EXACT, **others}[other], [], shelf=shelf).run()
    assert "is approximate" in caplog.text
    assert "RandomSampler gave the order of the data, and " + words in caplog.text


@pytest.mark.parametrize("again", [False, True])
def test_data_given_by_set_data_in_an_earlier_epoch_is_told(again: bool, caplog: pytest.LogCaptureFixture) -> None:
    def switching(at: Any) -> Any:
        def extra(made: Any) -> None:
            other = EXACT["shuffled"]()
            made.trainer.add_event_handler(at, lambda: made.trainer.set_data(other))

        return extra

    shelf = Shelf()
    script(EXACT["shuffled"], [], Taker(shelf, 12), extra=switching(Events.EPOCH_COMPLETED(once=1))).run()
    extra = switching(Events.EPOCH_STARTED) if again else None
    script(EXACT["shuffled"], [], shelf=shelf, extra=extra).run()
    assert ("approximate: it was saved while data given by set_data was in use" in caplog.text) is not again
