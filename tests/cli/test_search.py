"""The command ``search``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ignite_hooks.cli.app import main
from ignite_hooks.search.study import SearchResult, TrialRow


def test_a_file_without_the_section_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("model: mlp\ndataset: digits\n")
    assert main(["search", str(path)]) == 2
    assert "search: missing: what to try" in capsys.readouterr().err


def test_the_table_and_the_best_configuration_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Any] = []
    rows = [TrialRow(0, 0, "finished", 0.5, {"lr": 0.1}, 3), TrialRow(1, 1, "pruned", 0.7, {"lr": 0.2}, 1)]

    class Searched:
        def __init__(self, *given: Any) -> None:
            asked.extend(given[:3])

        def run(self) -> SearchResult:
            return SearchResult("val_loss", False, rows, tmp_path, tmp_path / "best.yaml")

    monkeypatch.setattr("ignite_hooks.search.from_config.ConfigSearch", Searched)
    assert main(["search", "x.yaml", "--trials", "4", "--jobs", "2", "--set", "training.epochs=1"]) == 0
    assert asked == ["x.yaml", ["training.epochs=1", "search.trials=4", "search.jobs=2"], None]
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["trial", "state", "val_loss", "reports", "lr"]
    assert lines[2].split()[:3] == ["0", "finished", "0.5000"]
    assert lines[-2:] == ["1 finished, 1 pruned", f"best configuration: {tmp_path / 'best.yaml'}"]
