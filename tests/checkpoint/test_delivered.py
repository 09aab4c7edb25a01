"""`delivered.py`: the end of a run is to restore, to test what is delivered, and to save it."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Events, create_supervised_evaluator
from ignite.metrics import Loss

from ignite_hooks import BaseHook, CheckpointError, ConfigError, attach_hooks
from ignite_hooks.checkpoint.delivered import weights_to_hand_on
from ignite_hooks.testing.tiny import tiny_run

pytestmark = pytest.mark.usefixtures("quick")

STOPPING = {"type": "EarlyStoppingHook", "monitor": "val_score", "mode": "max", "patience": 2}
SAVING = {"type": "CheckpointHook", "save_best": False}
TEST = {"type": "EvalHook", "name": "test", "interval": 100}
SCORES = (0.1, 0.9, 0.5, 0.4, 0.3, 0.2)
"""The second epoch is the best; with a patience of 2 the run ends after the fourth."""


class Run:
    """A training whose n-th epoch has the n-th score, and whose test measures the loss of the model."""

    def __init__(self, folder: Path, *hooks: Any, scores: tuple[float, ...] = SCORES, **options: Any) -> None:
        tiny = self.tiny = tiny_run()
        self.model, self.trainer = tiny.model, tiny.trainer
        self.losses: list[float] = []
        self.trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: self.losses.append(self.loss()))
        validation = {
            "type": "EvalHook",
            "save_best": False,
            "test_fn": lambda *_: {"score": scores[self.trainer.state.epoch - 1]},
        }
        evaluators = {"test": create_supervised_evaluator(self.model, {"loss": Loss(tiny.criterion)})}
        services = {**tiny.services, "val_loader": [0], "test_loader": tiny.val_data}
        self.runner = attach_hooks(
            self.trainer, [validation, *hooks], evaluators=evaluators, work_dir=folder, **services, **options
        )

    def loss(self, weights: Mapping[str, Any] | None = None) -> float:
        """Return the loss of the test data, measured without hooks or engines."""
        model = self.model
        if weights is not None:
            model = torch.nn.Linear(4, 3)
            model.load_state_dict(weights)
        with torch.no_grad():
            found = [float(self.tiny.criterion(model(x), y)) for x, y in self.tiny.val_data]
        return sum(found) / len(found)

    def run(self, epochs: int = len(SCORES)) -> Run:
        self.trainer.run(self.tiny.data, max_epochs=epochs)
        return self

    @property
    def tested(self) -> float:
        return float(self.runner.metrics["test_loss"])


def file(path: Path) -> dict[str, Any]:
    state = torch.load(path, weights_only=True)
    assert isinstance(state, dict)
    return state


# -- the order at the end ----------------------------------------------------------------------------------------


def test_the_test_is_of_the_weights_that_are_delivered(tmp_path: Path) -> None:
    run = Run(tmp_path, STOPPING, SAVING, TEST).run()
    best, last = run.losses[1], run.losses[-1]
    assert len(run.losses) == 4
    assert abs(best - last) > 1e-3
    assert run.tested == pytest.approx(best) == run.loss()
    assert run.runner.metrics["val_score"] == 0.9
    assert run.runner.metrics.step("val_score") == 6
    path = tmp_path / "best_val_score_epoch_2.pth"
    assert run.loss(file(path)["state_dict"]) == pytest.approx(best)
    assert run.loss(file(tmp_path / "last.pth")["state_dict"]) == pytest.approx(last)
    assert run.runner.best["val_score"].file == path.name


@pytest.mark.parametrize("reverse", [False, True])
def test_the_plan_shows_the_order_at_the_end(reverse: bool, tmp_path: Path) -> None:
    hooks = [STOPPING, SAVING, TEST]
    run = Run(tmp_path, *(hooks[::-1] if reverse else hooks))
    order = [(slot.hook, slot.method) for slot in run.runner.plan.at("after_train")]
    ends = ["EvalHook", "CheckpointHook", "EarlyStoppingHook", "test", "CheckpointHook"]
    assert [hook for hook, _ in order] == ends
    assert order[-1][1] == "save_delivered"


def test_a_test_that_is_due_in_the_last_epoch_waits_for_the_end(tmp_path: Path) -> None:
    tested: list[int] = []

    class Counts(BaseHook):
        def after_test_epoch(self, runner: Any) -> None:
            tested.append(runner.global_step)

    run = Run(tmp_path, STOPPING, SAVING, {**TEST, "interval": 2}, Counts()).run()
    assert tested == [6, 12]
    assert run.tested == pytest.approx(run.losses[1])


def test_a_run_whose_last_weights_are_the_best_writes_no_other_file(tmp_path: Path) -> None:
    run = Run(tmp_path, STOPPING, SAVING, TEST, scores=(0.1, 0.2, 0.3)).run(3)
    assert run.runner.state.delivered is None
    assert run.tested == pytest.approx(run.losses[-1])
    assert sorted(path.name for path in tmp_path.glob("*.pth")) == [
        "epoch_1.pth",
        "epoch_2.pth",
        "epoch_3.pth",
        "last.pth",
    ]


def test_a_signal_neither_restores_nor_tests(tmp_path: Path) -> None:
    class Signals(BaseHook):
        def after_val_epoch(self, epoch: int) -> None:
            if epoch == 3:
                os.kill(os.getpid(), signal.SIGTERM)

    run = Run(tmp_path, STOPPING, SAVING, TEST, Signals())
    with pytest.raises(SystemExit):
        run.run()
    assert "test_loss" not in run.runner.metrics
    assert run.runner.state.delivered is None
    assert run.loss() == run.loss(file(tmp_path / "last.pth")["state_dict"])


def test_a_test_of_the_script_before_the_weights_are_restored_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = Run(tmp_path, STOPPING, SAVING)
    run.trainer.add_event_handler(Events.COMPLETED, lambda: run.runner.evaluators["test"].run(run.tiny.val_data))
    with caplog.at_level(logging.WARNING):
        run.run()
    assert "the test before this was of the last weights" in caplog.text
    assert run.runner.test()["loss"] == pytest.approx(run.losses[1])


def test_a_mean_of_weights_is_tested_and_has_a_file(tmp_path: Path) -> None:
    run = Run(tmp_path, {"type": "SWAHook", "start_epoch": 1}, SAVING, TEST).run(4)
    weights = file(tmp_path / "swa_epoch_4.pth")["state_dict"]
    assert run.tested == pytest.approx(run.loss()) == pytest.approx(run.loss(weights))
    assert run.tested != pytest.approx(run.losses[-1])


# -- the file ----------------------------------------------------------------------------------------------------


def test_the_delivered_file_misleads_no_resume(tmp_path: Path) -> None:
    Run(tmp_path, STOPPING, SAVING, TEST).run()
    (tmp_path / "manifest.json").unlink()
    again = Run(tmp_path, {**STOPPING, "patience": 4}, SAVING, TEST, resume="auto").run()
    assert again.runner.resumed_from == tmp_path / "last.pth"
    whole = Run(tmp_path / "whole", {**STOPPING, "patience": 4}, SAVING, TEST).run()
    ends = [file(one / "last.pth")["state_dict"] for one in (tmp_path, tmp_path / "whole")]
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])
    assert again.tested == whole.tested
    with pytest.raises(Exception, match=r"holds weights alone.*resume from last.pth"):
        Run(tmp_path, STOPPING, SAVING, resume=tmp_path / "best_val_score_epoch_2.pth").run()


def test_a_later_end_replaces_the_delivered_file(tmp_path: Path) -> None:
    Run(tmp_path, STOPPING, SAVING).run()
    later = (0.0, 0.0, 0.0, 0.0, 0.95, 0.1, 0.1, 0.1)
    run = Run(tmp_path, {**STOPPING, "patience": 3}, SAVING, resume="auto", scores=later).run(8)
    assert [path.name for path in tmp_path.glob("best_*")] == ["best_val_score_epoch_5.pth"]
    assert run.runner.state.delivered is not None
    assert run.runner.state.delivered.epoch == 5


@pytest.mark.parametrize("keep_best", [1, 3])
def test_a_best_checkpoint_of_the_same_weights_is_the_delivered_file(keep_best: int, tmp_path: Path) -> None:
    saving = {**SAVING, "save_best": "val_score", "keep_best": keep_best, "rule": "max"}
    run = Run(tmp_path, STOPPING, saving).run()
    assert "optimizer" in file(tmp_path / "best_val_score_epoch_2.pth")
    delivered = run.runner.state.delivered
    assert delivered is not None
    assert delivered.file == "best_val_score_epoch_2.pth"


def test_the_delivered_file_is_named_where_people_look(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    hooks = [STOPPING, {**SAVING, "out_dir": "saved"}, TEST, "ReportHook", "LoggerHook"]
    with caplog.at_level(logging.INFO):
        run = Run(tmp_path, *hooks).run()
    assert (
        "delivered: the weights of epoch 2, the best val_score, 0.9000: saved/best_val_score_epoch_2.pth" in caplog.text
    )
    page = (tmp_path / "report.html").read_text()
    assert "Best model, delivered" in page
    assert 'href="./saved/best_val_score_epoch_2.pth"' in page
    from ignite_hooks.hooks.trackers.tracker_hook import summary_of

    assert "saved/best_val_score_epoch_2.pth" in summary_of(run.runner)


def test_without_a_checkpoint_hook_nothing_is_saved(tmp_path: Path) -> None:
    run = Run(tmp_path, STOPPING, TEST).run()
    assert not list(tmp_path.glob("**/*.pth"))
    assert run.tested == pytest.approx(run.losses[1])


# -- which weights are tested ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("checkpoint", "epoch"), [("delivered", 2), ("best", 2), ("last", 4), ("epoch_3.pth", 3), ("epoch_1.pth", 1)]
)
def test_a_test_is_of_the_weights_that_are_asked_for(checkpoint: str, epoch: int, tmp_path: Path) -> None:
    Run(tmp_path / "before", SAVING).run(3)
    run = Run(tmp_path, STOPPING, SAVING, TEST).run()
    here = {name: value.clone() for name, value in run.model.state_dict().items()}
    assert run.runner.test(checkpoint)["loss"] == pytest.approx(run.losses[epoch - 1])
    assert all(torch.equal(here[name], value) for name, value in run.model.state_dict().items())
    wanted = str(tmp_path / "before" / checkpoint) if checkpoint.endswith(".pth") else checkpoint
    again = Run(tmp_path / "again", STOPPING, SAVING, {**TEST, "checkpoint": wanted}).run()
    assert again.tested == pytest.approx(run.losses[epoch - 1])


EMA = {"type": "EMAHook", "momentum": 0.8, "warm_up": 0}


@pytest.mark.parametrize(("usual", "weights", "averaged"), [
    ("ema", None, True), ("ema", "raw", False), ("raw", None, False), ("raw", "ema", True), ("both", "ema", True),
])  # fmt: skip
@pytest.mark.parametrize("checkpoint", ["delivered", "last"])
def test_raw_weights_or_averages_are_tested(
    usual: str, weights: Any, averaged: bool, checkpoint: str, tmp_path: Path
) -> None:
    run = Run(tmp_path, STOPPING, SAVING, {**EMA, "evaluate": usual}, {**TEST, "weights": weights}).run()
    key = "ema_state_dict" if averaged else "state_dict"
    names = {"delivered": "best_val_score_epoch_2.pth", "last": "last.pth"}
    expected = run.loss(file(tmp_path / names[checkpoint])[key])
    assert run.runner.test(checkpoint, weights)["loss"] == pytest.approx(expected)
    if checkpoint == "delivered":
        assert run.tested == pytest.approx(expected)
    # Averages and raw weights are as they were.
    assert run.loss() == pytest.approx(run.loss(file(tmp_path / names["delivered"])["state_dict"]))


FURTHER = {**EMA, "also": {"slow": 0.95, "slower": 0.99}}


@pytest.mark.parametrize("checkpoint", ["delivered", "last", "best"])
def test_further_averages_are_tested_and_handed_on_by_their_names(checkpoint: str, tmp_path: Path) -> None:
    run = Run(tmp_path, STOPPING, SAVING, FURTHER, {**TEST, "weights": "slow"}).run()
    path = tmp_path / ("last.pth" if checkpoint == "last" else "best_val_score_epoch_2.pth")
    state = file(path)
    for name in ("slow", "slower"):
        expected = run.loss(state["ema_state_dicts"][name])
        assert expected != pytest.approx(run.loss(state["ema_state_dict"]))
        assert run.runner.test(checkpoint, name)["loss"] == pytest.approx(expected)
        with weights_to_hand_on(run.runner, checkpoint, name) as chosen:
            assert run.loss() == pytest.approx(expected)
            assert str(chosen).endswith(f"averages {name!r}")
    assert run.loss() == pytest.approx(run.loss(file(tmp_path / "best_val_score_epoch_2.pth")["state_dict"]))
    with pytest.raises(CheckpointError, match="no weights 'slwo', did you mean 'slow'"):
        run.runner.test(checkpoint, "slwo")


def test_the_test_of_a_run_is_of_the_averages_that_are_named(tmp_path: Path) -> None:
    run = Run(tmp_path, SAVING, FURTHER, {**TEST, "weights": "slow"}).run(2)
    assert run.tested == pytest.approx(run.loss(file(tmp_path / "last.pth")["ema_state_dicts"]["slow"]))


@pytest.mark.parametrize(
    ("hooks", "setting", "words"),
    [
        ([{**TEST, "weights": "slow"}, SAVING], "weights", "no weights 'slow': there are raw, ema"),
        ([{**TEST, "weights": "slwo"}, SAVING, FURTHER], "weights", "no weights 'slwo', did you mean 'slow'"),
        ([{**TEST, "weights": "ema"}, SAVING], "weights", "no averages in this run: add an EMAHook"),
        ([{**TEST, "checkpoint": "best"}, SAVING], "checkpoint", "no hook keeps the best weights"),
        ([{**TEST, "checkpoint": "last"}, STOPPING], "checkpoint", "no hook saves the last weights"),
        ([{**TEST, "checkpoint": "epoch_7.pth"}, SAVING], "checkpoint", "cannot load epoch_7.pth"),
        ([{**TEST, "checkpoint": "lst"}, SAVING], "checkpoint", "did you mean 'last'"),
    ],
)
def test_weights_that_no_run_has_are_an_error_before_training(
    hooks: list[Any], setting: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=rf"{setting}: .*{words}"):
        Run(tmp_path, *hooks)


def test_a_file_without_averages_is_no_file_of_averages(tmp_path: Path) -> None:
    Run(tmp_path / "before", SAVING).run(1)
    path = str(tmp_path / "before/epoch_1.pth")
    with pytest.raises(ConfigError, match="has no ema_state_dict"):
        Run(tmp_path / "now", EMA, {**TEST, "checkpoint": path, "weights": "ema"})
    with pytest.raises(ConfigError, match="has no ema_state_dicts of 'slow'"):
        Run(tmp_path / "now", FURTHER, {**TEST, "checkpoint": path, "weights": "slow"})
    run = Run(tmp_path / "now", EMA, SAVING, TEST).run(2)
    with pytest.raises(CheckpointError, match="no averages of them"):
        run.runner.test(path, "ema")
    assert run.runner.test(path)["loss"] == pytest.approx(run.losses[0])


def test_nothing_is_ranked_by_other_weights(tmp_path: Path) -> None:
    again = {"type": "EvalHook", "name": "hard", "checkpoint": "best", "metric": "score", "rule": "max",
             "dataloader": [0], "test_fn": lambda *_: {"score": 5.0}}  # fmt: skip
    saving = {**SAVING, "save_best": ["val_score", "hard_score"], "rule": "max"}
    run = Run(tmp_path, STOPPING, saving, again).run()
    assert dict(run.runner.best).keys() == {"val_score"}
    assert run.runner.metrics["hard_score"] == 5.0
