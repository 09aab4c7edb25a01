"""`nvml.py` with a driver library that is built for the test."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ignite_hooks.measure.nvml import Gpus, named, numbered, used_by_torch

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a driver library, built from `tests/nvml_stub.c`."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler: install gcc to test against a driver library")
    folder = tmp_path_factory.mktemp("driver")
    source, library = Path(__file__).parents[1] / "nvml_stub.c", folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-Wall", "-o", str(library), str(source)], check=True)
    return folder


def with_driver(driver: Path, code: str, **environment: str) -> list[str]:
    """Run code in a process that finds this driver: libraries are searched when a process starts."""
    inherited = {key: value for key, value in os.environ.items() if key != "CUDA_VISIBLE_DEVICES"}
    found = {**inherited, "LD_LIBRARY_PATH": str(driver), "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run(
        [sys.executable, "-c", code], env=found, cwd=ROOT, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


READ = """
import ctypes, json, torch
from types import SimpleNamespace
from ignite_hooks.measure.nvml import Gpus
if used := {used}:
    # CUDA has begun, and counts in an order of its own.
    torch.cuda.is_initialized = lambda: True
    torch.cuda.device_count = lambda: len(used)
    torch.cuda.get_device_properties = lambda number: SimpleNamespace(uuid=used[number])
gpus = Gpus({settings})
print(gpus.open())
print(json.dumps(gpus.read()))
gpus.close()
gpus.close()
print(ctypes.CDLL("libnvidia-ml.so.1").nvml_stub_opened())
"""

FIRST = {"gpu0/percent": 20.0, "gpu0/temperature_c": 60.0, "gpu0/power_w": 250.0, "gpu0/memory_mb": 512.0}
SECOND = {"gpu1/percent": 30.0, "gpu1/temperature_c": 61.0, "gpu1/memory_mb": 513.0}
PART = SECOND | {"gpu1/memory_mb": 514.0}
"""The readings of the second, with the memory of its part."""


@pytest.mark.parametrize(
    ("settings", "environment", "expected"),
    [
        ("", {}, FIRST | SECOND),
        ("", {"CUDA_VISIBLE_DEVICES": "1"}, SECOND),
        ("", {"CUDA_VISIBLE_DEVICES": "GPU-8ae0-11"}, SECOND),
        ("", {"CUDA_VISIBLE_DEVICES": "GPU-1f,GPU-nobody,GPU-8a"}, FIRST),
        ("", {"CUDA_VISIBLE_DEVICES": "MIG-7b21-22"}, PART),
        ("", {"CUDA_VISIBLE_DEVICES": "GPU-8ae0", "NVML_STUB_LOST": "1"}, None),
        ("use=False", {}, {"gpu0/memory_mb": 512.0, "gpu1/memory_mb": 513.0}),
        ("memory=False", {"CUDA_VISIBLE_DEVICES": "0"}, {k: v for k, v in FIRST.items() if "memory" not in k}),
    ],
)
def test_the_real_pynvml_reads_each_gpu(
    driver: Path, settings: str, environment: dict[str, str], expected: dict[str, float] | None
) -> None:
    opened, found, left = with_driver(driver, READ.format(settings=settings, used=[]), **environment)
    assert opened == ("there is none" if expected is None else "None")
    assert json.loads(found) == (expected or {})
    assert left == "0", "the library is closed as often as it was opened"


@pytest.mark.parametrize(
    ("used", "given", "expected"),
    [
        (["8ae0-11"], None, SECOND),
        (["8ae0-11"], "0", SECOND),
        (["7b21-22"], None, PART),
        (["7b21-22"], "MIG-7b21-22", PART),
        (["8ae0-11", "1f4c-00"], "1,0", FIRST | SECOND),
        (["of another driver"], "0", FIRST),
        (["of another driver"], "GPU-1f", FIRST),
    ],
)
def test_gpus_are_those_that_torch_uses_once_it_has_looked(
    driver: Path, used: list[str], given: str | None, expected: dict[str, float]
) -> None:
    environment = {} if given is None else {"CUDA_VISIBLE_DEVICES": given}
    opened, found, left = with_driver(driver, READ.format(settings="", used=used), **environment)
    assert (opened, json.loads(found), left) == ("None", expected, "0")


def test_cuda_is_not_begun_to_name_the_gpus() -> None:
    assert used_by_torch() == set()


def test_a_gpu_that_is_lost_leaves_the_others(driver: Path) -> None:
    opened, found, left = with_driver(driver, READ.format(settings="", used=[]), NVML_STUB_LOST="1")
    assert (opened, json.loads(found), left) == ("None", FIRST, "0")


def test_a_driver_that_counts_no_gpus_says_why(driver: Path) -> None:
    opened, found, left = with_driver(driver, READ.format(settings="", used=[]), NVML_STUB_LOST="all")
    assert (opened, found, left) == ("GPU is lost", "{}", "0")


def test_no_visible_gpu_is_reported(driver: Path) -> None:
    opened, found, left = with_driver(driver, READ.format(settings="", used=[]), CUDA_VISIBLE_DEVICES="7")
    assert (opened, found, left) == ("there is none", "{}", "0")


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        (None, [0, 1]),
        ("0,1", [0, 1]),
        ("1, 0", [1, 0]),
        ("-1", []),
        ("0,-1,1", [0]),
        ("1,7,0", [1]),
        ("1,1", []),
        ("", []),
        (" ", []),
        ("NoDevFiles", []),
        ("0,GPU-8", [0]),
    ],
)
def test_gpus_without_a_number_are_hidden_as_cuda_hides_them(given: str | None, seen: list[int]) -> None:
    assert numbered(given, 2) == seen


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        ("GPU-8ae0", ["second"]),
        ("GPU-8ae0, GPU-1", ["second", "first"]),
        ("GPU-", []),
        ("GPU-8,GPU-8ae0", []),
        ("MIG-7", ["part"]),
        ("MIG-7,MIG-7", []),
        ("GPU-8,,GPU-1", ["second"]),
        ("GPU-8,0", ["second"]),
        ("GPU-0,GPU-8", []),
    ],
)
def test_gpus_without_a_uuid_are_hidden_as_cuda_hides_them(given: str, seen: list[str]) -> None:
    assert named(given, {"GPU-1f4c": "first", "MIG-77": "part", "GPU-8ae0": "second"}) == seen


def test_a_machine_without_a_driver_has_no_readings() -> None:
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("this one has a driver")
    gpus = Gpus()
    assert gpus.open() == "NVML Shared Library Not Found"
    assert gpus.read() == {}
    gpus.close()


def test_without_its_package_it_says_which_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert str(Gpus().open()).startswith("the package nvidia-ml-py is missing")
