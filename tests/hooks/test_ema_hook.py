from __future__ import annotations

import contextlib
import json
import logging
import math
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine, Events, create_supervised_evaluator
from ignite.metrics import Loss
from torch import Tensor, nn

from ignite_hooks import BaseHook, CheckpointError, ConfigError, HookError, attach_hooks
from ignite_hooks.hooks.ema_hook import EMAHook
from ignite_hooks.model import averaging_beside
from ignite_hooks.model.averages import TensorAverages
from ignite_hooks.model.averaging_kernels import TOGETHER
from ignite_hooks.run.averaging import momentum_at
from ignite_hooks.testing import failing_at
from tests.gan import gan
from tests.ranks import run_ranks

NAN = math.nan
Weights = dict[str, Tensor]


pytestmark = pytest.mark.usefixtures("quick")


def copies(tensors: Any) -> Weights:
    return {name: tensor.clone() for name, tensor in tensors.items()}


def same(one: Any, other: Any) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in one)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.norm(self.first(x))))


class Training:
    """A training that remembers the weights after every step, and what every evaluation saw."""

    def __init__(self, folder: Path, *hooks: Any, ema: dict[str, Any] | None = None, **options: Any) -> None:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.model = Net()
        self.batches = options.pop("batches", 4)
        self.accumulate = (ema or {}).get("accumulate", 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.3, momentum=0.9)
        self.start = copies(self.model.state_dict())
        self.steps: dict[int, Weights] = {}
        self.seen: list[Weights] = []
        self.left_out: set[int] = set()
        self.trainer = Engine(self.step)
        self.evaluator = create_supervised_evaluator(self.model, {"loss": Loss(nn.MSELoss())})
        self.evaluator.add_event_handler(Events.ITERATION_COMPLETED, lambda: self.seen.append(self.shown()))
        generator = torch.Generator().manual_seed(1)
        self.data = [(torch.randn(8, 4, generator=generator), torch.randn(8, 1, generator=generator)) for _ in range(4)]
        self.val_data = self.data[:1]
        given = {"model": self.model, "optimizer": self.optimizer, **options}
        services = {name: thing for name, thing in given.items() if thing is not None}
        self.runner = attach_hooks(
            self.trainer,
            [{"type": "EMAHook", **(ema or {})}, *hooks],
            evaluators={"val": self.evaluator},
            work_dir=folder,
            **{"val_loader": self.val_data, **services},
        )
        self.hook: EMAHook = self.runner.hooks["EMAHook"]

    def step(self, engine: Engine, batch: Any) -> float:
        x, y = batch
        self.model.train()
        loss = nn.functional.mse_loss(self.model(x), y)
        loss.backward()
        if engine.state.iteration % self.accumulate == 0 and engine.state.iteration not in self.left_out:
            self.optimizer.step()
            self.optimizer.zero_grad()
        self.steps[engine.state.iteration] = self.shown()
        return loss.item()

    def shown(self) -> Weights:
        return copies(self.model.state_dict())

    def average(self) -> Weights:
        return copies(self.hook.weights()["ema_state_dict"])

    def run(self, epochs: int = 2) -> Training:
        self.trainer.run(self.data[: self.batches], max_epochs=epochs)
        return self


PARAMETERS = [name for name, _ in Net().named_parameters()]


def by_hand(training: Training, updates: dict[int, float], begin: Weights) -> dict[str, Tensor]:
    """Return the averages with these momenta, one after another, in double precision."""
    exact = {name: begin[name].double() for name in PARAMETERS}
    for iteration, momentum in updates.items():
        for name in PARAMETERS:
            exact[name] = momentum * exact[name] + (1 - momentum) * training.steps[iteration][name].double()
    return exact


def close(found: Weights, exact: Weights) -> bool:
    return all(torch.allclose(found[name].double(), exact[name], rtol=1e-5, atol=1e-6) for name in exact)


# -- the momentum ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "momentum", "warm_up", "expected"),
    [
        (0, 0.9999, 100, 1 / 100),
        (1, 0.9999, 100, 2 / 101),
        (98, 0.9999, 100, 0.5),
        (10**7, 0.9999, 100, 0.9999),
        (0, 0.9, 1, 0.9),
        (0, 0.9, 0, 0.9),
        (5, 0.9, 0, 0.9),
        (math.inf, 0.9, 100, 0.9),
    ],
)
def test_the_momentum_rises_to_its_value(step: float, momentum: float, warm_up: int, expected: float) -> None:
    assert momentum_at(step, momentum, warm_up) == expected


@pytest.mark.parametrize("power", [0.5, 3.0, 6.94])
def test_a_power_function_average_is_of_a_share_of_the_run(tmp_path: Path, power: float) -> None:
    weight, seen = torch.nn.Parameter(torch.zeros(1)), []
    model = torch.nn.Module()
    model.weight = weight

    def step(engine: Engine, batch: float) -> float:
        weight.data.fill_(batch)
        seen.append(batch)
        return batch

    trainer = Engine(step)
    hook = EMAHook(power=power, momentum=0.99999, begin_iter=1)
    attach_hooks(trainer, [hook], work_dir=tmp_path, model=model)
    trainer.run([0.0, 3.0, 1.0, 7.0, 2.0, 5.0])
    average = None
    for count, value in enumerate(seen[1:]):
        share = (count / (count + 1)) ** (power + 1)
        average = value if average is None else share * average + (1 - share) * value
    assert float(hook.weights()["ema_state_dict"]["weight"]) == pytest.approx(average, rel=1e-5)


def test_the_momentum_rises_in_one_way() -> None:
    with pytest.raises(ValueError, match="power: is another rise of the momentum than 'warm_up'"):
        EMAHook(power=1.0, warm_up=10)


@pytest.mark.parametrize("momentum", [0.0002, 0.0, -1.0, 0.49, 1.0, 1.5, math.nan, math.inf])
def test_a_momentum_that_means_the_other_share_is_refused(momentum: float) -> None:
    with pytest.raises(ValueError, match=r"is not in \[0.5, 1\).*0.0002 is 0.9998 here"):
        EMAHook(momentum=momentum)


def test_the_refusal_says_what_was_probably_meant() -> None:
    with pytest.raises(ValueError, match=r"; write 0\.999$"):
        EMAHook(momentum=0.001)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"by_epoch": True}, "an average moves by iterations"),
        ({"every": "1 epoch"}, "an average moves by iterations"),
        ({"interval": 2, "start": 1, "accumulate": 2}, "never meets the end of an optimizer step of 2 iterations"),
    ],
)
def test_a_schedule_that_never_comes_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EMAHook(**settings)


# -- the average -------------------------------------------------------------------------------------------------

SCHEDULES: list[tuple[dict[str, Any], list[int], int]] = [
    ({}, [1, 2, 3, 4, 5, 6, 7, 8], 0),
    ({"warm_up": 0, "momentum": 0.6}, [1, 2, 3, 4, 5, 6, 7, 8], 0),
    ({"warm_up": 3, "momentum": 0.7}, [1, 2, 3, 4, 5, 6, 7, 8], 0),
    ({"interval": 3, "warm_up": 5}, [3, 6], 0),
    ({"accumulate": 2, "warm_up": 5}, [2, 4, 6, 8], 0),
    ({"accumulate": 2, "interval": 3, "warm_up": 5}, [6], 0),
    ({"begin_iter": 3, "warm_up": 5}, [4, 5, 6, 7, 8], 3),
    ({"begin_iter": 3, "interval": 2, "warm_up": 5}, [6, 8], 4),
    ({"begin_epoch": 1, "warm_up": 5}, [5, 6, 7, 8], 4),
    ({"begin_epoch": 1, "begin_iter": 6}, [7, 8], 6),
    ({"begin_iter": 3, "accumulate": 2, "warm_up": 5}, [6, 8], 4),
    ({"begin_iter": 99}, [], 0),
]


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize(("settings", "updates", "begin"), SCHEDULES, ids=str)
def test_it_follows_the_formula(
    settings: dict[str, Any], updates: list[int], begin: int, overlap: bool, tmp_path: Path
) -> None:
    training = Training(tmp_path, ema=settings | {"overlap": overlap}).run()
    hook, each = training.hook, training.accumulate
    momenta = {
        n: min(hook.momentum, (1 + (n - 1 - begin) // each) / (hook.warm_up + (n - 1 - begin) // each))
        if hook.warm_up
        else hook.momentum
        for n in updates
    }
    start = training.steps[begin] if begin else training.start
    expected = by_hand(training, momenta, start if updates else training.steps[8])
    assert close(training.average(), expected)
    assert (hook.state.updates, hook.state.skipped) == (len(updates), 0)


def test_random_settings_follow_the_formula(tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    draw = random.Random(seed)
    for turn in range(10):
        momentum, warm_up = draw.uniform(0.5, 0.9999), draw.randrange(20)
        interval, each = draw.randrange(1, 4), draw.randrange(1, 4)
        settings = {"momentum": momentum, "warm_up": warm_up, "interval": interval, "accumulate": each}
        training = Training(tmp_path / str(turn), ema=settings).run(3)
        updates = [n for n in range(1, 13) if n % interval == 0 and n % each == 0]
        step = {n: (n - 1) // each for n in updates}
        momenta = {n: min(momentum, (1 + step[n]) / (warm_up + step[n])) if warm_up else momentum for n in updates}
        assert close(training.average(), by_hand(training, momenta, training.start)), settings


def test_it_is_not_called_when_not_due(tmp_path: Path) -> None:
    training = Training(tmp_path, ema={"interval": 4}).run(3)
    assert training.runner.report().tallies["EMAHook", "after_train_iter"].calls == 3


def test_training_goes_as_without_it(tmp_path: Path) -> None:
    plain = Training(tmp_path / "plain", ema={"begin_iter": 99}).run()
    for settings in ({}, {"overlap": True}, {"evaluate": "both", "update_buffers": True}):
        training = Training(tmp_path / str(settings), {"type": "EvalHook"}, ema=settings).run()
        assert all(same(training.steps[n], plain.steps[n]) for n in plain.steps)


@pytest.mark.parametrize("ema", [{}, {"update_buffers": True}])
def test_evaluating_in_training_mode_changes_no_statistics_of_the_training(ema: dict[str, Any], tmp_path: Path) -> None:
    """A script may forget `model.eval()`, or want the statistics of the batch."""
    plain = Training(tmp_path / "plain", ema=ema).run()
    training = Training(tmp_path / "evaluated", ema=ema)
    evaluator = Engine(lambda engine, batch: training.model.train()(batch[0] + 100))
    runner = training.runner
    runner.installation.add_evaluator("far", evaluator)
    training.trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run(training.data))
    training.run()
    assert same(training.shown(), plain.shown())
    assert same(training.average(), plain.average())


def test_without_a_model_it_cannot_run(tmp_path: Path) -> None:
    training = Training(tmp_path, model=None)
    with pytest.raises(ConfigError, match="model"):
        training.run()


def test_a_lazy_model_is_averaged_from_its_first_step(tmp_path: Path) -> None:
    model = nn.LazyLinear(1)
    trainer = Engine(lambda engine, batch: model(torch.ones(2, 3)).sum().item())
    runner = attach_hooks(trainer, [EMAHook()], work_dir=tmp_path, model=model)
    trainer.run([1, 2], max_epochs=1)
    assert runner.hooks["EMAHook"].state.updates == 1
    assert torch.equal(runner.hooks["EMAHook"].weights()["ema_state_dict"]["weight"], model.weight)


def test_names_are_those_of_the_unwrapped_model(tmp_path: Path) -> None:
    model = Net()
    trainer = Engine(lambda engine, batch: None)
    runner = attach_hooks(trainer, [EMAHook()], work_dir=tmp_path, model=nn.DataParallel(model))
    trainer.run([1], max_epochs=1)
    assert runner.hooks["EMAHook"].weights()["ema_state_dict"].keys() == model.state_dict().keys()


# -- weights that are not finite ---------------------------------------------------------------------------------


class Heals(BaseHook):
    """Makes a weight finite again, once the average has been updated."""

    point_priority = {"after_train_iter": 1}

    def __init__(self, model: nn.Module | None = None) -> None:
        super().__init__()

    def after_train_iter(self, model: Any, optimizer: Any) -> None:
        with torch.no_grad():
            model.last.weight.nan_to_num_(0.1, 0.1, 0.1)


@pytest.mark.parametrize("value", [NAN, math.inf, -math.inf])
def test_a_passing_nan_is_skipped_counted_and_logged_once(
    value: float, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Poisons(BaseHook):
        point_priority = {"after_train_iter": 100}

        def after_train_iter(self, runner: Any, model: Any) -> None:
            if runner.global_step in (3, 5, 6):
                with torch.no_grad():
                    model.last.weight[0, 2] = value

    training = Training(tmp_path, Poisons(), Heals(), ema={"warm_up": 10}).run()
    momenta = {n: n / (9 + n) for n in (1, 2, 4, 7, 8)}
    assert close(training.average(), by_hand(training, momenta, training.start))
    assert (training.hook.state.updates, training.hook.state.skipped) == (5, 3)
    said = [message for message in caplog.messages if "finite" in message]
    assert said == [
        "weights are not finite: the average continues without them (iteration 3)",
        "updates of the average left out, as the weights were not finite: 3",
    ]


def test_updates_skipped_by_a_device_are_counted_on_request(tmp_path: Path) -> None:
    class OnDevice(BaseHook):
        point_priority = {"after_train_iter": 100}

        def after_train_iter(self, runner: Any, model: Any) -> None:
            averages = runner.hooks["EMAHook"]._averages
            averages.weights._on_device, averages.weights.deferred, averages.weights._alone = True, None, None
            if runner.global_step in (3, 5):
                with torch.no_grad():
                    model.last.weight[0, 2] = NAN

    training = Training(tmp_path, OnDevice(), Heals(), ema={"warm_up": 10}).run()
    momenta = {n: n / (9 + n) for n in (1, 2, 4, 6, 7, 8)}
    assert close(training.average(), by_hand(training, momenta, training.start))
    assert (training.hook.state.updates, training.hook.state.skipped) == (6, 2)


# -- evaluations -------------------------------------------------------------------------------------------------

EVAL = {"type": "EvalHook", "save_best": False}


@pytest.mark.parametrize("overlap", [False, True])
def test_evaluations_see_the_average_and_training_the_raw_weights(overlap: bool, tmp_path: Path) -> None:
    averages: list[Weights] = []
    training = Training(tmp_path, EVAL, ema={"warm_up": 3, "overlap": overlap})
    training.trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: averages.append(training.average()))
    training.run(2)
    assert len(training.seen) == len(averages) == 2
    assert all(same(seen, average) for seen, average in zip(training.seen, averages, strict=True))
    assert same(training.shown(), training.steps[8])
    assert not same(training.seen[1], training.shown())


def test_evaluations_can_be_of_the_raw_weights(tmp_path: Path) -> None:
    training = Training(tmp_path, EVAL, ema={"evaluate": "raw"}).run()
    assert same(training.seen[0], training.steps[4])
    assert same(training.seen[1], training.steps[8])


def test_both_evaluates_and_names_the_raw_weights_first(tmp_path: Path) -> None:
    found: list[dict[str, float]] = []
    training = Training(tmp_path, EVAL, ema={"evaluate": "both", "warm_up": 3})
    training.trainer.add_event_handler(Events.COMPLETED, lambda: found.append(dict(training.runner.metrics)))
    training.run()
    assert len(training.seen) == 4
    assert same(training.seen[2], training.steps[8])
    assert same(training.seen[3], training.average())
    x, y = training.val_data[0]
    for state, name in ((training.steps[8], "val_raw_loss"), (training.average(), "val_loss")):
        net = Net()
        net.load_state_dict(state)
        assert found[0][name] == pytest.approx(nn.functional.mse_loss(net.eval()(x), y).item(), rel=1e-5)
    assert training.runner.evaluation_options.extra == {}


@pytest.mark.parametrize(("ema", "name"), [({"evaluate": "both"}, "raw"), ({"also": {"slow": 0.9}}, "slow")])
def test_what_other_weights_reach_is_logged_and_written_beside_it(
    ema: dict[str, Any], name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ignite_hooks")
    training = Training(tmp_path, EVAL, {"type": "LoggerHook"}, ema={**ema, "warm_up": 3}).run()
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    found = [row["scalars"] for row in rows if row["kind"] == "val"]
    assert [list(scalars) for scalars in found] == [["loss", f"{name}_loss"]] * 2
    assert found[-1] == {key: training.runner.metrics[f"val_{key}"] for key in ("loss", f"{name}_loss")}
    lines = [message for message in caplog.messages if message.startswith("val ")]
    assert len(lines) == 2
    assert all(f"  {name}_loss " in line for line in lines)


def test_an_evaluation_before_the_first_update_sees_the_raw_weights(tmp_path: Path) -> None:
    training = Training(tmp_path, {**EVAL, "every": "2 iter"}, ema={"interval": 5}).run()
    assert same(training.seen[0], training.steps[2])
    assert same(training.seen[1], training.steps[4])
    assert not same(training.seen[2], training.steps[6])


def test_an_evaluation_of_the_script_itself_is_one_too(tmp_path: Path) -> None:
    training = Training(tmp_path)
    training.trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: training.evaluator.run(training.val_data))
    training.run()
    training.evaluator.run(training.val_data)
    assert same(training.seen[1], training.average())
    assert same(training.seen[2], training.average())
    assert same(training.shown(), training.steps[8])


def raises(engine: Engine) -> None:
    raise RuntimeError("in the evaluation")


def terminates(engine: Engine) -> None:
    engine.terminate()


@pytest.mark.parametrize("event", [Events.EPOCH_STARTED, Events.ITERATION_COMPLETED, Events.EPOCH_COMPLETED])
@pytest.mark.parametrize("ending", [raises, terminates])
def test_raw_weights_are_back_after_any_evaluation(
    ending: Callable[[Engine], None], event: Events, tmp_path: Path
) -> None:
    training = Training(tmp_path)
    training.run(1)
    objects = list(training.model.parameters())
    training.evaluator.add_event_handler(event, ending)
    for run in (lambda: training.evaluator.run(training.val_data), lambda: training.runner.validate()):
        with pytest.raises(RuntimeError, match="in the evaluation") if ending is raises else contextlib.nullcontext():
            run()
        assert same(training.shown(), training.steps[4])
    assert all(a is b for a, b in zip(objects, training.model.parameters(), strict=True))


@pytest.mark.parametrize("point", ["before_val_epoch", "before_val_iter", "after_val_iter", "after_val_epoch"])
def test_a_failing_hook_in_an_evaluation_leaves_raw_weights(point: str, tmp_path: Path) -> None:
    training = Training(tmp_path, failing_at(point, priority=90), EVAL)
    with pytest.raises(HookError, match="boom"):
        training.run()
    assert same(training.shown(), training.steps[4])
    assert not training.hook._averages.swapped  # type: ignore[union-attr]


def test_a_test_within_a_validation_ends_neither(tmp_path: Path) -> None:
    inside: list[bool] = []
    training = Training(tmp_path)
    test = Engine(lambda engine, batch: inside.append(training.hook._averages.swapped))  # type: ignore[union-attr]
    training.runner.installation.add_evaluator("test", test)
    training.evaluator.add_event_handler(Events.ITERATION_STARTED, lambda: test.run([0]))
    training.run(1)
    training.evaluator.run(training.val_data)
    test.run([0])
    assert inside == [True, True]
    assert same(training.seen[0], training.average())
    assert same(training.shown(), training.steps[4])


# -- by hand -----------------------------------------------------------------------------------------------------


def test_swap_works_in_and_outside_of_a_run(tmp_path: Path) -> None:
    shown: list[tuple[Weights, Weights]] = []
    training = Training(tmp_path)

    def look() -> None:
        with training.hook.swap():
            shown.append((training.shown(), training.average()))

    training.trainer.add_event_handler(Events.EPOCH_COMPLETED, look)
    training.run()
    look()
    training.runner.detach()
    with training.hook.swap():
        assert same(training.shown(), shown[-1][1])
    assert len(shown) == 3
    assert all(same(one, other) for one, other in shown)
    assert same(training.shown(), training.steps[8])


def test_nested_swaps_and_evaluations_are_harmless(tmp_path: Path) -> None:
    training = Training(tmp_path).run()
    with training.hook.swap():
        with training.hook.swap():
            training.evaluator.run(training.val_data)
            assert same(training.shown(), training.average())
        training.evaluator.run(training.val_data)
        assert same(training.shown(), training.average())
    assert same(training.shown(), training.steps[8])
    assert all(same(seen, training.average()) for seen in training.seen)


def test_swap_before_the_first_update_changes_nothing(tmp_path: Path) -> None:
    training = Training(tmp_path)
    with training.hook.swap():
        assert same(training.shown(), training.start)


def test_an_exception_within_swap_leaves_the_raw_weights(tmp_path: Path) -> None:
    training = Training(tmp_path).run()
    with pytest.raises(KeyError), training.hook.swap():
        raise KeyError("boom")
    assert same(training.shown(), training.steps[8])


def test_an_optimizer_step_or_a_run_within_swap_is_refused(tmp_path: Path) -> None:
    training = Training(tmp_path).run()
    with training.hook.swap():
        with pytest.raises(RuntimeError, match="an optimizer step would change them"):
            training.optimizer.step()
        with pytest.raises(HookError, match="leave swap\\(\\) before the training begins"):
            training.trainer.run(training.data, max_epochs=9)
    training.optimizer.step()
    assert training.optimizer._optimizer_step_pre_hooks == {}


# -- saving and loading ------------------------------------------------------------------------------------------


def saved(training: Training, name: str = "now.pth") -> dict[str, Any]:
    return dict(torch.load(training.runner.save_checkpoint(name), weights_only=True))


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("overlap", [False, True])
def test_a_checkpoint_always_has_raw_weights_and_averages(inside: bool, overlap: bool, tmp_path: Path) -> None:
    found: list[dict[str, Any]] = []
    training = Training(tmp_path, EVAL, ema={"overlap": overlap})
    event = (training.evaluator, Events.ITERATION_COMPLETED) if inside else (training.trainer, Events.EPOCH_COMPLETED)
    event[0].add_event_handler(event[1], lambda: found.append(saved(training)))
    training.run()
    assert len(found) == 2
    assert same(found[1]["state_dict"], training.steps[8])
    assert same(found[1]["ema_state_dict"], training.average())
    assert found[1]["state_dict"].keys() == found[1]["ema_state_dict"].keys() == training.model.state_dict().keys()
    assert same(training.shown(), training.steps[8])


@pytest.mark.parametrize("overlap", [False, True])
def test_a_checkpoint_has_the_average_of_its_iteration(overlap: bool, tmp_path: Path) -> None:
    settings = {"warm_up": 5, "overlap": overlap}
    keep = {"type": "CheckpointHook", "every": "1 iter", "save_best": False, "max_keep_ckpts": -1}
    training = Training(tmp_path, keep, ema=settings).run()
    for last in range(1, 9):
        found = torch.load(tmp_path / f"iter_{last}.pth", weights_only=True)
        assert same(found["state_dict"], training.steps[last])
        expected = by_hand(training, {n: n / (4 + n) for n in range(1, last + 1)}, training.start)
        assert close(found["ema_state_dict"], expected)


def test_a_checkpoint_before_the_first_update_has_raw_weights_twice(tmp_path: Path) -> None:
    training = Training(tmp_path, ema={"interval": 99}).run()
    found = saved(training)
    assert same(found["ema_state_dict"], training.steps[8])
    assert same(found["state_dict"], training.steps[8])


RESUMES: list[dict[str, Any]] = [
    {},
    {"momentum": 0.7, "warm_up": 0, "update_buffers": True},
    {"interval": 3, "warm_up": 7},
    {"interval": 7},
    {"begin_iter": 5},
    {"begin_epoch": 2},
    {"begin_iter": 2, "interval": 4},
    {"overlap": True},
    {"evaluate": "both"},
]


# Gradients that are being gathered are in no checkpoint: there it has to be a multiple.
@pytest.mark.parametrize(
    ("settings", "iterations"), [*[(settings, (2, 6)) for settings in RESUMES], ({"accumulate": 4}, (4,))], ids=str
)
def test_a_resumed_run_ends_as_an_uninterrupted_one(
    settings: dict[str, Any], iterations: tuple[int, ...], tmp_path: Path
) -> None:
    often = {"by_epoch": False, "start": iterations[0], "interval": 4, "max_keep_ckpts": -1}
    keep = {"type": "CheckpointHook", **often, "save_best": False}
    batches = {"batches": 3}
    whole = Training(tmp_path / "whole", keep, EVAL, ema=settings, **batches).run(4)
    for iteration in iterations:
        path = tmp_path / "whole" / f"iter_{iteration}.pth"
        again = Training(tmp_path / str(iteration), EVAL, ema=settings, resume=path, **batches).run(4)
        assert same(again.shown(), whole.shown()), iteration
        assert same(again.average(), whole.average()), iteration
        assert again.hook.state == whole.hook.state, iteration
        assert same(again.seen[-1], whole.seen[-1]), iteration


def test_a_second_run_starts_again_and_a_longer_one_continues(tmp_path: Path) -> None:
    training = Training(tmp_path).run(2)
    first = training.average()
    training.model.load_state_dict(training.start)
    training.optimizer.state.clear()
    training.trainer.state.max_epochs = None
    training.run(2)
    assert same(training.average(), first)
    assert training.hook.state.updates == 8
    training.run(3)
    assert training.hook.state.updates == 12
    whole = Training(tmp_path / "whole").run(3)
    assert same(training.average(), whole.average())


def test_a_checkpoint_without_averages_begins_them_as_its_weights(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plain = Training(tmp_path / "plain")
    plain.runner.remove_hook("EMAHook")
    path = plain.run(1).runner.save_checkpoint("plain.pth")
    assert "ema_state_dict" not in torch.load(path, weights_only=True)
    training = Training(tmp_path, resume=path, ema={"warm_up": 5}).run(2)
    assert "the checkpoint holds no averages: they begin as its weights" in caplog.messages
    momenta = {5 + n: (1 + n) / (5 + n) for n in range(4)}
    assert close(training.average(), by_hand(training, momenta, plain.steps[4]))


@pytest.mark.parametrize(("change", "message"), [("missing", "last.bias is missing"), ("shape", r"of shape \(9,\)")])
def test_a_checkpoint_with_other_averages_is_refused(change: str, message: str, tmp_path: Path) -> None:
    path = Training(tmp_path / "one").run(1).runner.save_checkpoint()
    state = torch.load(path, weights_only=True)
    if change == "missing":
        del state["ema_state_dict"]["last.bias"]
    else:
        state["ema_state_dict"]["last.bias"] = torch.ones(9)
    torch.save(state, tmp_path / "other.pth")
    training = Training(tmp_path / "two", resume=tmp_path / "other.pth")
    with pytest.raises(HookError, match=message) as caught:
        training.run(2)
    assert isinstance(caught.value.__cause__, CheckpointError)


@pytest.mark.parametrize("averages", [True, False])
def test_a_new_run_can_begin_with_averages_from_a_file(averages: bool, tmp_path: Path) -> None:
    before = Training(tmp_path / "before").run(2)
    state = saved(before)
    if not averages:
        del state["ema_state_dict"]
    torch.save(state, tmp_path / "given.pth")
    training = Training(tmp_path, EVAL, ema={"resume_from": "given.pth", "momentum": 0.9, "warm_up": 5})
    training.run(1)
    begin = before.average() if averages else before.shown()
    # What has been averaged for long is not warmed up again: that would wipe it out.
    momenta = {n: 0.9 if averages else n / (4 + n) for n in range(1, 5)}
    assert close(training.average(), by_hand(training, momenta, begin))


def test_a_resume_from_file_without_weights_is_refused(tmp_path: Path) -> None:
    torch.save({"meta": {}}, tmp_path / "empty.pth")
    with pytest.raises(HookError, match="has neither 'ema_state_dict' nor 'state_dict'"):
        Training(tmp_path, ema={"resume_from": "empty.pth"}).run(1)


def test_a_resumed_run_ignores_the_averages_of_resume_from(tmp_path: Path) -> None:
    path = Training(tmp_path / "whole").run(1).runner.save_checkpoint()
    training = Training(tmp_path, resume=path, ema={"resume_from": "not_there.pth"}).run(2)
    assert same(training.average(), Training(tmp_path / "other").run(2).average())


@pytest.mark.parametrize("double", [False, True])
def test_a_checkpoint_can_be_loaded_while_averages_are_swapped_in(double: bool, tmp_path: Path) -> None:
    training = Training(tmp_path)
    if double:
        training.model.double()
        training.data = [(x.double(), y.double()) for x, y in training.data]
    training.run(1)
    path = training.runner.save_checkpoint("first.pth")
    raw, average = training.shown(), training.average()
    training.run(2)
    with training.hook.swap():
        training.runner.load_checkpoint(path)
        assert same(training.shown(), average)
    assert same(training.shown(), raw)
    assert same(training.average(), average)


def test_its_weights_can_be_saved_and_loaded(tmp_path: Path) -> None:
    training = Training(tmp_path, ema={"update_buffers": True}).run(1)
    aside = {"ema_state_dict": training.average()}
    training.run(3)
    assert not same(training.average(), aside["ema_state_dict"])
    training.hook.load_weights(aside)
    floating = [name for name in aside["ema_state_dict"] if "num_batches" not in name]
    assert all(torch.equal(training.average()[name], aside["ema_state_dict"][name]) for name in floating)
    with training.hook.swap():
        assert torch.equal(training.model.last.weight, aside["ema_state_dict"]["last.weight"])


def test_steady_tensors_change_only_after_waiting_for_a_copy(tmp_path: Path) -> None:
    training = Training(tmp_path)
    versions: list[tuple[int, ...]] = []

    def look() -> None:
        versions.append(tuple(tensor._version for tensor in training.hook.steady_tensors()))

    whole = training.runner.checkpoints.wait_for_staging
    training.runner.checkpoints.wait_for_staging = lambda: (look(), whole())  # type: ignore[assignment, func-returns-value]
    training.trainer.add_event_handler(Events.ITERATION_COMPLETED, look)
    training.run(TOGETHER)
    versions.pop()  # the end of the run waits too
    before, when_waiting = versions[0::2], versions[1::2]
    held = {tensor.untyped_storage().data_ptr() for tensor in training.hook.steady_tensors()}
    averages = training.hook.weights()["ema_state_dict"]
    assert {averages[name].untyped_storage().data_ptr() for name in PARAMETERS} == held
    assert before == when_waiting
    # The updates of a small model are made some at a time.
    assert len(set(before)) == 4


# -- beside the training -----------------------------------------------------------------------------------------


def test_overlap_gives_equal_averages_bit_for_bit(tmp_path: Path) -> None:
    for settings in ({"warm_up": 5}, {"update_buffers": True}, {"accumulate": 2}, {"interval": 3}):
        line = Training(tmp_path / f"line {settings}", EVAL, ema=settings).run(3)
        beside = Training(tmp_path / f"beside {settings}", EVAL, ema=settings | {"overlap": True}).run(3)
        assert same(line.average(), beside.average())
        assert line.hook.state == beside.hook.state
        assert all(same(one, other) for one, other in zip(line.seen, beside.seen, strict=True))


def test_steps_skipped_by_a_scaler_lose_no_update(tmp_path: Path) -> None:
    found = []
    for overlap in (False, True):
        training = Training(tmp_path / str(overlap), ema={"overlap": overlap})
        training.left_out = {3, 4, 7}
        found.append((training.run(), training.average()))
    assert [training.hook.state.updates for training, _ in found] == [8, 8]
    assert same(found[0][1], found[1][1])


def test_the_optimizer_waits_for_an_update_in_the_thread(tmp_path: Path) -> None:
    """The worker is delayed until after the next backward pass, so a step that did not wait would be noticed."""
    events: list[str] = []
    backward = threading.Event()
    training = Training(tmp_path, ema={"overlap": True})

    class Holds(BaseHook):
        point_priority = {"after_train_iter": 100}

        def after_train_iter(self, runner: Any) -> None:
            backward.clear()
            if runner.global_step == 1:
                part = runner.hooks["EMAHook"]._averages.weights
                whole = part.update

                def late(momentum: float) -> bool:
                    assert threading.current_thread() is not threading.main_thread()
                    assert backward.wait(60)
                    done = bool(whole(momentum))
                    events.append("updated")
                    return done

                part.update = late

    def after_backward(_: Tensor) -> None:
        events.append("grad")
        backward.set()

    training.runner.register_hook(Holds())
    training.model.first.weight.register_post_accumulate_grad_hook(after_backward)
    # Registered after the hook's own: it runs after the barrier.
    training.trainer.add_event_handler(
        Events.STARTED,
        lambda: handles.append(training.optimizer.register_step_pre_hook(lambda *_: events.append("step"))),
    )
    handles: list[Any] = []
    training.trainer.add_event_handler(Events.EPOCH_COMPLETED, backward.set)
    training.run(1)
    assert events == ["grad", "step", *["grad", "updated", "step"] * 3, "updated"]
    line = Training(tmp_path / "line").run(1)
    assert same(training.average(), line.average())


def test_the_thread_ends_with_every_run(tmp_path: Path) -> None:
    for name, hooks in (("ends", []), ("fails", [failing_at("after_train_iter", call=3)])):
        training = Training(tmp_path / name, *hooks, ema={"overlap": True})
        seen: list[bool] = []
        training.trainer.add_event_handler(
            Events.ITERATION_STARTED,
            lambda _, seen: seen.append(any(t.name.startswith("EMAHook") for t in threading.enumerate())),
            seen,
        )
        try:
            training.run(1)
        except HookError:
            assert name == "fails"
        assert seen[-1]
        assert not any(thread.name.startswith("EMAHook") for thread in threading.enumerate())
        assert training.optimizer._optimizer_step_pre_hooks == {}
        assert training.hook.state.updates == (4 if name == "ends" else 3)


def test_a_failure_in_the_thread_ends_the_next_step(tmp_path: Path) -> None:
    training = Training(tmp_path, ema={"overlap": True})

    class Breaks(BaseHook):
        point_priority = {"after_train_iter": 100}

        def after_train_iter(self, runner: Any) -> None:
            runner.hooks["EMAHook"]._averages.weights.update = lambda momentum: 1 // 0

    training.runner.register_hook(Breaks())
    with pytest.raises(ZeroDivisionError):
        training.run(1)
    assert training.trainer.state.iteration == 2


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Try updates beside the training of a tiny model, in few iterations and on any machine."""

    def set_up(share: float) -> None:
        for name, value in {"LEAST": 1, "LOOKS": 2, "MEASURED": 4, "FASTER": share}.items():
            monkeypatch.setattr(averaging_beside, name, value)
        monkeypatch.setattr(averaging_beside, "usable_cores", lambda: 2)

    return set_up


def where_of(training: Training, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the thread of every update of the weights from now on."""
    where: list[str] = []
    whole = TensorAverages.update

    def update(part: TensorAverages, momentum: float) -> bool:
        if part.values:
            where.append("B" if threading.current_thread().name.startswith("EMAHook") else "-")
        return whole(part, momentum)

    monkeypatch.setattr(TensorAverages, "update", update)
    return where


ALWAYS, NEVER = math.inf, 0.0


@pytest.mark.parametrize(("share", "then"), [(ALWAYS, "BBB-"), (NEVER, "----")])
@pytest.mark.parametrize("settings", [{"warm_up": 5}, {"update_buffers": True}, {"interval": 2}, {"accumulate": 2}])
def test_the_choice_of_auto_changes_no_bit(
    share: float, then: str, settings: dict[str, Any], tried: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = Training(tmp_path / "line", EVAL, ema=settings | {"overlap": False}).run(12)
    tried(share)
    auto = Training(tmp_path / "auto", EVAL, ema=settings)
    assert auto.hook.overlap == "auto"
    where = where_of(auto, monkeypatch)
    auto.run(12)
    assert same(line.average(), auto.average())
    assert line.hook.state == auto.hook.state
    assert all(same(one, other) for one, other in zip(line.seen, auto.seen, strict=True))
    if settings == {"warm_up": 5}:
        modes = "".join(where)
        assert modes.startswith("---"), "nothing is beside the training before the weights have been looked at"
        assert modes[-8:-4] == modes[-4:] == then, "the last of an epoch is in line"


def test_a_script_that_clips_its_weights_through_data_gets_the_bits_of_in_line(
    tried: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO")
    found = []
    for overlap in (False, "auto"):
        tried(ALWAYS)
        training = Training(tmp_path / str(overlap), ema={"overlap": overlap})
        where = where_of(training, monkeypatch)
        whole = training.step

        def step(engine: Engine, batch: Any, training: Training = training, whole: Any = whole) -> float:
            for parameter in training.model.parameters():
                parameter.data.clamp_(-0.1, 0.1)
            return float(whole(engine, batch))

        training.trainer._process_function = step
        found.append(training.run(4).average())
    assert set(where) == {"-"}, "those of the second run"
    assert same(*found)
    assert [line for line in caplog.messages if "in line" in line] == [
        "the average is updated in line: not only steps of the optimizer change weights"
    ]


def test_a_checkpoint_loaded_in_an_epoch_waits_for_the_update(tried: Any, tmp_path: Path) -> None:
    found = []
    for overlap in (False, "auto"):
        tried(ALWAYS)
        training = Training(tmp_path / str(overlap), ema={"overlap": overlap})

        class Loads(BaseHook):
            point_priority = {"after_train_iter": 1}
            loaded = False

            def after_train_iter(self, runner: Any) -> None:
                if runner.global_step == 13:
                    runner.save_checkpoint("kept.pth")
                if runner.global_step == 14 and not self.loaded:
                    self.loaded = True
                    runner.load_checkpoint(runner.work_dir / "kept.pth")

        training.runner.register_hook(Loads())
        found.append((training.run(6).average(), training.hook.state))
    assert same(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]


def without_steps(training: Training) -> Any:
    return None


def of_a_part(training: Training) -> Any:
    return torch.optim.SGD(training.model.last.parameters(), lr=0.1)


@pytest.mark.parametrize(
    ("optimizer", "reason"),
    [
        (without_steps, "overlap is off: no optimizer was given whose steps can be waited for"),
        (of_a_part, "overlap is off: the optimizer that was given does not train all of the model"),
    ],
)
def test_updates_run_in_line_without_a_suitable_optimizer(
    optimizer: Any, reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    training = Training(tmp_path, ema={"overlap": True})
    training.runner.register_service("optimizer", optimizer(training))
    training.run()
    assert [message for message in caplog.messages if "overlap" in message] == [reason]
    assert same(training.average(), Training(tmp_path / "line").run().average())


# -- the order ---------------------------------------------------------------------------------------------------


def test_it_runs_first_and_after_buffers_are_synchronised(tmp_path: Path) -> None:
    training = Training(tmp_path, {"type": "SyncBuffersHook"}, {"type": "CheckpointHook", "every": "1 iter"}, EVAL)
    plan = training.runner.plan
    assert plan.at("after_train_iter")[0].hook == "EMAHook"
    assert plan.at("after_val_epoch")[0].hook == "EMAHook"
    assert [slot.hook for slot in plan.at("before_val_epoch")][:2] == ["SyncBuffersHook", "EMAHook"]


# -- sharded weights ---------------------------------------------------------------------------------------------


def in_each_process(work_dir: str, poisoned: int) -> dict[str, Any]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor

    rank = torch.distributed.get_rank()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1))
    start = copies(model.state_dict())
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    evaluated: list[float] = []
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(1))
    raw: list[Weights] = []

    def whole() -> Weights:
        return {name: value.full_tensor().clone() for name, value in model.state_dict().items()}

    def step(engine: Engine, batch: Any) -> float:
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        raw.append(whole())
        if engine.state.iteration == poisoned and rank == 1:
            shard: Any = model[0].weight
            shard._local_tensor.detach()[0, 0] = NAN
        return float(loss.item())

    def heal(engine: Engine) -> None:
        for parameter in model.parameters():
            tensor: Any = parameter
            tensor._local_tensor.detach().nan_to_num_(0.1)

    trainer = Engine(step)
    evaluator = Engine(lambda engine, batch: evaluated.append(model(x).pow(2).mean().item()))
    runner = attach_hooks(
        trainer, [EMAHook(warm_up=3)], work_dir=work_dir, model=model, optimizer=optimizer, evaluators=evaluator
    )
    trainer.add_event_handler(Events.ITERATION_STARTED, heal)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run([0]))
    trainer.run([0, 1, 2], max_epochs=2)
    hook = runner.hooks["EMAHook"]
    averages = hook.weights()["ema_state_dict"]
    exact = {name: value.double() for name, value in start.items()}
    for n, weights in enumerate(raw):
        if n + 1 != poisoned:
            momentum = min(0.9999, (1 + n) / (3 + n))
            exact = {name: momentum * exact[name] + (1 - momentum) * weights[name].double() for name in exact}
    plain = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1))
    plain.load_state_dict({name: value.float() for name, value in exact.items()})
    aside = {name: value.clone() for name, value in averages.items()}
    hook.load_weights({"ema_state_dict": aside})
    return {
        "sharded": all(isinstance(value, DTensor) for value in averages.values()),
        "averages": close({name: value.full_tensor() for name, value in averages.items()}, exact),
        "evaluated": abs(evaluated[-1] - plain(x).pow(2).mean().item()) < 1e-5,
        "raw again": same(whole(), raw[-1]) if poisoned != 6 else True,
        "skipped": hook.state.skipped,
    }


@pytest.mark.slow
@pytest.mark.parametrize("poisoned", [0, 2])
def test_sharded_weights_are_averaged_shard_by_shard(poisoned: int, tmp_path: Path) -> None:
    skipped = int(poisoned > 0)
    found = run_ranks(in_each_process, str(tmp_path), poisoned)
    good = {"sharded": True, "averages": True, "evaluated": True, "raw again": True, "skipped": skipped}
    assert found == [good, good]


# -- several models -----------------------------------------------------------------------------------------------

EMA_OF_GAN = {"type": "EMAHook", "momentum": 0.8, "warm_up": 0}
SAVE_EACH = {"type": "CheckpointHook", "by_epoch": False, "interval": 3, "max_keep_ckpts": -1}


@pytest.mark.parametrize(
    ("form", "models", "averaged"),
    [("mapping", None, ["g", "d"]), ("mapping", ["g"], ["g"]), ("list", None, ["0", "1"]), ("list", ["1"], ["1"])],
)
@pytest.mark.parametrize("overlap", [False, True])
def test_one_or_all_of_several_models_are_averaged(
    form: Any, models: Any, averaged: list[str], overlap: bool, tmp_path: Path
) -> None:
    ema = {**EMA_OF_GAN, "models": models, "overlap": overlap}
    run = gan(tmp_path, [SAVE_EACH, ema], form)
    by_name = dict(zip(["g", "d"] if form == "mapping" else ["0", "1"], (run.g, run.d), strict=True))
    wanted = {name: copies(dict(by_name[name].named_parameters())) for name in averaged}

    def update() -> None:
        for name, values in wanted.items():
            for key, weight in by_name[name].named_parameters():
                values[key] = 0.8 * values[key] + 0.2 * weight.detach()

    run.trainer.add_event_handler(Events.ITERATION_COMPLETED, update)
    run.run(1)
    saved = torch.load(tmp_path / "iter_3.pth", weights_only=True)
    assert list(saved["ema_state_dict"]) == averaged
    final = torch.load(tmp_path / "last.pth", weights_only=True)["ema_state_dict"]
    for name in averaged:
        assert final[name].keys() == by_name[name].state_dict().keys()
        for key, _ in by_name[name].named_parameters():
            torch.testing.assert_close(final[name][key], wanted[name][key])
        assert not same(final[name], by_name[name].state_dict())


def test_averages_of_several_models_resume_with_the_same_bits(tmp_path: Path) -> None:
    hooks = [SAVE_EACH, {**EMA_OF_GAN, "models": ["g"]}]
    gan(tmp_path / "whole", hooks).run(3)
    first = gan(tmp_path / "cut", hooks, fail_at=8)
    with pytest.raises(ZeroDivisionError):
        first.run(3)
    gan(tmp_path / "cut", hooks, resume="iter_3.pth").run(3)
    whole, cut = (torch.load(tmp_path / name / "last.pth", weights_only=True) for name in ("whole", "cut"))
    assert same(whole["ema_state_dict"]["g"], cut["ema_state_dict"]["g"])


def test_a_checkpoint_holds_raw_weights_of_several_while_averages_are_in_them(tmp_path: Path) -> None:
    run = gan(tmp_path, [{**EMA_OF_GAN, "models": ["g"]}])
    run.run(1)
    raw = copies(run.g.state_dict())
    with run.runner.hooks["EMAHook"].swap():
        assert not torch.equal(run.g[0].weight, raw["0.weight"])
        saved = torch.load(run.runner.save_checkpoint("now.pth"), weights_only=True)
    assert same(saved["state_dict"]["g"], raw)
    assert same(saved["state_dict"]["d"], run.d.state_dict())
    assert torch.equal(run.g[0].weight, raw["0.weight"])


@pytest.mark.parametrize(
    ("models", "given", "message"),
    [
        (["gen"], {}, r"EMAHook\.models: there is no model 'gen': the models are g, d"),
        (["g"], {"model": nn.Linear(2, 2)}, r"EMAHook\.models: names models, and this run has one model: remove it"),
        ([], {}, r"EMAHook\.models: is empty: name at least one model, or remove it"),
    ],
)
def test_models_that_are_not_there_are_refused_before_the_run(
    models: list[str], given: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        gan(tmp_path, [{**EMA_OF_GAN, "models": models}], **given)


def test_averages_of_other_models_are_an_error_that_names_both(tmp_path: Path) -> None:
    gan(tmp_path, [SAVE_EACH, {**EMA_OF_GAN, "models": ["g"]}]).run(1)
    message = r"it holds averages of g, and EMAHook averages g, d: set its models to \['g'\]"
    with pytest.raises(HookError, match=message):
        gan(tmp_path, [SAVE_EACH, EMA_OF_GAN], resume="auto").run(2)
