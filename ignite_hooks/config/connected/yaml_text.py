"""YAML of a configuration, and single values changed in a text that somebody wrote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from ignite_hooks.config.connected.parameters import SCALARS, as_text
from ignite_hooks.config.files import StrictLoader, parse_yaml
from ignite_hooks.config.keys import is_ours
from ignite_hooks.errors import ConfigError


class _Dumper(yaml.SafeDumper):
    """Puts text in quotes that YAML 1.2 reads as a number, as well as what YAML 1.1 does."""


for _resolvers in StrictLoader.yaml_implicit_resolvers.values():
    for _tag, _pattern in _resolvers:
        _Dumper.add_implicit_resolver(_tag, _pattern, None)


def as_yaml(content: Mapping[Any, Any]) -> str:
    """Return a configuration as YAML; an object that YAML cannot hold is represented by the name of its class."""
    return str(yaml.dump(as_written(content), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100))


def as_written(value: Any) -> Any:
    """Return a value as plain data.

    Example:
        >>> as_written({1: (2.5, Path("a")), "hook": object()})
        {'1': [2.5, 'a'], 'hook': '<object>'}
    """
    if isinstance(value, Mapping):
        return {str(name): as_written(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_written(item) for item in value]
    return (
        value if isinstance(value, SCALARS) else str(value) if isinstance(value, Path) else f"<{type(value).__name__}>"
    )


def read_text(text: str, source: str) -> Any:
    """Return the configuration that a text holds.

    Raises:
        ConfigError: With every problem of the text.
    """
    value = parse_yaml(text, source, is_ours)
    return {"hooks": value} if isinstance(value, list) else value


def text_of(wanted: Mapping[Any, Any], text: str | None) -> str:
    """Return a text for a configuration: the given one with only those values replaced that differ, where that works.

    Example:
        >>> print(text_of({"seed": 2, "hooks": ["EMAHook"]}, "seed: 1  # any\\nhooks: [EMAHook]  # smooth"))
        seed: 2  # any
        hooks: [EMAHook]  # smooth
        >>> print(text_of({"seed": 2, "work_dir": "x"}, "seed: 1  # any"), end="")
        seed: 2
        work_dir: x
    """
    if text is not None:
        try:
            changed = _with_values(text, wanted)
            if changed is not None and as_yaml(read_text(changed, "")) == as_yaml(wanted):
                return changed
        except (ConfigError, yaml.YAMLError):
            pass  # it is not YAML, or what was put in changed its meaning
    return as_yaml(wanted)


def _with_values(text: str, wanted: Mapping[Any, Any]) -> str | None:
    loader = StrictLoader(text, "")
    root = loader.get_single_node()
    if isinstance(root, yaml.SequenceNode):
        wanted = wanted.get("hooks", [])
    edits = sorted(_edits(loader, root, as_written(wanted)), key=lambda edit: edit[0], reverse=True)
    for start, end, new in edits:
        text = f"{text[:start]}{' ' if start == end else ''}{new}{text[end:]}"
    return text


def _edits(loader: StrictLoader, node: Any, wanted: Any) -> Iterator[tuple[int, int, str]]:
    """Yield the places of scalars whose values differ."""
    if isinstance(node, yaml.MappingNode) and isinstance(wanted, Mapping):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in wanted:
                yield from _edits(loader, value, wanted[key.value])
    elif isinstance(node, yaml.SequenceNode) and isinstance(wanted, list) and len(wanted) == len(node.value):
        for item, value in zip(node.value, wanted, strict=True):
            yield from _edits(loader, item, value)
    elif isinstance(node, yaml.Node) and as_yaml({"": as_written(loader.data(node))}) != as_yaml({"": wanted}):
        yield node.start_mark.index, node.end_mark.index, as_text(wanted)
