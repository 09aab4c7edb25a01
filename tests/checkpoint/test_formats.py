"""Checkpoints of every format are read for ever: `formats/` holds one file of each.

A file is made by ``python -m tests.checkpoint.test_formats`` with the version that writes its format, and never again.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Events

from ignite_hooks import CheckpointError
from ignite_hooks.checkpoint.formats import FORMAT, STEPS, upgraded
from tests.checkpoint.runs import LENGTH, content, script

FILES = Path(__file__).with_name("formats")
STOPPED_AT = 6


def test_there_is_a_file_of_each_format() -> None:
    assert sorted(path.name for path in FILES.iterdir()) == [f"format_{n}.pth" for n in range(1, FORMAT + 1)]
    assert len(STEPS) == FORMAT - 1


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("number", range(1, FORMAT + 1))
def test_a_file_of_each_format_resumes_exactly(number: int, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "old.pth"
    shutil.copyfile(FILES / f"format_{number}.pth", path)
    assert content(path)["meta"]["format"] == number
    now = script(tmp_path, resume=path)
    batches: list[Any] = []
    now.trainer.add_event_handler(Events.ITERATION_STARTED, lambda: batches.append(now.trainer.state.iteration))
    now.run(3)
    assert batches == list(range(STOPPED_AT + 1, 3 * LENGTH + 1))
    assert now.counter.seen[:2] == [0, 1]  # the second was told when the run was stopped in it
    assert "is approximate" not in caplog.text


@pytest.mark.usefixtures("quick")
def test_a_position_of_an_older_layout_is_approximate_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state = torch.load(FILES / "format_1.pth", weights_only=True)
    del state["data"]["sized"]
    torch.save(state, tmp_path / "older.pth")
    now = script(tmp_path, resume=tmp_path / "older.pth")
    now.run(3)
    assert now.trainer.state.iteration == 3 * LENGTH
    assert "older.pth is approximate: it does not say where in its data the run was" in caplog.text


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (FORMAT + 1, f"has format {FORMAT + 1}, and this version of ignite_hooks reads formats 1 to {FORMAT}"),
        ("new", "meta.format is 'new'"),
        (0, "meta.format is 0"),
    ],
)
def test_another_format_is_refused_in_a_sentence(number: object, words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        upgraded({"meta": {"format": number}}, Path("a.pth"))


def test_a_foreign_file_is_left_as_it_is() -> None:
    assert upgraded({"state_dict": {}, "data": 3}, Path("a.pth")) == {"state_dict": {}, "data": 3}


def make(folder: Path) -> None:
    """Write the file of the format of this version."""
    now = script(folder)
    now.trainer.add_event_handler(Events.ITERATION_COMPLETED(once=STOPPED_AT), lambda: now.runner.stop("enough"))
    now.run(3)
    shutil.copyfile(folder / "last.pth", FILES / f"format_{content(folder / 'last.pth')['meta']['format']}.pth")


if __name__ == "__main__":
    import tempfile

    make(Path(tempfile.mkdtemp()))
