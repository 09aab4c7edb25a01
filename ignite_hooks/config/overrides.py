"""Replace single values of a configuration: ``hooks.0.interval=10``, from the command line or from a script."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ignite_hooks.config.files import parse_yaml
from ignite_hooks.config.tree import copy_tree
from ignite_hooks.errors import ConfigError, Problem
from ignite_hooks.text import did_you_mean, shown

LISTS_OF_ENTRIES = ("hooks", "custom_hooks", "writers")


def with_overrides(
    content: dict[str, Any], overrides: Sequence[str], problems: list[Problem], *, said: str = "--set"
) -> dict[str, Any]:
    """Return a copy of a configuration with values replaced; add what is wrong to the problems.

    Args:
        content: The configuration.
        overrides: The values, each as ``path.to.key=value``; the value is written as in YAML.
        problems: Where problems go.
        said: Where the overrides stand, for messages.

    Example:
        >>> with_overrides({"hooks": [{"type": "LoggerHook"}]}, ["hooks.0.interval=10", "training.epochs=3"], [])
        {'hooks': [{'type': 'LoggerHook', 'interval': 10}], 'training': {'epochs': 3}}
    """
    changed: dict[str, Any] = copy_tree(content)
    if isinstance(overrides, str) or not all(isinstance(override, str) for override in overrides):
        message = f"a list of texts is needed, as in ['hooks.0.interval=5'], not {shown(overrides)}"
        problems.append(Problem(said, message))
        return changed
    for override in overrides:
        path, equals, text = override.partition("=")
        place = f"{said} {_on_one_line(path)}"
        if not equals or not all(path.split(".")):
            problems.append(
                Problem(f"{said} {_on_one_line(override)}", f"KEY=VALUE is needed, as in {said} training.epochs=3")
            )
            continue
        try:
            # An empty value is null, as in a file.
            value = parse_yaml(text, "") if text.strip() else None
        except ConfigError as error:
            problems.append(Problem(place, f"{shown(text)} is no value: {error.problems[0].message}"))
            continue
        # What cannot be put in changes nothing, not even on the way to its place.
        tried: dict[str, Any] = copy_tree(changed)
        message = _put(tried, path.split("."), value)
        if message:
            problems.append(Problem(place, message))
        else:
            changed = tried
    return changed


def _put(content: dict[str, Any], path: list[str], value: Any) -> str:
    """Set the value at a path; return a message if that is impossible, else an empty text."""
    at: Any = content
    for i, key in enumerate(path):
        last, walked = i == len(path) - 1, _on_one_line(".".join(path[:i]))
        if isinstance(at, list):
            if not key.isdecimal() or int(key) >= len(at):
                return _no_entry(walked, key, at)
            index: Any = int(key)
            # `- LoggerHook` is short for a mapping with a type, too.
            if not last and path[0] in LISTS_OF_ENTRIES and isinstance(at[index], str):
                at[index] = {"type": at[index]}
        elif isinstance(at, dict):
            index = key
            # `model: cnn` is short for a mapping with a type.
            if not last and isinstance(at.get(key), str) and i == 0:
                at[key] = {"type": at[key]}
            if not last and at.get(key) is None:
                if hint := did_you_mean(key, [name for name in at if isinstance(at[name], (dict, list))]):
                    return f"there is no {key!r} here{hint}"
                if path[i + 1].isdecimal():
                    return f"there is no list {key!r} here, and so no entry {path[i + 1]} of it"
                at[key] = {}
        else:
            return f"{walked} is {shown(at)}, which has nothing called {key!r}"
        if last:
            at[index] = value
        else:
            at = at[index]
    return ""


def _no_entry(walked: str, key: str, entries: list[Any]) -> str:
    if not entries:
        return f"{walked} is empty"
    names = [str(entry.get("type", "?")) if isinstance(entry, dict) else shown(entry, 20) for entry in entries]
    numbered = ", ".join(f"{i} {name}" for i, name in enumerate(names[:10]))
    return f"{walked} has no entry {_on_one_line(key)}: it has {numbered}"


def _on_one_line(text: str) -> str:
    return text if text.isprintable() else shown(text)
