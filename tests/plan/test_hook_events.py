"""The events of checkpoints on a trainer."""

from __future__ import annotations

from pathlib import Path

import torch
from ignite.engine import Engine, EventEnum, Events

from ignite_hooks import HookEvents, attach_hooks
from ignite_hooks.plan.points import CHECKPOINT_POINTS
from ignite_hooks.testing import tiny_run
from tests.tools import Log, echo_trainer


def test_the_events_of_checkpoints_work_in_a_plain_script(tmp_path: Path) -> None:
    tiny = tiny_run()
    trainer, data, model = tiny.trainer, tiny.data, tiny.model
    runner = attach_hooks(trainer, ["CheckpointHook"], work_dir=tmp_path, model=model)
    seen: Log = []

    @trainer.on(HookEvents.BEFORE_SAVE_CHECKPOINT)
    def add(engine: Engine) -> None:
        assert runner.checkpoint is not None
        runner.checkpoint["mine"] = engine.state.epoch
        seen.append(("before", engine.last_event_name))

    trainer.add_event_handler(HookEvents.AFTER_SAVE_CHECKPOINT, lambda: seen.append(("after",)))
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda engine: seen.append((engine.last_event_name.name,)))
    trainer.run(data, max_epochs=1)
    assert [step[0] for step in seen] == ["EPOCH_COMPLETED", *["before", "after"] * 2]
    assert torch.load(tmp_path / "epoch_1.pth", weights_only=True)["mine"] == 1
    assert all(event.name.startswith("HOOK_") for event in HookEvents)
    assert not set(HookEvents) & set(Events)


def test_loading_a_checkpoint_is_an_event_with_its_path(tmp_path: Path) -> None:
    tiny = tiny_run()
    attach_hooks(tiny.trainer, ["CheckpointHook"], work_dir=tmp_path, model=tiny.model)
    tiny.trainer.run(tiny.data, max_epochs=1)
    again = tiny_run()
    runner = attach_hooks(again.trainer, ["CheckpointHook"], work_dir=tmp_path, model=again.model, resume="auto")
    seen: Log = []
    again.trainer.add_event_handler(
        HookEvents.AFTER_LOAD_CHECKPOINT, lambda engine: seen.append((engine.state.epoch, runner.resumed_from))
    )
    again.trainer.run(again.data, max_epochs=2)
    assert [epoch for epoch, _ in seen] == [1]


def test_there_is_an_event_for_each_checkpoint_point() -> None:
    assert {event.value for event in HookEvents} == {f"hook_{point}" for point in CHECKPOINT_POINTS}


def test_events_of_others_with_the_same_name_are_different() -> None:
    class Theirs(EventEnum):
        BEFORE_SAVE_CHECKPOINT = "before_save_checkpoint"

    trainer = echo_trainer()
    attach_hooks(trainer, [])
    trainer.register_events(*Theirs)
    seen: Log = []
    trainer.add_event_handler(HookEvents.BEFORE_SAVE_CHECKPOINT, lambda: seen.append(("ours",)))
    trainer.add_event_handler(Theirs.BEFORE_SAVE_CHECKPOINT, lambda: seen.append(("theirs",)))
    trainer.fire_event(Theirs.BEFORE_SAVE_CHECKPOINT)
    assert seen == [("theirs",)]
