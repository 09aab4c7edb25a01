"""The records of a writer for a tracker, its spools and its threads."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from ignite_hooks.writers.trackers.spool import Spool, TrackerRecord
from ignite_hooks.writers.trackers.tracker import Tracker
from ignite_hooks.writers.trackers.tracker_writer import TrackerWriter

SOON = 30.0
"""Seconds after which something that should happen has failed."""


class ToPlace(TrackerWriter):
    def __init__(self, place: Any, work_dir: Path, **settings: Any) -> None:
        super().__init__("place", settings.pop("mode", "auto"), work_dir, SOON, **settings)
        self.place = place

    def connect(self) -> Tracker:
        self.run_id = self.run_id or "run 1"
        return self.place  # type: ignore[no-any-return]


class Everything(Tracker):
    def __init__(self) -> None:
        self.records: list[TrackerRecord] = []

    def send(self, records: Sequence[TrackerRecord]) -> None:
        self.records += records


def test_every_kind_of_thing_becomes_a_record(tmp_path: Path) -> None:
    place = Everything()
    writer = ToPlace(place, tmp_path)
    picture = numpy.ones((2, 3, 3))
    writer.write_scalar("lr", 0.1, 1)
    writer.write_scalars({"loss": torch.tensor(0.5), "text": "no number"}, 2, kind="val")
    writer.write_image("cat", picture, 3)
    writer.write_histogram("weights", torch.tensor([0.0, 1.0, torch.nan]), 4)
    writer.write_text("note", "hello", 5)
    writer.write_config({"seed": 1})
    writer.write_artifact(tmp_path / "best.pth", kind="model")
    picture[:] = 0
    writer.close()
    seen = [(record.what, record.step) for record in place.records]
    assert seen == [
        ("scalars", 1),
        ("scalars", 2),
        ("image", 3),
        ("histogram", 4),
        ("text", 5),
        ("config", 0),
        ("artifact", 0),
    ]
    contents = [record.content for record in place.records]
    assert contents[:2] == [{"lr": 0.1}, {"val/loss": 0.5}]
    assert (contents[2]["image"] == 255).all(), "what is drawn later does not change it"
    assert sum(contents[3]["counts"]) == 2
    assert contents[6] == {"path": str(tmp_path / "best.pth"), "name": "best.pth", "kind": "model"}
    times = [record.time for record in place.records]
    assert times == sorted(times)


def test_a_disabled_writer_does_nothing(tmp_path: Path) -> None:
    writer = ToPlace(None, tmp_path, mode="disabled")
    writer.write_scalar("lr", 0.1, 1)
    writer.close()
    assert threading.active_count() == threading.active_count()
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_mode_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^mode: auto, online, offline or disabled is needed, not False$"):
        ToPlace(None, tmp_path, mode=False)


def test_each_run_has_its_own_spool(tmp_path: Path) -> None:
    class Down(Tracker):
        def send(self, records: Sequence[TrackerRecord]) -> None:
            raise ConnectionError

    writer = ToPlace(Down(), tmp_path)
    writer.write_scalar("loss", 1.0, 1)
    writer.close()
    writer.write_scalar("loss", 1.0, 2)
    writer.close()
    writer.resumed(1)
    writer.write_scalar("loss", 1.0, 2)
    writer.close()
    found = {path.name: [record.step for record in Spool(path)] for path in sorted(tmp_path.iterdir())}
    assert found == {"place-2.spool": [2], "place.spool": [1, 2]}
    header = Spool(tmp_path / "place.spool").read_header()
    assert header == {"writer": "ToPlace", "settings": {}, "run": "run 1", "folder": str(tmp_path)}


def test_no_thread_is_left(tmp_path: Path) -> None:
    before = threading.active_count()
    for _ in range(20):
        writer = ToPlace(Everything(), tmp_path)
        writer.write_scalar("loss", 1.0, 1)
        writer.close()
        writer.close()
    assert threading.active_count() == before


def test_the_message_about_being_offline_names_the_remedy(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    ToPlace(None, tmp_path).offline_because("http://x does not answer", tmp_path)
    assert caplog.messages == [
        f"ToPlace: http://x does not answer, so it works offline, in {tmp_path}; "
        f"'ignite-hooks send {tmp_path}' sends it later"
    ]
