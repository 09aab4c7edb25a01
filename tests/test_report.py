"""What the hooks did and cost, as a person reads it."""

from __future__ import annotations

from ignite_hooks.report import Failures, Report, Tally


def test_the_total_is_taken_from_the_calls_that_were_timed() -> None:
    tally = Tally()
    tally.calls = 1000
    for seconds in (1e-6, 3e-6):
        tally.time(seconds)
    assert (tally.timed, tally.mean, tally.worst) == (2, 2e-6, 3e-6)
    assert abs(tally.total - 2e-3) < 1e-12
    assert Tally().mean == Tally().total == 0.0


def test_the_table_begins_with_the_most_expensive_and_ends_with_failures() -> None:
    report = Report(seconds=2.0)
    report.tallies["cheap", "before_run"] = Tally(1, 1, 1e-6, 1e-6)
    report.tallies["dear", "after_epoch"] = Tally(4, 4, 1.0, 0.5)
    report.tallies["never", "after_run"] = Tally()
    report.failures["cheap"] = Failures(3, 3, "cheap.before_run failed", off=True)
    report.failures["dear"] = Failures(1, 1, "dear.after_epoch failed")
    lines = str(report).splitlines()
    assert lines[0].split() == ["hook", "point", "calls", "total", "ms", "mean", "µs", "worst", "µs", "share"]
    assert lines[1].split() == ["dear", "after_epoch", "4", "1000.00", "250000.0", "500000.0", "50.00%"]
    assert lines[2].startswith("cheap")
    assert lines[3:] == [
        "cheap failed 3 times, switched off: cheap.before_run failed",
        "dear failed once: dear.after_epoch failed",
    ]
    assert "never" not in str(report)
    assert "<pre>" in report._repr_html_()


def test_a_run_without_hooks_has_a_report_too() -> None:
    assert str(Report()) == "no hook was called"
