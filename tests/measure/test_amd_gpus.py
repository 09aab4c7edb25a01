"""`amd_gpus.py` with calls of torch that answer as on a machine with two cards; there is no such card here."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine

from ignite_hooks import attach_hooks
from ignite_hooks.measure.amd_gpus import AmdGpus
from ignite_hooks.measure.machine import Machine
from ignite_hooks.testing import MemoryWriter


@pytest.fixture
def _two_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    def power(number: int) -> float:
        if number == 1:
            raise RuntimeError("AMDSMI_STATUS_NOT_SUPPORTED")
        return 250

    answers: dict[str, Any] = {
        "device_count": lambda: 2,
        "utilization": lambda number: 20 + number,
        "temperature": lambda number: 60 + number,
        "power_draw": power,
        "device_memory_used": lambda number: (512 + number) << 20,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    monkeypatch.setattr(torch.version, "hip", "6.4")


READINGS = {
    "gpu0/percent": 20,
    "gpu0/temperature_c": 60,
    "gpu0/power_w": 250,
    "gpu0/memory_mb": 512,
    "gpu1/percent": 21,
    "gpu1/temperature_c": 61,
    "gpu1/memory_mb": 513,
}


@pytest.mark.usefixtures("_two_cards")
@pytest.mark.parametrize(("use", "memory"), [(True, True), (True, False), (False, True)])
def test_each_card_is_read(use: bool, memory: bool) -> None:
    gpus = AmdGpus(use=use, memory=memory)
    assert gpus.open() is None
    assert gpus.read() == {name: value for name, value in READINGS.items() if (memory if "memory" in name else use)}
    gpus.close()
    assert gpus.read() == {}


def test_a_machine_without_cards_or_library_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    assert AmdGpus().open() == "there is none"
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)

    def missing(_: int) -> None:
        raise ModuleNotFoundError("amdsmi does not seem to be installed")

    monkeypatch.setattr(torch.cuda, "device_memory_used", missing)
    assert AmdGpus().open() == "ModuleNotFoundError: amdsmi does not seem to be installed"


@pytest.mark.usefixtures("_two_cards")
def test_the_monitor_reads_them_where_torch_is_made_for_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writer = threading.Semaphore(0), MemoryWriter()
    take = Machine.read

    def read(machine: Machine) -> dict[str, float]:
        found = take(machine)
        reading.release()
        return found

    monkeypatch.setattr(Machine, "read", read)
    trainer = Engine(lambda *_: reading.acquire(timeout=60))
    hook = {"type": "SystemMonitorHook", "frequency": 4, "interval": 0.002}
    attach_hooks(trainer, {"hooks": [hook], "writers": [writer]}, work_dir=tmp_path)
    trainer.run(range(8))
    written = writer.lines[0][0]
    assert {name: written.get(name) for name in READINGS} == READINGS
