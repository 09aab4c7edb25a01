"""`own_state.py`: samplers, data sets, transforms and collate functions that keep a state resume exactly."""

from __future__ import annotations

import enum
import itertools
import logging
import random
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from ignite.engine import Events
from torch.utils.data import DataLoader, Dataset, Sampler, Subset, WeightedRandomSampler

from ignite_hooks.checkpoint.script.own_state import OwnState, restore_own
from ignite_hooks.store import to_plain
from tests.checkpoint.data.test_position import Shelf, Taker, check_resumes, run_in_parts, script, whole_run


class Plain(Dataset[float]):
    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> float:
        return float(index)


class Python(Sampler[int]):
    def __init__(self) -> None:
        self.rng = random.Random(3)

    def __len__(self) -> int:
        return 10

    def __iter__(self) -> Iterator[int]:
        return iter(self.rng.sample(range(10), 10))


class Numpy(Python):
    def __init__(self, kind: Any = numpy.random.default_rng) -> None:
        self.rng = kind(3)

    def __iter__(self) -> Iterator[int]:
        yield from self.rng.permutation(10).tolist()
        # Also at the end of an epoch.
        self.rng.random(3)


class Counting(Python):
    """Another order in each epoch, by a counter of its own that nobody sets."""

    def __init__(self, at_end: bool = False) -> None:
        self.calls, self.at_end = 0, at_end

    def __iter__(self) -> Iterator[int]:
        self.calls += not self.at_end
        yield from random.Random(self.calls).sample(range(10), 10)
        self.calls += self.at_end


class Shuffling(Python):
    """Shuffles the order of the last epoch."""

    def __init__(self, kind: Callable[[Any], Any] = list) -> None:
        super().__init__()
        self.order = kind(range(10))

    def __iter__(self) -> Iterator[int]:
        order = list(self.order)
        self.rng.shuffle(order)
        self.order[:] = order
        return iter([int(index) for index in order])


class WithState(Python):
    def __init__(self) -> None:
        self._hidden = iter(range(1, 1000))
        self.calls = 0

    def __iter__(self) -> Iterator[int]:
        self.calls = next(self._hidden)
        return iter(random.Random(self.calls).sample(range(10), 10))

    def state_dict(self) -> dict[str, Any]:
        return {"calls": self.calls}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.calls = state["calls"]
        self._hidden = iter(range(self.calls + 1, 1000))


class Augmented(Plain):
    """Data with a random transform, as MONAI and albumentations have it."""

    def __init__(self, kind: Any = numpy.random.RandomState) -> None:
        self.transforms = [RandomTransform(kind)]

    def __getitem__(self, index: int) -> float:
        return self.transforms[0](index)


class RandomTransform:
    def __init__(self, kind: Any) -> None:
        self.R = kind(5)

    def __call__(self, index: int) -> float:
        return index + float(self.R.random()) / 2


class Counted(Plain):
    def __init__(self) -> None:
        self.reads = 0

    def __getitem__(self, index: int) -> float:
        self.reads += 1
        return index + self.reads / 1000


def collating() -> Callable[[Any], Any]:
    rng = numpy.random.default_rng(7)

    def collate(items: list[float]) -> Any:
        return torch.tensor(items) + float(rng.random())

    return collate


class Collate:
    def __init__(self) -> None:
        self.batches = 0

    def __call__(self, items: list[float]) -> Any:
        self.batches += 1
        return torch.tensor(items) + self.batches / 100


class OwnLoader:
    """An iterable of the script with a generator."""

    def __init__(self) -> None:
        self.rng = random.Random(4)

    def __len__(self) -> int:
        return 5

    def __iter__(self) -> Iterator[int]:
        for _ in range(5):
            yield self.rng.randrange(100)


RNG = numpy.random.RandomState(11)


def with_a_global(items: list[float]) -> Any:
    return torch.tensor(items) + float(RNG.rand())


def loader_with_a_global() -> Any:
    RNG.seed(11)
    return DataLoader(Plain(), 2, collate_fn=with_a_global)


class Stage(enum.Enum):
    ONE = 1
    TWO = 2


def rotate(values: Any) -> None:
    values.append(values.pop(0) if isinstance(values, list) else values.popleft())


OTHER_COUNTERS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], Callable[[Any], int]]] = {
    "number of NumPy": (lambda: numpy.int64(0), lambda value: value + 1, int),
    "array of no dimension": (lambda: numpy.array(0), lambda value: value.__iadd__(1), int),
    "array of two": (lambda: numpy.zeros((1, 2)), lambda value: value.__iadd__(1), lambda value: int(value[0, 0])),
    "mapping": (lambda: {1: 0, "a": 1}, lambda value: value.update({1: value[1] + 1}), lambda value: value[1]),
    "counter": (lambda: Counter(b=1), lambda value: value.update("a"), lambda value: value["a"]),
    "deque": (lambda: deque([1, 2, 3]), rotate, lambda value: value[0]),
    "names": (lambda: ["a", "b", "c"], rotate, lambda value: ord(value[0])),
    "pairs": (lambda: [(1, 2), (3, 4), (5, 6)], rotate, lambda value: value[0][0]),
    "tuple": (lambda: (0, "a"), lambda value: (value[0] + 1, "a"), lambda value: value[0]),
    "set": (lambda: {0}, lambda value: value.add(max(value) + 1), max),
    "member": (
        lambda: Stage.ONE,
        lambda value: Stage.TWO if value is Stage.ONE else Stage.ONE,
        lambda value: value.value,
    ),
    "bytes": (lambda: b"", lambda value: value + b"a", len),
}


class CountingOtherwise(Python):
    def __init__(self, kind: str) -> None:
        start, self.change, self.number = OTHER_COUNTERS[kind]
        self.value = start()

    def count(self) -> int:
        changed = self.change(self.value)
        self.value = self.value if changed is None else changed
        return self.number(self.value)

    def __iter__(self) -> Iterator[int]:
        return iter(random.Random(self.count()).sample(range(10), 10))


class CountingData(Plain):
    def __init__(self, kind: str) -> None:
        self.counter = CountingOtherwise(kind)
        self.value = self.counter.value

    def __getitem__(self, index: int) -> float:
        self.counter.value = self.value
        number = self.counter.count()
        self.value = self.counter.value
        return float(index + number)


KEPT: dict[str, Callable[[], Any]] = {
    "sampler, random.Random": lambda: DataLoader(Plain(), 2, sampler=Python()),
    "sampler, numpy Generator": lambda: DataLoader(Plain(), 2, sampler=Numpy()),
    "sampler, numpy RandomState": lambda: DataLoader(Plain(), 2, sampler=Numpy(numpy.random.RandomState)),
    "sampler, numpy Philox": lambda: DataLoader(
        Plain(), 2, sampler=Numpy(lambda seed: numpy.random.Generator(numpy.random.Philox(seed)))
    ),
    "sampler, counter": lambda: DataLoader(Plain(), 2, sampler=Counting()),
    "sampler, counter at the end": lambda: DataLoader(Plain(), 2, sampler=Counting(at_end=True)),
    "sampler, shuffled in place": lambda: DataLoader(Plain(), 2, sampler=Shuffling()),
    "sampler, shuffled array": lambda: DataLoader(Plain(), 2, sampler=Shuffling(numpy.array)),
    "sampler, state_dict": lambda: DataLoader(Plain(), 2, sampler=WithState()),
    "data, RandomState": lambda: DataLoader(Augmented(), 2, shuffle=True),
    "data, numpy Generator": lambda: DataLoader(Augmented(numpy.random.default_rng), 2, shuffle=True),
    "data, random.Random": lambda: DataLoader(Augmented(random.Random), 2, shuffle=True),
    "data, of data": lambda: DataLoader(Subset(Augmented(), range(10)), 2, shuffle=True),
    "data, counter": lambda: DataLoader(Counted(), 2, shuffle=True),
    "collate_fn, closure": lambda: DataLoader(Plain(), 2, collate_fn=collating()),
    "collate_fn, counter": lambda: DataLoader(Plain(), 2, collate_fn=Collate()),
    "collate_fn, global": loader_with_a_global,
    "loader of the script": OwnLoader,
}


@pytest.fixture(autouse=True)
def warnings_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="ignite_hooks")


@pytest.mark.parametrize("length", [None, 3, 7])
@pytest.mark.parametrize("name", KEPT)
def test_data_with_a_state_of_its_own_resumes_exactly(
    name: str, length: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    make = KEPT[name]
    wanted = check_resumes(make, (1, 5, 6, 9, 10), epoch_length=length)
    assert run_in_parts(make, [2, 4, 6], epoch_length=length) == wanted
    assert "approximate" not in caplog.text


@pytest.mark.parametrize("name", ["sampler, counter", "sampler, counter at the end", "sampler, shuffled in place"])
def test_an_order_begun_anew_resumes_exactly_within_the_first_pass(name: str) -> None:
    make = KEPT[name]
    wanted = whole_run(make, epoch_length=3)
    for stops in ([3], [3, 6], [5, 7], [4, 5, 6, 8]):
        assert run_in_parts(make, stops, epoch_length=3) == wanted, stops


def test_a_state_noted_earlier_gets_the_first_values_of_later_counters() -> None:
    data = DataLoader(Plain(), 2, sampler=Shuffling())
    data.sampler.calls = 0
    own = OwnState(data)
    before = own.state()
    list(data)
    data.sampler.calls = 1
    after = own.state()
    own.complete(before, after)
    assert before["counters"] == {"sampler": {"order": list(range(10)), "calls": 0}}
    assert after["counters"] == {"sampler": {"order": data.sampler.order, "calls": 1}}


@pytest.mark.parametrize("of_data", [False, True], ids=["sampler", "data"])
@pytest.mark.parametrize("kind", OTHER_COUNTERS)
def test_counters_of_every_kind_go_on(kind: str, of_data: bool, caplog: pytest.LogCaptureFixture) -> None:
    def make() -> Any:
        if of_data:
            return DataLoader(CountingData(kind), 2, shuffle=True)
        return DataLoader(Plain(), 2, sampler=CountingOtherwise(kind))

    assert run_in_parts(make, [2, 6, 9]) == whole_run(make)
    assert "approximate" not in caplog.text


class Caching(Plain):
    def __init__(self) -> None:
        self.reads = 0
        self.cache: dict[int, Any] = {}

    def __getitem__(self, index: int) -> float:
        self.reads += 1
        self.cache[index] = SimpleNamespace(value=index + self.reads)
        return float(self.cache[index].value)


class Endless(Python):
    def __init__(self) -> None:
        self.numbers: Iterator[int] = itertools.cycle(range(3))
        self.last = 0

    def __iter__(self) -> Iterator[int]:
        self.numbers = iter(list(self.numbers.__reduce__()[1]) or [1])
        return iter(range(10))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: DataLoader(Caching(), 2), "Caching.reads, Caching.cache change as the data is read"),
        (lambda: DataLoader(Plain(), 2, sampler=Endless()), "Endless.numbers changes as the data is read"),
    ],
)
def test_a_state_that_cannot_be_kept_is_named_on_resuming(
    make: Any, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    shelf = Shelf()
    script(make, [], Taker(shelf, 6)).run()
    script(make, [], shelf=shelf).run()
    assert f"is approximate: {words}, and checkpoints do not hold it: give its class state_dict()" in caplog.text


class Lazy(Plain):
    """Opens its file at the first access, and remembers what it has read."""

    def __init__(self) -> None:
        self.file: Any = None
        self.cache: list[int] = []

    def __getitem__(self, index: int) -> float:
        self.file = self.file or object()
        self.cache.append(index)
        return float(index)


def test_caches_and_late_files_are_no_state() -> None:
    data = DataLoader(Lazy(), 2)
    own = OwnState(data)
    list(data)
    assert own.unkept() == []
    assert own.state() == {}


def test_a_generator_of_another_kind_is_an_error() -> None:
    from ignite_hooks import CheckpointError

    state = to_plain(OwnState(DataLoader(Plain(), 2, sampler=Python())).state())
    with pytest.raises(CheckpointError, match=r"generator sampler\.rng of the data: .* was saved, and today's is of"):
        restore_own(DataLoader(Plain(), 2, sampler=Numpy()), state)


# -- what the script changes as it trains --------------------------------------------------------------------------


class Chosen(Plain):
    """A data set whose script chooses other samples as it trains."""

    def __init__(self) -> None:
        self.indices, self.array = list(range(10)), numpy.arange(10)
        self.factors = torch.ones(10)

    def __getitem__(self, index: int) -> float:
        return float(self.indices[index] + self.array[index] / 100 + self.factors[index])


def weighted() -> Any:
    return DataLoader(Plain(), 2, sampler=WeightedRandomSampler([1.0] * 10, 10))


def weigh(loader: Any, epoch: int) -> None:
    loader.sampler.weights[epoch] = 50.0


def weigh_anew(loader: Any, epoch: int) -> None:
    weights = loader.sampler.weights.clone()
    weights[epoch] = 50.0
    loader.sampler.weights = weights


def choose(loader: Any, epoch: int) -> None:
    loader.dataset.indices[epoch] = 9
    loader.dataset.array[epoch] = 40
    loader.dataset.factors.mul_(2)


def choose_anew(loader: Any, epoch: int) -> None:
    loader.dataset.indices = [(index * 3) % 10 for index in loader.dataset.indices]


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (weighted, weigh),
        (weighted, weigh_anew),
        (lambda: DataLoader(Chosen(), 2, shuffle=True), choose),
        (lambda: DataLoader(Chosen(), 2, shuffle=True), choose_anew),
    ],
    ids=["weights", "other weights", "samples", "other samples"],
)
def test_data_that_a_script_changes_between_epochs_resumes_exactly(
    make: Any, change: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def extra(made: Any) -> None:
        made.trainer.add_event_handler(
            Events.EPOCH_COMPLETED, lambda: change(made.data, made.trainer.state.epoch % 10) and None
        )

    wanted = check_resumes(make, (3, 5, 6, 9, 10), extra=extra)
    assert run_in_parts(make, [4, 7], extra=extra) == wanted
    assert "approximate" not in caplog.text


class Listed(Plain):
    def __init__(self, size: int) -> None:
        self.samples = [(str(number), number) for number in range(size)]


def test_large_content_of_a_data_set_that_changes_is_named() -> None:
    data = DataLoader(Listed(10_001), 2)
    own = OwnState(data)
    assert own.unkept() == []
    data.dataset.samples.append(("c", 3))
    assert own.unkept() == ["Listed.samples"]


def test_small_content_of_a_data_set_that_changes_is_kept() -> None:
    data, resumed = DataLoader(Listed(2), 2), DataLoader(Listed(2), 2)
    own = OwnState(data)
    data.dataset.samples.append(("c", 3))
    assert own.unkept() == []
    samples = resumed.dataset.samples
    restore_own(resumed, own.state())
    assert resumed.dataset.samples is samples
    assert samples == data.dataset.samples


def test_a_member_of_an_enumeration_is_a_value_that_nothing_is_put_into() -> None:
    data = DataLoader(Plain(), 2, sampler=CountingOtherwise("member"))
    own = OwnState(data)
    list(data)
    again = DataLoader(Plain(), 2, sampler=CountingOtherwise("member"))
    restore_own(again, own.state())
    assert (Stage.ONE.value, Stage.TWO.value) == (1, 2)
    assert again.sampler.value is Stage.TWO
