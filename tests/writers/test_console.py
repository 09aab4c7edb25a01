from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest
import torch

from ignite_hooks import BaseHook, attach_hooks
from ignite_hooks.measure.losses import learning_rates
from ignite_hooks.testing import tiny_run
from ignite_hooks.writers.console import ConsoleWriter, figures_in_words, rates_in_words


@pytest.fixture(autouse=True)
def _everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ignite_hooks")


def test_every_write_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    writer = ConsoleWriter()
    writer.write_scalar("points", torch.tensor(3), 7)
    writer.write_scalars({"loss": 0.1234567, "acc": 1.0}, 7, kind="val")
    writer.write_image("cat", numpy.zeros((4, 6, 3)), 8)
    writer.write_text("note", "hello", 8)
    writer.write_artifact("best.pth", kind="model")
    assert caplog.messages == [
        "iter 7  points 3",
        "iter 7  val/loss 0.123457  val/acc 1",
        "iter 8  picture cat 4 x 6 x 3",
        "iter 8  note: hello",
        "model best.pth",
    ]


def test_numbers_of_logger_hook_are_not_logged_twice(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    class Counts(BaseHook):
        def after_epoch(self, runner: object) -> None:
            runner.logger.write_scalar("points", 5, runner.global_step)  # type: ignore[attr-defined]

    run = tiny_run()
    cfg = {"hooks": [{"type": "LoggerHook", "interval": 1}, Counts()], "writers": ["ConsoleWriter"]}
    attach_hooks(run.trainer, cfg, work_dir=tmp_path, **run.services)
    run.trainer.run(run.data, max_epochs=1)
    assert [line for line in caplog.messages if line.startswith("iter")] == ["iter 3  points 5"]


def test_an_unknown_level_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"^level: debug, info or warning is needed, not 'loud'$"):
        ConsoleWriter("loud")


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        ({"time/iter": 0.0124, "time/data": 0.002}, "time  12.4 ms  data   2.0 ms"),
        ({"time/iter": 12.5, "time/data": 0.5, "time/eta": 83}, "time  12.50 s  data 500.0 ms  eta 0:01:23"),
        ({}, ""),
    ],
)
def test_figures_in_words(figures: dict[str, float], words: str) -> None:
    assert "  ".join(figures_in_words(figures)) == words


@pytest.mark.parametrize(
    ("rates", "words"),
    [
        ([0.1], "lr 1.00e-01"),
        ([0.1, 0.02], "lr 1.00e-01  lr/1 2.00e-02"),
        ([0.1, 0.2, 0.3, 0.4], "lr 1.00e-01 to 4.00e-01"),
        ([], ""),
    ],
)
def test_many_learning_rates_are_shown_as_a_range(rates: list[float], words: str) -> None:
    optimizer = SimpleNamespace(param_groups=[{"lr": torch.tensor(rate)} for rate in rates])
    assert "  ".join(rates_in_words(learning_rates(optimizer))) == words
