"""`EMAHook(also=..., switch=...)`: averages of other momenta beside the one, and the average as the weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from ignite_hooks import BaseHook, ConfigError, attach_hooks
from ignite_hooks.testing import tiny_run

SAVES = {"type": "CheckpointHook", "save_best": "loss"}
EVALUATES = {"type": "EvalHook", "metric": "loss"}


def same(one: Any, other: Any) -> bool:
    """Return whether two states have the same bits."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def trained(folder: Path, ema: dict[str, Any], *hooks: Any, epochs: int = 3, resume: Path | None = None) -> Any:
    """Return the runner of a run with averages, which is over."""
    run = tiny_run()
    listed = [{"type": "EMAHook", "warm_up": 0, **ema}, EVALUATES, SAVES, *hooks]
    runner = attach_hooks(
        run.trainer, listed, work_dir=folder, evaluators={"val": run.evaluator}, resume=resume, **run.services
    )
    run.trainer.run(run.data, max_epochs=epochs)
    return runner


def read(path: Path) -> Any:
    return torch.load(path, weights_only=True)


def test_each_average_is_that_of_a_run_of_its_own(tmp_path: Path) -> None:
    both = trained(tmp_path / "both", {"momentum": 0.6, "also": {"slow": 0.95, "middle": 0.8}})
    for name, momentum in (("slow", 0.95), ("middle", 0.8)):
        alone = trained(tmp_path / name, {"momentum": momentum})
        files = [next(folder.glob("best_*.pth")) for folder in (tmp_path / name, tmp_path / "both")]
        files += [tmp_path / name / "last.pth", tmp_path / "both" / "last.pth"]
        for one, other in (files[:2], files[2:]):
            if one.name == other.name:
                assert same(read(other)["ema_state_dicts"][name], read(one)["ema_state_dict"])
        assert both.metrics[f"val_{name}_loss"] == pytest.approx(alone.metrics["val_loss"], rel=1e-12)
    assert len({both.metrics[name] for name in ("val_loss", "val_slow_loss", "val_middle_loss")}) == 3
    plain = trained(tmp_path / "plain", {"momentum": 0.6})
    assert same(dict(both.model.state_dict()), dict(plain.model.state_dict())), "the training does not notice"


def test_a_resumed_run_goes_on_with_all_averages(tmp_path: Path) -> None:
    ema = {"momentum": 0.6, "also": {"slow": 0.95}, "switch": True}
    trained(tmp_path / "whole", ema)
    trained(tmp_path / "again", ema, resume=tmp_path / "whole" / "epoch_2.pth")
    whole, again = (read(tmp_path / name / "last.pth") for name in ("whole", "again"))
    assert same(again["ema_state_dicts"]["slow"], whole["ema_state_dicts"]["slow"])
    assert same(again["ema_state_dict"], whole["ema_state_dict"])
    assert same(again["state_dict"], whole["state_dict"])


class Watch(BaseHook):
    """Keeps the weights before the first step of each epoch, and the averages at the end of each."""

    point_priority = {"before_train_epoch": 100, "after_train_epoch": 0}

    def before_run(self) -> None:
        self.began: list[Any] = []
        self.ended: list[Any] = []

    def before_train_epoch(self, model: Any) -> None:
        self.began.append({name: value.clone() for name, value in model.state_dict().items()})

    def after_train_epoch(self, runner: Any) -> None:
        averages = runner.hooks["EMAHook"].weights()["ema_state_dict"]
        self.ended.append({name: value.clone() for name, value in averages.items()})


def test_every_epoch_but_the_first_begins_with_the_average(tmp_path: Path) -> None:
    watch, other = Watch(), Watch()
    trained(tmp_path / "a", {"momentum": 0.6, "switch": True}, watch)
    assert [same(*pair) for pair in zip(watch.began[1:], watch.ended, strict=False)] == [True, True]
    trained(tmp_path / "b", {"momentum": 0.6}, other)
    assert not same(other.began[1], other.ended[0])
    assert same(watch.began[0], other.began[0])


@pytest.mark.parametrize(
    ("also", "words"),
    [
        ({}, "also: is empty"),
        ({"raw": 0.9}, "also: 'raw' is a part of names of metrics"),
        ({"a b": 0.9}, "also: 'a b' is a part of names of metrics"),
        ({"slow": 0.001}, "0.001 is not in"),
    ],
)
def test_names_and_momenta_that_cannot_be_are_refused(also: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        trained(tmp_path, {"also": also})
