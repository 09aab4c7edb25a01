"""A dry run: everything is built and called once, in a folder that does not stay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ignite_hooks.config import Entry, default_set, read_config
from ignite_hooks.errors import Problem
from ignite_hooks.registry import HOOKS, WRITERS, Registry
from ignite_hooks.settings import Setting, describe

ITERATIONS = 2
"""How many iterations a dry run has."""

AT_ONCE: Mapping[str, Any] = {"interval": 1, "frequency": 1}
FROM_THE_START: Mapping[str, Any] = {"start": 0, "begin": 0}
"""What settings are, so that a hook acts within two iterations."""

OFFLINE = "disabled"
"""The mode of trackers: a dry run leaves nothing behind, on servers and in caches of theirs neither."""

PROFILED = {"wait": 0, "warmup": 1, "active": 1}


def rehearsed(content: Mapping[str, Any], evaluates: bool) -> dict[str, Any]:
    """The configuration of a dry run: two iterations, one evaluation, every hook at every chance.

    Example:
        >>> hooks = [{"type": "LoggerHook", "interval": 50}, {"type": "MyHook", "depth": 3}]
        >>> rehearsed({"hooks": hooks}, evaluates=True)["hooks"]
        [{'type': 'LoggerHook', 'interval': 1}, {'type': 'MyHook', 'depth': 3}]
    """
    changed = {name: value for name, value in content.items() if name not in ("work_dir", "experiment_dir", "resume")}
    training = changed.get("training")
    if training is None or isinstance(training, Mapping):
        changed["training"] = {**(training or {}), "epochs": 1, "epoch_length": ITERATIONS}
    problems: list[Problem] = []
    settings = read_config(changed, defaults=default_set(evaluates=evaluates), problems=problems)
    if problems:
        # The trainer says what is wrong with it.
        return changed
    listed = [_eager(HOOKS, entry) for entry in settings.entries if entry.default_name is None]
    if "hooks" in changed:
        changed["hooks"] = listed
        changed.pop("custom_hooks", None)
    else:
        named = {entry.default_name: _eager(HOOKS, entry) for entry in settings.entries if entry.default_name}
        taken_away = {name: None for name, entry in (changed.get("default_hooks") or {}).items() if entry is None}
        changed |= {"default_hooks": named | taken_away, "custom_hooks": listed}
    if settings.writers:
        changed["writers"] = [_eager(WRITERS, entry) for entry in settings.writers]
        changed.pop("writer", None)
    return changed


def _eager(registry: Registry, entry: Entry) -> Any:
    """An entry whose hook does at once what it would do later."""
    wanted = entry.wanted
    if not isinstance(wanted, Mapping):
        return wanted
    changed = dict(wanted)
    type_ = changed["type"]
    if not isinstance(type_, str) or type_ not in registry:
        # A class of the user's own: what is said in words that all hooks have can be understood.
        return changed | {word: 1 for word in AT_ONCE if type(changed.get(word)) is int}
    known = describe(registry.get(type_))
    own = {setting.name: setting for setting in known.settings}
    if "mode" in own and "disabled" in str(own["mode"].annotation):
        changed["mode"] = OFFLINE
    if "schedule" in own and "profile_iters" in own:
        changed |= {"schedule": PROFILED, "profile_iters": ITERATIONS}
    for word, value in {**AT_ONCE, **FROM_THE_START}.items():
        # What is left at its default can be long, too; a setting that is common to all hooks is short then.
        said = word in changed or (word in own and word in AT_ONCE)
        if said and (word not in own or _counts(own[word])):
            changed[word] = value
    if isinstance(changed.get("every"), str):
        changed["every"] = "1 epoch" if "epoch" in changed["every"] else "1 iter"
        for word in ("interval", "frequency"):
            changed.pop(word, None)
    return changed


def _counts(setting: Setting) -> bool:
    """Whether a setting is a number of iterations or epochs, and not of seconds."""
    return "int" in str(setting.annotation) and "float" not in str(setting.annotation)
