"""Writers by name, by mapping and as objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ignite_hooks.writers.jsonl import JsonlWriter, read_jsonl
from ignite_hooks.writers.memory import MemoryWriter
from tests.config.tools import attach

pytestmark = pytest.mark.usefixtures("_elsewhere")


class Other:
    """A writer of another family."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def write_scalar(self, name: str, value: Any, step: int) -> None:
        self.seen.append((name, value, step))

    def write_image(self, name: str, image: Any, step: int) -> None: ...

    def write_config(self, config: Any) -> None: ...


def test_writers_by_name_by_mapping_and_as_objects(tmp_path: Path) -> None:
    memory, other = MemoryWriter(), Other()
    cfg = {"hooks": [], "writers": ["MemoryWriter", {"type": "JsonlWriter", "path": "sub/x.jsonl"}, memory, other]}
    runner = attach(cfg, work_dir="out")
    runner.writer.write_scalar("loss", 0.5, 3)
    runner.writer.close()
    assert memory.scalars == other.seen == [("loss", 0.5, 3)]
    assert isinstance(runner.writer.writers[1], MemoryWriter)
    # Relative paths are relative to the work directory.
    assert [row["scalars"] for row in read_jsonl(tmp_path / "out/sub/x.jsonl")] == [{"loss": 0.5}]
    assert [row["scalars"] for row in read_jsonl(tmp_path / "out/metrics.jsonl")] == [{"loss": 0.5}]


@pytest.mark.parametrize("path", ["metrics.jsonl", "./sub/../metrics.jsonl"])
def test_the_file_that_is_always_written_is_not_written_twice(path: str, tmp_path: Path) -> None:
    runner = attach({"hooks": [], "writers": [{"type": "JsonlWriter", "path": path}]}, work_dir="out")
    runner.writer.write_scalar("loss", 0.5, 3)
    runner.writer.close()
    assert [row["scalars"] for row in read_jsonl(tmp_path / "out/metrics.jsonl")] == [{"loss": 0.5}]


def test_one_writer_needs_no_list() -> None:
    for cfg in ({"writers": "MemoryWriter"}, {"writer": {"type": "MemoryWriter"}}, {"writer": MemoryWriter()}):
        runner = attach({"hooks": [], **cfg})
        assert [type(writer) for writer in runner.writer.writers] == [JsonlWriter, MemoryWriter]


def test_an_absolute_path_of_a_writer_stays(tmp_path: Path) -> None:
    wanted = tmp_path / "elsewhere" / "x.jsonl"
    runner = attach({"hooks": [], "writers": [{"type": "JsonlWriter", "path": str(wanted)}]}, work_dir="out")
    assert runner.writer.writers[1].path == wanted
