"""Our handlers on an engine: their places, and their removal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine, Events
from ignite.handlers import BasicTimeProfiler, HandlersTimeProfiler, Timer
from ignite.metrics import Average, Loss, RunningAverage

from ignite_hooks import BaseHook, attach_hooks
from ignite_hooks.engine.handlers import HandlerOrder, Handlers, tracking_new_handlers, unwrapped
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
        "STARTED": 2,
        "EPOCH_STARTED": 2,
        "DATALOADER_STOP_ITERATION": 1,
        "ITERATION_STARTED": 1,
        "ITERATION_COMPLETED": 1,
        "EPOCH_COMPLETED": 2,
        "TERMINATE_SINGLE_EPOCH": 1,
        "TERMINATE": 3,
        "COMPLETED": 3,
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

    def note(name: str) -> Callable[[], None]:
        return lambda: log.append((name, "mean" in trainer.state.metrics))

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


class Counting(BaseHook):
    """Counts the calls of each point."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def _count(self, point: str) -> None:
        self.counts[point] = self.counts.get(point, 0) + 1

    def before_train_iter(self) -> None:
        self._count("before_train_iter")

    def after_train_iter(self) -> None:
        self._count("after_train_iter")

    def after_train_epoch(self) -> None:
        self._count("after_train_epoch")

    def after_train(self) -> None:
        self._count("after_train")

    def after_val_iter(self) -> None:
        self._count("after_val_iter")

    def after_val_epoch(self) -> None:
        self._count("after_val_epoch")


def remove_one_of_its_own(engine: Engine) -> None:
    """Do as Ignite's FastaiLRFinder does: `remove_event_handler` builds the list of the event anew."""
    for event in (Events.ITERATION_STARTED, Events.ITERATION_COMPLETED, Events.EPOCH_COMPLETED, Events.COMPLETED):
        handle = engine.add_event_handler(event, print, "never printed")
        engine.add_event_handler(Events.STARTED, handle.remove)


@pytest.mark.parametrize(
    "disturb",
    [remove_one_of_its_own, lambda e: HandlersTimeProfiler().attach(e), lambda e: BasicTimeProfiler().attach(e)],
    ids=["a removed handler", "HandlersTimeProfiler", "BasicTimeProfiler"],
)
@pytest.mark.parametrize("ending", ["complete", "skip completed"])
def test_no_handler_of_ours_stays_or_acts_twice(disturb: Callable[[Engine], Any], ending: str, tmp_path: Path) -> None:
    tiny, hook = tiny_run(), Counting()
    disturb(tiny.trainer)
    disturb(tiny.evaluator)
    attach_hooks(tiny.trainer, [hook], evaluators=tiny.evaluator, work_dir=tmp_path)
    if ending == "skip completed":
        last = Events.ITERATION_COMPLETED(once=3)
        tiny.trainer.add_event_handler(last, lambda e: e.terminate(skip_completed=True))
    for _ in range(3):
        hook.counts.clear()
        tiny.trainer.run(tiny.data, max_epochs=1)
        tiny.trainer.state.max_epochs = None
        tiny.evaluator.run(tiny.val_data)
        assert hook.counts["before_train_iter"] == hook.counts["after_train_iter"] == 3
        assert hook.counts["after_train_epoch"] == hook.counts["after_val_epoch"] == 1
        assert hook.counts["after_val_iter"] == len(tiny.val_data)
        ours = [
            entry
            for engine in (tiny.trainer, tiny.evaluator)
            for entries in engine._event_handlers.values()
            for entry in entries
            if "ignite_hooks" in getattr(unwrapped(entry[0]), "__module__", "")
        ]
        assert ours == []


def test_what_a_handler_object_added_comes_off_after_a_profiler(tmp_path: Path) -> None:
    tiny = tiny_run()
    mean = RunningAverage(output_transform=lambda loss: loss)
    HandlersTimeProfiler().attach(tiny.trainer)
    profiler_alone = [entry[0] for entry in tiny.trainer._event_handlers[Events.STARTED]]
    timer = Timer()
    runner = attach_hooks(tiny.trainer, [timer], work_dir=tmp_path)
    del mean
    tiny.trainer.run(tiny.data, max_epochs=1)
    runner.detach()
    left = [h for entries in tiny.trainer._event_handlers.values() for h, *_ in entries]
    assert [h for h in left if getattr(unwrapped(h), "__self__", None) is timer] == []
    assert profiler_alone[0] in left


def test_handlers_added_at_the_start_of_a_run_fall_between_the_hooks(tmp_path: Path) -> None:
    log: list[str] = []

    class Around(BaseHook):
        def after_train_iter(self, metrics: Any) -> None:
            log.append(f"after_train_iter {'running' in metrics}")

        def after_train_epoch(self, metrics: Any) -> None:
            log.append(f"after_train_epoch {'mean' in metrics}")

        def after_epoch(self) -> None:
            log.append("after_epoch")

        def after_run(self) -> None:
            log.append("after_run")

    trainer = echo_trainer()

    @trainer.on(Events.STARTED)
    def begin() -> None:
        RunningAverage(output_transform=float).attach(trainer, "running")
        Average().attach(trainer, "mean")
        trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: log.append("script, from STARTED"))
        trainer.add_event_handler(Events.COMPLETED, lambda: log.append("script at the end"))

    @trainer.on(Events.ITERATION_COMPLETED(once=1))
    def later() -> None:
        trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: log.append("script, from an iteration"))

    attach_hooks(trainer, [Around()], work_dir=tmp_path)
    trainer.run([1.0])
    assert log == [
        "after_train_iter True",
        "after_train_epoch True",
        "script, from STARTED",
        "script, from an iteration",
        "after_epoch",
        "script at the end",
        "after_run",
    ]


def test_handlers_added_at_the_start_of_an_evaluation_run_before_its_end(tmp_path: Path) -> None:
    tiny, log = tiny_run(), []

    class Around(BaseHook):
        def after_val_epoch(self, metrics: Any) -> None:
            log.append(f"after_val_epoch {'val_size' in metrics}")

    def begin() -> None:
        Average(output_transform=lambda output: float(len(output[1]))).attach(tiny.evaluator, "size")
        tiny.evaluator.add_event_handler(Events.EPOCH_COMPLETED, lambda: log.append("script"))

    tiny.evaluator.add_event_handler(Events.STARTED, begin)
    attach_hooks(tiny.trainer, [Around()], evaluators=tiny.evaluator, work_dir=tmp_path)
    tiny.evaluator.run(tiny.val_data)
    assert log == ["script", "after_val_epoch True"]
