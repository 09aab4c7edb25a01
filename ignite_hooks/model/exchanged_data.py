"""Tensors of a model that hold other data for a while.

Setting ``tensor.data`` is all that a swap needs, and a loop in Python around it costs several times as much as the
setting itself. So the descriptors of torch are called by ``map``, in C, and what the tensors held is remembered from
one swap to the next instead of being asked for each time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from operator import getitem
from typing import Any

from torch import Tensor

_data: Any = Tensor.data  # a descriptor, which type checkers take for the tensor that it returns
_get, _set = _data.__get__, _data.__set__


class ExchangedData:
    """Gives tensors other data, and their own back."""

    def __init__(self) -> None:
        self._tensors: list[Tensor] = []
        self._own: list[Tensor] = []
        self._addresses: list[int] = []
        self._sizes: list[int] = []
        self._cast: list[int] = []
        self._is_in = False

    def swap_in(self, tables: Iterable[Any], keys: Iterable[str], values: Sequence[Tensor]) -> None:
        """Give tensors other data, without a copy where types are equal.

        Args:
            tables: What the tensors are in.
            keys: Where in it.
            values: Their data.
        """
        tensors = list(map(getitem, tables, keys))
        addresses, sizes = list(map(Tensor.data_ptr, tensors)), list(map(Tensor.numel, tensors))
        # What is remembered keeps its memory, so that nothing else has got the same address.
        if addresses != self._addresses or sizes != self._sizes:
            self._addresses, self._sizes = addresses, sizes
            self._own = list(map(_get, tensors))
            self._cast = [i for i, own in enumerate(self._own) if own.dtype != values[i].dtype]
        if self._cast:
            values = list(values)
            for i in self._cast:
                values[i] = values[i].to(self._own[i].dtype)
        self._tensors, self._is_in = tensors, True
        _all(map(_set, tensors, values))

    def swap_out(self) -> None:
        """Give the tensors their own data back."""
        if self._is_in:
            self._is_in = False
            _all(map(_set, self._tensors, self._own))

    def pairs(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the tensors that hold other data, with their own."""
        if self._is_in:
            yield from zip(self._tensors, self._own, strict=True)


def _all(calls: Iterable[Any]) -> None:
    deque(calls, maxlen=0)
