"""Check values against the settings of a class, and convert them to the types of these settings."""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from ignite_hooks.config.describe import COMMON_TYPES, Setting, describe, type_in_words
from ignite_hooks.errors import Problem, SettingError
from ignite_hooks.hooks.base_hook import SPELLINGS, PriorityLike
from ignite_hooks.plan.event_schedule import is_event, when_of_event
from ignite_hooks.plan.points import misspelt_points
from ignite_hooks.plan.priority import Priority
from ignite_hooks.plan.schedule import parse_every
from ignite_hooks.text import below, did_you_mean, nearest, plain_number, shown


def validate_settings(cls: Any, given: Mapping[Any, Any], place: str, *, hook: bool = True) -> list[Problem]:
    """Return everything that is wrong with the settings given to a class, each with its place.

    Args:
        cls: The class, which is read with ``describe``.
        given: The settings.
        place: Their place in the configuration.
        hook: Whether the settings that every hook has are allowed too.
    """
    known = describe(cls)
    own = {setting.name: setting for setting in known.settings}
    types_ = {setting.name: setting for setting in known.common if hook} | own
    problems = []
    for name, value in given.items():
        if name in types_:
            if message := validate_value(value, types_[name]):
                problems.append(Problem(below(place, name), message))
        elif not isinstance(name, str):
            problems.append(Problem(below(place, name), "the name of a setting is text"))
        elif known.closed:
            hint = did_you_mean(name, types_) or f"; it has {', '.join(own) or 'none'}"
            problems.append(Problem(below(place, name), f"not a setting of {known.name}{hint}"))
        elif slip := _slip(name, types_):
            problems.append(Problem(below(place, name), f"not a setting of {known.name}, did you mean {slip!r}?"))
    for setting in known.settings:
        if setting.required and setting.name not in given and SPELLINGS.get(setting.name) not in given:
            problems.append(Problem(f"{place}.{setting.name}", f"missing: {known.name} needs it{_about(setting)}"))
    for word, other in (("frequency", "interval"), ("begin", "start"), ("every", "interval"), ("every", "frequency")):
        both = given.get(word) is not None and given.get(other) is not None
        if both and not {word, other} <= own.keys():
            problems.append(Problem(f"{place}.{word}", f"says the same as {other!r}: give one of them"))
    return problems


def _slip(name: str, known: Mapping[str, Setting]) -> str | None:
    """Return the setting that a name misspells, for a class that takes any name; a plural is no misspelling."""
    near = nearest(name, known, cutoff=0.85)
    return None if near is None or name == f"{near}s" else near


def _about(setting: Setting) -> str:
    return f" ({setting.help.rstrip('.')})" if setting.help else ""


def is_reference(value: Any) -> bool:
    """Return whether a value names a service, as in ``"@model"``."""
    return isinstance(value, str) and value.startswith("@") and value[1:].isidentifier()


def has_reference(value: Any) -> bool:
    """Return whether a value names a service, or contains such a name."""
    if isinstance(value, Mapping):
        return any(map(has_reference, value.values()))
    return any(map(has_reference, value)) if isinstance(value, (list, tuple)) else is_reference(value)


def validate_value(value: Any, setting: Setting) -> str:
    """Return why a value does not fit a setting, or an empty text."""
    value = plain_number(value)
    if is_reference(value) or (value is None and setting.default is None):
        return ""
    if isinstance(value, int) and abs(value) > LARGEST:
        return TOO_LARGE
    if setting.name == "priority" and setting.annotation in _PRIORITIES:
        return _wrong_priority(value)
    if setting.name == "every" and setting.annotation is COMMON_TYPES["every"] and is_event(value):
        return _wrong_event(value)
    adapter = type_adapter(setting.annotation)
    if adapter is None:
        return ""
    from pydantic import ValidationError

    try:
        adapter.validate_python(value)
    except ValidationError:
        return f"{type_in_words(setting.annotation)} is needed, not {shown(value)}"
    except ValueError:
        # A huge number within a list or mapping, which even a message cannot hold.
        return TOO_LARGE
    return _wrong_common(value, setting)


LARGEST = 10**100
"""Larger numbers are mistakes, and cannot be printed either."""
TOO_LARGE = f"a smaller number is needed, not one of more than {len(str(LARGEST)) - 1} digits"

_PRIORITIES = (PriorityLike, COMMON_TYPES["priority"])


def _wrong_priority(value: Any) -> str:
    values = value if isinstance(value, Mapping) else {"": value}
    slips = misspelt_points(point for point in values if isinstance(point, str))
    for point, priority in values.items():
        if not isinstance(point, str) or point in slips:
            meant = f", did you mean {slips[point]!r}?" if point in slips else ""
            return f"{shown(point)} is not a point{meant}"
        try:
            Priority.value_of(priority)
        except ValueError as error:
            return f"{point}: {error}" if point else str(error)
    return ""


def _wrong_event(value: Any) -> str:
    try:
        when_of_event(value, None, lambda: None)
    except SettingError as error:
        return error.message
    return ""


def _wrong_common(value: Any, setting: Setting) -> str:
    """Check what the type of a setting that every hook has cannot say."""
    if setting.annotation is COMMON_TYPES["every"] and setting.name == "every":
        try:
            parse_every(value)
        except ValueError as error:
            return str(error)
    if setting.annotation is COMMON_TYPES["name"] and setting.name == "name" and value == "":
        return "a name of at least one letter is needed, not ''"
    return ""


def convert_value(value: Any, setting: Setting) -> Any:
    """Convert a value to the type of its setting: a list from a file to a tuple, a text to a path."""
    adapter = None if is_reference(value) or value is None else type_adapter(setting.annotation)
    return value if adapter is None else adapter.validate_python(value)


def type_adapter(annotation: Any) -> Any:
    """Return the pydantic adapter that checks plain data against an annotation, or None if anything fits."""
    try:
        return _adapter_cached(annotation, get_args(annotation))
    except TypeError:  # an annotation that cannot be hashed
        return _adapter_cached.__wrapped__(annotation, ())


# By the annotation of the setting: what is made of it to be checked is another object each time. And by its parts:
# unions in another order are equal, and their schemas are not.
@functools.cache
def _adapter_cached(annotation: Any, parts: tuple[Any, ...]) -> Any:  # noqa: ARG001
    from pydantic import ConfigDict, TypeAdapter

    checked = _checkable(annotation)
    config = ConfigDict(strict=True, allow_inf_nan=False, arbitrary_types_allowed=True)
    return None if checked is Any else TypeAdapter(checked, config=config)


_PLAIN = (int, float, str, bool, type(None), dict, list, Mapping, Sequence)
_CONTAINERS = (list, dict, Mapping, Sequence)


def _checkable(annotation: Any) -> Any:
    """Return the part of an annotation that plain data can be checked against; the rest is Any."""
    from pydantic import AfterValidator, BeforeValidator

    if annotation in _PLAIN:
        return annotation
    if annotation is Path:
        return Annotated[str, BeforeValidator(_as_text), AfterValidator(_as_path)]
    if typing.is_typeddict(annotation):
        return _checkable_typed_dict(annotation)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        inner = _checkable(arguments[0])
        return Any if inner is Any else Annotated[inner, *arguments[1:]]
    if origin is Literal:
        return Annotated[annotation, BeforeValidator(functools.partial(_as_one_of, arguments))]
    if annotation is Callable or origin is Callable:
        return Annotated[Any, AfterValidator(_as_callable)]
    if origin in (Union, types.UnionType):
        parts = [_checkable(argument) for argument in arguments]
        return Any if Any in parts else Union[tuple(parts)]  # noqa: UP007 - built at run time
    if origin in (list, tuple, dict, *_CONTAINERS):
        parts = [argument if argument is ... else _checkable(argument) for argument in arguments]
        made = origin[tuple(parts)] if origin is not Sequence else list[parts[0]]  # type: ignore[valid-type]
        if origin in (tuple, Sequence):
            to: Callable[[Any], Any] = tuple if origin is tuple else list
            return Annotated[made, BeforeValidator(lambda v: to(v) if isinstance(v, (list, tuple)) else v)]
        return made
    return Any


def _as_text(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


def _as_path(value: str) -> Path:
    if not value.strip() or "\0" in value:
        raise ValueError(value)
    return Path(value)


def _as_callable(value: Any) -> Any:
    if not callable(value):
        raise ValueError(value)
    return value


def _as_one_of(choices: Sequence[Any], value: Any) -> Any:
    # Compare types as well: True equals 1.
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        raise ValueError(value)
    return value


def _checkable_typed_dict(annotation: Any) -> Any:
    """Check a TypedDict by hand: pydantic takes neither our strictness nor, before Python 3.12, that of ``typing``."""
    from pydantic import AfterValidator, WithJsonSchema

    hints = typing.get_type_hints(annotation, include_extras=True)
    # Not `__required_keys__`, which is wrong for annotations that are still text.
    exception = typing.NotRequired if annotation.__total__ else typing.Required
    marked = {key for key, hint in hints.items() if get_origin(hint) is exception}
    required = hints.keys() - marked if annotation.__total__ else marked
    marks = (typing.Required, typing.NotRequired)
    hints = {key: get_args(hint)[0] if get_origin(hint) in marks else hint for key, hint in hints.items()}

    def check(value: dict[str, Any]) -> dict[str, Any]:
        wrong = [
            key for key, item in value.items() if key not in hints or validate_value(item, Setting(key, hints[key]))
        ]
        if wrong or not required <= value.keys():
            raise ValueError(value)
        return value

    adapters = {key: type_adapter(hint) for key, hint in hints.items()}
    schema = {
        "type": "object",
        "properties": {key: adapter.json_schema() if adapter else {} for key, adapter in adapters.items()},
        "required": sorted(required),
        "additionalProperties": False,
    }
    return Annotated[dict[str, Any], AfterValidator(check), WithJsonSchema(schema)]
