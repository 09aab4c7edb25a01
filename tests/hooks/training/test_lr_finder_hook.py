from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine, Events, create_supervised_trainer
from torch.utils.data import DataLoader, TensorDataset

from ignite_hooks import HookError, attach_hooks
from ignite_hooks.checkpoint.rng_state import random_state
from ignite_hooks.distributed.collectives import rank
from ignite_hooks.hooks.training.lr_finder_hook import LRFinderHook, suggested
from tests.ranks import run_ranks

SHORT = {"type": "LRFinderHook", "num_iter": 30, "start_lr": 1e-4, "end_lr": 100.0, "smoothing": 0.5}


def a_run(workers: int = 0, number: int = 0) -> tuple[Engine, Any, dict[str, Any]]:
    """Return a run with everything that has a state: dropout, batch norm, momentum, a scaler and a scheduler."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(5, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(8, 1)
    )
    groups = [{"params": model[0].parameters(), "lr": 0.02}, {"params": model[4].parameters()}]
    optimizer = torch.optim.SGD(groups, lr=0.01, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)

    def step(engine: Engine, batch: Any) -> float:
        model.train()
        optimizer.zero_grad()
        x, y = batch
        loss = (model(x) - y).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        return loss.item()

    generator = torch.Generator().manual_seed(number)
    x = torch.randn(32, 5, generator=generator)
    data = TensorDataset(x, x.sum(dim=1, keepdim=True))
    loader = DataLoader(
        data, batch_size=8, shuffle=True, num_workers=workers, persistent_workers=workers > 0, generator=generator
    )
    return Engine(step), loader, {"model": model, "optimizer": optimizer, "scheduler": scheduler, "scaler": scaler}


def everything(services: dict[str, Any]) -> list[Any]:
    return [thing.state_dict() for thing in services.values()]


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_following_run_equals_a_run_without_the_trial(workers: int, tmp_path: Path) -> None:
    ends, kept = [], []
    for hooks in ([], [SHORT]):
        trainer, loader, services = a_run(workers)
        # Else the garbage collector ends the worker of the first one, and waits 5 s for it.
        kept.append((trainer, loader))
        attach_hooks(trainer, hooks, work_dir=tmp_path / str(len(hooks)), **services)
        losses: list[float] = []
        trainer.add_event_handler(
            Events.ITERATION_COMPLETED, lambda engine, log: log.append(engine.state.output), losses
        )
        trainer.run(loader, max_epochs=2)
        ends.append([losses, everything(services), random_state()["torch"].tolist()])
    assert str(ends[0]) == str(ends[1])


class Counts(torch.nn.Linear):
    """Has a buffer that no state holds."""

    def __init__(self) -> None:
        super().__init__(5, 1)
        self.register_buffer("seen", torch.zeros(1), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += 1
        return super().forward(x)


def test_stateless_buffers_are_restored_and_optimizer_groups_kept(tmp_path: Path) -> None:
    model, rate = Counts(), torch.tensor(0.5)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    groups, seen = optimizer.param_groups, []

    def step(engine: Engine, batch: torch.Tensor) -> float:
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        seen.append(float(groups[0]["lr"]))
        return loss.item()

    trainer = Engine(step)
    attach_hooks(trainer, [SHORT], work_dir=tmp_path, model=model, optimizer=optimizer)
    trainer.run([torch.randn(4, 5)], max_epochs=1)
    assert model.seen.item() == 1
    assert seen[0] == pytest.approx(1e-4), "the trial uses the rates that the script sees"
    assert optimizer.param_groups is groups
    assert groups[0]["lr"] is rate
    assert rate == 0.5


def test_each_rate_takes_one_batch_of_an_accumulating_step(tmp_path: Path) -> None:
    model = torch.nn.Linear(5, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trainer = create_supervised_trainer(model, optimizer, torch.nn.MSELoss(), gradient_accumulation_steps=4)
    step, left = trainer._process_function, []

    def watched(engine: Engine, batch: Any) -> Any:
        left.append((engine.state.iteration, model.weight.grad is None))
        return step(engine, batch)

    trainer._process_function = watched
    attach_hooks(trainer, [SHORT], work_dir=tmp_path, model=model, optimizer=optimizer)
    trainer.run([(torch.randn(4, 5), torch.randn(4, 1))] * 4, max_epochs=1)
    assert {fresh for iteration, fresh in left if iteration == 0} == {True}


def test_found_rate_is_not_undone_by_a_scheduler(tmp_path: Path) -> None:
    trainer, loader, services = a_run()
    optimizer = services["optimizer"]
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1.0)
    entries = [SHORT | {"apply": True}, {"type": "ParamSchedulerHook", "by_epoch": False}]
    services["scheduler"].step = lambda: None  # that of the step stays where it is
    runner = attach_hooks(trainer, entries, work_dir=tmp_path, **services | {"scheduler": scheduler})
    trainer.run(loader)
    found = runner.hooks["LRFinderHook"].suggestion
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([found, found / 2])


def test_rate_with_falling_loss_is_suggested_and_drawn(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    trainer, loader, services = a_run()
    runner = attach_hooks(trainer, [SHORT], work_dir=tmp_path, **services)
    trainer.run(loader)
    hook = runner.hooks["LRFinderHook"]
    assert 0.001 < hook.suggestion < 1
    assert f"suggested learning rate: {hook.suggestion:.2g}" in caplog.text
    assert (tmp_path / "visualization" / "lr_finder.png").exists()
    assert 10 <= len(hook.points) <= 30
    assert services["optimizer"].param_groups[1]["lr"] == pytest.approx(0.01 * 0.1**2), "the scheduler goes on"


def test_run_can_begin_with_found_rates_in_proportion_of_groups(tmp_path: Path) -> None:
    trainer, loader, services = a_run()
    runner = attach_hooks(trainer, [SHORT | {"apply": True}], work_dir=tmp_path, **services)
    rates: list[list[float]] = []
    optimizer = services["optimizer"]
    trainer.add_event_handler(Events.EPOCH_STARTED, lambda: rates.append([g["lr"] for g in optimizer.param_groups]))
    trainer.run(loader)
    found = runner.hooks["LRFinderHook"].suggestion
    assert rates[0] == pytest.approx([found, found / 2])


def test_a_run_that_is_resumed_tries_nothing(tmp_path: Path) -> None:
    checkpoint = {"type": "CheckpointHook", "save_best": False}
    for epochs, resume in ((1, None), (2, "auto")):
        trainer, loader, services = a_run()
        hook = LRFinderHook(num_iter=10)
        attach_hooks(trainer, [hook, checkpoint], work_dir=tmp_path, resume=resume, **services)
        trainer.run(loader, max_epochs=epochs)
    assert hook.points == []


def test_failing_trial_step_leaves_the_model_unchanged(tmp_path: Path) -> None:
    trainer, loader, services = a_run()
    before, step, calls = str(everything(services)), trainer._process_function, []

    def failing(engine: Engine, batch: Any) -> Any:
        calls.append(1)
        if len(calls) == 5:
            raise RuntimeError("boom")
        return step(engine, batch)

    trainer._process_function = failing
    attach_hooks(trainer, [SHORT], work_dir=tmp_path, **services)
    with pytest.raises(HookError, match="boom"):
        trainer.run(loader)
    assert str(everything(services)) == before


def without_loss(trainer: Engine, data: Any) -> Any:
    trainer._process_function = lambda *_: None
    return data


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda trainer, data: iter(list(data)), "needs training data that can be gone through again"),
        (without_loss, "the step returns no loss"),
    ],
)
def test_what_cannot_be_tried_is_an_error(change: Any, message: str, tmp_path: Path) -> None:
    trainer, loader, services = a_run()
    data = change(trainer, loader)
    attach_hooks(trainer, [SHORT], work_dir=tmp_path, **services)
    with pytest.raises(HookError, match=message):
        trainer.run(data, max_epochs=1, epoch_length=2)


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ([5.0] * 4 + [4, 2, 1.5, 1.4, 3, 9, 50], 10.0**4),
        ([1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9, 2.0], None),
        ([5.0] * 12, None),
        ([5.0, 4.0, 3.0], None),
        ([5.0] * 4 + [4, 2, 1.5, 1.4, 3, float("nan"), float("inf")], None),
    ],
    ids=["falls", "rises", "flat", "too few", "too few that are finite"],
)
def test_the_steepest_place_before_the_lowest_is_suggested(losses: list[float], expected: float | None) -> None:
    found = suggested([(10.0**n, loss) for n, loss in enumerate(losses)])
    assert found == (None if expected is None else pytest.approx(expected))


def in_each_process(folder: str) -> Any:
    trainer, loader, services = a_run(number=rank())
    runner = attach_hooks(trainer, [SHORT], work_dir=folder, **services)
    trainer.run(loader)
    return [runner.hooks["LRFinderHook"].suggestion, runner.hooks["LRFinderHook"].points]


@pytest.mark.slow
def test_all_ranks_try_the_same_and_find_the_same(tmp_path: Path) -> None:
    first, second = run_ranks(in_each_process, str(tmp_path))
    assert first == second
    assert first[0] is not None
