from __future__ import annotations

import errno
import hashlib
import logging
import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine, Events, create_supervised_evaluator, create_supervised_trainer
from ignite.metrics import Accuracy, Loss
from torch import nn

from ignite_hooks import BaseHook, CheckpointError, ConfigError, HookError, attach_hooks
from ignite_hooks.hooks.checkpoint_hook import CheckpointHook
from ignite_hooks.store import FolderStore
from ignite_hooks.store import folder as store_folder
from ignite_hooks.store.buffers import Buffers
from ignite_hooks.store.commit import CommitLog
from ignite_hooks.store.files import HashingFile
from ignite_hooks.testing import tiny_run
from tests.ranks import run_ranks

NAN, INF = math.nan, math.inf
X = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
loss = nn.CrossEntropyLoss()
BATCHES = [(X[i : i + 4], (X[i : i + 4].sum(1) > 0).long()) for i in range(0, 12, 4)]
"""Three iterations an epoch."""


pytestmark = pytest.mark.usefixtures("quick")


def trained(
    folder: Path,
    *hooks: Any,
    scores: Sequence[float] = (),
    metric: str = "accuracy",
    epochs: int | None = None,
    by_script: bool = True,
    **options: Any,
) -> tuple[Any, Engine]:
    """Train for as many epochs as there are scores; the n-th evaluation publishes the n-th score."""
    model = nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    trainer = create_supervised_trainer(model, optimizer, nn.CrossEntropyLoss())
    coming = iter(scores)
    evaluator = Engine(lambda engine, batch: engine.state.metrics.update({metric: next(coming)}))
    if scores:
        options["evaluators"] = evaluator
        if by_script:
            trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run([0]))
    runner = attach_hooks(trainer, list(hooks), work_dir=folder, optimizer=optimizer, **{"model": model, **options})
    trainer.run(BATCHES, max_epochs=epochs or len(scores) or 1)
    return runner, trainer


def names(folder: Path) -> list[str]:
    found = [path.name for path in folder.glob("*.pth")]
    return sorted(found, key=lambda name: (len(name), name))


def opened(path: Path) -> Any:
    return torch.load(path, weights_only=True)


# -- which files there are ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "epochs", "expected"),
    [
        ({}, 3, ["epoch_1", "epoch_2", "epoch_3"]),
        ({}, 7, ["epoch_3", "epoch_4", "epoch_5", "epoch_6", "epoch_7"]),
        ({"interval": 2, "max_keep_ckpts": -1}, 11, ["epoch_2", "epoch_4", "epoch_6", "epoch_8", "epoch_10"]),
        ({"interval": 2, "start": 5}, 9, ["epoch_5", "epoch_7", "epoch_9"]),
        ({"every": "2 epoch"}, 5, ["epoch_2", "epoch_4"]),
        ({"interval": 9}, 3, []),
        ({"max_keep_ckpts": 1}, 4, ["epoch_4"]),
        ({"max_keep_ckpts": 3}, 5, ["epoch_3", "epoch_4", "epoch_5"]),
        ({"max_keep_ckpts": -1}, 7, [f"epoch_{n}" for n in range(1, 8)]),
        ({"by_epoch": False, "interval": 4}, 3, ["iter_4", "iter_8"]),
        ({"by_epoch": False, "interval": 2, "start": 3, "max_keep_ckpts": 2}, 3, ["iter_7", "iter_9"]),
        ({"every": "4 iter"}, 3, ["iter_4", "iter_8"]),
        ({"by_epoch": False, "interval": 4, "filename_tmpl": "model-{:05d}.pth"}, 3, ["model-00004", "model-00008"]),
        ({"filename_tmpl": "{}"}, 2, []),
        ({"filename_tmpl": "第{}轮.pth", "max_keep_ckpts": 1}, 2, ["第2轮"]),
    ],
)
def test_periodic_files_come_in_their_interval_and_the_newest_stay(
    settings: dict[str, Any], epochs: int, expected: list[str], tmp_path: Path
) -> None:
    trained(tmp_path, {"type": "CheckpointHook", **settings}, epochs=epochs)
    assert names(tmp_path) == sorted([*(f"{name}.pth" for name in expected), "last.pth"], key=lambda n: (len(n), n))
    if settings.get("filename_tmpl") == "{}":
        assert (tmp_path / "1").exists()
        assert (tmp_path / "2").exists()


def test_without_save_last_there_is_none(tmp_path: Path) -> None:
    trained(tmp_path, {"type": "CheckpointHook", "save_last": False})
    assert names(tmp_path) == ["epoch_1.pth"]


@pytest.mark.parametrize("out_dir", ["checkpoints", "a/b", "absolute", Path("a"), Path("~/b"), "~/b"])
@pytest.mark.parametrize("ready", [False, True])
def test_out_dir_takes_all_files(
    out_dir: str | Path, ready: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "elsewhere" if out_dir == "absolute" else tmp_path / "work" / out_dir
    if str(out_dir).startswith("~"):
        folder = tmp_path / "b"
    given = str(folder) if out_dir == "absolute" else out_dir
    hook = CheckpointHook(out_dir=given) if ready else {"type": "CheckpointHook", "out_dir": given}
    runner, _ = trained(tmp_path / "work", hook, scores=[1, 2])
    assert names(folder) == ["last.pth", "epoch_1.pth", "epoch_2.pth", "best_accuracy_epoch_2.pth"]
    assert names(tmp_path / "work") == []
    assert runner.work_dir / runner.best["accuracy"].file == folder / "best_accuracy_epoch_2.pth"


def test_best_and_last_are_outside_the_count(tmp_path: Path) -> None:
    trained(tmp_path, {"type": "CheckpointHook", "max_keep_ckpts": 1}, scores=[9, 1, 2, 3])
    assert names(tmp_path) == ["last.pth", "epoch_4.pth", "best_accuracy_epoch_1.pth"]


def test_two_hooks_in_one_folder_leave_each_others_files_alone(tmp_path: Path) -> None:
    trained(
        tmp_path,
        {"type": "CheckpointHook", "name": "all", "max_keep_ckpts": -1},
        {"type": "CheckpointHook", "name": "few", "max_keep_ckpts": 2, "by_epoch": False, "interval": 1},
        epochs=4,
    )
    expected = ["last", "epoch_1", "epoch_2", "epoch_3", "epoch_4", "iter_11", "iter_12"]
    assert names(tmp_path) == [f"{name}.pth" for name in expected]


def test_files_that_are_not_ours_stay(tmp_path: Path) -> None:
    (tmp_path / "epoch_0.pth").write_text("mine")
    (tmp_path / "epoch_1.pth").write_text("mine too")
    trained(tmp_path, {"type": "CheckpointHook", "max_keep_ckpts": 1}, epochs=3)
    assert (tmp_path / "epoch_0.pth").read_text() == "mine"
    assert (tmp_path / "epoch_1.pth.not-ours-1").read_text() == "mine too"


@pytest.mark.parametrize("name", ["epoch_2.pth", "best_accuracy_epoch_2.pth"])
def test_the_file_resumed_from_is_never_deleted(name: str, tmp_path: Path) -> None:
    hook = {"type": "CheckpointHook", "max_keep_ckpts": 1, "interval": 2}
    trained(tmp_path, hook, scores=[1, 2])
    trained(tmp_path, hook, scores=[3, 4, 5, 6], epochs=6, resume=name)
    assert (tmp_path / name).exists()
    assert (tmp_path / "epoch_6.pth").exists()
    assert not (tmp_path / "epoch_4.pth").exists()
    assert not (tmp_path / "best_accuracy_epoch_5.pth").exists()
    assert (tmp_path / "best_accuracy_epoch_6.pth").exists()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "every epoch"),
        ({"interval": 2}, "every 2 epochs"),
        ({"every": "3 iter"}, "if its last iteration is due"),
    ],
)
def test_the_plan_says_how_often_epochs_are_saved(settings: dict[str, Any], expected: str, tmp_path: Path) -> None:
    runner, _ = trained(tmp_path, {"type": "CheckpointHook", **settings})
    (slot,) = runner.plan.at("after_epoch")
    assert slot.how_often == expected


@pytest.mark.parametrize("interval", [1, 3])
def test_an_epochs_last_iteration_is_saved_after_the_epoch(interval: int, tmp_path: Path) -> None:
    """What the script does then, its scheduler and its evaluation, is in the file."""
    hook = {"type": "CheckpointHook", "by_epoch": False, "interval": interval, "save_best": False}
    trained(tmp_path, hook, scores=[1, 2], epochs=2)
    for iteration, score in ((3, 1), (6, 2)):
        state = opened(tmp_path / f"iter_{iteration}.pth")
        assert state["metrics"]["val_accuracy"] == {"value": score, "step": iteration}
        assert state["meta"]["epoch"] == iteration // 3


# -- what is in them ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", [True, False])
@pytest.mark.parametrize("scheduler", [True, False])
def test_optimizer_and_scheduler_are_saved_as_the_settings_say(
    optimizer: bool, scheduler: bool, tmp_path: Path
) -> None:
    anything = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    steps = torch.optim.lr_scheduler.CosineAnnealingLR(anything, 10)
    hook = {"type": "CheckpointHook", "save_optimizer": optimizer, "save_scheduler": scheduler}
    trained(tmp_path, hook, scores=[1], scheduler=steps)
    for name in names(tmp_path):
        state = opened(tmp_path / name)
        assert ("optimizer" in state) is optimizer
        assert ("scheduler" in state) is scheduler
        assert {"meta", "state_dict"} <= {*state}


def test_an_epoch_file_includes_the_scripts_epoch_end_handlers(tmp_path: Path) -> None:
    """Its scheduler has made its step, its evaluation is done, hooks of default priority have had their turn."""

    class Scheduler:
        steps = 0

        def state_dict(self) -> dict[str, int]:
            return {"steps": self.steps}

    scheduler = Scheduler()
    _, trainer = trained(tmp_path, "CheckpointHook", scores=[1, 2], scheduler=scheduler, epochs=1)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: setattr(scheduler, "steps", scheduler.steps + 1))
    trainer.run(BATCHES, max_epochs=2)
    state = opened(tmp_path / "epoch_2.pth")
    assert state["scheduler"] == {"steps": 1}
    assert state["metrics"]["val_accuracy"] == {"value": 2, "step": 6}


def test_without_a_model_missing_weights_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    attach_hooks(trainer := Engine(lambda engine, batch: 0.5), ["CheckpointHook"], work_dir=tmp_path)
    trainer.run([1])
    assert "CheckpointHook does without it; pass model=... to attach_hooks()" in caplog.text
    assert "state_dict" not in opened(tmp_path / "last.pth")


# -- the best ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("eval_hook", [False, True], ids=["evaluation by the script", "EvalHook"])
@pytest.mark.parametrize(
    ("rule", "scores", "best"),
    [
        ("greater", [5, 3, 9, 1, 7], 3),
        ("max", [5, 3, 9, 1, 7], 3),
        ("less", [5, 3, 9, 1, 7], 4),
        ("min", [5, 3, 9, 1, 7], 4),
        ("greater", [NAN, 3, 2], 2),
        ("less", [NAN, 3, 4], 2),
        ("greater", [1, NAN, 2, NAN], 3),
        ("greater", [2, 2, 2], 1),
        ("less", [2, 2, 2], 1),
        ("greater", [-1.0, 0.0, -0.5], 2),
        ("less", [1.0, 0.0, 0.5], 2),
        ("greater", [INF, 1, 2], 3),
        ("less", [-INF, 2, 1], 3),
        ("greater", [1, INF, 0.5], 1),
        ("less", [1, -INF, 2], 1),
    ],
)
def test_exactly_the_best_is_kept(rule: str, scores: list[float], best: int, eval_hook: bool, tmp_path: Path) -> None:
    hooks: list[Any] = [{"type": "CheckpointHook", "rule": rule}]
    if eval_hook:
        hooks.append({"type": "EvalHook", "dataloader": [0], "rule": rule})
    runner, _ = trained(tmp_path, *hooks, scores=scores, by_script=not eval_hook)
    assert [name for name in names(tmp_path) if name.startswith("best")] == [f"best_accuracy_epoch_{best}.pth"]
    record = runner.best["accuracy"]
    assert (record.score, record.epoch, record.file) == (scores[best - 1], best, f"best_accuracy_epoch_{best}.pth")
    assert opened(tmp_path / record.file)["meta"]["epoch"] == best


def test_where_nothing_is_finite_nothing_is_best(tmp_path: Path) -> None:
    runner, _ = trained(tmp_path, "CheckpointHook", scores=[NAN, INF, -INF])
    assert not runner.best
    assert names(tmp_path) == ["last.pth", "epoch_1.pth", "epoch_2.pth", "epoch_3.pth"]


@pytest.mark.parametrize("own_evaluator", [False, True])
def test_the_weights_in_the_best_file_give_its_metric(own_evaluator: bool, tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    trainer = create_supervised_trainer(model, torch.optim.SGD(model.parameters(), lr=3.0), nn.CrossEntropyLoss())
    metrics = {"accuracy": Accuracy(), "loss": Loss(nn.CrossEntropyLoss())}
    evaluator = create_supervised_evaluator(model, metrics)
    given: dict[str, Any] = {} if own_evaluator else {"evaluators": evaluator}
    hook = {"type": "CheckpointHook", "best_metric": "val/loss", "rule": "greater"}
    runner = attach_hooks(trainer, ["EvalHook", hook], work_dir=tmp_path, val_loader=BATCHES, **given)
    trainer.run(BATCHES, max_epochs=6)
    runner.detach()
    record = runner.best["val/loss"]
    assert record.epoch < 6
    assert record.file == f"best_val%2Floss_epoch_{record.epoch}.pth"
    model.load_state_dict(opened(tmp_path / record.file)["state_dict"])
    assert create_supervised_evaluator(model, metrics).run(BATCHES).metrics["loss"] == record.score


@pytest.mark.parametrize(
    ("metric", "name"),
    [
        ("val/acc", "best_val%2Facc_epoch_1.pth"),
        ("top 5 acc", "best_top%205%20acc_epoch_1.pth"),
        ("AP@50", "best_AP@50_epoch_1.pth"),
        ("精度", "best_精度_epoch_1.pth"),
    ],
)
def test_metric_names_become_file_names(metric: str, name: str, tmp_path: Path) -> None:
    published = metric.removeprefix("val/")
    hook = {"type": "CheckpointHook", "best_metric": metric, "rule": "greater"}
    runner, _ = trained(tmp_path, hook, scores=[1], metric=published)
    assert runner.best[metric].file == name
    assert (tmp_path / name).exists()


def test_by_iteration_the_best_is_called_by_its_iteration(tmp_path: Path) -> None:
    hooks: list[Any] = [
        {"type": "CheckpointHook", "by_epoch": False, "interval": 100},
        {"type": "EvalHook", "by_epoch": False, "interval": 2, "dataloader": [0]},
    ]
    trained(tmp_path, *hooks, scores=[1, 3, 2], epochs=2, by_script=False)
    assert names(tmp_path) == ["last.pth", "best_accuracy_iter_4.pth"]


def test_two_best_evaluations_in_an_epoch_leave_the_later_file(tmp_path: Path) -> None:
    hooks: list[Any] = ["CheckpointHook", {"type": "EvalHook", "by_epoch": False, "interval": 1, "dataloader": [0]}]
    trained(tmp_path, *hooks, scores=[1, 2, 0], epochs=1, by_script=False)
    assert names(tmp_path) == ["last.pth", "epoch_1.pth", "best_accuracy_epoch_1.pth"]
    assert opened(tmp_path / "best_accuracy_epoch_1.pth")["meta"]["iter"] == 2


def test_the_old_best_goes_after_the_new_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    delete, seen = CommitLog.delete, []

    def look(self: CommitLog, entries: Any) -> None:
        going = list(entries)
        if going:
            seen.append(names(self.folder))
        delete(self, going)

    monkeypatch.setattr(CommitLog, "delete", look)
    trained(tmp_path, {"type": "CheckpointHook", "max_keep_ckpts": -1}, scores=[1, 2])
    assert seen == [["epoch_1.pth", "best_accuracy_epoch_1.pth", "best_accuracy_epoch_2.pth"]]


def test_a_metric_of_an_earlier_evaluation_is_not_ranked_again(tmp_path: Path) -> None:
    """A second evaluator runs at every epoch, the first only once."""
    turns = iter([{"accuracy": 0.5}])
    val = Engine(lambda engine, batch: engine.state.metrics.update(next(turns)))
    hard = Engine(lambda engine, batch: engine.state.metrics.update({"accuracy": 0.9}))
    trainer = Engine(lambda engine, batch: None)
    hook = {"type": "CheckpointHook", "best_metric": "accuracy"}
    runner = attach_hooks(trainer, [hook], evaluators={"val": val, "hard": hard}, work_dir=tmp_path)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: hard.run([0]))
    trainer.add_event_handler(Events.EPOCH_COMPLETED(once=2), lambda: val.run([0]))
    trainer.run([1], max_epochs=4)
    assert (runner.best["accuracy"].epoch, runner.best["accuracy"].score) == (2, 0.5)


def test_validations_outside_a_run_save_and_replace_nothing(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    trainer = create_supervised_trainer(model, torch.optim.SGD(model.parameters(), lr=0.01), nn.CrossEntropyLoss())
    scores = iter([10, 1, 2, 11])
    test_fn = lambda model, loader: {"accuracy": next(scores)}  # noqa: E731
    hooks = [{"type": "EvalHook", "test_fn": test_fn}, "CheckpointHook"]
    runner = attach_hooks(trainer, hooks, work_dir=tmp_path, val_loader=[0])
    assert runner.validate() == {"accuracy": 10}
    assert names(tmp_path) == []
    trainer.run(BATCHES, max_epochs=2)
    assert runner.validate() == {"accuracy": 11}
    assert runner.best["accuracy"].score == 2
    assert names(tmp_path) == ["last.pth", "epoch_1.pth", "epoch_2.pth", "best_accuracy_epoch_2.pth"]
    FolderStore(tmp_path).open().close()


def test_a_second_run_of_an_engine_starts_a_new_ranking(tmp_path: Path) -> None:
    runner, trainer = trained(tmp_path, "CheckpointHook", scores=[5, 9, 1, 2, 3], epochs=2)
    assert runner.best["accuracy"].score == 9
    trainer.run(BATCHES, max_epochs=2)
    assert (runner.best["accuracy"].score, runner.best["accuracy"].epoch) == (2, 2)
    assert opened(tmp_path / "best_accuracy_epoch_2.pth")["best"]["accuracy"]["record"]["score"] == 2


@pytest.mark.parametrize(
    ("settings", "scores", "kept"),
    [
        ({"keep_best": 3}, [5, 3, 9, 1, 7], [1, 3, 5]),
        ({"keep_best": 3, "rule": "less"}, [5, 3, 9, 1, 7], [1, 2, 4]),
        ({"keep_best": 2}, [5, 3, 9, 1, 7], [3, 5]),
        ({"keep_best": 5}, [5, 3, 9, 1, 7], [1, 2, 3, 4, 5]),
        ({"keep_best": 2}, [NAN, 3, INF, 2, 1], [2, 4]),
        ({"keep_best": 2}, [4, 4, 4, 4], [1, 2]),
        ({"keep_best": 2}, [-1.0, 0.0, -0.5], [2, 3]),
    ],
)
def test_keep_best_keeps_that_many(
    settings: dict[str, Any], scores: list[float], kept: list[int], tmp_path: Path
) -> None:
    runner, _ = trained(tmp_path, {"type": "CheckpointHook", **settings}, scores=scores)
    assert [name for name in names(tmp_path) if name.startswith("best")] == [
        f"best_accuracy_epoch_{n}.pth" for n in kept
    ]
    best = (min if settings.get("rule") == "less" else max)(s for s in scores if math.isfinite(s))
    assert scores.index(best) + 1 == opened(tmp_path / runner.best["accuracy"].file)["meta"]["epoch"]


@pytest.mark.parametrize(("keep", "expected"), [(1, ["epoch_1"]), (3, ["epoch_1", "epoch_2"])])
def test_a_worse_score_in_the_same_epoch_replaces_nothing(keep: int, expected: list[str], tmp_path: Path) -> None:
    hook = {"type": "CheckpointHook", "keep_best": keep}
    hooks: list[Any] = [hook, {"type": "EvalHook", "by_epoch": False, "interval": 1, "dataloader": [0]}]
    trained(tmp_path, *hooks, scores=[9, 8, 7, 1, 2, 3], epochs=2, by_script=False)
    assert [name for name in names(tmp_path) if "best" in name] == [f"best_accuracy_{name}.pth" for name in expected]
    assert opened(tmp_path / "best_accuracy_epoch_1.pth")["meta"]["iter"] == 1


@pytest.mark.parametrize(
    ("save_best", "kept"),
    [
        (["accuracy", "val_loss"], ["best_accuracy_epoch_2", "best_val_loss_epoch_3"]),
        ("val_loss", ["best_val_loss_epoch_3"]),
        (["val/loss"], ["best_val%2Floss_epoch_3"]),
    ],
)
def test_several_metrics_have_a_best_each(save_best: Any, kept: list[str], tmp_path: Path) -> None:
    coming = iter([{"accuracy": 1, "loss": 3}, {"accuracy": 5, "loss": 2}, {"accuracy": 4, "loss": 1}])
    model = nn.Linear(3, 2)
    trainer = create_supervised_trainer(model, torch.optim.SGD(model.parameters(), lr=0.1), nn.CrossEntropyLoss())
    evaluator = Engine(lambda engine, batch: engine.state.metrics.update(next(coming)))
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run([0]))
    hook = {"type": "CheckpointHook", "save_best": save_best, "save_last": False, "interval": 100}
    attach_hooks(trainer, [hook], work_dir=tmp_path, evaluators=evaluator)
    trainer.run(BATCHES, max_epochs=3)
    assert sorted(names(tmp_path)) == [f"{name}.pth" for name in kept]


def test_a_resumed_run_keeps_the_same_best_files(tmp_path: Path) -> None:
    hook, scores = {"type": "CheckpointHook", "keep_best": 2}, [5, 3, 9, 1, 7]
    trained(tmp_path / "whole", hook, scores=scores)
    trained(tmp_path / "parts", hook, scores=scores[:2])
    trained(tmp_path / "parts", hook, scores=scores[2:], epochs=5, resume="auto")
    assert names(tmp_path / "parts") == names(tmp_path / "whole")


@pytest.mark.parametrize(
    "metrics", [("精度", "召回"), ("Acc", "acc"), ("a b", "a_b")], ids=["two scripts", "case", "punctuation"]
)
def test_each_metric_has_a_best_file_of_its_own(metrics: tuple[str, str], tmp_path: Path) -> None:
    one, other = metrics
    coming = iter([{one: 9, other: 1}, {one: 1, other: 2}, {one: 2, other: 3}])
    trainer = create_supervised_trainer(model := nn.Linear(3, 2), torch.optim.SGD(model.parameters(), lr=0.1), loss)
    evaluator = Engine(lambda engine, batch: engine.state.metrics.update(next(coming)))
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run([0]))
    hook = {"type": "CheckpointHook", "save_best": [one, other], "rule": "greater"}
    runner = attach_hooks(trainer, [hook], work_dir=tmp_path, evaluators=evaluator)
    trainer.run(BATCHES, max_epochs=3)
    for metric, epoch in ((one, 1), (other, 3)):
        assert opened(tmp_path / runner.best[metric].file)["meta"]["epoch"] == epoch
    assert len([name for name in names(tmp_path) if name.startswith("best")]) == 2


@pytest.mark.parametrize("keep", [1, 2])
@pytest.mark.parametrize("by_new_best", [True, False])
def test_best_files_do_not_pile_up_over_preemptions(keep: int, by_new_best: bool, tmp_path: Path) -> None:
    """Each time the run is killed right after its best file, and continues from that."""
    hook = {"type": "CheckpointHook", "keep_best": keep, "save_last": False, "interval": 1 if by_new_best else 100}
    for session in range(6):
        trained(tmp_path, hook, scores=[session], epochs=session + 1, resume="auto")
        for path in tmp_path.glob("epoch_*.pth"):
            path.unlink()
        assert len([name for name in names(tmp_path) if name.startswith("best")]) <= keep + 1
    trained(tmp_path, hook, scores=[0], epochs=7, resume="auto")
    assert f"best_accuracy_epoch_{session + 1}.pth" in names(tmp_path)


def test_a_run_resumed_from_earlier_keeps_best_files_it_has_not_reached(tmp_path: Path) -> None:
    hook = {"type": "CheckpointHook", "max_keep_ckpts": -1}
    trained(tmp_path, hook, scores=[1, 2, 3, 4])
    trained(tmp_path, hook, scores=[5], epochs=2, resume="epoch_1.pth")
    assert [name for name in names(tmp_path) if "best" in name] == [
        "best_accuracy_epoch_2.pth",
        "best_accuracy_epoch_4.pth",
    ]
    trained(tmp_path, hook, scores=[4, 4, 4], epochs=5, resume="epoch_2.pth")
    assert [name for name in names(tmp_path) if "best" in name] == ["best_accuracy_epoch_2.pth"]


def test_two_hooks_that_rank_one_metric_share_their_files(tmp_path: Path) -> None:
    hooks = [{"type": "CheckpointHook", "name": f"keep{n}", "keep_best": n, "interval": 100} for n in (1, 3)]
    trained(tmp_path, *hooks, scores=[1, 2, 3, 4])
    assert [name for name in names(tmp_path) if "best" in name] == [f"best_accuracy_epoch_{n}.pth" for n in (2, 3, 4)]


# -- slim files for release --------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", ["state_dict", ["meta", "state_dict"]])
def test_last_and_best_are_published_with_hashed_names(keys: Any, tmp_path: Path) -> None:
    trained(tmp_path, {"type": "CheckpointHook", "published_keys": keys}, scores=[1, 3, 2])
    slim = sorted(path for path in tmp_path.glob("*-????????.pth"))
    assert [path.name.rpartition("-")[0] for path in slim] == ["best_accuracy_epoch_2", "last"]
    for path in slim:
        assert path.stem.rpartition("-")[2] == hashlib.sha256(path.read_bytes()).hexdigest()[:8]
        assert [*opened(path)] == ([keys] if isinstance(keys, str) else keys)
        whole = opened(tmp_path / f"{path.name.rpartition('-')[0]}.pth")
        assert torch.equal(opened(path)["state_dict"]["weight"], whole["state_dict"]["weight"])


def test_missing_published_keys_are_reported_and_published_files_never_resumed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hook = {"type": "CheckpointHook", "published_keys": ["state_dict", "ema"], "save_best": False}
    trained(tmp_path, hook)
    assert "published_keys: last.pth holds no ema" in caplog.text
    for name in ("last.pth", "epoch_1.pth"):
        (tmp_path / name).unlink()
    with pytest.raises(CheckpointError, match=r"no checkpoint in .* can be used"):
        trained(tmp_path, hook, epochs=2, resume="auto")


# -- a run that fails --------------------------------------------------------------------------------------------


class Broken(Exception):
    """What the runs here fail with."""


@pytest.mark.parametrize("stopped", [False, True])
def test_files_of_failures_go_with_the_end_of_a_run_that_saves_no_last(stopped: bool, tmp_path: Path) -> None:
    class At:
        def after_train_iter(self, runner: Any) -> None:
            if runner.global_step == 5 and not runner.resumed_from:
                raise Broken
            if runner.global_step == 8 and stopped:
                runner.stop("for a test")

    hook = {"type": "CheckpointHook", "by_epoch": False, "interval": 100, "start": 3, "save_last": False}
    with pytest.raises(HookError):
        trained(tmp_path, hook, At(), epochs=3)
    assert names(tmp_path) == ["iter_3.pth", "exception_iter_5.pth"]
    trained(tmp_path, hook, At(), epochs=3, resume="auto")
    assert names(tmp_path) == ["iter_3.pth", *(["exception_iter_5.pth"] if stopped else [])]


def failing_run(folder: Path, where: str, **settings: Any) -> tuple[Any, nn.Module, list[dict[str, Any]]]:
    """Return a run that fails at its fifth iteration, and the weights after each finished iteration."""
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

    def step(engine: Engine, batch: Any) -> float:
        last = engine.state.iteration == 5
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        if last and where == "before the optimizer":
            raise Broken
        optimizer.step()
        if last and where == "after the optimizer":
            raise Broken
        return loss.item()

    def data() -> Iterator[Any]:
        for index in range(9):
            if index == 4 and where == "in the data":
                raise Broken
            yield BATCHES[index % 3]

    trainer, good = Engine(step), []
    keep = lambda: good.append({name: value.clone() for name, value in model.state_dict().items()})  # noqa: E731
    trainer.add_event_handler(Events.ITERATION_COMPLETED, keep)

    @trainer.on(Events.ITERATION_COMPLETED(once=5))
    def fail() -> None:
        if where == "in a handler":
            raise Broken
        if where == "in a handler, with broken weights":
            with torch.no_grad():
                model[0].weight[0, 0] = NAN
            raise Broken

    hook = {"type": "CheckpointHook", **settings}
    runner = attach_hooks(trainer, [hook], work_dir=folder, model=model, optimizer=optimizer)
    with pytest.raises(Broken):
        trainer.run(data(), max_epochs=1, epoch_length=9)
    return runner, model, good


@pytest.mark.parametrize(
    ("where", "saved"),
    [
        ("before the optimizer", 4),
        ("after the optimizer", None),
        ("in the data", 4),
        ("in a handler", 5),
        ("in a handler, with broken weights", None),
    ],
)
def test_a_run_that_fails_saves_the_last_good_state(where: str, saved: int | None, tmp_path: Path) -> None:
    _, model, good = failing_run(tmp_path, where)
    assert names(tmp_path) == ([] if saved is None else [f"exception_iter_{saved}.pth"])
    if saved is not None:
        state = opened(tmp_path / names(tmp_path)[0])
        assert (state["meta"]["iter"], state["trainer"]["iteration"]) == (saved, saved)
        for name, _ in model.named_parameters():
            assert torch.equal(state["state_dict"][name], good[saved - 1][name])
        assert all(entry["step"] == saved for entry in state["optimizer"]["state"].values())


def test_a_failure_does_not_save_a_saved_iteration_again(tmp_path: Path) -> None:
    failing_run(tmp_path, "before the optimizer", by_epoch=False, interval=2)
    assert names(tmp_path) == ["iter_2.pth", "iter_4.pth"]


def test_a_torn_state_is_reported_and_not_saved(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    failing_run(tmp_path, "after the optimizer", by_epoch=False, interval=3)
    assert names(tmp_path) == ["iter_3.pth"]
    reason = "the run failed after the optimizer had begun to change it"
    assert f"the state of iteration 4 is not saved: {reason}" in caplog.messages


def test_save_on_exception_can_be_disabled_and_ignores_stopped_runs(tmp_path: Path) -> None:
    failing_run(tmp_path / "off", "in a handler", save_on_exception=False)
    assert names(tmp_path / "off") == []
    _, trainer = trained(tmp_path / "stopped", "CheckpointHook")
    assert "exception" not in "".join(names(tmp_path / "stopped"))
    assert trainer.state.iteration == 3


def test_a_failed_run_resumes_there_and_leaves_one_exception_file(tmp_path: Path) -> None:
    failing_run(tmp_path, "in a handler")
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    trainer = Engine(lambda engine, batch: optimizer.step() or batch)
    runner = attach_hooks(
        trainer, ["CheckpointHook"], work_dir=tmp_path, model=model, optimizer=optimizer, resume="auto"
    )

    @trainer.on(Events.ITERATION_COMPLETED(once=8))
    def fail() -> None:
        raise Broken

    with pytest.raises(Broken):
        trainer.run([1] * 9, max_epochs=1)
    assert runner.state.resumed_from == tmp_path / "exception_iter_5.pth"
    assert names(tmp_path) == ["exception_iter_5.pth", "exception_iter_8.pth"]


# -- beside the training -----------------------------------------------------------------------------------------


def test_async_and_synchronous_saves_leave_the_same_files(tmp_path: Path) -> None:
    for mode in (True, False):
        torch.manual_seed(0)
        hook = {"type": "CheckpointHook", "async_save": mode, "max_keep_ckpts": 2, "keep_best": 2}
        trained(tmp_path / str(mode), hook, scores=[2, 1, 3, 5, 4])
    assert names(tmp_path / "True") == names(tmp_path / "False")
    for name in names(tmp_path / "True"):
        one, other = opened(tmp_path / "True" / name), opened(tmp_path / "False" / name)
        assert one.keys() == other.keys()
        assert torch.equal(one["state_dict"]["weight"], other["state_dict"]["weight"])
        own = {"time": "", "settings": {}, "run": ""}
        assert one["meta"] | own == other["meta"] | own
        for key in ("exp_avg", "exp_avg_sq", "step"):
            assert torch.equal(one["optimizer"]["state"][0][key], other["optimizer"]["state"][0][key])


def test_after_save_checkpoint_comes_when_the_file_is_there(tmp_path: Path) -> None:
    seen: list[tuple[str, bool]] = []

    class Look(BaseHook):
        def after_save_checkpoint(self, path: Path) -> None:
            seen.append((path.name, path.exists()))

    trained(tmp_path, {"type": "CheckpointHook", "save_best": False}, Look(), epochs=3)
    assert seen == [(f"epoch_{n}.pth", True) for n in (1, 2, 3)] + [("last.pth", True)]


# -- when the best cannot be found -------------------------------------------------------------------------------


def test_explicit_save_best_without_evaluation_is_refused_before_attaching(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        trained(tmp_path, {"type": "CheckpointHook", "save_best": True})
    message = "nothing evaluates: pass val_loader=... or evaluators=... to attach_hooks(), or add an EvalHook"
    assert str(caught.value) == f"hooks[0].save_best: {message}"


def test_default_save_best_is_off_without_evaluation(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    trained(tmp_path, "CheckpointHook", epochs=3)
    assert [message for message in caplog.messages if "save_best" in message] == ["save_best is off: nothing evaluates"]


def test_default_save_best_is_off_without_the_metric(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    trained(tmp_path, "CheckpointHook", scores=[1, 2, 3], metric="f1")
    lines = [message for message in caplog.messages if "save_best" in message]
    assert lines == ["save_best is off: no metric 'accuracy': there are f1, val_f1, loss"]
    assert names(tmp_path) == ["last.pth", "epoch_1.pth", "epoch_2.pth", "epoch_3.pth"]


def test_a_named_metric_that_is_missing_lists_those_available(tmp_path: Path) -> None:
    with pytest.raises(HookError, match=r"no metric 'val_acuracy': there are .* \(did you mean 'val_accuracy'\?\)"):
        trained(tmp_path, {"type": "CheckpointHook", "best_metric": "val_acuracy", "rule": "max"}, scores=[1])


def test_a_metric_of_a_later_evaluator_is_awaited(tmp_path: Path) -> None:
    val, hard = (Engine(lambda e, batch: e.state.metrics.update({"f1": e.state.iteration * 0.5})) for _ in range(2))
    trainer = Engine(lambda engine, batch: None)
    hook = {"type": "CheckpointHook", "best_metric": "f1"}
    runner = attach_hooks(trainer, [hook], evaluators={"val": val, "val_hard": hard}, work_dir=tmp_path)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: hard.run([0]))
    trainer.add_event_handler(Events.EPOCH_COMPLETED(every=2), lambda: val.run([0]))
    trainer.run([1], max_epochs=2)
    assert runner.best["f1"].epoch == 2


def test_a_metric_of_unknown_direction_asks_for_the_rule_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        trained(tmp_path, {"type": "CheckpointHook", "best_metric": "mode_quality"}, scores=[1])
    wanted = "cannot tell whether a higher or lower 'mode_quality' is better: set rule to 'greater' or 'less'"
    assert f"hooks[0].rule: {wanted}" in str(caught.value)


@pytest.mark.parametrize(("metric", "best"), [("val_loss", 1), ("accuracy", 2)])
def test_a_metric_without_a_rule_is_ranked_by_its_name(metric: str, best: int, tmp_path: Path) -> None:
    name = metric.removeprefix("val_")
    runner, _ = trained(tmp_path, {"type": "CheckpointHook", "best_metric": metric}, scores=[1, 2], metric=name)
    # `loss` itself is the loss of training, so that only `val_loss` is the evaluation's.
    assert runner.best[metric].epoch == best


def test_opposite_rules_for_one_metric_are_refused(tmp_path: Path) -> None:
    hooks = [{"type": "CheckpointHook", "rule": "less"}, {"type": "EvalHook", "dataloader": [0]}]
    message = r"'accuracy' counts as better when higher here, but when lower in hooks\[0\]"
    with pytest.raises(ConfigError, match=message):
        trained(tmp_path, *hooks, scores=[1])


# -- settings that cannot be -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_keep_ckpts": 0}, "hooks[0].max_keep_ckpts: 0 would keep nothing: give 1 or more, or -1 to keep all"),
        ({"max_keep_ckpts": -2}, "hooks[0].max_keep_ckpts: a whole number of at least -1 is needed, not -2"),
        ({"interval": 0}, "hooks[0].interval: a whole number of at least 1 is needed, not 0"),
        ({"interval": "2"}, "hooks[0].interval: a whole number of at least 1 is needed, not '2'"),
        ({"rule": "best"}, "hooks[0].rule: 'greater', 'less', 'max', 'min' or 'auto' is needed, not 'best'"),
        ({"out_dir": "../x"}, "hooks[0].out_dir: '../x' leaves the work directory"),
        ({"save_bst": True}, "hooks[0].save_bst: not a setting of CheckpointHook, did you mean 'save_best'?"),
    ],
)
def test_wrong_settings_are_refused_with_their_place(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        trained(tmp_path, {"type": "CheckpointHook", **settings})
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "template",
    [
        *["../{}.pth", "a/{}.pth", "/tmp/{}.pth", "..\\{}.pth", ".{}.pth", "\0{}.pth", "{:/>5}.pth"],
        *["last.pth", "epoch.pth", "{}_{}.pth", "{{}}.pth", ""],
        *["{0}.pth", "{epoch}.pth", "{0.__class__}.pth", "{.real}.pth", "{[0]}.pth", "{:{}}.pth", "{", "}", "{!x}"],
        *["epoch {}.pth", "epoch_{}.pth\n", "épo\u200b_{}.pth", "{:5d}.pth", "{:0300d}.pth", "manifest.json{}"],
    ],
)
def test_a_template_without_valid_names_is_refused(template: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        trained(tmp_path, {"type": "CheckpointHook", "filename_tmpl": template})
    assert str(caught.value).startswith("hooks[0].filename_tmpl: ")
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match=r"^filename_tmpl: "):
        CheckpointHook(filename_tmpl=template)


@pytest.mark.parametrize("template", ["epoch_{}.pth", "model_{:04d}.pth", "{}", "run=1+{}@home.pth", "{:x}.pth"])
def test_other_templates_are_taken(template: str) -> None:
    assert CheckpointHook(filename_tmpl=template).filename_tmpl == template


# -- failure -----------------------------------------------------------------------------------------------------


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let every save of these files fail as on a full disk."""

    def fill(*starts: str) -> None:
        write = HashingFile.write

        def fail(self: HashingFile, data: Any) -> int:
            if any(f"/.tmp-{start}" in os.readlink(f"/proc/self/fd/{self._descriptor}") for start in starts):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(self, data)

        monkeypatch.setattr(HashingFile, "write", fail)

    return fill


def test_a_failed_periodic_save_is_reported_and_the_run_continues(
    full_disk: Callable[..., None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    full_disk("epoch_2", "epoch_3")
    trained(tmp_path, {"type": "CheckpointHook", "max_keep_ckpts": 1}, epochs=3)
    assert names(tmp_path) == ["last.pth", "epoch_1.pth"]
    assert "cannot save epoch_2.pth: disk full, needs " in caplog.text
    assert "; the run continues without it" in caplog.text
    assert "checkpoints that could not be saved: 2" in caplog.text


def test_a_failed_best_save_keeps_the_former_best(
    full_disk: Callable[..., None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    full_disk("best_accuracy_epoch_2")
    runner, _ = trained(tmp_path, {"type": "CheckpointHook", "max_keep_ckpts": 1}, scores=[1, 2])
    assert names(tmp_path) == ["last.pth", "epoch_2.pth", "best_accuracy_epoch_1.pth"]
    assert (runner.best["accuracy"].score, runner.best["accuracy"].file) == (2, None)
    assert "cannot save best_accuracy_epoch_2.pth" in caplog.text
    trained(tmp_path, {"type": "CheckpointHook", "max_keep_ckpts": 1}, scores=[3], resume="auto", epochs=3)
    assert names(tmp_path) == ["last.pth", "epoch_3.pth", "best_accuracy_epoch_3.pth"]


def test_a_last_save_that_fails_ends_no_run_that_has_saved(
    full_disk: Callable[..., None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    full_disk("last")
    runner, _ = trained(tmp_path, "CheckpointHook")
    assert names(tmp_path) == ["epoch_1.pth"]
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert line.startswith("cannot save last.pth: disk full")
    assert "the run ends without its last state (saves that failed: 1): its newest checkpoint is epoch_1.pth" in line
    assert (
        runner.report()
        .findings["CheckpointHook"][0]
        .startswith("1 save failed: last.pth; the last: cannot save last.pth")
    )


def test_a_run_of_which_nothing_is_saved_fails(full_disk: Callable[..., None], tmp_path: Path) -> None:
    full_disk("last", "epoch")
    with pytest.raises(HookError, match=r"CheckpointHook\.after_train failed .* cannot save last\.pth: disk full"):
        trained(tmp_path, "CheckpointHook")
    assert names(tmp_path) == []


def test_a_resumed_run_that_saves_nothing_has_what_it_resumed_from(
    full_disk: Callable[..., None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trained(tmp_path, "CheckpointHook")
    full_disk("last", "epoch")
    trained(tmp_path, "CheckpointHook", resume="auto", epochs=2)
    assert "its newest checkpoint is last.pth" in caplog.text


def test_a_failed_deletion_is_reported_and_the_run_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    unlink = Path.unlink

    def refuse(self: Path, missing_ok: bool = False) -> None:
        if self.name.startswith(("epoch_", "best_")):
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        unlink(self, missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    trained(tmp_path, {"type": "CheckpointHook", "max_keep_ckpts": 1}, scores=[1, 2])
    assert "cannot delete checkpoints: Permission denied" in caplog.text
    assert (tmp_path / "last.pth").exists()


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Return an event before which no file is written."""
    opened, original = threading.Event(), store_folder.write_state

    def wait_and_write(*arguments: Any) -> tuple[int, str]:
        assert opened.wait(60)
        return original(*arguments)

    monkeypatch.setattr(store_folder, "write_state", wait_and_write)
    yield opened
    opened.set()


def many_saves(folder: Path, disk: threading.Event, **settings: Any) -> Any:
    """Return the runner of five iterations, each saved, on a disk that is slow until before the last."""
    model = nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    trainer = create_supervised_trainer(model, optimizer, nn.CrossEntropyLoss())
    hook = {"type": "CheckpointHook", "by_epoch": False, "max_keep_ckpts": -1, "save_best": False, **settings}
    runner = attach_hooks(trainer, [hook], work_dir=folder, model=model, optimizer=optimizer)

    def free() -> None:
        disk.set()
        runner.checkpoints.wait_until_finished()

    trainer.add_event_handler(Events.ITERATION_STARTED(once=5), free)
    trainer.run([BATCHES[0]] * 5, max_epochs=1)
    return runner


def test_with_skip_what_would_wait_is_left_out_and_listed(
    slow_disk: threading.Event, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runner = many_saves(tmp_path, slow_disk, when_busy="skip")
    assert sorted(names(tmp_path)) == ["iter_1.pth", "iter_2.pth", "iter_5.pth", "last.pth"]
    assert caplog.text.count("is left out") == 1
    (line,) = runner.report().findings["CheckpointHook"]
    assert line.startswith("2 saves left out (when_busy: skip)")
    assert line.endswith("iter_3.pth, iter_4.pth")


def skip_together(work_dir: str) -> list[str]:
    """Return what the report of a rank lists, after a run in which rank 0 alone knows that a save would wait."""
    opened, original = threading.Event(), store_folder.write_state

    def wait_and_write(*arguments: Any) -> tuple[int, str]:
        assert opened.wait(60)
        return original(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_folder, "write_state", wait_and_write)
        return list(many_saves(Path(work_dir), opened, when_busy="skip").report().findings["CheckpointHook"])


@pytest.mark.slow
def test_ranks_leave_out_the_same_saves(tmp_path: Path) -> None:
    first, second = run_ranks(skip_together, str(tmp_path))
    assert first == second
    assert first[0].endswith(" iter_3.pth, iter_4.pth")
    assert sorted(names(tmp_path)) == ["iter_1.pth", "iter_2.pth", "iter_5.pth", "last.pth"]


def test_by_default_every_save_waits_and_a_long_wait_is_said_once(
    slow_disk: threading.Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    original = Buffers.acquire

    def acquire(self: Buffers, *arguments: Any, **more: Any) -> Any:
        before, buffer = self.waited, original(self, *arguments, **more)
        # Whatever it has really waited.
        self.waited = before + 7.2
        return buffer

    slow_disk.set()
    monkeypatch.setattr(Buffers, "acquire", acquire)
    runner = many_saves(tmp_path, slow_disk)
    assert len(names(tmp_path)) == 6
    assert caplog.text.count("iter_1.pth waited 7.2 s for the checkpoint before it to be written") == 1
    assert caplog.text.count("to be written") == 1
    (line,) = runner.report().findings["CheckpointHook"]
    assert line.startswith("training waited 36.0 s in 5 saves")


def test_an_unwritable_folder_fails_before_the_training(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(HookError, match=r"CheckpointHook\.before_run failed at epoch 0, iteration 0: .*taken"):
        trained(tmp_path, {"type": "CheckpointHook", "out_dir": "taken"})


def test_a_folder_in_which_another_run_saves_is_refused(tmp_path: Path) -> None:
    with FolderStore(tmp_path), pytest.raises(HookError, match=rf"is in use by process {os.getpid()} on "):
        trained(tmp_path, "CheckpointHook")


def test_an_epoch_stopped_halfway_gets_no_file(tmp_path: Path) -> None:
    trainer = Engine(lambda engine, batch: None)
    runner = attach_hooks(trainer, ["CheckpointHook"], work_dir=tmp_path)
    trainer.add_event_handler(Events.ITERATION_COMPLETED(once=5), lambda: runner.stop("enough"))
    trainer.run([1, 2, 3], max_epochs=3)
    assert names(tmp_path) == ["last.pth", "epoch_1.pth"]
    assert runner.stop_reason == "enough"


def test_the_plan_foresees_what_is_called_at_a_save(tmp_path: Path) -> None:
    from ignite_hooks import BaseHook

    seen: list[tuple[str, int]] = []

    class Looker(BaseHook):
        def before_save_checkpoint(self, runner: Any) -> None:
            seen.append(("before_save_checkpoint", runner.global_step))

    runner, _ = trained(tmp_path, {"type": "CheckpointHook", "interval": 2}, Looker(), epochs=5)
    assert seen == [("before_save_checkpoint", 6), ("before_save_checkpoint", 12), ("before_save_checkpoint", 15)]
    assert "epoch_{}.pth or iter_{}.pth, best_<metric>_epoch_<N>.pth, last.pth" in str(runner.plan)


def test_other_ranks_write_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ignite.distributed as idist

    monkeypatch.setattr(idist, "get_rank", lambda: 1)
    trained(tmp_path, {"type": "CheckpointHook", "max_keep_ckpts": 1}, scores=[1, 2, 3])
    assert not list(tmp_path.iterdir())


def test_its_configuration_file_says_every_default_and_runs(tmp_path: Path) -> None:
    from ignite_hooks import load_config
    from ignite_hooks.plan.settings_digest import fields_of

    path = Path(__file__).parents[2] / "configs/checkpoint_hook.yaml"
    assert path.read_text().startswith("# yaml-language-server: $schema=schema.json\n")
    entry: Any = load_config(path)["hooks"][-1]
    fields = {f.name: f.default for f in fields_of(CheckpointHook) or () if f.init and f.name != "priority"}
    assert {"type": "CheckpointHook", **fields} == dict(entry)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trainer = create_supervised_trainer(model, optimizer, nn.CrossEntropyLoss())
    attach_hooks(trainer, path, model=model, optimizer=optimizer, val_loader=BATCHES, work_dir=tmp_path)
    trainer.run(BATCHES, max_epochs=1)
    assert names(tmp_path) == ["last.pth", "epoch_1.pth", "best_accuracy_epoch_1.pth"]


def test_a_new_run_sets_earlier_checkpoints_aside(tmp_path: Path) -> None:
    def train(epochs: int, resume: Any = None) -> Any:
        tiny = tiny_run()
        trainer, data, model = tiny.trainer, tiny.data, tiny.model
        runner = attach_hooks(trainer, ["CheckpointHook"], work_dir=tmp_path, model=model, resume=resume)
        trainer.run(data, max_epochs=epochs)
        return runner

    def names(folder: Path) -> set[str]:
        return {path.name for path in folder.glob("*.pth")}

    train(4)
    train(2)
    assert names(tmp_path) == {"epoch_1.pth", "epoch_2.pth", "last.pth"}
    assert names(tmp_path / "earlier-1") == {"epoch_1.pth", "epoch_2.pth", "epoch_3.pth", "epoch_4.pth", "last.pth"}
    assert train(3, resume="auto").state.resumed_from.parent == tmp_path
    assert not (tmp_path / "earlier-2").exists(), "a run that is resumed goes on in its folder"
    earlier = FolderStore(tmp_path / "earlier-1")
    assert [earlier.verify(entry) for entry in earlier.entries()] == [None] * 5


# -- the best by what the trainer measures ------------------------------------------------------------------------


def falling(losses: Sequence[float], folder: Path, *hooks: Any, **options: Any) -> Any:
    """Run one epoch for each loss, of two iterations that return it; nothing evaluates."""
    model = nn.Linear(1, 1)
    trainer = Engine(lambda engine, batch: losses[engine.state.epoch - 1])
    runner = attach_hooks(trainer, list(hooks), work_dir=folder, model=model, **options)
    trainer.run([0, 0], max_epochs=len(losses))
    return runner


@pytest.mark.parametrize("named", [{"best_metric": "train_loss"}, {"save_best": "train_loss"}], ids=str)
@pytest.mark.parametrize("by_epoch", [True, False])
def test_the_training_loss_can_be_ranked_without_an_evaluation(named: Any, by_epoch: bool, tmp_path: Path) -> None:
    hook = {"type": "CheckpointHook", "by_epoch": by_epoch, **named}
    runner = falling([3.0, 1.0, 2.0], tmp_path, hook)
    assert runner.best["train_loss"].score == 1.0
    count = "epoch_2" if by_epoch else "iter_3"
    assert [path.name for path in tmp_path.glob("best_*")] == [f"best_train_loss_{count}.pth"]


def test_the_training_loss_is_ranked_beside_an_evaluator_that_nothing_runs(tmp_path: Path) -> None:
    hook = {"type": "CheckpointHook", "save_best": "train_loss"}
    runner = falling([3.0, 1.0, 2.0], tmp_path, hook, evaluators=Engine(lambda engine, batch: None))
    assert runner.best["train_loss"].score == 1.0


def test_a_training_metric_that_nobody_measures_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(HookError, match="no metric 'train_accuracy'"):
        falling([3.0], tmp_path, {"type": "CheckpointHook", "save_best": "train_accuracy"})


def test_the_training_loss_stops_a_run_without_an_evaluation(tmp_path: Path) -> None:
    hook = {"type": "EarlyStoppingHook", "monitor": "train_loss", "patience": 2, "restore_best_weights": False}
    runner = falling([3.0, 1.0, 2.0, 2.5, 0.5], tmp_path, hook)
    assert runner.epoch == 4
    assert runner.stop_reason == "train_loss has not improved for 2 evaluations, best 1 in epoch 2"
