"""Fixtures of tests of commands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

import pytest

from ignite_hooks.cli.app import main
from ignite_hooks.hooks.base_hook import BaseHook, OnError, settings
from ignite_hooks.plan.schedule import scheduled
from ignite_hooks.registry import HOOKS
from tests.cli.tools import Answer, Ask, Write


@settings
class Probe(BaseHook):
    """Look at everything.

    Args:
        depth: How deep it goes.

    Reads: model.
    Saves: a picture.
    """

    depth: int = 1
    on_error: OnError = "warn"
    point_priority: ClassVar[Mapping[str, int]] = {"after_train": 3}

    @scheduled
    def after_train_iter(self) -> None: ...

    @scheduled
    def after_train_epoch(self) -> None: ...

    def after_train(self) -> None: ...


class NeedsThings(BaseHook):
    """Ask for services."""

    def after_epoch(self, run, epoch, model, tracker, metrics, lr=0.1, **others) -> None: ...

    def after_save_checkpoint(self, checkpoint, path, logger=None) -> None: ...


@pytest.fixture
def _own_hooks() -> Iterator[None]:
    """Register hooks that stay the same when those of the package change."""
    for cls in (Probe, NeedsThings):
        HOOKS.register(cls)
    yield
    for cls in (Probe, NeedsThings):
        del HOOKS._classes[cls.__name__]


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    def ask(*argv: str) -> Answer:
        code = main(argv)
        return Answer(code, *capsys.readouterr())

    return ask


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a configuration into the current folder and return its name."""
    monkeypatch.chdir(tmp_path)

    def write(text: str, name: str = "x.yaml") -> str:
        (tmp_path / name).write_text(text)
        return name

    return write


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let stdout be a terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("ignite_hooks.cli.text.on_terminal", lambda: True)
