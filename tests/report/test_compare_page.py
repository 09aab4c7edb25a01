"""`compare_page.py`: several runs on one page, whose script alone may run."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

from ignite_hooks.report.compare_page import MAX_LINES, SORT, render_comparison
from ignite_hooks.report.curves import CurveSet
from ignite_hooks.results.comparison import Comparison, read_runs
from ignite_hooks.results.result import Reached
from ignite_hooks.writers.jsonl import read_jsonl
from tests.results.test_comparison import write_run


def page_of(folder: Path, sort: str | None = None) -> tuple[str, Comparison]:
    comparison = read_runs([folder])
    curves = []
    for run in comparison.runs:
        curves.append(CurveSet())
        curves[-1].add(read_jsonl(run.path / "metrics.jsonl"))
    return render_comparison(comparison, curves, sort), comparison


def test_a_page_shows_runs_curves_and_differences(tmp_path: Path) -> None:
    write_run(tmp_path / "a", configuration={"lr": 0.1}, best={"iou": Reached(0.5, 4, 1)})
    write_run(tmp_path / "b", configuration={"lr": 0.2}, best={"iou": Reached(0.75, 4, 1)})
    page, _ = page_of(tmp_path, "iou")
    assert re.findall(r'<section id="(\w+)">', page) == ["runs", "curves", "configuration"]
    assert re.findall(r"<h3>([^<]+)</h3>", page) == ["val/loss", "val/iou"]
    assert page.index("<span>b</span></span></td>") < page.index("<span>a</span></span></td>")


def test_a_chart_shows_the_best_of_many_runs(tmp_path: Path) -> None:
    for number in range(MAX_LINES + 2):
        write_run(tmp_path / f"r{number:02}", (1.0, 0.9 - 0.01 * number))
    page, _ = page_of(tmp_path)
    figure = page[page.index("<h3>val/loss</h3>") : page.index("<h3>val/iou</h3>")]
    assert "the best 10 of 12" in figure
    assert "r11" in figure
    assert "r00" not in figure


def test_no_two_runs_of_a_chart_look_alike(tmp_path: Path) -> None:
    # The best ten are every other one.
    for number in range(2 * MAX_LINES):
        write_run(tmp_path / f"r{number:02}", (1.0, 0.5 + 0.01 * number if number % 2 else 0.9))
    page, _ = page_of(tmp_path)
    figure = page[page.index("<h3>val/loss</h3>") : page.index("<h3>val/iou</h3>")]
    legend = re.findall(r'<i class="key ([^"]+)"></i><span>(r\d\d)', figure)
    assert len(legend) == len(dict(legend)) == MAX_LINES
    assert all(f'<i class="key {its}"></i><span>{name}</span></span></td>' in page for its, name in legend)


def test_only_our_script_may_run(tmp_path: Path) -> None:
    write_run(tmp_path / "<script>alert(1)")
    write_run(tmp_path / "b")
    page, _ = page_of(tmp_path)
    digest = base64.b64encode(hashlib.sha256(SORT.encode()).digest()).decode()
    assert f"script-src &#x27;sha256-{digest}&#x27;" in page or f"script-src 'sha256-{digest}'" in page
    assert page.count("<script>") == 1
    assert f"<script>{SORT}</script>" in page
