"""Where two runs part: the first iteration whose digests differ, and what in it differs first."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ignite_hooks.errors import ResultError
from ignite_hooks.results.comparison import Comparison
from ignite_hooks.results.folders import not_a_run
from ignite_hooks.results.recorded_run import read_run
from ignite_hooks.store.files import open_regular

DIGESTS: Final = "weights_digests.jsonl"
"""What `DeterminismHook` writes: a line for each iteration that it looks at."""
RUN: Final = "run"
TENSORS: Final = "tensors"
"""The entries of a line that are no parts of the model: of the run around it, and of each tensor of the model."""
NAMES: Final = {
    "data": "data: the batch is another one",
    "random": "random numbers",
    "loss": "loss",
    "rates": "learning rate",
    "weights": "weights",
    "optimizer": "optimizer state",
}
"""What may differ, in the order in which an iteration comes to it."""


@dataclass(frozen=True)
class Difference:
    """One thing that differs in an iteration."""

    what: str
    where: str = ""
    values: tuple[str, str] = ("", "")

    def __str__(self) -> str:
        """Say what differs.

        Example:
            >>> print(Difference("rates", "", ("[0.1]", "[0.2]")))
            learning rate: [0.1] and [0.2]
        """
        shown = f": {self.values[0]} and {self.values[1]}" if self.what in ("loss", "rates") else ""
        return f"{NAMES[self.what]}{f' of {self.where}' if self.where else ''}{shown}"


@dataclass(frozen=True)
class Parting:
    """Where two runs part."""

    compared: int
    """Number of iterations that both have looked at."""
    last: int
    iteration: int | None = None
    """The first iteration that differs; None if none does."""
    equal_until: int | None = None
    """The last iteration before it whose digests are equal."""
    differences: tuple[Difference, ...] = ()
    """What differs in it, in the order in which an iteration comes to it."""
    settings: Mapping[str, tuple[tuple[str, str, str], ...]] = field(default_factory=dict)
    """What differs in how they were made: ``bits``, ``configuration``, ``environment``."""
    replayed: tuple[int, int] | None = None
    """The iterations between which both were run again."""

    def lines(self) -> Iterator[str]:
        """Yield what a person reads."""
        if self.iteration is None:
            yield f"no difference: all {self.compared} digests are equal, until iteration {self.last}"
        else:
            since = "from the beginning" if self.equal_until is None else f"equal until iteration {self.equal_until}"
            yield f"the runs part in iteration {self.iteration} ({since}), first in: {self.differences[0]}"
            yield from (f"  also: {one}" for one in self.differences[1:])
            if self.replayed is not None:
                yield "  iterations {} to {} of both were run again to find it".format(*self.replayed)
            if self.iteration - (self.equal_until or 0) > 1:
                remedy = "--replay runs it again; of a script: {type: DeterminismHook, interval: 1} in both runs"
                yield f"  what came between {self.equal_until or 0} and {self.iteration} is not recorded: {remedy}"
        for what, rows in self.settings.items():
            title = {"bits": "what decides the bits"}.get(what, what)
            yield from (f"{title}: {name}: {one} and {other}" for name, one, other in rows)


def part(one: Path, other: Path) -> Parting:
    """Return where the runs of two work directories part.

    Raises:
        ResultError: If a run has no digests, or they have no iteration in common.
    """
    check_runs(one, other)
    mine, theirs = read_lines(one / DIGESTS), read_lines(other / DIGESTS)
    for folder, found in ((one, mine), (other, theirs)):
        if not found:
            raise ResultError(
                f"{folder}: there is no {DIGESTS}: add {{type: DeterminismHook, interval: 1}} to both runs, "
                "or let --replay compare their checkpoints"
            )
    common = sorted(mine.keys() & theirs.keys())
    if not common:
        raise ResultError(f"{one}, {other}: no iteration is in both files: give DeterminismHook the same interval")
    settings = settings_that_differ(one, other)
    for position, iteration in enumerate(common):
        if differ := tuple(differences(mine[iteration], theirs[iteration])):
            before = common[position - 1] if position else None
            return Parting(len(common), common[-1], iteration, before, differ, settings)
    return Parting(len(common), common[-1], settings=settings)


def check_runs(*folders: Path) -> None:
    """Raise `ResultError` for the first folder that is no work directory of a run."""
    for folder in folders:
        if wrong := not_a_run(folder):
            raise ResultError(f"{folder}: {wrong}")


def settings_that_differ(one: Path, other: Path) -> dict[str, tuple[tuple[str, str, str], ...]]:
    """Return what differs in how the runs of two work directories were made, by kind."""
    return {what: rows for what in ("bits", "configuration", "environment") if (rows := _made(one, other, what))}


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[Difference]:
    """Yield what differs between two lines; an entry that only one of them has is no difference."""
    mine, theirs = _mapping(one.get(RUN)), _mapping(other.get(RUN))
    for what in NAMES:
        if what == "weights":
            if one.get("all") != other.get("all"):
                yield Difference("weights", _where(one, other))
        elif what in mine and what in theirs and mine[what] != theirs[what]:
            yield Difference(what, "", (str(mine[what]), str(theirs[what])))


def _where(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Return the first tensors that differ, else the parts of the model."""
    mine, theirs = _mapping(one.get(TENSORS)), _mapping(other.get(TENSORS))
    names = [name for name in mine if mine[name] != theirs.get(name)] if mine and theirs else []
    skipped = ("all", "iteration", RUN, TENSORS)
    names = names or [name for name in one if name not in skipped and one[name] != other.get(name)]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _made(one: Path, other: Path, what: str) -> tuple[tuple[str, str, str], ...]:
    try:
        compared = Comparison([read_run(one), read_run(other)])
    except FileNotFoundError:
        return ()
    names = compared.names
    rows = compared.differences(what) if all(run.result is not None for run in compared.runs) else []
    # Everything else is a consequence of where a run was put.
    rows = [row for row in rows if row[""] not in ("work_dir", "experiment_dir", "command")]
    return tuple((row[""], row[names[0]], row[names[1]]) for row in rows)


def read_lines(path: Path) -> dict[int, dict[str, Any]]:
    """Return the lines of a file of digests by iteration; an unfinished last line is left out."""
    found: dict[int, dict[str, Any]] = {}
    try:
        with open_regular(path) as file:
            text = file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return found
    for line in text.splitlines(keepends=True):
        # A killed process may leave a part of its last line.
        if not line.endswith("}\n"):
            continue
        try:
            content = json.loads(line)
            found[int(content["iteration"])] = content
        except (ValueError, KeyError, TypeError) as error:
            raise ResultError(f"{path}: not a file of digests: {error}") from error
    return found


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
