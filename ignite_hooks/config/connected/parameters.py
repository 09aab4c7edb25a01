"""A configuration as hyper-parameters in sections, and their values as text."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ignite_hooks.config.files import parse_yaml
from ignite_hooks.errors import ConfigError

SCALARS = (bool, int, float, str, type(None))
HOOKS, WRITERS, TOP = "Hooks", "Writers", "Run"
"""The sections of hooks, of writers, and of the scalars at top level."""


class Parameter(NamedTuple):
    """One hyper-parameter: where it stands in the configuration, and its value."""

    path: tuple[Any, ...]
    value: Any


def parameters_of(content: Mapping[Any, Any]) -> dict[str, Parameter]:
    """Return the values of a configuration by the names that they have as hyper-parameters.

    Example:
        >>> content = {"training": {"optimizer": {"lr": 0.1}}, "hooks": [{"type": "EMAHook", "decay": 0.9}], "seed": 3}
        >>> [(name, value) for name, (_, value) in parameters_of(content).items()]  # doctest: +NORMALIZE_WHITESPACE
        [('Training/optimizer/lr', 0.1), ('Hooks/EMAHook/type', 'EMAHook'), ('Hooks/EMAHook/decay', 0.9),
         ('Run/seed', 3)]
    """
    found: dict[str, Parameter] = {}
    for name, parameter in _all(content):
        while name in found:
            name += "_"
        found[name] = parameter
    return found


def _all(content: Mapping[Any, Any]) -> Iterator[tuple[str, Parameter]]:
    sections = sections_of(content)
    for key, value in content.items():
        if key in ("hooks", "custom_hooks", "writers") and isinstance(value, list):
            for i, entry in enumerate(value):
                section = f"{sections[key]}/{entry_name(entry)}"
                yield from _below(section, (key, i), entry if isinstance(entry, Mapping) else {"type": entry})
        elif isinstance(value, Mapping):
            yield from _below(sections[key], (key,), value)
        else:
            yield from _below(f"{TOP}/{key}", (key,), value)


def _below(name: str, path: tuple[Any, ...], value: Any) -> Iterator[tuple[str, Parameter]]:
    if isinstance(value, SCALARS) or _is_one_value(value):
        yield name, Parameter(path, value)
    elif isinstance(value, (Mapping, list)):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _below(f"{name}/{key}", (*path, key), item)


def _is_one_value(value: Any) -> bool:
    """Return whether a list, or an empty mapping, is shown as one value: ``betas: [0.9, 0.99]``."""
    if isinstance(value, Mapping):
        return not value
    return isinstance(value, list) and all(isinstance(item, SCALARS) or _is_one_value(item) for item in value)


def sections_of(content: Mapping[Any, Any]) -> dict[Any, str]:
    """Return the section of every key at top level that has one of its own.

    Example:
        >>> sections_of({"training": {}, "custom_hooks": [], "seed": 1, "Training": {}})
        {'training': 'Training', 'custom_hooks': 'Hooks', 'Training': 'Training_'}
    """
    found: dict[Any, str] = {}
    for key, value in content.items():
        if key in ("hooks", "custom_hooks", "default_hooks"):
            found[key] = HOOKS
        elif key == "writers":
            found[key] = WRITERS
        elif isinstance(value, Mapping):
            section = f"{str(key)[:1].upper()}{str(key)[1:]}".replace("/", "_")
            while section in found.values() or section in (HOOKS, WRITERS, TOP):
                section += "_"
            found[key] = section
    return found


def entry_name(entry: Any) -> str:
    """Return the name that the hook or writer of an entry has in the plan."""
    if not isinstance(entry, Mapping):
        return entry.rpartition(".")[2] if isinstance(entry, str) else type(entry).__name__
    named = entry.get("name")
    type_ = entry.get("type")
    return named if isinstance(named, str) and named else str(type_).rpartition(".")[2]


def as_text(value: Any) -> str:
    """Return a value as the text of a hyper-parameter, which is read as in YAML.

    Example:
        >>> [as_text(value) for value in (0.1, True, None, "auto", "true", [1, 2])]
        ['0.1', 'true', 'null', 'auto', '"true"', '[1, 2]']
    """
    if isinstance(value, str):
        return value if _read(value) == value else json.dumps(value, ensure_ascii=False)
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (bool, list, Mapping, type(None))) else str(value)


def _read(text: str) -> Any:
    try:
        return parse_yaml(text, "") if text.strip() else None
    except ConfigError:
        return None


def parsed(text: str, recorded: Any = None) -> Any:
    """Return the value of a text that came back; ``recorded`` is what the parameter was when the task was made.

    Raises:
        ConfigError: The text is no value.

    Example:
        >>> parsed("1e-4", 0.1), parsed("yes", "no"), parsed("", "x"), parsed("", 3), parsed("key: value", "x")
        (0.0001, 'yes', '', None, 'key: value')
    """
    if text == as_text(recorded):
        return recorded
    is_text = isinstance(recorded, str)
    if not text.strip():
        return "" if is_text else None
    try:
        value = parse_yaml(text, "")
    except ConfigError:
        if is_text:
            return text
        raise
    return text if is_text and isinstance(value, Mapping) and value else value
