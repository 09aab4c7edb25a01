"""What versions of Python do differently: annotations are evaluated late from 3.14 on, and some of them cannot be."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any, ForwardRef, get_args

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
