"""Losses between two lines, and what counts as a number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from ignite.engine import Engine

from ignite_hooks import BaseHook, attach_hooks
from ignite_hooks.hooks.training.lambda_hook import LambdaHook
from ignite_hooks.measure.losses import INTERVALS_KEPT, LossReporter, Window, losses_of


@pytest.mark.parametrize(
    ("output", "found"),
    [
        (0.5, {"loss": 0.5}),
        (3, {"loss": 3}),
        (True, {}),
        (None, {}),
        ("text", {}),
        ((1.0, 2.0), {}),
        ({"loss": 1.0, "acc": 0.5, "pred": torch.zeros(3), "name": "x"}, {"loss": 1.0, "acc": 0.5}),
        (torch.zeros(2), {}),
    ],
)
def test_losses_are_found_in_the_output_of_a_step(output: Any, found: dict[str, Any]) -> None:
    assert losses_of(output) == found


def test_losses_are_not_fetched_between_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: torch.Tensor, *args: Any) -> Any:
        raise AssertionError("a device was waited for")

    window = Window()
    with monkeypatch.context() as patched:
        for method in ("item", "__float__", "tolist", "__bool__", "cpu"):
            patched.setattr(torch.Tensor, method, refuse)
        for value in (1.0, 3.0):
            window.add({"loss": torch.tensor(value), "aux": torch.tensor(2.0)})
    assert window.means() == {"loss": 2.0, "aux": 2.0}


def test_all_losses_are_fetched_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = []
    whole = torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "tolist", lambda self: fetched.append(len(self)) or whole(self))
    monkeypatch.setattr(torch.Tensor, "item", None)
    window = Window()
    window.add({name: torch.tensor(1.0) for name in "abc"})
    assert window.means() == {"a": 1.0, "b": 1.0, "c": 1.0}
    assert fetched == [3]


def test_a_kept_loss_does_not_keep_its_graph() -> None:
    window, weight = Window(), torch.ones(3, requires_grad=True)
    window.add((weight * 2).sum())
    (kept,) = window.rows
    assert kept["loss"].grad_fn is None


@pytest.mark.parametrize(
    "values",
    [
        [1.0, torch.tensor(3.0)],
        [torch.tensor([1.0]), torch.tensor(3.0)],
        [torch.tensor(1), torch.tensor(3.0)],
        [torch.tensor(1.0, dtype=torch.float64), 3],
        [numpy.float64(1.0), 3],
    ],
)
def test_losses_may_change_their_kind(values: list[Any]) -> None:
    window = Window()
    for value in values:
        window.add(value)
    assert window.means() == {"loss": 2.0}


def test_a_rare_loss_is_averaged_over_its_own_values() -> None:
    window = Window()
    for output in ({"loss": 1.0}, {"loss": 2.0, "aux": torch.tensor(4.0)}, {"loss": torch.tensor(3.0)}):
        window.add(output)
    assert window.means() == {"loss": 2.0, "aux": 4.0}


# -- one window for several hooks ------------------------------------------------------------------------------


class Reads(BaseHook):
    """Reports the losses of a run at its own interval, and may fail."""

    def __init__(self, name: str, interval: int, fails_at: int = -1, **settings: Any) -> None:
        super().__init__(name=name, on_error="disable", **settings)
        self.losses, self.reports_every, self.fails_at = LossReporter(interval), interval, fails_at
        self.seen: dict[int, Any] = {}

    def before_run(self, runner: Any) -> None:
        self.losses.begin(runner)

    def after_train_iter(self) -> None:
        runner = self.runner
        if runner.global_step == self.fails_at:
            raise OSError("broken")
        self.losses.add(runner.outputs)
        if runner.global_step % self.reports_every == 0 and (found := self.losses.report(runner)):
            self.seen[found.step] = found.losses.get("loss")

    def cleanup(self) -> None:
        self.losses.end()


def read_by(folder: Path, *hooks: Reads, iterations: int = 12, output: Any = float) -> list[dict[int, Any]]:
    """Run an engine whose loss is its iteration, and return what each hook has seen."""
    trainer = Engine(lambda engine, batch: output(engine.state.iteration))
    attach_hooks(trainer, list(hooks), work_dir=folder)
    trainer.run(range(iterations), max_epochs=1)
    return [hook.seen for hook in hooks]


@pytest.mark.parametrize("output", [float, torch.tensor, lambda n: {"loss": float(n)}], ids=["float", "tensor", "dict"])
def test_each_hook_may_have_its_own_interval(output: Any, tmp_path: Path) -> None:
    seen = read_by(tmp_path, Reads("a", 4), Reads("b", 4), Reads("c", 6), Reads("d", 1), output=output)
    assert seen[0] == seen[1] == {4: 2.5, 8: 6.5, 12: 10.5}
    assert seen[2] == {6: 3.5, 12: 9.5}
    assert seen[3] == {n: n for n in range(1, 13)}


def test_a_loss_is_kept_once_for_all_hooks(tmp_path: Path) -> None:
    hooks = [Reads(name, 100) for name in "abcde"]
    kept: list[int] = []
    look = LambdaHook(after_train=lambda: kept.extend(len(hook.losses._rows) for hook in hooks if hook.losses.records))
    trainer = Engine(lambda engine, batch: 0.5)
    attach_hooks(trainer, [*hooks, look], work_dir=tmp_path)
    trainer.run(range(30), max_epochs=1)
    assert kept == [30]
    assert len({id(hook.losses._rows) for hook in hooks}) == 1


def test_equal_means_are_fetched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = []
    whole = torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "tolist", lambda self: fetched.append(1) or whole(self))
    read_by(tmp_path, *(Reads(name, 4) for name in "abcde"), output=torch.tensor)
    assert len(fetched) == 3


@pytest.mark.parametrize("broken", ["a", "b"])
def test_a_disabled_hook_does_not_stop_the_losses_of_others(broken: str, tmp_path: Path) -> None:
    a, b = (Reads(name, 4, fails_at=5 if name == broken else -1) for name in "ab")
    seen = dict(zip("ab", read_by(tmp_path, a, b), strict=True))
    assert seen.pop(broken) == {4: 2.5}
    [left] = seen.values()
    assert left.keys() == {4, 8, 12}
    assert (left[4], left[12]) == (2.5, 10.5)


def test_losses_do_not_pile_up_for_a_disabled_hook(tmp_path: Path) -> None:
    off, on = Reads("off", 4, fails_at=6), Reads("on", 4)
    sizes: list[int] = []
    look = LambdaHook(after_train_iter=lambda: sizes.append(len(on.losses._rows)))
    trainer = Engine(lambda engine, batch: 0.5)
    attach_hooks(trainer, [on, off, look], work_dir=tmp_path)
    trainer.run(range(1000), max_epochs=1)
    assert max(sizes) <= 4 * (INTERVALS_KEPT + 1)


def test_a_hook_may_leave_in_the_middle_of_a_run(tmp_path: Path) -> None:
    a, b = Reads("a", 4), Reads("b", 4)
    leave = LambdaHook(after_train_iter=lambda runner: runner.remove_hook("a") if runner.global_step == 6 else None)
    trainer = Engine(lambda engine, batch: float(engine.state.iteration))
    attach_hooks(trainer, [a, b, leave], work_dir=tmp_path)
    trainer.run(range(12), max_epochs=1)
    assert b.seen == {4: 2.5, 8: 6.5, 12: 10.5}


def test_every_run_begins_with_no_losses(tmp_path: Path) -> None:
    hook = Reads("a", 2)
    trainer = Engine(lambda engine, batch: float(batch))
    attach_hooks(trainer, [hook], work_dir=tmp_path)
    trainer.run([1, 1, 1], max_epochs=1)
    trainer.run([5, 7, 9], max_epochs=1)
    assert hook.seen == {2: 6.0}
