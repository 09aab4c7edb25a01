"""Ignite's DeterministicEngine: it seeds each pass over its data and fixes the order before the first batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ignite_hooks.checkpoint.data.loader_parts import is_stream
from ignite_hooks.checkpoint.rng_state import random_state, set_random_state
from ignite_hooks.model.loader_workers import is_loader

if TYPE_CHECKING:
    from ignite.engine import Engine


def is_deterministic(engine: Engine) -> bool:
    """Return whether an engine makes its iterators as a DeterministicEngine does."""
    from ignite.engine.deterministic import DeterministicEngine

    return type(engine)._setup_engine is DeterministicEngine._setup_engine


def is_remade(data: Any, loader: Any) -> bool:
    """Return whether data is what a deterministic engine makes of a loader before its first batch."""
    batches = getattr(getattr(data, "batch_sampler", None), "batch_sampler", None)
    return batches is not None and batches is getattr(loader, "batch_sampler", None)


def replace_loader(engine: Engine) -> None:
    """Give a deterministic engine at the start of a run the loader that it makes itself before its first batch.

    The loader has a batch sampler that draws the order of a whole pass at once.
    """
    from ignite.engine.deterministic import ReproducibleBatchSampler, update_dataloader
    from torch.utils.data import BatchSampler

    loader: Any = engine.state.dataloader
    batches = _batches(loader)
    if not is_deterministic(engine) or batches is None or isinstance(batches, ReproducibleBatchSampler):
        return
    # Ignite warns of a sampler with epochs and another length: it has to see that loader.
    known = not hasattr(loader.sampler, "epoch") or engine.state.epoch_length in (None, len(loader))
    if known and isinstance(batches, BatchSampler):
        engine.state.dataloader = update_dataloader(loader, ReproducibleBatchSampler(batches))


def arranges_its_data(engine: Engine) -> bool:
    """Return whether an engine makes its iterators in a way that is not known here."""
    from ignite.engine import Engine as Plain
    from ignite.engine.deterministic import ReproducibleBatchSampler

    if not is_deterministic(engine):
        return type(engine)._setup_engine is not Plain._setup_engine
    batches = _batches(engine.state.dataloader)
    return not (batches is None or isinstance(batches, ReproducibleBatchSampler))


def seed_of(engine: Engine) -> int | None:
    """Return the seed of the run of a deterministic engine."""
    return getattr(engine.state, "seed", None) if is_deterministic(engine) else None


def restore_seed(engine: Engine, saved: Mapping[str, Any]) -> None:
    """Give a deterministic engine the seed that a position in the data was saved with."""
    if is_deterministic(engine) and saved.get("seed") is not None:
        engine.state.seed = saved["seed"]


def skipped_batches(engine: Engine) -> int:
    """Return how many batches an engine that makes its first iterator now skips, because it was led there."""
    if not is_deterministic(engine):
        return 0
    length, iteration = _length(engine), int(engine.state.iteration)
    return iteration % length if length else iteration


def random_state_of_pass(engine: Engine) -> dict[str, Any] | None:
    """Return the random state from which a deterministic engine makes its first iterator; None for other engines."""
    from ignite.engine.deterministic import DeterministicEngine

    if not isinstance(engine, DeterministicEngine) or not is_deterministic(engine):
        return None
    before = random_state()
    engine._dataloader_len = _length(engine)
    # It reads other data from the start, and seeds it so.
    engine._setup_seed(iteration=0 if _batches(engine.state.dataloader) is None else None)
    seeded = random_state()
    set_random_state(before)
    return seeded


def iterate_as_before(engine: Engine) -> None:
    """Make the iterator of a deterministic engine from the present random state; it would draw a new seed itself."""
    if is_deterministic(engine):
        data: Any = engine.state.dataloader
        engine._dataloader_iter = iter(data)


def _length(engine: Engine) -> int | None:
    return engine._get_data_length(engine.state.dataloader)  # type: ignore[arg-type]


def _batches(data: Any) -> Any:
    """Return the batch sampler of a loader whose data has indices, else None."""
    return data.batch_sampler if is_loader(data) and not is_stream(data) else None
