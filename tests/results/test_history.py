"""`history.py`: the lines of metrics.jsonl become rows; what is torn or not ours is left out."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from ignite_hooks.results.history import FILE_NAME, MAX_SHOWN, History

LINES = [
    '{"time":1.0,"step":4,"epoch":1,"kind":"train","scalars":{"loss":0.5,"lr":0.1}}',
    '{"time":2.0,"step":4,"epoch":1,"kind":"val","scalars":{"loss":null,"step":3},"nonfinite":["loss"]}',
    "not json",
    '{"time":3.0,"step":"x","epoch":1,"kind":"val","scalars":{"loss":1}}',
    '{"time":4.0,"step":8,"epoch":2,"kind":"train","scalars":{"loss":0.25',
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / FILE_NAME).write_text("\n".join(LINES))
    return tmp_path


def test_rows_have_step_epoch_split_and_metrics(folder: Path) -> None:
    first, second = History.read(folder)
    assert first == {"step": 4, "epoch": 1, "split": "train", "time": 1.0, "loss": 0.5, "lr": 0.1}
    assert math.isnan(second.pop("loss"))
    assert second == {"step": 4, "epoch": 1, "split": "val", "time": 2.0, "metric/step": 3}


def test_numbers_are_found_by_their_full_names(folder: Path) -> None:
    history = History.read(folder)
    assert history.names() == ["loss", "lr", "val/loss", "val/metric/step"]
    assert history.values("lr") == [(4, 0.1)]
    assert math.isnan(history.values("val/loss")[0][1])
    assert history.values("nothing") == []


def test_the_end_of_a_file_is_read_alone(tmp_path: Path) -> None:
    assert History.read_end(tmp_path) == []
    (tmp_path / FILE_NAME).write_text("\n".join([LINES[0]] * 100 + [LINES[1], ""]))
    end = History.read_end(tmp_path, most=300)
    assert 1 < len(end) < 5
    assert end[-1]["split"] == "val"


def test_a_notebook_shows_some_rows_and_counts_the_others() -> None:
    rows = History.of(
        {"time": 0.0, "step": step, "epoch": None, "kind": "train", "scalars": {"<b>": 0.5}} for step in range(50)
    )
    html = rows._repr_html_()
    assert html.count("<tr>") == MAX_SHOWN + 1
    assert "30 rows in between are not shown" in html
    assert "<b>" not in html
    assert History()._repr_html_() == "no numbers yet"


def test_rows_become_a_table_of_pandas(folder: Path) -> None:
    pandas = pytest.importorskip("pandas")
    table = History.read(folder).to_pandas()
    assert isinstance(table, pandas.DataFrame)
    assert table["loss"][0] == 0.5
