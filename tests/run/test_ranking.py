"""Plain names mean the validation; nothing is ranked by training data unless it is named."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from ignite.engine import Engine, Events

from ignite_hooks import ConfigError, HookError, Runner, attach_hooks, build_hook
from ignite_hooks.run.ranking import canonical, main_evaluator, owner_of
from ignite_hooks.testing import tiny_run


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["val"], "val"),
        (["train", "val"], "val"),
        (["hard", "val"], "val"),
        (["train", "valid"], "valid"),
        (["training", "test", "hard"], "hard"),
        (["test"], None),
        (["train", "test"], None),
        ([], None),
    ],
)
def test_the_main_evaluator_is_one_of_validation_data(names: list[str], expected: str | None) -> None:
    assert main_evaluator(names) == expected


def test_a_metric_belongs_to_the_evaluator_that_begins_its_name() -> None:
    assert owner_of("val_hard_accuracy", ["val", "val_hard"]) == "val_hard"
    assert owner_of("accuracy", ["train", "test"]) is None


@pytest.mark.parametrize("metric", ["val_loss", "train_loss", "val/loss", "my_loss"])
def test_only_a_plain_loss_has_another_name(metric: str) -> None:
    assert canonical(metric, ["hard"]) == metric


# -- in a run ------------------------------------------------------------------------------------------------

SCORES = {"train": [0.9, 0.8, 0.7], "val": [0.1, 0.3, 0.2], "hard": [0.2, 0.2, 0.4]}


def scored(scores: list[float], names: tuple[str, ...] = ("accuracy",)) -> Engine:
    """Return an evaluator that measures one score after the other."""
    turns = iter(scores)

    def measure(engine: Engine, batch: Any) -> None:
        score = next(turns)
        engine.state.metrics = dict.fromkeys(names, score)

    return Engine(measure)


def run(
    folder: Path,
    hooks: Any,
    evaluators: dict[str, list[float]],
    *,
    measures: tuple[str, ...] = ("accuracy",),
    trainers: dict[str, float] | None = None,
) -> Runner:
    """Run three epochs, with evaluations after each, and with metrics of the trainer."""
    tiny = tiny_run()
    engines = {name: scored(scores, measures) for name, scores in evaluators.items()}
    runner = attach_hooks(tiny.trainer, hooks, model=tiny.model, evaluators=engines, work_dir=folder)

    @tiny.trainer.on(Events.EPOCH_COMPLETED)
    def evaluate() -> None:
        tiny.trainer.state.metrics.update(trainers or {})
        for engine in engines.values():
            engine.run([0])

    tiny.trainer.run(tiny.data, max_epochs=3)
    return runner


@pytest.mark.parametrize("order", [["train", "val"], ["val", "train"], ["train", "hard"], ["train", "val", "hard"]])
def test_the_default_checkpoint_keeps_the_best_of_the_validation(order: list[str], tmp_path: Path) -> None:
    runner = run(tmp_path, None, {name: SCORES[name] for name in order})
    expected = max(SCORES["val" if "val" in order else "hard"])
    assert runner.best["accuracy"].score == expected
    assert [path.name for path in tmp_path.glob("best_*")] == [runner.best["accuracy"].file]


def test_with_training_data_alone_the_default_checkpoint_ranks_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    runner = run(tmp_path, None, {"train": SCORES["train"]})
    assert not runner.best
    assert not list(tmp_path.glob("best_*"))
    assert "save_best is off: no metric 'accuracy'" in caplog.text
    assert "did you mean 'train_accuracy'?" in caplog.text


@pytest.mark.parametrize("name", ["train_accuracy", "train/accuracy"])
def test_training_data_is_ranked_where_it_is_named(name: str, tmp_path: Path) -> None:
    runner = run(tmp_path, [{"type": "CheckpointHook", "save_best": name}], {"train": SCORES["train"]})
    assert runner.best[name].score == 0.9


def test_a_hook_that_evaluates_training_data_ranks_nothing_unasked(tmp_path: Path) -> None:
    hooks = [
        {"type": "EvalHook", "name": "train", "dataloader": [0]},
        {"type": "EvalHook", "dataloader": [0], "metric": "accuracy"},
    ]
    tiny = tiny_run()
    engines = {name: scored(SCORES[name]) for name in ("train", "val")}
    runner = attach_hooks(tiny.trainer, hooks, model=tiny.model, evaluators=engines, work_dir=tmp_path)
    tiny.trainer.run(tiny.data, max_epochs=3)
    assert {name: record.score for name, record in runner.best.items()} == {"accuracy": 0.3}


RANKED = [
    lambda name: {"type": "CheckpointHook", "save_best": name, "rule": "max"},
    lambda name: {"type": "CheckpointHook", "best_metric": name, "rule": "max"},
    lambda name: {"type": "EarlyStoppingHook", "monitor": name, "mode": "max"},
    lambda name: {"type": "EvalHook", "metric": name, "rule": "max", "dataloader": [0], "start": 99},
]


@pytest.mark.parametrize("make", RANKED)
@pytest.mark.parametrize(
    ("named", "recorded", "score"),
    [
        ("loss", "val_loss", 0.3),
        ("val_loss", "val_loss", 0.3),
        ("train_loss", "train_loss", None),
        ("accuracy", "val_accuracy", 0.3),
        ("train_accuracy", "train_accuracy", 0.6),
    ],
)
def test_a_plain_name_of_the_trainer_means_the_validation(
    make: Any, named: str, recorded: str, score: float | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    runner = run(
        tmp_path, [make(named)], {"val": SCORES["val"]}, measures=("loss", "accuracy"), trainers={"accuracy": 0.6}
    )
    assert list(runner.best) == [recorded]
    assert score is None or runner.best[recorded].score == score
    assert all(path.name.startswith(f"best_{recorded}_epoch_") for path in tmp_path.glob("best_*"))
    lines = [line for line in caplog.messages if "is ranked as" in line]
    assert len(lines) == (named != recorded)
    if lines:
        assert f"{named!r} is ranked as {recorded!r}" in lines[0]
    # What a hook sees stays the trainer's.
    assert runner.metrics["loss"] == runner.trainer.state.output
    assert runner.metrics["accuracy"] == 0.6


def test_a_plain_loss_that_no_evaluation_measures_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(HookError, match=r"no metric 'val_loss', which 'loss' means here.*'train_loss'"):
        run(tmp_path, [{"type": "CheckpointHook", "save_best": "loss"}], {"val": SCORES["val"]})


def test_the_weights_of_the_best_validation_loss_are_found_in_its_file(tmp_path: Path) -> None:
    stopping = {"type": "EarlyStoppingHook", "monitor": "loss", "patience": 1}
    hooks = [stopping, {"type": "CheckpointHook", "save_best": "loss"}]
    runner = run(tmp_path, hooks, {"val": [0.3, 0.5, 0.5]}, measures=("loss",))
    assert runner.stop_reason is not None
    assert runner.hooks["EarlyStoppingHook"]._best_file(runner) == tmp_path / "best_val_loss_epoch_1.pth"


def test_opposite_rules_for_two_names_of_one_loss_are_an_error(tmp_path: Path) -> None:
    tiny = tiny_run()
    hooks = [
        {"type": "EarlyStoppingHook", "monitor": "loss", "mode": "max"},
        {"type": "CheckpointHook", "save_best": "val_loss"},
    ]
    with pytest.raises(ConfigError, match="use one rule in both"):
        attach_hooks(tiny.trainer, hooks, evaluators=tiny.evaluator, work_dir=tmp_path)


@pytest.mark.parametrize("name", ["CheckpointHook", "EvalHook"])
def test_the_rule_is_listed_as_it_is(name: str) -> None:
    assert build_hook({"type": name}).rule == "auto"
    assert type(build_hook({"type": name}))().rule == "auto"
