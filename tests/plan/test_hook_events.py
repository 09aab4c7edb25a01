"""The events of checkpoints on a trainer."""

from __future__ import annotations

from pathlib import Path

import torch
from ignite.engine import Engine, Events

from ignite_hooks import HookEvents, attach_hooks
from ignite_hooks.testing import tiny_run
from tests.tools import Log


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
