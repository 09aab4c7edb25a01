"""Describe a class: its settings with types, defaults and help, and what its docstring says of it."""

from __future__ import annotations

import dataclasses
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

from ignite_hooks.hooks.base_hook import SPELLINGS, BaseHook
from ignite_hooks.plan.layout import NOTES
from ignite_hooks.plan.methods import class_answers, has_default
from ignite_hooks.plan.points import EPOCH_POINTS, ITERATION_POINTS
from ignite_hooks.plan.priority import Priority
from ignite_hooks.plan.schedule import SCHEDULE_WORDS
from ignite_hooks.plan.settings_digest import HIDDEN_FIELDS, fields_of
from ignite_hooks.system.python import annotations_of, is_known, signature_of
from ignite_hooks.text import labelled

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
    "every": "how often it fires, as '50 iter', '2 epoch', '10 min', or EPOCH_COMPLETED(every=2) as in Ignite",
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
    """What is known of a class from its constructor and its docstring."""

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
    """Return a setting that every hook has; another spelling of a hook's own setting has the type of that one."""
    for own in settings:
        if own.name == SPELLINGS.get(word):
            return Setting(word, own.annotation, own.default, COMMON_HELP[word])
    defaults = {"priority": Priority.NORMAL, "on_error": "raise"}
    default = getattr(cls, word, defaults.get(word)) if word in defaults else None
    return Setting(word, COMMON_TYPES[word], default, COMMON_HELP[word])


def _takes(cls: Any, word: str, own: set[str]) -> bool:
    """Return whether a hook of typed fields understands a word of the schedule that is not one of its fields."""
    if word in SPELLINGS and SPELLINGS[word] in own:
        return True
    answers = class_answers(cls)
    marked = any(answer.scheduled for answer in answers)
    paced = marked or bool({answer.point.name for answer in answers} & (ITERATION_POINTS | EPOCH_POINTS))
    own_meaning = hasattr(cls, "when") and not has_default(cls, "when")
    return word in getattr(cls, "also_paced_by", ()) if own_meaning else paced


def _own_settings(cls: Any, helps: Mapping[str, str]) -> tuple[Style, bool, tuple[Setting, ...]]:
    constructor: Any = getattr(cls, "__init__", cls) if isinstance(cls, type) else cls
    if isinstance(cls, type) and fields_of(cls) is not None and _made_by_dataclass(cls):
        # `@settings` takes the settings of every hook too; a plain dataclass only its own fields.
        style: Style = "settings" if hasattr(constructor, "__wrapped__") else "keywords"
        return style, True, tuple(_from_fields(cls, helps))
    if constructor in (BaseHook.__init__, object.__init__):
        return "keywords", constructor is object.__init__ and not issubclass(cls, BaseHook), ()
    try:
        parameters = list(signature_of(constructor).parameters.values())
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
    """Return whether the constructor takes the fields, and is not one that a subclass wrote."""
    owner = next(base for base in cls.__mro__ if "__init__" in vars(base))
    return "__dataclass_fields__" in vars(owner) or HIDDEN_FIELDS in vars(owner)


def _from_fields(cls: Any, helps: Mapping[str, str]) -> typing.Iterator[Setting]:
    hints: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        hints |= _hints(base)
    for field in fields_of(cls) or ():
        if not field.init:
            continue
        default: Any = REQUIRED
        if field.default is not dataclasses.MISSING:
            default = field.default
        elif field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        yield Setting(field.name, hints.get(field.name, Any), default, helps.get(field.name, ""))


def _hints(thing: Any) -> dict[str, Any]:
    """Return annotations as objects; one that names a package that is not loaded is Any."""
    module = sys.modules.get(getattr(thing, "__module__", ""), None)
    found = {}
    for name, annotation in annotations_of(thing).items():
        if isinstance(annotation, str):
            try:
                annotation = eval(annotation, vars(module) if module else {})  # the class's own source
            except (NameError, AttributeError, TypeError, SyntaxError):
                annotation = Any
        found[name] = annotation if is_known(annotation) else Any
    return found


def _purpose(cls: Any) -> str:
    doc = inspect.getdoc(cls) or ""
    return " ".join(doc.split("\n\n")[0].split())


def _argument_help(cls: Any) -> dict[str, str]:
    """Return the ``Args:`` of a docstring by name."""
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


_WORDS = {
    int: "a whole number",
    float: "a number",
    str: "a string",
    bool: "true or false",
    type(None): "null",
    dict: "a mapping",
    list: "a list",
    Path: "a path",
    Callable: "a function",
    Any: "anything",
}


def type_in_words(annotation: Any) -> str:
    """Return a type as a person would say it.

    Example:
        >>> type_in_words(int | None), type_in_words(Literal["min", "max"]), type_in_words(list[str])
        ('a whole number or null', "'min' or 'max'", 'a list of strings')
        >>> type_in_words(list[str | list[int]]), type_in_words(list[Annotated[float, Ge(0)]])
        ('a list of strings or lists of whole numbers', 'a list of numbers of at least 0')
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation in _WORDS or origin is Callable:
        return _WORDS[Callable if origin is Callable else annotation]
    if origin is Annotated:
        bounds = " and ".join(_bound(note) for note in arguments[1:] if _bound(note))
        return f"{type_in_words(arguments[0])} {bounds}".replace(" and of ", " and ").rstrip()
    if origin is Literal:
        return _or([repr(argument) for argument in arguments])
    if origin in (Union, types.UnionType):
        return _or([type_in_words(argument) for argument in arguments])
    if origin in (list, Sequence) or (origin is tuple and len(arguments) == 2 and arguments[1] is ...):
        return f"a list of {_several(type_in_words(arguments[0]))}"
    if origin is tuple:
        return f"a list of {len(arguments)} ({', '.join(type_in_words(argument) for argument in arguments)})"
    if origin in (dict, Mapping) or typing.is_typeddict(annotation):
        if typing.is_typeddict(annotation) and (keys := annotations_of(annotation)):
            return f"a mapping of {', '.join(keys)}"
        values = type_in_words(arguments[1]) if len(arguments) == 2 else "anything"
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
