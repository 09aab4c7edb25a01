"""`ScheduleFreeHook`: evaluation weights are seen, saved and handed on; training weights keep their bits."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Events, create_supervised_evaluator
from ignite.metrics import Loss

from ignite_hooks import BaseHook, attach_hooks
from ignite_hooks.run.runner import Runner
from ignite_hooks.testing.tiny import TinyRun, tiny_run


class ScheduleFreeSGD(torch.optim.Optimizer):
    """SGD without a schedule: a step at y, the average x for evaluations, both in one tensor (arXiv 2405.15682)."""

    def __init__(self, params: Any, lr: float = 0.5, beta: float = 0.9) -> None:
        super().__init__(params, {"lr": lr, "beta": beta, "k": 0, "train_mode": False})

    @torch.no_grad()
    def eval(self) -> None:
        self._move(False, lambda beta: 1 - 1 / beta)

    @torch.no_grad()
    def train(self) -> None:
        self._move(True, lambda beta: 1 - beta)

    def _move(self, training: bool, weight: Any) -> None:
        for group in self.param_groups:
            if group["train_mode"] is not training:
                group["train_mode"] = training
                for p in group["params"]:
                    if "z" in self.state[p]:
                        p.lerp_(self.state[p]["z"], weight(group["beta"]))

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            if not group["train_mode"]:
                raise RuntimeError("step() without train()")
            group["k"] += 1
            for p in group["params"]:
                z = self.state[p].setdefault("z", p.clone())
                p.lerp_(z, 1 / group["k"])
                p.add_(p.grad, alpha=group["lr"] * (group["beta"] * (1 - 1 / group["k"]) - 1))
                z.sub_(p.grad, alpha=group["lr"])


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether two states have the same bits."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def optimizers() -> dict[str, Any]:
    """Return the classes to try: ours, and those of the package where it is installed."""
    found: dict[str, Any] = {"ours": ScheduleFreeSGD}
    if importlib.util.find_spec("schedulefree") is not None:
        import schedulefree

        found |= {"sgd": schedulefree.SGDScheduleFree, "adamw": schedulefree.AdamWScheduleFree}
        found["wrapper"] = lambda p, lr: schedulefree.ScheduleFreeWrapper(torch.optim.SGD(p, lr=lr), momentum=0.9)
    return found


MADE = pytest.mark.parametrize("made", optimizers().values(), ids=optimizers())


def a_run(made: Any, folder: Path, *hooks: Any, train: bool = True, **more: Any) -> tuple[TinyRun, Runner]:
    """Return a run with a schedule-free optimizer, which the script never tells to train or to evaluate."""
    run = tiny_run()
    optimizer = made(run.model.parameters(), lr=0.5)

    def step(engine: Any, batch: Any) -> float:
        run.model.train()
        optimizer.zero_grad()
        loss = run.criterion(run.model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        return loss.item()

    run.trainer._process_function = step
    run.optimizer = optimizer
    services = {**run.services, "test_loader": run.val_data}
    test = create_supervised_evaluator(run.model, {"loss": Loss(run.criterion)})
    evaluators = {"val": run.evaluator, "test": test}
    runner = attach_hooks(run.trainer, list(hooks), work_dir=folder, evaluators=evaluators, **services, **more)
    if train:
        run.trainer.run(run.data, max_epochs=3)
    return run, runner


def evaluation_weights(run: TinyRun) -> dict[str, torch.Tensor]:
    """Return what the optimizer itself would put into the model."""
    before = {name: value.clone() for name, value in run.model.state_dict().items()}
    optimizer: Any = run.optimizer
    optimizer.eval()
    found = {name: value.clone() for name, value in run.model.state_dict().items()}
    optimizer.train()
    run.model.load_state_dict(before)
    return found


class Watch(BaseHook):
    """Keeps the weights that each evaluation sees."""

    def before_run(self) -> None:
        self.seen: list[Any] = []

    def before_val_iter(self, model: Any) -> None:
        self.seen.append({name: value.clone() for name, value in model.state_dict().items()})


@MADE
def test_evaluations_see_the_evaluation_weights_and_training_never_notices(made: Any, tmp_path: Path) -> None:
    watch = Watch()
    alone, _ = a_run(made, tmp_path / "alone")
    run, runner = a_run(made, tmp_path / "watched", {"type": "EvalHook", "metric": "loss"}, watch)
    assert same(dict(run.model.state_dict()), dict(alone.model.state_dict())), "the same bits as without evaluations"
    assert same(watch.seen[-1], evaluation_weights(run))
    assert not same(watch.seen[-1], dict(run.model.state_dict()))
    assert "schedule_free" in runner.hooks
    raw, averaged = runner.validate(), {}
    with runner.hooks["schedule_free"].swap():
        averaged = {name: value.clone() for name, value in run.model.state_dict().items()}
    assert same(averaged, evaluation_weights(run))
    assert raw["loss"] == pytest.approx(runner.metrics["val_loss"])


@MADE
def test_a_run_resumed_from_a_checkpoint_of_an_evaluation_is_the_same(made: Any, tmp_path: Path) -> None:
    hooks = {"type": "EvalHook", "metric": "loss"}, {"type": "CheckpointHook", "save_best": "loss"}
    whole, runner = a_run(made, tmp_path, *hooks)
    found = torch.load(tmp_path / "last.pth", weights_only=True)
    assert same(found["state_dict"], dict(whole.model.state_dict()))
    assert same(found["ema_state_dict"], evaluation_weights(whole))
    for path in (tmp_path / "epoch_2.pth", next(tmp_path.glob("best_*.pth"))):
        run, again = a_run(made, tmp_path / f"from_{path.stem}", *hooks, train=False)
        again.resume(path)
        run.trainer.run(run.data, max_epochs=3)
        assert same(dict(run.model.state_dict()), dict(whole.model.state_dict())), path.name
    assert runner.test("last", "ema") == runner.test("last")
    assert runner.test("last", "raw") != runner.test("last", "ema")


def test_a_checkpoint_of_a_script_that_calls_eval_itself_has_training_weights(tmp_path: Path) -> None:
    run, runner = a_run(ScheduleFreeSGD, tmp_path, "CheckpointHook", train=False)
    optimizer: Any = run.optimizer
    told: dict[str, Any] = {}

    @run.trainer.on(Events.EPOCH_COMPLETED)
    def evaluate() -> None:
        optimizer.eval()
        told["averages"] = {name: value.clone() for name, value in run.model.state_dict().items()}
        told["file"] = torch.load(runner.save_checkpoint("by_hand.pth"), weights_only=True)
        assert same(dict(run.model.state_dict()), told["averages"])
        optimizer.train()

    run.trainer.run(run.data, max_epochs=2)
    assert same(told["file"]["ema_state_dict"], told["averages"])
    torch.testing.assert_close(dict(run.model.state_dict()), told["file"]["state_dict"])
    assert told["file"]["optimizer"]["param_groups"][0]["train_mode"] is True


def test_the_best_weights_that_are_restored_are_evaluated_with_their_own_averages(tmp_path: Path) -> None:
    stopping = {"type": "EarlyStoppingHook", "monitor": "loss", "patience": 1, "restore_best_weights": True}
    watch = Watch()
    rising = lambda *a, **k: ScheduleFreeSGD(*a, **{**k, "lr": 40.0})  # noqa: E731
    _, runner = a_run(rising, tmp_path, {"type": "EvalHook", "metric": "loss"}, stopping, watch)
    best = runner.best["val_loss"]
    assert best.epoch < 3
    assert runner.stop_reason is not None
    assert runner.validate()["loss"] == pytest.approx(best.score)
    assert runner.test()["loss"] == pytest.approx(best.score)


def test_an_average_of_the_user_is_enough_and_other_optimizers_get_no_hook(tmp_path: Path) -> None:
    _, runner = a_run(ScheduleFreeSGD, tmp_path / "a", "EMAHook", train=False)
    assert "schedule_free" not in runner.hooks
    _, runner = a_run(torch.optim.SGD, tmp_path / "b", train=False)
    assert "schedule_free" not in runner.hooks


def test_both_weights_of_an_evaluation_can_be_chosen(tmp_path: Path) -> None:
    raw = {"type": "ScheduleFreeHook", "evaluate": "raw"}
    watch = Watch()
    run, _ = a_run(ScheduleFreeSGD, tmp_path, raw, {"type": "EvalHook", "metric": "loss"}, watch)
    assert same(watch.seen[-1], dict(run.model.state_dict()))
    _, runner = a_run(ScheduleFreeSGD, tmp_path / "b", {"type": "EvalHook", "weights": "ema"}, train=False)
    assert list(runner.hooks) == ["EvalHook", "schedule_free"]
