"""Our handlers on an engine: their places, and their removal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine, Events
from ignite.metrics import Average, Loss, RunningAverage

from ignite_hooks import BaseHook, attach_hooks
from ignite_hooks.engine.handlers import HandlerOrder, Handlers, tracking_new_handlers
from ignite_hooks.testing import tiny_run
from tests.engine.test_installation import handlers_of
from tests.tools import Log, echo_trainer


def test_hooks_see_later_metrics_and_enclose_the_scripts_evaluation(tmp_path: Path) -> None:
    tiny = tiny_run()
    trainer, evaluator, data, val_data = tiny.trainer, tiny.evaluator, tiny.data, tiny.val_data
    seen: Log = []

    class Looker(BaseHook):
        def after_train_iter(self, metrics: Any) -> None:
            seen.append(("iter", "running" in metrics))

        def after_train_epoch(self, runner: Any) -> None:
            seen.append(("train epoch", "mean" in runner.metrics, "val_accuracy" in runner.metrics))

        def after_val_epoch(self, metrics: Any) -> None:
            seen.append(("val epoch", "val_loss" in metrics))

        def after_epoch(self, metrics: Any) -> None:
            seen.append(("epoch", "val_accuracy" in metrics))

    attach_hooks(trainer, [Looker()], evaluators=evaluator, work_dir=tmp_path)
    RunningAverage(output_transform=lambda loss: loss).attach(trainer, "running")
    Average(output_transform=lambda loss: loss).attach(trainer, "mean")
    Loss(torch.nn.CrossEntropyLoss()).attach(evaluator, "loss")
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run(val_data))
    trainer.run(data, max_epochs=1)
    assert seen == [
        *[("iter", True)] * 3,
        ("train epoch", True, False),
        ("val epoch", True),
        ("epoch", True),
    ]


def test_running_engines_alone_have_handlers_one_per_event_and_place(tmp_path: Path) -> None:
    tiny = tiny_run()
    trainer, evaluator, data, val_data = tiny.trainer, tiny.evaluator, tiny.data, tiny.val_data
    before = handlers_of(trainer), handlers_of(evaluator)
    counts: dict[str, int] = {}

    class Counter(BaseHook):
        def before_train_iter(self, runner: Any) -> None:
            counts.update({event.name: len(h) for event, h in runner.trainer._event_handlers.items() if h})

    hooks = [Counter(name=f"counter {i}") for i in range(5)]
    attach_hooks(trainer, hooks, evaluators=evaluator, work_dir=tmp_path)
    assert (handlers_of(trainer), handlers_of(evaluator)) == before
    trainer.run(data, max_epochs=1)
    evaluator.run(val_data)
    assert (handlers_of(trainer), handlers_of(evaluator)) == before
    assert counts == {
        "STARTED": 1,
        "EPOCH_STARTED": 2,
        "DATALOADER_STOP_ITERATION": 1,
        "ITERATION_STARTED": 1,
        "ITERATION_COMPLETED": 1,
        "EPOCH_COMPLETED": 2,
        "TERMINATE_SINGLE_EPOCH": 1,
        "TERMINATE": 2,
        "COMPLETED": 2,
    }


def test_a_failed_attachment_removes_the_handlers_it_added(tmp_path: Path) -> None:
    class Broken(BaseHook):
        def attached(self) -> None:
            self.runner.trainer.add_event_handler(Events.STARTED, lambda: None)
            raise RuntimeError("cannot be attached")

    trainer = echo_trainer()
    with pytest.raises(RuntimeError, match="cannot be attached"):
        attach_hooks(trainer, [Broken()], work_dir=tmp_path)
    assert handlers_of(trainer) == {}
    assert "run" not in vars(trainer)


def test_handlers_are_called_at_their_places() -> None:
    trainer = echo_trainer()
    log: list[Any] = []
    handlers = Handlers(trainer)

    def note(name: str) -> Callable[[Engine], None]:
        return lambda engine: log.append((name, "mean" in engine.state.metrics))

    trainer.add_event_handler(Events.EPOCH_COMPLETED, note("script, before the metric"))
    Average().attach(trainer, "mean")
    trainer.add_event_handler(Events.EPOCH_COMPLETED, note("script, after the metric"))
    for order in (HandlerOrder.LAST, HandlerOrder.AFTER_METRICS, HandlerOrder.FIRST):
        handlers.add(Events.EPOCH_COMPLETED, note(order.name), order)
    trainer.run([1.0])
    assert log == [
        ("FIRST", False),
        ("script, before the metric", False),
        ("AFTER_METRICS", True),
        ("script, after the metric", True),
        ("LAST", True),
    ]


def test_adding_a_handler_during_its_event_repeats_no_other() -> None:
    trainer = echo_trainer()
    log: list[Any] = []
    handlers = Handlers(trainer)

    def add(engine: Engine) -> None:
        log.append(f"script {engine.state.iteration}")
        if engine.state.iteration == 1:
            handlers.add(Events.ITERATION_STARTED, lambda: log.append("ours"), HandlerOrder.FIRST)

    trainer.add_event_handler(Events.ITERATION_STARTED, add)
    trainer.run([1, 2])
    assert [entry for entry in log if entry != "ours"] == ["script 1", "script 2"]
    assert log[-2:] == ["ours", "script 2"]


def test_removing_ours_leaves_the_handlers_of_the_script() -> None:
    trainer = echo_trainer()
    trainer.add_event_handler(Events.STARTED, lambda: None)
    before = {event: list(entries) for event, entries in trainer._event_handlers.items()}
    handlers = Handlers(trainer)
    for event in (Events.STARTED, Events.EXCEPTION_RAISED):
        handlers.add(event, lambda *_: None, HandlerOrder.FIRST)
    handlers.remove_all()
    # Ignite swallows exceptions where it finds even an empty list.
    assert trainer._event_handlers == before
    handlers.remove_all()
    assert trainer._event_handlers == before


def test_only_handlers_added_while_tracking_are_removed() -> None:
    trainer = echo_trainer()
    on_detach: list[Callable[[], None]] = []
    trainer.add_event_handler(Events.STARTED, lambda: None)
    earlier = list(trainer._event_handlers[Events.STARTED])
    with tracking_new_handlers([trainer], on_detach):
        trainer.add_event_handler(Events.STARTED, lambda: None)
        trainer.add_event_handler(Events.COMPLETED, lambda: None)
    trainer.add_event_handler(Events.STARTED, lambda: None)
    later = trainer._event_handlers[Events.STARTED][-1]
    (detach,) = on_detach
    detach()
    assert handlers_of(trainer) == {Events.STARTED: [*earlier, later]}
