from __future__ import annotations

import tempfile
from typing import Any

import ignite.distributed as idist
import pytest
import torch
from ignite.engine import Engine

from ignite_hooks import attach_hooks
from ignite_hooks.hooks.training.sync_norm_hook import tensors_of_norms
from tests.ranks import run_ranks


def in_each_process() -> dict[str, Any]:
    rank = idist.get_rank()
    model = torch.nn.Sequential(
        torch.nn.Linear(1, 1), torch.nn.BatchNorm1d(1), torch.nn.InstanceNorm1d(1), torch.nn.LayerNorm(1)
    )
    for tensor in model.state_dict().values():
        tensor.fill_(rank + 1)
    evaluator = Engine(lambda engine, batch: seen.append(model[1].running_mean.item()))
    seen: list[float] = []
    trainer = Engine(lambda engine, batch: None)
    runner = attach_hooks(
        trainer, ["SyncNormHook"], evaluators=evaluator, model=model, val_loader=[1], work_dir=tempfile.mkdtemp()
    )
    runner.validate()
    return {"seen": seen, **{name: value.reshape(-1)[0].item() for name, value in model.state_dict().items()}}


@pytest.mark.slow
def test_batch_norms_are_averaged_before_an_evaluation_and_nothing_else() -> None:
    first, second = run_ranks(in_each_process)
    assert first["seen"] == second["seen"] == [1.5]
    for name in ("1.weight", "1.bias", "1.running_mean", "1.running_var"):
        assert first[name] == second[name] == 1.5
    assert first["1.num_batches_tracked"] == second["1.num_batches_tracked"] == 1
    assert (first["0.weight"], second["0.weight"], first["3.weight"], second["3.weight"]) == (1, 2, 1, 2)


def test_alone_or_without_norms_nothing_happens() -> None:
    assert tensors_of_norms(torch.nn.Linear(1, 1)) == []
    model = torch.nn.BatchNorm1d(1)
    evaluator, trainer = Engine(lambda engine, batch: None), Engine(lambda engine, batch: None)
    runner = attach_hooks(
        trainer, ["SyncNormHook"], evaluators=evaluator, model=model, val_loader=[1], work_dir=tempfile.mkdtemp()
    )
    before = {name: value.clone() for name, value in model.state_dict().items()}
    runner.validate()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
