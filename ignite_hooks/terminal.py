"""What a terminal shows: its width, and colours where it takes them."""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
from collections.abc import Mapping
from typing import Any, Literal

Colour = Literal["red", "yellow", "green"]
_CODES: Mapping[Colour, int] = {"red": 31, "yellow": 33, "green": 32}
_BEST = re.compile(r"\(best .+? at epoch \d+\)")
"""What a line of a log says about the best value so far."""


def is_terminal(stream: Any) -> bool:
    """Return whether somebody watches a stream: False for a file, a pipe, a notebook, or no stream at all."""
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):  # None, or closed
        return False


def ipython_shell() -> Any:
    """Return the shell of IPython in which this code runs, or None; a thread may be importing IPython just now."""
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return None if get_ipython is None else get_ipython()


def in_notebook() -> bool:
    """Return whether this code runs in a kernel of Jupyter, VS Code or Colab, whose outputs are pages."""
    return any(base.__name__ == "ZMQInteractiveShell" for base in type(ipython_shell()).__mro__)


def width_of(stream: Any) -> int | None:
    """Return the columns of the terminal behind a stream, or None where there is none."""
    return shutil.get_terminal_size().columns if is_terminal(stream) else None


def takes_colour(stream: Any, environment: Mapping[str, str] | None = None) -> bool:
    """Return whether a stream shows colours: only a terminal does, and never with ``NO_COLOR``.

    Example:
        >>> import io
        >>> takes_colour(io.StringIO())
        False
    """
    known = os.environ if environment is None else environment
    return is_terminal(stream) and not known.get("NO_COLOR") and known.get("TERM") != "dumb"


def painted(text: str, colour: Colour) -> str:
    """Return a text in a colour.

    Example:
        >>> painted("wrong", "red")
        '\\x1b[31mwrong\\x1b[0m'
    """
    return f"\x1b[{_CODES[colour]}m{text}\x1b[0m" if text else text


def coloured(text: str, colour: Colour, stream: Any = None) -> str:
    """Return a text in a colour where the stream, by default stdout, takes it; else as it is."""
    return painted(text, colour) if takes_colour(sys.stdout if stream is None else stream) else text


class ColouredLines(logging.Formatter):
    """Errors red, warnings yellow, the best value so far green."""

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        if record.levelno >= logging.WARNING:
            return painted(line, "red" if record.levelno >= logging.ERROR else "yellow")
        return _BEST.sub(lambda found: painted(found[0], "green"), line)
