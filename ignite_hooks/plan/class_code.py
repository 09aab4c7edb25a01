"""Reads from the code of a class which attributes its methods assign and read, without running it."""

from __future__ import annotations

import dis
import inspect
import types
from collections.abc import Iterable, Iterator


def methods_in(classes: Iterable[type]) -> Iterator[types.FunctionType]:
    """Yield the methods that these classes define themselves, without their decorators."""
    for value in (value for cls in classes for value in vars(cls).values()):
        method = inspect.unwrap(value) if isinstance(value, types.FunctionType) else value
        if isinstance(method, types.FunctionType):
            yield method


def attributes_assigned_in(classes: Iterable[type], of: str | None = None) -> frozenset[str]:
    """Return the attributes that the methods of these classes assign, of one variable or of whatever object.

    Example:
        >>> class Ball:
        ...     def throw(self):
        ...         self.thrown = True
        >>> sorted(attributes_assigned_in([Ball]))
        ['thrown']
    """
    return _attributes(classes, of, ("STORE_ATTR",))


def attributes_read_in(classes: Iterable[type], of: str | None = None) -> frozenset[str]:
    """Return the attributes that the methods of these classes read, of one variable or of whatever object.

    Example:
        >>> class Ball:
        ...     def throw(self, wall):
        ...         return self.weight * wall.distance
        >>> sorted(attributes_read_in([Ball])), sorted(attributes_read_in([Ball], of="wall"))
        (['distance', 'weight'], ['distance'])
    """
    return _attributes(classes, of, ("LOAD_ATTR", "LOAD_METHOD"))


def _attributes(classes: Iterable[type], of: str | None, operations: tuple[str, ...]) -> frozenset[str]:
    found = set()
    for method in methods_in(classes):
        variable: object = None
        for step in dis.get_instructions(method):
            if step.opname in operations and of in (None, variable):
                found.add(step.argval)
            variable = step.argval if step.opname.startswith("LOAD_FAST") else None
            if isinstance(variable, tuple):  # two loads in one instruction
                variable = variable[-1]
    return frozenset(found)
