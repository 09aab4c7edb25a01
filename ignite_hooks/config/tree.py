"""Copy trees of mappings and lists, within limits: what a configuration is once it has been read."""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ignite_hooks.errors import ConfigError, Problem
from ignite_hooks.text import below, plain_number

MAX_BYTES = 1_000_000
MAX_DEPTH = 64
MAX_NODES = 100_000
MAX_ALIASES = 100
MAX_DIGITS = 100
MAX_PROBLEMS = 50
MAX_JOINED_TEXT = 1_000

TOO_DEEP = f"nested too deeply: at most {MAX_DEPTH} levels"
TOO_MUCH = f"too much data: at most {MAX_NODES:,} values, repeated ones counted"
TOO_LONG = f"an integer of more than {MAX_DIGITS} digits: write a smaller one, or a float such as 1e300"
TOO_BIG = f"larger than {MAX_BYTES:,} bytes: a configuration holds settings, not data"


Judges = Callable[[Any], bool]
"""Tells of a key at top level whether what is below it must be plain data; the rest belongs to the script."""


class Foreign(NamedTuple):
    """A value that a configuration of ours cannot hold, beside what it is for a script."""

    problem: Problem
    value: Any


def copy_tree(value: Any, judges: Judges | None = None) -> Any:
    """Copy a caller's mapping or list into plain dicts and lists; every other object stays the very same.

    Args:
        value: The mapping or list.
        judges: Of which keys at top level OmegaConf must be able to resolve the values; of all by default.

    Example:
        >>> copy_tree({"hooks": ({"type": "EMAHook"},)})
        {'hooks': [{'type': 'EMAHook'}]}
    """
    return _Copier("", strict=False, judges=judges).copy(value, ())


def checked_tree(value: Any, source: str, judges: Judges | None = None) -> Any:
    """Copy what a parser has read, and raise a ConfigError with every value that is not plain data.

    Args:
        value: What the parser has read.
        source: The name of the file.
        judges: Below which keys at top level that is an error; below all by default.
    """
    copier = _Copier(source, strict=True, judges=judges)
    copied = copier.copy(value, ())
    if copier.problems:
        raise ConfigError(list(copier.problems))
    return copied


class _Copier:
    """Copies mappings and lists; when strict, every key and value must be plain data.

    A parser leaves a `Problem` where there is no value, and a `Foreign` where one cannot be accepted; a problem
    without a place gets its path. Below keys that ``judges`` leaves to the script, every value is accepted.
    """

    def __init__(self, source: str, *, strict: bool, judges: Judges | None = None) -> None:
        self.source, self.strict, self.judges = source, strict, judges
        self.judging = True
        self.problems: dict[Problem, None] = {}
        self.nodes = 0
        self.parents: set[int] = set()

    def copy(self, value: Any, path: tuple[Any, ...]) -> Any:
        """Copy a value that stands at a path of keys and indices."""
        while isinstance(value, Foreign):
            self._object(value.problem, path)
            value = value.value
        if is_omegaconf(value):
            value = self._resolved(value, path)
        is_mapping = isinstance(value, Mapping)
        is_list = isinstance(value, list | tuple) and not hasattr(value, "_fields")
        if self.strict or is_mapping or is_list:
            self._count(value, path)
        if not is_mapping and not is_list:
            return self._leaf(value, path)
        self.parents.add(id(value))
        items: Iterable[tuple[Any, Any]] = value.items() if is_mapping else enumerate(value)
        copied = {}
        for key, item in items:
            if not path and is_mapping and self.judges is not None:
                self.judging = self.judges(key)
            copied[self._leaf(key, path)] = self.copy(item, (*path, key))
        self.parents.remove(id(value))
        return copied if is_mapping else list(copied.values())

    def _count(self, value: Any, path: tuple[Any, ...]) -> None:
        self.nodes += 1 + (len(value) // 100 if isinstance(value, str) else 0)
        if id(value) in self.parents:
            raise error_at(self._place(path), "contains itself: a configuration is a tree")
        if len(path) > MAX_DEPTH or self.nodes > MAX_NODES:
            raise error_at(self._place(path), TOO_DEEP if len(path) > MAX_DEPTH else TOO_MUCH)

    def _leaf(self, value: Any, path: tuple[Any, ...]) -> Any:
        if self.strict and (problem := objection_to(value)):
            self._object(problem, path, always=isinstance(value, Problem))
        return plain_number(value) if self.judging else value

    def _object(self, problem: Problem, path: tuple[Any, ...], *, always: bool = False) -> None:
        """Add a problem, unless it is the script's."""
        if (self.judging or always) and len(self.problems) < MAX_PROBLEMS:
            self.problems[Problem(problem.place or self._place(path), problem.message)] = None

    def _place(self, path: tuple[Any, ...]) -> str:
        place = functools.reduce(below, path, "")
        short = place if len(place) <= 80 else f"{place[:77]}..."
        return ": ".join(part for part in (self.source, short) if part)

    def _resolved(self, value: Any, path: tuple[Any, ...]) -> Any:
        """Return the content of an OmegaConf object; what is the script's stays as written if it has no value."""
        if path or self.judges is None or not isinstance(value, Mapping):
            return self._resolved_whole(value, path) if self.judging else resolved_or_written(value)
        return {key: self._resolved_key(value, key) for key in value}

    def _resolved_key(self, config: Any, key: Any) -> Any:
        assert self.judges is not None
        if not self.judges(key):
            return resolved_or_written(config, key)
        try:
            item = config[key]
        except Exception as error:  # a resolver is anybody's code
            raise error_at(self._place((key,)), _cannot_resolve(error)) from error
        return self._resolved_whole(item, (key,)) if is_omegaconf(item) else item

    def _resolved_whole(self, value: Any, path: tuple[Any, ...]) -> Any:
        try:
            return _container(value, resolve=True, throw_on_missing=True)
        except Exception as error:  # a resolver is anybody's code
            raise error_at(self._place(path), _cannot_resolve(error)) from error


def is_omegaconf(value: Any) -> bool:
    """Return whether a value is a mapping or a list of OmegaConf."""
    if not str(type(value).__module__).startswith("omegaconf"):
        return False
    return bool(importlib.import_module("omegaconf").OmegaConf.is_config(value))


def resolved_or_written(config: Any, key: Any = None) -> Any:
    """Return the content of an OmegaConf object, or of a key in it; as it is written if it cannot be resolved."""
    try:
        item = config if key is None else config[key]
        return _container(item, resolve=True, throw_on_missing=False) if is_omegaconf(item) else item
    except Exception:  # a resolver is anybody's code
        written = _container(config, resolve=False, throw_on_missing=False)
        return written if key is None else written[key]


def _container(value: Any, **how: bool) -> Any:
    return importlib.import_module("omegaconf").OmegaConf.to_container(value, **how)


def _cannot_resolve(error: Exception) -> str:
    return f"OmegaConf cannot resolve this configuration: {single_line(error)}"


def objection_to(value: Any) -> Problem | None:
    """Return why a value is not plain data, without a place, or None."""
    if isinstance(value, Problem):
        return value
    if isinstance(value, int) and abs(value) >= 10**MAX_DIGITS:
        return Problem("", TOO_LONG)
    if isinstance(value, str) and re.search("[\ud800-\udfff]", value):
        return Problem("", "half of a surrogate pair is not text: write the character itself")
    if value is None or isinstance(value, bool | int | float | str):
        return None
    return Problem("", f"a value of type {type(value).__name__} is not supported: write text or a number")


def parse_integer(text: str) -> int | Problem:
    """Read an integer, or return what is wrong with it."""
    if len(text) > MAX_DIGITS + 1:
        return Problem("", TOO_LONG)
    return int(text, 0) if text[:2] in ("0x", "0o") else int(text)


def error_at(place: str, message: str) -> ConfigError:
    """Return a ConfigError of one problem."""
    return ConfigError([Problem(place, message)])


def line_of(source: str, line: int, column: int | None = None) -> str:
    """Return a place in a file, as editors understand it."""
    return f"{source}:{line}:{column}" if column else f"{source}:{line}"


def single_line(message: object) -> str:
    """Return a message of another library on one line."""
    return " ".join(str(message).split())[:200]
