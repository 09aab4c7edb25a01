"""The report of a run has the findings of its hooks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ignite_hooks import BaseHook, Runner, attach_hooks
from ignite_hooks.hooks.base_hook import OnError
from tests.tools import echo_trainer


class Finds(BaseHook):
    def findings(self) -> list[str]:
        return ["the loss does not fall"]


class FindsNothing(BaseHook):
    def findings(self) -> list[str]:
        return []


class CannotSay(BaseHook):
    def findings(self) -> list[str]:
        raise LookupError("nothing was measured\nat all")


class IsDisabled(Finds):
    on_error: OnError = "disable"

    def after_train_iter(self) -> None:
        raise RuntimeError("broken")


class NoBaseHook:
    def after_train_iter(self) -> None: ...

    def findings(self) -> list[str]:
        return ["not a BaseHook"]


def after_a_run(folder: Path, *hooks: Any) -> Runner:
    trainer = echo_trainer()
    runner = attach_hooks(trainer, list(hooks), work_dir=folder)
    trainer.run([1, 2])
    return runner


def test_findings_are_reported_by_the_name_of_the_hook(tmp_path: Path) -> None:
    report = after_a_run(tmp_path, Finds(name="mine"), FindsNothing(), NoBaseHook()).report()
    assert report.findings == {"mine": ["the loss does not fall"]}


def test_findings_of_a_disabled_hook_are_left_out(tmp_path: Path) -> None:
    report = after_a_run(tmp_path, IsDisabled(), Finds()).report()
    assert list(report.failures) == ["IsDisabled"]
    assert list(report.findings) == ["Finds"]


def test_a_failure_to_find_is_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    report = after_a_run(tmp_path, CannotSay(), Finds()).report()
    assert list(report.findings) == ["Finds"]
    (message,) = {message for message in caplog.messages if "CannotSay" in message}
    assert message.startswith("the findings of CannotSay are missing from the report: ")
    assert "nothing was measured" in message
    assert "\n" not in message
