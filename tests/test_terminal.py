"""`terminal.py`: colours only where somebody sees them."""

from __future__ import annotations

import io
import logging
import sys
import types

import pytest

from ignite_hooks.terminal import ColouredLines, coloured, ipython_shell, takes_colour, width_of


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "environment", "takes"),
    [
        (Screen(), {"TERM": "xterm"}, True),
        (Screen(), {}, True),
        (Screen(), {"NO_COLOR": "1"}, False),
        (Screen(), {"NO_COLOR": ""}, True),
        (Screen(), {"TERM": "dumb"}, False),
        (io.StringIO(), {}, False),
        (None, {}, False),
    ],
)
def test_only_a_terminal_without_no_color_gets_colours(
    stream: object, environment: dict[str, str], takes: bool
) -> None:
    assert takes_colour(stream, environment) is takes


def test_a_text_for_a_pipe_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert coloured("best", "green", io.StringIO()) == "best"
    assert coloured("best", "green", Screen()) == "\x1b[32mbest\x1b[0m"


def test_the_width_is_that_of_a_terminal_and_of_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    assert (width_of(Screen()), width_of(io.StringIO())) == (110, None)


@pytest.mark.parametrize(
    ("level", "message", "line"),
    [
        (logging.INFO, "epoch 1", "epoch 1"),
        (
            logging.INFO,
            "val loss 0.5 (best loss 0.4 at epoch 2)",
            "val loss 0.5 \x1b[32m(best loss 0.4 at epoch 2)\x1b[0m",
        ),
        (logging.WARNING, "careful", "\x1b[33mcareful\x1b[0m"),
        (logging.ERROR, "lost", "\x1b[31mlost\x1b[0m"),
    ],
)
def test_lines_of_a_log_have_the_colour_of_what_they_say(level: int, message: str, line: str) -> None:
    record = logging.LogRecord("ignite_hooks", level, "", 0, message, None, None)
    assert ColouredLines("%(message)s").format(record) == line


def test_an_ipython_that_is_only_half_imported_is_no_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    assert ipython_shell() is None
