"""`save_outcomes.py`: a failure that lasts is said once, and so is its end."""

from __future__ import annotations

import errno
import logging

import pytest

from ignite_hooks.errors import CheckpointError
from ignite_hooks.run.save_outcomes import SaveOutcomes, cause_of

LOGGER = logging.getLogger("test_save_outcomes")


def failure(name: str, number: int) -> CheckpointError:
    error = CheckpointError(f"cannot save {name}: {errno.errorcode[number]}")
    error.__cause__ = OSError(number, "on purpose")
    return error


def test_a_failure_is_said_once_until_it_changes_or_ends(caplog: pytest.LogCaptureFixture) -> None:
    outcomes = SaveOutcomes()
    outcomes.succeeded("0.pth", LOGGER)
    for name, number in [("1.pth", errno.ENOSPC), ("2.pth", errno.ENOSPC), ("3.pth", errno.ESTALE)]:
        outcomes.failed_with(name, failure(name, number), LOGGER)
    for name in ("4.pth", "5.pth"):
        outcomes.succeeded(name, LOGGER)
    outcomes.failed_with("6.pth", failure("6.pth", errno.ESTALE), LOGGER)
    said = [record.getMessage() for record in caplog.records if record.levelno > logging.INFO]
    assert said == [
        "cannot save 1.pth: ENOSPC; the run continues without it",
        "cannot save 3.pth: ESTALE; the run continues without it",
        "4.pth is saved; before it failed: 1.pth, 2.pth, 3.pth",
        "cannot save 6.pth: ESTALE; the run continues without it",
    ]
    assert outcomes.saved == "5.pth"
    assert outcomes.sentences() == ["4 saves failed: 1.pth, 2.pth, 3.pth, 6.pth; the last: cannot save 6.pth: ESTALE"]


def test_the_report_of_a_run_without_failures_says_nothing() -> None:
    assert SaveOutcomes().sentences() == []


def test_the_cause_is_found_below_wrapped_errors() -> None:
    outer = CheckpointError("outer")
    outer.__cause__ = failure("a.pth", errno.EIO)
    assert cause_of(outer) == ("OSError", errno.EIO)
    assert cause_of(CheckpointError("rank 0: it failed")) == ("CheckpointError", None)


def test_a_long_wait_is_said_once_with_the_remedy(caplog: pytest.LogCaptureFixture) -> None:
    outcomes = SaveOutcomes()
    for name, seconds in [("1.pth", 0.2), ("2.pth", 7.0), ("3.pth", 19.0)]:
        outcomes.waited(name, seconds, LOGGER)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("2.pth waited 7.0 s for the checkpoint before it to be written: save less often")
    assert line.endswith("(when_busy: skip)")
    (sentence,) = outcomes.sentences()
    assert sentence.startswith("training waited 26.0 s in 2 saves")


def test_what_is_left_out_is_said_once_and_listed(caplog: pytest.LogCaptureFixture) -> None:
    outcomes = SaveOutcomes()
    for name in ("1.pth", "2.pth"):
        outcomes.leave_out(name, LOGGER)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("1.pth is left out")
    (sentence,) = outcomes.sentences()
    assert sentence.startswith("2 saves left out (when_busy: skip)")
    assert sentence.endswith("1.pth, 2.pth")
