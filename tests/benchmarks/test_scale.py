from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.benchmarks.conftest import BENCHMARKS

ITERATIONS = 10_000
LEAK = ITERATIONS * 32 / 1024 / 2
"""Kilobytes that half of the run would add to a list of its losses."""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, float]]:
    """Return what is held at ten places of a run, in a separate process because pytest keeps objects too."""
    file = tmp_path_factory.mktemp("scale") / "seen.json"
    command = [sys.executable, str(BENCHMARKS / "scale.py"), "--only", "run", "--json", str(file)]
    done = warm.run([*command, "--iterations", str(ITERATIONS)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, float]] = json.loads(file.read_text())
    return found


def least(name: str, rows: list[dict[str, float]]) -> float:
    """Return the least of the values, as a checkpoint may be in progress at some places."""
    return min(row[name] for row in rows)


@pytest.mark.slow
def test_memory_of_a_long_run_does_not_grow(seen: list[dict[str, float]]) -> None:
    assert [row["iteration"] for row in seen] == list(range(1000, ITERATIONS + 1, 1000))
    early, late = seen[1:4], seen[6:-1]
    assert least("python_kb", late) - least("python_kb", early) < LEAK / 2, [row["python_kb"] for row in seen]
    assert least("objects", late) - least("objects", early) < 400


@pytest.mark.slow
def test_nor_more_threads_and_files_nor_larger_checkpoints(seen: list[dict[str, float]]) -> None:
    early, rest = seen[2], seen[2:-1]
    assert max(row["threads"] for row in rest) <= early["threads"] + 1
    assert max(row["open_files"] for row in rest) <= early["open_files"] + 3
    assert max(row["checkpoints"] for row in rest) <= 3  # one more while an older one is deleted
    sizes = [row["checkpoint_bytes"] for row in rest]
    assert max(sizes) - min(sizes) < 512


@pytest.mark.slow
def test_logs_of_a_long_run_grow_evenly(seen: list[dict[str, float]]) -> None:
    grown = [after["log_bytes"] - before["log_bytes"] for before, after in pairwise(seen[:-1])]
    assert max(grown) < 1.2 * min(grown)


def test_a_table_goes_where_its_marks_are_and_nowhere_else(scale: Any, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("above\n<!-- x: written by make scale -->\nold\n<!-- end of x -->\nbelow\n")
    scale.put_in(page, "x", "make scale", ["new"])
    scale.put_in(page, "x", "make scale", ["newer \\1"])
    assert "old" not in page.read_text()
    assert page.read_text().startswith("above\n")
    assert page.read_text().endswith("below\n")
    assert "newer \\1" in page.read_text()
    with pytest.raises(SystemExit, match="no place called y"):
        scale.put_in(page, "y", "make scale", [])


def test_the_page_has_a_place_for_every_table(scale: Any) -> None:
    page = scale.PAGE.read_text()
    for name in ("long run", "processes"):
        assert f"<!-- {name}: written by make scale -->" in page
        assert f"<!-- end of {name} -->" in page
