"""`outcome.py`: what was asked for and reached is finished; what ended before it is stopped, unless it failed."""

from __future__ import annotations

from typing import Any

import pytest

from ignite_hooks.results.outcome import Outcome, outcome_of


@pytest.mark.parametrize(
    ("how", "outcome"),
    [
        ({"epochs": 3, "max_epochs": 3}, Outcome("finished")),
        ({"iterations": 7, "max_iters": 7}, Outcome("finished")),
        (
            {"epochs": 1, "max_epochs": 3, "iterations": 4, "max_iters": 12, "stop_reason": "enough"},
            Outcome("stopped", "enough"),
        ),
        ({"epochs": 1, "max_epochs": 3, "completed": False}, Outcome("stopped", "left before its end")),
        (
            {"epochs": 1, "max_epochs": 3, "iterations": 4, "max_iters": 12},
            Outcome("stopped", "the script ended it by terminate()"),
        ),
        ({"failure": "ValueError: no", "stop_reason": "enough"}, Outcome("failed", "ValueError: no")),
    ],
)
def test_an_ended_run_has_a_state_and_a_reason(how: dict[str, Any], outcome: Outcome) -> None:
    assert outcome_of(**how) == outcome
