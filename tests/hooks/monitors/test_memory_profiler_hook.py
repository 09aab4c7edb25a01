from __future__ import annotations

import logging
import mmap
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from ignite.engine import Engine

from ignite_hooks import ConfigError, HookError, Runner, attach_hooks
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

    def step(engine: Engine, batch: object) -> None:
        # Pages of its own: what earlier tests have freed would be used first.
        kept.append(mmap.mmap(-1, 2**20))
        kept[-1].write(bytes(2**20))

    trainer = Engine(step)
    runner, _ = run(tmp_path, MemoryProfilerHook(interval=5), trainer, 100)
    (found,) = runner.report().findings["MemoryProfilerHook"]
    grown = re.search(r"the memory of this process grows by (\d\.\d\d) MB per iteration", found)
    assert grown is not None
    assert float(grown[1]) == pytest.approx(1.0, abs=0.1)
    assert found in str(runner.report())
    for pages in kept:
        pages.close()


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


def test_a_snapshot_of_some_iterations_is_written_and_nothing_else_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    memory, at = Memory(), list[int]()
    gpu = SimpleNamespace(memory=memory)
    monkeypatch.setattr(memory_profiler_hook, "cuda", lambda: gpu)
    hook = MemoryProfilerHook(snapshot={"start": 2, "steps": 3}, log_gpu=False)
    trainer = Engine(lambda engine, batch: at.append(len(memory.calls)))
    with caplog.at_level(logging.INFO, logger="ignite_hooks"):
        run(tmp_path, hook, trainer, 6)
    assert memory.calls == [{"max_entries": 100_000}, "memory_snapshot_iter_2.pickle", {"enabled": None}]
    assert at == [0, 1, 1, 1, 3, 3]
    assert any("open" in line and "https://pytorch.org/memory_viz" in line for line in caplog.messages)
    memory.calls.clear()
    run(tmp_path, MemoryProfilerHook(snapshot={"start": 5, "steps": 9}, log_gpu=False), echo_trainer(), 6)
    assert memory.calls == [{"max_entries": 100_000}, "memory_snapshot_iter_5.pickle", {"enabled": None}]


def test_without_a_gpu_or_a_snapshot_nothing_is_done_in_an_iteration(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert "before_train_iter" not in MemoryProfilerHook().answers()
    with caplog.at_level(logging.INFO, logger="ignite_hooks"):
        run(tmp_path, MemoryProfilerHook(snapshot={"start": 1, "steps": 1}), echo_trainer(), 2)
    assert "MemoryProfilerHook: snapshot: there is no GPU, so nothing is recorded" in caplog.messages


@pytest.mark.parametrize(
    ("snapshot", "words"),
    [
        ({"start": 3}, "start and steps are needed"),
        ({"start": 0, "steps": 1}, r"snapshot.start: a number of iterations from 1 on is needed, not 0"),
        ({"start": 1, "steps": 1.5}, r"snapshot"),
    ],
)
def test_a_snapshot_says_where_it_begins_and_how_long_it_is(snapshot: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        attach_hooks(echo_trainer(), [{"type": "MemoryProfilerHook", "snapshot": snapshot}])


def test_running_out_of_memory_is_seen_behind_another_error() -> None:
    outer = HookError("hook", "after_train_iter", 1, 1, ValueError())
    outer.__cause__ = torch.OutOfMemoryError()
    assert is_out_of_memory(outer)
    assert not is_out_of_memory(ValueError())
