from __future__ import annotations

import math
from typing import Any

from ignite_hooks.report.data import RunPage, ShownResult
from ignite_hooks.report.evaluation import bars, curves, evaluation, matrix, rows

EVIL = "<script>alert(1)</script>"


def page(**results: ShownResult) -> RunPage:
    return RunPage("run", results=results)


def test_the_test_comes_first_and_without_results_there_is_no_section() -> None:
    content = {"kind": "vector", "values": [0.5], "labels": ["cat"]}
    found = evaluation(page(a=ShownResult("val", 4, 1, content), b=ShownResult("test", 4, 1, content)))
    assert found.index("test, epoch 1, iteration 4") < found.index("<summary>val, epoch 1")
    assert evaluation(page()) == ""


def test_a_matrix_shows_counts_shares_and_names() -> None:
    found = matrix({"values": [[3, 1], [0, 2]], "labels": ["cat", EVIL]})
    assert 'title="75.0%">3</td>' in found
    assert "&lt;script&gt;" in found
    assert "<script>" not in found
    assert found.count("<td") == 4


def test_of_many_classes_the_pairs_that_are_confused_are_listed() -> None:
    values: list[list[Any]] = [[int(i == j) for j in range(60)] for i in range(60)]
    values[3][7] = 4
    found = matrix({"values": values})
    assert "60 classes" in found
    assert "<td>3</td><td>7</td>" in found
    assert found.count("<tr>") == 2


def test_bars_show_the_lowest_of_many_classes() -> None:
    found = bars({"values": [0.9] * 55 + [0.1, math.nan]})
    assert found.count("<li") == 50
    assert found.index(">55<") < found.index(">0<")
    assert "the lowest of 57 classes" in found
    assert "none" in bars({"values": [math.nan, 0.5], "labels": ["a", "b"]})


def test_curves_have_axes_and_a_legend() -> None:
    found = curves({"lines": {"cat": [[0, 1], [0, None]], EVIL: [[0], [1]]}, "axes": ["recall", EVIL]})
    assert found.count("polyline") == 4
    assert "recall" in found
    assert "<script>" not in found


def test_pictures_of_a_table_are_shown_and_no_other_address() -> None:
    picture = "data:image/png;base64,AAAA"
    found = rows(
        {"columns": ["sample", "loss", "true"], "rows": [[picture, 0.5, "cat"], ["http://a/b.png", 1.0, EVIL]]}
    )
    assert found.count("<img") == 1
    assert f'src="{picture}"' in found
    assert "<script>" not in found
    assert 'class="n"' in found
    assert "more rows" in rows({"columns": ["a"], "rows": [[1]] * 200})
