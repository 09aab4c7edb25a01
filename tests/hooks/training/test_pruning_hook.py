from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine, Events

from ignite_hooks import ConfigError, HookError, attach_hooks
from ignite_hooks.distributed.collectives import rank
from ignite_hooks.hooks.training.pruning_hook import PruningHook
from ignite_hooks.results.outcome import is_stop
from ignite_hooks.run.trials import running_trial
from tests.ranks import run_ranks

CHECKPOINT = {"type": "CheckpointHook", "save_best": False}


class Judge:
    """A trial that is pruned at a report."""

    def __init__(self, prune_at: int = 0) -> None:
        self.prune_at = prune_at
        self.told: list[tuple[int, float]] = []

    def report(self, value: float, step: int) -> None:
        self.told.append((step, value))

    def should_prune(self) -> bool:
        return len(self.told) == self.prune_at


def evaluating_trainer() -> tuple[Engine, Engine]:
    """Return a trainer, and an evaluator that it runs after each epoch: the loss is the number of the epoch."""
    trainer, evaluator = Engine(lambda engine, batch: 0.5), Engine(lambda engine, batch: 0)

    @trainer.on(Events.EPOCH_COMPLETED)
    def evaluate() -> None:
        evaluator.run([0])

    @evaluator.on(Events.EPOCH_COMPLETED)
    def measure() -> None:
        evaluator.state.metrics["loss"] = float(trainer.state.epoch)

    return trainer, evaluator


def a_run(folder: Path, *others: Any, epochs: int = 5, resume: Any = None, **settings: Any) -> tuple[Engine, Any]:
    trainer, evaluator = evaluating_trainer()
    hooks = [{"type": "PruningHook", **settings}, *others]
    runner = attach_hooks(
        trainer, hooks, evaluators=evaluator, work_dir=folder, resume=resume, model=torch.nn.Linear(1, 1)
    )
    trainer.run(range(3), max_epochs=epochs)
    return trainer, runner


def result(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return found


def test_every_evaluation_is_reported_and_a_pruned_run_is_stopped(tmp_path: Path) -> None:
    judge = Judge(prune_at=3)
    trainer, _ = a_run(tmp_path, CHECKPOINT, trial=judge)
    assert judge.told == [(1, 1.0), (2, 2.0), (3, 3.0)]
    assert trainer.state.iteration == 9
    found = result(tmp_path)
    assert [found[name] for name in ("state", "kind", "reason")] == [
        "stopped",
        "pruned",
        "pruned by the search at val_loss 3, report 3",
    ]
    assert found["best"]["val_loss"]["value"] == 1.0
    assert [path.name for path in sorted(tmp_path.glob("*.pth"))] == [
        *(f"epoch_{n}.pth" for n in (1, 2, 3)),
        "last.pth",
    ]


def test_a_run_that_is_not_pruned_has_no_kind(tmp_path: Path) -> None:
    judge = Judge()
    a_run(tmp_path, CHECKPOINT, trial=judge)
    assert (len(judge.told), result(tmp_path)["state"], result(tmp_path)["kind"]) == (5, "finished", "")


def test_reports_go_on_counting_after_a_resume(tmp_path: Path) -> None:
    judge = Judge()
    a_run(tmp_path, CHECKPOINT, trial=judge, epochs=2)
    a_run(tmp_path, CHECKPOINT, trial=judge, epochs=3, resume="auto")
    assert judge.told == [(1, 1.0), (2, 2.0), (3, 3.0)]


def test_the_trial_of_a_search_around_the_run_is_asked(tmp_path: Path) -> None:
    with running_trial(judge := Judge()):
        a_run(tmp_path)
    assert len(judge.told) == 5


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "trial: nobody to ask"),
        ({"storage": "sqlite:///s.db"}, "storage, study and number together"),
        ({"trial": 7}, r"report\(value, step\) and should_prune"),
        ({"trial": Judge(), "monitor": "val_reach"}, "mode: cannot tell"),
    ],
)
def test_what_cannot_be_asked_is_refused(settings: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        a_run(tmp_path, **settings)


def test_a_function_that_is_told_ends_the_run_in_good_order(tmp_path: Path) -> None:
    told: list[dict[str, float]] = []

    def report(numbers: dict[str, float]) -> None:
        told.append(numbers)
        if len(told) == 2:
            raise SystemExit(0)

    with pytest.raises(SystemExit) as left:
        a_run(tmp_path, CHECKPOINT, report=report)
    assert (left.value.code, [numbers["val_loss"] for numbers in told]) == (0, [1.0, 2.0])
    assert (result(tmp_path)["kind"], (tmp_path / "last.pth").exists()) == ("pruned", True)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_other_exceptions_of_such_a_function_are_its_own(error: type[BaseException], tmp_path: Path) -> None:
    def report(numbers: dict[str, float]) -> None:
        raise error

    with pytest.raises((KeyboardInterrupt, HookError)):
        a_run(tmp_path, CHECKPOINT, {"type": "LoggerHook", "interval": 1}, report=report)
    assert result(tmp_path)["kind"] == ""


def test_optuna_counts_the_trial_as_pruned(tmp_path: Path) -> None:
    optuna = pytest.importorskip("optuna", reason="the extra 'search' is not installed")
    optuna.logging.disable_propagation()
    study = optuna.create_study(pruner=optuna.pruners.ThresholdPruner(upper=2.5))
    folders = []

    def objective(trial: Any) -> float:
        folders.append(tmp_path / str(trial.number))
        a_run(folders[-1], CHECKPOINT, trial=trial, epochs=2 if trial.number else 5)
        return 1.0

    study.optimize(objective, n_trials=2)
    assert [trial.state.name for trial in study.trials] == ["PRUNED", "COMPLETE"]
    assert study.trials[0].intermediate_values == {1: 1.0, 2: 2.0, 3: 3.0}
    assert [result(folder)["state"] for folder in folders] == ["stopped", "finished"]
    assert not list(tmp_path.rglob("exception*")), "a pruned run has not failed"


def test_a_trial_in_a_storage_is_asked_without_an_exception(tmp_path: Path) -> None:
    optuna = pytest.importorskip("optuna", reason="the extra 'search' is not installed")
    storage = f"sqlite:///{tmp_path}/study.db"
    study = optuna.create_study(study_name="s", storage=storage)
    number = study.ask().number
    pruner = {"type": "ThresholdPruner", "upper": 1.5}
    trainer, _ = a_run(tmp_path / "run", CHECKPOINT, storage=storage, study="s", number=number, pruner=pruner)
    assert (trainer.state.epoch, result(tmp_path / "run")["kind"]) == (2, "pruned")
    assert study.trials[0].intermediate_values == {1: 1.0, 2: 2.0}


def test_an_exception_of_optuna_in_a_hook_of_ones_own_is_no_failure() -> None:
    optuna = pytest.importorskip("optuna", reason="the extra 'search' is not installed")
    assert is_stop(optuna.TrialPruned())
    assert not is_stop(optuna.exceptions.StorageInternalError())


def in_each_process(folder: str) -> list[Any]:
    ends = []
    for number in range(20):
        judge = Judge(prune_at=1 + number % 4)
        trainer, runner = a_run(Path(folder) / str(number), trial=judge if rank() == 0 else Judge())
        ends.append([trainer.state.iteration, runner.stop_reason, runner.state.stop_kind])
    return ends


@pytest.mark.slow
def test_both_ranks_stop_in_the_iteration_in_which_rank_0_is_pruned(tmp_path: Path) -> None:
    first, second = run_ranks(in_each_process, str(tmp_path))
    assert first == second
    assert [end[0] for end in first] == [3 * (1 + number % 4) for number in range(20)]
    assert {end[2] for end in first} == {"pruned"}


def test_the_hook_is_found_by_its_name() -> None:
    assert PruningHook(monitor="accuracy", mode="max", trial=Judge()).rule == "greater"
