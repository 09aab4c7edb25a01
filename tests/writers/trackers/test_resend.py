"""``ignite-hooks send``: what a spool file may make us do, and what it may not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ignite_hooks.writers.memory import MemoryWriter
from ignite_hooks.writers.trackers.resend import note_new_name, waiting
from ignite_hooks.writers.trackers.spool import Spool, TrackerRecord
from ignite_hooks.writers.trackers.tracker import Ending, Tracker
from ignite_hooks.writers.trackers.tracker_writer import TrackerWriter


class Shelf(TrackerWriter, Tracker):
    """A tracker that keeps everything."""

    got: list[TrackerRecord]
    ended: list[str]
    down = False
    kept: set[str]
    """The runs whose own files have not been sent."""

    def __init__(self, label: str = "", *, mode: Any = "auto", deadline: float = 20.0, work_dir: Any = None) -> None:
        super().__init__("shelf", mode, work_dir, deadline)
        self.label = label

    def settings(self) -> dict[str, Any]:
        return {"label": self.label}

    def connect(self) -> Tracker:
        return self

    def has_unsent(self, run: str) -> bool:
        return run in Shelf.kept

    def send(self, records: Any) -> None:
        if Shelf.down:
            raise ConnectionError("the shelf is full")
        Shelf.got += records

    def close(self, ended: Ending = "finished") -> bool:  # type: ignore[override]
        Shelf.ended.append(ended)
        return True


@pytest.fixture(autouse=True)
def _empty_shelf() -> None:
    Shelf.got, Shelf.ended, Shelf.down, Shelf.kept = [], [], False, set()


def spool_in(folder: Path, /, *records: TrackerRecord, **header: Any) -> Spool:
    folder.mkdir(parents=True, exist_ok=True)
    spool = Spool(folder / "shelf.spool", {"writer": "Shelf", "settings": {}, "folder": str(folder), **header})
    spool.append(records)
    return spool


def send(folder: Path, kinds: Any = None) -> list[str]:
    classes = kinds or {"Shelf": Shelf, "MemoryWriter": MemoryWriter}
    return [send() for _, send in waiting(folder, classes.__getitem__)]


def scalars(step: int) -> TrackerRecord:
    return TrackerRecord("scalars", step, 0.5, {"loss": 1.0})


def artifact(path: object) -> TrackerRecord:
    return TrackerRecord("artifact", 0, 0.5, {"path": str(path), "name": "best.pth", "kind": "model"})


def test_waiting_records_are_sent_once_in_order(tmp_path: Path) -> None:
    spool = spool_in(tmp_path / "run", *map(scalars, range(1, 4)))
    assert send(tmp_path) == ["3 records sent to Shelf"]
    assert [record.step for record in Shelf.got] == [1, 2, 3]
    assert not spool.path.exists()
    assert send(tmp_path) == []


@pytest.mark.parametrize("ended", ["finished", "stopped", "failed"])
def test_what_is_sent_later_ends_as_the_run_has_ended(ended: Any, tmp_path: Path) -> None:
    Shelf.down = True
    writer = Shelf(mode="online", work_dir=tmp_path)
    writer.ended = ended
    writer.write_scalar("loss", 1.0, 1)
    TrackerWriter.close(writer)
    Shelf.down, Shelf.ended = False, []
    send(tmp_path)
    assert Shelf.ended == [ended]


def test_an_end_that_nobody_knows_is_none(tmp_path: Path) -> None:
    spool_in(tmp_path, scalars(1), ended="__init__")
    send(tmp_path)
    assert Shelf.ended == ["finished"]


def test_rejected_records_keep_waiting(tmp_path: Path) -> None:
    spool = spool_in(tmp_path, scalars(1))
    Shelf.down = True
    with pytest.raises(ConnectionError, match="the shelf is full"):
        send(tmp_path)
    assert len(spool) == 1


def test_files_are_found_after_the_folder_was_moved(tmp_path: Path) -> None:
    spool_in(tmp_path / "now", artifact("/elsewhere/run/best.pth"), folder="/elsewhere/run")
    (tmp_path / "now" / "best.pth").write_bytes(b"weights")
    send(tmp_path)
    assert [record.content["path"] for record in Shelf.got] == [str(tmp_path / "now" / "best.pth")]


@pytest.mark.parametrize("where", ["/etc/passwd", "../secret", "{folder}/../secret", "{folder}/link"])
def test_files_outside_the_folder_are_not_sent(where: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "secret").write_text("hush")
    folder = tmp_path / "run"
    spool_in(folder, artifact(where.format(folder=folder)), scalars(1))
    (folder / "link").symlink_to(tmp_path / "secret")
    send(tmp_path)
    assert [record.what for record in Shelf.got] == ["scalars"]
    assert "so it is not sent" in caplog.text


@pytest.mark.parametrize(
    "row",
    [
        {"what": "close", "step": 1, "time": 0.5, "content": {}},
        {"what": "__init__", "step": 1, "time": 0.5, "content": {}},
        {"what": ["scalars"], "step": 1, "time": 0.5, "content": {}},
        {"what": "scalars", "step": "1", "time": 0.5, "content": {}},
        {"what": "scalars", "step": 1, "time": 0.5, "content": [1]},
        {"what": "scalars"},
        [1, 2],
    ],
    ids=json.dumps,
)
def test_foreign_lines_call_nothing(row: Any, tmp_path: Path) -> None:
    spool = spool_in(tmp_path, scalars(1))
    with spool.path.open("a") as file:
        file.write(json.dumps(row) + "\n")
    send(tmp_path)
    assert Shelf.got == [scalars(1)]


@pytest.mark.parametrize(("writer", "error"), [("MemoryWriter", ValueError), ("os.system", KeyError), (None, KeyError)])
def test_only_writers_for_trackers_are_made(writer: Any, error: type[Exception], tmp_path: Path) -> None:
    spool_in(tmp_path, scalars(1), writer=writer)
    with pytest.raises(error):
        send(tmp_path)


def test_what_follows_a_run_waits_until_the_run_is_sent(tmp_path: Path) -> None:
    (tmp_path / ".shelf.run").write_text(json.dumps({"run": "run 1", "key": "a"}))
    Shelf.kept = {"run 1"}
    for step in (1, 2):
        writer = Shelf(mode="online", work_dir=tmp_path)
        assert writer.go_on("stopped", 1.5)
        writer.write_scalar("test/loss", 1.0, step)
        TrackerWriter.close(writer)
    assert Shelf.got == [], "the tracker is not asked"
    with pytest.raises(ConnectionError, match="has not been sent, so it waits"):
        send(tmp_path)
    Shelf.kept = set()
    note_new_name(tmp_path, "run 1", "task 7")
    assert [Spool(path).read_header()["run"] for path in tmp_path.glob("*.spool")] == ["task 7"]
    assert send(tmp_path) == ["2 records sent to Shelf"]
    assert ([record.step for record in Shelf.got], Shelf.ended) == ([1, 2], ["stopped"])
    writer = Shelf(mode="online", work_dir=tmp_path)
    assert writer.go_on("finished", 1.5)
    assert (writer.run_id, writer.follows_later) == ("task 7", False)


def test_a_run_that_nobody_knows_is_not_gone_on_with(tmp_path: Path) -> None:
    assert not Shelf(work_dir=tmp_path).go_on("finished", 1.5)
    spool_in(tmp_path, scalars(1), run=None)
    waits = Shelf(mode="online", work_dir=tmp_path)
    assert waits.go_on("finished", 1.5)
    waits.write_scalar("test/loss", 1.0, 4)
    TrackerWriter.close(waits)
    assert send(tmp_path) == ["2 records sent to Shelf"], "behind what waits already"
    assert not Shelf(mode="disabled", work_dir=tmp_path).go_on("finished", 1.5)


@pytest.mark.parametrize("kind", ["offline-run", "run"])
@pytest.mark.parametrize("held", [b"", b":W&B\xe1\xbe\x00"], ids=["empty", "only its head"])
def test_a_file_of_wandb_whose_run_was_killed_at_its_start_is_put_away(tmp_path: Path, kind: str, held: bytes) -> None:
    """W&B itself fails on it with ``EOF``, each time."""
    file = tmp_path / "wandb" / f"{kind}-20260101_000000-a" / "run-a.wandb"
    file.parent.mkdir(parents=True)
    file.write_bytes(held)
    file.with_name("run-a.wandb.unsent").touch()
    [(path, send)] = waiting(tmp_path, {}.__getitem__)
    assert (path, send()) == (file, "nothing was in it")
    assert list(file.parent.iterdir()) == []
