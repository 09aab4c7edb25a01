"""`restore.py`: what does not fit is refused or reported; the rest comes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Events
from torch import nn

from ignite_hooks import BaseHook, CheckpointError, HookEvents, attach_hooks
from tests.checkpoint.runs import CHECKPOINT, EMA, LENGTH, STOPPING, Remembers, content, script

pytestmark = pytest.mark.usefixtures("quick")


def test_a_shape_mismatch_names_file_and_weight(tmp_path: Path) -> None:
    script(tmp_path).run(1)
    with pytest.raises(CheckpointError) as caught:
        script(tmp_path, width=9, resume="auto").run(2)
    assert f"{tmp_path / 'last.pth'} does not fit the model of this run" in str(caught.value)
    assert "size mismatch for 0.weight" in str(caught.value)


def test_an_optimizer_mismatch_names_the_optimizer(tmp_path: Path) -> None:
    script(tmp_path).run(1)
    other = script(tmp_path, resume="auto")
    other.optimizer.add_param_group({"params": [torch.zeros(1, requires_grad=True)]})
    with pytest.raises(CheckpointError, match=r"last\.pth does not fit the optimizer of this run: .*parameter group"):
        other.run(2)


def test_a_foreign_file_is_refused_with_its_content(tmp_path: Path) -> None:
    tmp_path.mkdir(exist_ok=True)
    torch.save({"model": {}, "epoch": 3}, tmp_path / "mine.pth")
    with pytest.raises(CheckpointError, match=r"mine\.pth has no 'state_dict' for the model: it holds model, epoch"):
        script(tmp_path, resume="mine.pth").run(1)


def test_weights_without_a_model_are_an_error(tmp_path: Path) -> None:
    script(tmp_path).run(1)
    from ignite.engine import Engine

    trainer = Engine(lambda engine, batch: None)
    attach_hooks(trainer, [], work_dir=tmp_path, resume="auto")
    with pytest.raises(CheckpointError, match=r"a model and this run has none: pass model=\.\.\. to attach_hooks"):
        trainer.run([1])


@pytest.mark.parametrize(
    ("saved", "resumed", "message"),
    [
        ({}, {"scheduler": None}, "holds a scheduler and this run has none: it is left out"),
        ({"scheduler": None}, {}, "holds no scheduler: the one of this run stays as it is"),
    ],
)
def test_objects_missing_in_file_or_run_are_reported(
    saved: dict[str, Any], resumed: dict[str, Any], message: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    script(tmp_path, **saved).run(1)
    assert "holds" not in caplog.text
    script(tmp_path, resume="auto", **resumed).run(2)
    assert message in caplog.text


def test_removed_hooks_and_a_changed_epoch_length_are_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    script(tmp_path).run(2)
    resumed = script(tmp_path, [CHECKPOINT], resume="auto")
    resumed.trainer.run(resumed.loader, max_epochs=3, epoch_length=LENGTH - 1)
    assert "holds the progress of hooks this run does not have: EarlyStoppingHook" in caplog.text
    assert f"an epoch had 4 iterations in {tmp_path / 'last.pth'} and has 3 now" in caplog.text


def test_changed_settings_are_reported_without_the_values_of_texts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    script(tmp_path, [CHECKPOINT, EMA]).run(2)
    changed = [CHECKPOINT | {"max_keep_ckpts": 3, "filename_tmpl": "secret_{}.pth"}, EMA | {"momentum": 0.99}]
    script(tmp_path, changed, resume="auto").run(3)
    told = [message for message in caplog.messages if message.startswith("settings differ")]
    assert told == [
        "settings differ from those of last.pth: CheckpointHook.filename_tmpl, CheckpointHook.max_keep_ckpts -1 -> 3, "
        "EMAHook.momentum 0.9 -> 0.99"
    ]
    assert b"secret" not in (tmp_path / "last.pth").read_bytes()
    caplog.clear()
    script(tmp_path, changed, resume="auto").run(4)
    assert "settings differ" not in caplog.text


def test_services_with_state_are_restored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, again, frozen = Remembers(), Remembers(), nn.Linear(1, 1).requires_grad_(False)
    made = script(tmp_path, [CHECKPOINT], scaler=first, teacher=frozen, student=nn.Linear(1, 1))
    made.trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda: setattr(first, "count", first.count + 1))
    made.run(1)
    assert {*content(tmp_path / "last.pth")["services"]} == {"scaler", "student"}
    script(tmp_path, [CHECKPOINT], resume="auto", scaler=again, teacher=frozen).run(2)
    assert again.count == LENGTH
    assert "holds the state of 'student', which was not given to this run" in caplog.text


def test_after_load_checkpoint_gets_the_checkpoint_and_its_path(tmp_path: Path) -> None:
    class Reader(BaseHook):
        def after_load_checkpoint(self, runner: Any, checkpoint: Any, path: Path) -> None:
            self.seen = (checkpoint["meta"]["epoch"], path, runner.checkpoint is checkpoint)

    script(tmp_path).run(2)
    reader, fired = Reader(), []
    resumed = script(tmp_path, [CHECKPOINT, STOPPING, reader], resume="auto")
    resumed.trainer.add_event_handler(HookEvents.AFTER_LOAD_CHECKPOINT, lambda: fired.append(1))
    resumed.run(2)
    assert reader.seen == (2, tmp_path / "last.pth", True)
    assert fired == [1]
