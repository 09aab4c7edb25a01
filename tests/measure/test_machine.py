from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ignite_hooks.measure.machine import Machine, Sampler, memory_of_machine, memory_of_process
from ignite_hooks.system.host import trim_memory


def test_readings_are_those_of_this_machine() -> None:
    machine = Machine()
    found = machine.read()
    assert 0 < found["system/memory_percent"] <= 100
    assert 0 <= found["system/cpu_percent"] <= 100
    assert found["system/process_mb"] > 10
    assert all(value >= 0 for value in found.values())
    assert Machine(cpu=False, memory=False, disk=False, network=False).read() == {}


def test_rates_are_per_second_since_the_reading_before(tmp_path: Path) -> None:
    now = iter([0.0, 0.0, 2.0, 4.0, 4.0])
    machine = Machine(cpu=False, memory=False, network=False, clock=lambda: next(now))
    read = iter([100 * 2**20, 200 * 2**20, 200 * 2**20])
    disk = SimpleNamespace(disk_io_counters=lambda: SimpleNamespace(read_bytes=next(read), write_bytes=0))
    machine._psutil = disk
    machine._counted = {"system/disk_read_mb_s": 0.0, "system/disk_write_mb_s": 0.0}
    assert machine.read() == {"system/disk_read_mb_s": 50.0, "system/disk_write_mb_s": 0.0}
    assert machine.read() == {"system/disk_read_mb_s": 50.0, "system/disk_write_mb_s": 0.0}
    assert machine.read() == {}, "no time has passed"


def test_memory_counts_the_processes_that_were_started() -> None:
    code = "import sys; kept = bytearray(40 * 2**20); print('ready', flush=True); sys.stdin.read()"
    before = memory_of_process()
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdin is not None
    with child:
        child.stdout.readline()
        during = memory_of_process()
        child.stdin.close()
    assert during["memory/children_mb"] - before["memory/children_mb"] > 40
    assert set(memory_of_machine()) >= {"memory/available_mb", "memory/used_mb", "memory/swap_percent"}


def test_the_peak_stays_after_memory_is_freed() -> None:
    large = b"x" * (200 * 2**20)
    full = memory_of_process()
    del large
    empty = memory_of_process()
    assert full["memory/process_mb"] - empty["memory/process_mb"] > 150
    # The system counts what it has handed out in lots.
    assert empty["memory/process_peak_mb"] == pytest.approx(full["memory/process_peak_mb"], abs=10)
    assert full["memory/process_peak_mb"] > empty["memory/process_mb"] + 150


def test_memory_that_is_free_again_is_given_back() -> None:
    if not hasattr(ctypes.CDLL(None), "malloc_trim"):
        pytest.skip("this C library has no malloc_trim")
    # Blocks too small to be given back on their own, and one at the end that keeps the others from being.
    blocks = [b"x" * 100_000 for _ in range(1000)]
    last = b"x" * 100_000
    full = memory_of_process()["memory/process_mb"]
    del blocks
    trim_memory()
    assert full - memory_of_process()["memory/process_mb"] > 80
    assert last


# -- the thread ------------------------------------------------------------------------------------------------


def test_readings_are_taken_until_it_is_stopped() -> None:
    taken, enough = [], threading.Event()

    def read() -> dict[str, float]:
        taken.append(1.0)
        if len(taken) == 3:
            enough.set()
        return {"a": float(len(taken))}

    sampler = Sampler(read, 0.001)
    sampler.start()
    assert enough.wait(10)
    sampler.stop()
    sampler.stop()
    assert [reading["a"] for reading in sampler.take()] == [float(n + 1) for n in range(len(taken))]
    assert sampler.take() == []
    assert not sampler._thread.is_alive()


def test_a_failed_reading_is_raised_once_and_loses_no_other() -> None:
    answers: list[Any] = [{"a": 1.0}, OSError("the sensor is gone"), {"a": 2.0}]
    asked, enough = iter(answers), threading.Event()

    def read() -> dict[str, float]:
        answer = next(asked, None)
        if isinstance(answer, OSError):
            raise answer
        if answer is None:
            enough.set()
        return answer or {"a": 3.0}

    sampler = Sampler(read, 0.001)
    sampler.start()
    try:
        assert enough.wait(20)
        with pytest.raises(OSError, match="the sensor is gone"):
            sampler.take()
        assert [reading["a"] for reading in sampler.take()][:2] == [1.0, 2.0]
    finally:
        sampler.stop()


def test_a_sampler_never_started_can_be_stopped() -> None:
    Sampler(dict, 1.0).stop()


def test_a_forked_process_can_stop_it() -> None:
    sampler = Sampler(dict, 0.0005)
    sampler.start()
    try:
        for _ in range(20):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # from Python 3.12 on fork warns of threads
                child = os.fork()
            if child == 0:
                sampler.stop()
                os._exit(7)
            assert ended(child) == 7
    finally:
        sampler.stop()


def ended(child: int) -> int | None:
    """Return the exit code of a process; kill one that hangs."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return None
