"""The rest of an epoch that a run continues with another batch size, number of ranks or length of an epoch."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ignite_hooks.checkpoint.data.loader_parts import loader_generators, loader_parts
from ignite_hooks.checkpoint.rng_state import restore_rng, set_random_state
from ignite_hooks.errors import CheckpointError
from ignite_hooks.model.loader_workers import is_loader

KNOWN = ("RandomSampler", "SequentialSampler", "DistributedSampler")
"""The samplers whose order can be made again for another number of ranks."""


@dataclass(frozen=True)
class Rest:
    """The rest of an epoch, counted as this run counts."""

    position: dict[str, Any]
    """The position of the checkpoint, with the iterations that count as done in batches of this run."""
    told: tuple[str, ...] = ()
    """What has changed and what follows from it."""
    seen: int = 0
    """The samples of the current order that have been seen, by all ranks together."""
    batches: int | None = None
    """The batches in which the other samples follow; None if batches are drawn and discarded as usual."""


def counts_of(data: Any, rest: Rest | None = None) -> dict[str, Any] | None:
    """Return how data is counted: samples, samples in a batch, ranks that share them, and the order they come in.

    Args:
        data: The training data; None is returned unless it is a loader that makes batches by their size.
        rest: The rest of an epoch that is being read; it has the order of the run before.
    """
    from torch.utils.data import BatchSampler, DistributedSampler, IterableDataset

    if not is_loader(data) or isinstance(data.dataset, IterableDataset):
        return None
    batches = data.batch_sampler
    if batches is not None and type(batches) is not BatchSampler:
        return None
    sampler: Any = data.sampler if batches is None else batches.sampler
    shared = isinstance(sampler, DistributedSampler)
    try:
        samples = len(sampler.dataset) if shared else len(sampler)
    except TypeError:
        return None
    return {
        "samples": int(samples),
        "batch": 1 if batches is None else int(batches.batch_size),
        "drop_last": batches is not None and bool(batches.drop_last),
        "ranks": int(sampler.num_replicas) if shared else 1,
        "order": _order_of(data, sampler) if rest is None else rest.position["counts"]["order"],
    }


def are_counts(value: Any) -> bool:
    """Return whether a value of a file can be what `counts_of` returned."""
    if value is None:
        return True
    if not isinstance(value, dict) or not isinstance(value.get("order"), dict):
        return False
    order, numbers = value["order"], [value.get(name) for name in ("samples", "batch", "ranks")]
    texts = all(isinstance(order.get(name), str) for name in ("kind", "place", "generator"))
    seeded = all(type(order.get(name)) is int for name in ("seed", "workers")) and type(order.get("shuffle")) is bool
    whole = all(type(number) is int and number >= 0 for number in numbers) and value["batch"] and value["ranks"]
    return bool(texts and seeded and whole and isinstance(value.get("drop_last"), bool))


def recount(saved: Mapping[str, Any], before: int | None, data: Any, length: int | None) -> Rest:
    """Return what is left of the epoch in a checkpoint, in batches of this run.

    Args:
        saved: The position in the checkpoint.
        before: The iterations of an epoch when it was saved.
        data: The data of this run.
        length: The iterations of an epoch now.
    """
    then, now, position = saved["counts"], counts_of(data), dict(saved)
    if then is None or now is None:
        if not before or not length or before == length or not saved["done"]:
            return Rest(position)
        # What a batch held is not known: the same share of the epoch counts as done.
        position["done"] = min(length - 1, saved["done"] * length // before)
        if saved["length"] and hasattr(data, "__len__"):
            position["drawn"] = saved["drawn"] * len(data) // saved["length"]
        return Rest(position, (f"{saved['done']} of {before} iterations count as {position['done']} of {length}",))
    units = [counts["batch"] * counts["ranks"] for counts in (then, now)]
    told = tuple(_changes(then, now))
    if not told and not saved["skipped"]:
        if before and length and before != length:
            position["done"] = min(length - 1, saved["done"])
        return Rest(position)
    seen = min(saved["skipped"] + saved["drawn"] * units[0], then["samples"])
    if then["samples"] != now["samples"] and then["samples"]:
        seen = seen * now["samples"] // then["samples"]
    batches = _batches(now["samples"] - seen, now)
    fresh = saved["over"] or saved["made"] is None or not batches
    if before and length and saved["done"]:
        if not fresh and before == saved["length"] and length == len(data):
            position["done"] = max(0, length - batches)
        elif before != length:
            position["done"] = min(length - 1, saved["done"] * units[0] // units[1])
    if fresh:
        return Rest({**position, "over": False, "made": None, "first": None, "drawn": 0, "skipped": 0}, told)
    rest = f"{seen} of the {now['samples']} samples of this epoch were seen, the other {now['samples'] - seen} follow"
    return Rest(position, (*told, rest), seen, batches)


def length_offset(progress: Mapping[str, Any], done: int, length: int | None) -> int:
    """Return the iterations of earlier epochs beyond the length that epochs have now.

    Args:
        progress: The progress of the trainer in the checkpoint.
        done: The iterations of its epoch that are done.
        length: The length of an epoch now, if known.
    """
    if not length:
        return 0
    return int(progress["iteration"]) - int(progress["epoch"]) * length - (done if done < length else 0)


def iterate_rest(saved: Mapping[str, Any], data: Any, seen: int) -> Iterator[Any]:
    """Return an iterator over the samples of the saved order that were not seen, in batches of this run.

    It draws random numbers; the caller restores them.
    """
    from torch.utils.data import BatchSampler, DistributedSampler

    now = counts_of(data)
    assert now is not None
    try:
        order = list(islice(_saved_order(saved, data, now["samples"]), seen, None))
    except Exception as error:
        raise CheckpointError(f"the order of the data cannot be made again: {type(error).__name__}: {error}") from error
    sampler = data.sampler if data.batch_sampler is None else data.batch_sampler.sampler
    mine = order
    if isinstance(sampler, DistributedSampler):
        share = _share(len(order), now)
        padded = (order * (share * now["ranks"] // len(order) + 1))[: share * now["ranks"]]
        mine = padded[sampler.rank :: sampler.num_replicas]
    rest = copy.copy(data)
    drop_last = now["drop_last"] and len(mine) >= now["batch"]
    batches = None if data.batch_sampler is None else BatchSampler(mine, now["batch"], drop_last)
    # A loader refuses that its samplers are set, but this one is a copy that makes one iterator.
    vars(rest).update(sampler=mine, batch_sampler=batches, persistent_workers=False, _iterator=None)
    return iter(rest)


def _order_of(data: Any, sampler: Any) -> dict[str, Any]:
    """Return what is needed to make the order of a sampler again, as plain types."""
    from torch.utils.data import RandomSampler

    parts = loader_parts(data)
    place = next((place for place, part in parts.items() if part is sampler), "")
    generator = getattr(sampler, "generator", None)
    generators = loader_generators(parts) if generator is not None else {}
    kind = type(sampler).__name__ if type(sampler).__module__.startswith("torch.utils.data") else repr(type(sampler))
    if isinstance(sampler, RandomSampler) and (sampler.replacement or len(sampler) != len(sampler.data_source)):
        kind += " with replacement"
    return {
        "kind": kind,
        "place": place,
        "generator": next((name for name, found in generators.items() if found is generator), ""),
        "workers": int(data.num_workers),
        "seed": int(getattr(sampler, "seed", 0)),
        "shuffle": bool(getattr(sampler, "shuffle", False)),
    }


def _changes(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    if then["batch"] != now["batch"]:
        yield f"the batch size was {then['batch']} and is {now['batch']}"
    if then["ranks"] != now["ranks"]:
        yield f"{then['ranks']} ranks shared the data, and {now['ranks']} do now"
    changed = then["batch"] != now["batch"] or then["ranks"] != now["ranks"]
    if changed and then["samples"] != now["samples"]:
        yield f"the data had {then['samples']} samples and has {now['samples']}"
    if changed and then["order"]["kind"] not in KNOWN:
        yield f"the order of {then['order']['kind']} is drawn again and may be another"


def _share(samples: int, counts: Mapping[str, Any]) -> int:
    """Return how many of these samples each rank takes: as many on each, so some come twice."""
    return -(-samples // int(counts["ranks"]))


def _batches(samples: int, counts: Mapping[str, Any]) -> int:
    """Return in how many batches these samples come on each rank; a last small one is kept if it is the only one."""
    share, batch = _share(samples, counts), int(counts["batch"])
    return (share // batch if counts["drop_last"] and share >= batch else -(-share // batch)) if samples > 0 else 0


def _saved_order(saved: Mapping[str, Any], data: Any, samples: int) -> Iterator[Any]:
    """Return the indices in the order of the epoch in the checkpoint; their first random number is drawn at once."""
    from torch.utils.data import DistributedSampler, RandomSampler

    order, made, first = saved["counts"]["order"], saved["made"], saved["first"]
    if order["kind"] == "SequentialSampler":
        return iter(range(samples))
    if order["kind"] == "DistributedSampler":
        numbers: Any = range(samples)
        shared: Any = DistributedSampler(numbers, num_replicas=1, rank=0, shuffle=order["shuffle"], seed=order["seed"])
        shared.set_epoch((first or made)["epochs"].get(order["place"], 0))
        return iter(shared)
    restore_rng(data, made)
    generators = {name: _generator(state) for name, state in made["generators"].items()}
    sampler: Any = RandomSampler(range(samples), generator=generators.get(order["generator"]))
    loaders = generators.get("generator")
    if order["kind"] != "RandomSampler":
        sampler, loaders = (data.sampler if data.batch_sampler is None else data.batch_sampler.sampler), data.generator
    if saved["again"]:
        return iter(sampler)
    indices = only_indices(sampler, loaders)
    if first is not None and not order["workers"]:
        set_random_state(first["random"])
        for name, generator in generators.items():
            generator.set_state(first["generators"][name])
        if order["kind"] != "RandomSampler":
            restore_rng(data, first)
    return indices


def only_indices(sampler: Any, generator: Any) -> Iterator[Any]:
    """Return an iterator over what a sampler yields, which has drawn what that of a loader without workers draws."""
    from torch.utils.data import DataLoader

    nothing: Any = _Indices()
    # A loader draws a number for its workers before its sampler draws.
    return iter(DataLoader(nothing, batch_size=None, sampler=sampler, generator=generator, collate_fn=_same))


class _Indices:
    """A dataset in which each index is its own sample."""

    def __getitem__(self, index: Any) -> Any:
        return index


def _generator(state: Any) -> Any:
    import torch

    generator = torch.Generator()
    generator.set_state(state)
    return generator


def _same(index: Iterable[Any]) -> Any:
    return index
