"""Tables of settings and prose of docstrings, as Markdown."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from typing import Any

from ignite_hooks.config.describe import Setting, type_in_words

_SIGNS = re.compile("[_*]")


def settings_table(settings: Sequence[Setting], *, with_help: bool = True) -> list[str]:
    """Return settings as a table, with their defaults and their types."""
    lines = ["| setting | type | default | what it is |", "|---|---|---|---|"] if settings else []
    for each in settings:
        default = "needed" if each.required else f"`{plain(each.default)}`"
        text = cell(each.help) if with_help else ""
        lines.append(f"| `{each.name}` | {cell(type_in_words(each.annotation))} | {default} | {text} |")
    return lines


def prose(cls: Any) -> list[str]:
    """Return the paragraphs of a docstring before its sections."""
    text = inspect.getdoc(cls) or ""
    text = re.split(r"^(?:Args|Reads|Writes|Saves|Example):", text, flags=re.MULTILINE)[0].strip()
    return [outside(text.replace("``", "`"))]


def plain(value: Any) -> str:
    """Return a default as it is written in YAML."""
    words: dict[Any, str] = {None: "null", True: "true", False: "false"}
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(plain, value))}]"
    return words.get(value, str(value)) if value is None or isinstance(value, bool) else str(value).replace("|", "\\|")


def cell(text: str) -> str:
    """Return a text for a cell of a table."""
    return outside(" ".join(text.split()).replace("|", "\\|").replace("``", "`"))


def outside(text: str) -> str:
    """Escape elements and emphasis outside of code, such as ``<name>_of_<file>``."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        part if part.startswith("`") else _SIGNS.sub(r"\\\g<0>", part).replace("<", "&lt;") for part in parts
    )
