from __future__ import annotations

import json
import logging
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine

from ignite_hooks import ConfigError, attach_hooks, build_hook
from ignite_hooks.hooks.monitors.system_monitor_hook import SystemMonitorHook
from ignite_hooks.writers.memory import MemoryWriter
from tests.measure.test_nvml import driver, with_driver

__all__ = ["driver"]


class Turns:
    """Readings for which a run waits, so that nothing depends on the speed of the machine."""

    def __init__(self) -> None:
        self.count = 0
        self._more = threading.Condition()

    def read(self) -> dict[str, float]:
        with self._more:
            self.count += 1
            self._more.notify_all()
        return {"system/cpu_percent": 50.0, "gpu0/percent": 30.0, "system/memory_percent": 97.0}

    def until(self, count: int) -> None:
        """Wait until this many readings have begun; all but the last are kept by then."""
        with self._more:
            assert self._more.wait_for(lambda: self.count >= count, timeout=60)

    def step(self, engine: Engine, batch: Any) -> None:
        """Wait until at least one reading has been taken and kept."""
        self.until(self.count + 2)


def monitored(
    folder: Path, turns: Turns | None = None, iterations: int = 6, **settings: Any
) -> tuple[Any, MemoryWriter]:
    turns, writer = turns or Turns(), MemoryWriter()
    hook = SystemMonitorHook(**{"interval": 0.001, "frequency": 3, **settings})
    hook.read = turns.read
    trainer = Engine(turns.step)
    runner = attach_hooks(trainer, {"hooks": [hook], "writers": [writer]}, work_dir=folder)
    trainer.run(range(iterations))
    return runner.report(), writer


def test_means_are_written_at_the_frequency_and_the_end(tmp_path: Path) -> None:
    report, writer = monitored(tmp_path)
    assert report.failures == {}
    assert [step for _, step, _, _ in writer.lines][:2] == [3, 6]
    assert {kind for _, _, kind, _ in writer.lines} == {"system"}
    assert writer.lines[0][0] == {"system/cpu_percent": 50.0, "gpu0/percent": 30.0, "system/memory_percent": 97.0}


def test_an_idle_gpu_and_full_memory_are_reported(tmp_path: Path) -> None:
    report, _ = monitored(tmp_path, iterations=9)
    gpu, memory = report.findings["SystemMonitorHook"]
    assert gpu.startswith("GPU 0 is busy 30 % of the time")
    assert memory.startswith("97 % of the memory")


def test_no_thread_is_left(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    monitored(tmp_path)
    assert set(threading.enumerate()) <= before


def test_a_failing_sensor_fails_the_hook_not_the_run(tmp_path: Path) -> None:
    class Broken(Turns):
        def read(self) -> dict[str, float]:
            super().read()
            raise OSError("the sensor is gone")

        def step(self, engine: Engine, batch: Any) -> None:
            # Once the hook is switched off, there are no more.
            self.until(2)

    report, _ = monitored(tmp_path, Broken(), iterations=30)
    assert "the sensor is gone" in report.failures["SystemMonitorHook"].last


def test_it_goes_on_after_a_sensor_has_failed_once(tmp_path: Path) -> None:
    class Shaken(Turns):
        def read(self) -> dict[str, float]:
            found = super().read()
            if self.count == 4:
                raise OSError("the sensor was busy")
            return found

    report, writer = monitored(tmp_path, Shaken(), iterations=30)
    assert report.failures["SystemMonitorHook"].count == 1
    assert [step for _, step, _, _ in writer.lines][-1] == 30


def test_a_missing_driver_is_one_line_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("this one has a driver")
    with caplog.at_level(logging.INFO, logger="ignite_hooks"):
        monitored(tmp_path)
    told = [record for record in caplog.records if "GPU" in record.getMessage() and "measured" in record.getMessage()]
    assert [(r.levelname, r.getMessage()) for r in told] == [
        ("INFO", "GPUs are not measured: NVML Shared Library Not Found")
    ]


def test_without_gpu_settings_nothing_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="ignite_hooks"):
        monitored(tmp_path, track_gpu=False, track_gpu_memory=False)
    assert "not measured" not in caplog.text


class Batches(torch.utils.data.Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.ones(2)


@pytest.mark.slow
def test_workers_can_be_forked_while_it_reads(tmp_path: Path) -> None:
    loader = torch.utils.data.DataLoader(Batches(), batch_size=2, num_workers=2, multiprocessing_context="fork")
    trainer = Engine(lambda engine, batch: None)
    hook = SystemMonitorHook(interval=0.0005, frequency=1)
    runner = attach_hooks(trainer, [hook], work_dir=tmp_path)
    trainer.run(loader, max_epochs=4)
    assert trainer.state.iteration == 16
    assert runner.report().failures == {}


RUN = """
import json, tempfile, threading
from ignite.engine import Engine
from ignite_hooks import attach_hooks
from ignite_hooks.hooks.monitors.system_monitor_hook import SystemMonitorHook
from ignite_hooks.measure.machine import Machine
from ignite_hooks.writers.memory import MemoryWriter
writer, read_once = MemoryWriter(), threading.Semaphore(0)
trainer = Engine(lambda engine, batch: read_once.acquire(timeout=60))
hook = SystemMonitorHook(frequency=5, interval=0.002)
take = Machine.read
def read(self):
    found = take(self)
    read_once.release()
    return found
Machine.read = read
runner = attach_hooks(trainer, {"hooks": [hook], "writers": [writer]}, work_dir=tempfile.mkdtemp())
trainer.run(range(40))
print(json.dumps([writer.lines[0][0], runner.report().findings]))
"""


@pytest.mark.slow
def test_gpus_of_a_driver_are_watched_in_a_run(driver: Path) -> None:
    found, said = json.loads(with_driver(driver, RUN)[-1])
    assert found["gpu0/percent"] == 20.0
    assert found["gpu1/memory_mb"] == 513.0
    assert found["system/process_mb"] > 10
    assert any(text.startswith("GPU 1 is busy 30 % of the time") for text in said["SystemMonitorHook"])


@pytest.mark.parametrize(
    "settings", [{"interval": 0}, {"frequency": 0}, {"interval": "2 s"}, {"track_gpus": True}], ids=str
)
def test_wrong_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        build_hook({"type": "SystemMonitorHook", **settings})


def test_seconds_may_be_whole_and_the_frequency_counts_iterations() -> None:
    hook = build_hook({"type": "SystemMonitorHook", "interval": 2, "frequency": 10})
    assert (hook.interval, str(hook.when)) == (2, "every 10 iters")
