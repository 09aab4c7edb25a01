"""Copy trees of mappings and lists, within limits: what a configuration is once it has been read."""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ignite_hooks.errors import ConfigError, Problem
from ignite_hooks.text import below

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


def copy_tree(value: Any) -> Any:
    """Copy a caller's mapping or list into plain dicts and lists; every other object stays the very same.

    Example:
        >>> copy_tree({"hooks": ({"type": "EMAHook"},)})
        {'hooks': [{'type': 'EMAHook'}]}
    """
    return _Copier("", strict=False).copy(value, ())


def checked_tree(value: Any, source: str) -> Any:
    """Copy what a parser has read, and raise a ConfigError with every value that is not plain data."""
    copier = _Copier(source, strict=True)
    copied = copier.copy(value, ())
    if copier.problems:
        raise ConfigError(list(copier.problems))
    return copied


class _Copier:
    """Copies mappings and lists; when strict, every key and value must be plain data.

    A parser leaves a `Problem` where a value cannot be accepted; without a place it gets its path.
    """

    def __init__(self, source: str, *, strict: bool) -> None:
        self.source, self.strict = source, strict
        self.problems: dict[Problem, None] = {}
        self.nodes = 0
        self.parents: set[int] = set()

    def copy(self, value: Any, path: tuple[Any, ...]) -> Any:
        """Copy a value that stands at a path of keys and indices."""
        value = self._without_omegaconf(value, path)
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
        if self.strict and len(self.problems) < MAX_PROBLEMS and (problem := objection_to(value)):
            self.problems[Problem(problem.place or self._place(path), problem.message)] = None
        return value

    def _place(self, path: tuple[Any, ...]) -> str:
        place = functools.reduce(below, path, "")
        short = place if len(place) <= 80 else f"{place[:77]}..."
        return ": ".join(part for part in (self.source, short) if part)

    def _without_omegaconf(self, value: Any, path: tuple[Any, ...]) -> Any:
        if not str(type(value).__module__).startswith("omegaconf"):
            return value
        omegaconf = importlib.import_module("omegaconf")
        if not omegaconf.OmegaConf.is_config(value):
            return value
        try:
            return omegaconf.OmegaConf.to_container(value, resolve=True, throw_on_missing=True)
        except omegaconf.errors.OmegaConfBaseException as error:
            message = f"OmegaConf cannot resolve this configuration: {single_line(error)}"
            raise error_at(self._place(path), message) from error


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
