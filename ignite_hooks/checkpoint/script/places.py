"""The places of values: names with dots between them, each name one that no other thing has."""

from __future__ import annotations

import ast
import enum
from collections.abc import Collection
from typing import Any

from ignite_hooks.checkpoint.script.kinds import SCALARS

_DOT = "\\x2e"
_QUOTES = ("'", '"')


def name_of(key: str) -> str:
    """Return the name of an attribute or entry in a place: quoted where it would look like several or none.

    Example:
        >>> name_of("beta"), name_of("layer1.weight"), name_of("")
        ('beta', "'layer1\\\\x2eweight'", "''")
    """
    return repr(key).replace(".", _DOT) if not key or "." in key or key.startswith(_QUOTES) else key


def name_of_any(key: Any, place: int, keys: Collection[Any]) -> str:
    """Return the name of an entry of a mapping, whatever its key is.

    Args:
        key: The key.
        place: Which of the entries it is: it stands for keys without a text of their own.
        keys: The keys of the mapping.
    """
    if isinstance(key, str) and type(key) is str:
        return name_of(key)
    if isinstance(key, (*SCALARS, enum.Enum, bytes, tuple)):
        text = str(key)
        return f"[{key!r}]".replace(".", _DOT) if text in keys or "." in text or " at 0x" in text else text
    return f"[{place}]"


def key_of(name: str) -> str:
    """Return the key of which `name_of` returned this name."""
    return str(ast.literal_eval(name)) if name.startswith(_QUOTES) else name


def spelled(words: str) -> str:
    """Return a place for a message."""
    return words.replace(_DOT, ".")
