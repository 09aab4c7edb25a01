"""A script that calls ``run`` pass by pass resumes where it was, and a run of unequal epochs ends where it should."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine
from torch.utils.data import DataLoader

from ignite_hooks import attach_hooks
from ignite_hooks.engine.continuing import end_as_usual, end_by_epochs


def test_a_script_that_trains_pass_by_pass_resumes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    caplog.set_level(logging.INFO, logger="ignite_hooks")

    def loop(folder: Path, log: list[Any], stop_at: int = -1) -> None:
        torch.manual_seed(len(log))

        def step(engine: Engine, batch: Any) -> None:
            log.append((engine.state.epoch, engine.state.iteration, batch.tolist(), float(torch.rand(()))))
            if engine.state.iteration == stop_at:
                raise KeyboardInterrupt

        trainer = Engine(step)
        hook = {"type": "CheckpointHook", "save_best": False, "by_epoch": False, "interval": 1}
        attach_hooks(trainer, [hook], work_dir=folder, resume="auto")
        loader = DataLoader(range(24), 8, shuffle=True)
        for epoch in range(4):
            trainer.run(loader, max_epochs=epoch + 1)

    whole: list[Any] = []
    loop(tmp_path / "whole", whole)
    for stop_at in (2, 5, 9, 11, 12):
        log: list[Any] = []
        with pytest.raises(KeyboardInterrupt):
            loop(tmp_path / str(stop_at), log, stop_at)
        del log[-1]
        loop(tmp_path / str(stop_at), log)
        assert log == whole
    assert "max_epochs=2: the resumed run has finished 3 epochs" in caplog.text


def test_a_trainer_may_end_by_its_epochs_and_is_left_as_it_was() -> None:
    trainer = Engine(lambda engine, batch: None)
    trainer.state.iteration, trainer.state.epoch, trainer.state.epoch_length, trainer.state.max_epochs = 40, 2, 4, 5
    assert trainer._is_done(trainer.state)
    end_by_epochs(trainer)
    assert not trainer._is_done(trainer.state)
    trainer.state.max_iters = 40
    assert trainer._is_done(trainer.state)
    end_as_usual(trainer)
    assert "_is_done" not in vars(trainer)
