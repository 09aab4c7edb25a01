"""The settings that say when a hook is called: read once, when it is registered, and told from its other attributes."""

from __future__ import annotations

import types
import weakref
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from ignite_hooks.errors import SettingError
from ignite_hooks.plan.class_code import (
    attributes_assigned_in,
    attributes_read_in,
    keeps_keywords,
    methods_in,
    words_in,
)
from ignite_hooks.plan.event_schedule import schedule_given
from ignite_hooks.plan.methods import (
    answers_of,
    answers_only_epochs,
    default_name,
    given_methods,
    has_default,
    own_method,
)
from ignite_hooks.plan.points import EPOCH_POINTS, ITERATION_POINTS
from ignite_hooks.plan.priority import Priorities
from ignite_hooks.plan.schedule import SCHEDULE_WORDS, When
from ignite_hooks.system.python import signature_of
from ignite_hooks.text import did_you_mean

_GIVEN = "_given_words"


@dataclass(frozen=True)
class HookSettings:
    """What the plan and the engine need to know of a hook; later changes of its attributes change nothing."""

    when: When
    priorities: Priorities
    on_error: str
    """What a failure does: raise, warn or disable."""


def read_settings(hook: object) -> HookSettings:
    """Read the settings of a hook.

    Example:
        >>> class Snapshot:
        ...     interval = 100
        ...
        ...     def __init__(self):
        ...         self.start = 1700000000.5  # a time, and no setting
        ...
        ...     def after_train_iter(self, runner): ...
        >>> str(read_settings(Snapshot()).when)
        'every 100 iters'
    """
    return HookSettings(when_of(hook), Priorities.of(hook), str(getattr(hook, "on_error", None) or "raise"))


def when_of(hook: object) -> When:
    """Return the schedule of a hook: its own ``when``, or the one made from interval, by_epoch, start and every."""
    when = None if has_default(type(hook), "when") else getattr(hook, "when", None)
    return when if isinstance(when, When) else schedule_of(hook)


def schedule_of(hook: object, *, by_epoch: bool | None = None) -> When:
    """Return the schedule that the settings of a hook spell; ``by_epoch`` is for one that gives the word a meaning."""
    words = words_of(hook)
    return schedule_given(
        interval=words.get("frequency", words.get("interval")),
        by_epoch=words.get("by_epoch") if by_epoch is None else by_epoch,
        start=words.get("start", words.get("begin")),
        every=words.get("every"),
        epochs_by_default=answers_only_epochs(answers_of(hook)),
        engine=lambda: getattr(getattr(hook, "runner", None), "trainer", None),
    )


def give(hook: Any, word: str, value: object) -> None:
    """Set a setting of a hook that its constructor does not take."""
    try:
        setattr(hook, word, value)
        setattr(hook, _GIVEN, {*getattr(hook, _GIVEN, ()), word})
    except (AttributeError, TypeError) as error:
        # A frozen dataclass with slots raises TypeError.
        message = f"{type(hook).__name__} is frozen or has slots: make {word!r} a parameter of its constructor"
        raise SettingError(word, message) from error


def refuse_unread(cls: type, given: Iterable[str], known: Collection[str]) -> None:
    """Raise a `SettingError` for a keyword that a hook was given and that no code of its class can read.

    Args:
        cls: The class of the hook.
        given: The keywords that have reached `BaseHook`.
        known: The settings that every hook has.
    """
    unknown = [word for word in given if word not in known]
    if not unknown:
        return
    own = [base for base in cls.__mro__ if base is not object and not base.__module__.startswith("ignite_hooks.")]
    read = words_in(own)
    parameters = signature_of(cls).parameters.values()
    names = [*known, *(one.name for one in parameters if one.kind is not one.VAR_KEYWORD)]
    # A hook may look up any word in its own `config`, or keep its keywords.
    is_open = "config" in attributes_read_in(own) or keeps_keywords(own)
    for word in unknown:
        hint = did_you_mean(word, [name for name in names if name != "config"])
        if word not in read and (hint or not is_open):
            hint = hint or f": nothing in the class reads it; make it a parameter of {cls.__name__}.__init__()"
            raise SettingError(word, f"not a setting of {cls.__name__}{hint}")


def words_of(hook: object) -> dict[str, Any]:
    """Return the settings of a hook that are words of the schedule; its other attributes of these names are its own.

    A setting was given by a configuration or assigned by a script, is a parameter of the constructor, or is an
    attribute of the class.
    """
    cls = type(hook)
    known = _declared(cls) | set(getattr(hook, _GIVEN, ()))
    others = {word for word in SCHEDULE_WORDS if word in getattr(hook, "__dict__", ()) and word not in known}
    if others:
        # Assigned from outside, where no method of the class does it.
        known |= others - attributes_assigned_in(_own_classes(cls))
    found = {word: getattr(hook, word, None) for word in SCHEDULE_WORDS if word in known}
    return {word: value for word, value in found.items() if value is not None}


def without_effect(hook: object, when: When) -> list[tuple[str, str]]:
    """Return the words of the schedule that have no effect, as (word, message).

    Args:
        hook: The hook; one that reads its schedule itself knows what to do with it.
        when: The schedule that its settings spell.
    """
    cls = type(hook)
    decides = own_method(cls, "should_trigger") is not None or "should_trigger" in (given_methods(hook) or ())
    if decides or getattr(cls, "reads_schedule", False) or (not has_default(cls, "when") and hasattr(cls, "when")):
        return []
    words, declared = words_of(hook), _declared(cls)
    used = ("every",) if "every" in words else ("frequency", "interval", "by_epoch")
    blamed = [word for word in (*used, "start", "begin") if word in words and word not in declared]
    # What says the unit is wrong before what says the number.
    blamed.sort(key=lambda word: word not in ("by_epoch", "every"))
    if not blamed or (when.always and blamed[0] not in ("by_epoch", "every")) or governs(answers_of(hook), when):
        return []
    read = attributes_read_in(_own_classes(cls))
    blamed = [] if "when" in read else [word for word in blamed if word not in read]
    if not blamed:
        return []
    answered = ", ".join(dict.fromkeys(answer.method for answer in answers_of(hook))) or "no point"
    unit = {"iter": "iterations", "epoch": "epochs", "second": "iterations or epochs"}[when.unit]
    points = {answer.point.name for answer in answers_of(hook)}
    remedies = ["count epochs" if when.unit == "iter" else "count iterations"]
    remedies = remedies if when.unit != "second" and points & (ITERATION_POINTS | EPOCH_POINTS) else []
    remedies += ["leave it out"] if given_methods(hook) else ["mark the method that is meant with @scheduled"]
    message = (
        f"{str(when)!r} has no effect: {default_name(hook)} answers {answered}, and nothing that counts {unit}; "
        + ", or ".join(remedies)
    )
    return [(blamed[0], message)]


def governed_points(answers: tuple[Any, ...], when: When) -> frozenset[str]:
    """Return the points a schedule governs in a hook that marks none of its methods."""
    if when.unit == "epoch" or (when.unit == "second" and answers_only_epochs(answers)):
        return EPOCH_POINTS
    return ITERATION_POINTS


def is_left_out(point: str, when: When, marked: frozenset[str]) -> bool:
    """Return whether a ``@scheduled`` method gets no slot: its schedule counts epochs and its point iterations, or
    the reverse.
    """
    if point in ITERATION_POINTS:
        return when.unit == "epoch"
    if point in EPOCH_POINTS:
        return when.unit == "iter" or (when.unit == "second" and bool(marked & ITERATION_POINTS))
    return False


def governs(answers: tuple[Any, ...], when: When) -> bool:
    """Return whether any of these answers obeys the schedule."""
    marked = frozenset(answer.point.name for answer in answers if answer.scheduled)
    if marked:
        return any(not is_left_out(point, when, marked) for point in marked)
    return any(answer.point.name in governed_points(answers, when) for answer in answers)


_DECLARED: weakref.WeakKeyDictionary[type, frozenset[str]] = weakref.WeakKeyDictionary()


def _declared(cls: type) -> frozenset[str]:
    """Return the words that are attributes of a class, or that its constructor takes or picks from a mapping."""
    if cls not in _DECLARED:
        own = _own_classes(cls)
        attributes = {word: value for base in reversed(own) for word, value in vars(base).items()}
        found = {word for word in SCHEDULE_WORDS if word in attributes and not _is_method(attributes[word])}
        for init in (method for method in methods_in(own) if method.__name__ == "__init__"):
            found |= {*signature_of(init).parameters, *map(str, init.__code__.co_consts)}
        _DECLARED[cls] = frozenset(found & {*SCHEDULE_WORDS})
    return _DECLARED[cls]


def _own_classes(cls: type) -> list[type]:
    """Return a class and its parents, but not the base class of all hooks."""
    return [base for base in cls.__mro__ if not has_default(base, "when") or "when" not in vars(base)]


def _is_method(value: object) -> bool:
    return callable(value) or isinstance(value, (types.MemberDescriptorType, classmethod, staticmethod))
