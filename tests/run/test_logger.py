"""The logger of a run."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import pytest
from ignite.engine import Engine

from ignite_hooks import BaseHook, attach_hooks
from ignite_hooks.run.logger import RunLogger
from ignite_hooks.testing import tiny_run
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


@pytest.mark.parametrize("way", ["nested", "in threads", "in turns"])
def test_the_log_file_of_a_run_holds_only_its_own_lines(way: str, tmp_path: Path) -> None:
    module = logging.getLogger("ignite_hooks.some.module")
    meet = threading.Barrier(2)

    class Says(BaseHook):
        def __init__(self, word: str, inner: Engine | None) -> None:
            super().__init__(name=word)
            self.word, self.inner = word, inner

        def before_train_iter(self, runner: Any) -> None:
            if way == "in threads":
                meet.wait(60)
            if self.inner is not None:
                # Once: the file of a second run would have another name, if a second has passed.
                inner, self.inner = self.inner, None
                inner.run([1])
            runner.logger.info("%s says so", self.word)
            module.warning("a module says so to %s", self.word)

        def after_train(self, runner: Any) -> None:
            # The one that began first ends first: the other goes on with its lines.
            if way == "in threads" and self.word == "right":
                done.wait(60)

        def cleanup(self, runner: Any) -> None:
            runner.logger.info("%s ends", self.word)

    done = threading.Event()
    words, trainers = ("left", "right"), [echo_trainer(), echo_trainer()]
    for word, trainer in zip(words, trainers, strict=True):
        inner = trainers[1] if way == "nested" and word == "left" else None
        attach_hooks(trainer, ["LoggerHook", Says(word, inner)], work_dir=tmp_path / word)
    if way == "in threads":
        threads = [threading.Thread(target=trainer.run, args=([1, 2],)) for trainer in trainers]
        for thread in threads:
            thread.start()
        threads[0].join(60)
        done.set()
        threads[1].join(60)
    else:
        for trainer in trainers[: 1 if way == "nested" else 2]:
            trainer.run([1, 2])
    for word, other in (words, words[::-1]):
        (file,) = (tmp_path / word / "logs").glob("*.log")
        text = file.read_text()
        for line in (f"{word} says so", f"a module says so to {word}", "run ended after 1 epoch", f"{word} ends"):
            assert line in text, line
        assert other not in text


@pytest.mark.parametrize("during", ["run", "evaluation"])
@pytest.mark.parametrize("hooks", [[], ["ReportHook"], ["LoggerHook"]], ids=str)
@pytest.mark.parametrize("notebook", [False, True])
def test_a_warning_is_shown_once_and_in_a_notebook_only_errors_are_red(
    notebook: bool,
    hooks: list[Any],
    during: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr("ignite_hooks.run.logger.in_notebook", lambda: notebook)

    class Speaks(BaseHook):
        def after_val(self, runner: Any) -> None:
            runner.logger.warning("a warning")
            runner.logger.error("an error")

    run = tiny_run()
    attach_hooks(
        run.trainer, [*hooks, "EvalHook", Speaks()], evaluators=run.evaluator, work_dir=tmp_path, **run.services
    )
    if during == "run":
        run.trainer.run(run.data, max_epochs=1)
    else:
        run.evaluator.run(run.val_data)
    said = capsys.readouterr()
    plain, red = (said.out, said.err) if notebook else (said.err, said.err)
    assert (plain.count("a warning"), red.count("an error")) == (1, 1)
    assert (said.out + said.err).count("a warning") == (said.out + said.err).count("an error") == 1
    assert logging.getLogger("ignite_hooks").handlers == []
