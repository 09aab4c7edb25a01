"""Sharing of the batches of an evaluation among ranks: each batch is evaluated once, by one rank."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from ignite_hooks.distributed.collectives import broadcast_object

if TYPE_CHECKING:
    from ignite.engine import Engine

Batch = list[Any]
"""The indices of one batch."""


class Shard:
    """Every n-th batch of a loader, beginning with the number of this rank.

    Whole batches are shared, not samples: they are collated as in a single process, so that the model and the metrics
    see the same batches. Ranks may differ by one batch, and a rank may have none.
    """

    def __init__(self, rank: int, ranks: int) -> None:
        self._rank, self._ranks = rank, ranks
        self.all: list[Batch] = []
        """The batches of all ranks."""

    @property
    def longest(self) -> int:
        """The largest number of batches of a rank."""
        return -(-len(self.all) // self._ranks)

    @property
    def shortest(self) -> int:
        """The smallest number of batches of a rank."""
        return len(self.all) // self._ranks

    @property
    def mine(self) -> list[Batch]:
        """The batches of this rank."""
        return self.all[self._rank :: self._ranks]

    @property
    def samples(self) -> int:
        """The number of samples of this rank."""
        return sum(len(batch) for batch in self.mine)

    # An engine refuses to run without data: a rank without batches sees the first one, which does not count.

    def __iter__(self) -> Iterator[Batch]:
        return iter(self.mine or self.all[:1])

    def __len__(self) -> int:
        return len(self.mine or self.all[:1])


class SharedLoader:
    """A loader of the same data that yields the batches of this rank.

    Args:
        loader: The loader, which is not changed; a ``DistributedSampler`` of it is not used.
        rank: The number of this rank.
        ranks: The number of ranks.
    """

    def __init__(self, loader: Any, rank: int, ranks: int) -> None:
        self.whole = loader
        self.shard = Shard(rank, ranks)
        self.loader: DataLoader[Any] = DataLoader(
            loader.dataset,
            batch_sampler=self.shard,
            num_workers=loader.num_workers,
            collate_fn=loader.collate_fn,
            pin_memory=loader.pin_memory,
            timeout=loader.timeout,
            worker_init_fn=loader.worker_init_fn,
            multiprocessing_context=loader.multiprocessing_context,
            generator=loader.generator,
            prefetch_factor=loader.prefetch_factor,
            persistent_workers=loader.persistent_workers,
        )

    def share_out(self) -> DataLoader[Any]:
        """Return the loader for one evaluation; rank 0 draws a random order for all."""
        self.shard.all = batches_of(self.whole)
        return self.loader

    def extra_step(self, engine: Engine) -> Callable[[], None]:
        """Return a function that makes a rank with fewer batches take as many steps as the others."""

        def step_on_the_first_batch() -> None:
            if len(self.shard) < self.shard.longest:
                first = [self.shard.all[0]]
                batch = next(
                    iter(DataLoader(self.whole.dataset, batch_sampler=first, collate_fn=self.whole.collate_fn))
                )
                engine._process_function(engine, batch)

        return step_on_the_first_batch


@contextlib.contextmanager
def without_syncs(model: Any) -> Iterator[None]:
    """Keep ``DistributedDataParallel`` from synchronising in a forward pass: other ranks may have fewer batches."""
    if not isinstance(model, DistributedDataParallel):
        yield
        return
    before = model.require_forward_param_sync
    model.require_forward_param_sync = False
    try:
        yield
    finally:
        model.require_forward_param_sync = before


def batches_of(loader: Any) -> list[Batch]:
    """Return the indices of all batches of a loader, the same on all ranks."""
    sampler = loader.sampler
    if type(loader.batch_sampler) is not BatchSampler:
        return list(broadcast_object([list(batch) for batch in loader.batch_sampler]))
    size, drop = loader.batch_sampler.batch_size, loader.batch_sampler.drop_last
    if isinstance(sampler, (SequentialSampler, DistributedSampler)) or _takes_all(sampler):
        return list(BatchSampler(range(len(loader.dataset)), size, drop))
    return list(BatchSampler([int(index) for index in broadcast_object([int(index) for index in sampler])], size, drop))


def why_not_shared(loader: Any) -> str | None:
    """Return the reason why the batches cannot be shared, or None."""
    if not isinstance(loader, DataLoader):
        return f"{type(loader).__name__} is not a DataLoader"
    if type(loader).__iter__ is not DataLoader.__iter__:
        return f"{type(loader).__name__} has its own __iter__"
    if isinstance(loader.dataset, IterableDataset):
        return "its dataset has no indices"
    if loader.batch_sampler is None:
        return "it makes no batches (batch_size=None)"
    return None


def _takes_all(sampler: Any) -> bool:
    """Return whether a sampler only changes the order of the whole data."""
    return (
        type(sampler) is RandomSampler and not sampler.replacement and sampler.num_samples == len(sampler.data_source)
    )
