"""A method receives what its parameters name: signatures read once, arguments gathered once per event."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ignite_hooks.text import did_you_mean

KINDS = inspect.Parameter


@dataclass(frozen=True)
class Source:
    """Where an argument comes from: a value that stays, or a name to be looked up at each event."""

    name: str | None = None
    value: Any = None

    @property
    def key(self) -> object:
        """Equal keys, equal arguments."""
        return self.name if self.name is not None else id(self.value)


@dataclass(frozen=True)
class Available:
    """What the parameters of a method can name at one point."""

    runner: object
    services: Mapping[str, Any]
    live: Collection[str]
    """Names that are looked up at each event."""
    payload: Collection[str] = ()
    """The live names that belong to the point; ``**kwargs`` receive them."""
    withheld: Collection[str] = ()
    """Services that exist in principle and were not given."""

    def source(self, name: str) -> Source | None:
        """The source of a name, if there is one."""
        if name in self.live or name in self.payload:
            return Source(name)
        if name in self.services:
            return Source(None, self.services[name])
        return None


class CannotSupply(TypeError):
    """A parameter that nobody can supply."""


def parameters_of(method: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    """The parameters of a bound method, without ``self``."""
    return tuple(inspect.signature(method).parameters.values())


def match(
    method: Callable[..., Any], available: Available, place: str
) -> tuple[Callable[..., Any], tuple[Source, ...]]:
    """A function and the sources of its positional arguments, so that calling it needs no names.

    Example:
        >>> here = Available(runner="the runner", services={"model": "the model"}, live={"epoch"})
        >>> function, sources = match(lambda trainer_, model, epoch, lr=0.1: None, here, "Mine.after_epoch")
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
        if source is None and index == 0 and parameter.name not in available.withheld:
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


def _with_keywords(method: Callable[..., Any], count: int, names: list[str]) -> Callable[..., Any]:
    return lambda *given: method(*given[:count], **dict(zip(names, given[count:], strict=True)))


def _message(name: str, available: Available, place: str) -> str:
    if name in available.withheld:
        return f"{place} needs the service {name!r}: give attach_hooks {name}=..."
    everything = {"runner", *available.live, *available.payload, *available.services}
    return f"{place} has a parameter {name!r} that nobody can supply{did_you_mean(name, everything)}"


class ArgumentSets:
    """The argument lists of one event: methods with the same parameters share one, gathered once per event."""

    def __init__(self, look_up: Callable[[str], Any]) -> None:
        self._look_up = look_up
        self._lists: dict[tuple[object, ...], list[Any]] = {}
        self.live: list[tuple[list[Any], tuple[Source, ...]]] = []
        """The lists in which anything has to be looked up at an event."""

    def of(self, sources: tuple[Source, ...]) -> list[Any]:
        """The list that holds the values of these sources while an event is handled."""
        key = tuple(source.key for source in sources)
        if key not in self._lists:
            self._lists[key] = values = [source.value for source in sources]
            if any(source.name is not None for source in sources):
                self.live.append((values, sources))
        return self._lists[key]

    def gather(self) -> None:
        """Look up what changes."""
        look_up = self._look_up
        for values, sources in self.live:
            values[:] = [s.value if s.name is None else look_up(s.name) for s in sources]

    def release(self) -> None:
        """Let go of batches and outputs, so that their memory is free for the next step."""
        for values, _ in self.live:
            values.clear()
