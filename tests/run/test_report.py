"""The report of what hooks did and cost."""

from __future__ import annotations

import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ignite_hooks.run.report import Failures, Report, Tally
from tests.properties import tried


def test_the_total_is_taken_from_the_calls_that_were_timed() -> None:
    tally = Tally()
    tally.calls = 1000
    for seconds in (1e-6, 3e-6):
        tally.time(seconds)
    assert (tally.timed, tally.worst) == (2, 3e-6)
    assert tally.total == pytest.approx(1e-6 + 999 * 3e-6), "the first is unlike the others"
    assert tally.mean == tally.total / 1000
    assert Tally().mean == Tally().total == 0.0


@pytest.mark.parametrize("place", [0, 1, 4, 9])
def test_one_long_call_counts_once(place: int) -> None:
    tally = Tally(calls=1000)
    for i in range(10):
        tally.time(1.0 if i == place else 1e-6)
    assert tally.total == pytest.approx(1.0 + 999 * 1e-6)


def test_the_most_expensive_comes_first_and_failures_last() -> None:
    report = Report(seconds=2.0)
    report.tallies["cheap", "before_run"] = Tally(1, 1, 1e-6, 1e-6)
    report.tallies["dear", "after_epoch"] = Tally(4, 4, 1.0, 0.5)
    report.tallies["never", "after_run"] = Tally()
    report.failures["cheap"] = Failures(3, 3, "cheap.before_run failed", off=True)
    report.failures["dear"] = Failures(1, 1, "dear.after_epoch failed")
    report.findings["dear"] = ["it is dear", "very"]
    report.slowed["cheap"] = "took 3.0% of the time"
    lines = str(report).splitlines()
    head = ["calls", "total", "ms", "mean", "µs", "p99", "µs", "worst", "µs", "share"]
    assert lines[0].split() == ["hook", *head]
    assert lines[1].split() == ["dear", "4", "1000.00", "250000.0", "500000.0", "500000.0", "50.00%"]
    assert lines[2].startswith("cheap")
    assert lines[3] == ""
    assert lines[4].split() == ["hook", "method", *head]
    assert lines[5].split() == ["dear", "after_epoch", "4", "1000.00", "250000.0", "500000.0", "500000.0", "50.00%"]
    assert lines[6].startswith("cheap")
    assert lines[7:] == [
        "cheap failed 3 times, switched off: cheap.before_run failed",
        "dear failed once: dear.after_epoch failed",
        "dear: it is dear",
        "dear: very",
        "cheap took 3.0% of the time",
    ]
    assert "never" not in str(report)
    assert "<table" in report._repr_html_()


@tried(100)
@given(
    times=st.lists(st.floats(-8, 1).map(lambda power: 10**power), min_size=1, max_size=60),
    share=st.sampled_from([0.01, 0.5, 0.9, 0.99, 1.0]),
)
def test_a_percentile_is_at_most_a_ninth_too_large(times: list[float], share: float) -> None:
    tally = Tally()
    for seconds in times:
        tally.time(seconds)
    exact = sorted(times)[math.ceil(share * len(times)) - 1]
    assert exact <= tally.percentile(share) * (1 + 1e-9) <= exact * 10 / 9


def test_a_percentile_of_nothing_is_zero() -> None:
    assert Tally().percentile(0.99) == 0.0


def test_what_a_hook_costs_is_the_sum_of_its_points() -> None:
    report = Report(seconds=10.0)
    for _ in range(10):
        report.tallies.setdefault(("a", "after_epoch"), Tally(calls=10)).time(0.1)
    # Of a thousand calls one in a hundred was timed.
    for _ in range(10):
        report.tallies.setdefault(("a", "after_train_iter"), Tally(calls=1000)).time(0.001)
    whole = report.hooks()["a"]
    assert (whole.calls, round(whole.total, 9), whole.worst) == (1010, 2.0, 0.1)
    assert whole.percentile(0.99) < 0.0012 < whole.percentile(1)
    assert report.costs()[0]["share"] == "20.00%"


def test_a_run_without_hooks_has_a_report_too() -> None:
    assert str(Report()) == "no hook was called"


def test_a_report_shows_itself_and_not_its_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    report = Report({("a", "after_epoch"): Tally(calls=1, timed=1, seconds=0.5, worst=0.5)}, seconds=1.0)
    assert repr(report) == str(report)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert max(map(len, repr(report).splitlines()[:-1])) <= 40
    assert repr(report).endswith("print() shows all")
    assert "Tally(" not in repr(report)


def test_a_tally_takes_as_much_memory_after_many_calls_as_after_one() -> None:
    tally = Tally()
    tally.time(0.001)
    first = sys.getsizeof(tally.lengths)
    for power in range(-120, 80):
        tally.time(10 ** (power / 10))
    assert sys.getsizeof(tally.lengths) == first
    assert tally.percentile(1.0) == tally.worst
    assert sys.getsizeof(Tally().lengths) < 100
