"""The logger of a run."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from ignite.engine import Engine

from ignite_hooks import BaseHook, attach_hooks
from ignite_hooks.run.logger import RunLogger
from ignite_hooks.writers.memory import MemoryWriter
from tests.tools import echo_trainer


def test_the_logger_is_a_standard_one_that_also_writes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    writer = MemoryWriter()

    class ThirdSeed(BaseHook):
        def after_train_iter(self, trainner: Any) -> None:
            for key, value in trainner.loss_dict.items():
                if trainner.logger:
                    trainner.logger.write_scalar(key, value, trainner.global_step)

        def after_run(self, runner: Any) -> None:
            runner.logger.warning("all %s", "done")

    trainer = Engine(lambda engine, batch: {"loss": batch, "aux": 2.0 * batch, "text": "x"})
    runner = attach_hooks(trainer, {"hooks": [ThirdSeed()], "writers": [writer]}, work_dir=tmp_path)
    trainer.run([1.0, 2.0])
    assert isinstance(runner.logger, logging.Logger)
    assert writer.scalars == [("loss", 1.0, 1), ("aux", 2.0, 1), ("loss", 2.0, 2), ("aux", 4.0, 2)]
    assert "all done" in caplog.messages


def test_a_logger_of_the_script_gets_the_lines(tmp_path: Path) -> None:
    lines: list[str] = []
    mine = logging.getLogger("tests.mine")
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    mine.addHandler(handler)
    mine.setLevel(logging.INFO)
    trainer = echo_trainer()
    attach_hooks(trainer, [], work_dir=tmp_path, logger=mine)
    trainer.run([1])
    mine.removeHandler(handler)
    assert lines == ["run ended after 1 epoch, 1 iteration"]


def test_a_later_level_of_the_parent_counts_at_once() -> None:
    parent = logging.getLogger("tests.parent")
    logger = RunLogger(parent, MemoryWriter())
    seen = []
    for level in (logging.INFO, logging.ERROR, logging.DEBUG):
        parent.setLevel(level)
        seen.append([logger.isEnabledFor(each) for each in (logging.DEBUG, logging.INFO, logging.ERROR)])
    assert seen == [[False, True, True], [False, False, True], [True, True, True]]


def test_only_methods_that_write_come_from_the_writer() -> None:
    logger = RunLogger(logging.getLogger("tests.parent"), MemoryWriter())
    logger.write_scalars({"loss": 0.5}, 3, kind="train")
    assert logger.writer.lines == [({"loss": 0.5}, 3, "train", None)]  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="'RunLogger' object has no attribute 'lines'"):
        logger.lines
    with pytest.raises(AttributeError, match="'MemoryWriter' object has no attribute 'write_poems'"):
        logger.write_poems
