"""The points of evaluations that a script runs itself."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine, Events
from ignite.handlers import ModelCheckpoint
from torch.utils.data import DataLoader, RandomSampler

from ignite_hooks import BaseHook, HookError, attach_hooks
from ignite_hooks.testing import RecordingHook, failing_at, tiny_run
from tests.tools import Log


def test_an_evaluator_called_test_reaches_the_test_points(tmp_path: Path) -> None:
    tiny = tiny_run()
    trainer, evaluator, val_data = tiny.trainer, tiny.evaluator, tiny.val_data
    log: Log = []
    attach_hooks(trainer, [RecordingHook(log=log, name="recorder")], evaluators={"test": evaluator}, work_dir=tmp_path)
    evaluator.run(val_data)
    assert [point for _, point, *_ in log] == [
        "before_test",
        "before_test_epoch",
        *["before_test_iter", "after_test_iter"] * 2,
        "after_test_epoch",
        "after_test",
    ]


@pytest.mark.parametrize(
    "point", ["before_val", "before_val_epoch", "before_val_iter", "after_val_iter", "after_val_epoch", "after_val"]
)
def test_a_failure_at_any_evaluation_point_ends_the_run(point: str, tmp_path: Path) -> None:
    tiny = tiny_run()
    trainer, evaluator, data, val_data = tiny.trainer, tiny.evaluator, tiny.data, tiny.val_data
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run(val_data))
    attach_hooks(trainer, [failing_at(point)], evaluators=evaluator, work_dir=tmp_path)
    with pytest.raises(HookError, match=point):
        trainer.run(data, max_epochs=2)
    assert trainer.state.epoch == 1


def test_evaluations_of_the_training_data_are_no_validations(tmp_path: Path) -> None:
    tiny = tiny_run()
    trainer, evaluator, data, val_data = tiny.trainer, tiny.evaluator, tiny.data, tiny.val_data

    @trainer.on(Events.EPOCH_COMPLETED)
    def measure() -> None:
        evaluator.run(data)
        evaluator.run(val_data)

    log: Log = []
    watcher = RecordingHook(log=log, name="recorder", points=["after_val_epoch"])
    runner = attach_hooks(trainer, [watcher], evaluators=evaluator, work_dir=tmp_path, val_loader=val_data)
    trainer.run(data, max_epochs=2)
    assert len(log) == 2
    assert {"train_accuracy", "val_accuracy", "accuracy"} <= set(runner.metrics)
    assert runner.metrics["accuracy"] == runner.metrics["val_accuracy"]


def order_of_evaluations(folder: Path, extra: bool) -> list[int]:
    data: list[int] = list(range(8))
    loader: DataLoader[int] = DataLoader(data, sampler=RandomSampler(data, generator=torch.Generator().manual_seed(1)))  # type: ignore[arg-type]
    seen: list[int] = []
    trainer, evaluator = Engine(lambda engine, batch: None), Engine(lambda engine, batch: seen.append(int(batch)))
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run(loader))
    runner = attach_hooks(trainer, [RecordingHook(log=[], name="recorder")], evaluators=evaluator, work_dir=folder)
    if extra:
        runner.evaluation_options.extra["again"] = contextlib.nullcontext
    trainer.run([1], max_epochs=2)
    return seen


def test_an_extra_evaluation_leaves_the_order_of_the_main_one(tmp_path: Path) -> None:
    once, twice = (order_of_evaluations(tmp_path, extra) for extra in (False, True))
    assert twice == [*once[:8], *once[:8], *once[8:], *once[8:]]


class Weights:
    """Reads a model's first weight at every moment of an evaluation."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model, self.seen = model, dict[str, float]()

    def note(self, moment: str) -> None:
        self.seen[moment] = next(self.model.parameters()).flatten()[0].item()


@pytest.mark.parametrize("how", ["run", "terminate", "fail"])
@pytest.mark.parametrize("name", ["val", "test"])
def test_the_script_sees_the_averages_until_its_last_handler(name: str, how: str, tmp_path: Path) -> None:
    tiny = tiny_run()
    weights, engine = Weights(tiny.model), tiny.evaluator

    class Watcher(BaseHook):
        def after_val_epoch(self) -> None:
            weights.note("our epoch")

        def after_val(self) -> None:
            weights.note("our end")

        after_test_epoch, after_test = after_val_epoch, after_val

    def at_completed() -> None:
        weights.note("COMPLETED")
        if how == "fail":
            raise ValueError("the script's own")

    for event in (Events.EPOCH_STARTED, Events.ITERATION_COMPLETED, Events.EPOCH_COMPLETED):
        engine.add_event_handler(event, lambda _, name: weights.note(name), event.name)
    engine.add_event_handler(Events.COMPLETED, at_completed)
    if how == "terminate":
        engine.add_event_handler(Events.ITERATION_COMPLETED, engine.terminate)
    runner = attach_hooks(
        tiny.trainer,
        [{"type": "EMAHook", "momentum": 0.5, "warm_up": 0}, Watcher()],
        evaluators={name: engine},
        model=tiny.model,
        work_dir=tmp_path,
    )

    @tiny.trainer.on(Events.EPOCH_COMPLETED)
    def evaluate() -> None:
        weights.note("raw")
        with contextlib.suppress(ValueError):
            engine.run(tiny.val_data)
        weights.note("afterwards")

    tiny.trainer.run(tiny.data, max_epochs=2)
    seen = weights.seen
    raw, average = seen.pop("raw"), seen["ITERATION_COMPLETED"]
    assert raw != average
    of_the_script = {"EPOCH_STARTED", "ITERATION_COMPLETED", "EPOCH_COMPLETED", "COMPLETED"} & set(seen)
    assert {moment: seen[moment] for moment in of_the_script} == dict.fromkeys(of_the_script, average)
    assert {seen[moment] for moment in set(seen) - of_the_script} == {raw}
    assert {"our end", "afterwards"} <= set(seen)
    assert how == "terminate" or "COMPLETED" in seen
    assert not runner.evaluation_options.for_script


def test_the_checkpoint_of_the_script_holds_the_weights_that_were_scored(tmp_path: Path) -> None:
    tiny = tiny_run()
    scored: list[Any] = []
    keep = ModelCheckpoint(
        tmp_path / "own", score_function=lambda engine: len(scored), n_saved=None, require_empty=False
    )
    tiny.evaluator.add_event_handler(Events.EPOCH_COMPLETED, lambda: scored.append(tiny.model.weight.detach().clone()))
    tiny.evaluator.add_event_handler(Events.COMPLETED, keep, {"model": tiny.model})
    tiny.trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: tiny.evaluator.run(tiny.val_data))
    hook = {"type": "EMAHook", "momentum": 0.5, "warm_up": 0}
    attach_hooks(tiny.trainer, [hook, "CheckpointHook"], evaluators=tiny.evaluator, model=tiny.model, work_dir=tmp_path)
    tiny.trainer.run(tiny.data, max_epochs=3)
    saved = sorted((tmp_path / "own").glob("*.pt"))
    assert len(saved) == len(scored) == 3
    for path, weights in zip(saved, scored, strict=True):
        assert torch.equal(torch.load(path, weights_only=True)["weight"], weights)
    ours = torch.load(next(tmp_path.glob("best_*")), weights_only=True)
    assert not torch.equal(ours["state_dict"]["weight"], ours["ema_state_dict"]["weight"])
