"""State that samplers, data sets, transforms and collate functions keep themselves: read it, put it back."""

from __future__ import annotations

import contextlib
import copy
import enum
import itertools
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ignite_hooks.checkpoint.data.loader_parts import loader_generators, loader_parts
from ignite_hooks.checkpoint.script.kinds import (
    MOST_LEAVES,
    SCALARS,
    base_of,
    fields_of,
    is_array,
    is_number_of_numpy,
    is_record,
    is_told_by_text,
)
from ignite_hooks.checkpoint.script.marks import mark_of
from ignite_hooks.checkpoint.script.own_generators import generator_state, is_generator, set_generator_state
from ignite_hooks.checkpoint.script.plain_values import CANNOT, NO_STATE, as_before, plain_of
from ignite_hooks.checkpoint.script.reachable import GLOBALS, Reached, is_of_library, reach, worth_entering
from ignite_hooks.errors import CheckpointError
from ignite_hooks.model.loader_workers import is_loader
from ignite_hooks.store.plain import to_plain

LONGEST_ORDER = 1_000_000
"""The most numbers of an order of the data, such as a list that a sampler shuffles in place, that are saved."""

LONGEST_LIST = 100_000
"""The most items of a list of a data set that are compared at each save."""

FEW = 64
"""The most values in a collection of a data set that are compared: a larger one is rather data."""

ARRANGING = ("sampler", "batch_sampler")
"""The parts of a loader that decide on the order of its data."""
_PARTS = ("sampler", "batch_sampler", "dataset", "collate_fn", "worker_init_fn")


class Holder(NamedTuple):
    """An object of the data that may keep a state."""

    place: str
    thing: Any
    arranges: bool
    """Whether it decides on the order of the data, as a sampler does."""


class OwnState:
    """The state of the objects that make up some data, as far as it is known how to keep it.

    Three kinds are kept: random generators, what ``state_dict`` returns, and counters: attributes that are numbers,
    text, tensors or collections of these and have changed since this object was made.
    """

    def __init__(self, data: object) -> None:
        self._data = data
        self._walk: tuple[list[Reached], list[Holder]] | None = None
        holders = _holders(data)
        self._before = {holder.place: _marks(holder) for holder in holders}
        self._first = {holder.place: _first_values(holder) for holder in holders}

    @contextlib.contextmanager
    def one_walk(self) -> Iterator[None]:
        """Go through the objects once for all that is asked in here, where nothing is read from the data."""
        everything = list(_everything(self._data))
        self._walk = everything, _holders_among(everything)
        try:
            yield
        finally:
            self._walk = None

    def _holders_now(self) -> list[Holder]:
        return _holders(self._data) if self._walk is None else self._walk[1]

    def state(self, *, counters: bool = True) -> dict[str, Any]:
        """Return the state, as plain types and tensors; without counters it is what an evaluation may put back."""
        generators: dict[str, Any] = {}
        stateful: dict[str, Any] = {}
        counted: dict[str, Any] = {}
        known = [*loader_generators(loader_parts(self._data)).values()]
        everything = list(_everything(self._data)) if self._walk is None else self._walk[0]
        for reached in everything:
            if is_generator(reached.thing) and not any(reached.thing is other for other in known):
                generators[reached.place] = generator_state(reached.thing)
        holders = _holders_among(everything) if self._walk is None else self._walk[1]
        for holder in holders if counters else ():
            if _keeps_itself(holder):
                stateful[holder.place] = to_plain(
                    holder.thing.state_dict(), f"{named(holder)}.state_dict()", clone=True
                )
            elif found := self._counters(holder):
                counted[holder.place] = found
        kinds = {"generators": generators, "stateful": stateful, "counters": counted}
        return {kind: states for kind, states in kinds.items() if states}

    def complete(self, *states: dict[str, Any]) -> None:
        """Add to each of these states the counters that only others of them hold.

        `state` leaves out a counter that has its first value, which would not be put back where one state is restored
        after another.

        Args:
            states: What `state` returned at several times; they are changed.
        """
        found: dict[str, set[str]] = {}
        for state in states:
            for place, counters in state.get("counters", {}).items():
                found.setdefault(place, set()).update(counters)
        for place, names in found.items():
            first = {name: value for name, value in self._first.get(place, {}).items() if name in names}
            for state in states if first else ():
                counters = state.setdefault("counters", {})
                before = {name: _kept(value) for name, value in first.items()}
                counters[place] = {**before, **counters.get(place, {})}

    def still(self) -> bool:
        """Return whether reading the data has changed nothing in its objects but generators, orders aside."""
        read = [holder for holder in self._holders_now() if not _arranging(holder.place)]
        return not any(_keeps_itself(one) or self._before.get(one.place) != _marks(one) for one in read)

    def unkept(self) -> list[str]:
        """Return what has changed and cannot be kept, in words."""
        found = []
        for holder in self._holders_now():
            if _keeps_itself(holder):
                continue
            changed = self._changed(holder)
            if changed and not self._counters(holder):
                found += [f"{named(holder)}.{name}" for name in changed]
        return found

    def _counters(self, holder: Holder) -> dict[str, Any]:
        """Return the attributes that have changed, if all of them can be kept."""
        changed = self._changed(holder)
        values = {name: _kept(vars(holder.thing)[name]) for name in changed}
        return {} if any(value is CANNOT for value in values.values()) else values

    def _changed(self, holder: Holder) -> list[str]:
        """Return the attributes that are progress: they have changed, and not by what is made once, when needed."""
        before, now = self._before.get(holder.place, {}), _marks(holder)
        changed = [name for name in now if name in before and before[name] != now[name]]
        # A list that was there from the start is content, one that is filled is perhaps a cache.
        made_late = [
            name
            for name in changed
            if before[name] in (("is", None), ("holds", 0))
            or (now[name][0] == "holds" and not (type(vars(holder.thing)[name]) is list and before[name][1]))
        ]
        counted = [name for name in changed if name not in made_late]
        if holder.arranges:
            return [name for name in changed if before[name] != ("is", None)]
        # A data set that fills a cache while it counts: its counters without its cache would be wrong.
        return changed if counted else []


def restore_own(data: object, state: Mapping[str, Any], *, read_again: bool = False) -> None:
    """Put back what `OwnState.state` returned; objects that no longer exist are skipped.

    Args:
        data: The data.
        state: The state.
        read_again: Whether the data has just been read again up to this position. What has ``load_state_dict`` is
            there then, and loading a position once more may make it skip as much of the next epoch.
    """
    generators, counters = state.get("generators", {}), state.get("counters", {})
    stateful = {} if read_again else state.get("stateful", {})
    if generators:
        for reached in list(_everything(data)):
            if reached.place in generators and is_generator(reached.thing):
                try:
                    set_generator_state(reached.thing, generators[reached.place])
                except CheckpointError as error:
                    raise CheckpointError(f"the generator {reached.place} of the data: {error}") from error
    for holder in _holders(data) if stateful or counters else ():
        if holder.place in stateful and _keeps_itself(holder):
            holder.thing.load_state_dict(to_plain(stateful[holder.place], clone=True))
        elif holder.place in counters:
            _set_counters(holder.thing, counters[holder.place])


def has_own_order(data: object) -> bool:
    """Return whether a sampler of this data keeps a state itself, which may change when it reaches its end."""
    generators = any(_arranging(reached.place) and is_generator(reached.thing) for reached in _everything(data))
    return generators or any(_arranging(holder.place) for holder in _holders(data))


def generators_of_data(data: object) -> dict[str, Any]:
    """Return the states of the generators from which the samples of a loader are drawn, besides the global ones."""
    roots = {name: getattr(data, name, None) for name in ("dataset", "collate_fn")}
    found = reach(roots, enter=_enter)
    return {place: generator_state(thing) for place, thing in found if is_generator(thing)}


def _arranging(place: str) -> bool:
    return place.partition(".")[0] in ARRANGING


def named(holder: Holder) -> str:
    """Return the name of an object of the data for messages: its class."""
    return type(holder.thing).__name__


def _everything(data: object) -> Iterator[Reached]:
    return reach(_roots(data), enter=_enter)


def _roots(data: object) -> dict[str, Any]:
    from torch.utils.data import DataLoader

    if not is_loader(data):
        return {} if data is None or isinstance(data, (list, tuple, dict)) else {"data": data}
    found = {name: getattr(data, name, None) for name in _PARTS}
    # A loader of the script's own class may count too; a plain one has nothing but its parts.
    return found if type(data) is DataLoader else {**found, "loader": data}


def _enter(thing: object) -> bool:
    return worth_entering(thing) and "_iterator" not in getattr(thing, "__dict__", {})


def _holders(data: object) -> list[Holder]:
    return _holders_among(_everything(data))


def _holders_among(everything: Iterable[Reached]) -> list[Holder]:
    from torch.utils.data import Sampler

    found = []
    for place, thing in everything:
        attributes, path = getattr(thing, "__dict__", None), place.split(".")
        if type(attributes) is not dict or is_generator(thing) or GLOBALS in path:
            continue
        if isinstance(thing, (enum.Enum, type)) or is_record(thing):  # a value
            continue
        is_root = place in ("data", "loader")
        if is_root and _is_stateful(thing):
            # Where it is in its data, a loader says itself.
            continue
        # A sampler of Ignite draws its whole order anew in each pass.
        orders = isinstance(thing, Sampler) and not type(thing).__module__.startswith("ignite.")
        if not is_of_library(thing) or orders or _is_stateful(thing):
            found.append(Holder(place, thing, is_root or place == "collate_fn" or isinstance(thing, Sampler)))
    return found


def _keeps_itself(holder: Holder) -> bool:
    return _is_stateful(holder.thing) and holder.place not in ("data", "loader")


def _is_stateful(thing: object) -> bool:
    import torch

    # Looked up on the class: some objects answer for any name.
    kind = type(thing)
    both = all(callable(getattr(kind, name, None)) for name in ("state_dict", "load_state_dict"))
    # Those of torchdata mean a position within an epoch, which reading again leads to.
    return both and not isinstance(thing, torch.nn.Module) and not kind.__module__.startswith("torchdata.")


def _marks(holder: Holder) -> dict[str, tuple[str, Any]]:
    """Return for each attribute by what it is recognised as changed."""
    import torch

    found: dict[str, tuple[str, Any]] = {}
    for name, value in list(vars(holder.thing).items()):
        if isinstance(value, SCALARS):
            found[name] = ("is", value)
        elif isinstance(value, torch.Tensor):
            found[name] = ("orders", _content(value, holder.arranges))
        elif isinstance(value, (list, tuple, set, dict)) or type(value).__name__ in ("ndarray", "deque"):
            order = _order(value) if holder.arranges or _chooses(value) else None
            found[name] = ("holds", len(value) if getattr(value, "shape", None) != () else 0)
            if order is not None:
                found[name] = ("orders", hash(order))
            elif _is_counter(value, holder.arranges):
                found[name] = ("is", mark_of(value))
        elif _is_counter(value, holder.arranges):
            found[name] = ("is", mark_of(value))
        elif hasattr(type(value), "__next__"):
            found[name] = ("iterates", id(value))
    return found


def _content(tensor: Any, arranges: bool) -> Any:
    """Return what tells whether a tensor has changed: of one that arranges the data, its numbers."""
    if arranges and tensor.numel() <= LONGEST_ORDER and not tensor.is_meta:
        return hash(tuple(tensor.detach().reshape(-1).tolist()))
    return id(tensor), 0 if tensor.is_inference() else tensor._version


def _chooses(value: Any) -> bool:
    """Return whether a collection of a data set may be the numbers of its samples, and is short enough to look at."""
    if type(value).__name__ == "ndarray":
        return 0 < int(value.size) <= LONGEST_LIST
    # One that is empty is filled later, as a cache is.
    return type(value) is list and 0 < len(value) <= LONGEST_LIST


def _is_counter(value: Any, arranges: bool) -> bool:
    """Return whether a value of another kind may count, and is small enough to be compared."""
    most = MOST_LEAVES if arranges else FEW
    return type(value) is Counter or 0 < _size_of(value, most) <= most


def _size_of(value: Any, most: int) -> int:
    """Return of how many numbers, texts and the like a value is made; more than the most if of anything else."""
    if isinstance(value, (*SCALARS, complex, bytes, enum.Enum)) or is_number_of_numpy(value) or base_of(value):
        return 1
    if is_array(value):
        return int(value.size) if value.dtype.kind in "biufc" else most + 1
    parts: Iterable[Any]
    if isinstance(value, dict):
        parts = itertools.chain(value.keys(), value.values())
    elif isinstance(value, (list, tuple, set, frozenset, deque)):
        parts = value
    elif is_record(value):
        parts = [getattr(value, name) for name in fields_of(value) or ()]
    else:
        return 1 if is_told_by_text(value) else most + 1
    size = 0
    for part in parts:
        size += _size_of(part, most)
        if size > most:
            break
    return size


def _first_values(holder: Holder) -> dict[str, Any]:
    """Return the attributes that can be kept as they are now; orders are copied."""
    import torch

    found: dict[str, Any] = {}
    for name, value in list(vars(holder.thing).items()):
        if isinstance(value, SCALARS):
            found[name] = value
        elif holder.arranges and isinstance(value, torch.Tensor) and value.numel() <= LONGEST_ORDER:
            found[name] = value.detach().clone()
        elif (holder.arranges or _chooses(value)) and _order(value) is not None:
            found[name] = copy.copy(value)
        elif _is_counter(value, holder.arranges) or (holder.arranges and value in ([], {}, set())):
            found[name] = copy.deepcopy(value)
    return found


def _order(value: Any) -> tuple[Any, ...] | None:
    """Return the numbers in a sequence, None for anything else."""
    if type(value).__name__ == "ndarray":
        return tuple(value.tolist()) if value.ndim == 1 and value.size <= LONGEST_ORDER else None
    if not isinstance(value, (list, tuple)) or len(value) > LONGEST_ORDER:
        return None
    return tuple(value) if all(type(item) in (int, float) for item in value) else None


def _kept(value: Any) -> Any:
    """Return the plain form of an attribute that has changed, or that it cannot be kept."""
    import torch

    if isinstance(value, SCALARS):
        return value
    if isinstance(value, torch.Tensor):
        return value.detach().clone() if value.numel() <= LONGEST_ORDER else CANNOT
    if (order := _order(value)) is not None:
        return list(order)
    plain = plain_of(value)
    return CANNOT if plain is NO_STATE else plain


def _set_counters(thing: object, saved: Mapping[str, Any]) -> None:
    import torch

    attributes = vars(thing)
    for name, value in saved.items():
        if name not in attributes or not isinstance(value, (*SCALARS, list, torch.Tensor, Mapping)):
            continue
        now: Any = attributes[name]
        if isinstance(value, Mapping):
            _set_other(attributes, name, as_before(value, now))
            continue
        if isinstance(value, torch.Tensor):
            # In place where that can be: others may hold the same tensor.
            if isinstance(now, torch.Tensor) and now.shape == value.shape and not now.requires_grad:
                now.copy_(value)
            else:
                attributes[name] = value.clone()
        elif not isinstance(value, list):
            attributes[name] = value
        elif isinstance(now, tuple):
            attributes[name] = tuple(value)
        elif type(now).__name__ == "ndarray" and len(now) != len(value):
            import numpy

            attributes[name] = numpy.array(value, dtype=now.dtype)
        else:
            # In place: others may hold the same list or array.
            now[:] = value


def _set_other(attributes: dict[str, Any], name: str, value: Any) -> None:
    now = attributes[name]
    if is_array(now) and is_array(value) and now.shape == value.shape:
        # In place: others may hold the same array.
        now[...] = value
    elif value is not CANNOT:
        attributes[name] = value
