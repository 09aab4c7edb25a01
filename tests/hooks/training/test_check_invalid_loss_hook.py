from __future__ import annotations

import copy
import logging
import math
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ignite.distributed as idist
import pytest
import torch
from ignite.engine import Engine, Events
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from ignite_hooks import ConfigError, HookError, attach_hooks
from ignite_hooks.hooks.training.check_invalid_loss_hook import (
    all_finite,
    distinct_learning_rates,
    losses_in,
    replayable,
)
from tests.ranks import run_ranks

NAN, INF = math.nan, math.inf


def run(outputs: list[Any], tmp_path: Path, **settings: Any) -> Any:
    """Run steps that return these outputs, until the hook objects."""
    trainer = Engine(lambda engine, batch: batch)
    optimizer = torch.optim.SGD([{"params": [torch.ones(1)]}, {"params": [torch.ones(1)], "lr": 0.5}], lr=0.1)
    hook = {"type": "CheckInvalidLossHook", "interval": 1, **settings}
    runner = attach_hooks(trainer, [hook], optimizer=optimizer, work_dir=tmp_path)
    trainer.run(outputs, max_epochs=1)
    return trainer.state.iteration, runner.stop_reason


# -- which losses ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "keys", "names"),
    [
        (0.5, None, ["loss"]),
        (torch.ones(1), None, ["loss"]),
        ({"loss": 1.0, "lr": 0.1}, None, ["loss"]),
        ({"rpn_loss": 1.0, "Loss_box": torch.ones(3), "psnr": INF}, None, ["rpn_loss", "Loss_box"]),
        ({"losses": {"box": 1.0, "cls": [2.0, 3.0]}}, None, ["losses.box", "losses.cls[0]", "losses.cls[1]"]),
        ({"nll": 1.0, "image": torch.ones(3, 3), "note": "text", "ok": True}, None, ["nll"]),
        ((torch.ones(4, 2), torch.ones(4), 0.5), None, ["[2]"]),
        ({"loss": 1.0, "psnr": 2.0}, ["psnr"], ["psnr"]),
        ({"losses": {"box": 1.0}, "loss": 1.0}, ["losses"], ["losses.box"]),
    ],
)
def test_losses_are_found_or_named(output: Any, keys: list[str] | None, names: list[str]) -> None:
    assert list(losses_in(output, keys)) == names


@pytest.mark.parametrize("output", [None, {}, {"y": "text"}, (torch.ones(4, 2), torch.ones(4))])
def test_a_step_without_a_loss_gets_a_hint(output: Any) -> None:
    with pytest.raises(ValueError, match=r"no loss in what the step returns \(\w+\): return it, or a mapping"):
        losses_in(output)


def test_unknown_key_is_reported_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="keys: the step returns no 'los_box', did you mean 'loss_box'"):
        losses_in({"loss_box": 1.0}, ["los_box"])


# -- which are finite ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [NAN, INF, -INF, torch.tensor(NAN), torch.tensor([1.0, INF]), torch.tensor(1j * NAN)])
def test_everything_not_finite_is_detected(bad: Any) -> None:
    assert not all_finite([1.0, torch.ones(3), bad, torch.tensor(2)])


@pytest.mark.parametrize("good", [1e300, torch.tensor(1e300, dtype=torch.float64), torch.tensor(2**40), torch.ones(2)])
def test_large_numbers_are_finite(good: Any) -> None:
    assert all_finite([good, torch.tensor(1.0, dtype=torch.float16)])


def test_many_losses_are_fetched_from_the_device_at_once() -> None:
    class Fetches(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.count += func is torch.ops.aten._local_scalar_dense.default
            return func(*args, **(kwargs or {}))

    with Fetches() as fetches:
        assert all_finite([torch.ones(()), torch.ones(3, dtype=torch.float16), torch.ones(2, 2), 1.0])
    assert fetches.count == 1


# -- what happens ----------------------------------------------------------------------------------------------


def test_the_run_fails_with_all_that_helps(tmp_path: Path) -> None:
    with pytest.raises(HookError) as failed:
        run([{"loss_a": 1.0, "loss_b": 2.0}, {"loss_a": INF, "loss_b": NAN}], tmp_path)
    assert str(failed.value).endswith("loss_a is inf, loss_b is nan in epoch 1, iteration 2, learning rate 0.1, 0.5")
    assert isinstance(failed.value.__cause__, FloatingPointError)
    assert list(tmp_path.glob("bad_batch*")) == []


@pytest.mark.parametrize(
    ("loss", "output", "words"),
    [
        (0, (NAN, 1.0), "loss is nan in epoch 1"),
        ("total", {"total": INF, "loss_of_another_batch": 1.0}, "loss is inf in epoch 1"),
        (lambda output: output[1], (1.0, NAN), "loss is nan in epoch 1"),
        (7, (1.0, 2.0), "no loss is found at loss=7: the training step returns a tuple of float and float"),
    ],
)
def test_it_looks_where_the_run_was_told_that_the_loss_is(loss: Any, output: Any, words: str, tmp_path: Path) -> None:
    trainer = Engine(lambda engine, batch: output)
    attach_hooks(trainer, [{"type": "CheckInvalidLossHook", "interval": 1}], loss=loss, work_dir=tmp_path)
    with pytest.raises(HookError, match=re.escape(words)):
        trainer.run([0])


@pytest.mark.parametrize(
    ("loss", "output"), [(0, (1.0, NAN)), (lambda output: output["total"], {"total": 1.0, "x": NAN})]
)
def test_what_is_not_the_loss_of_the_run_may_be_anything(loss: Any, output: Any, tmp_path: Path) -> None:
    trainer = Engine(lambda engine, batch: output)
    attach_hooks(trainer, [{"type": "CheckInvalidLossHook", "interval": 1}], loss=loss, work_dir=tmp_path)
    assert trainer.run([0, 1]).iteration == 2


def test_no_loss_is_checked_between_due_iterations(tmp_path: Path) -> None:
    with pytest.raises(HookError, match="iteration 6"):
        run([1.0, NAN, 1.0, 1.0, NAN, NAN, 1.0], tmp_path, interval=3)


def test_the_run_ends_in_order(tmp_path: Path) -> None:
    reason = "loss is nan in epoch 1, iteration 2, learning rate 0.1, 0.5"
    assert run([1.0, NAN, 1.0], tmp_path, action="stop") == (2, reason)


def test_first_bad_batch_is_saved_and_can_be_replayed(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Linear(2, 1)

    def step(engine: Engine, batch: Any) -> Any:
        x, info = batch
        return {"loss": (model(x).mean() * info["scale"]).log()}

    trainer = Engine(step)
    good, bad = (torch.rand(3, 2), {"scale": 1.0}), (torch.rand(3, 2), {"scale": 0.0})
    with torch.no_grad():
        model.weight.fill_(1.0)
    attach_hooks(trainer, [{"type": "CheckInvalidLossHook", "interval": 1, "save_batch": True}], work_dir=tmp_path)
    with pytest.raises(HookError, match=r"loss is -?(inf|nan).*; the batch is in .*bad_batch\.pt"):
        trainer.run([good, bad])
    found = torch.load(tmp_path / "bad_batch.pt", weights_only=True)
    assert (found["iteration"], found["epoch"], found["rank"], found["learning_rates"]) == (2, 1, 0, [])
    assert torch.equal(found["batch"][0], bad[0])
    assert not math.isfinite(step(trainer, found["batch"])["loss"].item())
    assert found["losses"].keys() == {"loss"}


def test_any_batch_is_saved_as_far_as_possible() -> None:
    class Sample:
        def __init__(self) -> None:
            self.boxes, self.reader = torch.ones(2), object()

    found = replayable({"image": torch.zeros(1), "samples": [Sample()]})
    assert torch.equal(found["samples"][0]["boxes"], torch.ones(2))
    assert found["samples"][0]["reader"] == "left out: object"


def test_learning_rates_of_several_optimizers_are_reported_once_each() -> None:
    made = {name: torch.optim.SGD([torch.ones(1)], lr=lr) for name, lr in (("g", 0.1), ("d", 0.1), ("e", 0.2))}
    assert distinct_learning_rates(made) == [0.1, 0.2]
    assert distinct_learning_rates(None) == []


# -- a batch is left out ---------------------------------------------------------------------------------------


def training(
    make: Callable[[Any], torch.optim.Optimizer], *, every: int = 1, constant: bool = False
) -> tuple[Engine, nn.Module, Any]:
    """Return a script with batch norm and accumulated steps. A batch is (x, factor of the loss)."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    optimizer = make(model.parameters())
    batches = 0

    def loss_of(batch: Any) -> Any:
        x, factor = batch
        # A factor that gradients know nothing of: they are finite, and the loss is not.
        return model(x).square().mean() + factor - 1 if constant else model(x).square().mean() * factor

    def step(engine: Engine, batch: Any) -> Any:
        nonlocal batches
        batches += 1
        if isinstance(optimizer, torch.optim.LBFGS):

            def closure() -> Any:
                optimizer.zero_grad()
                loss = loss_of(batch)
                loss.backward()
                return loss

            return {"loss": optimizer.step(closure)}
        loss = loss_of(batch)
        loss.backward()
        if batches % every == 0:
            optimizer.step()
            optimizer.zero_grad()
        return {"loss": loss}

    return Engine(step), model, optimizer


def batches_of(factors: list[float]) -> list[Any]:
    generator = torch.Generator().manual_seed(1)
    found = [(torch.randn(6, 3, generator=generator), factor) for factor in factors]
    # The data of a bad batch is not that of any good one.
    return [(x if math.isfinite(factor) else torch.randn(6, 3), factor) for x, factor in found]


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "SGD with momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.1),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "LBFGS": lambda p: torch.optim.LBFGS(p, lr=0.1, max_iter=3),
}


def left_out(
    make: Callable[[Any], torch.optim.Optimizer], factors: list[float], tmp_path: Path, **script: Any
) -> tuple[Any, Any, Any, Any]:
    """Return the script with the hook on all batches, and the script alone on the good ones."""
    torch.manual_seed(2)
    data = batches_of(factors)
    trainer, model, optimizer = training(make, **script)
    hook = {"type": "CheckInvalidLossHook", "action": "skip"}
    runner = attach_hooks(trainer, [hook], model=model, optimizer=optimizer, work_dir=tmp_path)
    trainer.run(data, max_epochs=1)
    alone, expected, its_optimizer = training(make, **script)
    alone.run([batch for batch in data if math.isfinite(batch[1])], max_epochs=1)
    assert runner.hooks["CheckInvalidLossHook"].state.skipped == sum(not math.isfinite(factor) for factor in factors)
    return model, expected, optimizer, its_optimizer


def assert_same(one: Any, other: Any) -> None:
    one, other = copy.deepcopy(one.state_dict()), copy.deepcopy(other.state_dict())
    torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("factors", [[1.0, NAN, 1.0], [INF, 1.0, 1.0], [1.0, 1.0, INF, NAN, 1.0, -INF]], ids=str)
def test_bad_batch_changes_no_weights_buffers_or_optimizer_state(
    make: Any, factors: list[float], tmp_path: Path
) -> None:
    model, expected, optimizer, its_optimizer = left_out(make, factors, tmp_path)
    assert_same(model, expected)
    if not isinstance(optimizer, torch.optim.LBFGS):
        assert_same(optimizer, its_optimizer)


def test_a_bad_loss_with_good_gradients_is_left_out_too(tmp_path: Path) -> None:
    model, expected, *_ = left_out(OPTIMIZERS["AdamW"], [1.0, NAN, 1.0], tmp_path, constant=True)
    assert_same(model, expected)


def test_of_a_step_of_several_batches_the_others_count(tmp_path: Path) -> None:
    """The third batch is bad: the step after the fourth has the gradients of the first two and the fourth."""
    data = batches_of([1.0, 1.0, NAN, 1.0])
    trainer, model, optimizer = training(OPTIMIZERS["SGD"], every=4)
    hook = {"type": "CheckInvalidLossHook", "action": "skip"}
    attach_hooks(trainer, [hook], model=model, optimizer=optimizer, work_dir=tmp_path)
    trainer.run(data, max_epochs=1)
    alone, expected, _ = training(OPTIMIZERS["SGD"], every=3)
    alone.run([data[0], data[1], data[3]], max_epochs=1)
    assert_same(model, expected)


def test_bad_last_batch_drops_all_batches_of_its_step(tmp_path: Path) -> None:
    trainer, model, optimizer = training(OPTIMIZERS["AdamW"], every=2)
    before = copy.deepcopy(dict(model.named_parameters()))
    hook = {"type": "CheckInvalidLossHook", "action": "skip"}
    attach_hooks(trainer, [hook], model=model, optimizer=optimizer, work_dir=tmp_path)
    trainer.run(batches_of([1.0, NAN]), max_epochs=1)
    assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_moving_average_never_sees_it(tmp_path: Path) -> None:
    trainer, model, optimizer = training(OPTIMIZERS["SGD"])
    hooks = [{"type": "EMAHook", "momentum": 0.5, "warm_up": 0}, {"type": "CheckInvalidLossHook", "action": "skip"}]
    runner = attach_hooks(trainer, hooks, model=model, optimizer=optimizer, work_dir=tmp_path)
    trainer.run(batches_of([1.0, NAN, 1.0]), max_epochs=1)
    assert all(tensor.isfinite().all() for tensor in runner.hooks["EMAHook"].weights()["ema_state_dict"].values())
    assert runner.hooks["EMAHook"].state.skipped == 0


def test_what_was_left_out_is_reported_at_the_end(tmp_path: Path) -> None:
    trainer, model, optimizer = training(OPTIMIZERS["SGD"])
    hook = {"type": "CheckInvalidLossHook", "action": "skip"}
    runner = attach_hooks(trainer, [hook], model=model, optimizer=optimizer, work_dir=tmp_path)
    trainer.run(batches_of([1.0, NAN, INF, 1.0]), max_epochs=1)
    assert "2 batches left out" in str(runner.report())
    assert optimizer._optimizer_step_pre_hooks == {}


def test_when_nothing_is_good_any_more_the_run_fails(tmp_path: Path) -> None:
    trainer, model, optimizer = training(OPTIMIZERS["SGD"])
    hook = {"type": "CheckInvalidLossHook", "action": "skip"}
    attach_hooks(trainer, [hook], model=model, optimizer=optimizer, work_dir=tmp_path)
    with pytest.raises(HookError, match=r"iteration 11, .* 10 times in a row: it is not the batch"):
        trainer.run(batches_of([1.0, *[NAN] * 20]), max_epochs=1)


def test_an_optimizer_is_needed_to_leave_out_a_batch(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"hooks\[0\].action: .* pass optimizer="):
        attach_hooks(Engine(print), [{"type": "CheckInvalidLossHook", "action": "skip"}], work_dir=tmp_path)


# -- what is saved ---------------------------------------------------------------------------------------------


def saving(tmp_path: Path, **settings: Any) -> tuple[Engine, Any, nn.Module]:
    """Attach the hook with its usual interval of 50 beside a checkpoint every few iterations."""
    trainer, model, optimizer = training(OPTIMIZERS["SGD"], constant=True)
    saves = {"type": "CheckpointHook", "by_epoch": False, "interval": 2, "save_best": False}
    hooks = [{"type": "CheckInvalidLossHook", **settings}, saves]
    runner = attach_hooks(trainer, hooks, model=model, optimizer=optimizer, work_dir=tmp_path)
    return trainer, runner, model


def files(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in tmp_path.glob("*.pth"))


def test_a_state_whose_loss_is_not_finite_is_not_saved(tmp_path: Path) -> None:
    trainer, _, _ = saving(tmp_path)
    with pytest.raises(HookError, match=r"before_save_checkpoint failed .* loss is nan .* iteration 4, .*; it is not"):
        trainer.run(batches_of([1.0, 1.0, 1.0, NAN, 1.0, 1.0]), max_epochs=1)
    assert files(tmp_path) == ["iter_2.pth"]


def test_weights_that_are_not_finite_are_not_saved(tmp_path: Path) -> None:
    trainer, _, model = saving(tmp_path)

    @trainer.on(Events.ITERATION_COMPLETED(once=3))
    def spoil() -> None:
        model[0].weight.data[0, 0] = INF

    with pytest.raises(HookError, match=r"the weight 0.weight is nan in epoch 1, iteration 4"):
        trainer.run(batches_of([1.0] * 6), max_epochs=1)
    assert files(tmp_path) == ["iter_2.pth"]


def test_a_run_that_stops_saves_no_such_state_either(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trainer, runner, model = saving(tmp_path, action="stop")

    @trainer.on(Events.ITERATION_COMPLETED(once=3))
    def spoil() -> None:
        model[0].weight.data[0, 0] = NAN

    with caplog.at_level(logging.INFO):
        trainer.run(batches_of([1.0] * 6), max_epochs=1)
    assert (trainer.state.iteration, runner.stop_reason[:19]) == (4, "loss is nan, the we")
    assert files(tmp_path) == ["iter_2.pth"]
    assert "2 saves failed: iter_4.pth, last.pth" in caplog.text


def test_a_batch_that_was_left_out_does_not_prevent_a_save(tmp_path: Path) -> None:
    trainer, _, _ = saving(tmp_path, action="skip")
    trainer.run(batches_of([1.0, NAN, 1.0]), max_epochs=1)
    assert files(tmp_path) == ["iter_2.pth", "last.pth"]


# -- several ranks ---------------------------------------------------------------------------------------------


def in_each_process(action: str) -> dict[str, Any]:
    """The second of three batches is bad on rank 1 alone."""
    rank = idist.get_rank()
    trainer, model, optimizer = training(OPTIMIZERS["SGD with momentum"])
    folder = tempfile.mkdtemp()
    hook = {"type": "CheckInvalidLossHook", "interval": 1, "action": action, "save_batch": True}
    runner = attach_hooks(trainer, [hook], model=model, optimizer=optimizer, work_dir=folder)
    generator = torch.Generator().manual_seed(0)
    data = [(torch.randn(6, 3, generator=generator), NAN if n == 1 and rank == 1 else 1.0) for n in range(3)]
    failure = ""
    try:
        trainer.run(data, max_epochs=1)
    except HookError as error:
        failure = str(error.__cause__)
    return {
        "failure": failure,
        "reason": runner.stop_reason,
        "iterations": trainer.state.iteration,
        "weights": sum(parameter.sum().item() for parameter in model.parameters()),
        "saved": sorted(path.name for path in Path(folder).glob("bad_batch*")),
    }


def all_actions() -> dict[str, dict[str, Any]]:
    return {action: in_each_process(action) for action in ("stop", "skip", "raise")}


@pytest.mark.slow
def test_all_ranks_act_alike_when_one_has_a_bad_batch() -> None:
    results = run_ranks(all_actions)
    for action in results[0]:
        first, second = (result[action] for result in results)
        assert (first["saved"], second["saved"]) == ([], ["bad_batch_rank_1.pt"])
        assert first["weights"] == second["weights"] or action != "skip", "both have left it out"
        assert first["iterations"] == second["iterations"] == (3 if action == "skip" else 2)
        told = first["failure"] if action == "raise" else first["reason"] or ""
        assert told.startswith("on rank 1 loss is nan in epoch 1, iteration 2") == (action != "skip")
        assert (first["failure"], first["reason"]) == (second["failure"], second["reason"])
