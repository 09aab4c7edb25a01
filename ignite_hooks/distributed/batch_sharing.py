"""Data of an evaluation, shared out among ranks: every batch is evaluated once, by one of them."""

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
    """Every n-th batch of a loader, beginning with the one of this rank's number.

    Whole batches are shared out, not samples: they are put together as one process would put them together, so that
    the model and the metrics see what they see there. Ranks may differ by a batch, and one may have none.
    """

    def __init__(self, rank: int, ranks: int) -> None:
        self._rank, self._ranks = rank, ranks
        self.all: list[Batch] = []
        """The batches of all ranks."""

    @property
    def longest(self) -> int:
        """How many batches the rank has that has most."""
        return -(-len(self.all) // self._ranks)

    @property
    def shortest(self) -> int:
        """How many batches the rank has that has least."""
        return len(self.all) // self._ranks

    @property
    def mine(self) -> list[Batch]:
        """The batches that this rank answers for."""
        return self.all[self._rank :: self._ranks]

    @property
    def samples(self) -> int:
        """How many samples this rank answers for."""
        return sum(len(batch) for batch in self.mine)

    # An engine refuses to run without data: a rank that has none sees the first batch, which does not count.

    def __iter__(self) -> Iterator[Batch]:
        return iter(self.mine or self.all[:1])

    def __len__(self) -> int:
        return len(self.mine or self.all[:1])


class Sharded:
    """A loader of the same data that gives this rank its batches.

    Args:
        loader: The loader, which is left alone; its sampler may be a ``DistributedSampler``, which is not used.
        rank: The number of this rank.
        ranks: How many there are.
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
        """The loader for one evaluation; where the order is drawn, rank 0 draws it for all."""
        self.shard.all = batches_of(self.whole)
        return self.loader

    def catch_up(self, engine: Engine) -> Callable[[], None]:
        """What lets a rank that has had a batch less than others make as many steps as they do."""

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
    """Let ``DistributedDataParallel`` not talk to the other ranks in a forward: they may have a batch less."""
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
    """The indices of all batches of a loader, the same on all ranks."""
    sampler = loader.sampler
    if type(loader.batch_sampler) is not BatchSampler:
        return list(broadcast_object([list(batch) for batch in loader.batch_sampler]))
    size, drop = loader.batch_sampler.batch_size, loader.batch_sampler.drop_last
    if isinstance(sampler, (SequentialSampler, DistributedSampler)) or _takes_all(sampler):
        return list(BatchSampler(range(len(loader.dataset)), size, drop))
    return list(BatchSampler([int(index) for index in broadcast_object([int(index) for index in sampler])], size, drop))


def why_whole(loader: Any) -> str | None:
    """Why the data cannot be shared out, or None."""
    if not isinstance(loader, DataLoader):
        return f"{type(loader).__name__} is no DataLoader"
    if type(loader).__iter__ is not DataLoader.__iter__:
        return f"{type(loader).__name__} goes through its data in a way of its own"
    if isinstance(loader.dataset, IterableDataset):
        return "its dataset has no indices"
    if loader.batch_sampler is None:
        return "it makes no batches (batch_size=None)"
    return None


def _takes_all(sampler: Any) -> bool:
    """Whether a sampler only changes the order of the whole data."""
    return (
        type(sampler) is RandomSampler and not sampler.replacement and sampler.num_samples == len(sampler.data_source)
    )
