from __future__ import annotations

import ctypes
import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ignite_hooks.measure.machine import (
    Gpus,
    Machine,
    Sampler,
    Trend,
    give_back,
    memory_of_machine,
    memory_of_process,
    visible,
)

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a driver library, built from the C file beside this one."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler: install gcc to test against a driver library")
    folder = tmp_path_factory.mktemp("driver")
    source, library = Path(__file__).parents[1] / "nvml_stub.c", folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-Wall", "-o", str(library), str(source)], check=True)
    return folder


def with_driver(driver: Path, code: str, **environment: str) -> list[str]:
    """Run code in a process that finds this driver: a library is looked for when a process begins."""
    inherited = {key: value for key, value in os.environ.items() if key != "CUDA_VISIBLE_DEVICES"}
    found = {**inherited, "LD_LIBRARY_PATH": str(driver), "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run(
        [sys.executable, "-c", code], env=found, cwd=ROOT, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


READ = """
import ctypes, json
from ignite_hooks.measure.machine import Gpus
gpus = Gpus({settings})
print(gpus.open())
print(json.dumps(gpus.read()))
gpus.close()
gpus.close()
print(ctypes.CDLL("libnvidia-ml.so.1").nvml_stub_opened())
"""

FIRST = {"gpu0/percent": 20.0, "gpu0/temperature_c": 60.0, "gpu0/power_w": 250.0, "gpu0/memory_mb": 512.0}
SECOND = {"gpu1/percent": 30.0, "gpu1/temperature_c": 61.0, "gpu1/memory_mb": 513.0}


@pytest.mark.parametrize(
    ("settings", "environment", "expected"),
    [
        ("", {}, FIRST | SECOND),
        ("", {"CUDA_VISIBLE_DEVICES": "1"}, SECOND),
        ("use=False", {}, {"gpu0/memory_mb": 512.0, "gpu1/memory_mb": 513.0}),
        ("memory=False", {"CUDA_VISIBLE_DEVICES": "0"}, {k: v for k, v in FIRST.items() if "memory" not in k}),
    ],
)
def test_the_real_pynvml_tells_of_each_gpu_what_it_knows(
    driver: Path, settings: str, environment: dict[str, str], expected: dict[str, float]
) -> None:
    opened, found, left = with_driver(driver, READ.format(settings=settings), **environment)
    assert opened == "None"
    assert json.loads(found) == expected
    assert left == "0", "the library is closed as often as it was opened"


def test_a_gpu_that_is_lost_leaves_the_others(driver: Path) -> None:
    opened, found, left = with_driver(driver, READ.format(settings=""), NVML_STUB_LOST="1")
    assert (opened, json.loads(found), left) == ("None", FIRST, "0")


def test_a_driver_that_counts_no_gpus_says_why(driver: Path) -> None:
    opened, found, left = with_driver(driver, READ.format(settings=""), NVML_STUB_LOST="all")
    assert (opened, found, left) == ("GPU is lost", "{}", "0")


def test_no_gpu_that_may_be_seen_is_said_so(driver: Path) -> None:
    opened, found, left = with_driver(driver, READ.format(settings=""), CUDA_VISIBLE_DEVICES="7")
    assert (opened, found, left) == ("there is none", "{}", "0")


@pytest.mark.parametrize(
    ("given", "seen"), [("-1", []), ("0,-1,1", [0]), ("1,7,0", [1]), ("", []), ("NoDevFiles", []), ("GPU-8ae0", [0, 1])]
)
def test_gpus_are_hidden_as_cuda_hides_them(given: str, seen: list[int]) -> None:
    assert visible(given, 2) == seen


@pytest.mark.parametrize("given", [None, "0,1", "3, 1", "MIG-GPU-5", " "])
def test_visible_gpus_are_among_those_there_are(given: str | None) -> None:
    assert set(visible(given, 2)) <= {0, 1}


def test_a_machine_without_a_driver_says_so_and_has_no_readings() -> None:
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("this one has a driver")
    gpus = Gpus()
    assert gpus.open() == "NVML Shared Library Not Found"
    assert gpus.read() == {}
    gpus.close()


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


def test_the_peak_of_this_process_stays_when_its_memory_is_free_again() -> None:
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
    give_back()
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


def test_an_error_of_a_reading_is_raised_once_where_readings_are_taken_and_loses_no_other() -> None:
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


def test_one_that_never_began_can_be_stopped() -> None:
    Sampler(dict, 1.0).stop()


def test_a_forked_process_can_stop_it_although_its_lock_may_be_held() -> None:
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
    """How a process has ended; one that hangs is killed."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return None


# -- trends ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "slope"),
    [
        ("steady", 1.0),
        ("noisy", 1.0),
        ("warming up, then steady", 1.0),
        ("flat", None),
        ("falling", None),
        ("up and down", None),
        ("grows, then stays", None),
        ("one jump", None),
        ("short", None),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_only_what_grows_steadily_and_up_to_the_end_is_said_to_grow(shape: str, slope: float | None, seed: int) -> None:
    draw = random.Random(seed)
    shapes = {
        "steady": lambda x: 500 + x,
        "noisy": lambda x: 500 + x + draw.uniform(-5, 5),
        "warming up, then steady": lambda x: 500 * (x > 10) + x,
        "flat": lambda x: 500,
        "falling": lambda x: 500 - x,
        "up and down": lambda x: 500 + 50 * (x % 20),
        "grows, then stays": lambda x: 500 + min(x, 45),
        "one jump": lambda x: 500 + 50 * (x > 95),
        "short": lambda x: 500 + x,
    }
    trend = Trend()
    for x in range(8 if shape == "short" else 100):
        trend.add(x, shapes[shape](x))
    found = trend.growth()
    assert (found is None) == (slope is None), f"seed {seed}: {found}"
    if slope is not None:
        assert found == pytest.approx(slope, rel=0.1), f"seed {seed}"


def test_a_long_run_keeps_few_points_from_its_beginning_to_its_end() -> None:
    trend = Trend()
    for x in range(100_000):
        trend.add(x, x)
    assert Trend.MOST / 2 <= len(trend.points) <= Trend.MOST
    assert trend.points[0] == (0, 0)
    assert trend.points[-1][0] > 99_000
