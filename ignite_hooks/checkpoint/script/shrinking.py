"""Which lists the code of a script takes something out of: these are no logs, even while they only become longer."""

from __future__ import annotations

import dis
import types
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise

_TAKING = ("clear", "pop", "popleft", "remove")
_LOADS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_ATTR", "LOAD_METHOD")
_OF_PARTS = ("DELETE_SUBSCR", "STORE_SUBSCR", "STORE_SLICE")
_STORES = ("STORE_GLOBAL", "STORE_NAME", "STORE_DEREF", "STORE_ATTR")
_SLICES = ("BUILD_SLICE", "BINARY_SLICE")
_MAKING = ("__init__", "__post_init__", "__new__")


@lru_cache(maxsize=4096)
def taken_from(code: types.CodeType) -> frozenset[str]:
    """Return the names of variables and attributes of which code, and functions within it, take or replace parts.

    Args:
        code: The code of a function of the script.

    Example:
        >>> losses, latest = [], []
        >>> def step(self, batch):
        ...     losses.append(batch)
        ...     del latest[:-3]
        ...     self.window = self.window[-5:]
        >>> sorted(taken_from(step.__code__))
        ['latest', 'window']
    """
    inner = (taken_from(one) for one in code.co_consts if isinstance(one, types.CodeType))
    return frozenset(_names(code)).union(*inner)


def _names(code: types.CodeType) -> Iterator[str]:
    found = list(dis.get_instructions(code))
    # Of a chain of attributes, the last one.
    loads = [one for one, after in pairwise([*found, *found[-1:]]) if one.opname in _LOADS and not _is_attribute(after)]
    for one in found:
        takes = one.opname in ("LOAD_METHOD", "LOAD_ATTR") and one.argval in _TAKING
        if takes or one.opname in _OF_PARTS:
            yield from (load.argval for load in loads if load is not one and _is_within(load, one))
        elif one.opname in _STORES and not _is_made(code, one):
            here = [other for other in found if _line(other) == _line(one)]
            grows = any(other.opname in _LOADS and other.argval == one.argval for other in here)
            if not grows or any(other.opname in _SLICES for other in here):
                yield one.argval


def _is_attribute(load: dis.Instruction) -> bool:
    return load.opname == "LOAD_ATTR" and load.argval not in _TAKING


def _is_made(code: types.CodeType, store: dis.Instruction) -> bool:
    """Return whether a variable begins with what is stored in it."""
    return code.co_name in _MAKING if store.opname == "STORE_ATTR" else store.argval in code.co_cellvars


def _is_within(load: dis.Instruction, whole: dis.Instruction) -> bool:
    inner, outer = load.positions, whole.positions
    if inner is None or outer is None or None in (*inner, *outer):  # Python was told to forget places
        return True
    return _at(outer.lineno, outer.col_offset) <= _at(inner.lineno, inner.col_offset) and _at(
        inner.end_lineno, inner.end_col_offset
    ) <= _at(outer.end_lineno, outer.end_col_offset)


def _at(line: int | None, column: int | None) -> tuple[int, int]:
    return line or 0, column or 0


def _line(instruction: dis.Instruction) -> int | None:
    return instruction.positions.lineno if instruction.positions is not None else None
