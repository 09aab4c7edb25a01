"""`skip.py`: a position is reached without reading what is before it, with the same data and random numbers."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from ignite.engine import Engine
from torch.utils.data import DataLoader, Dataset, Sampler

from ignite_hooks import attach_hooks
from tests.checkpoint.data.test_position import (
    EXACT,
    Noisy,
    Shelf,
    Taker,
    generator,
    run_in_parts,
    script,
    whole_run,
)

READ: list[int] = []


class Counted(Dataset[float]):
    """Data that remembers which samples were read."""

    def __init__(self, size: int = 10) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> float:
        READ.append(index)
        return index + random.random()


class Lazy(Sampler[int]):
    """A sampler that draws each index when it is asked for, from the numbers that the data draws from too."""

    def __init__(self, source: Any = random) -> None:
        self.source = source

    def __iter__(self) -> Iterator[int]:
        return (int(self.source.random() * 10) for _ in range(10))

    def __len__(self) -> int:
        return 10


class Counts(Counted):
    """Data whose samples depend on how many were read before."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __getitem__(self, index: int) -> float:
        self.calls += 1
        return super().__getitem__(index) + self.calls


class CountsLate(Counted):
    """Data that begins to count when it is read."""

    def __getitem__(self, index: int) -> float:
        self.calls = getattr(self, "calls", 0) + 1
        return super().__getitem__(index) + self.calls


SKIPPED: dict[str, Callable[[], Any]] = {
    "shuffled": lambda: DataLoader(Counted(), 2, shuffle=True),
    "with replacement": lambda: DataLoader(
        Counted(), 2, sampler=torch.utils.data.RandomSampler(Counted(), replacement=True, generator=generator())
    ),
    "no batches": lambda: DataLoader(Counted(5), batch_size=None, shuffle=True),
    "sampler that draws late": lambda: DataLoader(Counted(), 2, sampler=Lazy(random.Random(5))),
}
READ_AGAIN: dict[str, Callable[[], Any]] = {
    "sampler and data draw in turn": lambda: DataLoader(Counted(), 2, sampler=Lazy()),
    "data counts": lambda: DataLoader(Counts(), 2, shuffle=True),
}


@pytest.mark.parametrize("name", [*SKIPPED, *READ_AGAIN])
def test_only_what_is_not_known_to_be_exact_is_read_again(name: str) -> None:
    make = {**SKIPPED, **READ_AGAIN}[name]
    whole = whole_run(make)
    READ.clear()
    assert run_in_parts(make, [3, 9]) == whole
    read = len(READ)
    READ.clear()
    whole_run(make)
    assert (read > len(READ)) is (name in READ_AGAIN)


def test_data_that_begins_to_count_is_read_again() -> None:
    def make() -> Any:
        return DataLoader(CountsLate(), 2, shuffle=True)

    assert run_in_parts(make, [3], max_epochs=1) == whole_run(make, max_epochs=1)


@pytest.mark.parametrize("how", ["index", "read"])
def test_the_user_decides(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def extra(made: Any) -> None:
        made.runner.checkpoints.skip = how

    make = SKIPPED["shuffled"] if how == "read" else READ_AGAIN["data counts"]
    READ.clear()
    run_in_parts(make, [4], extra=extra)
    assert len(READ) == (30 + 8 if how == "read" else 30)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["shuffled", "own generator", "one generator for loader and sampler", "replacement"])
def test_workers_that_draw_nothing_are_skipped_exactly_if_asked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Noisy, "__getitem__", lambda self, index: float(index))

    def make() -> Any:
        loader = EXACT[name]()
        loader.num_workers, loader.prefetch_factor = 2, 2
        return loader

    def extra(made: Any) -> None:
        made.runner.checkpoints.skip = "index"

    assert run_in_parts(make, [3, 8], extra=extra, max_epochs=2) == whole_run(make, max_epochs=2)


class Drawing(Noisy):
    """Data of which one sample draws."""

    def __getitem__(self, index: int) -> float:
        return super().__getitem__(index) if index == 7 else float(index)


class CountingInWorkers(Noisy):
    """Data whose samples depend on how many a worker has read."""

    calls = 0

    def __getitem__(self, index: int) -> float:
        self.calls += 1
        return index + self.calls / 100


class Still(Noisy):
    """Data that draws nothing."""

    def __getitem__(self, index: int) -> float:
        return float(index)


@pytest.mark.slow
@pytest.mark.parametrize(("data", "skips"), [(Still, 2), (Drawing, None), (Noisy, 0), (CountingInWorkers, 0)])
def test_workers_that_say_that_they_draw_nothing_are_skipped(
    data: type[Noisy], skips: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    def make() -> Any:
        return DataLoader(data(), 2, shuffle=True, num_workers=2)

    caplog.set_level(logging.INFO, logger="ignite_hooks")
    loader = make()
    whole = whole_run(make, max_epochs=2)
    assert run_in_parts(make, [3, 8], max_epochs=2) == whole
    skipped = [line for line in caplog.messages if line.startswith("skipping")]
    if skips is not None:
        assert len(skipped) == skips
    script(lambda: loader, [], max_epochs=1).run()
    assert type(loader.collate_fn) is type(make().collate_fn), "it is the loader's own again"


def test_nearly_all_of_a_long_epoch_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    def make() -> Any:
        return DataLoader(Counted(10_000), 1, shuffle=True)

    log: list[Any] = []
    shelf = Shelf()
    script(make, log, Taker(shelf, 9000), max_epochs=1).run()
    READ.clear()
    script(make, log, shelf=shelf, seed=2, max_epochs=1).run()
    assert len(READ) == 1000
    assert len({entry[5] for entry in log}) == 10_000


# -- loaders with a state of their own -----------------------------------------------------------------------------


class Stateful:
    """A loader without indices that says where it is, as torchdata's StatefulDataLoader does."""

    def __init__(self, size: int = 7) -> None:
        self.size = size
        self.passes = self.at = 0
        self.read = 0

    def __iter__(self) -> Iterator[float]:
        if self.at in (0, self.size):
            self.at, self.passes = 0, self.passes + 1
        while self.at < self.size:
            self.at += 1
            self.read += 1
            yield self.passes * 100 + self.at + random.random()

    def __len__(self) -> int:
        return self.size

    def state_dict(self) -> dict[str, int]:
        return {"passes": self.passes, "at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.passes, self.at = state["passes"], state["at"]


@pytest.mark.parametrize("stops", [[2], [6], [7], [9, 13], [14]], ids=str)
def test_a_loader_with_a_state_is_put_back_and_reads_nothing_again(
    stops: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    made: list[Stateful] = []

    def make() -> Stateful:
        made.append(Stateful())
        return made[-1]

    whole = whole_run(make)
    made.clear()
    assert run_in_parts(make, stops) == whole
    assert sum(each.read for each in made) == 21
    assert not [line for line in caplog.messages if "approximate" in line]


def test_a_state_that_a_loader_refuses_is_an_error_with_a_remedy() -> None:
    shelf, log = Shelf(), list[Any]()
    script(Stateful, log, Taker(shelf, 2)).run()

    class Other(Stateful):
        def load_state_dict(self, state: dict[str, int]) -> None:
            raise ValueError("of another data set")

    Other.__name__ = Other.__qualname__ = "Stateful"
    with pytest.raises(Exception, match=r"Stateful\.load_state_dict: ValueError: of another data set; skip: read"):
        script(Other, log, shelf=shelf).run()


def test_the_setting_reaches_the_run(tmp_path: Any) -> None:
    trainer = Engine(lambda engine, batch: 0.0)
    runner = attach_hooks(trainer, [{"type": "CheckpointHook", "skip": "read"}], work_dir=tmp_path)
    trainer.run([1])
    assert runner.checkpoints.skip == "read"
