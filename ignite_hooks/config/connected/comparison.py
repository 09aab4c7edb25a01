"""Find what was edited in a task: in the text of its configuration, or among its hyper-parameters."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ignite_hooks.config.composition import BASE
from ignite_hooks.config.connected.parameters import (
    HOOKS,
    SCALARS,
    TOP,
    WRITERS,
    Parameter,
    as_text,
    entry_name,
    parameters_of,
    parsed,
    sections_of,
)
from ignite_hooks.config.tree import copy_tree
from ignite_hooks.errors import ConfigError, Problem
from ignite_hooks.secrets import MASK, Masks, is_masked
from ignite_hooks.text import did_you_mean, shown

TEXT = "ignite_hooks"
"""The name of the configuration object that holds the text."""
VARIABLE = "IGNITE_HOOKS_SECRET_"


def merged(
    base: Mapping[Any, Any],
    text: Mapping[Any, Any],
    given: Mapping[str, str],
    problems: list[Problem],
    *,
    is_checked: Callable[[Any], bool],
) -> dict[Any, Any]:
    """Return the configuration that a task asks for; what was edited in one place wins.

    Args:
        base: What the task recorded when it was made.
        text: What its text says now.
        given: Its hyper-parameters now, all sections, as text.
        problems: Where problems go: edited differently in both places, no value, no setting.
        is_checked: Tells of a key at top level whether the names below it are checked later, so that one may be added.

    Example:
        >>> base = {"training": {"epochs": 3, "batch_size": 8}}
        >>> text = {"training": {"epochs": 3, "batch_size": 16}}
        >>> merged(base, text, {"Training/epochs": "5", "Training/batch_size": "8"}, [], is_checked=bool)
        {'training': {'epochs': 5, 'batch_size': 16}}
    """
    made, now = parameters_of(base), parameters_of(text)
    result: dict[Any, Any] = copy_tree(text)
    ours = {HOOKS, WRITERS, TOP, *sections_of(base).values(), *sections_of(text).values()}
    for name, raw in given.items():
        section = name.partition("/")[0]
        if name not in made and name not in now and (section not in ours or "/" not in name):
            continue  # the script's own, or ClearML's
        recorded = made[name].value if name in made else now[name].value if name in now else None
        if name in made and raw == as_text(recorded):
            continue
        try:
            value = parsed(raw, recorded)
        except ConfigError as error:
            problems.append(Problem(name, f"{shown(raw)} is no value: {error.problems[0].message}"))
            continue
        if name in made and as_text(value) == as_text(recorded):
            continue
        if message := _clash(value, made.get(name), now.get(name), name in made):
            problems.append(Problem(name, message))
        elif name in now:
            _set(result, now[name].path, value)
        elif message := _add(result, name, value, is_checked):
            problems.append(Problem(name, message))
    return result


def _clash(value: Any, made: Parameter | None, now: Parameter | None, was_there: bool) -> str:
    """Return a message if the text was edited as well, to something else."""
    if now is None:
        if not was_there:
            return ""
        return f"is {shown(value)} among the hyper-parameters, and is no longer in the configuration {TEXT!r}: edit one"
    before = as_text(made.value) if made is not None else None
    if as_text(now.value) in (before, as_text(value)):
        return ""
    was = f", was {shown(made.value)} when the task was made" if made is not None else ""
    return (
        f"is {shown(value)} among the hyper-parameters and {shown(now.value)} in the configuration {TEXT!r}{was}: "
        "edit it in one of them"
    )


def _set(content: Any, path: tuple[Any, ...], value: Any) -> None:
    for key in path[:-1]:
        if not isinstance(content[key], (dict, list)):
            content[key] = {"type": content[key]}  # `- LoggerHook` is short for this
        content = content[key]
    content[path[-1]] = value


def _add(content: dict[Any, Any], name: str, value: Any, is_checked: Callable[[Any], bool]) -> str:
    """Add a parameter that was in neither place; return a message if it names no setting."""
    section, *keys = name.split("/")
    if section in (HOOKS, WRITERS):
        found = _entries(content, section)
        place = found.get(keys[0])
        if place is None or len(keys) < 2:
            hint = did_you_mean(keys[0], found) or f"; there are {', '.join(found) or 'none'}"
            return f"no {section[:-1].lower()} is called {keys[0]!r}{hint}"
        keys = keys[1:]
    else:
        known = parameters_of(content)
        key = next((key for key, its in sections_of(content).items() if its == section), None)
        if section == TOP and len(keys) == 1 and is_checked(keys[0]):
            content[keys[0]] = value
            return ""
        if key is None or not is_checked(key):
            return f"names no setting of the configuration{did_you_mean(name, known)}"
        place = (key,)
    at: Any = content
    for key in place:
        if isinstance(at[key], str) and section in (HOOKS, WRITERS):
            at[key] = {"type": at[key]}
        at = at[key]
    for i, key in enumerate(keys):
        if not isinstance(at, dict) or (i < len(keys) - 1 and key not in at):
            # `default_hooks: {timer: null}`, `- LoggerHook` and `model: cnn` have no mapping here.
            hint = did_you_mean(name, parameters_of(content)) or "; add it there"
            return f"names no setting: there is no {'/'.join(keys[: i + 1])!r} in the configuration {TEXT!r}{hint}"
        if i < len(keys) - 1:
            at = at[key]
    at[keys[-1]] = value
    return ""


def _entries(content: Mapping[Any, Any], section: str) -> dict[str, tuple[Any, ...]]:
    """Return the places of hooks or writers by name."""
    found: dict[str, tuple[Any, ...]] = {}
    for key in ("hooks", "custom_hooks") if section == HOOKS else ("writers",):
        listed = content.get(key)
        for i, entry in enumerate(listed if isinstance(listed, list) else []):
            found.setdefault(entry_name(entry), (key, i))
    named = content.get("default_hooks")
    if section == HOOKS and isinstance(named, Mapping):
        found |= {name: ("default_hooks", name) for name in named if isinstance(name, str)}
    return found


def restored(
    content: dict[Any, Any], local: Mapping[Any, Any], environment: Mapping[str, str], problems: list[Problem]
) -> dict[Any, Any]:
    """Return what a task asks for with secrets from this machine, never from the server, and with the script's objects.

    Args:
        content: The configuration with masks.
        local: The configuration of this machine.
        environment: The variables.
        problems: Where problems go: a secret that is nowhere, or one that stands on the server.
    """
    result: dict[Any, Any] = copy_tree(content)
    here, hidden_here = parameters_of(local), parameters_of(Masks(local).tree(dict(local)))
    hidden = parameters_of(Masks(content).tree(dict(content)))
    for name, (path, value) in parameters_of(content).items():
        variable = VARIABLE + re.sub(r"\W+", "_", name).upper()
        if _holds_mask(value):
            known = name in here and not _holds_mask(here[name].value)
            if known and as_text(hidden_here[name].value) == as_text(value):
                _set(result, path, here[name].value)
            elif variable in environment:
                _set(result, path, environment[variable])
            else:
                message = f"is a secret, which no task holds: write it into the file of this machine, or set {variable}"
                problems.append(Problem(name, message))
        elif as_text(hidden[name].value) != as_text(value):
            message = f"a secret is never taken from a task: write {MASK} there, and set {variable}"
            problems.append(Problem(name, message))
    return {key: _with_objects(value, local.get(key)) for key, value in result.items()}


def _holds_mask(value: Any) -> bool:
    return any(map(_holds_mask, value)) if isinstance(value, list) else isinstance(value, str) and is_masked(value)


def _with_objects(value: Any, local: Any) -> Any:
    """Put the script's objects where a task has only the names of their classes."""
    if isinstance(value, dict):
        named = local if isinstance(local, Mapping) else {}
        return {key: _with_objects(item, named.get(key)) for key, item in value.items()}
    if isinstance(value, list):
        listed = local if isinstance(local, (list, tuple)) else ()
        return [_with_objects(item, listed[i] if i < len(listed) else None) for i, item in enumerate(value)]
    is_object = local is not None and not isinstance(local, (*SCALARS, Mapping, list, tuple))
    return local if is_object and value == f"<{type(local).__name__}>" else value


def foreign_imports(content: Mapping[Any, Any], local: Mapping[Any, Any]) -> list[Problem]:
    """Return a problem if a task names modules that the file does not, which would run code of the task's author."""
    return [
        Problem(key, "a task cannot change it: it says which code is loaded; write it into the file of this machine")
        for key in ("imports", BASE)
        if content.get(key) != local.get(key)
    ]
