from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine, Events
from torch.optim.swa_utils import update_bn

from ignite_hooks import HookError, attach_hooks
from ignite_hooks.distributed.collectives import rank
from tests.ranks import run_ranks
from tests.tools import straight_and_resumed

CHECKPOINT = {"type": "CheckpointHook", "save_best": False}


def a_run(norm: bool = True, number: int = 0) -> tuple[Engine, Any, dict[str, Any]]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), *[torch.nn.BatchNorm1d(2)] * norm, torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(engine: Engine, batch: torch.Tensor) -> float:
        model.train()
        optimizer.zero_grad()
        loss = (model(batch) - 1).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    data = [torch.randn(4, 3, generator=torch.Generator().manual_seed(n + 9 * number)) for n in range(3)]
    return Engine(step), data, {"model": model, "optimizer": optimizer}


def copied(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    ("settings", "taken"),
    [
        ({"start_epoch": 0.5}, [3, 4]),
        ({"start_epoch": 1, "interval": 2}, [2, 4]),
        ({"start_epoch": 0}, [1, 2, 3, 4]),
        ({"start_epoch": 3}, [4]),
        ({}, [4]),
    ],
    ids=str,
)
def test_the_model_ends_with_the_mean_of_the_epochs(settings: dict[str, Any], taken: list[int], tmp_path: Path) -> None:
    trainer, data, services = a_run(norm=False)
    ends: list[dict[str, torch.Tensor]] = []
    attach_hooks(trainer, [{"type": "SWAHook", **settings}, CHECKPOINT], work_dir=tmp_path, **services)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: ends.append(copied(services["model"])))
    trainer.run(data, max_epochs=4)
    saved = torch.load(tmp_path / "last.pth")
    assert same(saved["state_dict"], ends[-1]), "a checkpoint holds the weights of the training"
    assert same(saved["swa_state_dict"], copied(services["model"]))
    for name, value in services["model"].state_dict().items():
        mean = sum(ends[epoch - 1][name].double() for epoch in taken) / len(taken)
        torch.testing.assert_close(value.double(), mean, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("update_norms", [True, False])
def test_batch_norms_have_statistics_of_the_mean(update_norms: bool, tmp_path: Path) -> None:
    trainer, data, services = a_run()
    model = services["model"]
    entry = {"type": "SWAHook", "start_epoch": 1, "update_norms": update_norms}
    attach_hooks(trainer, [entry, CHECKPOINT], work_dir=tmp_path, **services)
    trainer.run(data, max_epochs=3)
    saved = torch.load(tmp_path / "last.pth")
    assert same(saved["swa_state_dict"], copied(model))
    assert saved["state_dict"]["1.num_batches_tracked"] == 9
    found = copied(model)
    update_bn(data, model)
    assert same(found, copied(model)) is update_norms


def test_norms_that_are_not_trained_keep_their_statistics(tmp_path: Path) -> None:
    trainer, data, services = a_run()
    norm = services["model"][1]
    norm.running_mean.fill_(0.5)
    entries = [{"type": "SWAHook", "start_epoch": 0}, {"type": "FreezeHook", "patterns": ["1"]}]
    attach_hooks(trainer, entries, work_dir=tmp_path, **services)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, services["model"].eval)
    trainer.run(data, max_epochs=2)
    assert {part.training for part in services["model"].modules()} == {False}
    assert norm.running_mean.tolist() == [0.5, 0.5]
    assert norm.running_var.tolist() == [1.0, 1.0]


def test_data_that_cannot_be_iterated_again_keeps_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trainer, data, services = a_run()
    attach_hooks(trainer, [{"type": "SWAHook", "start_epoch": 0}, CHECKPOINT], work_dir=tmp_path, **services)
    trainer.run(iter(data), max_epochs=1, epoch_length=3)
    assert "batch norms keep the statistics of the weights before the mean: the training data" in caplog.text
    assert "swa_state_dict" in torch.load(tmp_path / "last.pth")


def test_a_continued_run_uses_its_own_weights(tmp_path: Path) -> None:
    def trained(*epochs: int) -> dict[str, torch.Tensor]:
        trainer, data, services = a_run()
        entry = {"type": "SWAHook", "start_epoch": 1}
        attach_hooks(trainer, [entry], work_dir=tmp_path / str(len(epochs)), **services)
        for upto in epochs:
            trainer.run(data, max_epochs=upto)
        return copied(services["model"])

    assert same(trained(4), trained(2, 4))


@pytest.mark.parametrize("stop", [4, 6, 7, 11])
def test_resuming_equals_never_having_stopped(stop: int, tmp_path: Path) -> None:
    entry = {"type": "SWAHook", "start_epoch": 1, "swa_lr": 0.01, "annealing_epochs": 2}
    straight, resumed = straight_and_resumed(tmp_path, a_run, entry, stop=stop)
    assert same(copied(straight.model), copied(resumed.model))
    one, other = (torch.load(tmp_path / name / "last.pth") for name in ("straight", "stopped"))
    assert same(one["swa_state_dict"], other["swa_state_dict"])
    assert same(one["state_dict"], other["state_dict"])


def test_the_learning_rate_is_annealed_along_a_cosine(tmp_path: Path) -> None:
    trainer, data, services = a_run()
    entry = {"type": "SWAHook", "start_epoch": 1, "swa_lr": 0.02, "annealing_epochs": 2}
    attach_hooks(trainer, [entry], work_dir=tmp_path, **services)
    seen: list[float] = []
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: seen.append(services["optimizer"].param_groups[0]["lr"]))
    trainer.run(data, max_epochs=4)
    assert seen == pytest.approx([0.1, 0.06, 0.02, 0.02])


def test_a_share_of_a_run_of_iterations_counts_epochs(tmp_path: Path) -> None:
    trainer, data, services = a_run(norm=False)
    runner = attach_hooks(trainer, [{"type": "SWAHook", "start_epoch": 0.5}], work_dir=tmp_path / "1", **services)
    trainer.run(data, max_iters=4 * len(data))
    assert runner.hooks["SWAHook"].state.taken == 2
    trainer, data, services = a_run(norm=False)
    attach_hooks(trainer, [{"type": "SWAHook", "start_epoch": 0.5}], work_dir=tmp_path / "2", **services)
    with pytest.raises(HookError, match=r"start_epoch: 0\.5 of an unknown number of epochs: say how many"):
        trainer.run(iter(data), max_iters=2)


def test_a_learning_rate_that_is_a_tensor_stays_one(tmp_path: Path) -> None:
    trainer, data, services = a_run()
    group, rate = services["optimizer"].param_groups[0], torch.tensor(0.1)
    group["lr"] = rate
    entry = {"type": "SWAHook", "start_epoch": 1, "swa_lr": 0.02, "annealing_epochs": 1}
    attach_hooks(trainer, [entry], work_dir=tmp_path, **services)
    trainer.run(data, max_epochs=2)
    assert group["lr"] is rate
    assert rate.item() == pytest.approx(0.02)


def test_weights_that_are_not_finite_are_not_taken(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trainer, data, services = a_run(norm=False)
    model = services["model"]
    attach_hooks(trainer, [{"type": "SWAHook", "start_epoch": 0}], work_dir=tmp_path, **services)

    @trainer.on(Events.ITERATION_COMPLETED(once=6))
    def break_it() -> None:
        with torch.no_grad():
            model[0].weight.fill_(float("inf"))

    trainer.run(data, max_epochs=2)
    assert bool(model[0].weight.isfinite().all())
    assert "the weights of epoch 2 are not finite: they are not taken" in caplog.text


def in_each_process(folder: str) -> list[float]:
    trainer, data, services = a_run(number=rank())
    attach_hooks(trainer, [{"type": "SWAHook", "start_epoch": 0}, CHECKPOINT], work_dir=folder, **services)
    # The weights are the same on all ranks, as under DistributedDataParallel; the data is not.
    trainer._process_function = lambda engine, batch: None
    trainer.run(data, max_epochs=2)
    statistics = services["model"][1].running_mean.tolist()
    _, _, others = a_run()
    update_bn(data, others["model"])
    return [statistics, others["model"][1].running_mean.tolist()]


@pytest.mark.slow
def test_batch_norms_of_all_ranks_have_mean_statistics(tmp_path: Path) -> None:
    (first, own), (second, others) = run_ranks(in_each_process, str(tmp_path))
    assert first == second
    assert first == pytest.approx([(a + b) / 2 for a, b in zip(own, others, strict=True)])
