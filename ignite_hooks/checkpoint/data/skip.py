"""Getting to a position in the data without reading what is before it: by the loader's own state, or by indices."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Literal

from ignite_hooks.checkpoint.data.loader_parts import is_stream, keeps_its_position, loader_generators, loader_parts
from ignite_hooks.checkpoint.data.origin import IteratorOrigin
from ignite_hooks.checkpoint.data.rest_of_epoch import only_indices
from ignite_hooks.checkpoint.rng_state import random_state, restore_rng
from ignite_hooks.checkpoint.script.own_state import generators_of_data, has_own_order
from ignite_hooks.errors import CheckpointError
from ignite_hooks.model.loader_workers import is_loader
from ignite_hooks.model.worker_generators import WorkerReport
from ignite_hooks.store.plain import UnsavableError, to_plain

Skip = Literal["auto", "index", "read"]
"""How a resumed run gets to its position: as is exact, by indices in any case, or by reading in any case."""


def state_of_loader(data: Any) -> Any:
    """Return the state of a loader that keeps its position, in plain types; None where it cannot be saved."""
    if not keeps_its_position(data):
        return None
    try:
        return to_plain(data.state_dict(), "data", clone=True)
    except UnsavableError:
        return None


def iterate_by_state(saved: Mapping[str, Any], data: Any, how: Skip = "auto") -> Iterator[Any] | None:
    """Return an iterator from a saved position that the loader finds itself; None where there is no such state.

    Args:
        saved: The position in the checkpoint.
        data: The data of this run.
        how: What the user asks for.
    """
    state = saved.get("loader")
    if state is None or how == "read" or not keeps_its_position(data):
        return None
    if saved["made"] is not None:
        restore_rng(data, saved["made"])
    try:
        data.load_state_dict(to_plain(state, clone=True))
        found: Iterator[Any] = iter(data)
    except Exception as error:
        raise CheckpointError(
            f"{type(data).__name__}.load_state_dict: {type(error).__name__}: {error}; "
            "skip: read of CheckpointHook reads the earlier batches again instead"
        ) from error
    return found


def iterate_by_index(
    saved: Mapping[str, Any], data: Any, how: Skip = "auto", watch: Callable[[Any], object] = id
) -> Iterator[Any] | None:
    """Return an iterator from a saved position, of which only the indices before it were drawn.

    None is returned where that may not give the same batches, and they have to be read.

    Args:
        saved: The position in the checkpoint.
        data: The data of this run.
        how: What the user asks for.
        watch: Called with the loader that is used instead, before its iterator is made.
    """
    if not _has_indices(data) or not saved["drawn"] or how == "read":
        return None
    if how == "auto" and (saved["again"] or not saved.get("still") or not _is_still_in_workers(saved, data)):
        return None
    restore_rng(data, saved["made"])
    by_batch = data.batch_sampler is not None
    # Draws for its workers and for its samplers what the iterator of the data drew when it was made.
    indices = only_indices(data.batch_sampler if by_batch else data.sampler, data.generator)
    if saved["first"] is not None and not data.num_workers:
        restore_rng(data, saved["first"], read_again=True)
    count = len(list(islice(indices, 1)))
    before = _drawn_by_both(data)
    count += sum(1 for _ in islice(indices, saved["drawn"] - 1))
    if count < saved["drawn"] or (how == "auto" and before != _drawn_by_both(data)):
        # There is less data than there was, or what the sampler draws depends on what the data draws in between.
        return None
    rest = copy.copy(data)
    # A loader refuses that its samplers are set, but this one is a copy that makes one iterator. Its workers get the
    # seeds that they had, without a draw that would come between two of the sampler.
    order = {"batch_sampler": indices} if by_batch else {"sampler": indices}
    vars(rest).update(order, generator=_generator_at(saved["made"], data), persistent_workers=False, _iterator=None)
    watch(rest)
    found: Iterator[Any] = iter(rest)
    return found


def ends_with_a_draw(data: Any) -> bool:
    """Return whether reaching the end of the data may draw from a generator, as RandomSampler does."""
    loads_here = is_loader(data) and data.num_workers == 0 and not is_stream(data)
    return loads_here and (bool(loader_generators(loader_parts(data))) or has_own_order(data))


def end_of(data: Any, saved: Mapping[str, Any]) -> Iterator[Any]:
    """Return an iterator that ends as that of a loader does; only the indices of the batches are drawn."""
    if not ends_with_a_draw(data):
        return iter(())
    restore_rng(data, saved["first"] or saved["made"])
    indices = iter(data.sampler if data.batch_sampler is None else data.batch_sampler)
    for _ in range(saved["drawn"]):
        next(indices, None)

    def end() -> Iterator[Any]:
        next(indices, None)
        yield from ()

    return end()


def is_reused(data: Any, origin: IteratorOrigin | None) -> bool:
    """Return whether an iterator, made or still to be made, is not the first of a loader that keeps its workers."""
    return getattr(data, "_iterator", None) is not None if origin is None else bool(origin.rng["used"])


def watch_workers(data: Any) -> WorkerReport | None:
    """Return what the workers of a loader will say about an iterator that is made next; None where that is no use."""
    watched = _has_indices(data) and data.num_workers and not data.persistent_workers
    return WorkerReport(data) if watched else None


def _is_still_in_workers(saved: Mapping[str, Any], data: Any) -> bool:
    """Return whether workers, if there are any, go on as those before: without random numbers."""
    return not data.num_workers or (bool(saved.get("untouched")) and not generators_of_data(data))


def _has_indices(data: Any) -> bool:
    from torch.utils.data import DataLoader

    return is_loader(data) and not is_stream(data) and type(data).__iter__ is DataLoader.__iter__


def _drawn_by_both(data: Any) -> str:
    """Return the state of the generators from which both a sampler and the data may draw, to be compared."""
    return repr((_listed(random_state()), _listed(generators_of_data(data))))


def _listed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _listed(item) for key, item in value.items()}
    return value.tolist() if hasattr(value, "tolist") else value


def _generator_at(made: Mapping[str, Any], data: Any) -> Any:
    """Return a generator that draws what that of the loader drew when the iterator was made."""
    import torch

    names = [name for name, one in loader_generators(loader_parts(data)).items() if one is data.generator]
    found = torch.Generator()
    found.set_state(made["generators"][names[0]] if names else made["random"]["torch"])
    return found
