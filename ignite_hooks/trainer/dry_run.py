"""A dry run: everything is built and called once, in a temporary folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ignite_hooks.config.build import build_all
from ignite_hooks.config.describe import Setting, describe
from ignite_hooks.config.read import HookEntry, default_set, read_config
from ignite_hooks.config.validate import validate_settings
from ignite_hooks.errors import Problem
from ignite_hooks.hooks.base_hook import Situation
from ignite_hooks.registry import HOOKS, WRITERS, Registry
from ignite_hooks.trainer.sections import Training

ITERATIONS = 2
"""How many iterations a dry run has."""

AT_ONCE: Mapping[str, Any] = {"interval": 1, "frequency": 1}
FROM_THE_START: Mapping[str, Any] = {"start": 0, "begin": 0}
"""What settings are, so that a hook acts within two iterations."""

OFFLINE = "disabled"
"""The mode of trackers: a dry run leaves nothing behind, on servers and in caches of theirs neither."""

PROFILED = {"wait": 0, "warmup": 1, "active": 1}

WRITTEN = ("out_dir", "log_dir", "log_path", "path", "work_dir")
"""Settings that say where files go."""


def dry_run_config(content: Mapping[str, Any], evaluates: bool) -> dict[str, Any]:
    """Return the configuration of a dry run: two iterations, one evaluation, every hook whenever possible.

    Example:
        >>> hooks = [{"type": "LoggerHook", "interval": 50}, {"type": "MyHook", "depth": 3}]
        >>> dry_run_config({"hooks": hooks}, evaluates=True)["hooks"]
        [{'type': 'LoggerHook', 'interval': 1}, {'type': 'MyHook', 'depth': 3}]
    """
    changed = {name: value for name, value in content.items() if name not in ("work_dir", "experiment_dir", "resume")}
    training = changed.get("training")
    if training is None or isinstance(training, Mapping):
        changed["training"] = _short(training or {})
    problems: list[Problem] = []
    settings = read_config(content, defaults=default_set(evaluates=evaluates), problems=problems)
    if problems:
        # The trainer reports what is wrong with it.
        return {**content, **changed}
    listed = [entry for entry in settings.entries if entry.default_name is None]
    for section in ("hooks", "custom_hooks"):
        if section in changed:
            changed[section] = [_eager(HOOKS, entry) for entry in listed if entry.place.startswith(section)]
    if "hooks" not in changed:
        named = {entry.default_name: _eager(HOOKS, entry) for entry in settings.entries if entry.default_name}
        taken_away = {name: None for name, entry in (changed.get("default_hooks") or {}).items() if entry is None}
        changed["default_hooks"] = named | taken_away
    if settings.writers:
        changed["writers"] = [_eager(WRITERS, entry) for entry in settings.writers]
        changed.pop("writer", None)
    return changed


def _short(training: Mapping[str, Any]) -> dict[str, Any]:
    """Shorten the training to two iterations; leave what is wrong, so that the trainer finds it."""
    wrong = {problem.place for problem in validate_settings(Training, training, "training", hook=False)}
    short = {"epochs": 1, "epoch_length": ITERATIONS}
    return {**training, **{name: value for name, value in short.items() if f"training.{name}" not in wrong}}


def _eager(registry: Registry, entry: HookEntry) -> Any:
    """Return an entry whose hook does at once what it would do later."""
    wanted = entry.wanted
    if not isinstance(wanted, Mapping):
        return wanted
    changed = dict(wanted)
    type_ = changed["type"]
    if not isinstance(type_, str) or type_ not in registry:
        # A user's class: only settings that every hook has are understood.
        return changed | {word: 1 for word in AT_ONCE if type(changed.get(word)) is int and changed[word] > 0}
    if _is_wrong(registry, entry):
        return changed  # as it is, so that the trainer finds it
    known = describe(registry.get(type_))
    own = {setting.name: setting for setting in known.settings}
    if "mode" in own and "disabled" in str(own["mode"].annotation):
        changed["mode"] = OFFLINE
    if "webhook" in own:
        changed["at"] = []  # nothing to notify of
    for word in WRITTEN:
        if word in own and isinstance(changed.get(word), (str, Path)):
            changed[word] = _within(changed[word])
    if "schedule" in own and "profile_iters" in own:
        changed |= {"schedule": PROFILED, "profile_iters": ITERATIONS}
    for word, value in {**AT_ONCE, **FROM_THE_START}.items():
        # A default may be too long as well; the defaults of settings that every hook has are short.
        said = word in changed or (word in own and word in AT_ONCE)
        if said and (word not in own or _counts(own[word])):
            changed[word] = value
    if changed.get("every") is not None:
        spelt = str(getattr(changed["every"], "name", changed["every"])).lower()
        changed["every"] = "1 epoch" if "epoch" in spelt else "1 iter"
        for word in ("interval", "frequency"):
            changed.pop(word, None)
    return changed


def _is_wrong(registry: Registry, entry: HookEntry) -> bool:
    if registry is HOOKS:
        return bool(build_all([entry], {}, Situation(complete=False))[1])
    given = {name: value for name, value in entry.wanted.items() if name != "type"}
    return bool(validate_settings(registry.get(entry.wanted["type"]), given, entry.place, hook=False))


def _within(path: str | Path) -> str:
    """Move a path into the folder of the dry run."""
    path = Path(path)
    return path.name or "out" if path.is_absolute() or ".." in path.parts else str(path)


def _counts(setting: Setting) -> bool:
    """Return whether a setting is a number of iterations or epochs, not of seconds."""
    return "int" in str(setting.annotation) and "float" not in str(setting.annotation)
