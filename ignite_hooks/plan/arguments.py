"""A method receives what its parameters name: where each argument comes from, read once from the signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ignite_hooks.system.python import parameters_of
from ignite_hooks.text import did_you_mean, nearest

KINDS = inspect.Parameter


MEANT = {"loss": "outputs", "output": "outputs", "batch": "data_batch"}
"""Names that are nearly those of the payload, which a first parameter might have."""


@dataclass(frozen=True)
class Source:
    """Where an argument comes from: a value that stays, or a name to be looked up at each event."""

    name: str | None = None
    value: Any = None


@dataclass(frozen=True)
class Available:
    """The names that the parameters of a method can have at one point."""

    runner: object
    services: Mapping[str, Any]
    live: Collection[str]
    """Names that are looked up at each event."""
    payload: Collection[str] = ()
    """The live names that belong to the point; ``**kwargs`` receive them."""
    withheld: Collection[str] = ()
    """Known services that were not given."""

    def source(self, name: str) -> Source | None:
        """Return the source of a name, or None."""
        if name in self.live or name in self.payload:
            return Source(name)
        if name in self.services:
            return Source(None, self.services[name])
        return None


class CannotSupply(TypeError):
    """A parameter that nobody can supply."""


def match_arguments(
    method: Callable[..., Any], available: Available, place: str
) -> tuple[Callable[..., Any], tuple[Source, ...]]:
    """Return a function and the sources of its positional arguments, so that calling it needs no names.

    Example:
        >>> here = Available(runner="the runner", services={"model": "the model"}, live={"epoch"})
        >>> function, sources = match_arguments(lambda trainer_, model, epoch, lr=0.1: None, here, "Mine.after_epoch")
        >>> [source.name or source.value for source in sources]
        ['the runner', 'the model', 'epoch', 0.1]
    """
    positional: list[Source] = []
    by_name: list[tuple[str, Source]] = []
    named: set[str] = set()
    for index, parameter in enumerate(parameters_of(method)):
        if parameter.kind is KINDS.VAR_POSITIONAL:
            continue
        if parameter.kind is KINDS.VAR_KEYWORD:
            by_name += [(name, Source(name)) for name in available.payload if name not in named]
            continue
        source = available.source(parameter.name)
        if source is None and parameter.default is not KINDS.empty:
            source = Source(None, parameter.default)
        if source is None and index == 0 and _is_for_the_runner(parameter.name, available):
            source = Source(None, available.runner)
        if source is None:
            raise CannotSupply(_message(parameter.name, available, place))
        named.add(parameter.name)
        if parameter.kind is KINDS.KEYWORD_ONLY:
            by_name.append((parameter.name, source))
        else:
            positional.append(source)
    if by_name:
        return _with_keywords(method, len(positional), [name for name, _ in by_name]), (
            *positional,
            *(source for _, source in by_name),
        )
    return method, tuple(positional)


def _is_for_the_runner(name: str, available: Available) -> bool:
    """Return whether a first parameter has a name of its own, and is no known name that is misspelt."""
    if name in available.withheld or name in MEANT:
        return False
    known = {"runner", "trainer", "engine", *available.live, *available.payload, *available.services}
    meant = nearest(name.strip("_"), known, cutoff=0.8)
    return meant in (None, "runner", "trainer", "engine") or meant == name.strip("_")


def _with_keywords(method: Callable[..., Any], count: int, names: list[str]) -> Callable[..., Any]:
    return lambda *given: method(*given[:count], **dict(zip(names, given[count:], strict=True)))


def _message(name: str, available: Available, place: str) -> str:
    if name in available.withheld:
        return f"{place} needs the service {name!r}: pass {name}=... to attach_hooks()"
    everything = {"runner", *available.live, *available.payload, *available.services}
    return f"{place} has a parameter {name!r} that nobody can supply{did_you_mean(MEANT.get(name, name), everything)}"
