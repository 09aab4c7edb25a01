"""Updates of averages: how tensors are laid out in memory, and one strategy for each kind of model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from operator import getitem
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from ignite_hooks.model.wrapping import is_dtensor, local_part

SMALL = 1 << 14
"""Tensors of at most this many elements are packed into one: a loop over many tensors costs more than a copy."""

TOGETHER = 7
"""The number of deferred updates made together: no divisor of usual intervals, so that none always coincides."""

FEW = 32
"""At most this many flat tensors are packed with the others: that is cheaper than another pack."""

TOO_FEW = 16
"""At most this many small tensors beside large ones are not packed: the operations of a pack would cost more."""

HALVED = 65_536
"""So many numbers are summed up in two halves at a time."""
LINE = 16
"""The elements of four bytes in a cache line."""

HALF = (torch.float16, torch.bfloat16)
AVERAGED = (*HALF, torch.float32, torch.float64, torch.complex64, torch.complex128)
"""Tensors of any other type are not averaged but taken from the model."""


class TensorPlace(NamedTuple):
    """The place of a tensor in the model: ``table[key]`` is the tensor even after it has been replaced."""

    name: str
    table: Mapping[str, Any]
    key: str


class LayoutChanged(Exception):
    """The tensors of the model differ from those that were laid out."""


@dataclass
class Pack:
    """Small tensors that are concatenated, so that one operation averages all of them.

    Args:
        places: The places of the tensors.
        flat: Their averages, concatenated.
        dtype: Their type.
        views: Flat views of them; None if they are flat themselves and are looked up each time.
    """

    places: list[TensorPlace]
    flat: Tensor
    dtype: torch.dtype
    views: list[Tensor] | None

    def __post_init__(self) -> None:
        self._tables, self._keys = [place.table for place in self.places], [place.key for place in self.places]

    def gather(self) -> Tensor:
        """Return the concatenated tensors; raise LayoutChanged if they are different ones."""
        try:
            found = torch.cat(list(map(getitem, self._tables, self._keys)) if self.views is None else self.views)
        except (KeyError, TypeError, RuntimeError):
            raise LayoutChanged from None
        if found.shape != self.flat.shape or found.dtype != self.dtype:
            raise LayoutChanged
        return found


@dataclass
class Layout:
    """The tensors of a model and their averages in memory.

    Args:
        places: The places of the tensors.
        is_sharded: Whether this process has only a part of some.
        is_on_device: Whether some are elsewhere than in the memory of the CPU.
    """

    places: list[TensorPlace]
    is_sharded: bool = False
    is_on_device: bool = False
    values: dict[str, Tensor] = field(default_factory=dict)
    """The averages by name."""
    packs: list[Pack] = field(default_factory=list)
    same: tuple[list[Tensor], list[Tensor]] = field(default_factory=lambda: ([], []))
    """Averages and tensors of the same type."""
    cast: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    """Averages and tensors of another type."""
    halves: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    """What is summed up to find out whether tensors are finite: reading two halves at a time is faster."""
    whole: list[Tensor] = field(default_factory=list)
    """Tensors that are summed up in one piece."""
    watched: list[tuple[TensorPlace, Tensor]] = field(default_factory=list)
    """Tensors whose address is compared; keeping them keeps other tensors from getting their memory."""

    @classmethod
    def of(cls, places: list[TensorPlace]) -> Layout:
        """Lay out averages for the tensors of a model; their values are not set."""
        sources = [local_part(place.table[place.key]).detach() for place in places]
        layout = cls(
            places,
            is_sharded=any(is_dtensor(place.table[place.key]) for place in places),
            is_on_device=any(source.device.type != "cpu" for source in sources),
        )
        for kind, which in layout._alike(sources).items():
            layout._add_pack(*kind, [(places[i], sources[i]) for i in which])
        for place, source in zip(places, sources, strict=True):
            if place.name not in layout.values:
                layout._add_single(place, source)
        # In the order of the model, not in that of the packs.
        layout.values = {place.name: layout.values[place.name] for place in places}
        return layout

    def fill(self, before: Mapping[str, Tensor]) -> None:
        """Set the averages to earlier ones of the same name and shape, else to the tensors of the model."""
        for place in self.places:
            source, old = local_part(place.table[place.key]).detach(), before.get(place.name)
            self.values[place.name].copy_(source if old is None or old.shape != source.shape else old)

    def _alike(self, sources: list[Tensor]) -> dict[tuple[torch.dtype, torch.device, bool], list[int]]:
        """Return the indices of small tensors that can be packed together."""
        small = [i for i, source in enumerate(sources) if source.numel() <= SMALL and is_dense(source)]
        if len(small) <= TOO_FEW and len(small) < len(sources):
            return {}
        flat = {i for i in small if sources[i].dim() == 1 and not self.is_sharded}
        if len(flat) <= FEW and len(flat) < len(small):
            flat.clear()
        found: dict[tuple[torch.dtype, torch.device, bool], list[int]] = {}
        for i in small:
            found.setdefault((sources[i].dtype, sources[i].device, i in flat), []).append(i)
        return found

    def _add_pack(
        self, dtype: torch.dtype, device: torch.device, plain: bool, packed: Sequence[tuple[TensorPlace, Tensor]]
    ) -> None:
        flat = torch.empty(sum(source.numel() for _, source in packed), dtype=average_dtype(dtype), device=device)
        at = 0
        for place, source in packed:
            self.values[place.name] = flat.as_strided(source.size(), source.stride(), at)
            at += source.numel()
        if not plain:
            self.watched += packed
        views = None if plain else [_flat(source) for _, source in packed]
        self.packs.append(Pack([place for place, _ in packed], flat, dtype, views))

    def _add_single(self, place: TensorPlace, source: Tensor) -> None:
        value = self.values[place.name] = torch.empty_like(source, dtype=average_dtype(source.dtype))
        self.watched.append((place, source))
        if value.dtype == source.dtype:
            self.same[0].append(value)
            self.same[1].append(source)
        else:
            self.cast.append((value, source))
        real = torch.view_as_real(source) if source.is_complex() else source
        if real.dtype in HALF or not is_dense(real) or real.numel() < HALVED:
            self.whole.append(real)
        else:
            self.halves.append(_halves(_flat(real)))


class SkipCounter:
    """The number of updates that a device has skipped, counted by the device itself."""

    def __init__(self) -> None:
        self._skipped: Tensor | None = None

    def add(self, finite: Tensor) -> None:
        """Count one more where the tensors were not finite, without waiting for the device."""
        if self._skipped is None:
            self._skipped = torch.zeros((), dtype=torch.int64, device=finite.device)
        self._skipped += ~finite

    def take(self) -> int:
        """Return the number since the last call; wait for the device."""
        skipped, self._skipped = self._skipped, None
        return 0 if skipped is None else int(skipped.item())


class Strategy(Protocol):
    """One way to update averages."""

    def update(self, momentum: float) -> bool:
        """Update the averages; return False if tensors are not finite and nothing was changed."""
        ...


class EmptyUpdate:
    """The update of a model without tensors to average."""

    def update(self, momentum: float) -> bool:
        """Do nothing."""
        return True


class TinyUpdate:
    """The update of a small model on the CPU: one pack without casts.

    Args:
        views: The tensors, flat.
        flat: Their averages, concatenated.
    """

    def __init__(self, views: list[Tensor], flat: Tensor) -> None:
        self._views, self._flat = views, flat

    def update(self, momentum: float) -> bool:
        """Update the averages; return False if tensors are not finite and nothing was changed."""
        found = torch.cat(self._views)
        if not _all_finite(found):
            return False
        self._flat.lerp_(found, 1 - momentum)
        return True


class Deferred:
    """Updates of a small model that are recorded and made together.

    Between two steps of a training every operation is slow, as the caches of the processor hold other data; right
    after an operation of the same kind it is not. So an iteration only copies the tensors. The results are the same,
    bit for bit.

    Args:
        views: The tensors, flat.
        flat: Their averages, concatenated.
    """

    def __init__(self, views: list[Tensor], flat: Tensor) -> None:
        self._views, self._flat, self._gather = views, flat, torch.cat
        self._memory = flat.new_empty(TOGETHER * flat.numel())
        self._rows = list(self._memory.view(TOGETHER, flat.numel()).unbind())
        self._recorded: list[tuple[float, int]] = []

    def record(self, momentum: float, iteration: int) -> bool:
        """Copy the tensors for an update; return whether it is time to make all recorded ones."""
        recorded = self._recorded
        self._gather(self._views, out=self._rows[len(recorded)])
        recorded.append((momentum, iteration))
        return len(recorded) == TOGETHER

    def make(self) -> tuple[int, list[int]]:
        """Make the recorded updates; return their number and the iterations whose tensors were not finite."""
        recorded, self._recorded = self._recorded, []
        left_out = []
        all_are = bool(recorded) and _all_finite(self._memory[: len(recorded) * self._flat.numel()])
        for row, (momentum, iteration) in zip(self._rows, recorded, strict=False):
            if all_are or _all_finite(row):
                self._flat.lerp_(row, 1 - momentum)
            else:
                left_out.append(iteration)
        return len(recorded) - len(left_out), left_out


class HostUpdate:
    """The update of tensors on the CPU: packs, and one fused operation for all large tensors."""

    def __init__(self, layout: Layout) -> None:
        self._layout, self._no_grad = layout, torch.no_grad()  # kept, as making one costs more than entering it

    def update(self, momentum: float) -> bool:
        """Update the averages; return False if tensors are not finite and nothing was changed."""
        layout = self._layout
        with self._no_grad:
            gathered = [pack.gather() for pack in layout.packs]
            finite = self.is_finite(gathered)
            if layout.is_sharded:
                finite = bool(_on_all_ranks(torch.tensor(float(finite))).item())
            if not finite:
                return False
            for pack, found in zip(layout.packs, gathered, strict=True):
                pack.flat.lerp_(found.to(pack.flat.dtype), 1 - momentum)
            if layout.same[0]:
                torch._foreach_lerp_(*layout.same, 1 - momentum)
            for value, source in layout.cast:
                value.lerp_(source.to(value.dtype), 1 - momentum)
            return True

    def is_finite(self, gathered: list[Tensor]) -> bool:
        """Return whether all tensors are finite, those of the packs given as one each."""
        # A sum is finite only if all of its terms are. One that is too large proves nothing, so each term is checked.
        layout = self._layout
        total = sum(map(Tensor.item, starmap(torch.dot, layout.halves)))
        for tensor in (*layout.whole, *gathered):
            total += _sum(tensor).item()
        if math.isfinite(total):
            return True
        return all(bool(torch.isfinite(tensor).all()) for tensor in (*gathered, *layout.whole, *layout.same[1]))


class DeviceUpdate:
    """The update of tensors on a device, which decides by itself whether they are finite: nobody waits for it."""

    def __init__(self, layout: Layout, skipped: SkipCounter) -> None:
        self._layout, self._skipped, self._no_grad = layout, skipped, torch.no_grad()

    def update(self, momentum: float) -> bool:
        """Put the update into the queue of the device; the counter has the number of those that it skips."""
        layout = self._layout
        with self._no_grad:
            gathered = [pack.gather() for pack in layout.packs]
            pairs = [(pack.flat, found) for pack, found in zip(layout.packs, gathered, strict=True)] + layout.cast
            pairs += list(zip(*layout.same, strict=True))
            device = pairs[0][0].device
            flags = [torch.isfinite(source).all().to(device, non_blocking=True) for _, source in pairs]
            finite = torch.stack(flags).all()
            if layout.is_sharded:
                finite = _on_all_ranks(finite.float()).bool()
            self._skipped.add(finite)
            for value, source in pairs:
                # An average that is averaged with itself keeps every bit.
                value.lerp_(torch.where(finite.to(value.device), source.to(value.dtype), value), 1 - momentum)
        return True


def strategy_for(layout: Layout, skipped: SkipCounter) -> Strategy:
    """Return the strategy that updates a layout fastest."""
    if not layout.places:
        return EmptyUpdate()
    if layout.is_on_device:
        return DeviceUpdate(layout, skipped)
    only_pack = only_pack_of(layout)
    return HostUpdate(layout) if only_pack is None else TinyUpdate(*only_pack)


def only_pack_of(layout: Layout) -> tuple[list[Tensor], Tensor] | None:
    """Return the tensors and averages of a small model that is a single pack, else None."""
    if len(layout.packs) != 1 or layout.is_on_device or layout.is_sharded or layout.halves or layout.whole:
        return None
    [pack] = layout.packs
    if pack.views is None or pack.flat.dtype != pack.dtype or pack.flat.is_complex():
        return None
    return (pack.views, pack.flat) if pack.flat.numel() <= SMALL else None


def average_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the type of the average of a tensor: small steps get lost in half precision."""
    return torch.float32 if dtype in HALF else dtype


def is_dense(tensor: Tensor) -> bool:
    """Return whether the elements fill a range of memory, in any order."""
    return torch.empty_like(tensor, device="meta").stride() == tensor.stride()


def _on_all_ranks(flag: Tensor) -> Tensor:
    """Return 1 if the flag is 1 on all ranks: each has a part of the tensors, and all skip an update or none."""
    torch.distributed.all_reduce(flag, torch.distributed.ReduceOp.MIN)
    return flag


def _flat(tensor: Tensor) -> Tensor:
    return tensor.as_strided((tensor.numel(),), (1,))


def _halves(flat: Tensor) -> tuple[Tensor, Tensor]:
    """Return two views of one size that cover a tensor."""
    # The second begins at the start of a cache line: a dot product of tensors that are aligned differently takes seven
    # times as long. Halves of little come as one, which is read but once.
    start = flat.numel() // 2 // LINE * LINE
    half = flat.numel() - start
    return flat[:half], flat[start:]


def _all_finite(flat: Tensor) -> bool:
    # A sum is finite only if all terms are; one that is too large proves nothing. MKL divides a dot product among
    # threads from some 8,192 numbers on, and waits for them: ten to a thousand times as long where cores are busy.
    return math.isfinite(_sum(flat).item()) or bool(flat.isfinite().all())


def _sum(tensor: Tensor) -> Tensor:
    real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return real.sum(dtype=torch.float32) if real.dtype in HALF else real.sum()
