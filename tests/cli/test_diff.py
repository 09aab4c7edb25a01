"""The command ``diff``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ignite_hooks.cli.app import main
from ignite_hooks.results.parting import DIGESTS


def written(folder: Path, *digests: str) -> str:
    folder.mkdir()
    lines = [json.dumps({"iteration": n, "all": one, "head": one}) for n, one in enumerate(digests)]
    (folder / DIGESTS).write_text("\n".join(lines) + "\n")
    return str(folder)


@pytest.mark.parametrize(
    ("other", "code", "line"),
    [
        (("a", "b", "c"), 0, "no difference: all 3 digests are equal, until iteration 2"),
        (("a", "x", "y"), 1, "the runs part in iteration 1 (equal until iteration 0), first in: weights of head"),
    ],
)
def test_the_exit_code_says_whether_runs_part(
    other: tuple[str, ...], code: int, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diff", written(tmp_path / "one", "a", "b", "c"), written(tmp_path / "other", *other)]) == code
    assert capsys.readouterr().out.splitlines()[0] == line


def test_runs_without_digests_are_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "metrics.jsonl").touch()
    assert main(["diff", str(tmp_path), str(tmp_path)]) == 2
    assert "add {type: DeterminismHook, interval: 1} to both runs" in capsys.readouterr().err
