"""Reads from the code of a class which attributes its methods assign and read, without running it."""

from __future__ import annotations

import dis
import inspect
import types
from collections.abc import Iterable, Iterator
from typing import Any


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
    # Of `super()` from Python 3.12 on; it is no attribute of a variable.
    of_parents = ("LOAD_SUPER_ATTR",) if of is None else ()
    return _attributes(classes, of, ("LOAD_ATTR", "LOAD_METHOD", *of_parents))


def words_in(classes: Iterable[type]) -> frozenset[str]:
    """Return the texts and names in the methods of these classes.

    Example:
        >>> class Ball:
        ...     def throw(self, wall):
        ...         return getattr(wall, "hit")(self)
        >>> sorted(words_in([Ball]))
        ['getattr', 'hit', 'self', 'wall']
    """
    return frozenset(word for method in methods_in(classes) for word in _words(method.__code__))


def _words(code: types.CodeType) -> Iterator[str]:
    yield from (*code.co_names, *code.co_varnames)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _words(constant)
        else:
            yield from (one for one in (constant if isinstance(constant, tuple) else (constant,)) if type(one) is str)


def keeps_keywords(classes: Iterable[type]) -> bool:
    """Return whether a constructor of these classes does more with its ``**keywords`` than to hand them on."""
    for cls in classes:
        construct = vars(cls).get("__init__")
        code = getattr(construct, "__code__", None)
        if code is not None and code.co_flags & inspect.CO_VARKEYWORDS:
            keywords = code.co_varnames[
                code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS)
            ]
            if (
                sum(keywords in _loaded(step) for step in dis.get_instructions(code)) > 1
                or keywords in code.co_cellvars
            ):
                return True
    return False


def _loaded(step: dis.Instruction) -> tuple[Any, ...]:
    """Return the variables that an instruction loads; from Python 3.13 on one may load two, or store one before."""
    if "LOAD_FAST" not in step.opname:
        return ()
    variables = step.argval if isinstance(step.argval, tuple) else (step.argval,)
    return variables[1:] if step.opname.startswith("STORE_FAST_") else variables


def _attributes(classes: Iterable[type], of: str | None, operations: tuple[str, ...]) -> frozenset[str]:
    found = set()
    for method in methods_in(classes):
        variable: object = None
        for step in dis.get_instructions(method):
            if step.opname in operations and of in (None, variable):
                found.add(step.argval)
            variable = (_loaded(step) or (None,))[-1]
    return frozenset(found)
