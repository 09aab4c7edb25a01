"""What a script keeps in variables and a run has changed: saved with it, and put back."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any

from ignite_hooks.checkpoint.script.marks import Mark, is_missed, log_size, mark_of
from ignite_hooks.checkpoint.script.places import key_of, spelled
from ignite_hooks.checkpoint.script.plain_values import CANNOT, NO_STATE, as_before, plain_of
from ignite_hooks.checkpoint.script.variables import Variable

MOST_NAMED = 8


class Progress:
    """The variables of a script that change in a run: what is saved of them, and put back.

    What is not as it was when the first epoch of a run began is progress. Times of the clock are none.
    """

    def __init__(self) -> None:
        self._first: dict[str, Mark] = {}
        self._logs: dict[str, tuple[int, Mark]] = {}
        self._windows: set[str] = set()
        """The lists that have changed without becoming longer, such as the latest losses."""
        self._entries: dict[str, None] = {}
        """The entries that mappings have had when the run began, in their order."""
        self._roots: set[str] = set()
        """What of the script has been looked at when a run began: the first two names of places."""
        self._names_taken_from: Callable[[], Collection[str]] = frozenset
        self._taken_from: frozenset[str] | None = None
        """The names that these are; None until a collection asks for them."""
        self._began = time.perf_counter()

    def begin(self, found: Iterable[Variable], taken_from: Callable[[], Collection[str]] = frozenset) -> None:
        """Note what the variables are; what was noted before stays.

        Args:
            found: The variables.
            taken_from: Returns the names of those that the code of the script takes something out of.
        """
        self._began, self._names_taken_from, self._taken_from = time.perf_counter(), taken_from, None
        roots = set[str]()
        for variable in found:
            place, value = variable.place, variable.get()
            root = ".".join(place.split(".", 2)[:2])
            if root in self._roots:  # what came into it since is progress, as that of a script that runs epoch by epoch
                continue
            roots.add(root)
            if variable.entries_of is not None:
                self._entries[place] = None
            if value is not CANNOT:
                self._first[place] = mark_of(value)
                self._is_log(place, value)
        self._roots |= roots

    def state(self, found: Iterable[Variable], known: Collection[int]) -> dict[str, Any]:
        """Return the values that have changed, and the places of those that cannot be kept, or are logs."""
        values: dict[str, Any] = {}
        unkept: list[str] = []
        logs: list[str] = []
        now = time.perf_counter()
        entries: dict[str, None] = {}
        for variable in found:
            value, place = variable.get(), variable.place
            if variable.entries_of is not None:
                entries[place] = None
            first = self._first.get(place)
            if value is CANNOT or (first is not None and first.is_of(value)):
                continue
            if type(value) is float and self._began <= value <= now:
                # A reading of the clock.
                continue
            if self._is_log(place, value):
                logs.append(place)
                continue
            plain = plain_of(value, known)
            if plain is CANNOT:
                unkept += [place] if is_missed(value, first) else []
            elif plain is not NO_STATE:
                values[place] = plain
        # What is in a collection that cannot be kept would find no place.
        values = {place: one for place, one in values.items() if not place.startswith(tuple(f"{u}." for u in unkept))}
        more = {
            "gone": [place for place in self._entries if place not in entries and _mapping_of(place) in entries],
            "order": _moved(self._entries, entries),
            "logs": logs,
        }
        found_more = {name: one for name, one in more.items() if one}
        return {"values": values, "unkept": unkept, **found_more} if values or unkept or found_more else {}

    def _is_log(self, place: str, value: Any) -> bool:
        """Return whether a value is a collection that only becomes longer: a script keeps it to look at."""
        size = log_size(value)
        if size is None or place in self._windows:
            return False
        if self._taken_from is None:
            # Most scripts keep no collections: their code need not be looked through.
            self._taken_from = frozenset(self._names_taken_from())
        if not self._taken_from.isdisjoint(place.split(".")):
            return False
        mark = mark_of(value)
        before, former = self._logs.get(place, (-1, mark))
        if size <= before and mark != former:
            self._windows.add(place)
            return False
        self._logs[place] = size, mark
        return True

    def put_back(self, found: Iterable[Variable], state: Mapping[str, Any]) -> list[str]:
        """Put values back; return the places that are there no more, or where something else is now.

        Args:
            found: The variables.
            state: What `state` has returned.
        """
        saved, gone = state.get("values", {}), state.get("gone", ())
        left, later = dict(saved), dict[str, Variable]()
        self._windows |= saved.keys()

        def put(place: str, change: Callable[[Any], None], now: Any) -> None:
            # A copy: the script may change it in place, and it is put back once more at the first batch.
            value = as_before(copy.deepcopy(left[place]), now)
            if value is not CANNOT:
                change(value)
                del left[place]

        for variable in found:
            if variable.entries_of is not None and variable.place in gone:
                variable.set(CANNOT)
            elif (now := variable.get()) is CANNOT:
                later[variable.place] = variable
            elif variable.place in left:
                put(variable.place, variable.set, now)
        for place in list(left):
            owner, _, name = place.rpartition(".")
            if place in later:
                put(place, later[place].set, None)
            elif (mapping := later.get(f"{owner}.")) is not None:
                # An attribute that the script has not made yet.
                put(place, partial(_set_entry, mapping, name), None)
        for owner, names in state.get("order", {}).items():
            if (mapping := later.get(f"{owner}.")) is not None and mapping.entries_of is not None:
                _move(mapping.entries_of, map(key_of, names))
        return list(left)


def _mapping_of(place: str) -> str:
    """Return the place of what stands for all entries of the mapping of one."""
    return f"{place.rpartition('.')[0]}."


def _moved(first: Collection[str], now: Collection[str]) -> dict[str, list[str]]:
    """Return the names in mappings whose order a resumed script would not have, by the place of the mapping.

    Args:
        first: The places of entries when the run began, in their order: a resumed script has these first.
        now: Those of now.
    """
    by_mapping: dict[str, list[str]] = {}
    for place in now:
        owner, _, name = place.rpartition(".")
        by_mapping.setdefault(owner, []).extend([name] if name else [])
    resumed: dict[str, list[str]] = {owner: [] for owner in by_mapping}
    for place in [*(one for one in first if one in now), *(one for one in now if one not in first)]:
        owner, _, name = place.rpartition(".")
        resumed[owner].extend([name] if name else [])
    return {owner: names for owner, names in by_mapping.items() if names != resumed[owner]}


def _move(mapping: dict[str, Any], keys: Iterable[str]) -> None:
    """Put the entries of a mapping in an order; others come after them."""
    there = [key for key in keys if key in mapping]
    for key in [*there, *(key for key in mapping if key not in there)]:
        mapping[key] = mapping.pop(key)


def _set_entry(mapping: Variable, name: str, value: Any) -> None:
    mapping.set((key_of(name), value))


def named(places: Collection[str]) -> str:
    """Return the names of some variables for a message.

    Example:
        >>> named(["trainer.step.globals.beta", "model.encoder.temperature", "trainer.step.self.hidden"])
        'beta, model.encoder.temperature, self.hidden'
    """
    words = [spelled(_name_of(place)) for place in places]
    shown = sorted(set(words))
    return ", ".join(shown[:MOST_NAMED]) + (f" and {len(shown) - MOST_NAMED} more" if len(shown) > MOST_NAMED else "")


def _name_of(place: str) -> str:
    if place.startswith(("model.", "trainer.state.", "engine.")):
        return place.removeprefix("engine.")
    words = [word for word in place.split(".")[2:] if word not in ("globals", "__func__", "__wrapped__")]
    return ".".join("self" if word == "__self__" else word for word in words[-2:])
