from __future__ import annotations

from pathlib import Path
from typing import Any

import ignite.distributed as idist
import pytest
import torch
from ignite.engine import Engine, Events

from ignite_hooks import attach_hooks
from ignite_hooks.distributed.collectives import average
from ignite_hooks.hooks.training import sync_buffers_hook
from ignite_hooks.hooks.training.sync_buffers_hook import SyncBuffersHook
from tests.ranks import run_ranks
from tests.tools import echo_trainer

LOWEST = torch.finfo(torch.float32).min


class Buffers(torch.nn.Module):
    def __init__(self, rank: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([float(rank)]))
        self.register_buffer("mean", torch.tensor([[1.0, 2.0], [3.0, float(rank)]]))
        self.register_buffer("small", torch.tensor([float(rank)], dtype=torch.bfloat16))
        self.register_buffer("precise", torch.tensor(rank + 0.5, dtype=torch.float64))
        self.register_buffer("mask", torch.tensor([float("-inf"), LOWEST, 0.1]))
        self.register_buffer("turn", torch.tensor([complex(rank, 1.0)]))
        self.register_buffer("count", torch.tensor(10 + rank))
        self.register_buffer("big", torch.tensor([2**62 + 1 + rank]))
        self.register_buffer("flag", torch.tensor([rank == 0, rank == 1]))
        self.register_buffer("turned", torch.arange(6.0).reshape(2, 3).t() + rank, persistent=False)


def in_each_process(work_dir: str) -> dict[str, Any]:
    rank = idist.get_rank()
    found: dict[str, Any] = {}
    model = Buffers(rank)
    before = model.mask.clone()
    average(list(model.buffers()))
    found["buffers"] = {name: str(buffer.tolist()) for name, buffer in model.named_buffers()}
    found["weight"] = model.weight.tolist()
    found["mask stays"] = torch.equal(model.mask, before)

    class Normed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(1, affine=False)
            self.linear = torch.nn.Linear(1, 1)

        def forward(self, x: Any) -> Any:
            return self.linear(self.norm(x))

    normed = Normed()
    wrapped = torch.nn.parallel.DistributedDataParallel(normed, broadcast_buffers=False)
    evaluator = Engine(lambda engine, batch: None)
    trainer = Engine(lambda engine, batch: wrapped(batch).sum().item())
    times = []
    seen = []
    whole = sync_buffers_hook.average
    sync_buffers_hook.average = lambda buffers: (times.append(trainer.state.iteration), whole(buffers))
    trainer.add_event_handler(Events.ITERATION_COMPLETED(every=2), lambda: evaluator.run([0]))
    evaluator.add_event_handler(Events.ITERATION_STARTED, lambda: seen.append(normed.norm.running_mean.item()))
    attach_hooks(trainer, [SyncBuffersHook()], work_dir=work_dir, model=wrapped, evaluators=evaluator)
    trainer.run([torch.full((2, 1), float(rank + n)) for n in range(3)], max_epochs=2)
    found["times"], found["seen"], found["end"] = times, seen, normed.norm.running_mean.item()
    return found


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Return the findings of each of two processes."""
    return run_ranks(in_each_process, str(tmp_path_factory.mktemp("ranks")))


@pytest.mark.slow
def test_floats_are_averaged_and_other_buffers_come_from_rank_0(found: list[dict[str, Any]]) -> None:
    expected = {
        "mean": [[1.0, 2.0], [3.0, 0.5]],
        "small": [0.5],
        "precise": 1.0,
        "mask": [float("-inf"), LOWEST, torch.tensor(0.1).item()],
        "turn": [0.5 + 1j],
        "count": 10,
        "big": [2**62 + 1],
        "flag": [True, False],
        "turned": (torch.arange(6.0).reshape(2, 3).t() + 0.5).tolist(),
    }
    for rank in range(2):
        assert found[rank]["buffers"] == {name: str(value) for name, value in expected.items()}


@pytest.mark.slow
def test_equal_buffers_and_parameters_are_left_alone(found: list[dict[str, Any]]) -> None:
    assert [each["mask stays"] for each in found] == [True, True]
    assert [each["weight"] for each in found] == [[0.0], [1.0]]


@pytest.mark.slow
def test_statistics_of_a_wrapped_model_agree_in_evaluations_and_finally(found: list[dict[str, Any]]) -> None:
    assert found[0]["seen"] == found[1]["seen"]
    assert found[0]["end"] == found[1]["end"] != 0.0


@pytest.mark.slow
def test_a_step_is_synchronised_once(found: list[dict[str, Any]]) -> None:
    # Evaluations after 2, 4 and 6; the ends of epochs after 3 and 6.
    assert found[0]["times"] == found[1]["times"] == [2, 3, 4, 6]


def test_alone_it_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(buffers: Any) -> None:
        raise AssertionError("there is nobody to agree with")

    monkeypatch.setattr(sync_buffers_hook, "average", refuse)
    trainer = echo_trainer()
    attach_hooks(trainer, [SyncBuffersHook()], work_dir=tmp_path, model=Buffers(0))
    trainer.run([1.0])


def test_a_run_without_a_model_says_so(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    caplog.set_level("INFO")
    trainer = echo_trainer()
    attach_hooks(trainer, [SyncBuffersHook()], work_dir=tmp_path)
    trainer.run([1.0])
    assert "no model was given to attach_hooks: its buffers are not synchronised" in caplog.messages


def test_it_comes_before_whatever_evaluates_saves_or_swaps() -> None:
    assert SyncBuffersHook.point_priority == {"after_train_epoch": 95, "before_val_epoch": 30}
