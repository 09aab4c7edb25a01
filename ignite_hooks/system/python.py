"""What versions of Python do differently: annotations are evaluated late from 3.14 on, and some of them cannot be."""

from __future__ import annotations

import importlib
import inspect
import types
from collections.abc import Callable
from typing import Any, ForwardRef, NamedTuple, get_args

try:
    annotationlib: Any = importlib.import_module("annotationlib")
except ImportError:  # before Python 3.14
    annotationlib = None


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a function; a name that only type checkers import stays unknown in it."""
    if annotationlib is None:
        return inspect.signature(function)
    asked: dict[str, Any] = {"annotation_format": annotationlib.Format.FORWARDREF}
    return inspect.signature(function, **asked)


class Parameter(NamedTuple):
    """A parameter of a function: what a call needs to know of it."""

    name: str
    kind: Any
    """As in ``inspect``."""
    default: Any
    """``inspect.Parameter.empty`` for none."""


_ELSEWHERE = frozenset(("__signature__", "__wrapped__", "__partialmethod__", "_partialmethod", "__text_signature__"))
"""The attributes of functions by which their signature is another than that of their code."""


def parameters_of(function: Callable[..., Any]) -> tuple[Parameter, ...]:
    """Return the parameters of a function, or of a bound method without its first.

    Those of plain functions are read from their code: for `inspect` it takes twenty times as long, and a run that
    begins reads those of all methods of its hooks.

    Example:
        >>> [(one.name, one.default) for one in parameters_of(lambda runner, *, every=1: None)][1]
        ('every', 1)
    """
    inner = function.__func__ if isinstance(function, types.MethodType) else function
    if type(inner) is not types.FunctionType or not _ELSEWHERE.isdisjoint(vars(inner)):
        found = signature_of(function).parameters.values()
        return tuple(Parameter(one.name, one.kind, one.default) for one in found)
    code, kinds = inner.__code__, inspect.Parameter
    named, flags = code.co_argcount, code.co_flags
    defaults = inner.__defaults__ or ()
    names, rest = code.co_varnames[:named], iter(code.co_varnames[named:])
    given = (*[kinds.empty] * (named - len(defaults)), *defaults)
    positional: list[Any] = [kinds.POSITIONAL_ONLY] * code.co_posonlyargcount
    positional += [kinds.POSITIONAL_OR_KEYWORD] * (named - code.co_posonlyargcount)
    only = [next(rest) for _ in range(code.co_kwonlyargcount)]
    result = list(map(Parameter, names, positional, given))
    if inner is not function and result:
        del result[0]
    if flags & inspect.CO_VARARGS:
        result.append(Parameter(next(rest), kinds.VAR_POSITIONAL, kinds.empty))
    by_name = inner.__kwdefaults__ or {}
    result += [Parameter(name, kinds.KEYWORD_ONLY, by_name.get(name, kinds.empty)) for name in only]
    if flags & inspect.CO_VARKEYWORDS:
        result.append(Parameter(next(rest), kinds.VAR_KEYWORD, kinds.empty))
    return tuple(result)


def annotations_of(thing: Any) -> dict[str, Any]:
    """Return the annotations of a class, without those of its parents, or of a function."""
    if annotationlib is None or not callable(thing):
        return dict(getattr(thing, "__annotations__", {}))
    found: dict[str, Any] = annotationlib.get_annotations(thing, format=annotationlib.Format.FORWARDREF)
    return found


def is_known(annotation: Any) -> bool:
    """Return whether all names in an annotation were found.

    Example:
        >>> is_known(list[int]), is_known(list[ForwardRef("Later")])
        (True, False)
    """
    if isinstance(annotation, ForwardRef):
        return False
    parts = annotation if isinstance(annotation, list) else get_args(annotation)
    return all(is_known(part) for part in parts)
