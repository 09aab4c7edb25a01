from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import pytest

from ignite_hooks.report import data
from ignite_hooks.report.data import LoggedWarning, WarningCollector, config_as_yaml, moment
from ignite_hooks.secrets import Masks

SECRET = "k-0123456789"


def collected(*messages: str) -> tuple[LoggedWarning, ...]:
    """Return what a collector holds after these warnings to a child of its two loggers."""
    parent, child = logging.getLogger("tests.report"), logging.getLogger("tests.report.child")
    collector = WarningCollector([parent, child], Masks({"api_key": SECRET}).text)
    try:
        for message in messages:
            child.warning(message)
    finally:
        collector.close()
    child.warning("too late")
    assert collector not in (*parent.handlers, *child.handlers)
    return collector.warnings()


def test_repeated_warnings_are_counted_once_each() -> None:
    found = collected("a", "b", "a")
    assert [(one.text, one.times) for one in found] == [("a", 2), ("b", 1)]


def test_secrets_in_warnings_are_masked() -> None:
    assert [one.text for one in collected(f"key {SECRET}")] == ["key ***"]


def test_warnings_are_bounded_in_number_and_length(monkeypatch: Any) -> None:
    monkeypatch.setattr(data, "MAX_WARNINGS", 3)
    monkeypatch.setattr(data, "MAX_WARNING_LENGTH", 5)
    assert [one.text for one in collected(*(f"{n} is too long" for n in range(9)))] == ["0 is ", "1 is ", "2 is "]


def test_configurations_are_shown_as_yaml_without_secrets() -> None:
    config = {"api_key": SECRET, "path": Path("a"), "steps": (1, 2)}
    assert config_as_yaml(config, Masks(config)) == "api_key: '***'\npath: a\nsteps:\n- 1\n- 2\n"
    assert config_as_yaml(None, Masks()) == config_as_yaml({}, Masks()) == ""


@pytest.mark.parametrize(
    ("zone", "shown"), [("UTC", "14 Nov 2023, 22:13:20 UTC"), ("XYZ-3", "15 Nov 2023, 01:13:20 XYZ")]
)
def test_a_moment_has_the_name_of_its_zone(zone: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert moment(1_700_000_000.0) == shown
    finally:
        monkeypatch.undo()
        time.tzset()
