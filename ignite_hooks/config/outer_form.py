"""Turn whatever ``attach_hooks`` is given into one mapping of keys: a file, a mapping, one entry, a list, an object."""

from __future__ import annotations

import argparse
import dataclasses
import logging
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ignite_hooks.config.files import load_config
from ignite_hooks.config.ignite_handlers import PREFIX
from ignite_hooks.config.keys import LISTS_OF_HOOKS, OURS, is_ours, misspelt_key
from ignite_hooks.config.mmengine import other_name
from ignite_hooks.config.overrides import with_overrides
from ignite_hooks.config.tree import copy_tree
from ignite_hooks.config.validate import validate_settings
from ignite_hooks.errors import Problem
from ignite_hooks.hooks.base_hook import BaseHook
from ignite_hooks.plan.methods import class_answers
from ignite_hooks.registry import HOOKS
from ignite_hooks.run.logger import LOGGER_NAME
from ignite_hooks.text import below

FILE, SET = "hooks_file", "hooks_set"
_OPTIONS: dict[str, dict[str, Any]] = {
    "--hooks": {"dest": FILE, "metavar": "FILE", "help": "the configuration of the hooks"},
    "--set": {
        "dest": SET,
        "metavar": "KEY=VALUE",
        "action": "append",
        "default": [],
        "help": "replace a value of it, as in --set custom_hooks.0.interval=5",
    },
    "--work-dir": {"metavar": "DIR", "help": "where files go"},
    "--resume": {
        "metavar": "auto|required|PATH",
        "nargs": "?",
        "const": "auto",
        "help": "go on from a checkpoint; without a word from the newest, if there is one",
    },
}

DEEPEST_UNREAD = 3
"""How many keys deep hooks are looked for where nobody reads them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give a script the options ``--hooks FILE``, ``--set KEY=VALUE``, ``--work-dir DIR`` and ``--resume``.

    What it parses goes to ``attach_hooks(trainer, args)`` as it is. An option that the script has already stays its
    own; its ``--work-dir`` and ``--resume`` mean the same here.

    Args:
        parser: The parser of the script, with its own options.

    Example:
        >>> parser = argparse.ArgumentParser()
        >>> add_arguments(parser)
        >>> parser.parse_args(["--hooks", "hooks.yaml", "--set", "seed=1", "--resume"])
        Namespace(hooks_file='hooks.yaml', hooks_set=['seed=1'], work_dir=None, resume='auto')
    """
    known = parser._option_string_actions
    group = parser.add_argument_group("hooks")
    for option, settings in _OPTIONS.items():
        if option not in known:
            group.add_argument(option, **settings)


def as_content(
    cfg: Any, defaults: Mapping[str, Mapping[str, Any]], problems: list[Problem], overrides: Sequence[str] = ()
) -> Any:
    """Return a copy of a configuration with its hooks under a key of ours; add what is wrong to the problems.

    Args:
        cfg: A path, a mapping or an object with the same content, a list of hooks, or None.
        defaults: The default hooks by name.
        problems: Where problems of the keys go.
        overrides: Values that replace those of the configuration.

    Example:
        >>> as_content({"type": "LoggerHook"}, {}, [])
        {'hooks': [{'type': 'LoggerHook'}]}
    """
    if isinstance(cfg, (str, Path)):
        content: Any = load_config(cfg)
    elif isinstance(cfg, argparse.Namespace) and FILE in cfg:
        content = with_overrides(_of_options(vars(cfg)), getattr(cfg, SET, None) or (), problems)
    else:
        content = copy_tree({} if cfg is None else as_mapping(cfg), is_ours)
    if isinstance(content, list):
        content = {"hooks": content}
    if not isinstance(content, dict):
        return content
    beside = [key for key in LISTS_OF_HOOKS if key in content]
    if is_entry(content) and not beside:
        content = {"hooks": [content]}
    elif is_entry(content):
        problems.append(Problem("type", f"names a hook beside {beside[0]!r}: put this hook into the list"))
    if overrides:
        content = with_overrides(content, overrides, problems, said="overrides")
    _check_keys(content, defaults, problems)
    return content


def unread(content: Mapping[Any, Any], place: str = "", depth: int = DEEPEST_UNREAD) -> Iterator[str]:
    """Yield the places of hooks below keys of the script, which nobody reads there.

    Example:
        >>> list(unread({"lr": 0.1, "train": {"custom_hooks": ["EMAHook"]}}))
        ['train.custom_hooks']
    """
    for key, value in content.items():
        inner = below(place, key) if place else str(key)
        if place and key in LISTS_OF_HOOKS and _lists_hooks(key, value):
            yield inner
        elif depth and isinstance(value, Mapping) and key not in OURS:
            yield from unread(value, inner, depth - 1)


def why_unread(place: str) -> str:
    """Return what to do about hooks in a place where nobody reads them.

    Example:
        >>> why_unread("train.custom_hooks")
        "train.custom_hooks is not read, as it is not at the top: move it there, or pass only what is below 'train'"
    """
    return f"{place} is not read, as it is not at the top: move it there, or pass only what is below {parent(place)!r}"


def parent(place: str) -> str:
    """Return the place of the mapping that has a key.

    Example:
        >>> parent("train.custom_hooks"), parent("a.b.hooks")
        ('train', 'a.b')
    """
    return place.rpartition(".")[0]


def say_unread(content: Mapping[Any, Any]) -> None:
    """Log a line for hooks in places where nobody reads them."""
    for place in unread(content):
        logging.getLogger(LOGGER_NAME).warning("%s", why_unread(place))


def _lists_hooks(key: str, value: Any) -> bool:
    """Return whether the value of a key of ours holds hooks, and not something of a script or another library."""
    if key == "default_hooks":
        return isinstance(value, Mapping) and bool(value)
    entries = [as_mapping(item) for item in value] if isinstance(value, list) else []
    asks = (
        "type" in item and (key == "custom_hooks" or is_entry(item)) for item in entries if isinstance(item, Mapping)
    )
    return any(asks) or any(isinstance(item, str) and item.endswith("Hook") for item in entries)


def as_mapping(thing: Any) -> Any:
    """Return what an object of settings holds: a dataclass, a pydantic model, a namespace; others stay as they are.

    Example:
        >>> as_mapping(argparse.Namespace(hooks=["EMAHook"], lr=0.1))
        {'hooks': ['EMAHook'], 'lr': 0.1}
    """
    if isinstance(thing, (type, BaseHook)) or class_answers(type(thing)):
        return thing
    if isinstance(thing, (argparse.Namespace, types.SimpleNamespace)):
        return dict(vars(thing))
    if dataclasses.is_dataclass(thing):
        return {field.name: getattr(thing, field.name) for field in dataclasses.fields(thing)}
    # Another thread may be importing it just now: then nothing is a model of it yet.
    model = getattr(sys.modules.get("pydantic"), "BaseModel", None)
    if model is not None and isinstance(thing, model):
        return dict(thing)
    return thing


def _of_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration that a script's options name, with what they say themselves."""
    file = given[FILE]
    said = {key: value for key, value in given.items() if key not in (FILE, SET)}
    if file is None:
        return said
    # What is not said leaves the file as it is.
    return load_config(file) | {key: value for key, value in said.items() if key not in OURS or value is not None}


def is_entry(content: Mapping[Any, Any]) -> bool:
    """Return whether a mapping is one hook rather than a configuration.

    Example:
        >>> is_entry({"type": "EMAHook"}), is_entry({"type": "LogerHook"}), is_entry({"type": "resnet50", "depth": 3})
        (True, True, False)
    """
    type_ = content.get("type", content.get("_target_"))
    if isinstance(type_, type):
        return issubclass(type_, BaseHook) or bool(class_answers(type_))
    if not isinstance(type_, str):
        return False
    return type_ in HOOKS or type_.startswith(PREFIX) or type_.endswith("Hook") or bool(other_name(type_))


def _check_keys(content: Mapping[Any, Any], defaults: Mapping[str, Mapping[str, Any]], problems: list[Problem]) -> None:
    alone = not any(key in OURS for key in content)
    for key, value in content.items():
        if not isinstance(key, str):
            message = "the keys of a configuration are text; hooks are listed as 'hooks: [...]'"
            problems.append(Problem(below("", key), message))
        elif meant := misspelt_key(key):
            message = f"did you mean {meant!r}? If not, rename it: it is too close to that key"
            problems.append(Problem(below("", key), message))
        elif alone and key in defaults and _changes_default(value, defaults[key]):
            message = f"a default hook is changed below 'default_hooks': write default_hooks: {{{key}: ...}}"
            problems.append(Problem(key, message))


def _changes_default(value: Any, default: Mapping[str, Any]) -> bool:
    """Return whether a value can only be meant for the default hook that has its key as a name."""
    if isinstance(value, BaseHook) or class_answers(type(value)):
        return True
    if not isinstance(value, Mapping) or not value:
        return False
    given = {name: setting for name, setting in value.items() if name != "type"}
    type_ = value.get("type", default["type"])
    return isinstance(type_, str) and type_ in HOOKS and not validate_settings(HOOKS.get(type_), given, "")
