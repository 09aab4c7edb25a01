from __future__ import annotations

import json
import math
import os
import resource
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from ignite_hooks.writers import jsonl
from ignite_hooks.writers.jsonl import JsonlWriter, Tail, read_jsonl
from tests.writers.results import every_kind, write_all


def writer_at(path: Path) -> JsonlWriter:
    return JsonlWriter(path, clock=lambda: 1000.5)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "scalars.jsonl"


@pytest.fixture
def writer(path: Path) -> Iterator[JsonlWriter]:
    writer = writer_at(path)
    yield writer
    writer.close()


def write_steps(path: Path, *steps: int) -> None:
    writer = writer_at(path)
    for step in steps:
        writer.write_scalars({"loss": step / 10}, step)
    writer.close()


def steps_in(path: Path) -> list[int]:
    return [row["step"] for row in read_jsonl(path)]


def test_a_line_holds_what_belongs_together(writer: JsonlWriter, path: Path) -> None:
    writer.write_scalars({"acc": 0.9, "n": 3}, 7, kind="val", epoch=2)
    writer.write_scalar("lr", 0.1, 8)
    assert read_jsonl(path) == [
        {"time": 1000.5, "step": 7, "epoch": 2, "kind": "val", "scalars": {"acc": 0.9, "n": 3}},
        {"time": 1000.5, "step": 8, "epoch": None, "kind": "train", "scalars": {"lr": 0.1}},
    ]


def test_the_file_is_opened_at_the_first_write(writer: JsonlWriter, path: Path) -> None:
    writer.write_image("cat", None, 1)
    writer.write_config({"seed": 1})
    writer.flush()
    writer.cut(5)
    writer.close()
    assert not path.parent.exists()
    writer.write_scalar("loss", 0.5, 1)
    assert path.exists()


def test_a_line_is_one_write_and_readable_at_once(
    writer: JsonlWriter, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces: list[bytes] = []

    class Counting(FileIO):
        def write(self, data: Any) -> int:
            pieces.append(bytes(data))
            return super().write(data)

    monkeypatch.setattr(jsonl, "FileIO", Counting)
    for step in range(3):
        writer.write_scalars({f"metric{n}": 0.5 for n in range(2000)}, step)
        assert len(read_jsonl(path)) == len(pieces) == step + 1
    assert all(piece.endswith(b"\n") and piece.count(b"\n") == 1 for piece in pieces)


def test_nan_and_infinity_are_null_and_named(writer: JsonlWriter, path: Path) -> None:
    scalars = {
        "a": math.nan,
        "b": torch.tensor(math.inf),
        "c": numpy.float32("-inf"),
        "d": 0.0,
        "e": [1.0, math.nan],
    }
    writer.write_scalars(scalars, 1)
    [row] = read_jsonl(path)
    assert row["scalars"] == {"a": None, "b": None, "c": None, "d": 0.0, "e": [1.0, None]}
    assert row["nonfinite"] == ["a", "b", "c", "e"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (torch.tensor(0.5), 0.5),
        (torch.tensor([2]), 2),
        (torch.tensor(2**60), 2**60),
        (torch.tensor(True), True),
        (torch.tensor(0.5, dtype=torch.bfloat16, requires_grad=True), 0.5),
        (torch.tensor([1.0, 2.0]), [1.0, 2.0]),
        (numpy.float64(0.1), 0.1),
        (numpy.arange(3), [0, 1, 2]),
        ({"cat": {"f1": numpy.float32(0.5)}}, {"cat": {"f1": 0.5}}),
        (None, None),
        ("text", "text"),
        (Path("x"), "x"),
        (1e308, 1e308),
    ],
)
def test_a_value_becomes_plain_json(writer: JsonlWriter, path: Path, value: Any, expected: Any) -> None:
    writer.write_scalar("m", value, 1)
    [row] = read_jsonl(path)
    assert row["scalars"] == {"m": expected}
    assert type(row["scalars"]["m"]) is type(expected)


def test_many_tensors_are_fetched_in_one_call(writer: JsonlWriter, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def counted(method: str) -> Callable[[torch.Tensor], Any]:
        original = getattr(torch.Tensor, method)

        def call(tensor: torch.Tensor) -> Any:
            calls.append(method)
            return original(tensor)

        return call

    for method in ("item", "tolist"):
        monkeypatch.setattr(torch.Tensor, method, counted(method))
    writer.write_scalars({f"m{n}": torch.tensor(n / 4) for n in range(20)}, 1)
    assert calls == ["tolist"]
    assert read_jsonl(path)[0]["scalars"] == {f"m{n}": n / 4 for n in range(20)}


@pytest.mark.parametrize("name", ["准确率", "line\nbreak", 'quote"', "\u2028", "\ud800", "é"])
def test_any_name_survives(writer: JsonlWriter, path: Path, name: str) -> None:
    writer.write_scalar(name, 0.5, 1)
    write_steps(path, 2)
    assert [list(row["scalars"]) for row in read_jsonl(path)] == [[name], ["loss"]]


def test_closing_twice_is_fine_and_a_later_write_opens_again(writer: JsonlWriter, path: Path) -> None:
    writer.close()
    writer.write_scalar("loss", 0.5, 1)
    writer.close()
    writer.close()
    writer.write_scalar("loss", 0.4, 2)
    writer.close()
    assert steps_in(path) == [1, 2]


def test_a_second_writer_appends(path: Path) -> None:
    write_steps(path, 1, 2)
    write_steps(path, 3)
    assert steps_in(path) == [1, 2, 3]


def test_a_torn_last_line_is_repaired_wherever_it_is_torn(path: Path) -> None:
    write_steps(path, 1, 2)
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        # A line that lacks only its newline is complete.
        complete = [1][: length >= first - 1] + [2][: length >= len(whole) - 1]
        assert steps_in(path) == complete
        write_steps(path, 3)
        assert steps_in(path) == [*complete, 3]
        assert all(json.loads(line) for line in path.read_text().splitlines())


@pytest.mark.parametrize(("room", "message"), [(0, "too large"), (10, "only 10 of")])
def test_a_full_disk_leaves_the_file_usable(writer: JsonlWriter, path: Path, room: int, message: str) -> None:
    write_steps(path, 1)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + room, limits[1]))
    try:
        for step in (2, 3):
            with pytest.raises(OSError, match=message):
                writer.write_scalar("loss", 0.5, step)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert steps_in(path) == [1]
    writer.write_scalar("loss", 0.5, 4)
    assert steps_in(path) == [1, 4]


def test_a_broken_line_is_reported_with_its_place(path: Path) -> None:
    write_steps(path, 1, 2)
    path.write_bytes(b"broken\n" + path.read_bytes())
    with pytest.raises(ValueError, match=r"scalars\.jsonl: line 1 is not JSON"):
        read_jsonl(path)


@pytest.mark.parametrize(
    ("step", "kept"), [(0, []), (2, [1, 2, 2]), (3, [1, 2, 2, 3]), (99, [1, 2, 2, 3, 5]), (-1, [])]
)
def test_cut_drops_later_steps(writer: JsonlWriter, path: Path, step: int, kept: list[int]) -> None:
    write_steps(path, 1, 2, 2, 3, 5)
    lines = path.read_bytes().splitlines(keepends=True)
    writer.cut(step)
    assert steps_in(path) == kept
    assert path.read_bytes() == b"".join(lines[: len(kept)])
    assert os.listdir(path.parent) == [path.name]


def test_cut_between_two_writes_continues_after_the_cut(writer: JsonlWriter, path: Path) -> None:
    for step in (1, 2, 3):
        writer.write_scalar("loss", 0.5, step)
    writer.cut(1)
    writer.write_scalar("loss", 0.4, 2)
    assert steps_in(path) == [1, 2]


def test_cut_drops_a_torn_last_line_wherever_it_is_torn(writer: JsonlWriter, path: Path) -> None:
    write_steps(path, 1, 2, 9)
    whole = path.read_bytes()
    start = whole.rindex(b"\n", 0, -1) + 1
    for length in range(start, len(whole)):
        path.write_bytes(whole[:length])
        writer.cut(2)
        assert steps_in(path) == [1, 2]
        assert path.read_bytes() == whole[:start]


def test_cut_does_not_touch_a_file_without_later_steps(writer: JsonlWriter, path: Path) -> None:
    write_steps(path, 1, 2)
    before = path.stat()
    writer.cut(2)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_cut_keeps_foreign_lines(writer: JsonlWriter, path: Path) -> None:
    write_steps(path, 1, 9)
    foreign = b'{"note": "by hand"}\nno json\n[1]\n'
    path.write_bytes(foreign + path.read_bytes())
    writer.cut(1)
    assert path.read_bytes().startswith(foreign)
    assert path.read_bytes().count(b"\n") == 4


@pytest.mark.parametrize("call", ["os.fsync", "os.replace"])
def test_a_cut_that_fails_leaves_the_old_file(
    writer: JsonlWriter, path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    write_steps(path, 1, 2, 3)
    before = path.read_bytes()

    def fail(*_: Any) -> None:
        raise OSError("power lost")

    monkeypatch.setattr(call, fail)
    with pytest.raises(OSError, match="power lost"):
        writer.cut(1)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_a_new_run_keeps_the_files_of_earlier_ones(path: Path) -> None:
    for run in (1, 2, 3):
        writer_at(path).began_anew()
        write_steps(path, *range(run))
    # The first of them has only what was evaluated before its first step, and the second goes on with that.
    assert steps_in(path) == [0, 1, 2]
    assert sorted(other.name for other in path.parent.iterdir()) == ["scalars.earlier-1.jsonl", "scalars.jsonl"]
    assert steps_in(path.with_name("scalars.earlier-1.jsonl")) == [0, 0, 1]


def test_reading_a_missing_file_is_an_error(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_jsonl(path)


# -- reading beside the writing ------------------------------------------------------------------------------------


def test_each_line_is_read_once_when_it_is_complete(path: Path, writer: JsonlWriter) -> None:
    tail = Tail(path)
    assert tail.new() == ([], False)
    writer.write_scalar("loss", 1.0, 1)
    assert [row["step"] for row in tail.new()[0]] == [1]
    with path.open("ab") as file:
        file.write(b'{"step": 2')
        file.flush()
        assert tail.new() == ([], False)
        file.write(b"}\n")
    assert tail.new() == ([{"step": 2}], False)


def test_lines_that_are_not_json_are_skipped(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b'torn {"\n[1]\n{"step": 3}\n')
    assert Tail(path).new() == ([{"step": 3}], False)


def test_reading_begins_again_after_a_resume(path: Path, writer: JsonlWriter) -> None:
    tail = Tail(path)
    for step in (1, 2, 3):
        writer.write_scalar("loss", 1.0, step)
    tail.new()
    writer.cut(1)
    writer.write_scalar("loss", 0.5, 2)
    rows, again = tail.new()
    assert again
    assert [row["step"] for row in rows] == [1, 2]


def test_a_result_is_a_line_and_a_large_one_a_file(tmp_path: Path) -> None:
    writer = JsonlWriter(tmp_path / "metrics.jsonl")
    write_all(writer)
    writer.write_result("../big", {"kind": "matrix", "values": [[0.125] * 100] * 100}, 4)
    writer.close()
    lines = read_jsonl(tmp_path / "metrics.jsonl")
    found = {line["name"]: line.get("result") for line in lines}
    assert found["confusion"] == every_kind()["confusion"]
    assert found["iou"]["values"] == [0.5, None]
    assert found["worst"]["rows"] == [["", 0.5], ["a text", 0.25]]
    assert lines[-1]["file"] == "results/val_.._big_iter_4.json"
    assert json.loads((tmp_path / lines[-1]["file"]).read_text())["values"][99][99] == 0.125
    assert {path.name for path in tmp_path.iterdir()} == {"metrics.jsonl", "results"}
    writer.cut(3)
    assert read_jsonl(tmp_path / "metrics.jsonl") == []


def test_a_table_is_a_line_too(tmp_path: Path) -> None:
    writer = JsonlWriter(tmp_path / "metrics.jsonl")
    writer.write_table("samples", ["text", "loss"], [["a", 0.5]], 3)
    writer.close()
    (line,) = read_jsonl(tmp_path / "metrics.jsonl")
    assert line["result"] == {"kind": "table", "columns": ["text", "loss"], "rows": [["a", 0.5]]}
