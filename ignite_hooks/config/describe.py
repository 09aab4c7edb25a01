"""Hook class -> its settings: names, types, defaults, help; and whether given values fit."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import sys
import types
import typing
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge

from ignite_hooks.errors import Problem
from ignite_hooks.hooks.base_hook import SPELLINGS, BaseHook, PriorityLike
from ignite_hooks.plan.methods import class_answers, own_method
from ignite_hooks.plan.plan import NOTES
from ignite_hooks.plan.points import EPOCH_POINTS, ITERATION_POINTS, misspelt_points
from ignite_hooks.plan.priority import Priority
from ignite_hooks.plan.schedule import SCHEDULE_WORDS, parse_every
from ignite_hooks.text import below, did_you_mean, labelled, nearest, shown

REQUIRED = inspect.Parameter.empty
Style = Literal["settings", "keywords", "config"]

COMMON_TYPES: dict[str, Any] = {
    "name": str | None,
    "priority": int | str | Mapping[str, int | str],
    "on_error": Literal["raise", "warn", "disable"],
    "interval": Annotated[int, Ge(1)],
    "frequency": Annotated[int, Ge(1)],
    "by_epoch": bool,
    "start": Annotated[int, Ge(0)],
    "begin": Annotated[int, Ge(0)],
    "every": str,
}
COMMON_HELP = {
    "name": "the name of this hook, where there are several of a class",
    "priority": "a name such as HIGH, a number from 0 to 100, or a mapping of points to these",
    "on_error": "what a failure does: raise, warn, or disable the hook",
    "interval": "how often it fires",
    "frequency": "another word for interval",
    "by_epoch": "whether the interval counts epochs",
    "start": "the first iteration or epoch at which it fires",
    "begin": "another word for start",
    "every": "how often it fires, as '50 iter', '2 epoch' or '10 min'",
}


@dataclasses.dataclass(frozen=True)
class Setting:
    """One setting of a class."""

    name: str
    annotation: Any
    default: Any = REQUIRED
    help: str = ""

    @property
    def required(self) -> bool:
        """Whether it has to be given."""
        return self.default is REQUIRED


@dataclasses.dataclass(frozen=True)
class Description:
    """What a class says of itself."""

    name: str
    purpose: str
    settings: tuple[Setting, ...]
    common: tuple[Setting, ...]
    style: Style
    closed: bool
    """Whether anything but these settings is a mistake."""
    reads: str = ""
    writes: str = ""
    saves: str = ""
    points: tuple[str, ...] = ()


_DESCRIBED: weakref.WeakKeyDictionary[Any, Description] = weakref.WeakKeyDictionary()


def describe(cls: Any) -> Description:
    """Read the settings of a class from its fields or its constructor, and the rest from its docstring."""
    if cls not in _DESCRIBED:
        _DESCRIBED[cls] = _describe(cls)
    return _DESCRIBED[cls]


def _describe(cls: Any) -> Description:
    helps = _argument_help(cls)
    style, closed, settings = _own_settings(cls, helps)
    own = {setting.name for setting in settings}
    common = ["name", "priority", "on_error"]
    common += [word for word in SCHEDULE_WORDS if style != "settings" or _takes(cls, word, own)]
    notes = notes_of(cls)
    answers = class_answers(cls) if isinstance(cls, type) else ()
    return Description(
        getattr(cls, "__name__", str(cls)),
        _purpose(cls),
        settings,
        tuple(_common(cls, word, settings) for word in common if word not in own),
        style,
        closed,
        notes["reads"],
        notes["writes"],
        notes["saves"],
        tuple(dict.fromkeys(answer.point.name for answer in answers)),
    )


def notes_of(cls: Any) -> dict[str, str]:
    """Return what the docstring of a hook says that it reads, writes and saves."""
    return labelled(cls.__doc__ or "", NOTES)


def _common(cls: Any, word: str, settings: Sequence[Setting]) -> Setting:
    """A setting that every hook has; the other spelling of a hook's own setting has its type."""
    for own in settings:
        if own.name == SPELLINGS.get(word):
            return Setting(word, own.annotation, own.default, COMMON_HELP[word])
    defaults = {"priority": Priority.NORMAL, "on_error": "raise"}
    default = getattr(cls, word, defaults.get(word)) if word in defaults else None
    return Setting(word, COMMON_TYPES[word], default, COMMON_HELP[word])


def _takes(cls: Any, word: str, own: set[str]) -> bool:
    """Whether a hook of typed fields understands a word of the schedule that is not one of its fields."""
    if word in SPELLINGS and SPELLINGS[word] in own:
        return True
    answers = class_answers(cls)
    marked = any(answer.scheduled for answer in answers)
    paced = marked or bool({answer.point.name for answer in answers} & (ITERATION_POINTS | EPOCH_POINTS))
    own_meaning = own_method(cls, "when") is not None or "when" in vars(cls)
    return paced and not own_meaning


def _own_settings(cls: Any, helps: Mapping[str, str]) -> tuple[Style, bool, tuple[Setting, ...]]:
    constructor: Any = getattr(cls, "__init__", cls) if isinstance(cls, type) else cls
    if dataclasses.is_dataclass(cls) and _made_by_dataclass(cls):
        # `@settings` takes the settings of every hook too; a plain dataclass only its own fields.
        style: Style = "settings" if hasattr(constructor, "__wrapped__") else "keywords"
        return style, True, tuple(_from_fields(cls, helps))
    if constructor in (BaseHook.__init__, object.__init__):
        return "keywords", constructor is object.__init__ and not issubclass(cls, BaseHook), ()
    try:
        parameters = list(inspect.signature(constructor).parameters.values())
    except (ValueError, TypeError):  # written in C, without a signature
        return "keywords", False, ()
    parameters = parameters[1:] if isinstance(cls, type) else parameters
    by_name = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    if len(by_name) == 1 and by_name[0].name in ("config", "cfg"):
        return "config", False, ()
    hints = _hints(constructor)
    settings = [Setting(p.name, hints.get(p.name, Any), p.default, helps.get(p.name, "")) for p in by_name]
    closed = not any(p.kind is p.VAR_KEYWORD for p in parameters)
    return "keywords", closed, tuple(settings)


def _made_by_dataclass(cls: Any) -> bool:
    """Whether the constructor takes the fields, and is not one that a subclass has written itself."""
    owner = next(base for base in cls.__mro__ if "__init__" in vars(base))
    return "__dataclass_fields__" in vars(owner)


def _from_fields(cls: Any, helps: Mapping[str, str]) -> typing.Iterator[Setting]:
    hints: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        hints |= _hints(base)
    for field in dataclasses.fields(cls):
        if not field.init:
            continue
        default: Any = REQUIRED
        if field.default is not dataclasses.MISSING:
            default = field.default
        elif field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        yield Setting(field.name, hints.get(field.name, Any), default, helps.get(field.name, ""))


def _hints(thing: Any) -> dict[str, Any]:
    """Annotations as objects; what names a package that is not loaded here is Any."""
    module = sys.modules.get(getattr(thing, "__module__", ""), None)
    found = {}
    for name, annotation in getattr(thing, "__annotations__", {}).items():
        if isinstance(annotation, str):
            try:
                annotation = eval(annotation, vars(module) if module else {})  # the class's own source
            except (NameError, AttributeError, TypeError, SyntaxError):
                annotation = Any
        found[name] = annotation
    return found


def _purpose(cls: Any) -> str:
    doc = inspect.getdoc(cls) or ""
    return " ".join(doc.split("\n\n")[0].split())


def _argument_help(cls: Any) -> dict[str, str]:
    """The ``Args:`` of a docstring by name."""
    doc = inspect.getdoc(cls) or ""
    _, found, rest = doc.partition("Args:\n")
    helps: dict[str, str] = {}
    name = ""
    for line in rest.splitlines() if found else ():
        if line and not line.startswith(" "):
            break
        match = re.match(r"    (\w+)(?: \(.*?\))?: (.*)", line)
        if match:
            name = match[1]
            helps[name] = match[2].strip()
        elif name and line.strip():
            helps[name] += " " + line.strip()
    return helps


def check_settings(cls: Any, given: Mapping[Any, Any], place: str, *, hook: bool = True) -> list[Problem]:
    """Everything that is wrong with the settings given to a class, each with its place.

    Args:
        cls: The class, which is read with ``describe``.
        given: The settings.
        place: Where they stand.
        hook: Whether the settings that every hook has are understood too.
    """
    known = describe(cls)
    own = {setting.name: setting for setting in known.settings}
    types_ = {setting.name: setting for setting in known.common if hook} | own
    problems = []
    for name, value in given.items():
        if name in types_:
            if message := misfit(value, types_[name]):
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
    """The setting that is meant by a name that a class which takes any name would take; a plural is not a slip."""
    near = nearest(name, known, cutoff=0.85)
    return None if near is None or name == f"{near}s" else near


def _about(setting: Setting) -> str:
    return f" ({setting.help.rstrip('.')})" if setting.help else ""


def is_reference(value: Any) -> bool:
    """Whether a value is the name of a service, as in ``"@model"``."""
    return isinstance(value, str) and value.startswith("@") and value[1:].isidentifier()


def misfit(value: Any, setting: Setting) -> str:
    """Why a value does not fit a setting, or nothing."""
    if is_reference(value) or (value is None and setting.default is None):
        return ""
    if isinstance(value, int) and abs(value) > LARGEST:
        return TOO_LARGE
    if setting.name == "priority" and setting.annotation in _PRIORITIES:
        return _wrong_priority(value)
    adapter = type_adapter(setting.annotation)
    if adapter is None:
        return ""
    from pydantic import ValidationError

    try:
        adapter.validate_python(value)
    except ValidationError:
        return f"{in_words(setting.annotation)} is needed, not {shown(value)}"
    except ValueError:
        # One within a list or mapping, which even a message cannot hold.
        return TOO_LARGE
    return _wrong_common(value, setting)


LARGEST = 10**100
"""Numbers beyond it are slips, and cannot be printed either."""
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


def _wrong_common(value: Any, setting: Setting) -> str:
    """What the type of a setting that every hook has does not say."""
    if setting.annotation is COMMON_TYPES["every"] and setting.name == "every":
        try:
            parse_every(value)
        except ValueError as error:
            return str(error)
    if setting.annotation is COMMON_TYPES["name"] and setting.name == "name" and value == "":
        return "a name of at least one letter is needed, not ''"
    return ""


def fitted(value: Any, setting: Setting) -> Any:
    """The value as the type of its setting: a list from a file where a tuple is wanted."""
    adapter = None if is_reference(value) or value is None else type_adapter(setting.annotation)
    return value if adapter is None else adapter.validate_python(value)


@functools.cache
def _adapter_cached(annotation: Any) -> Any:
    from pydantic import ConfigDict, TypeAdapter

    return TypeAdapter(annotation, config=ConfigDict(strict=True, allow_inf_nan=False, arbitrary_types_allowed=True))


def type_adapter(annotation: Any) -> Any:
    """What holds plain data against an annotation; None where anything fits."""
    annotation = _checkable(annotation)
    if annotation is Any:
        return None
    try:
        return _adapter_cached(annotation)
    except TypeError:  # an annotation that cannot be hashed
        return _adapter_cached.__wrapped__(annotation)


_PLAIN = (int, float, str, bool, type(None), dict, list, Mapping, Sequence)
_CONTAINERS = (list, dict, Mapping, Sequence)


def _checkable(annotation: Any) -> Any:
    """The part of an annotation that plain data can be held against; the rest is Any."""
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
    # Without regard to the type, True is 1.
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        raise ValueError(value)
    return value


def _checkable_typed_dict(annotation: Any) -> Any:
    """A TypedDict by hand: pydantic takes neither our strictness nor, before Python 3.12, the one of ``typing``."""
    from pydantic import AfterValidator, WithJsonSchema

    hints = typing.get_type_hints(annotation, include_extras=True)
    # Not `__required_keys__`, which annotations that are still text have misled.
    exception = typing.NotRequired if annotation.__total__ else typing.Required
    marked = {key for key, hint in hints.items() if get_origin(hint) is exception}
    required = hints.keys() - marked if annotation.__total__ else marked
    marks = (typing.Required, typing.NotRequired)
    hints = {key: get_args(hint)[0] if get_origin(hint) in marks else hint for key, hint in hints.items()}

    def check(value: dict[str, Any]) -> dict[str, Any]:
        wrong = [key for key, item in value.items() if key not in hints or misfit(item, Setting(key, hints[key]))]
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


_WORDS = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "true or false",
    type(None): "null",
    dict: "a mapping",
    list: "a list",
    Path: "a path",
    Callable: "a function",
    Any: "anything",
}


def in_words(annotation: Any) -> str:
    """A type as a person would say it.

    Example:
        >>> in_words(int | None), in_words(Literal["min", "max"]), in_words(list[str])
        ('a whole number or null', "'min' or 'max'", 'a list of texts')
        >>> in_words(list[str | list[int]]), in_words(list[Annotated[float, Ge(0)]])
        ('a list of texts or lists of whole numbers', 'a list of numbers of at least 0')
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation in _WORDS or origin is Callable:
        return _WORDS[Callable if origin is Callable else annotation]
    if origin is Annotated:
        return " ".join([in_words(arguments[0]), *(_bound(note) for note in arguments[1:] if _bound(note))])
    if origin is Literal:
        return _or([repr(argument) for argument in arguments])
    if origin in (Union, types.UnionType):
        return _or([in_words(argument) for argument in arguments])
    if origin in (list, Sequence) or (origin is tuple and len(arguments) == 2 and arguments[1] is ...):
        return f"a list of {_several(in_words(arguments[0]))}"
    if origin is tuple:
        return f"a list of {len(arguments)} ({', '.join(in_words(argument) for argument in arguments)})"
    if origin in (dict, Mapping) or typing.is_typeddict(annotation):
        if keys := getattr(annotation, "__annotations__", None):
            return f"a mapping of {', '.join(keys)}"
        values = in_words(arguments[1]) if len(arguments) == 2 else "anything"
        return "a mapping" if values == "anything" else f"a mapping of names to {_several(values)}"
    return getattr(annotation, "__name__", str(annotation))


def _bound(note: Any) -> str:
    for attribute, words in (("ge", "of at least"), ("gt", "above"), ("le", "of at most"), ("lt", "below")):
        limit = getattr(note, attribute, None)
        if limit is not None:
            return f"{words} {limit:g}"
    return ""


def _or(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _several(words: str) -> str:
    return re.sub(rf"\b(?:{'|'.join(word for word in _WORDS.values() if word.startswith('a '))})\b", _plural, words)


def _plural(found: re.Match[str]) -> str:
    return f"{found[0].removeprefix('a ')}s"
