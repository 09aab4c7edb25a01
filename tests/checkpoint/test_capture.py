"""`capture.py`: what a checkpoint holds, wherever in a run it is made."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from ignite.engine import Events, create_supervised_evaluator
from ignite.metrics import Loss
from torch import nn

from ignite_hooks import BaseHook, HookError, HookEvents
from ignite_hooks.store import FolderStore
from tests.checkpoint.runs import CHECKPOINT, EMA, LENGTH, STOPPING, Remembers, content, names, same, script

pytestmark = pytest.mark.usefixtures("quick")


def compiled(model: nn.Module) -> Any:
    return torch.compile(model, backend="eager")


def averages_of(run: SimpleNamespace) -> dict[str, Any]:
    return {name: value.clone() for name, value in run.runner.hooks["EMAHook"].weights()["ema_state_dict"].items()}


def test_a_service_that_cannot_be_saved_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    strange = type("Strange", (Remembers,), {"state_dict": lambda self: {"lock": object()}})()
    script(tmp_path, [CHECKPOINT], strange=strange).run(3)
    told = [message for message in caplog.messages if "checkpoints do without" in message]
    assert len(told) == 1
    assert "checkpoints do without services.strange.lock: cannot be saved: object; a state holds numbers" in told[0]
    assert {"epoch_1.pth", "epoch_3.pth", "last.pth"} <= {*names(tmp_path)}


def test_a_checkpoint_holds_plain_types_and_the_specified_entries(tmp_path: Path) -> None:
    made = script(tmp_path)
    made.run(2)
    state = torch.load(tmp_path / "epoch_2.pth", weights_only=True)
    named = {"meta", "state_dict", "optimizer", "scheduler"}
    assert named | {"trainer", "data", "hooks", "services", "best", "metrics", "random"} == {*state}
    assert (state["meta"]["epoch"], state["meta"]["iter"]) == (2, 2 * LENGTH)
    assert state["meta"]["time"][:2] == "20"
    assert {"python", "numpy", "torch"} <= {*state["random"]}
    assert same(dict(made.model.state_dict()), state["state_dict"])


@pytest.mark.parametrize(
    "wrap", [nn.DataParallel, compiled, lambda model: compiled(nn.DataParallel(model))], ids=["DP", "compiled", "both"]
)
def test_names_of_weights_are_those_of_the_unwrapped_model(wrap: Any, tmp_path: Path) -> None:
    made = script(tmp_path)
    inner = nn.Linear(4, 2)
    made.runner.register_service("model", wrap(inner))
    made.runner.register_service("optimizer", None)
    path = made.runner.save_checkpoint("wrapped.pth")
    assert {*torch.load(path, weights_only=True)["state_dict"]} == {"weight", "bias"}
    with torch.no_grad():
        inner.weight.zero_()
    made.runner.load_checkpoint(path)
    assert inner.weight.any()


def test_a_checkpoint_does_not_grow_with_the_run(tmp_path: Path) -> None:
    script(tmp_path, [CHECKPOINT, STOPPING]).run(30)
    sizes = [(tmp_path / f"epoch_{epoch}.pth").stat().st_size for epoch in (5, 30)]
    # `Counter.seen` of this test grows, by a few bytes for each epoch; names and numbers vary in length.
    assert abs(sizes[1] - sizes[0]) < 500


def test_script_handlers_can_edit_checkpoints_and_last_event_name_stays(
    tmp_path: Path,
) -> None:
    made = script(tmp_path, [CHECKPOINT | {"async_save": False}, STOPPING])
    seen: list[Any] = []

    @made.trainer.on(HookEvents.BEFORE_SAVE_CHECKPOINT)
    def before() -> None:
        made.runner.checkpoint["mine"] = made.trainer.state.epoch
        seen.append(sorted(made.runner.checkpoint)[:2])

    @made.trainer.on(HookEvents.AFTER_SAVE_CHECKPOINT)
    def after() -> None:
        seen.append(made.runner.checkpoint["mine"])

    made.run(1)
    assert torch.load(tmp_path / "last.pth", weights_only=True)["mine"] == 1
    assert seen[:2] == [["best", "data"], 1]
    assert made.runner.checkpoint is None
    assert made.trainer.last_event_name == Events.COMPLETED


def test_hooks_edit_checkpoints_and_learn_their_paths(tmp_path: Path) -> None:
    class Config(BaseHook):
        paths: list[Path] = []
        loaded: list[tuple[Any, Path]] = []

        def before_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
            checkpoint["config"] = {"depth": 3}
            checkpoint["state_dict"] = {
                name.upper(): value for name, value in checkpoint["state_dict"].items() if "num" not in name
            }

        def after_save_checkpoint(self, checkpoint: Any, path: Path) -> None:
            assert path.exists()
            assert checkpoint["config"]
            self.paths.append(path)

        def after_load_checkpoint(self, checkpoint: Any, path: Path) -> None:
            self.loaded.append((checkpoint["config"], path))

    hook = Config()
    made = script(tmp_path, [{**CHECKPOINT, "save_best": False}, hook])
    made.run(2)
    assert [path.name for path in hook.paths] == ["epoch_1.pth", "epoch_2.pth", "last.pth"]
    state = torch.load(tmp_path / "last.pth", weights_only=True)
    assert state["config"] == {"depth": 3}
    assert "0.WEIGHT" in state["state_dict"]
    assert hook.loaded == []


@pytest.mark.parametrize("at", [1, 5, 6, 7])
def test_sigterm_in_an_epoch_leaves_last_but_no_epoch_file(at: int, tmp_path: Path) -> None:
    made = script(tmp_path, [{**CHECKPOINT, "save_best": False}])
    made.trainer.add_event_handler(Events.ITERATION_COMPLETED(once=at), lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(SystemExit) as caught:
        made.run(5)
    assert caught.value.code == 143
    assert names(tmp_path) == [f"epoch_{n + 1}.pth" for n in range(at // LENGTH)] + ["last.pth"]
    state = content(tmp_path / "last.pth")
    assert (state["meta"]["epoch"], state["meta"]["iter"]) == (at // LENGTH, at)


def test_saving_manually_after_a_run_releases_the_folder(tmp_path: Path) -> None:
    made = script(tmp_path)
    made.run(1)
    made.runner.save_checkpoint("mine.pth")
    FolderStore(tmp_path).open().close()
    assert content(tmp_path / "mine.pth")["meta"]["epoch"] == 1


def test_saving_manually_anywhere_notes_the_finished_epochs(tmp_path: Path) -> None:
    made = script(tmp_path)
    for event in (Events.STARTED, Events.EPOCH_STARTED, Events.ITERATION_COMPLETED, Events.EPOCH_COMPLETED):
        made.trainer.add_event_handler(
            event,
            lambda engine, name: made.runner.save_checkpoint(f"{name}-{engine.state.iteration}.pth"),
            event.name,
        )
    made.run(2)
    found = {
        name: content(tmp_path / f"{name}.pth")["meta"]["epoch"]
        for name in ("STARTED-0", "EPOCH_STARTED-0", "ITERATION_COMPLETED-1", "ITERATION_COMPLETED-3")
    }
    assert set(found.values()) == {0}
    for name in ("EPOCH_COMPLETED-4", "EPOCH_STARTED-4", "ITERATION_COMPLETED-5"):
        assert content(tmp_path / f"{name}.pth")["meta"]["epoch"] == 1, name


def test_an_error_while_editing_a_checkpoint_names_the_hook(tmp_path: Path) -> None:
    class Breaks(BaseHook):
        def before_save_checkpoint(self) -> None:
            raise KeyError("nothing")

    with pytest.raises(HookError, match=r"Breaks\.before_save_checkpoint failed at epoch 1, iteration 4: KeyError"):
        script(tmp_path, [{**CHECKPOINT, "save_best": False}, Breaks()]).run(1)


def test_an_epoch_of_unknown_length_finishes_at_its_end(tmp_path: Path) -> None:
    made = script(tmp_path, [{**CHECKPOINT, "save_best": False}])
    made.trainer.add_event_handler(Events.ITERATION_COMPLETED(once=2), lambda: made.runner.stop("enough"))
    made.trainer.run(iter(list(made.loader)), max_epochs=2)
    assert names(tmp_path) == ["last.pth"]
    assert content(tmp_path / "last.pth")["meta"]["epoch"] == 0


def test_a_checkpoint_holds_the_averages_of_its_iteration(tmp_path: Path) -> None:
    saving = {"type": "CheckpointHook", "by_epoch": False, "interval": 1, "max_keep_ckpts": -1, "save_best": False}
    made = script(tmp_path, [saving, EMA])
    seen: dict[int, dict[str, Any]] = {}
    made.trainer.add_event_handler(
        Events.GET_BATCH_STARTED, lambda: seen.setdefault(made.trainer.state.iteration, averages_of(made))
    )
    made.run(2)
    for iteration in (1, 2, 3, 5, 6, 7):
        assert same(content(tmp_path / f"iter_{iteration}.pth")["ema_state_dict"], seen[iteration]), iteration


@pytest.mark.parametrize("evaluate", ["ema", "raw"])
def test_best_file_restored_weights_and_reported_metric_agree(evaluate: str, tmp_path: Path) -> None:
    best = {"type": "CheckpointHook", "best_metric": "val_loss", "interval": 100}
    stopping = {"type": "EarlyStoppingHook", "monitor": "val_loss", "patience": 3}
    made = script(tmp_path, [best, stopping, EMA | {"evaluate": evaluate}])
    trainer, model = made.trainer, made.model

    @trainer.on(Events.EPOCH_STARTED(event_filter=lambda engine, epoch: epoch > 3))
    def spoil() -> None:
        with torch.no_grad():
            for weight in model.parameters():
                weight.mul_(-2.0)

    made.run(20)
    record = made.runner.best["val_loss"]
    assert record.epoch <= 3
    assert record.epoch + 3 <= trainer.state.epoch < 20
    saved = content(tmp_path / record.file)
    assert same(dict(model.state_dict()), saved["state_dict"])
    assert same(averages_of(made), saved["ema_state_dict"])
    model.load_state_dict(saved["ema_state_dict" if evaluate == "ema" else "state_dict"])
    loss = create_supervised_evaluator(model, {"loss": Loss(nn.CrossEntropyLoss())}).run(made.loader).metrics["loss"]
    assert loss == pytest.approx(record.score, rel=1e-5)


def test_both_ways_of_evaluating_are_published(tmp_path: Path) -> None:
    made = script(tmp_path, [EMA | {"evaluate": "both"}])
    made.run(2)
    metrics = made.runner.metrics
    assert {"val_loss", "val_raw_loss", "val_accuracy", "val_raw_accuracy"} <= {*metrics}
    assert metrics["val_loss"] != metrics["val_raw_loss"]
    raw = create_supervised_evaluator(made.model, {"loss": Loss(nn.CrossEntropyLoss())}).run(made.loader)
    assert raw.metrics["loss"] == pytest.approx(metrics["val_raw_loss"], rel=1e-5)
    assert made.runner.evaluation_options.extra == {}
