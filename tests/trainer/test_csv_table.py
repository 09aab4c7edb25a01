"""A CSV file: what it becomes, and what is said of one that cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from ignite_hooks.errors import SettingError
from ignite_hooks.trainer.csv_table import csv

FLOWERS = "length,width,kind\n" + "".join(f"{i}.5,{i % 3},{'rose' if i % 2 else 'lily'}\n" for i in range(10))


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "table.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_text_becomes_classes_and_numbers_inputs(tmp_path: Path) -> None:
    data = csv(written(tmp_path, FLOWERS), "kind", test_fraction=0.2)
    assert (data.task, data.num_classes, data.class_names, data.shape) == ("classification", 2, ["lily", "rose"], (2,))
    assert [len(part) for part in (data.train, data.val, data.test)] == [6, 2, 2]
    inputs, answer = data.train[0]
    assert inputs.dtype == torch.float32
    assert answer.dtype == torch.int64


def test_inputs_are_scaled_by_the_training_rows_only(tmp_path: Path) -> None:
    data = csv(
        written(tmp_path, FLOWERS.replace("kind", "one,kind").replace(",lily", ",7,lily").replace(",rose", ",7,rose")),
        "kind",
    )
    inputs = data.train.tensors[0]
    assert inputs.mean(0) == pytest.approx(torch.zeros(3), abs=1e-6)
    assert inputs.std(0, correction=0) == pytest.approx(torch.tensor([1.0, 1.0, 0.0]), abs=1e-6)


def test_the_seed_chooses_the_rows_of_validation(tmp_path: Path) -> None:
    path = written(tmp_path, "x,y\n" + "".join(f"{i},{i}.5\n" for i in range(50)))
    first, again, other = (csv(path, "y", seed=seed).val.tensors[1].tolist() for seed in (0, 0, 1))
    assert first == again != other
    assert len(first) == 10


@pytest.mark.parametrize(
    ("values", "task"),
    [(["1", "2", "1"], "classification"), (["1.0", "2", "1"], "regression"), (["a", "2", "1"], "classification"),
     ([str(i) for i in range(51)], "regression")],
)  # fmt: skip
def test_the_target_tells_the_task(values: list[str], task: str, tmp_path: Path) -> None:
    data = csv(written(tmp_path, "x,y\n" + "".join(f"1,{value}\n" for value in values)), "y")
    assert data.task == task
    assert data.train[0][1].shape == (() if task == "classification" else (1,))


def test_classes_that_are_numbers_keep_their_order(tmp_path: Path) -> None:
    assert csv(written(tmp_path, "x,y\n1,10\n1,9\n1,2\n"), "y").class_names == ["2", "9", "10"]


@pytest.mark.parametrize(
    ("content", "settings"),
    [
        pytest.param(b"\xef\xbb\xbfx,y\n1,2\n3,4\n", {}, id="a mark of UTF-8"),
        pytest.param("x,y\n1,2\n3,4\n".encode("utf-16"), {"encoding": "utf-16"}, id="UTF-16"),
        pytest.param("x,y\n1,\xe9\n3,e\n".encode("latin-1"), {"encoding": "latin-1"}, id="Latin 1"),
        pytest.param(b"x;y\n1,5;2\n3;4\n", {"separator": ";", "decimal": ","}, id="semicolons and decimal commas"),
        pytest.param(b"x,y\r\n1,2\r\n\r\n3,4\r\n", {}, id="lines of Windows, one of them blank"),
        pytest.param(b'"x", y\n"1", 2\n3, 4', {}, id="quotes and spaces"),
        pytest.param(b"city,x,y\nBerlin,1,2\nParis,3,4\n", {"ignore": ["city"]}, id="a column left out"),
    ],
)
def test_files_of_other_programs_are_read(content: bytes, settings: Any, tmp_path: Path) -> None:
    data = csv(written(tmp_path, content), "y", val_fraction=0.5, **settings)
    assert data.shape == (1,)
    assert len(data.train) == len(data.val) == 1


@pytest.mark.parametrize(
    ("content", "settings", "place", "said"),
    [
        (b"city,x,when,y\nB,1,monday,2\nP,3,sunday,4\n", {}, "path",
         "line 2: 'B' is no number, so the columns 'city', 'when' cannot be used: turn them into numbers, or set "
         "ignore: [city, when]"),
        (b"x,y\n1,2\n,4\nnan,5\n", {}, "path", "line 3: the cell of column 'x' is empty, and in 1 more rows"),
        (b"x,y\n1,2\n3,NaN\n", {}, "path", "line 3: the cell of column 'y' holds 'NaN': fill it, or remove the row"),
        (b"x,x,y\n1,2,3\n", {}, "path", "line 1: names 'x' more than once"),
        (b"x,,y\n1,2,3\n", {}, "path", "line 1: has no name for column 2"),
        (b"1,2\n3,4\n5,6\n", {}, "path", "line 1: holds numbers: the first line must name the columns"),
        (b"x;y\n1;2\n", {}, "path",
         "line 1: has one column: its cells seem to be separated by a semicolon: "
         "set separator: ';'"),
        (b"x;y\n1,5;2\n2;3\n", {"separator": ";"}, "path",
         "line 2: '1,5' is no number, so the column 'x' cannot be used: turn it into numbers, set decimal: ',',"),
        (b"x,y\n1,2\n3\n", {}, "path", "line 3: has 1 cells, and the first line names 2"),
        (b'x,y\n1,"2\n3,4\n', {}, "path", "is no CSV: unexpected end of data"),
        (b"x,y\n1,2\n3,\xe9\n", {}, "encoding", "line 3: is not utf-8: set encoding: latin-1"),
        ("x,y\n1,2\n".encode("utf-16"), {}, "encoding", "is written in UTF-16: set encoding: utf-16"),
        (b"x,y\n1,2\n", {"encoding": "utf8000"}, "encoding", "Python knows no encoding 'utf8000'"),
        (b"x,y\n1,2\n", {"encoding": "rot13"}, "encoding", "is no encoding of text"),
        (b"x,y\n1e999,2\n3,4\n", {}, "path", "line 2: the number of column 'x' is too large"),
        (b"x,y\n1_0,2\n3,4\n", {}, "path", "'1_0' is no number"),
        (b"x,y\n1,2\n3,2\n", {}, "target", "every row of"),
        (b"x,y\n1,2\n", {}, "path", "has 1 rows below its line of names"),
        (b"", {}, "path", "has 0 rows"),
        (b"x,yy\n1,2\n3,4\n", {}, "target", "has no column 'y', did you mean 'yy'?"),
        (b"x,y\n1,a\n3,b\n", {"task": "regression"}, "path", "line 2: 'a' in column 'y' is no number"),
        (b"x,y\n1,a\n3,b\n", {"ignore": ["x"]}, "ignore", "has no column left"),
        (b"x,y\n1,a\n3,b\n", {"ignore": ["z"]}, "ignore", "has no column 'z'"),
        (b"x,y\n1,a\n3,b\n", {"separator": "ab"}, "separator", "one character between two cells"),
        (b"x,y\n1,a\n3,b\n", {"val_fraction": 0.9}, "val_fraction", "would take all 2 rows"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_said_with_file_and_line(
    content: bytes, settings: Any, place: str, said: str, tmp_path: Path
) -> None:
    path = written(tmp_path, content)
    with pytest.raises(SettingError) as caught:
        csv(path, "y", **settings)
    assert caught.value.setting == place
    assert said in caught.value.message
    assert "table.csv" in caught.value.message or place in ("separator", "encoding", "val_fraction")


def test_a_file_that_is_not_there_is_named_whole(tmp_path: Path) -> None:
    for path in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(SettingError, match="there is no file /"):
            csv(path, "y")
