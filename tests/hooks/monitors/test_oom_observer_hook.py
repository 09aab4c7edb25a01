from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine

from ignite_hooks import attach_hooks

MODEL = torch.nn.Linear(1000, 262)


def failing(step: Any, folder: Path, **settings: Any) -> str | None:
    """Return the report of a step that fails in the second iteration."""
    optimizer = torch.optim.Adam(MODEL.parameters())
    optimizer.zero_grad()
    MODEL(torch.ones(1, 1000)).sum().backward()
    optimizer.step()

    def one(engine: Engine, batch: Any) -> None:
        if engine.state.iteration == 2:
            step()

    trainer = Engine(one)
    entry = {"type": "OOMObserverHook", **settings}
    attach_hooks(trainer, [entry], work_dir=folder, model=MODEL, optimizer=optimizer)
    with pytest.raises((RuntimeError, MemoryError, ValueError)):
        trainer.run([{"image": torch.zeros(8, 3, 32, 32), "names": ["a"]}] * 3)
    path = folder / settings.get("out_dir", "oom") / "rank0.txt"
    return path.read_text() if path.exists() else None


def test_tensors_that_only_pretend_to_have_memory_are_not_counted(tmp_path: Path) -> None:
    """As compiling leaves them behind: some have sizes that are no numbers."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    pretended = FakeTensorMode(shape_env=ShapeEnv()).from_tensor(torch.zeros(3, 5))
    assert isinstance(pretended.shape[0], torch.SymInt)
    with FakeTensorMode():
        large = torch.zeros(2**20, 2**20)
    text = failing(of_a_gpu, tmp_path)
    assert text is not None
    assert "1048576 x 1048576" not in text
    del pretended, large


def of_a_gpu() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


def of_the_machine() -> None:
    torch.empty(2**60)


def behind_another() -> None:
    try:
        of_a_gpu()
    except RuntimeError as error:
        raise ValueError("the step failed") from error


@pytest.mark.parametrize("step", [of_a_gpu, of_the_machine, behind_another])
def test_what_was_in_memory_is_written_down(step: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = failing(step, tmp_path)
    assert text is not None
    for line in (
        "epoch 1, iteration 2, rank 0",
        "batch.image: 8 x 3 x 32 x 32 float32, 0.1 MB",
        "weights: 1.0 MB",
        "gradients: 1.0 MB",
        "optimizer: 2.0 MB",
        "memory/process_mb: ",
    ):
        assert f"  {line}" in text
    assert "of 262 x 1000 float32 on cpu" in text
    assert "out of memory in iteration 2: " in caplog.text


def test_other_failures_are_none_of_its_business(tmp_path: Path) -> None:
    def fail() -> None:
        raise RuntimeError("boom")

    assert failing(fail, tmp_path) is None


def test_the_largest_tensors_are_listed_first(tmp_path: Path) -> None:
    kept = [torch.zeros(3, 2**20), torch.zeros(2**18), torch.zeros(2**18)]
    text = failing(of_a_gpu, tmp_path, largest=1, out_dir="memory")
    assert text is not None
    (line,) = text.partition("by shape\n")[2].partition("\n\n")[0].splitlines()
    assert line == f"  12.0 MB: 1 of {kept[0].shape[0]} x {2**20} float32 on cpu"
