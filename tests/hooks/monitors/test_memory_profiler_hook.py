from __future__ import annotations

import logging
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from ignite.engine import Engine

from ignite_hooks import HookError, Runner, attach_hooks
from ignite_hooks.hooks.monitors import memory_profiler_hook
from ignite_hooks.hooks.monitors.memory_profiler_hook import MemoryProfilerHook, is_out_of_memory
from ignite_hooks.writers.memory import MemoryWriter
from tests.tools import echo_trainer


def run(folder: Path, hook: MemoryProfilerHook, trainer: Engine, iterations: int) -> tuple[Runner, MemoryWriter]:
    writer = MemoryWriter()
    runner = attach_hooks(trainer, {"hooks": [hook], "writers": [writer]}, work_dir=folder)
    trainer.run(range(iterations))
    assert runner.report().failures == {}
    return runner, writer


def test_a_leak_of_a_megabyte_per_iteration_is_found(tmp_path: Path) -> None:
    kept = []
    trainer = Engine(lambda engine, batch: kept.append(bytearray(b"x") * 2**20))
    runner, _ = run(tmp_path, MemoryProfilerHook(interval=5), trainer, 100)
    (found,) = runner.report().findings["MemoryProfilerHook"]
    grown = re.search(r"the memory of this process grows by (\d\.\d\d) MB per iteration", found)
    assert grown is not None
    assert float(grown[1]) == pytest.approx(1.0, abs=0.1)
    assert found in str(runner.report())


def test_a_step_that_keeps_nothing_does_not_leak(tmp_path: Path) -> None:
    trainer = Engine(lambda engine, batch: bytearray(b"x") * 2**20 and None)
    runner, _ = run(tmp_path, MemoryProfilerHook(interval=2), trainer, 60)
    assert runner.report().findings == {}


def test_memory_is_written_at_its_interval_in_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="ignite_hooks"):
        _, writer = run(tmp_path, MemoryProfilerHook(interval=4), echo_trainer(), 10)
    assert [(step, kind) for _, step, kind, _ in writer.lines] == [(4, "system"), (8, "system")]
    assert writer.lines[0][0]["memory/process_mb"] > 10
    lines = [line for line in caplog.messages if line.startswith("Memory information")]
    amount = r"\d+ MB"
    expected = (
        rf"Memory information available_memory: {amount}, used_memory: {amount}, memory_utilization: [\d.]+ %, "
        rf"available_swap_memory: {amount}, used_swap_memory: {amount}, swap_memory_utilization: [\d.]+ %, "
        rf"current_process_memory: {amount}, peak_process_memory: {amount}, worker_memory: {amount}"
    )
    assert len(lines) == 2
    assert re.fullmatch(expected, lines[0])
    sentences = (
        rf"The system has \d+ GB \({amount} \+ {amount}\) of memory and \d+ GB \({amount} \+ {amount}\) of swap "
        rf"memory in total\. Currently {amount} \([\d.]+%\) of memory and {amount} \([\d.]+%\) of swap memory were "
        rf"consumed\. And the current training process consumed {amount} of memory\."
    )
    described = [line for line in caplog.messages if re.fullmatch(sentences, line)]
    assert described == [caplog.messages[caplog.messages.index(lines[0]) - 1]]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU to look at")
def test_without_anything_to_look_at_nothing_is_written(tmp_path: Path) -> None:
    _, writer = run(tmp_path, MemoryProfilerHook(interval=1, log_cpu=False), echo_trainer(), 3)
    assert writer.lines == []


def readings(*gigabytes: tuple[float, float, float]) -> Any:
    """Return readings of the process, its children and the GPU."""
    names = ("memory/process_mb", "memory/children_mb", "memory/gpu_allocated_mb")
    each = iter([dict(zip(names, [1024 * value for value in values], strict=True)) for values in gigabytes])
    return lambda: next(each)


def test_crossing_the_threshold_is_reported_once_per_crossing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    hook = MemoryProfilerHook(interval=1, warn_threshold=2.0)
    hook.read = readings((1, 0, 0), (1.5, 1, 0), (3, 0, 3), (1, 0, 3), (2, 0, 3), (2, 0.5, 1), (0, 0, 2.5))
    run(tmp_path, hook, echo_trainer(), 7)
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    process, gpu = "this process with its workers", "the GPU"
    assert [(process in text, gpu in text) for text in warned] == [(True, False), (False, True)] * 2
    assert warned[0] == "memory of this process with its workers is 2.50 GB, above warn_threshold (2 GB)"


def test_growth_of_the_gpu_is_named_too(tmp_path: Path) -> None:
    hook = MemoryProfilerHook(interval=1)
    hook.read = readings(*[(1, 1 + 0.01 * n, 2 + 0.02 * n) for n in range(40)])
    runner, _ = run(tmp_path, hook, echo_trainer(), 40)
    said = runner.report().findings["MemoryProfilerHook"]
    assert [text.partition(" grows")[0] for text in said] == [
        "the memory of the processes it has started",
        "the memory of the GPU",
    ]


class Memory:
    """A replacement of ``torch.cuda.memory`` on a machine without GPU."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def _record_memory_history(self, **settings: Any) -> None:
        self.calls.append(settings)

    def _dump_snapshot(self, path: str) -> None:
        self.calls.append(Path(path).name)


@pytest.mark.parametrize(
    ("error", "dumped"), [(torch.OutOfMemoryError("none left"), True), (ValueError("else"), False)], ids=str
)
def test_a_snapshot_is_written_if_the_gpu_memory_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, dumped: bool
) -> None:
    memory = Memory()
    gpu = SimpleNamespace(memory=memory)
    monkeypatch.setattr(memory_profiler_hook, "cuda", lambda: gpu)

    def step(engine: Engine, batch: Any) -> None:
        raise error

    trainer = Engine(step)
    attach_hooks(trainer, [MemoryProfilerHook(dump_snapshot_on_oom=True)], work_dir=tmp_path)
    with pytest.raises(type(error)):
        trainer.run([1.0])
    expected: list[Any] = [{"max_entries": 100_000}, "memory_snapshot.pickle", {"enabled": None}]
    assert memory.calls == (expected if dumped else [expected[0], expected[2]])


def test_running_out_of_memory_is_seen_behind_another_error() -> None:
    outer = HookError("hook", "after_train_iter", 1, 1, ValueError())
    outer.__cause__ = torch.OutOfMemoryError()
    assert is_out_of_memory(outer)
    assert not is_out_of_memory(ValueError())
