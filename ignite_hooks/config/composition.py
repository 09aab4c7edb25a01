"""One configuration from several files: what the files in `_base_` say, and over it what the file says itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PureWindowsPath
from typing import Any, Final

from ignite_hooks.config.tree import error_at
from ignite_hooks.errors import ConfigError, Problem
from ignite_hooks.text import below, did_you_mean

BASE: Final = "_base_"
DELETE: Final = "_delete_"
"""The key of a mapping that replaces what the base says there, in place of changing it."""
MOST_FILES: Final = 100
"""Files that one configuration may be made of."""
NAMED_LISTS: Final = ("hooks", "custom_hooks", "writers")
"""Lists at top level whose entries have names."""
_WANTED: Final = "takes a path relative to this file, or a list of them, as in '../base.yaml'"

Read = Callable[[Path, str], dict[str, Any]]


def composed(path: Path, source: str, read: Read) -> dict[str, Any]:
    """Return what a file says together with the files that its `_base_` names; these may have bases themselves.

    Args:
        path: The file.
        source: Its name in messages.
        read: Returns what one file says.
    """
    return _Composition(read).of(path, source, ())


class _Composition:
    def __init__(self, read: Read) -> None:
        self._read, self._files = read, 0

    def of(self, path: Path, source: str, above: tuple[str, ...]) -> dict[str, Any]:
        """Return what a file says; ``above`` are the files that have named it, the first one first."""
        self._files += 1
        if self._files > MOST_FILES:
            raise error_at(source, f"the configuration is made of more than {MOST_FILES} files")
        content = self._read(path, source)
        if BASE not in content:
            return content
        place, named = f"{source}: {BASE}", content.pop(BASE)
        identity = os.path.realpath(path)
        result: dict[str, Any] = {}
        for name in _names(named, place):
            base = path.parent / name
            if os.path.realpath(base) in (*above, identity):
                raise error_at(place, f"{name!r:.100} begins with this file again: a circle has no beginning")
            result = merged(result, self.of(base, str(base), (*above, identity)), place)
        return merged(result, content, source)


def _names(named: Any, place: str) -> list[str]:
    names = [named] if isinstance(named, str) else named
    if not isinstance(names, list) or not names or not all(isinstance(name, str) and name.strip() for name in names):
        raise error_at(place, _WANTED)
    for name in names:
        if "://" in name:
            raise error_at(place, f"{name!r:.100} is a URL: it {_WANTED}")
        if name.startswith("~") or Path(name).is_absolute() or PureWindowsPath(name).drive:
            raise error_at(place, f"{name!r:.100} is true on one machine only: it {_WANTED}")
    return names


def merged(base: Mapping[str, Any], above: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return a configuration with another one laid over it, key by key; None removes what the base says.

    A mapping with ``_delete_: true`` replaces the whole. So does a list, but a mapping over a list of hooks or writers
    changes the entries that it names.

    Args:
        base: What was said before.
        above: What is said now.
        source: The file that says it, for messages.

    Raises:
        ConfigError: With every entry that is named in vain.

    Example:
        >>> base = {"seed": 1, "hooks": ["LoggerHook", {"type": "EMAHook", "momentum": 0.1}]}
        >>> merged(base, {"seed": None, "hooks": {"EMAHook": {"momentum": 0.2}, "LoggerHook": None}}, "mine.yaml")
        {'hooks': [{'type': 'EMAHook', 'momentum': 0.2}]}
    """
    problems: list[Problem] = []
    result = dict(base)
    for key, value in above.items():
        old = base.get(key)
        if key in NAMED_LISTS and isinstance(old, list) and isinstance(value, Mapping) and "type" not in value:
            result[key] = _entries(old, value, key, problems)
        else:
            _lay(result, key, value, keeps_none=key == "default_hooks")
    if problems:
        raise ConfigError(problems, source)
    return result


def _lay(result: dict[Any, Any], key: Any, value: Any, *, keeps_none: bool = False) -> None:
    """Lay one value over what is there; with ``keeps_none`` None is kept below it: it takes a hook out of a set."""
    if value is None and key in result:
        del result[key]
    else:
        result[key] = _over(result.get(key), value, keeps_none=keeps_none)


def _over(old: Any, value: Any, *, keeps_none: bool = False) -> Any:
    if not isinstance(value, Mapping):
        return value
    result = dict(old) if isinstance(old, Mapping) and value.get(DELETE) is not True else {}
    for key, item in value.items():
        if keeps_none and item is None:
            result[key] = None
        elif key != DELETE:
            _lay(result, key, item)
    return result


def _entries(old: Sequence[Any], changes: Mapping[Any, Any], key: str, problems: list[Problem]) -> list[Any]:
    """Return a list of hooks or writers with those changed or removed that a mapping names, and others added."""
    names = [_name(entry) for entry in old]
    changed: dict[int, Any] = {}
    added = []
    for name, change in changes.items():
        place = below(key, name)
        if names.count(name) > 1:
            problems.append(Problem(place, f"the base has {names.count(name)} of this name: give each a 'name' there"))
        elif name in names:
            entry = old[names.index(name)]
            settings = entry if isinstance(entry, Mapping) else {"type": entry}
            known_by = {word: settings[word] for word in ("type", "name") if word in settings}
            new = _over(settings, change)
            changed[names.index(name)] = known_by | new if isinstance(new, dict) else new
        elif change is None:
            known = [each for each in names if each is not None]
            problems.append(Problem(place, f"the base has none of this name to remove{did_you_mean(str(name), known)}"))
        else:
            added.append(_over(None, {"type": name, **change}) if isinstance(change, Mapping) else change)
    return [new for i, entry in enumerate(old) if (new := changed.get(i, entry)) is not None] + added


def _name(entry: Any) -> str | None:
    """Return the name by which an entry is known in its list: its own, or its type."""
    if isinstance(entry, Mapping):
        entry = entry.get("name") or entry.get("type")
    return entry if isinstance(entry, str) else None
