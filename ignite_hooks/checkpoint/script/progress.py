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
_NOTHING: dict[str, Any] = {"values": {}, "unkept": []}


class Progress:
    """The variables of a script that change in a run: what is saved of them, and put back.

    What is not as it was when the first epoch of a run began is progress. Times of the clock are none.
    """

    def __init__(self) -> None:
        self._first: dict[str, Mark] = {}
        self._logs: dict[str, tuple[int, Mark]] = {}
        self._windows: set[str] = set()
        """The lists that have changed without becoming longer, such as the latest losses."""
        self._entries: dict[str, int] = {}
        """The entries that mappings have had when the run began, and the id of each mapping."""
        self._began = time.perf_counter()

    def begin(self, found: Iterable[Variable]) -> None:
        """Note what the variables are; what was noted before stays."""
        self._began = time.perf_counter()
        for variable in found:
            if variable.entries_of is not None:
                self._entries.setdefault(variable.place, variable.entries_of)
            value = variable.get()
            if value is not CANNOT and variable.place not in self._first:
                self._first[variable.place] = mark_of(value)
                self._is_log(variable.place, value)

    def state(self, found: Iterable[Variable], known: Collection[int]) -> dict[str, Any]:
        """Return the values that have changed, and the places of those that cannot be kept."""
        values: dict[str, Any] = {}
        unkept: list[str] = []
        now = time.perf_counter()
        entries: dict[str, int] = {}
        for variable in found:
            value = variable.get()
            if variable.entries_of is not None:
                entries[variable.place] = variable.entries_of
            first = self._first.get(variable.place)
            if value is CANNOT or (first is not None and first.is_of(value)) or self._is_log(variable.place, value):
                continue
            if type(value) is float and self._began <= value <= now:
                # A reading of the clock.
                continue
            plain = plain_of(value, known)
            if plain is CANNOT:
                unkept += [variable.place] if is_missed(value, first) else []
            elif plain is not NO_STATE:
                values[variable.place] = plain
        # What is in a collection that cannot be kept would find no place.
        values = {place: one for place, one in values.items() if not place.startswith(tuple(f"{u}." for u in unkept))}
        state: dict[str, Any] = {"values": values, "unkept": unkept} if values or unkept else {}
        # Of a mapping that is still the same.
        gone = [
            place
            for place, mapping in self._entries.items()
            if place not in entries and entries.get(f"{place.rpartition('.')[0]}.") == mapping
        ]
        return {**_NOTHING, **state, "gone": gone} if gone else state

    def _is_log(self, place: str, value: Any) -> bool:
        """Return whether a value is a collection that only becomes longer: a script keeps it to look at."""
        size = log_size(value)
        if size is None or place in self._windows:
            return False
        mark = mark_of(value)
        before, former = self._logs.get(place, (-1, mark))
        if size <= before and mark != former:
            self._windows.add(place)
            return False
        self._logs[place] = size, mark
        return True

    def put_back(self, found: Iterable[Variable], saved: Mapping[str, Any], gone: Collection[str] = ()) -> list[str]:
        """Put values back; return the places that are there no more, or where something else is now.

        Args:
            found: The variables.
            saved: The values, by place.
            gone: The entries of mappings that the script had taken out.
        """
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
        return list(left)


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
