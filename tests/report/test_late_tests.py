"""Tests after the end of a run, on the page that was written at its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from ignite_hooks.report.data import RunPage
from ignite_hooks.report.late_tests import MOST_METRICS, TITLE, add_to_page, section
from ignite_hooks.report.page import render
from ignite_hooks.results.result import RecordedTest, RunResult

MATRIX = {"kind": "matrix", "values": [[3.0, 1.0], [0.0, 4.0]], "labels": ["cat", "dog"]}


def recorded(weights: str = "raw", **metrics: float) -> dict[str, RecordedTest]:
    return {f"test/best.pth/{weights}": RecordedTest(metrics or {"accuracy": 0.5}, "best.pth", weights)}


def ended(folder: Path, tests: dict[str, RecordedTest]) -> Path:
    """Write the result of a run with these tests, and its page as it was before them."""
    RunResult("finished", tests=tests).write(folder)
    path = folder / "report.html"
    path.write_text(render(RunPage("a run")), encoding="utf-8")
    return path


def test_a_page_without_tests_has_only_a_place_for_them() -> None:
    assert section(RunPage("a run")) == "<!--tests--><!--/tests-->"
    assert TITLE not in render(RunPage("a run"))


@pytest.mark.parametrize(
    ("weights", "words"), [("raw", "raw"), ("ema", "averages"), ("slow", "averages &#x27;slow&#x27;")]
)
def test_a_test_says_which_weights_it_is_of(weights: str, words: str) -> None:
    text = section(RunPage("a run", tests=recorded(weights)))
    assert f"<td>{words}</td>" in text
    assert "<td>best.pth</td>" in text
    assert "<td>test</td>" in text


def test_tests_share_a_table_whose_gaps_are_empty_and_which_leaves_out_classes() -> None:
    both = recorded("raw", accuracy=0.5, **{"iou/cat": 0.25}) | recorded("ema", loss=0.125)
    text = section(RunPage("a run", tests=both))
    assert text.count("<table") == 1
    assert "iou/cat" not in text
    assert "0.5" in text
    assert "0.125" in text


def test_of_many_numbers_the_table_has_the_first() -> None:
    text = section(RunPage("a run", tests=recorded(**{f"m{number}": 1.0 for number in range(MOST_METRICS + 3)})))
    assert f">m{MOST_METRICS - 1}<" in text
    assert f">m{MOST_METRICS}<" not in text


def test_what_is_more_than_a_number_is_folded_below() -> None:
    page = RunPage("a run", tests=recorded(), test_results={"test/confusion": MATRIX})
    assert "what the last one has found" in section(page)
    assert "test/confusion" in section(page)
    assert "what the last one has found" not in section(RunPage("a run", tests=recorded()))


def test_a_later_test_replaces_the_section_and_nothing_else(tmp_path: Path) -> None:
    path = ended(tmp_path, recorded())
    before = path.read_text(encoding="utf-8")
    assert add_to_page(path, tmp_path, {"test/confusion": MATRIX})
    once = path.read_text(encoding="utf-8")
    assert once.count(f"<h2>{TITLE}</h2>") == 1
    assert once.replace(section(RunPage("", tests=recorded(), test_results={"test/confusion": MATRIX})), "") == (
        before.replace(section(RunPage("")), "")
    )
    RunResult("finished", tests=recorded() | recorded("ema")).write(tmp_path)
    assert add_to_page(path, tmp_path, {})
    text = path.read_text(encoding="utf-8")
    assert text.count(f"<h2>{TITLE}</h2>") == 1
    assert "<td>averages</td>" in text
    assert "test/confusion" not in text


def test_texts_of_a_run_are_taken_as_they_are(tmp_path: Path) -> None:
    name = r"\1<!--tests-->\g<0>"
    path = ended(tmp_path, {f"{name}/best.pth/raw": RecordedTest({"a": 1.0}, "best.pth", "raw")})
    assert add_to_page(path, tmp_path, {})
    assert add_to_page(path, tmp_path, {})
    text = path.read_text(encoding="utf-8")
    assert text.count("<!--tests-->") == text.count("<!--/tests-->") == 1
    assert r"\1&lt;!--tests--&gt;\g&lt;0&gt;" in text


@pytest.mark.parametrize("case", ["no result", "no page", "a page of another version"])
def test_without_a_page_that_has_a_place_nothing_is_written(case: str, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    if case != "no page":
        path.write_text("<!--tests--><!--/tests-->" if case == "no result" else "<html>", encoding="utf-8")
    if case != "no result":
        RunResult("finished", tests=recorded()).write(tmp_path)
    before = path.read_text(encoding="utf-8") if path.exists() else None
    assert not add_to_page(path, tmp_path, {})
    assert (path.read_text(encoding="utf-8") if path.exists() else None) == before
