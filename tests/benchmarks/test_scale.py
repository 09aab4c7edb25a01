from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
ITERATIONS = 10_000


@pytest.fixture
def scale(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The script, which is no part of the package."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    logger, handler = logging.getLogger("ignite_hooks"), logging.FileHandler("/dev/null")
    logger.addHandler(handler)
    # Whoever captures the log keeps every line of it.
    logger.propagate = False
    yield importlib.import_module("scale")
    sys.modules.pop("scale")
    logger.propagate = True
    logger.removeHandler(handler)
    handler.close()


@pytest.mark.slow
def test_a_long_run_with_the_default_set_holds_no_more_memory_and_files_late_than_early(
    scale: Any, tmp_path: Path
) -> None:
    seen = scale.long_run(ITERATIONS, tmp_path, traced=True)
    assert [row["iteration"] for row in seen] == list(range(1000, ITERATIONS + 1, 1000))
    early, late = seen[2], seen[-2]
    assert late["python_kb"] - early["python_kb"] < 30
    assert late["objects"] - early["objects"] < 400
    assert max(row["threads"] for row in seen[2:]) <= early["threads"] + 1
    assert max(row["open_files"] for row in seen[2:]) <= early["open_files"] + 2
    assert {row["checkpoints"] for row in seen[2:-1]} == {2}
    sizes = [row["checkpoint_bytes"] for row in seen[2:]]
    assert max(sizes) - min(sizes) < 512


@pytest.mark.slow
def test_the_logs_of_a_long_run_grow_by_the_same_in_every_part(scale: Any, tmp_path: Path) -> None:
    seen = scale.long_run(4_000, tmp_path)
    grown = [after["log_bytes"] - before["log_bytes"] for before, after in pairwise(seen[:-1])]
    assert max(grown) < 1.2 * min(grown)


def test_a_table_goes_where_its_marks_are_and_nowhere_else(scale: Any, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("above\n<!-- x: written by make scale -->\nold\n<!-- end of x -->\nbelow\n")
    scale.put_in(page, "x", ["new"])
    scale.put_in(page, "x", ["newer \\1"])
    assert "old" not in page.read_text()
    assert page.read_text().startswith("above\n")
    assert page.read_text().endswith("below\n")
    assert "newer \\1" in page.read_text()
    with pytest.raises(SystemExit, match="no place called y"):
        scale.put_in(page, "y", [])


def test_the_page_has_a_place_for_every_table(scale: Any) -> None:
    page = scale.PAGE.read_text()
    for name in ("long run", "processes"):
        assert f"<!-- {name}: written by make scale -->" in page
        assert f"<!-- end of {name} -->" in page
