"""Parts of a state that no checkpoint can hold: named once, and listed in the file."""

from __future__ import annotations

import copy
import inspect
import types
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ignite_hooks.store.plain import ALLOWED, to_plain_leaving_out

MOST_NAMED = 5
"""How many parts a message names."""


class LeftOut:
    """What the checkpoints of one run do without.

    Args:
        warn: Logs a warning.
    """

    def __init__(self, warn: Callable[[str], object]) -> None:
        self._warn = warn
        self.known: dict[str, str] = {}
        """The places of these parts, each with the reason."""

    def note(self, parts: Mapping[str, str]) -> None:
        """Name the parts that are not known yet."""
        new = {place: reason for place, reason in parts.items() if place not in self.known}
        self.known |= new
        if new:
            self._warn(f"checkpoints do without {in_words(new)}; resuming from them will be approximate")

    def plain(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Return a state without what cannot be saved, which it lists in ``meta.missing``."""
        plain, parts = to_plain_leaving_out(dict(state))
        self.note(parts)
        found: dict[str, Any] = plain
        listed = [*found["meta"].get("missing", []), *parts] if "meta" in found else []
        if listed:
            found["meta"] = {**found["meta"], "missing": sorted(set(listed))}
        return found

    def part(self, state: Callable[[], object], place: str) -> tuple[Any, list[str]]:
        """Return the plain form of a part of the state and the places in it that cannot be saved.

        A part of which nothing can be saved is None.

        Args:
            state: Returns the part; its failure costs this part only.
            place: Its place in the checkpoint.
        """
        try:
            plain, parts = to_plain_leaving_out({place: state()})
        except RecursionError:
            plain, parts = {}, {place: f"{place}: cannot be saved: too deep, or contains itself"}
        except Exception as error:
            plain, parts = {}, {place: f"{place}: cannot be saved: {type(error).__name__}: {error}"}
        self.note(parts)
        return plain.get(place), list(parts)


def in_words(parts: Mapping[str, str]) -> str:
    """Return the places and types of parts as text.

    Example:
        >>> in_words({"hooks.H.f": f"hooks.H.f: cannot be saved: function; a state holds {ALLOWED}"})
        'hooks.H.f: cannot be saved: function; a state holds numbers, text, lists, tuples, sets, dicts and tensors'
    """
    ending = f"; a state holds {ALLOWED}"
    reasons = [reason.removesuffix(ending) for reason in parts.values()]
    more = [f"{len(reasons) - MOST_NAMED} more"] if len(reasons) > MOST_NAMED else []
    return ", ".join([*reasons[:MOST_NAMED], *more]) + ending


def with_todays(saved: Any, place: str, missing: Collection[str], today: Callable[[], Any]) -> Any:
    """Return a part of a checkpoint, completed by the values that its owner has today.

    Args:
        saved: The part.
        place: Its place in the checkpoint.
        missing: The places that the checkpoint does without.
        today: Returns the state of the owner as it is now.
    """
    if not any(part.startswith((f"{place}.", f"{place}[")) for part in missing):
        return saved
    return _completed(saved, today(), place, frozenset(missing))


def missing_parts(state: Mapping[str, Any]) -> list[str]:
    """Return the places that a checkpoint says it does without."""
    meta = state.get("meta")
    found = meta.get("missing", []) if isinstance(meta, Mapping) else []
    return [place for place in found if isinstance(place, str)] if isinstance(found, list) else []


def _completed(saved: Any, now: Any, place: str, missing: frozenset[str]) -> Any:
    if isinstance(saved, Mapping) and isinstance(now, Mapping):
        found = {
            key: _completed(item, now[key], f"{place}.{key}", missing) if key in now else item
            for key, item in saved.items()
        }
        return found | {key: item for key, item in now.items() if key not in found and f"{place}.{key}" in missing}
    if isinstance(saved, list) and isinstance(now, (list, tuple)) and len(saved) == len(now):
        pairs = enumerate(zip(saved, now, strict=True))
        return [_completed(item, other, f"{place}[{index}]", missing) for index, (item, other) in pairs]
    return saved


def without_methods(state: Any) -> Any:
    """Return a state without the methods among its values: the owner of the state makes them for itself.

    Ignite's ReduceLROnPlateauScheduler has one in the state of the scheduler that it wraps.

    Example:
        >>> without_methods({"last_epoch": 1, "scheduler": {"best": 0.5, "reduce": [].append}})
        {'last_epoch': 1, 'scheduler': {'best': 0.5}}
    """
    if not isinstance(state, Mapping):
        return state
    kept = {name: value for name, value in state.items() if not _is_method(value)}
    return {name: without_methods(value) for name, value in kept.items()}


def copied_state(owner: Any) -> Any:
    """Return a copy of the state of an object; a method in it would bring a copy of its owner along."""
    return copy.deepcopy(without_methods(owner.state_dict()))


def _is_method(value: Any) -> bool:
    return isinstance(value, (types.MethodType, types.BuiltinMethodType)) and not inspect.ismodule(value.__self__)
