"""The section ``search`` of a configuration: what is tried, how it is ranked, and what each trial may have."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from annotated_types import Ge, Gt

from ignite_hooks.config.validate import validate_settings
from ignite_hooks.errors import Problem
from ignite_hooks.results.better import rule_for
from ignite_hooks.text import did_you_mean, nearest, shown

KINDS = ("log", "float", "int", "choices", "seeds")


@dataclass(frozen=True)
class Dimension:
    """The values that one setting may take: some choices, or the numbers between two."""

    choices: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False
    step: float | None = None

    @property
    def first(self) -> Any:
        """A value to check a configuration with."""
        return self.choices[0] if self.choices else self.low

    def grid(self) -> list[Any]:
        """Return every value; of numbers without a step there is no end."""
        if self.choices:
            return list(self.choices)
        if self.whole or self.step:
            step = self.step or 1
            numbers = [self.low + i * step for i in range(int((self.high - self.low) / step + 1e-9) + 1)]
            return [int(value) for value in numbers] if self.whole else numbers
        raise ValueError("a grid needs choices, an int, or a step")


@dataclass(frozen=True)
class LocalEngine:
    """Trials are processes on this machine."""


@dataclass(frozen=True)
class ClearMLEngine:
    """Trials are tasks of ClearML, which agents take from a queue.

    Args:
        queue: Name of the queue.
        lost_after: Seconds without a word from a trial and its agent after which the trial is repeated.
    """

    queue: str = "default"
    lost_after: Annotated[float, Ge(60)] = 600.0


@dataclass(frozen=True)
class RayEngine:
    """Trials are tasks of a Ray cluster.

    Args:
        address: Address of the cluster, as host:port; auto takes that of RAY_ADDRESS, or the one on this machine.
    """

    address: str = "auto"


ENGINES: Final[Mapping[str, type]] = {"local": LocalEngine, "clearml": ClearMLEngine, "ray": RayEngine}
"""What can run trials, each with the class of its settings; `search/makers.py` has what makes them."""


@dataclass(frozen=True)
class SearchSection:
    """What a search tries, and how.

    Args:
        space: Settings by their dotted place, as training.optimizer.lr, with what to try: a list of choices, or a
            mapping with log, float, int, choices or seeds.
        metric: Metric of an evaluation by which trials are ranked, by its best value in a trial.
        direction: Whether a greater or a smaller value is better; auto decides by the name of the metric.
        trials: Number of trials; a grid tries everything by default.
        jobs: Number of trials at the same time, each in a process of its own.
        sampler: How values are chosen: tpe learns from earlier trials, random does not, grid tries everything.
        pruner: Pruner of Optuna that stops trials early, such as median, or a mapping of type and settings.
        seed: Seed of the sampler, and of every trial where the configuration has no seed.
        timeout: Seconds after which no further trial begins.
        cpus: Number of threads of a trial; by default the cores divided by the jobs, and on other machines one.
        gpus: Number of GPUs that a trial sees; by default it sees all.
        keep: Number of best trials that keep their checkpoints.
        engine: What runs the trials: local, processes on this machine; clearml, agents of ClearML; ray, tasks of a Ray
            cluster; or a mapping of type and settings.
        storage: Address of a database that several machines share, as postgresql+psycopg://user@host/name; variables as
            $PASSWORD are put in. By default a file in the work directory.
        study: Name of the search in that database; by default that of the configuration file.
    """

    space: Mapping[str, Any] = field(default_factory=dict)
    metric: str = "val_loss"
    direction: Literal["auto", "maximize", "minimize"] = "auto"
    trials: Annotated[int, Ge(1)] | None = None
    jobs: Annotated[int, Ge(1)] = 1
    sampler: Literal["tpe", "random", "grid"] = "tpe"
    pruner: str | Mapping[str, Any] | None = None
    seed: Annotated[int, Ge(0)] = 0
    timeout: Annotated[float, Gt(0)] | None = None
    cpus: Annotated[int, Ge(1)] | None = None
    gpus: Annotated[int, Ge(1)] | None = None
    keep: Annotated[int, Ge(1)] = 5
    engine: str | Mapping[str, Any] = "local"
    storage: str | None = None
    study: str | None = None

    @property
    def engine_name(self) -> str:
        """The name of what runs the trials, as in `ENGINES`."""
        return self.engine if isinstance(self.engine, str) else str(self.engine.get("type"))

    @property
    def engine_settings(self) -> Any:
        """The settings of what runs the trials, as an object of its class in `ENGINES`."""
        given = {} if isinstance(self.engine, str) else {n: v for n, v in self.engine.items() if n != "type"}
        return ENGINES[self.engine_name](**given)

    @property
    def greater(self) -> bool:
        """Whether a greater value is better."""
        if self.direction != "auto":
            return self.direction == "maximize"
        return rule_for(self.metric) == "greater"

    def dimensions(self) -> dict[str, Dimension]:
        """Return what each setting may be."""
        problems: list[Problem] = []
        return {name: read_dimension(wanted, name, problems) for name, wanted in self.space.items()}

    def grid(self) -> list[dict[str, Any]]:
        """Return every combination."""
        dimensions = self.dimensions()
        values = itertools.product(*(one.grid() for one in dimensions.values()))
        return [dict(zip(dimensions, each, strict=True)) for each in values]

    @property
    def number(self) -> int:
        """The number of trials."""
        everything = len(self.grid()) if self.sampler == "grid" else None
        return min(self.trials or 10**9, everything) if everything is not None else self.trials or 20


def read_search(content: Any, problems: list[Problem], place: str = "search") -> SearchSection | None:
    """Read the section; add everything that is wrong to the problems."""
    if not isinstance(content, Mapping):
        problems.append(Problem(place, f"a mapping is needed, not {shown(content)}"))
        return None
    wrong = validate_settings(SearchSection, content, place, hook=False)
    bad = {problem.place for problem in wrong}
    if "space" not in content or (f"{place}.space" not in bad and not content["space"]):
        wrong.append(Problem(f"{place}.space", "missing: what to try, as training.optimizer.lr: {log: [1e-5, 1e-1]}"))
    good = {n: v for n, v in content.items() if n in SearchSection.__dataclass_fields__ and f"{place}.{n}" not in bad}
    section = SearchSection(**good)
    for name, wanted in section.space.items():
        dimension = read_dimension(wanted, f"{place}.space.{name}", wrong)
        if section.sampler == "grid" and not any(p.place.startswith(f"{place}.space.{name}") for p in wrong):
            try:
                dimension.grid()
            except ValueError as error:
                wrong.append(Problem(f"{place}.space.{name}", str(error)))
    if f"{place}.engine" not in bad:
        wrong += _wrong_engine(section, f"{place}.engine")
    if section.storage is not None and "://" not in section.storage:
        message = (
            f"the address of a database is needed, as postgresql+psycopg://user@host/name, not {section.storage!r}"
        )
        wrong.append(Problem(f"{place}.storage", message))
    if section.study is not None and section.storage is None:
        wrong.append(Problem(f"{place}.study", "set storage too: in the work directory there is one study alone"))
    try:
        _ = section.greater
    except ValueError:
        message = f"cannot tell whether a higher or lower {section.metric!r} is better: set it to maximize or minimize"
        wrong.append(Problem(f"{place}.direction", message))
    problems += wrong
    return None if wrong else section


def _wrong_engine(section: SearchSection, place: str) -> list[Problem]:
    cls = ENGINES.get(section.engine_name)
    if cls is None:
        there_are = did_you_mean(section.engine_name, ENGINES) or f"; there are {', '.join(ENGINES)}"
        return [Problem(place, f"nothing called {section.engine_name!r} runs trials{there_are}")]
    given = {} if isinstance(section.engine, str) else {n: v for n, v in section.engine.items() if n != "type"}
    return validate_settings(cls, given, place, hook=False)


def read_dimension(wanted: Any, place: str, problems: list[Problem]) -> Dimension:
    """Read what one setting may be; a wrong one is a problem, and has nothing in it."""
    found = list(_wrong(wanted))
    problems += [Problem(f"{place}.{key}" if key else place, message) for key, message in found]
    if found:
        return Dimension()
    if isinstance(wanted, list):
        return Dimension(tuple(wanted))
    kind = _kinds(wanted)[0]
    given = wanted[kind]
    if kind in ("choices", "seeds"):
        return Dimension(tuple(given if kind == "choices" else range(given)))
    low, high = given
    return Dimension(
        low=low, high=high, log=kind == "log" or bool(wanted.get("log")), whole=kind == "int", step=wanted.get("step")
    )


def _wrong(wanted: Any) -> Iterator[tuple[str, str]]:
    if isinstance(wanted, list):
        if not wanted:
            yield "", "an empty list: there is nothing to choose"
        return
    if not isinstance(wanted, Mapping):
        yield "", f"a list of choices, or a mapping such as {{log: [1e-5, 1e-1]}}, is needed, not {shown(wanted)}"
        return
    kinds = _kinds(wanted)
    for key in wanted:
        if key not in (*KINDS, "step"):
            there_are = f"; there are {', '.join(KINDS)}"
            yield str(key), f"not known here{did_you_mean(key, KINDS) or there_are}"
    if len(kinds) != 1:
        if nearest(next(iter(wanted), ""), KINDS) in (None, *kinds):
            yield "", f"one of {', '.join(KINDS)} is needed"
        return
    kind, given = kinds[0], wanted[kinds[0]]
    if kind == "choices" and not (isinstance(given, list) and given):
        yield kind, f"a list is needed, not {shown(given)}"
    elif kind == "seeds" and not (type(given) is int and given > 0):
        yield kind, f"the number of seeds is needed, not {shown(given)}"
    elif kind in ("log", "float", "int"):
        yield from _wrong_range(kind, given, wanted)


def _kinds(wanted: Mapping[str, Any]) -> list[str]:
    """Return the words that say what is tried; ``log: true`` only says how."""
    return [key for key in KINDS if key in wanted and not isinstance(wanted[key], bool)]


def _wrong_range(kind: str, given: Any, wanted: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    types = (int,) if kind == "int" else (int, float)
    numbers = isinstance(given, list) and len(given) == 2 and all(type(one) in types for one in given)
    if not numbers or not all(math.isfinite(one) for one in given) or given[0] > given[1]:
        what = "whole numbers" if kind == "int" else "numbers"
        yield kind, f"two {what}, the smaller first, are needed, not {shown(given)}"
        return
    if (kind == "log" or wanted.get("log")) and given[0] <= 0:
        yield kind, f"both must be above 0 on a logarithmic scale, not {shown(given)}"
    step = wanted.get("step")
    if step is not None and (type(step) not in types or step <= 0 or kind == "log" or wanted.get("log")):
        yield "step", f"a {'whole ' if kind == 'int' else ''}number above 0 without log is needed, not {shown(step)}"
