"""`processor_waits.py`: which threads count, and what the system says of them."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from ignite_hooks.measure import processor_waits
from ignite_hooks.measure.processor_waits import ProcessorWaits, waited_by

NOW = threading.get_native_id
OF_TORCH, GONE = 2**22 + 1, 2**22 + 2
"""No threads of this system: their numbers are too large."""


def counted(tasks: Path, thread: int, seconds: float) -> None:
    (tasks / str(thread)).mkdir(parents=True, exist_ok=True)
    (tasks / str(thread) / "schedstat").write_text(f"1000 {round(seconds * 1e9)} 3\n")


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    clock = iter([100.0, 110.0, 1000.0])
    monkeypatch.setattr(processor_waits, "TASKS", tmp_path)
    monkeypatch.setattr(processor_waits.time, "perf_counter", lambda: next(clock))
    return tmp_path


def test_the_thread_that_has_waited_longest_counts(tasks: Path) -> None:
    counted(tasks, NOW(), 50.0)
    counted(tasks, OF_TORCH, 7.0)
    waits = ProcessorWaits()
    counted(tasks, NOW(), 51.0)
    counted(tasks, OF_TORCH, 11.0)
    assert waits.share() == pytest.approx(0.4)


def test_threads_beside_the_training_do_not_count(tasks: Path) -> None:
    over = threading.Event()
    beside = threading.Thread(target=over.wait)
    beside.start()
    try:
        assert beside.native_id is not None
        counted(tasks, beside.native_id, 0.0)
        waits = ProcessorWaits()
        counted(tasks, beside.native_id, 9.0)
        assert waits.share() == 0.0
    finally:
        over.set()
        beside.join()


def test_after_its_end_it_counts_no_longer(tasks: Path) -> None:
    counted(tasks, NOW(), 0.0)
    waits = ProcessorWaits()
    counted(tasks, NOW(), 5.0)
    waits.stop()
    counted(tasks, NOW(), 900.0)
    assert waits.share() == 0.5


@pytest.mark.parametrize("said", ["", "few", "1 2"])
def test_a_system_that_does_not_count_says_nothing(said: str, tmp_path: Path) -> None:
    (tmp_path / "schedstat").write_text(said)
    assert waited_by(tmp_path) == (2e-9 if said == "1 2" else None)
    assert waited_by(tmp_path / "ended") is None


def test_this_system_counts_the_waits_of_this_thread() -> None:
    own = waited_by(processor_waits.TASKS / str(NOW()))
    if own is None:
        pytest.skip("this system does not count how long a thread waits for a processor")
    ahead, behind = os.pipe()
    for _ in range(3):  # gives the processor away, and wants it back
        os.write(behind, b"x")
        os.sched_yield()
        os.read(ahead, 1)
    os.close(ahead), os.close(behind)
    later = waited_by(processor_waits.TASKS / str(NOW()))
    assert later is not None
    assert later >= own
    assert 0.0 <= ProcessorWaits().share() <= 1.0
