"""Copies of loaders and the data sets behind them; the tests of hooks have whole runs with workers."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    IterableDataset,
    SequentialSampler,
    Subset,
    TensorDataset,
)

from ignite_hooks.model.loader_workers import (
    KEPT,
    ShieldedInit,
    ShieldedWorkers,
    copy_of_loader,
    datasets_with,
    has_persistent_workers,
    has_workers,
    is_loader,
)
from tests import warm

DATA = TensorDataset(torch.arange(7))


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(7))


def doubled(samples: Any) -> Any:
    return [2 * sample for (sample,) in samples]


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(3)


LOADERS: dict[str, Callable[[], DataLoader[Any]]] = {
    "plain": lambda: DataLoader(DATA),
    "batches": lambda: DataLoader(DATA, batch_size=3, drop_last=True),
    "shuffled": lambda: DataLoader(DATA, batch_size=3, shuffle=True, generator=seeded()),
    "a sampler": lambda: DataLoader(DATA, batch_size=2, sampler=[3, 1, 4]),
    "a batch sampler": lambda: DataLoader(DATA, batch_sampler=BatchSampler(SequentialSampler(DATA), 4, False)),
    "no batches": lambda: DataLoader(DATA, batch_size=None),
    "a stream": lambda: DataLoader(Stream(), batch_size=3),
    "a stream without batches": lambda: DataLoader(Stream(), batch_size=None),
    "collated otherwise": lambda: DataLoader(DATA, batch_size=2, collate_fn=doubled),
}


@pytest.mark.parametrize("make", LOADERS.values(), ids=LOADERS)
def test_a_copy_of_a_loader_yields_the_same(make: Callable[[], DataLoader[Any]]) -> None:
    found, expected = list(copy_of_loader(make())), list(make())
    assert str(found) == str(expected)


@pytest.mark.parametrize("make", LOADERS.values(), ids=LOADERS)
def test_it_has_the_same_settings(make: Callable[[], DataLoader[Any]]) -> None:
    loader = make()
    made = copy_of_loader(loader)
    names = [*KEPT, "batch_size", "drop_last"]
    assert {name: getattr(made, name) for name in names} == {name: getattr(loader, name) for name in names}


def test_workers_are_known() -> None:
    loaders = [[1], DataLoader(DATA), DataLoader(DATA, num_workers=1)]
    loaders.append(DataLoader(DATA, num_workers=1, persistent_workers=True, prefetch_factor=4, timeout=5))
    assert [has_workers(loader) for loader in loaders] == [False, False, True, True]
    assert [has_persistent_workers(loader) for loader in loaders] == [False, False, False, True]
    made = copy_of_loader(loaders[-1])
    assert (made.persistent_workers, made.prefetch_factor, made.timeout) == (True, 4, 5)


def test_of_a_loader_that_may_need_more_none_is_made() -> None:
    class Mine(DataLoader[Any]):
        pass

    with pytest.raises(ValueError, match="of a Mine cannot be restarted"):
        copy_of_loader(Mine(DATA))


def test_data_sets_are_found_through_others_once_each() -> None:
    class Named(TensorDataset):
        names = ("a",)

    one, two = Named(torch.ones(2)), Named(torch.ones(2))
    behind = ConcatDataset([Subset(one, [0]), ConcatDataset([two, one]), DATA])
    assert [found is expected for found, expected in zip(datasets_with(behind, "names"), (one, two), strict=True)] == [
        True,
        True,
    ]
    assert list(datasets_with([1, 2], "names")) == []


def test_worker_init_is_shielded_during_a_run_only() -> None:
    begun: list[int] = []
    alone, two = DataLoader([1, 2]), DataLoader([1, 2], num_workers=2, worker_init_fn=begun.append)
    with ShieldedWorkers([alone, two, None, two]):
        assert alone.worker_init_fn is None
        inside = two.worker_init_fn
        assert isinstance(inside, ShieldedInit)
        assert inside.before == begun.append
        assert isinstance(pickle.loads(pickle.dumps(ShieldedInit(None))), ShieldedInit)
    assert two.worker_init_fn == begun.append


def test_the_open_runs_of_a_loader_are_counted() -> None:
    loader = DataLoader([1, 2], num_workers=1)
    with ShieldedWorkers([loader]):
        first: Any = loader.worker_init_fn
        with ShieldedWorkers([loader]):
            assert first.open_runs.item() == 2
        assert first.open_runs.item() == 1
    assert first.open_runs.item() == 0
    with ShieldedWorkers([loader]):
        assert first.open_runs.item() == 1, "a worker of the first run is needed again"


LEFT = """
import sys, threading, torch
from torch.utils.data import DataLoader
from ignite_hooks.model.loader_workers import ShieldedWorkers

def run():
    with ShieldedWorkers([loader]):
        list(loader)
        ready.set()
        if sys.argv[1] == "open":
            threading.Event().wait()

torch.set_num_threads(2)  # a forked worker then has a thread before it is shielded, and does not know who ends it
loader = DataLoader([1, 2], num_workers=1, persistent_workers=True, multiprocessing_context="fork")
ready = threading.Event()
thread = threading.Thread(target=run, daemon=True)
thread.start()
ready.wait()
if sys.argv[1] == "over":
    thread.join()
"""


@pytest.mark.parametrize("run", ["over", "open"])
def test_a_script_ends_while_it_holds_a_loader_with_persistent_workers(run: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", LEFT, run]
    done = warm.run(command, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")


class ByName(DataLoader[int]):
    """A loader that never calls the constructor of its base class."""

    def __init__(self) -> None:
        self.batch_size = 3


def test_a_loader_is_one_once_its_constructor_has_run() -> None:
    assert is_loader(DataLoader(DATA))
    assert not is_loader(ByName())
    assert not is_loader(DATA)
    assert not has_workers(ByName())
    assert not has_persistent_workers(ByName())
    with ShieldedWorkers([ByName()]):
        pass
