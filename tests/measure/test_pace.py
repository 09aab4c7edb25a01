"""The time of an iteration and the time left."""

from __future__ import annotations

import pytest

from ignite_hooks.measure.pace import Pace


def test_the_mean_is_since_the_last_report_and_pauses_do_not_count() -> None:
    hands = [0.0]
    pace = Pace(lambda: hands[0])
    pace.begin(10)
    pace.resume()
    hands[0] = 4.0
    assert pace.figures(14, remaining=6) == {"time/iter": 1.0, "time/eta": 6.0}
    pace.pause()
    hands[0] = 1004.0
    pace.resume()
    hands[0] = 1008.0
    assert pace.figures(16, remaining=None) == {"time/iter": 2.0}
    assert pace.figures(16, remaining=None) == {}, "no iteration since"


def test_the_time_left_is_that_of_the_mean_of_the_run() -> None:
    hands = [0.0]
    pace = Pace(lambda: hands[0])
    pace.begin(100)
    pace.resume()
    hands[0] = 2.0
    pace.restart(102)
    hands[0] = 8.0
    found = pace.figures(104, remaining=10)
    assert found["time/iter"] == pytest.approx(3.0)
    assert found["time/eta"] == pytest.approx(20.0), "iterations before a resume do not count"
