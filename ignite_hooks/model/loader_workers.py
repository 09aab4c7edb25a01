"""Worker processes of data loaders: restarted when their data set changes, and shielded from signals."""

from __future__ import annotations

import atexit
import functools
import signal
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ignite_hooks.model.parts import each
from ignite_hooks.model.worker_generators import note_seeded
from ignite_hooks.system.host import shield_from_group

if TYPE_CHECKING:
    from torch import Tensor

    from ignite_hooks.run.runner import Runner

_ORIGINALS: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
"""The loaders of the scripts, by the copies that replace them."""

_OPEN_RUNS: weakref.WeakKeyDictionary[Any, Tensor] = weakref.WeakKeyDictionary()
"""The number of open runs of each shielded loader, in memory that its workers see."""

KEPT = (
    "dataset",
    "num_workers",
    "collate_fn",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "generator",
    "prefetch_factor",
    "persistent_workers",
    "in_order",
)
"""The settings that a copy of a loader takes over, besides those that make batches."""

MADE_WITH = ("dataset", "num_workers", "sampler", "batch_sampler", "persistent_workers")
"""Attributes that the constructor of a loader sets."""


def datasets_with(loader: Any, *names: str) -> Iterator[Any]:
    """Yield the data set of a loader if it has one of these attributes, else the wrapped data sets that do.

    Example:
        >>> from torch.utils.data import ConcatDataset, DataLoader, Subset
        >>> class Words(list):
        ...     classes = ("a", "b")
        >>> words = Words("abab")
        >>> [found is words for found in datasets_with(DataLoader(Subset(words, [0, 1])), "classes")]
        [True]
        >>> len(list(datasets_with(DataLoader(ConcatDataset([words, Words("b")])), "classes")))
        2
    """
    rest = [getattr(loader, "dataset", loader)]
    seen: list[Any] = []
    while rest:
        found = rest.pop(0)
        if found is None or any(found is other for other in seen):
            continue
        seen.append(found)
        if any(getattr(found, name, None) is not None for name in names):
            yield found
        else:
            rest += [getattr(found, "dataset", None), *each(getattr(found, "datasets", None))]


def use_own_loader(runner: Runner) -> None:
    """Give a run with persistent workers a copy of the loader; call it before the run.

    Workers end with their loader, and the script keeps a reference to its loader.
    """
    state = runner.trainer.state
    if has_persistent_workers(state.dataloader) and state.dataloader not in _ORIGINALS:
        given = state.dataloader
        state.dataloader = copy_of_loader(given)
        _ORIGINALS[state.dataloader] = given


def restart_workers(runner: Runner) -> None:
    """Make every batch from here on from the data set as it is now; call it at the beginning of an epoch."""
    trainer = runner.trainer
    loader: Any = trainer.state.dataloader
    if not has_workers(loader):
        return
    fresh = loader
    if has_persistent_workers(loader):
        fresh = copy_of_loader(loader)
        _ORIGINALS[fresh] = _ORIGINALS.get(loader, loader)
    left = runner.checkpoints.position.batches_left()
    trainer.state.dataloader = fresh
    if left:
        # Batches that workers have prefetched are of the old data set, so a new iterator is needed.
        runner.checkpoints.position.iterator_made()
        trainer.set_data(fresh)
    # Else Ignite makes the iterator, after the handlers of the script at the beginning of an epoch.


def restore_loader(runner: Runner) -> None:
    """Give the script its own loader back; call it after a run."""
    state = runner.trainer.state
    if has_workers(state.dataloader) and state.dataloader in _ORIGINALS:
        state.dataloader = _ORIGINALS[state.dataloader]


def is_loader(data: object) -> bool:
    """Return whether data is a DataLoader that was made by its constructor.

    A class of the script may inherit from DataLoader only for its name. It is an iterable like any other: it has none
    of the attributes of a loader.
    """
    from torch.utils.data import DataLoader

    return isinstance(data, DataLoader) and all(hasattr(data, name) for name in MADE_WITH)


def has_workers(loader: Any) -> bool:
    """Return whether a loader has worker processes."""
    return is_loader(loader) and bool(loader.num_workers > 0)


def has_persistent_workers(loader: Any) -> bool:
    """Return whether a loader has worker processes that outlive an epoch."""
    return has_workers(loader) and bool(loader.persistent_workers)


def copy_of_loader(loader: Any) -> Any:
    """Return a new loader that yields the same batches, made from the public attributes of a loader.

    Example:
        >>> from torch.utils.data import DataLoader
        >>> list(copy_of_loader(DataLoader([1, 2, 3], batch_size=2)))
        [tensor([1, 2]), tensor([3])]
    """
    from torch.utils.data import DataLoader, IterableDataset

    if type(loader) is not DataLoader:
        raise ValueError(
            f"the persistent workers of a {type(loader).__name__} cannot be restarted, as it may need more than a "
            "DataLoader does: make it with persistent_workers=False"
        )
    kept = {name: getattr(loader, name) for name in KEPT if hasattr(loader, name)}
    if getattr(loader, "pin_memory_device", ""):
        kept["pin_memory_device"] = loader.pin_memory_device
    if loader.batch_size is None and loader.batch_sampler is not None:
        return DataLoader(**kept, batch_sampler=loader.batch_sampler)
    sampler = None if isinstance(loader.dataset, IterableDataset) else loader.sampler
    return DataLoader(**kept, batch_size=loader.batch_size, drop_last=loader.drop_last, sampler=sampler)


class ShieldedWorkers:
    """Make data loader workers ignore SIGINT, SIGTERM and what else the run handles, for the duration of the run.

    A signal to the whole process group would end the workers first, and the run would fail for want of data
    instead of finishing its iteration and saving. Workers that outlive the run obey again: Python ends them by SIGTERM
    when the script ends, and waits for them.

    Args:
        loaders: The loaders; objects of other types are ignored.
        signals: The other signals that the run handles.
    """

    def __init__(self, loaders: Iterable[Any], signals: Iterable[int] = ()) -> None:
        self._signals = tuple(int(number) for number in signals)
        self._loaders = list({id(loader): loader for loader in loaders if has_workers(loader)}.values())
        self._before: list[Any] = []

    def __enter__(self) -> Self:
        self._before = [loader.worker_init_fn for loader in self._loaders]
        for loader, before in zip(self._loaders, self._before, strict=True):
            loader.worker_init_fn = ShieldedInit(before, self._signals, _note_run(loader, 1))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for loader, before in zip(self._loaders, self._before, strict=True):
            _note_run(loader, -1)
            if isinstance(loader.worker_init_fn, ShieldedInit):
                loader.worker_init_fn = before


def _note_run(loader: Any, change: int) -> Tensor:
    """Count the open runs of a loader; a worker of an earlier run sees those of later ones."""
    import torch

    if loader not in _OPEN_RUNS:
        _OPEN_RUNS[loader] = torch.zeros(1, dtype=torch.int32).share_memory_()  # type: ignore[no-untyped-call]
        _release_at_exit()
    _OPEN_RUNS[loader] += change
    return _OPEN_RUNS[loader]


@functools.cache
def _release_at_exit() -> None:
    """Release the workers of a run in a thread that the script does not wait for, before Python waits for them."""
    atexit.register(lambda: [count.zero_() for count in list(_OPEN_RUNS.values())])


class ShieldedInit:
    """The ``worker_init_fn`` of a shielded worker; it can be sent to a spawned process.

    Args:
        before: The function of the script.
        signals: What the worker ignores, besides SIGINT and SIGTERM.
        open_runs: The number of runs that need the worker, in shared memory; without it one is open for ever.
    """

    def __init__(
        self, before: Callable[[int], None] | None, signals: tuple[int, ...] = (), open_runs: Tensor | None = None
    ) -> None:
        self.before, self.signals, self.open_runs = before, signals, open_runs

    def __call__(self, worker: int) -> None:
        # What torch sets before it ends its workers.
        ending = sys._getframe(1).f_locals.get("done_event")

        def is_ending() -> bool:
            return (ending is not None and ending.is_set()) or (
                self.open_runs is not None and not self.open_runs.item()
            )

        shield_from_group({signal.SIGINT, *self.signals}, is_ending)
        if self.before is not None:
            self.before(worker)
        note_seeded()
