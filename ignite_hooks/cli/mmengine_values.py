"""Values of an MMEngine configuration: merged, changed and copied as MMEngine does it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ignite_hooks.errors import ConfigError, Problem

DELETE = "_delete_"
"""The key that makes a mapping replace that of a base file; without it they are merged."""

_REFERENCE = re.compile(r"\{\{\s*_base_\.([\w.]+)\s*\}\}")


@dataclass(frozen=True)
class Unread:
    """An expression that is not a literal: its text."""

    text: str
    place: str = field(default="", compare=False)


class Section(dict[Any, Any]):
    """A mapping with the place where it is written."""

    def __init__(self, *given: Any, place: str = "") -> None:
        super().__init__(*given)
        self.place = place


class Budget:
    """What names may be replaced by in all: a small file can name itself into an enormous value."""

    def __init__(self, nodes: int = 200_000) -> None:
        self._left = nodes

    def copied(self, value: Any) -> Any:
        """Copy a value.

        Raises:
            ConfigError: Where the copies have become too many.
        """
        self._left -= 1
        if self._left < 0:
            raise ConfigError([Problem("", "too large once its names are replaced by what they stand for")])
        if isinstance(value, Section):
            return Section({key: self.copied(inner) for key, inner in value.items()}, place=value.place)
        return [self.copied(inner) for inner in value] if isinstance(value, list) else value


def merged(over: Mapping[Any, Any], base: Mapping[Any, Any]) -> Section:
    """Merge a mapping over that of a base file; ``_delete_`` replaces instead.

    Example:
        >>> merged(Section({"a": Section({"x": 1})}), Section({"a": Section({"x": 0, "y": 2}), "b": 3}))
        {'a': {'x': 1, 'y': 2}, 'b': 3}
    """
    found = Section(base, place=getattr(over, "place", ""))
    for key, value in over.items():
        if isinstance(value, dict):
            below = found.get(key)
            replaces = value.get(DELETE) is True or not isinstance(below, dict)
            found[key] = merged(value, {} if replaces or not isinstance(below, dict) else below)
        else:
            found[key] = value
    found.pop(DELETE, None)
    return found


def substituted(text: str, base: Mapping[Any, Any]) -> Any:
    """Replace a text that is ``{{_base_.name}}`` by the value that a base file gives to the name."""
    whole = _REFERENCE.fullmatch(text.strip())
    if whole is None:
        return text
    value: Any = base
    for step in whole[1].split("."):
        found = child_of(value, step)
        if found is None:
            return Unread(text)
        value = found[0]
    return value


def child_of(value: Any, step: Any) -> tuple[Any] | None:
    """Return what is at a key, an index or a slice, in a tuple; None where nothing is."""
    if isinstance(value, dict) and not isinstance(step, (slice, list, dict)) and step in value:
        return (value[step],)
    if isinstance(value, list):
        if isinstance(step, slice):
            return (value[step],)
        if type(step) is int and -len(value) <= step < len(value):
            return (value[step],)
    return None


def changed_at(root: Any, path: Sequence[Any], method: str, args: Sequence[Any], named: Mapping[str, Any]) -> bool:
    """Do to the value at a path what a statement says; return False, with nothing changed, where that is not known.

    Args:
        root: The mapping of all names.
        path: The steps to the value.
        method: ``=``, ``del``, or the name of a method of mappings and lists.
        args: The arguments by place.
        named: The arguments by name.
    """
    if not path:
        return False
    holder = root
    for step in path[:-1]:
        found = child_of(holder, step)
        if found is None:
            return False
        holder = found[0]
    last = path[-1]
    if method == "=":
        return _set(holder, last, args[0])
    there = child_of(holder, last)
    if there is None:
        return False
    if method == "del":
        del holder[last]
        return True
    match there[0], method, list(args):
        case dict(), "update" | "merge", [] | [dict()]:
            over = Section({**(args[0] if args else {}), **named})
            holder[last] = merged(over, there[0])
        case dict(), "pop", [key, *_] if isinstance(key, str):
            there[0].pop(key, None)
        case dict(), "setdefault", [key, value] if isinstance(key, str):
            there[0].setdefault(key, value)
        case list(), "append", [value]:
            there[0].append(value)
        case list(), "extend", [list() as more]:
            there[0].extend(more)
        case list(), "insert", [int(index), value]:
            there[0].insert(index, value)
        case list(), "pop", [] if there[0]:
            there[0].pop()
        case list(), "pop", [int(index)] if child_of(there[0], index):
            there[0].pop(index)
        case _:
            return False
    return True


def _set(holder: Any, step: Any, value: Any) -> bool:
    if isinstance(holder, dict) and isinstance(step, (str, int)):
        holder[step] = value
        return True
    if isinstance(holder, list) and child_of(holder, step) is not None:
        holder[step] = value
        return True
    return False
