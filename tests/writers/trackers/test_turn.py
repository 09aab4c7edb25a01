"""Only one process delivers what belongs to a spool, and nothing is lost or sent twice where two want to."""

from __future__ import annotations

import errno
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ignite_hooks.system import host
from ignite_hooks.writers.trackers.delivery import Delivery
from ignite_hooks.writers.trackers.resend import waiting
from ignite_hooks.writers.trackers.spool import Spool
from ignite_hooks.writers.trackers.tracker_writer import TrackerWriter
from ignite_hooks.writers.trackers.turn import NotOurTurnError, Turn, every_turn
from tests.faults.tools import Life, drawn, until, wait
from tests.writers.trackers.places import Place, put
from tests.writers.trackers.test_resend import Shelf, scalars, spool_in


@pytest.fixture(autouse=True)
def _empty_shelf() -> None:
    Shelf.got, Shelf.ended, Shelf.down, Shelf.kept = [], [], False, set()


def send(folder: Path) -> list[str]:
    return [send() for _, send in waiting(folder, {"Shelf": Shelf}.__getitem__)]


def steps() -> list[int]:
    return [record.step for record in Shelf.got]


@pytest.mark.parametrize(("who", "words"), [("run", "a run"), ("send", "another 'ignite-hooks send'")])
def test_what_another_delivers_is_left_to_it(who: Any, words: str, tmp_path: Path) -> None:
    spool = spool_in(tmp_path, scalars(1))
    said = re.escape(f"{words} (process {os.getpid()} on ")
    with Turn(spool.path, who).taken(), pytest.raises(NotOurTurnError, match=f"{said}.*still delivers it"):
        send(tmp_path)
    assert Shelf.got == []
    assert send(tmp_path) == ["1 record sent to Shelf"]
    assert list(tmp_path.iterdir()) == [], "the file of the lock goes too"


def test_what_has_been_delivered_meanwhile_is_not_asked_for(tmp_path: Path) -> None:
    spool_in(tmp_path, scalars(1))
    [(_, first)], [(_, second)] = (list(waiting(tmp_path, {"Shelf": Shelf}.__getitem__)) for _ in range(2))
    assert first() == "1 record sent to Shelf"
    assert second() == "has been delivered meanwhile"
    assert steps() == [1]


def test_an_empty_spool_of_a_full_disk_is_removed(tmp_path: Path) -> None:
    (tmp_path / "shelf.spool").touch()
    assert send(tmp_path) == ["nothing was in it"]
    assert send(tmp_path) == []


def test_a_killed_process_has_no_turn_and_its_workers_neither(tmp_path: Path) -> None:
    spool = spool_in(tmp_path, scalars(1))

    def live(tell: Any) -> None:
        turn = Turn(spool.path, "run")
        turn.take()
        if os.fork() == 0:
            # Not before it has let go of what it has inherited.
            tell(os.getpid())
        signal.pause()

    with Life(live) as life:
        [worker] = next(life.tells())
        try:
            with pytest.raises(NotOurTurnError, match=f"process {life.pid} "):
                send(tmp_path)
            life.kill()
            assert send(tmp_path) == ["1 record sent to Shelf"]
        finally:
            os.kill(worker, signal.SIGKILL)


def test_a_worker_that_is_forked_while_a_spool_is_held_holds_it_no_longer(tmp_path: Path) -> None:
    spool = spool_in(tmp_path, scalars(1))
    with spool._held():
        worker = os.fork()
        if worker == 0:
            signal.pause()
    try:
        with spool._held() as file:
            assert file is not None
            # Not after waiting in vain: we have it.
            with spool.path.open("rb+") as other, pytest.raises(BlockingIOError):
                host.lock(other.fileno())
        with spool.path.open("rb+") as other:
            host.lock(other.fileno())
    finally:
        os.kill(worker, signal.SIGKILL)
        os.waitpid(worker, 0)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EACCES])
def test_a_disk_that_takes_no_lock_keeps_nobody_out(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(number, "no locks here")

    monkeypatch.setattr(host, "lock", refuse)
    spool_in(tmp_path, scalars(1))
    assert send(tmp_path) == ["1 record sent to Shelf"]


def test_a_run_waits_for_its_turn_and_delivers_the_rest(place: Place, deliver: Callable[..., Delivery]) -> None:
    delivery = deliver(gathered=0.0, pause=0.01)
    put(delivery, 1)
    until(lambda: place.steps == [1])
    delivery.close(60.0)
    sender = Turn(delivery.spool.path, "send")
    with sender.taken():
        delivery = deliver(gathered=0.0, pause=0.01)
        put(delivery, 2, 3)
        until(lambda: len(delivery.spool) == 2)
        assert place.steps == [1]
    put(delivery, 4)
    until(lambda: place.steps == [1, 2, 3, 4])
    with pytest.raises(NotOurTurnError):
        sender.take()
    delivery.close(60.0)
    assert list(delivery.spool.path.parent.iterdir()) == []


def test_a_run_that_never_gets_its_turn_leaves_its_records_in_the_spool(
    place: Place, deliver: Callable[..., Delivery], tmp_path: Path
) -> None:
    with Turn(tmp_path / "a.spool", "send").taken():
        delivery = deliver()
        put(delivery, 1, 2)
        delivery.close(60.0)
        assert [record.step for record in delivery.spool] == [1, 2]
    assert place.steps == []


def test_a_hanging_thread_keeps_its_turn_until_it_ends(place: Place, deliver: Callable[..., Delivery]) -> None:
    """What it has in hand may still arrive."""
    place.answer.clear()
    delivery = deliver(gathered=0.0)
    put(delivery, 1)
    place.asked.acquire()
    delivery.close(0.0)
    with pytest.raises(NotOurTurnError):
        Turn(delivery.spool.path, "send").take()
    place.answer.set()
    delivery._thread.join()
    with Turn(delivery.spool.path, "send").taken():
        assert [record.step for record in delivery.spool] == [1]


def test_two_writers_of_a_folder_have_a_spool_each(tmp_path: Path) -> None:
    Shelf.down = True
    writers = [Shelf(label, mode="online", work_dir=tmp_path) for label in ("one", "other")]
    for step in (1, 2):
        for writer in writers:
            writer.write_scalar("loss", 1.0, step)
    for writer in writers:
        TrackerWriter.close(writer)
    found = {path.name: Spool(path) for path in tmp_path.glob("*.spool")}
    labels = {name: spool.read_header()["settings"]["label"] for name, spool in found.items()}
    assert labels == {"shelf.spool": "one", "shelf-2.spool": "other"}
    assert [[record.step for record in spool] for spool in found.values()] == [[1, 2], [1, 2]]


def test_a_run_that_send_began_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that never reached its server is sent while it is resumed: both are one run."""

    class Numbered(Shelf):
        begun = 0

        def connect(self) -> Any:
            if self.run_id is None:
                Numbered.begun += 1
                self.run_id = f"run {Numbered.begun}"
            return self

    Shelf.down = True
    writer = Numbered(mode="online", work_dir=tmp_path)
    monkeypatch.setattr(Numbered, "connect", lambda self: (_ for _ in ()).throw(ConnectionError))
    writer.write_scalar("loss", 1.0, 1)
    TrackerWriter.close(writer)
    state = writer.state_dict()
    monkeypatch.undo()
    again = Numbered(mode="online", work_dir=tmp_path)
    again.load_state_dict(state)
    again.resumed(1)
    Shelf.down = False
    assert [send() for _, send in waiting(tmp_path, {"Numbered": Numbered}.__getitem__)] == [
        "1 record sent to Numbered"
    ]
    again.write_scalar("loss", 1.0, 2)
    TrackerWriter.close(again)
    assert (again.run_id, Numbered.begun, steps()) == ("run 1", 1, [1, 2])


def test_every_turn_of_a_kind_is_of_all_its_spools(tmp_path: Path) -> None:
    for name in ("wandb.spool", "wandb-2.spool"):
        with Turn(tmp_path / name, "run").taken(), pytest.raises(NotOurTurnError):
            every_turn(tmp_path, "wandb", "send")
    with Turn(tmp_path / "mlflow.spool", "run").taken(), every_turn(tmp_path, "wandb", "send"):
        assert len(list(tmp_path.iterdir())) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.faults
def test_what_is_added_while_a_spool_is_sent_is_never_lost(tmp_path: Path) -> None:
    """One process adds without the turn; another takes all that is there and removes the file, again and again."""
    chance, path, last = drawn(), tmp_path / "a.spool", 300

    def live(tell: Any) -> None:
        spool = Spool(path, {"writer": "A"})
        for step in range(1, last + 1):
            spool.append([scalars(step)])
            wait(chance.random() * 0.001)

    got: list[int] = []
    with Life(live) as life:
        spool = Spool(path)

        def took_all() -> bool:
            while batch := spool.next_batch():
                got.extend(record.step for record in batch)
                spool.took()
                spool.forget_taken()
            return bool(got) and got[-1] == last

        until(took_all)
        assert life.wait() == 0
    assert got == list(range(1, last + 1))
