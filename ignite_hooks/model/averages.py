"""Averages of a model's weights: kept beside it, brought forward, put into the model and taken out again."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import getitem
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import Parameter, is_lazy

from ignite_hooks.distributed import collectives as ranks
from ignite_hooks.errors import CheckpointError

SMALL = 1 << 14
"""Tensors of up to so many elements are gathered into one: going through many of them costs more than copying."""

TOGETHER = 7
"""Updates of a small model that are made in one go: no divisor of usual intervals, so that none meets it always."""

FEW = 32
"""Up to so many flat ones are looked at one by one and gathered with the others: that is cheaper than another pack."""

HALF = (torch.float16, torch.bfloat16)
AVERAGED = (*HALF, torch.float32, torch.float64, torch.complex64, torch.complex128)
"""Tensors of any other type are not averaged: those of the model are taken."""


class Place(NamedTuple):
    """Where a tensor of the model hangs: ``table[key]`` is the tensor even after it has been replaced."""

    name: str
    table: Mapping[str, Any]
    key: str


@dataclass
class Pack:
    """Small tensors, gathered to be averaged at once.

    Args:
        places: Where they hang.
        flat: Their averages, one after another.
        dtype: Their type.
        views: Flat views of them; None where they are flat themselves and are looked up each time.
    """

    places: list[Place]
    flat: Tensor
    dtype: torch.dtype
    views: list[Tensor] | None

    def __post_init__(self) -> None:
        self._tables, self._keys = [place.table for place in self.places], [place.key for place in self.places]

    def gather(self) -> Tensor | None:
        """The tensors one after another; None where they are others than before."""
        tensors = list(map(getitem, self._tables, self._keys)) if self.views is None else self.views
        found = torch.cat(tensors)
        return found if found.shape == self.flat.shape and found.dtype == self.dtype else None


class Later:
    """Updates of a small model that wait for each other.

    Between two steps of a training every operation is slow, as the caches of the processor hold other things; right
    after one of its kind it is not. So an iteration only takes down the tensors. What follows is the same to the bit.

    Args:
        views: The tensors.
        flat: Their averages, one after another.
    """

    def __init__(self, views: list[Tensor], flat: Tensor) -> None:
        self._views, self._flat, self._gather = views, flat, torch.cat
        self._memory = flat.new_empty(TOGETHER * flat.numel())
        self._rows = list(self._memory.view(TOGETHER, flat.numel()).unbind())
        self._asked: list[tuple[float, int]] = []

    def take_down(self, momentum: float, iteration: int) -> bool:
        """Whether it is time to make them all."""
        asked = self._asked
        self._gather(self._views, out=self._rows[len(asked)])
        asked.append((momentum, iteration))
        return len(asked) == TOGETHER

    def make(self) -> tuple[int, list[int]]:
        """How many were made, and the iterations of those whose tensors were not finite."""
        asked, self._asked = self._asked, []
        left_out = []
        all_are = bool(asked) and _all_finite(self._memory[: len(asked) * self._flat.numel()])
        for row, (momentum, iteration) in zip(self._rows, asked, strict=False):
            if all_are or _all_finite(row):
                self._flat.lerp_(row, 1 - momentum)
            else:
                left_out.append(iteration)
        return len(asked) - len(left_out), left_out


def parameters(model: Module) -> Iterator[Place]:
    """The parameters that can be averaged; shared ones come once."""
    return _places((prefix, module._parameters) for prefix, module in model.named_modules())


def floating_buffers(model: Module) -> Iterator[Place]:
    """The buffers of a checkpoint that can be averaged: a mask of minus infinity cannot."""
    for prefix, module in model.named_modules():
        saved = {k: b for k, b in module._buffers.items() if k not in module._non_persistent_buffers_set}
        for place in _places([(prefix, saved)]):
            if bool(torch.isfinite(saved[place.key]).all()):
                yield Place(place.name, module._buffers, place.key)


def _places(tables: Any) -> Iterator[Place]:
    seen: set[int] = set()
    for prefix, table in tables:
        for key, tensor in table.items():
            if tensor is not None and id(tensor) not in seen and tensor.dtype in AVERAGED:
                seen.add(id(tensor))
                yield Place(f"{prefix}.{key}" if prefix else key, table, key)


class Part:
    """The averages of some tensors of a model, by name.

    Args:
        find: Finds the tensors.
        copied: Whether an evaluation gets copies, because it may change these tensors.
        patient: Whether the updates of a small model may wait until `catch_up`.
    """

    def __init__(self, find: Callable[[], Iterator[Place]], *, copied: bool = False, patient: bool = False) -> None:
        self._find, self._copied, self._patient = find, copied, patient
        self.later: Later | None = None
        """Where updates may be taken down; None where they are made at once."""
        self._made, self._left_out = 0, list[int]()
        self.values: dict[str, Tensor] = {}
        self._held: list[tuple[Tensor, Tensor]] = []
        self._skipped: Tensor | None = None
        # Kept, as making one at each update costs more than what it does.
        self._no_grad = torch.no_grad()
        self.fit()

    # -- which tensors ----------------------------------------------------------------------------------------

    def fit(self) -> None:
        """Lay out averages for the tensors as they are now; those of the same name and shape go on."""
        self._make_later()
        self._places = list(self._find())
        sources = [local(place.table[place.key]).detach() for place in self._places]
        self._sharded = any(is_sharded(place.table[place.key]) for place in self._places)
        self._on_device = any(source.device.type != "cpu" for source in sources)
        self._pointers: list[int] | None = None
        self._watched: list[tuple[Place, Tensor]] = []
        before, self.values = self.values, {}
        self._packs = [self._pack(*kind, which, sources) for kind, which in self._alike(sources).items()]
        self._same: tuple[list[Tensor], list[Tensor]] = ([], [])
        self._cast: list[tuple[Tensor, Tensor]] = []
        self._halves: list[tuple[Tensor, Tensor]] = []
        self._whole: list[Tensor] = []
        for place, source in zip(self._places, sources, strict=True):
            packed = place.name in self.values
            if not packed:
                self.values[place.name] = torch.empty_like(source, dtype=average_dtype(source.dtype))
            value, old = self.values[place.name], before.get(place.name)
            value.copy_(source if old is None or old.shape != source.shape else old)
            if packed:
                continue
            self._watch(source)
            self._watched.append((place, source))
            if value.dtype == source.dtype:
                self._same[0].append(value)
                self._same[1].append(source)
            else:
                self._cast.append((value, source))
        self._tables = [place.table for place, _ in self._watched]
        self._keys = [place.key for place, _ in self._watched]
        self._alone = self._only_pack()
        self.later = Later(*self._alone) if self._patient and self._alone is not None else None
        # In the order of the model, not in that of the packs.
        self.values = {place.name: self.values[place.name] for place in self._places}

    def _only_pack(self) -> tuple[list[Tensor], Tensor] | None:
        """The tensors and the averages of a small model, where one pack is all there is."""
        if len(self._packs) != 1 or self._on_device or self._sharded or self._halves or self._whole:
            return None
        [pack] = self._packs
        if pack.views is None or pack.flat.dtype != pack.dtype or pack.flat.is_complex():
            return None
        return (pack.views, pack.flat) if pack.flat.numel() <= SMALL else None

    def _alike(self, sources: list[Tensor]) -> dict[tuple[torch.dtype, torch.device, bool], list[int]]:
        """The small tensors that can be gathered into one, by their indices."""
        small = [i for i, source in enumerate(sources) if source.numel() <= SMALL and is_dense(source)]
        flat = {i for i in small if sources[i].dim() == 1 and not self._sharded}
        if len(flat) <= FEW and len(flat) < len(small):
            flat.clear()
        found: dict[tuple[torch.dtype, torch.device, bool], list[int]] = {}
        for i in small:
            found.setdefault((sources[i].dtype, sources[i].device, i in flat), []).append(i)
        return found

    def _pack(
        self, dtype: torch.dtype, device: torch.device, plain: bool, which: list[int], sources: list[Tensor]
    ) -> Pack:
        places, mine = [self._places[i] for i in which], [sources[i] for i in which]
        flat = torch.empty(sum(source.numel() for source in mine), dtype=average_dtype(dtype), device=device)
        at = 0
        for place, source in zip(places, mine, strict=True):
            self.values[place.name] = flat.as_strided(source.size(), source.stride(), at)
            at += source.numel()
        if not plain:
            self._watched += zip(places, mine, strict=True)
        return Pack(places, flat, dtype, None if plain else [_flat(source) for source in mine])

    def _watch(self, source: Tensor) -> None:
        """What is summed up to find out whether a tensor is finite: two halves at a time are read faster than one."""
        real = torch.view_as_real(source) if source.is_complex() else source
        if real.dtype in HALF or not is_dense(real):
            self._whole.append(real)
        else:
            flat, half = _flat(real), (real.numel() + 1) // 2
            self._halves.append((flat[:half], flat[flat.numel() - half :]))

    def refresh(self) -> None:
        """Notice tensors that were replaced, moved or cast since the last time."""
        if self._pointers is None:
            self._pointers = [source.data_ptr() for _, source in self._watched]
        try:
            if self._sharded:
                now = [local(table[key]).data_ptr() for table, key in zip(self._tables, self._keys, strict=True)]
            else:
                now = list(map(Tensor.data_ptr, map(getitem, self._tables, self._keys)))
        except (KeyError, TypeError):
            now = []
        # The sources are kept, so that no other tensor can get their memory.
        if now != self._pointers:
            self.fit()

    # -- an update --------------------------------------------------------------------------------------------

    def update(self, momentum: float) -> bool:
        """Bring the averages forward; False where the tensors are not finite and nothing was changed.

        On a device other than the CPU the device decides by itself, and `take_skipped` tells later.
        """
        if self._alone is not None:
            # Of so little the arithmetic takes less time than going through all the kinds of tensors there may be.
            views, flat = self._alone
            found = torch.cat(views)
            if not _all_finite(found):
                return False
            flat.lerp_(found, 1 - momentum)
            return True
        if not self._places:
            return True
        with self._no_grad:
            gathered = self._gathered()
            if self._on_device:
                self._update_on_device(gathered, 1 - momentum)
                return True
            if not self._agreed(self._is_finite(gathered)):
                return False
            for pack, found in zip(self._packs, gathered, strict=True):
                pack.flat.lerp_(found.to(pack.flat.dtype), 1 - momentum)
            if self._same[0]:
                torch._foreach_lerp_(*self._same, 1 - momentum)
            for value, source in self._cast:
                value.lerp_(source.to(value.dtype), 1 - momentum)
            return True

    def catch_up(self) -> tuple[int, list[int]]:
        """Make what was taken down: how many updates since this was last asked, and the iterations left out."""
        self._make_later()
        made, left_out = self._made, self._left_out
        self._made, self._left_out = 0, []
        return made, left_out

    def _make_later(self) -> None:
        if self.later is not None:
            made, left_out = self.later.make()
            self._made += made
            self._left_out += left_out

    def _gathered(self) -> list[Tensor]:
        try:
            found = [pack.gather() for pack in self._packs]
        except (KeyError, TypeError, RuntimeError):
            found = [None]
        if any(each is None for each in found):
            self.fit()
            found = [pack.gather() for pack in self._packs]
        return [each for each in found if each is not None]

    def _is_finite(self, gathered: list[Tensor]) -> bool:
        # A sum is finite only if all of its terms are. One that is too large proves nothing, and each is looked at.
        sums = [torch.dot(one, other) for one, other in self._halves]
        sums += [_sum(tensor) for tensor in (*self._whole, *gathered)]
        if math.isfinite(sum(total.item() for total in sums)):
            return True
        return all(bool(torch.isfinite(tensor).all()) for tensor in (*gathered, *self._whole, *self._same[1]))

    def _agreed(self, finite: bool) -> bool:
        """Every rank has a part of the tensors, and all of them skip an update or none."""
        if not self._sharded:
            return finite
        flag = torch.tensor(float(finite))
        torch.distributed.all_reduce(flag, torch.distributed.ReduceOp.MIN)
        return bool(flag.item())

    def _update_on_device(self, gathered: list[Tensor], weight: float) -> None:
        pairs = [(pack.flat, found) for pack, found in zip(self._packs, gathered, strict=True)] + self._cast
        pairs += list(zip(*self._same, strict=True))
        device = pairs[0][0].device
        flags = [torch.isfinite(source).all().to(device, non_blocking=True) for _, source in pairs]
        finite = torch.stack(flags).all()
        if self._sharded:
            number = finite.float()
            torch.distributed.all_reduce(number, torch.distributed.ReduceOp.MIN)
            finite = number.bool()
        if self._skipped is None:
            self._skipped = torch.zeros((), dtype=torch.int64, device=device)
        self._skipped += ~finite
        for value, source in pairs:
            # An average that is averaged with itself stays as it is, to the bit.
            value.lerp_(torch.where(finite.to(value.device), source.to(value.dtype), value), weight)

    def take_skipped(self) -> int:
        """How many updates a device has skipped since this was last asked; waits for the device."""
        skipped, self._skipped = self._skipped, None
        return 0 if skipped is None else int(skipped.item())

    # -- into the model and out -------------------------------------------------------------------------------

    def put_in(self) -> None:
        """Let the tensors of the model show the averages, without copying where types are equal."""
        for (_, table, key), value in zip(self._places, self.values.values(), strict=True):
            tensor = table[key]
            if self._sharded and is_sharded(tensor):
                # FSDP has a view of this memory, from which it gathers: the values have to change.
                self._held.append((tensor, local(tensor).detach().clone()))
                local(tensor).detach().copy_(value)
                continue
            self._held.append((tensor, tensor.data))
            plainly = value.dtype == tensor.dtype and not self._copied
            tensor.data = value if plainly else value.to(tensor.dtype, copy=self._copied)

    def lend_to(self, other: Module) -> list[tuple[Tensor, Tensor]]:
        """Let the tensors of these names in another model be the averages; returns what has to be copied instead."""
        copies = []
        for place in self._places:
            prefix, _, key = place.name.rpartition(".")
            tensor, value = getattr(other.get_submodule(prefix), key), self.values[place.name]
            if tensor.dtype == value.dtype and not is_sharded(tensor):
                tensor.data = value
            else:
                local(tensor).detach().copy_(value)
                copies.append((local(tensor).detach(), value))
        return copies

    def take_out(self) -> None:
        """Let the tensors of the model show again what they showed before."""
        while self._held:
            tensor, raw = self._held.pop()
            if self._sharded and is_sharded(tensor):
                local(tensor).detach().copy_(raw)
            else:
                tensor.data = raw

    def keep_as_raw(self) -> None:
        """Take what the model shows now for what it showed before."""
        with torch.no_grad():
            for tensor, raw in self._held:
                raw.copy_(local(tensor))


class Averages:
    """The averages of a model's weights and, where wanted, of its buffers.

    Args:
        model: The model; its averages begin as its weights.
        buffers: Whether floating-point buffers are averaged too.
        patient: Whether updates of the weights may wait until `catch_up`.
    """

    def __init__(self, model: Module, *, buffers: bool = False, patient: bool = False) -> None:
        self.model = model
        self.weights = Part(lambda: parameters(model), patient=patient)
        self.buffers = Part(lambda: floating_buffers(model) if buffers else iter(()), copied=True)
        self.inside = False
        """Whether the model shows the averages."""

    @property
    def parts(self) -> tuple[Part, Part]:
        """Both."""
        return self.weights, self.buffers

    def tensors(self) -> list[Tensor]:
        """The memory of the averages."""
        return [value for part in self.parts for value in part.values.values()]

    def refresh(self) -> None:
        """Notice tensors of the model that were replaced, moved or cast."""
        self.weights.refresh()
        if self.buffers.values:
            self.buffers.refresh()

    def catch_up(self) -> tuple[int, list[int]]:
        """Make the updates that wait: how many were made since the last time, and the iterations of those left out."""
        return self.weights.catch_up()

    def digest(self) -> list[float]:
        """A few numbers that are the same where the averages are; tensors of which a rank has a part do not count."""
        common = self._common()
        if not common:
            return []
        flat = torch.cat([_flat_real(tensor) for tensor in common]).double()
        # The first alone would not notice what moves from one place to another.
        weights = torch.arange(1, flat.numel() + 1, dtype=torch.float64, device=flat.device)
        return [float(flat.sum()), float(flat.abs().sum()), float(torch.dot(flat, weights))]

    def broadcast(self) -> None:
        """Take the averages of rank 0, in one collective."""
        ranks.broadcast_tensors(self._common())

    def take_mean(self) -> None:
        """Take the mean of the averages of all ranks, in one collective."""
        ranks.average(self._common())

    def _common(self) -> list[Tensor]:
        return [
            part.values[place.name]
            for part in self.parts
            for place in part._places
            if not is_sharded(place.table[place.key])
        ]

    def put_in(self) -> None:
        """Exchange the weights of the model for the averages."""
        if not self.inside:
            self.refresh()
            self.inside = True
            self._exchange(lambda part: part.put_in())

    def take_out(self) -> None:
        """Give the model its weights back."""
        if self.inside:
            self._exchange(lambda part: part.take_out())
            self.inside = False

    def keep_as_raw(self) -> None:
        """Take what the model shows for its own weights, though it shows averages: a checkpoint was loaded into it."""
        if self.inside:
            for part in self.parts:
                part.keep_as_raw()

    def raw_state_dict(self) -> dict[str, Any]:
        """The model's ``state_dict`` as it is without the averages, while they are inside."""
        self.take_out()
        try:
            found = state_of(self.model)
            # Exchanged by their values, they would be gone in a moment.
            return {name: _copied(value) if is_sharded(value) else value for name, value in found.items()}
        finally:
            self.put_in()

    def _exchange(self, move: Callable[[Part], None]) -> None:
        for part in self.parts:
            move(part)
        if self.weights._sharded:
            for module in self.model.modules():
                # Weights that FSDP has gathered for the last forward would be used again.
                reshard = getattr(module, "reshard", None)
                if callable(reshard):
                    reshard()

    def state_dict(self) -> dict[str, Any]:
        """All that the model's ``state_dict`` has, with averages where there are any and copies of the rest."""
        named = {name: value for part in self.parts for name, value in part.values.items()}
        known = {
            id(place.table[place.key]): named[place.name]
            for part in self.parts
            for place in part._places
            if place.key in place.table
        }
        found = {}
        for name, value in self.model.state_dict(keep_vars=True).items():
            average = known.get(id(value), named.get(name))
            found[name] = _copied(value) if average is None else _as_sharded_as(value, average)
        return found

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the averages from what `state_dict` gave; a CheckpointError names what does not fit."""
        mine = self.model.state_dict(keep_vars=True)
        differences = [f"{name} is missing" for name in mine if name not in state]
        differences += [f"{name} is not in the model" for name in state if name not in mine]
        for name in mine.keys() & state.keys():
            here, there = (getattr(of[name], "shape", None) for of in (mine, state))
            if here != there:
                differences.append(f"{name} is of shape {tuple(there or ())}, not {tuple(here or ())}")
        if differences:
            more = f" and {len(differences) - 5} more" if len(differences) > 5 else ""
            raise CheckpointError(f"the averages do not fit the model: {', '.join(sorted(differences)[:5])}{more}")
        names: dict[int, str] = {id(value): key for key, value in mine.items()}
        self.refresh()
        with torch.no_grad():
            for part in self.parts:
                for place in part._places:
                    tensor = place.table[place.key]
                    known = place.name if place.name in state else names.get(id(tensor))
                    if known is not None:
                        part.values[place.name].copy_(_shard_of(state[known], tensor))


def state_of(model: Module) -> dict[str, Any]:
    """The model's ``state_dict``: its weights, which only an optimizer changes, and copies of all else."""
    found = model.state_dict(keep_vars=True)
    return {name: v.detach() if isinstance(v, Parameter) else _copied(v) for name, v in found.items()}


def average_dtype(dtype: torch.dtype) -> torch.dtype:
    """Small steps get lost in half precision."""
    return torch.float32 if dtype in HALF else dtype


def is_lazy_model(model: Module) -> bool:
    """Whether there are parameters that have no size before the first forward."""
    return any(is_lazy(tensor) for tensor in (*model.parameters(), *model.buffers()))


def is_dense(tensor: Tensor) -> bool:
    """Whether the elements fill a range of memory, in whatever order."""
    return torch.empty_like(tensor, device="meta").stride() == tensor.stride()


def is_sharded(tensor: Tensor) -> bool:
    """Whether it is a DTensor, of which this process has a part."""
    return hasattr(tensor, "_local_tensor")


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor that this process has."""
    found: Tensor = getattr(tensor, "_local_tensor", tensor)
    return found


def _flat(tensor: Tensor) -> Tensor:
    return tensor.as_strided((tensor.numel(),), (1,))


def _flat_real(tensor: Tensor) -> Tensor:
    return (torch.view_as_real(tensor) if tensor.is_complex() else tensor).reshape(-1)


def _all_finite(flat: Tensor) -> bool:
    # A sum of squares is finite only if all of them are; one that is too large proves nothing.
    return math.isfinite(torch.dot(flat, flat).item()) or bool(flat.isfinite().all())


def _sum(tensor: Tensor) -> Tensor:
    real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return real.sum(dtype=torch.float32) if real.dtype in HALF else real.sum()


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else copy.deepcopy(value)


def _as_sharded_as(tensor: Tensor, average: Tensor) -> Tensor:
    if not is_sharded(tensor):
        return average
    from torch.distributed.tensor import DTensor

    sharded: Any = tensor
    return DTensor.from_local(
        average, sharded.device_mesh, sharded.placements, run_check=False, shape=tensor.shape, stride=tensor.stride()
    )


def _shard_of(value: Tensor, tensor: Tensor) -> Tensor:
    if not is_sharded(tensor) or is_sharded(value):
        return local(value)
    from torch.distributed.tensor import distribute_tensor

    sharded: Any = tensor
    return local(distribute_tensor(value.to(sharded.device), sharded.device_mesh, sharded.placements))
