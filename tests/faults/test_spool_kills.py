"""A process that writes a spool, or sends one, is killed at every step: nothing is lost, nothing is sent twice."""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ignite_hooks.writers.trackers import spool as spools
from ignite_hooks.writers.trackers.delivered import Delivered
from ignite_hooks.writers.trackers.resend import waiting
from ignite_hooks.writers.trackers.spool import Spool, TrackerRecord
from ignite_hooks.writers.trackers.tracker import Ending, Tracker
from ignite_hooks.writers.trackers.tracker_writer import TrackerWriter
from tests.faults.tools import Life, drawn, times

pytestmark = pytest.mark.faults
RECORDS = 12


class Killed:
    """Kills its process at the step of this number, before it or halfway through it."""

    def __init__(self, moment: int) -> None:
        self.left = moment

    def step(self) -> bool:
        """Count a step; return whether this is the one."""
        self.left -= 1
        return self.left == 0

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class Ledger(TrackerWriter, Tracker):
    """A tracker whose server is a file: a line there is a number that it has confirmed."""

    death = Killed(0)

    def __init__(self, *, mode: Any = "auto", work_dir: Any = None) -> None:
        super().__init__("ledger", mode, work_dir, 20.0)

    def connect(self) -> Tracker:
        self.run_id = self.run_id or "the run"
        return self

    def scalars(self, record: TrackerRecord) -> None:
        if Ledger.death.step():
            Ledger.death.die()
        with (self.work_dir / "ledger").open("a") as file:
            file.write(f"{record.step}\n")
        if Ledger.death.step():
            Ledger.death.die()

    def arrived(self) -> Delivered:
        return Delivered(steps={"loss": frozenset(confirmed(self.work_dir))})

    def close(self, ended: Ending = "finished") -> bool:  # type: ignore[override]
        if Ledger.death.step():
            Ledger.death.die()
        return True


def confirmed(folder: Path) -> list[int]:
    path = folder / "ledger"
    return [int(line) for line in path.read_text().splitlines()] if path.exists() else []


def scalar(step: int) -> TrackerRecord:
    return TrackerRecord("scalars", step, 1.5, {"loss": 1.0})


@pytest.fixture(autouse=True)
def _dying_writes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let every write to a spool be a step too: before it, in the middle of its bytes, after it."""
    whole, remove = Spool._write, Path.unlink

    def write(self: Spool, lines: Sequence[str]) -> None:
        if Ledger.death.step():
            Ledger.death.die()
        if Ledger.death.step():
            text = "".join(f"{line}\n" for line in lines).encode()
            with self.path.open("ab") as file:
                file.write(text[: len(text) // 2])
            Ledger.death.die()
        whole(self, lines)
        if Ledger.death.step():
            Ledger.death.die()

    def unlink(self: Path, missing_ok: bool = False) -> None:
        if Ledger.death.step():
            Ledger.death.die()
        remove(self, missing_ok)

    monkeypatch.setattr(Spool, "_write", write)
    monkeypatch.setattr(Path, "unlink", unlink)
    # Batches of a few records.
    monkeypatch.setattr(spools, "MOST_BYTES", 250)
    yield
    Ledger.death = Killed(0)


def send_until(moments: Iterator[int], folder: Path) -> int:
    """Send a folder in processes that are killed at these moments, until one is not; return how many there were."""
    for number in itertools.count(1):
        moment = next(moments)

        def live(tell: Any, moment: int = moment) -> None:
            Ledger.death = Killed(moment)
            for _, send in waiting(folder, {"Ledger": Ledger}.__getitem__):
                send()

        with Life(live) as life:
            list(life.tells())
            if life.wait() == 0:
                return number
    raise AssertionError


def spool_in(folder: Path) -> Spool:
    folder.mkdir()
    spool = Spool(folder / "ledger.spool", {"writer": "Ledger", "folder": str(folder)})
    spool.append([scalar(step) for step in range(1, RECORDS + 1)])
    return spool


def test_sending_is_killed_at_every_step(tmp_path: Path) -> None:
    for moment in itertools.count(1):
        folder = tmp_path / str(moment)
        spool = spool_in(folder)
        lives = send_until(itertools.chain([moment], itertools.repeat(0)), folder)
        assert confirmed(folder) == list(range(1, RECORDS + 1)), f"killed at step {moment}"
        assert not spool.path.exists()
        if lives == 1:
            break
    assert moment > 3 * RECORDS, "every record, every mark, and the end were moments"


def test_sending_is_killed_again_and_again(tmp_path: Path) -> None:
    chance = drawn()
    for number in range(times(5, 100)):
        folder = tmp_path / str(number)
        spool = spool_in(folder)
        send_until(iter(lambda: chance.randint(1, 20), None), folder)
        assert confirmed(folder) == list(range(1, RECORDS + 1))
        assert not spool.path.exists()


def test_writing_is_killed_at_every_step(tmp_path: Path) -> None:
    """What `append` has returned from is there; a torn line takes no other with it."""
    for moment in itertools.count(1):
        path = tmp_path / f"{moment}.spool"

        def live(tell: Any, moment: int = moment, path: Path = path) -> None:
            Ledger.death = Killed(moment)
            spool = Spool(path, {"writer": "Ledger"})
            for step in range(1, 6):
                spool.append([scalar(step)])
                tell(step)

        with Life(live) as life:
            told = [words[0] for words in life.tells()]
            ended = life.wait() == 0
        again = Spool(path, {"writer": "Ledger"})
        again.append([scalar(9)])
        found = [record.step for record in again]
        assert found[-1] == 9
        assert found[:-1] in (told, [*told, len(told) + 1]), f"killed at step {moment}"
        assert again.read_header() == {"writer": "Ledger"} or not told
        assert len(again) == len(found)
        for line in path.read_bytes().splitlines():
            if b"what" in line and line.endswith(b"}}"):
                assert json.loads(line)
        if ended:
            break
    assert moment == 16
