"""Hook class -> its settings: names, types, defaults, help; and whether given values fit."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from ignite_hooks.errors import Problem, did_you_mean
from ignite_hooks.hooks.base_hook import COMMON_SETTINGS, SPELLINGS, BaseHook, answered_methods, own_method
from ignite_hooks.plan import notes_of
from ignite_hooks.points import EPOCH_POINTS, ITERATION_POINTS, point_named
from ignite_hooks.schedule import SCHEDULE_WORDS, is_scheduled

REQUIRED = inspect.Parameter.empty
Style = Literal["settings", "keywords", "config"]

COMMON_TYPES: dict[str, Any] = {
    "name": str | None,
    "priority": int | str | Mapping[str, int | str],
    "on_error": Literal["raise", "warn", "disable"],
    "interval": int,
    "frequency": int,
    "by_epoch": bool,
    "start": int,
    "begin": int,
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


@functools.cache
def describe(cls: Any) -> Description:
    """Read the settings of a class from its fields or its constructor, and the rest from its docstring."""
    helps = _argument_help(cls)
    style, closed, settings = _own_settings(cls, helps)
    own = {setting.name for setting in settings}
    common = ["name", "priority", "on_error"]
    common += [word for word in SCHEDULE_WORDS if style != "settings" or _takes(cls, word, own)]
    notes = notes_of(cls)
    methods = answered_methods(cls) if isinstance(cls, type) else ()
    return Description(
        getattr(cls, "__name__", str(cls)),
        _purpose(cls),
        settings,
        tuple(Setting(w, COMMON_TYPES[w], None, COMMON_HELP[w]) for w in common if w not in own),
        style,
        closed,
        notes["reads"],
        notes["writes"],
        notes["saves"],
        tuple(dict.fromkeys(point_named(method).name for method in methods)),
    )


def _takes(cls: Any, word: str, own: set[str]) -> bool:
    """Whether a hook of typed fields understands a word of the schedule that is not one of its fields."""
    if word in SPELLINGS and SPELLINGS[word] in own:
        return True
    methods = answered_methods(cls)
    marked = any(is_scheduled(own_method(cls, method)) for method in methods)
    paced = marked or bool({point_named(method).name for method in methods} & (ITERATION_POINTS | EPOCH_POINTS))
    own_meaning = own_method(cls, "when") is not None or "when" in vars(cls)
    return paced and not own_meaning and word in ("every", "interval", "start", "by_epoch")


def _own_settings(cls: Any, helps: Mapping[str, str]) -> tuple[Style, bool, tuple[Setting, ...]]:
    if dataclasses.is_dataclass(cls):
        return "settings", True, tuple(_from_fields(cls, helps))
    constructor = getattr(cls, "__init__", cls) if isinstance(cls, type) else cls
    if constructor in (BaseHook.__init__, object.__init__):
        return "keywords", constructor is object.__init__ and not issubclass(cls, BaseHook), ()
    parameters = list(inspect.signature(constructor).parameters.values())
    parameters = parameters[1:] if isinstance(cls, type) else parameters
    by_name = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    if len(by_name) == 1 and by_name[0].name in ("config", "cfg"):
        return "config", False, ()
    hints = _hints(constructor)
    settings = [Setting(p.name, hints.get(p.name, Any), p.default, helps.get(p.name, "")) for p in by_name]
    closed = not any(p.kind is p.VAR_KEYWORD for p in parameters)
    return "keywords", closed, tuple(settings)


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
                annotation = eval(annotation, vars(module) if module else {})  # noqa: S307 - the class's own source
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


def check_settings(cls: Any, given: Mapping[str, Any], place: str) -> list[Problem]:
    """Everything that is wrong with the settings given to a class, each with its place."""
    known = describe(cls)
    types_ = {setting.name: setting for setting in (*known.common, *known.settings)}
    problems = []
    for name, value in given.items():
        if name not in types_:
            if known.closed:
                hint = did_you_mean(name, types_) or f"; it has {', '.join(s.name for s in known.settings) or 'none'}"
                problems.append(Problem(f"{place}.{name}", f"not a setting of {known.name}{hint}"))
        elif message := misfit(value, types_[name]):
            problems.append(Problem(f"{place}.{name}", message))
    for setting in known.settings:
        if setting.required and setting.name not in given and SPELLINGS.get(setting.name) not in given:
            problems.append(Problem(f"{place}.{setting.name}", f"missing: {known.name} needs it{_about(setting)}"))
    for word, other in (("frequency", "interval"), ("begin", "start"), ("every", "interval"), ("every", "frequency")):
        if word in given and other in given and not {word, other} <= {s.name for s in known.settings}:
            problems.append(Problem(f"{place}.{word}", f"says the same as {other!r}: give one of them"))
    return problems


def _about(setting: Setting) -> str:
    return f" ({setting.help.rstrip('.')})" if setting.help else ""


def is_reference(value: Any) -> bool:
    """Whether a value is the name of a service, as in ``"@model"``."""
    return isinstance(value, str) and value.startswith("@") and value[1:].isidentifier()


def misfit(value: Any, setting: Setting) -> str:
    """Why a value does not fit a setting, or nothing."""
    if is_reference(value) or (value is None and setting.default is None):
        return ""
    adapter = _adapter(_checkable(setting.annotation))
    if adapter is None:
        return ""
    from pydantic import ValidationError

    try:
        adapter.validate_python(value)
    except ValidationError:
        return f"{in_words(setting.annotation)} is needed, not {_short(value)}"
    return ""


def fitted(value: Any, setting: Setting) -> Any:
    """The value as the type of its setting: a list from a file where a tuple is wanted."""
    adapter = None if is_reference(value) or value is None else _adapter(_checkable(setting.annotation))
    return value if adapter is None else adapter.validate_python(value)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


@functools.cache
def _adapter_cached(annotation: Any) -> Any:
    from pydantic import ConfigDict, TypeAdapter

    return TypeAdapter(annotation, config=ConfigDict(strict=True, allow_inf_nan=False, arbitrary_types_allowed=True))


def _adapter(annotation: Any) -> Any:
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
    from pydantic import BeforeValidator

    if annotation in _PLAIN or typing.is_typeddict(annotation):
        return annotation
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        inner = _checkable(arguments[0])
        return Any if inner is Any else Annotated[inner, *arguments[1:]]
    if origin is Literal:
        return annotation
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


_WORDS = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "true or false",
    type(None): "null",
    dict: "a mapping",
    list: "a list",
}


def in_words(annotation: Any) -> str:
    """A type as a person would say it.

    Example:
        >>> in_words(int | None), in_words(Literal["min", "max"]), in_words(list[str])
        ('a whole number or null', "'min' or 'max'", 'a list of texts')
    """
    if annotation in _WORDS:
        return _WORDS[annotation]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return " ".join([in_words(arguments[0]), *(_bound(note) for note in arguments[1:] if _bound(note))])
    if origin is Literal:
        return _or([repr(argument) for argument in arguments])
    if origin in (Union, types.UnionType):
        return _or([in_words(argument) for argument in arguments])
    if origin in (list, Sequence) or (origin is tuple and len(arguments) == 2 and arguments[1] is ...):
        return f"a list of {_several(in_words(arguments[0]))}"
    if origin is tuple:
        return f"a list of {len(arguments)}: {', '.join(in_words(argument) for argument in arguments)}"
    if origin in (dict, Mapping) or typing.is_typeddict(annotation):
        keys = getattr(annotation, "__annotations__", None)
        return f"a mapping with {', '.join(keys)}" if keys else "a mapping"
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
    return words.removeprefix("a ") + "s" if words.startswith("a ") else words
