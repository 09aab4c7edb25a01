"""Read a configuration: what it asks for, and everything that is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ignite_hooks.config.files import load_config
from ignite_hooks.config.tree import copy_tree
from ignite_hooks.errors import ConfigError, Problem
from ignite_hooks.text import below, did_you_mean, nearest, shown

OURS = (
    "hooks",
    "default_hooks",
    "custom_hooks",
    "writers",
    "writer",
    "work_dir",
    "experiment_dir",
    "resume",
    "seed",
    "rank_timeout",
    "overhead_budget",
)
"""The keys at top level that are ours; all others belong to the script."""

SCRIPTS = (
    "model",
    "models",
    "dataset",
    "data",
    "training",
    "train",
    "evaluation",
    "optimizer",
    "scheduler",
    "imports",
    "speed",
)
"""Keys of scripts and of BaseTrainer that resemble ours."""


KNOWN_BESIDES = {"param_scheduler": {"type": "ParamSchedulerHook"}}
"""A default hook of MMEngine that is none here: it can be removed, or configured without its type."""


@dataclass(frozen=True)
class HookEntry:
    """One hook or writer that a configuration asks for: a mapping with a type, or a ready object."""

    place: str
    wanted: Any
    default_name: str | None = None


@dataclass(frozen=True)
class Settings:
    """A configuration that has been read."""

    entries: tuple[HookEntry, ...]
    writers: tuple[HookEntry, ...] = ()
    work_dir: str | None = None
    resume: bool | str | None = None
    seed: int | None = None
    rank_timeout: float = 30.0
    overhead_budget: float | None = None
    source: str = ""
    everything: Mapping[str, Any] = field(default_factory=dict)


def default_set(*, evaluates: bool = False, distributed: bool = False) -> dict[str, dict[str, Any]]:
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
    if distributed:
        chosen |= {"sampler_seed": {"type": "DistSamplerSeedHook"}, "sync_buffers": {"type": "SyncBuffersHook"}}
    return chosen


def read_config(
    cfg: str | Path | Mapping[str, Any] | Sequence[Any] | None,
    *,
    defaults: Mapping[str, Mapping[str, Any]],
    problems: list[Problem] | None = None,
) -> Settings:
    """Read what ``attach_hooks`` takes; the caller's objects stay unchanged.

    Problems of the outer form are added to ``problems``, so that the hooks can be checked too before all of them are
    reported; the hooks themselves are checked where they are built.

    Raises:
        ConfigError: What cannot be read at all; without a list of ``problems``, with any of them.
    """
    found: list[Problem] = [] if problems is None else problems
    source = ""
    if isinstance(cfg, (str, Path)):
        source = str(cfg)
        content: Any = load_config(cfg)
    else:
        content = copy_tree({} if cfg is None else cfg)
    if isinstance(content, list):
        content = {"hooks": content}
    if not isinstance(content, dict):
        message = f"a path, a mapping, a list of hooks or None is needed, not {_kind(cfg)}"
        raise ConfigError([Problem("cfg", message)], source)
    _check_keys(content, found)
    entries = _entries(content, defaults, found)
    settings = Settings(
        tuple(entries),
        tuple(_writers(content, found)),
        _work_dir(content, found),
        checked_resume(content.get("resume"), found),
        _seed(content, found),
        _rank_timeout(content, found),
        _overhead_budget(content, found),
        source,
        content,
    )
    if found and problems is None:
        raise ConfigError(found, source)
    return settings


def _rank_timeout(content: Mapping[str, Any], problems: list[Problem]) -> float:
    seconds = content.get("rank_timeout", 30.0)
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < float("inf"):
        message = f"seconds are needed, or 0 where ranks do not watch each other, not {shown(seconds)}"
        problems.append(Problem("rank_timeout", message))
        return 30.0
    return float(seconds)


def _check_keys(content: Mapping[str, Any], problems: list[Problem]) -> None:
    for key in content:
        if key not in OURS and key not in SCRIPTS and (meant := _nearly_ours(key)):
            message = f"did you mean {meant!r}? If not, rename it: it is too close to that key"
            problems.append(Problem(below("", key), message))


def _nearly_ours(key: object) -> str | None:
    """Return the key of ours that a key misspells: with a letter too many or too few, or two letters exchanged."""
    exchanged = [ours for ours in OURS if isinstance(key, str) and key[:1] == ours[0] and sorted(key) == sorted(ours)]
    return exchanged[0] if exchanged else nearest(key, OURS, cutoff=0.8)


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
        if isinstance(wanted, str):
            wanted = {"type": wanted}
        if _is_entry(wanted, at, problems):
            entries.append(HookEntry(at, wanted))
    return entries


def _merged(value: Any, defaults: Mapping[str, Mapping[str, Any]], problems: list[Problem]) -> list[HookEntry]:
    if value is not None and not isinstance(value, dict):
        message = f"a mapping of names to hooks is needed, not {_kind(value)}"
        problems.append(Problem("default_hooks", message))
        value = {}
    wanted: dict[str, Any] = {name: dict(entry) for name, entry in defaults.items()}
    known = default_set(evaluates=True, distributed=True) | KNOWN_BESIDES
    for name, entry in (value or {}).items():
        place = below("default_hooks", name)
        hint = did_you_mean(name, known) or f"; there are {', '.join(known)}"
        if not isinstance(name, str):
            problems.append(Problem(place, "the name of a hook is text: put it in quotes"))
        elif entry is None:
            if name not in known:
                problems.append(Problem(place, f"no default hook has this name, so it cannot be removed{hint}"))
            wanted.pop(name, None)
        elif not isinstance(entry, dict) or "type" in entry:
            wanted[name] = entry
        elif name in known:
            wanted[name] = {**known[name], **entry}
        else:
            problems.append(Problem(place, f"no default hook has this name, so it needs 'type'{hint}"))
    entries = []
    for name, entry in wanted.items():
        place = below("default_hooks", name)
        if _is_entry(entry, place, problems):
            entries.append(HookEntry(place, entry, name))
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
        slip = next((key for key in wanted if nearest(key, ["type"], cutoff=0.7)), None)
        problems.append(Problem(place, f"needs 'type', {what}" + (f": it has {slip!r}" if slip else "")))
    elif not isinstance(type_, str) and not callable(type_):
        problems.append(Problem(f"{place}.type", f"{what} is needed, not {_kind(type_)}"))
    else:
        return True
    return False


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
    given = {key: content[key] for key in ("work_dir", "experiment_dir") if content.get(key) is not None}
    fitting = {key: str(value) for key, value in given.items() if _is_path(value)}
    for key in [key for key in given if key not in fitting]:
        problems.append(Problem(key, f"the path of a folder is needed, not {shown(given[key])}"))
    if len(set(fitting.values())) == 2:
        problems.append(Problem("experiment_dir", "another name for 'work_dir', which says something else: give one"))
    return next(iter(fitting.values()), None)


def checked_resume(value: Any, problems: list[Problem]) -> bool | str | None:
    """Return what ``resume`` says; anything but true, false and a path is added to the problems."""
    if value is None or isinstance(value, bool):
        return value
    if _is_path(value):
        return str(value)
    problems.append(Problem("resume", f"true, false, 'auto' or the path of a checkpoint is needed, not {shown(value)}"))
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


def new_folder(source: str, resume: object) -> Path:
    """Return a folder that no run of this configuration has used; to resume, the one of the newest run."""
    stem = Path(source).stem if source else "run"
    root = Path("work_dirs")
    names = [path.name for path in root.iterdir()] if root.is_dir() else []
    used = [1] if stem in names else []
    used += [int(name[len(stem) + 1 :]) for name in names if re.fullmatch(rf"{re.escape(stem)}-[1-9][0-9]*", name)]
    number = max(used, default=0) + (not resume or not used)
    return root / (stem if number == 1 else f"{stem}-{number}")
