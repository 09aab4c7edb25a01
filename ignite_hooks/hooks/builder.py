"""Settings -> hook objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ignite_hooks.config import Entry, default_set
from ignite_hooks.errors import ConfigError, Problem
from ignite_hooks.hooks.base_hook import COMMON_SETTINGS, BaseHook, Situation, answered_methods
from ignite_hooks.hooks.ignite_handler import OUR_WORDS, PREFIX, as_hook, handler_class
from ignite_hooks.improvement import rule_for
from ignite_hooks.loading import plain
from ignite_hooks.plan import hook_priority, problems_of
from ignite_hooks.registry import HOOKS
from ignite_hooks.settings import check_settings, describe, fitted, is_reference


def build_hook(config: Mapping[str, Any] | str | object, services: Mapping[str, Any] | None = None) -> Any:
    """Build one hook from ``{type: Name, ...settings}``; an object that is a hook already is returned as it is.

    Example:
        >>> build_hook({"type": "LoggerHook", "interval": 10}).interval
        10
    """
    problems: list[Problem] = []
    hook = build_entry(Entry("hook", {"type": config} if isinstance(config, str) else config), services or {}, problems)
    if problems:
        raise ConfigError(problems)
    return hook


def build_hooks(configs: Sequence[Mapping[str, Any] | str | object]) -> list[Any]:
    """Build hooks and sort them by priority, the smallest value first; ties keep their order.

    Example:
        >>> [type(hook).__name__ for hook in build_hooks(["EvalHook", "LoggerHook", "CheckpointHook"])]
        ['LoggerHook', 'CheckpointHook', 'EvalHook']
    """
    problems: list[Problem] = []
    entries = [Entry(f"hooks[{i}]", {"type": c} if isinstance(c, str) else c) for i, c in enumerate(configs)]
    hooks = [build_entry(entry, {}, problems) for entry in entries]
    if problems:
        raise ConfigError(problems)
    return sorted(hooks, key=lambda hook: hook_priority(hook, ""))


def get_default_hooks(*, evaluates: bool = True, distributed: bool = False) -> dict[str, Any]:
    """The default hooks by name, built."""
    return {
        name: build_hook(entry) for name, entry in default_set(evaluates=evaluates, distributed=distributed).items()
    }


def build_entry(entry: Entry, services: Mapping[str, Any], problems: list[Problem], *, complete: bool = True) -> Any:
    """Build the hook of one entry; what is wrong with it is added to the problems, and the result is None."""
    wanted, place = entry.wanted, entry.place
    found: list[Problem] = []
    hook: Any = None
    if isinstance(wanted, Mapping):
        given = dict(plain(wanted))
        type_ = given.pop("type", None)
        if isinstance(type_, str) and type_.startswith(PREFIX):
            hook = _ignite_handler(type_, given, place, services, found, complete)
        else:
            hook = _hook(type_, given, place, services, found, complete)
    elif isinstance(wanted, type):
        found.append(
            Problem(
                place, f"{wanted.__name__} is a class: write {{'type': '{wanted.__name__}'}} or {wanted.__name__}()"
            )
        )
    else:
        hook = _ready(wanted, place, found)
    if hook is not None and not found:
        found += [Problem(f"{place}.{setting}", message) for setting, message in problems_of(hook)]
    problems += found
    return None if found else hook


def _hook(
    type_: Any, given: dict[str, Any], place: str, services: Mapping[str, Any], found: list[Problem], complete: bool
) -> Any:
    if type_ is None:
        found.append(Problem(place, "needs 'type', the name of a hook"))
        return None
    try:
        cls = HOOKS.get(type_) if isinstance(type_, str) else type_
    except LookupError as error:
        found.append(Problem(f"{place}.type", str(error.args[0])))
        return None
    if not callable(cls):
        found.append(Problem(f"{place}.type", f"the name of a hook is needed, not {type_!r}"))
        return None
    found += check_settings(cls, given, place)
    if found:
        return None
    return _construct(cls, _with_services(given, services, place, found, complete), place, found)


def _construct(cls: Any, given: dict[str, Any], place: str, found: list[Problem]) -> Any:
    if found:
        return None
    known = describe(cls)
    own = {setting.name: setting for setting in known.settings}
    given = {name: fitted(value, own[name]) if name in own else value for name, value in given.items()}
    try:
        if known.style == "config":
            hook = cls(given)
        elif known.style == "settings" or not known.closed:
            hook = cls(**given)
        else:
            hook = cls(**{name: value for name, value in given.items() if name in own})
    except Exception as error:  # whatever a constructor refuses is a mistake of the configuration
        name = next((setting for setting in given if str(error).startswith(setting)), "")
        at = f"{place}.{name}" if name else place
        message = str(error).removeprefix(name).lstrip(": ") if name and f"{name}:" in str(error) else str(error)
        found.append(Problem(at, message or type(error).__name__))
        return None
    for word in COMMON_SETTINGS:
        if word in given and word not in own and known.style != "settings":
            setattr(hook, word, given[word])
    return hook


def _with_services(
    given: dict[str, Any], services: Mapping[str, Any], place: str, found: list[Problem], complete: bool
) -> dict[str, Any]:
    result = {}
    for name, value in given.items():
        if is_reference(value) and value[1:] in services:
            value = services[value[1:]]
        elif is_reference(value) and complete:
            found.append(
                Problem(f"{place}.{name}", f"there is no service {value[1:]!r}: give attach_hooks {value[1:]}=...")
            )
        elif isinstance(value, dict):
            value = _with_services(value, services, f"{place}.{name}", found, complete)
        result[name] = value
    return result


def _ignite_handler(
    type_: str, given: dict[str, Any], place: str, services: Mapping[str, Any], found: list[Problem], complete: bool
) -> Any:
    try:
        cls = handler_class(type_)
    except LookupError as error:
        found.append(Problem(f"{place}.type", str(error)))
        return None
    common = {word: given.pop(word) for word in COMMON_SETTINGS if word in given and word not in _parameters(cls)}
    ours = {word: given.pop(word) for word in OUR_WORDS if word in given and word not in _parameters(cls)}
    found += check_settings(cls, given, place) + check_settings(BaseHook, common, place)
    given = _with_services(given, services, place, found, complete)
    ours["arguments"] = _with_services(ours.get("arguments") or {}, services, f"{place}.arguments", found, complete)
    if not complete and any(is_reference(value) for value in given.values()):
        return None
    handler = _construct(cls, given, place, found)
    if handler is None:
        return None
    try:
        hook = as_hook(handler, **ours)
    except (TypeError, ValueError) as error:
        found.append(Problem(place, str(error)))
        return None
    for word, value in common.items():
        setattr(hook, word, value)
    return hook


def _parameters(cls: type) -> set[str]:
    return {setting.name for setting in describe(cls).settings}


def _ready(thing: Any, place: str, found: list[Problem]) -> Any:
    """A hook object as it is; any other object that Ignite could use is made a hook."""
    cls: Any = type(thing)
    if isinstance(thing, BaseHook) or answered_methods(cls):
        found += _check_object(thing, place)
        return thing
    try:
        return as_hook(thing)
    except ValueError as error:
        found.append(Problem(place, f"not a hook: {error}"))
        return None


def _check_object(hook: Any, place: str) -> list[Problem]:
    cls: Any = type(hook)
    known = describe(cls)
    if known.style != "settings":
        return []
    values = {setting.name: getattr(hook, setting.name) for setting in known.settings if setting.name in hook.given}
    return check_settings(cls, values, place)


def build_all(
    entries: Sequence[Entry], services: Mapping[str, Any], situation: Situation
) -> tuple[dict[str, Any], list[Problem]]:
    """Build every hook of a configuration by name, and find what is wrong with them, alone and together."""
    problems: list[Problem] = []
    hooks: dict[str, Any] = {}
    places: dict[str, str] = {}
    for entry in entries:
        hook = build_entry(entry, services, problems, complete=situation.complete)
        if hook is None:
            continue
        name = getattr(hook, "name", None) or entry.default_name or type(hook).__name__
        if not isinstance(name, str):
            problems.append(Problem(f"{entry.place}.name", f"a text is needed, not {name!r}"))
        elif name in hooks:
            first = places[name]
            problems.append(Problem(entry.place, f"{first} is called {name!r} too: give one of them another name"))
        elif any(other is hook for other in hooks.values()):
            problems.append(Problem(entry.place, "the same hook object stands here twice"))
        else:
            hooks[name], places[name] = hook, entry.place
    if not problems:
        situation = Situation(situation.evaluators, situation.services, hooks, situation.complete)
        for name, hook in hooks.items():
            if isinstance(hook, BaseHook):
                problems += [Problem(f"{places[name]}.{s}".rstrip("."), m) for s, m in hook.check(situation)]
        problems += _opposite_rules(hooks, places)
    return hooks, problems


def _opposite_rules(hooks: Mapping[str, Any], places: Mapping[str, str]) -> list[Problem]:
    """Two hooks that watch one metric must agree on which value of it is better."""
    problems: list[Problem] = []
    seen: dict[str, tuple[str, str]] = {}
    for name, hook in hooks.items():
        for metric, rule in (hook.monitors() if isinstance(hook, BaseHook) else {}).items():
            try:
                better = rule_for(metric, rule)
            except ValueError as error:
                problems.append(Problem(places[name], str(error)))
                continue
            key = metric.replace("/", "_")
            other, theirs = seen.setdefault(key, (name, better))
            if theirs != better:
                message = f"{metric!r} is better {_words(better)} here but {_words(theirs)} in {places[other]}"
                problems.append(Problem(places[name], message))
    return problems


def _words(rule: str) -> str:
    return "when it grows" if rule == "greater" else "when it falls"
