"""The command ``compare``: a table for the terminal, a page with curves, and a sentence for what cannot be compared."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ignite_hooks.cli.app import main
from ignite_hooks.results.result import Reached
from tests.results.test_comparison import write_run


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    write_run(tmp_path / "a", configuration={"lr": 0.1}, best={"accuracy": Reached(0.5, 4, 1)})
    write_run(tmp_path / "b", configuration={"lr": 0.2}, best={"accuracy": Reached(0.75, 4, 1)})
    return tmp_path


def test_runs_and_their_differences_are_shown(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(runs), "--sort", "accuracy"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["run", "b", "a"]
    assert ["lr", "0.1", "0.2"] in [line.split() for line in lines]


def test_differences_of_many_runs_are_counted(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in "cdef":
        write_run(runs / name, configuration={"lr": 0.3})
    assert main(["compare", str(runs)]) == 0
    assert "configuration: 1 difference; --html shows them" in capsys.readouterr().out


def test_a_page_is_written(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = runs / "compare.html"
    assert main(["compare", str(runs), "--html", str(page)]) == 0
    assert "<svg" in page.read_text()
    assert capsys.readouterr().out.endswith(f"{page}\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["a"], "2 to 50 runs can be compared, not 1"),
        (["a", "none"], "there is no such folder"),
        (["a", "b", "--sort", "acc"], "no run has the metric 'acc'; they have: accuracy"),
    ],
)
def test_what_cannot_be_compared_is_a_sentence(
    runs: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    given = [str(runs / each) if each in ("a", "b", "none") else each for each in arguments]
    assert main(["compare", *given]) == 2
    assert words in capsys.readouterr().err


def test_a_damaged_result_is_told_beside_the_table(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (runs / "b" / "result.json").write_text("{")
    assert main(["compare", str(runs)]) == 0
    assert "not a result of a run" in capsys.readouterr().err


def test_twenty_runs_are_compared_in_two_seconds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(20):
        best = {"accuracy": Reached(0.5 + number / 100, 4, 1)}
        configuration = {"training": {"lr": 0.1 / (number + 1)}, "hooks": [{"type": "EMAHook"}]}
        losses = tuple(1 / epoch for epoch in range(1, 101))
        write_run(tmp_path / f"run_{number:02}", losses, configuration=configuration, best=best)
    before = time.process_time()
    assert main(["compare", str(tmp_path), "--html", str(tmp_path / "compare.html")]) == 0
    # Of this process: what else the machine does is not counted.
    assert time.process_time() - before < 2.0
    assert "run_19" in capsys.readouterr().out
    assert "<svg" in (tmp_path / "compare.html").read_text()
