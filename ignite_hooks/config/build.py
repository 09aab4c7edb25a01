"""Build the hooks that a configuration asks for."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ignite_hooks.config.describe import Setting, describe
from ignite_hooks.config.ignite_handlers import OUR_WORDS, PREFIX, as_hook, handler_class
from ignite_hooks.config.mmengine import other_name, translated
from ignite_hooks.config.ranked_metrics import impossible_metrics, known_metrics
from ignite_hooks.config.read import HookEntry, default_set
from ignite_hooks.config.ready import inherited, is_handler_class, is_hook, needs_mmengine, ready, takes_engine
from ignite_hooks.config.tree import copy_tree
from ignite_hooks.config.validate import convert_value, has_reference, is_reference, validate_settings, validate_value
from ignite_hooks.errors import ConfigError, Problem, SettingError
from ignite_hooks.hooks.base_hook import COMMON_SETTINGS, SPELLINGS, BaseHook, Situation
from ignite_hooks.plan.hook_problems import problems_of
from ignite_hooks.plan.hook_settings import give, words_of
from ignite_hooks.plan.methods import default_name
from ignite_hooks.plan.priority import hook_priority
from ignite_hooks.plan.schedule import SCHEDULE_WORDS
from ignite_hooks.registry import HOOKS, without_scope
from ignite_hooks.results.better import rule_for
from ignite_hooks.run.logger import LOGGER_NAME
from ignite_hooks.run.ranking import canonical
from ignite_hooks.text import below, did_you_mean, one_line, setting_place, shown


def build_hook(config: Mapping[str, Any] | str | object, services: Mapping[str, Any] | None = None) -> Any:
    """Build one hook from ``{type: Name, ...settings}``; an object that is a hook already is returned as it is.

    Example:
        >>> build_hook({"type": "LoggerHook", "interval": 10}).interval
        10
    """
    problems: list[Problem] = []
    hook = build_entry(_entry("hook", config), services or {}, problems)
    if problems:
        raise ConfigError(problems)
    return hook


def accept(thing: Any) -> Any:
    """Return the hook that a script registers in mid-life, judged like one of a configuration.

    Raises:
        TypeError: If it is no hook and none can be made of it.
        ConfigError: If anything is wrong with it.
    """
    problems: list[Problem] = []
    hook = ready(thing)
    build_entry(HookEntry(getattr(hook, "name", None) or default_name(hook), hook), {}, problems)
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
    if isinstance(configs, (str, Mapping)) or not isinstance(configs, Iterable):
        raise ConfigError([Problem("hooks", f"a list of hooks is needed, not {shown(configs)}")])
    hooks = [build_entry(_entry(f"hooks[{i}]", config), {}, problems) for i, config in enumerate(configs)]
    if problems:
        raise ConfigError(problems)
    return sorted(hooks, key=lambda hook: hook_priority(hook, ""))


def _entry(place: str, config: Mapping[str, Any] | str | object) -> HookEntry:
    """Return the entry for a hook that a script gives; a mapping is copied."""
    if isinstance(config, str):
        return HookEntry(place, {"type": config})
    return HookEntry(place, copy_tree(config) if isinstance(config, Mapping) else config)


def get_default_hooks(*, evaluates: bool = True, distributed: bool = False) -> dict[str, Any]:
    """Build the default hooks; return them by name."""
    return {
        name: build_hook(entry) for name, entry in default_set(evaluates=evaluates, distributed=distributed).items()
    }


@dataclass(frozen=True)
class BuildContext:
    """The entry that is being built, and what building it needs."""

    place: str
    services: Mapping[str, Any]
    complete: bool
    """False if only a file is known, not the script."""
    problems: list[Problem] = field(default_factory=list)
    """The problems of this entry alone."""

    def add_problem(self, message: str, setting: str = "") -> None:
        """Add a problem of a setting, or of the whole entry."""
        self.problems.append(Problem(setting_place(self.place, setting), message))


def build_entry(
    entry: HookEntry, services: Mapping[str, Any], problems: list[Problem], *, complete: bool = True
) -> Any:
    """Build the hook of one entry; if anything is wrong with it, add that to the problems and return None."""
    wanted, place = entry.wanted, entry.place
    context = BuildContext(place, services, complete)
    hook: Any = None
    checked: set[str] = set()
    if isinstance(wanted, Mapping):
        given = dict(wanted)
        checked |= given.keys()
        type_ = given.pop("type", None)
        if isinstance(type_, str) and type_.startswith(PREFIX):
            hook = _ignite_handler(type_, given, context)
        elif is_handler_class(type_) or takes_engine(type_, given):
            hook = _handler(type_, given, context)
        else:
            hook = _hook(type_, given, context)
    else:
        try:
            hook = ready(wanted)
        except TypeError as error:
            context.add_problem(str(error))
    if hook is not None and not context.problems:
        _validate_object(hook, checked, context)
    if hook is not None and not context.problems:
        for setting, message in problems_of(hook):
            context.add_problem(message, setting)
    problems += context.problems
    return None if context.problems else hook


def _hook(type_: Any, given: dict[str, Any], context: BuildContext) -> Any:
    if type_ is None:
        context.add_problem("needs 'type', the name of a hook")
        return None
    try:
        cls = HOOKS.get(type_) if isinstance(type_, str) else type_
    except LookupError as error:
        message = str(error.args[0])
        if without_scope(type_) != type_ or other_name(type_):
            message = f"no hook is called {shown(type_)}"
            message += other_name(type_) or did_you_mean(without_scope(type_), HOOKS)
        elif "." in str(type_):
            message = f"no hook is called {shown(type_)}: only what is in ignite.handlers is named by its path"
        context.add_problem(message, "type")
        return None
    except ImportError as error:
        context.add_problem(f"{type_} cannot be loaded: {one_line(error)}", "type")
        return None
    if not callable(cls):
        context.add_problem(f"the name of a hook is needed, not {shown(type_)}", "type")
        return None
    if isinstance(type_, str) and getattr(cls, "__module__", "").startswith("ignite_hooks."):
        settings = describe(cls)
        given, otherwise = translated(type_, given, {s.name: s for s in (*settings.settings, *settings.common)})
        context.problems.extend(Problem(below(context.place, word), message) for word, message in otherwise.items())
    context.problems.extend(validate_settings(cls, given, context.place))
    hook = _construct(cls, _with_services(given, context.place, context), given, context)
    if not (context.problems or isinstance(type_, str) or is_hook(hook)):
        message = f"{describe(cls).name} does not make a hook: {type(hook).__name__} has no method that is a point"
        context.add_problem(message, "type")
    elif hook is not None and (theirs := needs_mmengine(hook)):
        context.add_problem(theirs, "type")
    return hook


def _construct(cls: Any, given: dict[str, Any], written: Mapping[str, Any], context: BuildContext) -> Any:
    """Make the object, with services in place of the references that were written."""
    known = describe(cls)
    own = {setting.name: setting for setting in known.settings}
    if not context.problems:
        types_ = {setting.name: setting for setting in known.common} | own
        for name, value in given.items():
            if has_reference(written[name]) and name in types_ and (message := validate_value(value, types_[name])):
                context.add_problem(f"{message} ({written[name]})", name)
    if context.problems:
        return None
    if known.style == "keywords":
        given = {_own_word(word, own): value for word, value in given.items()}
    given = {name: convert_value(value, own[name]) if name in own else value for name, value in given.items()}
    try:
        if known.style == "config":
            hook = cls(given)
        elif known.style == "settings" or not known.closed:
            hook = cls(**given)
        else:
            hook = cls(**{name: value for name, value in given.items() if name in own})
        for word in COMMON_SETTINGS if known.style != "settings" else ():
            if word in given and word not in own:
                give(hook, word, given[word])
    except SettingError as error:
        context.add_problem(error.message, error.setting)
        return None
    except Exception as error:  # whatever a constructor refuses is a mistake of the configuration
        # Code that is not ours names the setting in its sentence, if at all.
        text = one_line(error)
        named = [setting for setting in given if re.search(rf"\b{re.escape(setting)}\b", text)]
        # Prefer the setting that the sentence begins with.
        name = min(named, key=lambda setting: not text.startswith(f"{setting}:"), default="")
        context.add_problem(text.removeprefix(f"{name}:").strip(), name)
        return None
    return hook


def _own_word(word: str, own: Mapping[str, Any]) -> str:
    """Return the spelling that a constructor has for a setting."""
    other = SPELLINGS.get(word, word)
    return other if word not in own and other in own else word


def _with_services(given: Any, place: str, context: BuildContext) -> Any:
    """Copy settings, replacing every ``"@name"``, at any depth, by that service; ``place`` is where they are."""
    if isinstance(given, dict):
        return {name: _with_services(value, below(place, name), context) for name, value in given.items()}
    if isinstance(given, list):
        return [_with_services(value, f"{place}[{i}]", context) for i, value in enumerate(given)]
    if not is_reference(given):
        return given
    name = given[1:]
    if context.services.get(name) is not None:
        return context.services[name]
    if context.complete:
        context.problems.append(Problem(place, f"there is no service {name!r}: pass {name}=... to attach_hooks()"))
    return given


def _ignite_handler(type_: str, given: dict[str, Any], context: BuildContext) -> Any:
    try:
        cls = handler_class(type_)
    except LookupError as error:
        context.add_problem(str(error), "type")
        return None
    return _handler(cls, given, context)


def _handler(cls: Any, given: dict[str, Any], context: BuildContext) -> Any:
    """Return a hook that does what a handler does, of a class of handlers or a function of the engine."""
    if not isinstance(cls, type):
        return _wrapped(cls, given, context)
    parameters = {setting.name for setting in describe(cls).settings}
    own = {word: given.pop(word) for word in list(given) if word in parameters or word not in AROUND}
    own, given = of_call(own, given, parameters, inherited(cls, "__call__"), attaches=hasattr(cls, "attach"))
    context.problems.extend(validate_settings(cls, own, context.place, hook=False))
    written, own = own, _with_services(own, context.place, context)
    if not context.complete and any(is_reference(value) for value in own.values()):
        # The rest is still judged, as far as it can be without the handler.
        around(given, context)
        return None
    handler = _construct(cls, own, written, context)
    return None if handler is None else _wrapped(handler, given, context)


def of_call(
    own: dict[str, Any], given: dict[str, Any], parameters: Collection[str], call: Any, *, attaches: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings of a handler and those around it; what only its call takes becomes one of ``arguments``."""
    if attaches or not callable(call):
        return own, given
    taken = {setting.name for setting in describe(call).settings} - {*parameters, "engine"}
    moved = {word: own[word] for word in own if word in taken}
    if not moved or not isinstance(given.get("arguments", {}), Mapping):
        return own, given
    left = {word: value for word, value in own.items() if word not in moved}
    return left, {**given, "arguments": {**moved, **given.get("arguments", {})}}


AROUND = (*COMMON_SETTINGS, *OUR_WORDS)
"""The settings around a handler: those of every hook, and those that say where it is attached or called."""


def around(given: dict[str, Any], context: BuildContext) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings of every hook and our words of an entry, and add what is wrong with them."""
    common = {word: value for word, value in given.items() if word in COMMON_SETTINGS}
    ours = {word: value for word, value in given.items() if word not in COMMON_SETTINGS}
    for word, value in ours.items():
        if word not in OUR_WORDS:
            context.add_problem(f"not a setting around a handler{did_you_mean(word, AROUND)}", word)
        elif message := validate_value(value, Setting(word, OUR_WORDS[word], None)):
            context.add_problem(message, word)
    context.problems.extend(validate_settings(BaseHook, common, context.place))
    if isinstance(arguments := ours.get("arguments"), Mapping):
        ours["arguments"] = _with_services(arguments, f"{context.place}.arguments", context)
    return common, ours


def _wrapped(handler: Any, given: dict[str, Any], context: BuildContext) -> Any:
    """Return a hook of a handler with the settings around it."""
    common, ours = around(given, context)
    if context.problems:
        return None
    try:
        hook = as_hook(handler, **ours)
    except SettingError as error:
        context.add_problem(error.message, error.setting)
        return None
    except ValueError as error:
        context.add_problem(str(error))
        return None
    for word, value in common.items():
        if word != "name" and hook.attaches:
            context.add_problem(f"no effect: {hook.default_name} chooses its events itself, leave it out", word)
        if word in SCHEDULE_WORDS and hook.is_filtered and "event" in ours:
            context.add_problem("the event has a filter that says how often: leave out one of the two", word)
        give(hook, word, value)
    return hook


def _validate_object(hook: Any, checked: set[str], context: BuildContext) -> None:
    """Add what is wrong with settings that a ready-made hook got from its constructor or its class."""
    cls: Any = type(hook)
    known = describe(cls)
    given = (
        hook.given if known.style == "settings" else {"name", "priority", "on_error"} | {*words_of(hook)} & {"every"}
    ) - checked
    for setting in (*known.settings, *known.common):
        value = getattr(hook, setting.name, setting.default)
        if setting.name in given and (message := validate_value(value, setting)):
            context.add_problem(message, setting.name)


def build_all(
    entries: Sequence[HookEntry], services: Mapping[str, Any], situation: Situation
) -> tuple[dict[str, Any], list[Problem]]:
    """Build every hook of a configuration; return them by name, with what is wrong with each and between them."""
    problems: list[Problem] = []
    hooks: dict[str, Any] = {}
    places: dict[str, str] = {}
    unbuilt: dict[str, Any] = {}
    unasked: set[str] = set()
    for entry in entries:
        hook = build_entry(entry, services, problems, complete=situation.complete)
        if hook is None:
            unbuilt[entry.place] = _Unbuilt(entry)
            continue
        name = getattr(hook, "name", None) or entry.default_name or default_name(hook)
        if not isinstance(name, str):
            problems.append(Problem(f"{entry.place}.name", f"a string is needed, not {shown(name)}"))
        elif same := [places[other] for other in hooks if hooks[other] is hook]:
            problems.append(Problem(entry.place, f"the same object as {same[0]}: make one for each"))
        elif name in hooks:
            how = f", as in {{'type': {name}, 'name': 'another'}}" if inspect.isroutine(entry.wanted) else ""
            message = f"{places[name]} is called {name!r} too: give one of them another 'name'{how}"
            problems.append(Problem(entry.place, message))
        else:
            hooks[name], places[name] = hook, entry.place
            unasked |= {name} if entry.is_unasked else set()
    # Check the hooks that were built even if others failed; of those, only whether they evaluate matters.
    unasked &= hooks.keys() if situation.complete else set()
    trainer, there = services.get("trainer"), replace(situation, hooks={**unbuilt, **hooks})
    off = {name: wrong[0] for name in unasked if (wrong := _checked(hooks[name], places[name], there, trainer))}
    hooks = {name: hook for name, hook in hooks.items() if name not in off}
    there = replace(situation, hooks={**unbuilt, **hooks})
    problems += [p for name, hook in hooks.items() for p in _checked(hook, places[name], there, trainer)]
    problems += _opposite_rules(hooks, places, problems, situation.evaluators)
    for name, problem in off.items() if not problems else ():
        logging.getLogger(LOGGER_NAME).warning("%s is off: %s", places[name], problem.message)
    return hooks, problems


def _checked(hook: Any, place: str, situation: Situation, trainer: Any) -> list[Problem]:
    """Return what is wrong with a hook in its situation, among the other hooks."""
    # A hook that still holds the name of a service can only be checked with the script.
    waits = not situation.complete and any(is_reference(value) for value in getattr(hook, "__dict__", {}).values())
    if waits or not isinstance(hook, BaseHook):
        return []
    if hook.one_model and "model" in situation.several:
        return [Problem(place, f"needs one model, and this run has several: {hook.one_model}")]
    found = [*impossible_metrics(hook, known_metrics(situation, trainer))] or [*hook.check(situation)]
    return [Problem(setting_place(place, setting), message) for setting, message in found]


class _Unbuilt:
    """Stands for a hook that could not be built, so that no other hook reports it as missing."""

    def __init__(self, entry: HookEntry) -> None:
        type_ = entry.wanted.get("type") if isinstance(entry.wanted, Mapping) else None
        if isinstance(type_, str) and type_ in HOOKS:
            try:
                type_ = HOOKS.get(type_)
            except ImportError:
                pass
        name = entry.wanted.get("name") if isinstance(entry.wanted, Mapping) else None
        named = name if isinstance(name, str) and name else "val"
        # An unknown name may be a misspelt hook that evaluates, though nobody knows under which name.
        unknown = isinstance(type_, str) and not type_.startswith(PREFIX)
        evaluates = getattr(type_, "evaluates", None) is not None
        self.evaluates = "an unknown type" if unknown else named if evaluates else None


def _opposite_rules(
    hooks: Mapping[str, Any], places: Mapping[str, str], problems: list[Problem], evaluators: Collection[str]
) -> list[Problem]:
    """Return a problem for every two hooks that watch one metric and disagree on which value of it is better."""
    opposed: list[Problem] = []
    seen: dict[str, tuple[str, str]] = {}
    for name, hook in hooks.items():
        for metric, rule in (hook.monitors() if isinstance(hook, BaseHook) else {}).items():
            try:
                better = rule_for(metric, rule)
            except ValueError as error:
                if not any(problem.place.startswith(f"{places[name]}.") for problem in problems):
                    opposed.append(Problem(places[name], str(error)))
                continue
            other, theirs = seen.setdefault(canonical(metric, evaluators).replace("/", "_"), (name, better))
            if theirs != better:
                here, there = _words(better), _words(theirs)
                words = f"{metric!r} counts as better when {here} here, but when {there} in {places[other]}"
                opposed.append(Problem(places[name], f"{words}: use one rule in both"))
    return opposed


def _words(rule: str) -> str:
    return "higher" if rule == "greater" else "lower"
