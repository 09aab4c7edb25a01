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

from ignite_hooks.writers.trackers.delivered import Delivered
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
    found = {path.name: [record.step for record in Spool(path)] for path in sorted(tmp_path.glob("*.spool"))}
    assert found == {"place-2.spool": [2], "place.spool": [1, 2]}
    header = Spool(tmp_path / "place.spool").read_header()
    assert header.pop("key"), "of the checkpoints of this run"
    assert header == {"writer": "ToPlace", "settings": {}, "run": "run 1", "folder": str(tmp_path)}


class Continuing(Everything):
    """A tracker that has a run up to step 2."""

    def delivered(self) -> Delivered:
        return Delivered({"loss": 2})


def losses(place: Everything) -> list[int]:
    return [record.step for record in place.records if record.what == "scalars"]


def test_a_resumed_run_goes_on_in_the_run_of_its_checkpoint(tmp_path: Path) -> None:
    place = Continuing()
    writer = ToPlace(place, tmp_path)
    writer.awaits_resume()
    writer.write_config({"seed": 1})
    assert writer._delivery is None, "nothing is begun before the checkpoint is known"
    writer.load_state_dict({"run": "run 7", "spool": None})
    writer.resumed(1)
    for step in (2, 3):
        writer.write_scalar("loss", 1.0, step)
    writer.write_scalar("lr", 1.0, 2)
    writer.close()
    assert writer.run_id == "run 7"
    assert writer.state_dict()["run"] == "run 7"
    found = [(record.what, record.step, dict(record.content)) for record in place.records]
    assert found == [("config", 0, {"seed": 1}), ("scalars", 3, {"loss": 1.0}), ("scalars", 2, {"lr": 1.0})]


def test_a_run_whose_name_came_after_the_checkpoint_is_found(tmp_path: Path) -> None:
    first = ToPlace(Everything(), tmp_path)
    first.write_scalar("loss", 1.0, 1)
    early = {**first.state_dict(), "run": None}
    first.close()
    for state, run in ((early, "run 1"), ({**early, "key": "another"}, None)):
        again = ToPlace(Everything(), tmp_path)
        again.load_state_dict(state)
        again.resumed(1)
        assert again.run_id == run


@pytest.mark.parametrize("state", [None, {"run": "run 7", "spool": None}])
def test_another_run_is_begun_if_asked_or_if_none_is_known(state: dict[str, Any] | None, tmp_path: Path) -> None:
    place = Continuing()
    writer = ToPlace(place, tmp_path, on_resume="new" if state else "same")
    writer.awaits_resume()
    if state:
        writer.load_state_dict(state)
    writer.resumed(1)
    writer.write_scalar("loss", 1.0, 2)
    writer.close()
    assert (writer.run_id, losses(place)) == ("run 1", [2])


def test_what_an_earlier_life_has_left_is_sent_first_and_once(tmp_path: Path) -> None:
    class Down(Tracker):
        def send(self, records: Sequence[TrackerRecord]) -> None:
            raise ConnectionError

    first = ToPlace(Down(), tmp_path)
    for step in (1, 2, 3, 4):
        first.write_scalar("loss", 1.0, step)
    first.close()
    place = Continuing()
    second = ToPlace(place, tmp_path)
    second.awaits_resume()
    second.load_state_dict(first.state_dict())
    second.resumed(2)
    for step in (3, 4, 5):
        second.write_scalar("loss", 1.0, step)
    second.close()
    assert losses(place) == [3, 4, 5], "2 was there, 3 and 4 waited in the spool"
    assert list(tmp_path.glob("*.spool")) == []


@pytest.mark.parametrize("name", ["../place.spool", "/etc/passwd", "other.spool", 3])
def test_a_checkpoint_names_no_file_of_others(name: Any, tmp_path: Path) -> None:
    (tmp_path / "other.spool").write_text('{"run": "run 9"}\n')
    writer = ToPlace(Continuing(), tmp_path)
    writer.load_state_dict({"run": "run 7", "spool": name})
    writer.resumed(1)
    assert writer.run_id == "run 7"


def test_on_resume_is_same_or_new(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^on_resume: same or new is needed, not 'old'$"):
        ToPlace(None, tmp_path, on_resume="old")


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


def test_a_checkpoint_holds_numbers_that_are_only_in_memory(tmp_path: Path) -> None:
    """A killed process loses its memory, and its next life has passed these steps."""
    holds, taken = threading.Event(), threading.Event()

    class Slow(Everything):
        def send(self, records: Sequence[TrackerRecord]) -> None:
            taken.set()
            assert holds.wait(SOON)
            super().send(records)

    killed = ToPlace(Slow(), tmp_path)
    killed.write_scalar("loss", 1.0, 1)
    assert taken.wait(SOON)
    killed.write_scalar("loss", 0.5, 2)
    state = killed.state_dict()
    assert [row[0] for row in state["numbers"]] == [1, 2]
    place = Everything()
    again = ToPlace(place, tmp_path)
    again.awaits_resume()
    again.load_state_dict({**state, "numbers": [*state["numbers"], ["no", "record", 3], [4, 0.0, {"loss": "x"}]]})
    again.resumed(2)
    again.write_scalar("loss", 0.25, 3)
    again.close()
    assert losses(place) == [1, 2, 3]
    holds.set()
    killed.close()
    assert killed.state_dict()["numbers"] == []
