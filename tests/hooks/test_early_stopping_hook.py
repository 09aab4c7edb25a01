from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine, Events, create_supervised_trainer
from torch import nn

from ignite_hooks import ConfigError, HookError, attach_hooks
from ignite_hooks.hooks.early_stopping_hook import EarlyStoppingHook

NAN, INF = math.nan, math.inf
X = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
BATCHES = [(X[:4], (X[:4].sum(1) > 0).long()), (X[4:], (X[4:].sum(1) > 0).long())]
"""Two iterations an epoch."""


pytestmark = pytest.mark.usefixtures("quick")


class Scored:
    """A training whose n-th epoch has the n-th score, and which keeps the weights of every epoch."""

    def __init__(
        self, folder: Path, scores: Sequence[float], *hooks: Any, metric: str = "accuracy", **settings: Any
    ) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5, momentum=0.9)
        self.trainer = create_supervised_trainer(self.model, optimizer, nn.CrossEntropyLoss())
        self.weights: list[dict[str, torch.Tensor]] = []
        self.scores = scores
        self.options = {name: settings.pop(name) for name in ("resume", "model") if name in settings}
        stopping = {"type": "EarlyStoppingHook", "monitor": f"val_{metric}", **settings}
        evaluation = {"type": "EvalHook", "save_best": False, "test_fn": lambda *_: {metric: self.score()}}
        services = {"optimizer": optimizer, "model": self.model, "val_loader": [0], **self.options}
        self.runner = attach_hooks(self.trainer, [*hooks, stopping, evaluation], work_dir=folder, **services)
        self.hook: EarlyStoppingHook = self.runner.hooks["EarlyStoppingHook"]

    def score(self) -> float:
        copies = {name: value.clone() for name, value in self.model.state_dict().items()}
        self.weights = [*self.weights, copies]
        return self.scores[self.trainer.state.epoch - 1]

    def run(self, epochs: int | None = None) -> int:
        """Run and return the number of epochs."""
        return int(self.trainer.run(BATCHES, max_epochs=epochs or len(self.scores)).epoch)


def equal(one: Any, other: Any) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


# -- when it stops -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "scores", "epochs", "reason"),
    [
        (
            {"patience": 3, "min_delta": 1},
            [90, 91, 92, 88, 89, 90, 99],
            6,
            "val_accuracy has not improved for 3 evaluations, best 92 in epoch 3",
        ),
        ({"patience": 3}, [90, 91, 92, 88, 89, 90, 99], 6, "for 3 evaluations, best 92 in epoch 3"),
        ({"patience": 1}, [1, 2, 2, 9], 3, "has not improved for 1 evaluation, best 2 in epoch 2"),
        ({"patience": 2}, [1, 0, 2, 0, 3, 0, 4], 7, None),
        ({"patience": 2}, [0.0, -1, -2, 9], 3, "best 0 in epoch 1"),
        ({"mode": "min", "patience": 2}, [3, 2, 2, 2, 1], 4, "best 2 in epoch 2"),
        ({"mode": "less", "patience": 2}, [3, 2, 2, 2, 1], 4, "best 2 in epoch 2"),
        ({"mode": "max", "patience": 2}, [1, 2, 2, 2, 3], 4, "best 2 in epoch 2"),
        ({"mode": "greater", "patience": 2}, [1, 2, 2, 2, 3], 4, "best 2 in epoch 2"),
        # Small steps that add up to more than min_delta count as an improvement.
        ({"patience": 2, "min_delta": 1}, [1, 1.6, 2.2, 2.8, 3.4], 5, None),
        ({"patience": 2, "min_delta": 0.1}, [0.5, 0.6, 0.7, 0.7, 0.7], 5, "for 2 evaluations"),
        ({"patience": 2, "min_delta": 9}, [1, 2, 3, 99], 3, "for 2 evaluations, best 3 in epoch 3"),
        # A baseline must be beaten.
        ({"patience": 3, "baseline": 5}, [1, 2, 3, 9], 3, "for 3 evaluations, best 3 in epoch 3"),
        ({"patience": 3, "baseline": 5}, [1, 2, 6, 7, 8], 5, None),
        ({"patience": 3, "baseline": 5}, [5, 5, 5, 9], 3, "best 5 in epoch 1"),
        ({"patience": 2, "baseline": 5, "mode": "min"}, [9, 4, 3, 2], 4, None),
        ({"patience": 2, "baseline": 5, "mode": "min"}, [9, 8, 4], 2, "best 8 in epoch 2"),
        # Scores that are not finite.
        ({}, [1, NAN, 2], 2, "val_accuracy is nan"),
        ({}, [NAN, 2], 1, "val_accuracy is nan"),
        ({}, [1, INF, 2], 2, "val_accuracy is inf"),
        ({"mode": "min"}, [1, -INF, 2], 2, "val_accuracy is -inf"),
        ({"check_finite": False, "patience": 2}, [1, NAN, 2, NAN, INF, 3], 5, "for 2 evaluations, best 2 in epoch 3"),
        ({"check_finite": False, "patience": 2}, [NAN, NAN, 1], 2, "val_accuracy has not improved for 2 evaluations"),
        ({"check_finite": False, "stopping_threshold": 9}, [1, INF, 2], 3, None),
        ({"check_finite": False, "divergence_threshold": 9, "mode": "min"}, [1, NAN, INF, 2], 3, "inf has diverged"),
        # Thresholds follow the mode.
        ({"stopping_threshold": 5}, [1, 4.9, 5, 6], 3, "val_accuracy 5 has reached 5"),
        ({"stopping_threshold": 5, "mode": "min"}, [9, 5.1, 5, 4], 3, "val_accuracy 5 has reached 5"),
        ({"stopping_threshold": 0.0}, [-1, 0, 1], 2, "val_accuracy 0 has reached 0"),
        ({"divergence_threshold": 5}, [9, 6, 5, 9], 3, "val_accuracy 5 has diverged beyond 5"),
        ({"divergence_threshold": 5, "mode": "min"}, [1, 4, 5, 1], 3, "val_accuracy 5 has diverged beyond 5"),
        ({"divergence_threshold": 0.0, "mode": "min"}, [-1, 0, 1], 2, "has diverged beyond 0"),
        ({}, [1, 2, 3], 3, None),
    ],
)
def test_it_stops_when_and_why_it_should(
    settings: dict[str, Any],
    scores: list[float],
    epochs: int,
    reason: str | None,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    run = Scored(tmp_path, scores, **settings)
    assert run.run() == epochs
    if reason is None:
        assert run.runner.stop_reason is None
        assert run.hook.stopped_epoch == 0
    else:
        assert reason in run.runner.stop_reason
        assert run.hook.stopped_epoch == epochs
        done = f"{epochs} epoch{'s' * (epochs > 1)}, {epochs * 2} iterations"
        assert f"run stopped after {done}; {run.runner.stop_reason}" in caplog.text


@pytest.mark.parametrize(("metric", "epochs"), [("loss", 6), ("my_error", 6), ("accuracy", 3), ("mAP", 3)])
def test_auto_mode_follows_the_name_of_the_metric(metric: str, epochs: int, tmp_path: Path) -> None:
    assert Scored(tmp_path, [6, 5, 4, 3, 2, 1], metric=metric, patience=2).run() == epochs


def test_the_state_holds_score_epoch_and_counts(tmp_path: Path) -> None:
    run = Scored(tmp_path, [90, 91, 92, 88, 89, 90], patience=3, min_delta=1)
    run.run()
    hook = run.hook
    assert (hook.best_score, hook.best_epoch, hook.wait_count, hook.stopped_epoch) == (92, 3, 3, 6)
    saved = hook.state_dict()
    assert {"best_score": 92, "best_epoch": 3, "wait_count": 3, "stopped_epoch": 6}.items() <= saved.items()
    assert run.runner.best["val_accuracy"].score == 92


def test_several_evaluators_and_repeated_validations_count_once(tmp_path: Path) -> None:
    run = Scored(tmp_path, [3, 2, 1, 0], patience=3)
    hard = Engine(lambda engine, batch: engine.state.metrics.update(accuracy=0.0))
    run.runner.installation.add_evaluator("hard", hard)
    run.trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: hard.run([0]))
    run.trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: run.runner.validate())
    assert run.run() == 4
    assert run.hook.wait_count == 3


def test_a_value_of_an_earlier_step_is_not_judged(tmp_path: Path) -> None:
    run = Scored(tmp_path, [3] * 6, patience=3)
    run.runner.remove_hook("EvalHook")
    hard = Engine(lambda engine, batch: engine.state.metrics.update(accuracy=0.0))
    run.runner.installation.add_evaluator("hard", hard)
    run.trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: hard.run([0]))
    run.trainer.add_event_handler(Events.EPOCH_COMPLETED(once=2), lambda: run.runner.evaluators["val"].run([0]))
    run.run()
    assert (run.hook.best_epoch, run.hook.wait_count) == (2, 0)


def test_a_second_run_resets_the_count(tmp_path: Path) -> None:
    run = Scored(tmp_path, [3, 2, 1], patience=2)
    assert run.run(2) == 2
    run.scores = [1, 2]
    assert run.run(2) == 2
    assert (run.hook.best_score, run.hook.wait_count) == (2, 0)


def test_evaluations_by_iteration_can_stop_within_an_epoch(tmp_path: Path) -> None:
    scores = iter([5, 4, 3, 2, 1])
    trainer = Engine(lambda engine, batch: None)
    hooks: list[Any] = [
        {"type": "EarlyStoppingHook", "monitor": "accuracy", "patience": 2, "restore_best_weights": False},
        {"type": "EvalHook", "by_epoch": False, "interval": 2, "dataloader": [0]},
    ]
    evaluator = Engine(lambda engine, batch: engine.state.metrics.update(accuracy=next(scores)))
    runner = attach_hooks(trainer, hooks, evaluators=evaluator, work_dir=tmp_path)
    assert trainer.run([0] * 10, max_epochs=2).iteration == 6
    assert runner.hooks["EarlyStoppingHook"].stopped_epoch == 1


def test_a_validation_outside_of_a_run_is_not_judged(tmp_path: Path) -> None:
    run = Scored(tmp_path, [5, 6, 7], patience=1)
    run.scores = [9, 5, 6]
    run.trainer.state.epoch = 1
    assert run.runner.validate() == {"accuracy": 9}
    assert run.hook.best_score is None


# -- the best weights --------------------------------------------------------------------------------------------


def test_best_weights_are_restored_but_last_checkpoint_keeps_last(tmp_path: Path) -> None:
    checkpoint = {"type": "CheckpointHook", "best_metric": "val_accuracy"}
    run = Scored(tmp_path, [1, 5, 4, 3, 9], checkpoint, patience=2)
    assert run.run() == 4
    weights = dict(run.model.state_dict())
    assert equal(weights, run.weights[1])
    assert equal(weights, torch.load(tmp_path / "best_val_accuracy_epoch_2.pth", weights_only=True)["state_dict"])
    assert equal(run.weights[3], torch.load(tmp_path / "last.pth", weights_only=True)["state_dict"])


def test_best_weights_follow_the_best_score_despite_min_delta(tmp_path: Path) -> None:
    checkpoint = {"type": "CheckpointHook", "best_metric": "val_accuracy"}
    run = Scored(tmp_path, [5, 5.5, 5.2, 9], checkpoint, patience=2, min_delta=1)
    assert run.run() == 3
    best = torch.load(tmp_path / "best_val_accuracy_epoch_2.pth", weights_only=True)["state_dict"]
    assert equal(dict(run.model.state_dict()), best)


@pytest.mark.parametrize(
    ("settings", "scores"),
    [({"restore_best_weights": False, "patience": 1}, [2, 1]), ({"patience": 9}, [2, 1]), ({}, [NAN])],
    ids=["disabled", "not stopped", "no best"],
)
def test_without_restoring_the_model_keeps_its_last_weights(
    settings: dict[str, Any], scores: list[float], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = Scored(tmp_path, scores, **settings)
    run.run()
    assert equal(dict(run.model.state_dict()), run.weights[-1])
    assert "weights" not in caplog.text


def test_checkpoints_hold_no_unneeded_weights(tmp_path: Path) -> None:
    for name, settings in {"a": {}, "b": {"restore_best_weights": False}}.items():
        run = Scored(tmp_path / name, [1, 2], {"type": "CheckpointHook", "best_metric": "val_accuracy"}, **settings)
        run.run()
        assert (
            "best_weights"
            not in torch.load(tmp_path / name / "last.pth", weights_only=True)["hooks"]["EarlyStoppingHook"]
        )


# -- resuming ----------------------------------------------------------------------------------------------------

SCORES = [1, 5, 4, 6, 3, 5, 4, 2, 9, 9]
"""The best is the fourth."""


@pytest.mark.parametrize("best_metric", ["val_accuracy", "train_loss"], ids=["in the best file", "in no other file"])
@pytest.mark.parametrize("interrupted_after", range(1, 8))
def test_a_resumed_run_stops_at_the_same_epoch_and_weights(
    interrupted_after: int, best_metric: str, tmp_path: Path
) -> None:
    checkpoint = {"type": "CheckpointHook", "best_metric": best_metric, "rule": "max"}
    whole = Scored(tmp_path / "whole", SCORES, checkpoint, patience=4)
    assert whole.run() == 8
    assert Scored(tmp_path / "parts", SCORES, checkpoint, patience=4).run(interrupted_after) == interrupted_after
    resumed = Scored(tmp_path / "parts", SCORES, checkpoint, patience=4, resume="auto")
    assert resumed.run() == 8
    assert resumed.hook.state == whole.hook.state
    assert resumed.runner.stop_reason == whole.runner.stop_reason
    assert equal(dict(resumed.model.state_dict()), dict(whole.model.state_dict()))
    assert equal(dict(resumed.model.state_dict()), whole.weights[3])


@pytest.mark.parametrize(
    ("settings", "scores"),
    [
        ({"patience": 2}, [5, 4, 3, 9, 9]),
        ({}, [5, 4, NAN, 9, 9]),
        ({"stopping_threshold": 6}, [1, 2, 6, 1, 1]),
    ],
)
def test_a_stopped_run_stays_stopped_when_resumed(
    settings: dict[str, Any], scores: list[float], tmp_path: Path
) -> None:
    first = Scored(tmp_path, scores, "CheckpointHook", **settings)
    assert first.run() == 3
    for _ in range(2):
        resumed = Scored(tmp_path, scores, "CheckpointHook", resume="auto", **settings)
        iterations: list[int] = []
        resumed.trainer.add_event_handler(Events.ITERATION_STARTED, lambda e, seen: seen.append(1), iterations)
        assert resumed.run() == 3
        assert not iterations
        assert resumed.runner.stop_reason == first.runner.stop_reason
        assert equal(dict(resumed.model.state_dict()), dict(first.model.state_dict()))
        assert resumed.hook.stopped_epoch == 3


def test_more_patience_lets_a_stopped_run_go_on(tmp_path: Path) -> None:
    scores = [5, 4, 3, 6, 5, 4, 3]
    Scored(tmp_path, scores, "CheckpointHook", patience=2).run()
    resumed = Scored(tmp_path, scores, "CheckpointHook", patience=3, resume="auto")
    assert resumed.run() == 7
    assert (resumed.hook.best_epoch, resumed.hook.stopped_epoch) == (4, 7)


def test_a_damaged_file_of_best_weights_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    checkpoint = {"type": "CheckpointHook", "best_metric": "val_accuracy", "out_dir": "files"}
    Scored(tmp_path, [9, 1, 1], checkpoint, patience=2).run(2)
    (tmp_path / "files/best_val_accuracy_epoch_1.pth").write_bytes(b"no")
    resumed = Scored(tmp_path, [9, 1, 1], checkpoint, patience=2, resume="auto")
    assert resumed.run() == 3
    assert "best_val_accuracy_epoch_1.pth: 2 bytes instead of" in caplog.text
    assert "the weights of epoch 1 are lost: the model keeps the last ones" in caplog.text
    assert equal(dict(resumed.model.state_dict()), resumed.weights[-1])


# -- invalid settings --------------------------------------------------------------------------------------------


def test_an_unknown_monitor_is_an_error_that_lists_metrics(tmp_path: Path) -> None:
    run = Scored(tmp_path, [1, 2], monitor="val_acuracy", mode="max")
    with pytest.raises(HookError, match=r"no metric 'val_acuracy': there are .*\(did you mean 'val_accuracy'\?\)"):
        run.run()


def test_a_monitor_that_is_not_a_number_is_an_error(tmp_path: Path) -> None:
    run = Scored(tmp_path, ["high", "low"])  # type: ignore[list-item]
    with pytest.raises(HookError, match="metric 'val_accuracy' is not a number but a str"):
        run.run()


def test_a_monitor_never_published_is_a_warning_at_the_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = Scored(tmp_path, [1, 2])
    run.runner.remove_hook("EvalHook")
    run.run()
    assert "no evaluation published 'val_accuracy', so this hook never compared a score" in caplog.text


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"monitor": "mode_quality"},
            ".mode: cannot tell whether a higher or lower 'mode_quality' is better: set mode to",
        ),
        ({"patience": 0}, ".patience: a whole number of at least 1 is needed, not 0"),
        ({"min_delta": -0.1}, ".min_delta: a number of at least 0 is needed, not -0.1"),
        ({"mode": "up"}, ".mode: 'min', 'max', 'auto', 'less' or 'greater' is needed, not 'up'"),
        ({"baseline": "high"}, ".baseline: a number or null is needed, not 'high'"),
        ({"monitr": "loss"}, ".monitr: not a setting of EarlyStoppingHook, did you mean 'monitor'?"),
    ],
)
def test_wrong_settings_are_rejected_with_their_place(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        Scored(tmp_path, [1], **settings)
    assert str(caught.value).startswith(f"hooks[0]{message}")


def test_without_evaluations_it_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        attach_hooks(Engine(lambda engine, batch: None), ["EarlyStoppingHook"], work_dir=tmp_path)
    assert str(caught.value) == (
        "hooks[0].monitor: nothing evaluates, so 'val_loss' never exists: "
        "pass val_loader=... or evaluators=... to attach_hooks(), or add an EvalHook"
    )


def test_weights_to_restore_need_a_model(tmp_path: Path) -> None:
    evaluator = Engine(lambda engine, batch: None)
    hook = {"type": "EarlyStoppingHook", "restore_best_weights": True}
    with pytest.raises(ConfigError, match=r"restore_best_weights: needs the model: pass model="):
        attach_hooks(Engine(lambda engine, batch: None), [hook], evaluators=evaluator, work_dir=tmp_path)


def test_its_configuration_file_has_all_defaults_and_runs(tmp_path: Path) -> None:
    from ignite_hooks import load_config
    from ignite_hooks.plan.settings_digest import fields_of

    path = Path(__file__).parents[2] / "configs/early_stopping_hook.yaml"
    assert path.read_text().startswith("# yaml-language-server: $schema=schema.json\n")
    entry: Any = load_config(path)["hooks"][-1]
    fields = {f.name: f.default for f in fields_of(EarlyStoppingHook) or () if f.init and f.name != "priority"}
    assert {"type": "EarlyStoppingHook", **fields} == dict(entry)
    model, criterion = nn.Linear(3, 2), nn.CrossEntropyLoss()
    trainer = create_supervised_trainer(model, torch.optim.SGD(model.parameters(), lr=0.1), criterion)
    services = {"model": model, "criterion": criterion, "val_loader": BATCHES}
    runner = attach_hooks(trainer, path, work_dir=tmp_path, **services)
    trainer.run(BATCHES, max_epochs=2)
    assert runner.hooks["EarlyStoppingHook"].best_score == runner.best["val_loss"].score


@pytest.mark.parametrize(
    ("scores", "settings", "epochs"),
    [
        # A tenth of the magnitude of the best is needed: 0.55 and 0.6 are not enough above 0.5 and 0.55.
        ([0.5, 0.54, 0.54, 0.54], {"min_delta": 0.1, "threshold_mode": "rel"}, 3),
        ([0.5, 0.56, 0.56, 0.56], {"min_delta": 0.1, "threshold_mode": "rel"}, 4),
        # Of a negative best, less is not better: Ignite's 'rel' would take -1.05 for an improvement on -1.
        ([-1.0, -1.05, -1.05, -1.05], {"min_delta": 0.1, "threshold_mode": "rel"}, 3),
        ([-1.0, -0.85, -0.85, -0.85], {"min_delta": 0.1, "threshold_mode": "rel"}, 4),
        ([0.5, 0.54, 0.54, 0.54], {"threshold": 0.1}, 3),
        ([0.5, 0.62, 0.62, 0.62], {"threshold": 0.1}, 4),
    ],
)
def test_an_improvement_may_be_a_share_of_the_best(
    tmp_path: Path, scores: list[float], settings: dict[str, Any], epochs: int
) -> None:
    assert Scored(tmp_path, scores, patience=2, **settings).run(4) == epochs


def test_evaluations_before_the_start_are_not_judged(tmp_path: Path) -> None:
    scores = [0.9, 0.1, 0.1, 0.2, 0.3, 0.2, 0.2, 0.2]
    run = Scored(tmp_path, scores, patience=2, start=4)
    assert run.run(8) == 7
    assert (run.hook.best_score, run.hook.best_epoch) == (0.3, 5)


def test_the_least_improvement_has_one_value(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="threshold: says the same as 'min_delta'"):
        Scored(tmp_path, [0.5], threshold=0.1, min_delta=0.1)
