"""Read a configuration: what it asks for, and everything that is wrong with it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ignite_hooks.config.outer_form import as_content, as_mapping
from ignite_hooks.config.signals import read_requeue, read_signals
from ignite_hooks.config.starting_weights import LoadFrom, read_load_from
from ignite_hooks.errors import ConfigError, Problem
from ignite_hooks.registry import HOOKS
from ignite_hooks.text import below, did_you_mean, nearest, shown

KNOWN_BESIDES = {"param_scheduler": {"type": "ParamSchedulerHook"}}
"""A default hook of MMEngine that is none here: it can be removed, or configured without its type."""


@dataclass(frozen=True)
class HookEntry:
    """One hook or writer that a configuration asks for: a mapping with a type, or a ready object."""

    place: str
    wanted: Any
    default_name: str | None = None
    is_unasked: bool = False
    """Whether it is a default hook that the configuration does not mention, which is off if it cannot work."""


@dataclass(frozen=True)
class Settings:
    """A configuration that has been read."""

    entries: tuple[HookEntry, ...]
    writers: tuple[HookEntry, ...] = ()
    work_dir: str | None = None
    resume: bool | str | None = None
    resume_settings: Literal["config", "checkpoint", "refuse"] = "config"
    load_from: LoadFrom | None = None
    seed: int | None = None
    rank_timeout: float = 30.0
    overhead_budget: float | None = None
    signals: Mapping[int, str] = field(default_factory=dict)
    requeue: bool = False
    source: str = ""
    everything: Mapping[str, Any] = field(default_factory=dict)


def default_set(
    *, evaluates: bool = False, distributed: bool = False, notebook: bool = False
) -> dict[str, dict[str, Any]]:
    """Return the default hooks by name.

    Example:
        >>> list(default_set(evaluates=True))
        ['runtime_info', 'timer', 'logger', 'checkpoint', 'eval']
    """
    chosen: dict[str, dict[str, Any]] = {
        "runtime_info": {"type": "RuntimeInfoHook"},
        "timer": {"type": "IterTimerHook"},
        "logger": {"type": "LoggerHook"},
        "checkpoint": {"type": "CheckpointHook"},
    }
    if evaluates:
        chosen["eval"] = {"type": "EvalHook"}
    if notebook:
        chosen["notebook"] = {"type": "NotebookHook"}
    if distributed:
        chosen |= {"sampler_seed": {"type": "DistSamplerSeedHook"}, "sync_buffers": {"type": "SyncBuffersHook"}}
    return chosen


def with_schedule_free(entries: Sequence[HookEntry], optimizer: Any) -> tuple[HookEntry, ...]:
    """Return the hooks with the one that a schedule-free optimizer needs, unless one of them keeps averages already."""
    from ignite_hooks.model.schedule_free import is_schedule_free

    if not is_schedule_free(optimizer) or any(
        getattr(_class_of(one.wanted), "keeps_averages", False) for one in entries
    ):
        return tuple(entries)
    return (*entries, HookEntry("schedule_free", {"type": "ScheduleFreeHook", "name": "schedule_free"}))


def _class_of(wanted: Any) -> Any:
    """Return the class of a hook that is asked for; None for a name that is unknown."""
    type_ = wanted.get("type") if isinstance(wanted, Mapping) else wanted
    if isinstance(type_, str):
        return HOOKS.get(type_) if type_ in HOOKS else None
    return type_ if isinstance(type_, type) else type(type_)


def read_config(
    cfg: str | Path | Mapping[str, Any] | Sequence[Any] | None,
    *,
    defaults: Mapping[str, Mapping[str, Any]],
    problems: list[Problem] | None = None,
    overrides: Sequence[str] = (),
) -> Settings:
    """Read what ``attach_hooks`` takes; the caller's objects stay unchanged.

    Problems of the outer form are added to ``problems``, so that the hooks can be checked too before all of them are
    reported; the hooks themselves are checked where they are built.

    Raises:
        ConfigError: What cannot be read at all; without a list of ``problems``, with any of them.
    """
    found: list[Problem] = [] if problems is None else problems
    source = str(cfg) if isinstance(cfg, (str, Path)) else ""
    content = as_content(cfg, default_set(evaluates=True, distributed=True, notebook=True), found, overrides)
    if not isinstance(content, dict):
        message = f"a path, a mapping, a list of hooks or None is needed, not {_kind(cfg)}"
        raise ConfigError([Problem("cfg", message)], source)
    entries = _entries(content, defaults, found)
    settings = Settings(
        tuple(entries),
        tuple(_writers(content, found)),
        _work_dir(content, found),
        checked_resume(content.get("resume"), found),
        _resume_settings(content, found),
        read_load_from(content.get("load_from"), found),
        _seed(content, found),
        _rank_timeout(content, found),
        _overhead_budget(content, found),
        read_signals(content, found),
        read_requeue(content, found),
        source,
        content,
    )
    if found and problems is None:
        raise ConfigError(found, source)
    return settings


def _resume_settings(content: Mapping[str, Any], problems: list[Problem]) -> Literal["config", "checkpoint", "refuse"]:
    wanted = content.get("resume_settings", "config")
    if wanted in ("config", "checkpoint", "refuse"):
        return wanted  # type: ignore[no-any-return]
    problems.append(Problem("resume_settings", f"'config', 'checkpoint' or 'refuse' is needed, not {shown(wanted)}"))
    return "config"


def _rank_timeout(content: Mapping[str, Any], problems: list[Problem]) -> float:
    seconds = content.get("rank_timeout", 30.0)
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < float("inf"):
        message = f"seconds are needed, or 0 where ranks do not watch each other, not {shown(seconds)}"
        problems.append(Problem("rank_timeout", message))
        return 30.0
    return float(seconds)


def _entries(
    content: Mapping[str, Any], defaults: Mapping[str, Mapping[str, Any]], problems: list[Problem]
) -> list[HookEntry]:
    if "hooks" in content and "default_hooks" in content:
        problems.append(Problem("default_hooks", "give either 'hooks' (exactly these) or 'default_hooks', not both"))
    if "hooks" in content:
        entries = _listed(content["hooks"], "hooks", problems)
    else:
        entries = _merged(content.get("default_hooks"), defaults, problems)
    return entries + _listed(content.get("custom_hooks"), "custom_hooks", problems)


def _listed(value: Any, place: str, problems: list[Problem]) -> list[HookEntry]:
    if value is None:
        return []
    if not isinstance(value, list):
        problems.append(Problem(place, f"a list of hooks is needed, not {_kind(value)}"))
        return []
    entries = []
    for i, wanted in enumerate(value):
        at = f"{place}[{i}]"
        wanted = {"type": wanted} if isinstance(wanted, str) else as_mapping(wanted)
        if _is_entry(wanted, at, problems):
            entries.append(HookEntry(at, wanted))
    return entries


def _merged(value: Any, defaults: Mapping[str, Mapping[str, Any]], problems: list[Problem]) -> list[HookEntry]:
    if value is not None and not isinstance(value, dict):
        message = f"a mapping of names to hooks is needed, not {_kind(value)}"
        problems.append(Problem("default_hooks", message))
        value = {}
    wanted: dict[str, Any] = {name: dict(entry) for name, entry in defaults.items()}
    known = default_set(evaluates=True, distributed=True, notebook=True) | KNOWN_BESIDES
    for name, entry in (value or {}).items():
        place = below("default_hooks", name)
        hint = did_you_mean(name, known) or f"; there are {', '.join(known)}"
        if not isinstance(name, str):
            problems.append(Problem(place, "the name of a hook is text: put it in quotes"))
        elif entry is None:
            if name not in known:
                problems.append(Problem(place, f"no default hook has this name, so it cannot be removed{hint}"))
            wanted.pop(name, None)
        elif not isinstance(entry := as_mapping(entry), dict) or "type" in entry:
            wanted[name] = entry
        elif name in known:
            wanted[name] = {**known[name], **entry}
        else:
            problems.append(Problem(place, f"no default hook has this name, so it needs 'type'{hint}"))
    entries = []
    for name, entry in wanted.items():
        place = below("default_hooks", name)
        if _is_entry(entry, place, problems):
            entries.append(HookEntry(place, entry, name, name not in (value or {})))
    return entries


def _is_entry(wanted: Any, place: str, problems: list[Problem]) -> bool:
    if isinstance(wanted, dict):
        return _has_type(wanted, place, "the name of a hook", problems)
    if wanted is None or isinstance(wanted, (int, float, str, list, bool)):
        problems.append(Problem(place, f"a mapping with 'type' or a hook object is needed, not {_kind(wanted)}"))
        return False
    return True


def _has_type(wanted: dict[str, Any], place: str, what: str, problems: list[Problem]) -> bool:
    """Return whether a mapping names its class; the class itself may stand for its name."""
    type_ = wanted.get("type")
    if "type" not in wanted:
        problems.append(Problem(place, f"needs 'type', {what}{_instead_of_type(wanted)}"))
    elif not isinstance(type_, str) and not callable(type_):
        problems.append(Problem(f"{place}.type", f"{what} is needed, not {_kind(type_)}"))
    else:
        return True
    return False


def _instead_of_type(wanted: Mapping[Any, Any]) -> str:
    target = wanted.get("_target_")
    if isinstance(target, str):
        name = target.rpartition(".")[2]
        return f"; '_target_' is for Hydra: write type: {name}, or pass hydra.utils.instantiate(cfg.hooks)"
    slip = next((key for key in wanted if nearest(key, ["type"], cutoff=0.7)), None)
    return f": it has {slip!r}" if slip else ""


def _writers(content: Mapping[str, Any], problems: list[Problem]) -> list[HookEntry]:
    if "writers" in content and "writer" in content:
        problems.append(Problem("writer", "another name for 'writers': give one of them"))
    value = content.get("writers", content.get("writer"))
    if value is None:
        return []
    listed = value if isinstance(value, list) else [value]
    found = []
    for i, wanted in enumerate(listed):
        place = f"writers[{i}]"
        if isinstance(wanted, str):
            wanted = {"type": wanted}
        if isinstance(wanted, dict):
            fits = _has_type(wanted, place, "the name of a writer", problems)
        else:
            fits = wanted is not None and not isinstance(wanted, (int, float, list, bool))
            if not fits:
                message = f"a mapping with 'type' or a writer object is needed, not {_kind(wanted)}"
                problems.append(Problem(place, message))
        if fits:
            found.append(HookEntry(place, wanted))
    return found


def _work_dir(content: Mapping[str, Any], problems: list[Problem]) -> str | None:
    found = [checked_folder(content.get(key), problems, key) for key in ("work_dir", "experiment_dir")]
    given = [folder for folder in found if folder is not None]
    if len(set(given)) == 2:
        problems.append(Problem("experiment_dir", "another name for 'work_dir', which says something else: give one"))
    return next(iter(given), None)


def checked_folder(value: Any, problems: list[Problem], place: str = "work_dir") -> str | None:
    """Return the path of a folder with ``~`` and variables filled in; what cannot be one is added to the problems.

    Args:
        value: The path; None if there is none.
        problems: Where a problem goes.
        place: The key or argument.
    """
    if value is None:
        return None
    if not _is_path(value):
        problems.append(Problem(place, f"the path of a folder is needed, not {shown(value)}"))
        return None
    # A Path has lost one of the slashes of a URL.
    if url := re.fullmatch(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.*)", os.fspath(value)):
        remote = f"{url[1]}://{url[2]}"
        words = f"{remote} is no folder of this machine: give a local folder here, and CheckpointHook mirror: {remote}"
        problems.append(Problem(place, words))
        return None
    path = os.path.expandvars(os.path.expanduser(value))
    if unset := re.findall(r"\$(?:\{[^}]*\}|\w+)", path):
        problems.append(Problem(place, f"{unset[0]} is not set: set this variable, or write the path without it"))
        return None
    if file := next((part for part in (Path(path), *Path(path).parents) if part.is_file()), None):
        problems.append(Problem(place, f"{file} is a file: give the path of a folder"))
        return None
    return str(path)


def checked_resume(value: Any, problems: list[Problem]) -> bool | str | None:
    """Return what ``resume`` says; anything but true, false, a word for it and a path is added to the problems."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Path) and len(value.parts) == 1:
        # A path is a path, also where it reads like one of the words.
        return os.path.join(os.curdir, value) if not str(value).startswith("~") else os.path.expanduser(value)
    if _is_path(value):
        return os.path.expanduser(str(value))
    needed = "true, false, 'auto', 'required' or the path of a checkpoint"
    problems.append(Problem("resume", f"{needed} is needed, not {shown(value)}"))
    return None


def _is_path(value: Any) -> bool:
    return isinstance(value, (str, Path)) and str(value).strip() != "" and "\0" not in str(value)


def _seed(content: Mapping[str, Any], problems: list[Problem]) -> int | None:
    value = content.get("seed")
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**32):
        return value
    problems.append(Problem("seed", f"a whole number from 0 to 4294967295 is needed, not {shown(value)}"))
    return None


def _overhead_budget(content: Mapping[str, Any], problems: list[Problem]) -> float | None:
    value = content.get("overhead_budget")
    if value is None or (isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= 1):
        return value
    message = f"the share of the time that a hook may take is needed, above 0 and at most 1, not {shown(value)}"
    problems.append(Problem("overhead_budget", message))
    return None


def _kind(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return "a mapping" if isinstance(value, dict) else "a list"
    return f"the text {shown(value)}" if isinstance(value, str) else "null" if value is None else shown(value)
