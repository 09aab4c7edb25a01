from __future__ import annotations

import io
import logging
import os
import pty
import re
import subprocess
import sys
import termios
import textwrap
from pathlib import Path
from typing import Any

import pytest

from ignite_hooks import attach_hooks
from ignite_hooks.hooks.monitors.progress_bar_hook import ProgressBarHook, form_of
from ignite_hooks.testing import tiny_run
from tests import warm

SCRIPT = """
import sys
from ignite_hooks import attach_hooks
from ignite_hooks.testing import tiny_run

run = tiny_run(batches=5)
hooks = [
    {"type": "ProgressBarHook", "refresh": 1e-9},
    {"type": "LoggerHook", "interval": 5},
    {"type": "EvalHook", "save_best": False},
]
attach_hooks(run.trainer, hooks, work_dir=sys.argv[1], **run.services)
run.trainer.run(run.data, max_epochs=2)
"""


def test_in_a_terminal_log_lines_appear_above_the_bar(tmp_path: Path) -> None:
    """In a real terminal, so that its lines at the end are what a user sees."""
    mine, its = pty.openpty()
    termios.tcsetwinsize(its, (40, 120))
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(SCRIPT), str(tmp_path)]
    environment = {**os.environ, "COLUMNS": "120", "LINES": "40", "TERM": "xterm"}
    with warm.Popen(command, stderr=its, stdout=its, stdin=subprocess.DEVNULL, env=environment) as process:
        os.close(its)
        said = b""
        while True:
            try:
                piece = os.read(mine, 65536)
            except OSError:  # the other end is gone
                break
            if not piece:
                break
            said += piece
    os.close(mine)
    assert process.returncode == 0, said.decode()
    lines = on_screen(said.decode())
    logged = [line for line in lines if re.match(r"\d{4}-\d\d-\d\d ", line)]
    assert [line for line in logged if "Epoch 1/2 [5/5]" in line] != []
    assert [line for line in logged if "it/s" in line] == [], "no bar in a line of the log"
    bars = [line for line in lines if line.startswith("Epoch")]
    assert len(bars) == 1
    assert re.match(r"Epoch 2/2: 100%\|█+\| 10/10 \[.*loss \S+ now\]", bars[0])
    assert [line for line in lines if line.startswith("val:")] == [], "the bar of an evaluation goes with it"
    assert b"val:" in said


def on_screen(text: str) -> list[str]:
    """Return the lines of a terminal after this output: carriage returns and moves up overwrite."""
    lines, row, column = [""], 0, 0
    for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", text):
        if part == "\r":
            column = 0
        elif part == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif part == "\x1b[A":
            row = max(0, row - 1)
        elif not part.startswith("\x1b"):
            lines[row] = lines[row][:column].ljust(column) + part + lines[row][column + len(part) :]
            column += len(part)
    return [line.rstrip() for line in lines if line.strip()]


def test_in_a_file_there_is_a_line_for_every_tenth(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = tiny_run(batches=20)
    attach_hooks(run.trainer, [{"type": "ProgressBarHook", "refresh": 1e-9}], work_dir=tmp_path, **run.services)
    run.trainer.run(run.data, max_epochs=2)
    lines = [line for line in capfd.readouterr().err.splitlines() if "%" in line and "spent" in line]
    assert [line[:5] for line in lines] == [f"{10 * tenth:3d} %" for tenth in range(1, 11)]
    assert re.fullmatch(r" 10 %  Epoch 1/2  loss \S+ now  lr 1.00e-01  0:00:\d\d spent, \d:\d\d:\d\d left", lines[0])


def test_nothing_is_drawn_between_two_drawings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    run, hook = tiny_run(batches=10), ProgressBarHook(refresh=5.0, form="terminal")
    drawn: list[int] = []
    times = iter(range(1000))
    hook.clock = lambda: float(next(times))
    monkeypatch.setattr(type(hook), "_update", lambda self, runner, optimizer: drawn.append(runner.global_step))
    attach_hooks(run.trainer, [hook], work_dir=tmp_path, **run.services)
    run.trainer.run(run.data, max_epochs=1)
    assert drawn == [1, 6, 10]


def test_the_handlers_of_the_log_get_their_streams_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    handler = logging.StreamHandler(stream)
    logging.getLogger("ignite_hooks").addHandler(handler)
    try:
        run = tiny_run()
        hooks: list[Any] = [ProgressBarHook(form="terminal"), {"type": "LoggerHook", "interval": 1}]
        attach_hooks(run.trainer, hooks, work_dir=tmp_path, **run.services)
        run.trainer.run(run.data, max_epochs=1)
        assert handler.stream is stream
    finally:
        logging.getLogger("ignite_hooks").removeHandler(handler)


def test_a_notebook_gets_widgets_where_it_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    class ZMQInteractiveShell: ...

    class IPython:
        @staticmethod
        def get_ipython() -> object:
            return ZMQInteractiveShell()

    monkeypatch.setitem(sys.modules, "IPython", IPython)
    for found, form in (("", "notebook"), ("not installed", "file")):
        monkeypatch.setattr("ignite_hooks.hooks.monitors.progress_bar_hook.missing", lambda *_, found=found: found)
        assert form_of(io.StringIO()) == form
