"""Set the text of the commands for the terminal, or for a pipe."""

from __future__ import annotations

import shutil
import sys
import textwrap
from typing import Any

from ignite_hooks.terminal import is_terminal

WIDEST = 100
"""Text is not set wider than this, however wide the terminal."""


def on_terminal() -> bool:
    """Return whether stdout is a terminal."""
    return is_terminal(sys.stdout)


def terminal_columns() -> int:
    """Return the columns of the terminal; for a pipe, the most a line should have."""
    return shutil.get_terminal_size().columns if on_terminal() else WIDEST


def one_line_width() -> int:
    """Return the columns of the terminal; for a pipe no limit, so that grep finds whole lines."""
    return terminal_columns() if on_terminal() else sys.maxsize


def table_limit() -> int | None:
    """Return the columns that a table may have; None for a pipe, in which every table fits."""
    return terminal_columns() if on_terminal() else None


def wrap_paragraph(text: str, indent: str, hanging: int = 0, width: int | None = None) -> str:
    """Wrap a paragraph to the terminal; the first ``hanging`` characters of it stay as they are."""
    head, tail = text[:hanging], text[hanging:]
    room = (width or min(terminal_columns(), WIDEST)) - len(indent) - hanging
    first, *rest = textwrap.wrap(tail, max(room, 20), break_long_words=False, break_on_hyphens=False) or [""]
    return "\n".join([f"{indent}{head}{first}".rstrip(), *(f"{indent}{' ' * hanging}{line}" for line in rest)])


def inline_yaml(value: Any) -> str:
    """Return a value as a YAML configuration would spell it."""
    import yaml

    from ignite_hooks.config.json_schema import NO_DATA, as_json_data

    data = as_json_data(value)
    if data is NO_DATA:
        return getattr(value, "__name__", type(value).__name__)
    text = yaml.safe_dump(data, default_flow_style=True, width=10_000, allow_unicode=True)
    return str(text).removesuffix("\n").removesuffix("\n...")
