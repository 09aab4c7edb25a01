from __future__ import annotations

from typing import Any

import pytest

from ignite_hooks.cli.app import main
from ignite_hooks.cli.export import FORMATS
from ignite_hooks.export.write import FORMATS as WRITTEN
from ignite_hooks.trainer import commands


def test_the_options_reach_the_export(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: dict[str, Any] = {}
    monkeypatch.setattr(commands, "export", lambda run, **given: taken.update(given, run=run) or 0)
    words = "export runs/a --format onnx --format pth --dtype float16 --batch fixed --to out --set a.b=1"
    assert main(words.split()) == 0
    assert taken == {
        "run": "runs/a",
        "checkpoint": None,
        "weights": None,
        "formats": ["onnx", "pth"],
        "dtype": "float16",
        "batch": "fixed",
        "tolerance": None,
        "folder": "out",
        "overrides": ["a.b=1"],
    }


def test_the_formats_of_the_command_are_those_that_can_be_written() -> None:
    assert tuple(WRITTEN) == FORMATS
