from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.conftest import BENCHMARKS


def bar(median: float) -> dict[str, float]:
    return {"median": median, "lower": median * 0.9, "upper": median * 1.1}


def figure(name: str, median: float, at_most: float | None = None, why: str = "") -> dict[str, Any]:
    verdict = "" if at_most is None else "reached" if median <= at_most else "missed"
    return {"name": name, "measured": bar(median), "unit": "µs", "at_most": at_most, "why": why, "verdict": verdict}


def result(**given: Any) -> dict[str, Any]:
    chart = {"name": "a", "title": "A", "unit": "µs", "limit": 1.0, "limit_name": "a bare loop"}
    bars = {"ours": bar(2.0), "Faster": bar(1.0), "Slower": bar(4.0), "Alike": bar(1.95)}
    return {
        "about": "µs of it",
        "unit": "µs",
        "seconds": 60.0,
        "notes": [],
        "values": {"bare engine": [3000.0, 4000.0], "ours": [2.0]},
        "figures": [figure("one", 2.0, 3.0), figure("... twice", 5.0, 3.0, "it waits for the disk"), figure("two", 1)],
        "charts": [{**chart, "bars": bars}],
        **given,
    }


ON = {
    "when": "2026-01-01 00:00",
    "cpu": "some",
    "cores": 2,
    "load": 0.1,
    "python": "3.11.1",
    "versions": {"torch": "2"},
    "memcpy_gb_s": 9.0,
}


def test_the_page_names_targets_reached_and_missed_with_reasons(run: Any) -> None:
    text = run.page({"dispatch": result()}, ON, False)
    assert "| Calling hooks | one | ≤ 3 µs | 2.00 µs | 1.80 … 2.20 | reached |" in text
    assert "- **one: twice**: 5.00 µs, not ≤ 3 µs: it waits for the disk." in text


def test_the_page_names_only_peers_that_are_ahead(run: Any) -> None:
    lost = "\n".join(run.lost({"dispatch": result()}))
    assert "Faster takes 1.00 against our 2.00 µs" in lost
    assert "Slower" not in lost
    assert "Alike" not in lost  # within the quartiles


def test_the_page_says_how_fast_the_machine_is(run: Any) -> None:
    assert "took 3.5 µs here, 1.0 times as long" in run.page({"dispatch": result()}, ON, False)


def test_a_short_run_says_that_its_numbers_mean_nothing(run: Any) -> None:
    short, long = (run.page({"dispatch": result()}, ON, quick) for quick in (True, False))
    assert "mean nothing" in short
    assert "## What we lose" not in short
    assert "mean nothing" not in long
    assert "## What we lose" in long


def test_a_reason_is_given_once(run: Any) -> None:
    figures = [figure(name, 5.0, 3.0, why) for name, why in (("a", "slow"), ("b", "slow"), ("c", "cold"))]
    lost = list(run.lost({"dispatch": result(figures=figures)}))
    assert [row.rpartition(": ")[2] for row in lost if row.startswith("- **")] == [
        "slow.",
        "for the same reason.",
        "cold.",
    ]


def test_the_table_of_costs_gets_the_first_bars(run: Any, tmp_path: Path) -> None:
    bars = {"ours": bar(2.0), "ours, late": bar(9.0), "Ignite handlers": bar(30.0), "Lightning async": bar(400.0)}
    chart = {"name": "default_set", "title": "A", "unit": "µs", "bars": bars, "limit": None}
    costs = tmp_path / "costs.md"
    costs.write_text("above\n<!-- costs: written by make bench -->\nold\n<!-- end of costs -->\nbelow\n")
    for _ in range(2):
        run.put_in(costs, "costs", "make bench", list(run.costs({"default_set": {"charts": [chart]}})))
        text = costs.read_text()
        assert "| A, µs | 2.00 | 30.0 |  | 400 |" in text
        assert "old" not in text
        assert text.startswith("above\n<!--")
        assert text.endswith("-->\nbelow\n")


def test_exactly_the_existing_scripts_are_run(run: Any) -> None:
    scripts = {section.script for section in run.SECTIONS}
    helpers = {"courses", "growth", "run", "measure", "meter", "peers", "save_cases", "scale"}
    assert scripts | helpers == {path.stem for path in BENCHMARKS.glob("*.py")}


@pytest.mark.slow
def test_one_short_run_writes_numbers_pictures_and_the_page(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "run.py"), "--quick", "--only", "dispatch", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    numbers = json.loads((tmp_path / "benchmarks" / "dispatch.json").read_text())
    assert all(len(values) >= 2 for values in numbers["values"].values())
    assert (tmp_path / "benchmarks" / "dispatch_idle.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "benchmarks.md").read_text()
    assert "](benchmarks/dispatch_idle.png)" in page
    assert all(f"| {entry['name']} |" in page for entry in numbers["figures"])
    again = subprocess.run([*command, "--page"], capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "benchmarks.md").read_text() == page
