"""File or mapping -> settings: what a configuration asks for, and everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ignite_hooks.errors import ConfigError, Problem, did_you_mean, nearest
from ignite_hooks.loading import load_config, plain

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
)
"""The keys at top level that are ours; every other belongs to the script."""

SCRIPTS = ("model", "models", "dataset", "data", "training", "train", "evaluation", "optimizer", "scheduler", "imports")
"""Keys of scripts and of BaseTrainer that may look like ours."""


@dataclass(frozen=True)
class Entry:
    """One hook as the configuration asks for it: a mapping with a type, or a ready object."""

    place: str
    wanted: Any
    default_name: str | None = None


@dataclass(frozen=True)
class Settings:
    """A configuration, read."""

    entries: tuple[Entry, ...]
    writers: tuple[Any, ...] = ()
    work_dir: str | None = None
    resume: bool | str | None = None
    seed: int | None = None
    source: str = ""
    everything: Mapping[str, Any] = field(default_factory=dict)


def default_set(*, evaluates: bool = False, distributed: bool = False) -> dict[str, dict[str, Any]]:
    """The default hooks by name.

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
    cfg: str | Path | Mapping[str, Any] | Sequence[Any] | None, *, defaults: Mapping[str, Mapping[str, Any]]
) -> Settings:
    """Read what ``attach_hooks`` takes; the caller's objects are not changed.

    Raises:
        ConfigError: With every problem of the outer form; the hooks themselves are checked where they are built.
    """
    source = ""
    if isinstance(cfg, (str, Path)):
        source = str(cfg)
        cfg = load_config(cfg)
    if cfg is None:
        cfg = {}
    content: Any = plain(cfg)
    if isinstance(content, list):
        content = {"hooks": content}
    if not isinstance(content, dict):
        message = f"a path, a mapping, a list of hooks or None is needed, not {type(cfg).__name__}"
        raise ConfigError([Problem("cfg", message)], source)
    problems: list[Problem] = []
    _check_keys(content, problems)
    entries = _entries(content, defaults, problems)
    settings = Settings(
        tuple(entries),
        tuple(_writers(content, problems)),
        _work_dir(content, problems),
        _resume(content, problems),
        _seed(content, problems),
        source,
        content,
    )
    if problems:
        raise ConfigError(problems, source)
    return settings


def _check_keys(content: Mapping[str, Any], problems: list[Problem]) -> None:
    for key in content:
        if key not in OURS and key not in SCRIPTS:
            near = nearest(str(key), OURS, cutoff=0.8)
            if near:
                problems.append(Problem(str(key), f"not a key of ours, did you mean {near!r}?"))


def _entries(
    content: Mapping[str, Any], defaults: Mapping[str, Mapping[str, Any]], problems: list[Problem]
) -> list[Entry]:
    if "hooks" in content and "default_hooks" in content:
        problems.append(Problem("default_hooks", "give either 'hooks' (exactly these) or 'default_hooks', not both"))
    if content.get("hooks") is not None or "hooks" in content:
        entries = _listed(content["hooks"], "hooks", problems)
    else:
        entries = _merged(content.get("default_hooks"), defaults, problems)
    return entries + _listed(content.get("custom_hooks"), "custom_hooks", problems)


def _listed(value: Any, place: str, problems: list[Problem]) -> list[Entry]:
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
            entries.append(Entry(at, wanted))
    return entries


def _merged(value: Any, defaults: Mapping[str, Mapping[str, Any]], problems: list[Problem]) -> list[Entry]:
    if value is not None and not isinstance(value, dict):
        message = f"a mapping of names to hooks is needed, not {_kind(value)}"
        problems.append(Problem("default_hooks", message))
        value = {}
    wanted: dict[str, Any] = {name: dict(entry) for name, entry in defaults.items()}
    mentioned = set()
    for name, entry in (value or {}).items():
        place = f"default_hooks.{name}"
        mentioned.add(name)
        if entry is None:
            if name not in default_set(evaluates=True, distributed=True):
                problems.append(
                    Problem(place, f"there is no such default hook to remove{did_you_mean(name, defaults)}")
                )
            wanted.pop(name, None)
        elif not isinstance(entry, dict):
            wanted[name] = entry
        elif "type" in entry:
            wanted[name] = entry
        elif name in default_set(evaluates=True, distributed=True):
            known = default_set(evaluates=True, distributed=True)[name]
            wanted[name] = {**known, **entry}
        else:
            hint = did_you_mean(name, default_set(evaluates=True, distributed=True))
            problems.append(Problem(place, f"needs 'type': it is not one of the default hooks{hint}"))
    entries = []
    for name, entry in wanted.items():
        if _is_entry(entry, f"default_hooks.{name}", problems):
            entries.append(Entry(f"default_hooks.{name}", entry, name))
    return entries


def _is_entry(wanted: Any, place: str, problems: list[Problem]) -> bool:
    if isinstance(wanted, dict):
        if not isinstance(wanted.get("type"), (str, type)) and not callable(wanted.get("type")):
            found = did_you_mean("type", [key for key in wanted if isinstance(key, str) and len(key) < 8])
            message = "needs 'type', the name of a hook" + (f"{found}" if found and "type" not in wanted else "")
            problems.append(Problem(place, message))
            return False
        return True
    if wanted is None or isinstance(wanted, (int, float, str, list, bool, type)):
        problems.append(Problem(place, f"a mapping with 'type' or a hook object is needed, not {_kind(wanted)}"))
        return False
    return True


def _writers(content: Mapping[str, Any], problems: list[Problem]) -> list[Any]:
    if "writers" in content and "writer" in content:
        problems.append(Problem("writer", "says the same as 'writers': give one of them"))
    value = content.get("writers", content.get("writer"))
    if value is None:
        return []
    listed = value if isinstance(value, list) else [value]
    found = []
    for i, wanted in enumerate(listed):
        place = f"writers[{i}]"
        if isinstance(wanted, str):
            wanted = {"type": wanted}
        if isinstance(wanted, dict) and not isinstance(wanted.get("type"), str):
            problems.append(Problem(place, "needs 'type', the name of a writer"))
        elif isinstance(wanted, (int, float, list, bool)) or wanted is None:
            problems.append(Problem(place, f"a mapping with 'type' or a writer object is needed, not {_kind(wanted)}"))
        else:
            found.append(wanted)
    return found


def _work_dir(content: Mapping[str, Any], problems: list[Problem]) -> str | None:
    given = {key: content[key] for key in ("work_dir", "experiment_dir") if content.get(key) is not None}
    for key, value in given.items():
        if not isinstance(value, (str, Path)) or not str(value).strip() or "\0" in str(value):
            problems.append(Problem(key, f"the path of a folder is needed, not {value!r}"))
    if len(given) == 2 and len({str(value) for value in given.values()}) == 2:
        problems.append(Problem("experiment_dir", "says the same as 'work_dir': give one of them"))
    return str(next(iter(given.values()))) if given else None


def _resume(content: Mapping[str, Any], problems: list[Problem]) -> bool | str | None:
    value = content.get("resume")
    if value is None or isinstance(value, bool) or (isinstance(value, (str, Path)) and str(value).strip()):
        return str(value) if isinstance(value, Path) else value
    problems.append(Problem("resume", f"true, false, 'auto' or the path of a checkpoint is needed, not {value!r}"))
    return None


def _seed(content: Mapping[str, Any], problems: list[Problem]) -> int | None:
    value = content.get("seed")
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**32):
        return value
    problems.append(Problem("seed", f"a whole number from 0 to 4294967295 is needed, not {value!r}"))
    return None


def _kind(value: Any) -> str:
    names = {dict: "a mapping", list: "a list", str: f"the text {value!r}", bool: repr(value), type(None): "nothing"}
    return names.get(type(value), repr(value))
