"""Averages of a model's weights: kept beside it, updated, swapped in and swapped out again."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Mapping
from operator import getitem
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import Parameter

from ignite_hooks.distributed import collectives
from ignite_hooks.errors import CheckpointError
from ignite_hooks.model.averaging_kernels import (
    AVERAGED,
    Deferred,
    Layout,
    LayoutChanged,
    SkipCounter,
    TensorPlace,
    only_pack_of,
    strategy_for,
)
from ignite_hooks.model.buffer_copies import BufferCopies
from ignite_hooks.model.exchanged_data import ExchangedData
from ignite_hooks.model.wrapping import is_dtensor, local_part, named_as_in, named_plainly
from ignite_hooks.system.devices import in_double

_address = Tensor.data_ptr


def parameters(model: Module) -> Iterator[TensorPlace]:
    """Yield the parameters that can be averaged; shared ones come once."""
    seen: set[int] = set()
    for prefix, module in model.named_modules():
        yield from _places(prefix, module._parameters, seen)


def floating_buffers(model: Module) -> Iterator[TensorPlace]:
    """Yield the persistent buffers that can be averaged; one with infinities, such as a mask, cannot."""
    for prefix, module in model.named_modules():
        for place in _places(prefix, module._buffers, set(), module._non_persistent_buffers_set):
            if bool(torch.isfinite(place.table[place.key]).all()):
                yield place


def _places(prefix: str, table: Any, seen: set[int], left_out: Collection[str] = ()) -> Iterator[TensorPlace]:
    """Yield the tensors of one module that can be averaged, except those seen before or left out."""
    for key, tensor in table.items():
        if key not in left_out and tensor is not None and id(tensor) not in seen and tensor.dtype in AVERAGED:
            seen.add(id(tensor))
            yield TensorPlace(f"{prefix}.{key}" if prefix else key, table, key)


class TensorAverages:
    """The averages of some tensors of a model, by name.

    Args:
        find: Finds the tensors.
        copied: Whether an evaluation gets copies, because it may change these tensors.
        deferrable: Whether the updates of a small model may be deferred until `catch_up`.
    """

    def __init__(
        self, find: Callable[[], Iterator[TensorPlace]], *, copied: bool = False, deferrable: bool = False
    ) -> None:
        self._find, self._copied, self._deferrable = find, copied, deferrable
        self.deferred: Deferred | None = None
        """Records updates that are made later; None where they are made at once."""
        self._made, self._left_out = 0, list[int]()
        self.values: dict[str, Tensor] = {}
        self._raw: list[tuple[Tensor, Tensor]] = []
        self._exchanged = ExchangedData()
        self._skipped = SkipCounter()
        self.fit()

    def fit(self) -> None:
        """Lay out averages for the tensors as they are now; keep averages of the same name and shape."""
        self._make_deferred()
        layout = self.layout = Layout.of(list(self._find()))
        layout.fill(self.values)
        self.values = layout.values
        self.strategy = strategy_for(layout, self._skipped)
        only_pack = only_pack_of(layout) if self._deferrable else None
        self.deferred = None if only_pack is None else Deferred(*only_pack)
        self._pointers: list[int] | None = None
        self._tables = [place.table for place, _ in layout.watched]
        self._keys = [place.key for place, _ in layout.watched]
        self._local = local_part if layout.is_sharded else None
        self._all_tables = [place.table for place in layout.places]
        self._all_keys = [place.key for place in layout.places]
        self._all_values = list(layout.values.values())

    def refresh(self) -> None:
        """Fit again if tensors were replaced, moved or cast since the last time."""
        if self._pointers is None:
            self._pointers = [source.data_ptr() for _, source in self.layout.watched]
        try:
            tensors = map(getitem, self._tables, self._keys)
            now = list(map(_address, tensors if self._local is None else map(self._local, tensors)))
        except (KeyError, TypeError):
            now = []
        if now != self._pointers:
            self.fit()

    def tensors(self) -> list[Tensor]:
        """Return the tensors of the model that are averaged."""
        return list(map(getitem, self._all_tables, self._all_keys))

    def update(self, momentum: float) -> bool:
        """Update the averages; return False if tensors on the CPU are not finite and nothing was changed.

        On other devices the check stays on the device: `take_skipped` later returns the number of skipped updates.
        """
        try:
            return self.strategy.update(momentum)
        except LayoutChanged:
            self.fit()
            return self.strategy.update(momentum)

    def catch_up(self) -> tuple[int, list[int]]:
        """Make deferred updates; return how many were made since the last call, and the iterations left out."""
        self._make_deferred()
        made, left_out = self._made, self._left_out
        self._made, self._left_out = 0, []
        return made, left_out

    def _make_deferred(self) -> None:
        if self.deferred is not None:
            made, left_out = self.deferred.make()
            self._made += made
            self._left_out += left_out

    def take_skipped(self) -> int:
        """Return how many updates a device has skipped since the last call; wait for the device."""
        return self._skipped.take()

    def swap_in(self) -> None:
        """Swap the averages into the tensors of the model, without a copy where types are equal."""
        if not (self.layout.is_sharded or self._copied):
            self._exchanged.swap_in(self._all_tables, self._all_keys, self._all_values)
            return
        for (_, table, key), value in zip(self.layout.places, self.values.values(), strict=True):
            tensor = table[key]
            if is_dtensor(tensor):
                # FSDP gathers from a view of this memory, so the values must be copied in place.
                self._raw.append((tensor, local_part(tensor).detach().clone()))
                local_part(tensor).detach().copy_(value)
                continue
            self._raw.append((tensor, tensor.data))
            is_same = value.dtype == tensor.dtype and not self._copied
            tensor.data = value if is_same else value.to(tensor.dtype, copy=self._copied)

    def share_memory_with(self, other: Module) -> list[tuple[Tensor, Tensor]]:
        """Make the tensors of these names in another model use the memory of the averages.

        Returns:
            The pairs of tensor and average that have to be copied instead.
        """
        copies = []
        for place in self.layout.places:
            prefix, _, key = place.name.rpartition(".")
            tensor, value = getattr(other.get_submodule(prefix), key), self.values[place.name]
            if tensor.dtype == value.dtype and not is_dtensor(tensor):
                tensor.data = value
            else:
                local_part(tensor).detach().copy_(value)
                copies.append((local_part(tensor).detach(), value))
        return copies

    def swap_out(self) -> None:
        """Give the tensors of the model their own values back."""
        self._exchanged.swap_out()
        while self._raw:
            tensor, raw = self._raw.pop()
            if self.layout.is_sharded and is_dtensor(tensor):
                local_part(tensor).detach().copy_(raw)
            else:
                tensor.data = raw

    def keep_as_raw(self) -> None:
        """Set the model's own values to what its tensors hold now."""
        with torch.no_grad():
            for tensor, raw in (*self._raw, *self._exchanged.pairs()):
                raw.copy_(local_part(tensor))


class Averages:
    """The averages of a model's weights and, if asked for, of its buffers.

    While they are in the model, its other buffers are copies: what an evaluation changes in them is thrown away.

    Args:
        model: The model; its averages begin as its weights.
        buffers: Whether floating-point buffers are averaged too.
        deferrable: Whether updates of the weights may be deferred until `catch_up`.
    """

    def __init__(self, model: Module, *, buffers: bool = False, deferrable: bool = False) -> None:
        self.model = model
        self.weights = TensorAverages(lambda: parameters(model), deferrable=deferrable)
        self.buffers = TensorAverages(lambda: floating_buffers(model) if buffers else iter(()), copied=True)
        self.copies = BufferCopies(model)
        """Copies of the other buffers, which an evaluation with the averages may change."""
        self.swapped = False
        """Whether the averages are in the model."""

    @property
    def parts(self) -> tuple[TensorAverages, TensorAverages]:
        """Weights and buffers."""
        return self.weights, self.buffers

    def tensors(self) -> list[Tensor]:
        """Return the memory of the averages."""
        return [value for part in self.parts for value in part.values.values()]

    def refresh(self) -> None:
        """Fit again if tensors of the model were replaced, moved or cast."""
        self.weights.refresh()
        if self.buffers.values:
            self.buffers.refresh()

    def catch_up(self) -> tuple[int, list[int]]:
        """Make deferred updates; return how many were made since the last call, and the iterations left out."""
        return self.weights.catch_up()

    def digest(self) -> list[float]:
        """Return a few numbers by which ranks compare averages; sharded tensors are left out."""
        common = self._common()
        if not common:
            return []
        flat = in_double(torch.cat([_flat_real(tensor) for tensor in common]))
        # The first two would not notice values that have changed places.
        weights = torch.arange(1, flat.numel() + 1, dtype=torch.float64, device=flat.device)
        return [float(flat.sum()), float(flat.abs().sum()), float(torch.dot(flat, weights))]

    def broadcast(self) -> None:
        """Replace the averages by those of rank 0, in one collective."""
        collectives.broadcast_tensors(self._common())

    def average_over_ranks(self) -> None:
        """Replace the averages by their mean over all ranks, in one collective."""
        collectives.average(self._common())

    def _common(self) -> list[Tensor]:
        return [
            part.values[place.name]
            for part in self.parts
            for place in part.layout.places
            if not is_dtensor(place.table[place.key])
        ]

    def swap_in(self) -> None:
        """Put the averages into the model in place of its weights."""
        if self.swapped:
            return
        # Copies made in inference mode could not be part of a backward pass, as explanations in an evaluation make it.
        with torch.inference_mode(False), torch.no_grad():
            self.refresh()
            self.swapped = True
            self.copies.swap_in({id(table[key]) for _, table, key in self.buffers.layout.places})
            self._swap(TensorAverages.swap_in)

    def swap_out(self) -> None:
        """Give the model its weights back."""
        if self.swapped:
            self._swap(TensorAverages.swap_out)
            self.copies.swap_out()
            self.swapped = False

    def copy_into_model(self) -> None:
        """Make the averages, as they are after `catch_up`, the model's own weights, with which the training goes on."""
        with torch.no_grad():
            for part in self.parts:
                for place in part.layout.places:
                    local_part(place.table[place.key]).detach().copy_(part.values[place.name])

    def keep_as_raw(self) -> None:
        """Keep what the model holds now as its own weights: a checkpoint was loaded while the averages were in it."""
        if self.swapped:
            self.copies.keep_as_raw()
            for part in self.parts:
                part.keep_as_raw()

    def raw_state_dict(self) -> dict[str, Any]:
        """Return the model's ``state_dict`` without the averages, while they are in it."""
        taken = self.copies.take()
        self.swap_out()
        try:
            found = state_of(self.model)
            # Sharded tensors are swapped by value, which is about to be overwritten.
            return {name: _copied(value) if is_dtensor(value) else value for name, value in found.items()}
        finally:
            self.swap_in()
            self.copies.put(taken)

    def _swap(self, move: Callable[[TensorAverages], None]) -> None:
        for part in self.parts:
            move(part)
        if self.weights.layout.is_sharded:
            for module in self.model.modules():
                # Otherwise FSDP would reuse weights it gathered for the last forward pass.
                reshard = getattr(module, "reshard", None)
                if callable(reshard):
                    reshard()

    def state_dict(self) -> dict[str, Any]:
        """Return the model's ``state_dict`` by plain names, with averages where there are any, else copies."""
        named = {name: value for part in self.parts for name, value in part.values.items()}
        known = {
            id(place.table[place.key]): named[place.name]
            for part in self.parts
            for place in part.layout.places
            if place.key in place.table
        }
        found, raw = {}, self.copies.raw()
        for name, value in self.model.state_dict(keep_vars=True).items():
            average = known.get(id(value), named.get(name))
            own = raw.get(id(value), value)
            found[name] = _copied(own) if average is None else _as_sharded_as(value, average)
        plain: dict[str, Any] = named_plainly(self.model, found)
        return plain

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the averages from a `state_dict`; a CheckpointError names what does not fit."""
        mine, state = self.model.state_dict(keep_vars=True), named_as_in(self.model, state)
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
                for place in part.layout.places:
                    tensor = place.table[place.key]
                    known = place.name if place.name in state else names.get(id(tensor))
                    if known is not None:
                        part.values[place.name].copy_(_shard_of(state[known], tensor))


def state_of(model: Module) -> dict[str, Any]:
    """Return the model's ``state_dict``: its weights, which only an optimizer changes, and copies of all else."""
    found = model.state_dict(keep_vars=True)
    own = {name: v.detach() if isinstance(v, Parameter) else _copied(v) for name, v in found.items()}
    plain: dict[str, Any] = named_plainly(model, own)
    return plain


def _flat_real(tensor: Tensor) -> Tensor:
    return (torch.view_as_real(tensor) if tensor.is_complex() else tensor).reshape(-1)


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else copy.deepcopy(value)


def _as_sharded_as(tensor: Tensor, average: Tensor) -> Tensor:
    if not is_dtensor(tensor):
        return average
    from torch.distributed.tensor import DTensor

    sharded: Any = tensor
    return DTensor.from_local(
        average, sharded.device_mesh, sharded.placements, run_check=False, shape=tensor.shape, stride=tensor.stride()
    )


def _shard_of(value: Tensor, tensor: Tensor) -> Tensor:
    if not is_dtensor(tensor) or is_dtensor(value):
        return local_part(value)
    from torch.distributed.tensor import distribute_tensor

    sharded: Any = tensor
    return local_part(distribute_tensor(value.to(sharded.device), sharded.device_mesh, sharded.placements))
