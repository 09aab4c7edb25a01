from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine, Events
from ignite.metrics import Average

from ignite_hooks import HOOKS, BaseHook, Runner, attach_hooks
from ignite_hooks.hooks import logger_hook
from ignite_hooks.hooks.logger_hook import LoggerHook
from ignite_hooks.hooks.monitors.iter_timer_hook import IterTimerHook
from ignite_hooks.hooks.training.lambda_hook import LambdaHook
from ignite_hooks.run.logger import LastResort
from ignite_hooks.testing import failing_at, tiny_run
from ignite_hooks.writers.memory import MemoryWriter
from tests.tools import echo_trainer

OURS = logging.getLogger("ignite_hooks")
LINE_OF_TRAINING = re.compile(r"(Epoch|Iter) +\d")
MEASURED = re.compile(r"  time +[\d.]+ m?s(  data +[\d.]+ m?s)?(?=  eta|$)(  eta [\d:]+)?")
"""The figures that the hook measures itself, which differ from run to run."""


def attach(trainer: Engine, tmp_path: Path, *hooks: Any, **more: Any) -> tuple[Runner, MemoryWriter]:
    writer = MemoryWriter()
    return attach_hooks(trainer, {"hooks": list(hooks), "writers": [writer]}, work_dir=tmp_path, **more), writer


def training_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [MEASURED.sub("", message) for message in caplog.messages if LINE_OF_TRAINING.match(message)]


def lines_of(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, iterations: int = 4, epochs: int = 2, **settings: Any
) -> list[str]:
    """Return the lines of a run whose loss is its iteration."""
    trainer = Engine(lambda engine, batch: float(engine.state.iteration))
    attach(trainer, tmp_path, LoggerHook(**settings))
    trainer.run(range(iterations), max_epochs=epochs)
    return training_lines(caplog)


# -- which lines -----------------------------------------------------------------------------------------------


def test_a_line_shows_the_mean_since_the_line_before(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    assert lines_of(caplog, tmp_path, interval=2) == [
        "Epoch 1/2 [2/4]  loss 1.5000",
        "Epoch 1/2 [4/4]  loss 3.5000",
        "Epoch 2/2 [2/4]  loss 5.5000",
        "Epoch 2/2 [4/4]  loss 7.5000",
    ]


def test_numbers_are_as_wide_as_they_will_get(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    lines = lines_of(caplog, tmp_path, iterations=10, epochs=10, interval=50)
    assert lines[0] == "Epoch  1/10 [10/10]  loss 5.5000"
    assert lines_of(caplog, tmp_path, iterations=100, epochs=1, interval=50)[-2] == "Epoch 1/1 [ 50/100]  loss 25.500"


def test_by_epoch_averages_within_the_epoch(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    assert lines_of(caplog, tmp_path, interval=3) == [
        "Epoch 1/2 [3/4]  loss 2.0000",
        "Epoch 2/2 [2/4]  loss 5.5000",
    ]


def test_without_by_epoch_averages_span_the_run(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    assert lines_of(caplog, tmp_path, interval=3, by_epoch=False) == [
        "Iter 3/8  loss 2.0000",
        "Iter 6/8  loss 5.0000",
    ]


@pytest.mark.parametrize(
    ("settings", "places"),
    [
        ({"interval": 3, "ignore_last": False}, ["1/2 [3/4]", "1/2 [4/4]", "2/2 [2/4]", "2/2 [4/4]"]),
        ({"interval": 3, "ignore_last": False, "by_epoch": False}, ["3/8", "6/8", "8/8"]),
        ({"interval": 4, "ignore_last": False}, ["1/2 [4/4]", "2/2 [4/4]"]),
        ({"interval": 5}, ["1/2 [4/4]", "2/2 [1/4]", "2/2 [4/4]"]),
        ({"interval": 50}, ["1/2 [4/4]", "2/2 [4/4]"]),
        ({"interval": 50, "by_epoch": False}, ["8/8"]),
    ],
)
def test_lines_come_at_the_interval_and_at_ends(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, settings: dict[str, Any], places: list[str]
) -> None:
    lines = lines_of(caplog, tmp_path, **settings)
    assert [line.partition("  ")[0].split(" ", 1)[1] for line in lines] == places


def test_an_unknown_end_is_not_shown(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    trainer = echo_trainer()
    attach(trainer, tmp_path, LoggerHook(interval=1))
    trainer.run(iter([1.0, 2.0]), max_epochs=1)
    assert training_lines(caplog) == ["Epoch 1/1 [1]  loss 1.0000", "Epoch 1/1 [2]  loss 2.0000"]


# -- what is in a line -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (0.5, "  loss 0.5000"),
        (torch.tensor(0.5), "  loss 0.5000"),
        (torch.tensor([0.5]), "  loss 0.5000"),
        (torch.tensor(0.5, dtype=torch.bfloat16), "  loss 0.5000"),
        ({"loss": torch.tensor(0.5), "aux": 2.0, "name": "text"}, "  loss 0.5000  aux 2.0000"),
        ({"loss": torch.tensor(3), "y_pred": torch.zeros(4)}, "  loss 3.0000"),
        ((torch.zeros(2), torch.zeros(2)), ""),
        (None, ""),
        (float("nan"), "  loss nan"),
    ],
)
def test_the_losses_in_any_output_are_shown(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, output: Any, words: str
) -> None:
    trainer = Engine(lambda engine, batch: output)
    attach(trainer, tmp_path, LoggerHook(interval=2))
    trainer.run(range(2))
    assert training_lines(caplog) == [f"Epoch 1/1 [2/2]{words}"]


def test_learning_rates_are_shown_and_written(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    trainer, optimizer = echo_trainer(), torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    _, writer = attach(trainer, tmp_path, LoggerHook(interval=2), optimizer=optimizer)
    trainer.run([1.0, 3.0])
    assert training_lines(caplog) == ["Epoch 1/1 [2/2]  loss 2.0000  lr 1.00e-01"]
    assert writer.lines == [({"loss": 2.0, "lr": 0.1}, 2, "train", 1)]


def test_the_figures_of_the_timer_are_shown(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    hands = [0.0]
    timer = IterTimerHook(interval=2)
    timer.clock = lambda: hands[0]

    def step(engine: Engine, batch: float) -> float:
        hands[0] += 0.0124
        return batch

    trainer = Engine(step)
    attach(trainer, tmp_path, timer, LoggerHook(interval=3, ignore_last=False))
    trainer.run([1.0] * 5000, epoch_length=4, max_epochs=1)
    assert [line for line in caplog.messages if LINE_OF_TRAINING.match(line)] == [
        "Epoch 1/1 [3/4]  loss 1.0000  time  12.4 ms  data   0.0 ms  eta 0:00:00",
        "Epoch 1/1 [4/4]  loss 1.0000  time  12.4 ms  data   0.0 ms  eta 0:00:00",
    ]


def test_without_a_timer_time_and_time_left_are_measured(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    hands = [0.0]
    logger = LoggerHook(interval=2)
    logger.clock = lambda: hands[0]

    def take(seconds: float) -> float:
        hands[0] += seconds
        return 1.0

    trainer = Engine(lambda engine, batch: take(0.5))
    evaluator = Engine(lambda engine, batch: take(100.0))
    evaluation = {"type": "EvalHook", "every": "3 iter", "save_best": False}
    services = {"evaluators": evaluator, "val_loader": [1]}
    attach(trainer, tmp_path, evaluation, logger, LambdaHook(after_epoch=lambda: take(50.0) and None), **services)
    trainer.run([1.0] * 4, max_epochs=2)
    lines = [line for line in caplog.messages if LINE_OF_TRAINING.match(line)]
    assert [line.partition("  time ")[2] for line in lines] == [
        "500.0 ms  data   0.0 ms  eta 0:00:03",
        "500.0 ms  data   0.0 ms  eta 0:00:02",
        "500.0 ms  data   0.0 ms  eta 0:00:01",
        "500.0 ms  data   0.0 ms  eta 0:00:00",
    ], "neither evaluations nor the time between epochs count"


def test_a_timer_without_log_eta_decides_that_no_time_left_is_shown(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    trainer = echo_trainer()
    attach(trainer, tmp_path, IterTimerHook(log_eta=False), LoggerHook(interval=2))
    trainer.run([1.0] * 2, max_epochs=2)
    assert not [line for line in caplog.messages if " eta " in line]


# -- evaluations -----------------------------------------------------------------------------------------------


def best_so_far(metric: str, score: float, file: str | None = None) -> LambdaHook:
    """Return a hook that knows a best score of epoch 2."""

    def before_train(runner: Runner) -> None:
        runner.best.offer(metric, score, step=6, epoch=2, rule="greater")
        runner.best.name_file(metric, file)

    return LambdaHook(before_train=before_train)


def evaluated(tmp_path: Path, name: str = "val", **settings: Any) -> tuple[Runner, MemoryWriter]:
    tiny = tiny_run()
    trainer, evaluator, data, val_data = tiny.trainer, tiny.evaluator, tiny.data, tiny.val_data
    scores = iter([0.75, 0.971, 0.5])
    evaluator.add_event_handler(
        Events.EPOCH_COMPLETED,
        lambda engine: engine.state.metrics.update(
            accuracy=torch.tensor(next(scores)), loss=0.0912, matrix=torch.zeros(2, 2)
        ),
    )
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run(val_data))
    best = best_so_far("accuracy", 0.98)
    runner, writer = attach(
        trainer, tmp_path, LoggerHook(interval=1000, **settings), best, evaluators={name: evaluator}
    )
    trainer.run(data, max_epochs=3)
    return runner, writer


def test_a_test_does_not_show_the_best_validation(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    evaluated(tmp_path, name="test")
    lines = [message for message in caplog.messages if message.startswith("test")]
    assert len(lines) == 3
    assert not any("best" in line for line in lines)


def test_an_evaluation_is_shown_with_the_best(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    _, writer = evaluated(tmp_path)
    lines = [message for message in caplog.messages if message.startswith("val")]
    assert lines[:2] == [
        "val    epoch 1  accuracy 0.7500  loss 0.0912  (best accuracy 0.9800 at epoch 2)",
        "val    epoch 2  accuracy 0.9710  loss 0.0912  (best accuracy 0.9800 at epoch 2)",
    ]
    of_val = [(scalars, step, epoch) for scalars, step, kind, epoch in writer.lines if kind == "val"]
    assert of_val[1] == ({"accuracy": pytest.approx(0.971), "loss": 0.0912}, 6, 2)


def test_metrics_are_shown_with_the_iteration_if_wanted(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    evaluated(tmp_path, log_metric_by_epoch=False)
    assert [message.partition("  acc")[0] for message in caplog.messages if message.startswith("val")] == [
        "val    iter 3",
        "val    iter 6",
        "val    iter 9",
    ]


def test_each_evaluator_has_its_name(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    _, writer = evaluated(tmp_path, "night")
    assert "night  epoch 1  accuracy 0.7500  loss 0.0912" in "\n".join(caplog.messages)
    assert {tuple(scalars) for scalars, _, kind, _ in writer.lines if kind == "val"} == {
        ("night_accuracy", "night_loss")
    }


def test_a_test_is_shown_as_one(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    _, writer = evaluated(tmp_path, "test")
    assert any(message.startswith("test   epoch 1  accuracy 0.7500") for message in caplog.messages)
    assert {kind for _, _, kind, _ in writer.lines} == {"train", "test"}


def test_metrics_of_the_trainer_are_shown_per_epoch(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    trainer = echo_trainer()
    Average().attach(trainer, "mean")
    Average().attach(trainer, "loss")
    _, writer = attach(trainer, tmp_path, LoggerHook(interval=2))
    trainer.run([1.0, 2.0])
    assert "train  epoch 1  mean 1.5000" in caplog.messages
    assert writer.lines[-1] == ({"mean": 1.5}, 2, "train", 1)


def test_an_evaluation_outside_of_a_run_is_written(tmp_path: Path) -> None:
    tiny = tiny_run()
    trainer, evaluator, val_data = tiny.trainer, tiny.evaluator, tiny.val_data
    runner, writer = attach(trainer, tmp_path, LoggerHook(), evaluators=evaluator)
    evaluator.run(val_data)
    assert [kind for _, _, kind, _ in writer.lines] == ["val"]
    runner.writer.close()


def test_the_summary_has_best_scores_time_and_folder(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    trainer, hook = echo_trainer(), LoggerHook()
    hands = [10.0]
    hook.clock = lambda: hands[0]
    trainer.add_event_handler(Events.COMPLETED, lambda: hands.append(hands.pop() + 83.0))
    attach(trainer, tmp_path, hook, best_so_far("accuracy", 0.971, "best_accuracy_epoch_2.pth"))
    trainer.run([1.0])
    [said] = [message for message in caplog.messages if message.startswith("summary")]
    _, best, *rest = said.splitlines()
    assert re.fullmatch(r"  best accuracy  0.9710 at epoch 2, iteration \d+, best_accuracy_epoch_2.pth", best)
    assert rest == [
        "  took           0:01:23",
        f"  work_dir       {tmp_path}",
        "  files          logs/, metrics.jsonl",
        "  failures       none",
    ]


def test_the_summary_has_checkpoints_and_failures(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    class Fragile(MemoryWriter):
        def write_scalars(self, *arguments: Any, **more: Any) -> None:
            raise OSError("broken")

    run = tiny_run()
    hooks = [{"type": "LoggerHook"}, {"type": "CheckpointHook", "save_best": False, "max_keep_ckpts": 1}]
    cfg = {"hooks": [*hooks, failing_at("after_epoch", on_error="warn", name="Failing")], "writers": [Fragile()]}
    attach_hooks(run.trainer, cfg, work_dir=tmp_path, **run.services)
    run.trainer.run(run.data, max_epochs=2)
    [said] = [message for message in caplog.messages if message.startswith("summary")]
    assert "  files     2 checkpoints, logs/, manifest.json, metrics.jsonl" in said
    assert said.endswith("  failures  Failing 1, Fragile 2")


# -- where lines go --------------------------------------------------------------------------------------------


@contextmanager
def nobody_listens() -> Iterator[None]:
    """Remove the handlers of pytest, as in a script that has not set up logging."""
    loggers = {logger: logger.handlers for logger in (logging.getLogger(), OURS)}
    for logger in loggers:
        logger.handlers = []
    try:
        yield
        assert [logger.handlers for logger in loggers] == [[], []]
        assert OURS.level == logging.NOTSET
    finally:
        for logger, handlers in loggers.items():
            logger.handlers = handlers


def test_lines_go_to_stderr_if_logging_is_not_set_up(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    trainer = echo_trainer()
    attach(trainer, tmp_path, LoggerHook(interval=2))
    with nobody_listens():
        trainer.run([1.0, 2.0])
    shown = capsys.readouterr()
    assert shown.out == ""
    assert re.search(
        r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  INFO     Epoch 1/1 \[2/2\]  loss 1.5000  time ", shown.err, re.M
    )
    assert shown.err.rstrip().endswith("run ended after 1 epoch, 2 iterations")


def test_the_first_line_of_another_hook_is_seen(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    trainer = echo_trainer()
    attach(trainer, tmp_path, {"type": "RuntimeInfoHook", "priority": 1}, LoggerHook())
    with nobody_listens():
        trainer.run([1.0])
    assert "ignite_hooks 0" in capsys.readouterr().err


def test_a_second_run_is_logged_like_the_first(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    trainer = echo_trainer()
    runner, _ = attach(trainer, tmp_path, LoggerHook(interval=1))
    for _ in range(2):
        with nobody_listens():
            runner.logger.info("nobody hears this")
            trainer.run([1.0])
        shown = capsys.readouterr().err
        assert shown.count("loss 1.0000") == 1
        assert "nobody" not in shown


def test_the_handlers_are_removed_after_a_failure(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    trainer = echo_trainer()
    attach(trainer, tmp_path, LoggerHook(interval=1), failing_at("after_train_iter"))
    with nobody_listens(), pytest.raises(RuntimeError, match="boom"):
        trainer.run([1.0])
    assert "run failed after" in capsys.readouterr().err


@pytest.mark.parametrize("of", ["", "ignite_hooks"])
def test_only_the_file_is_added_to_handlers_of_the_script(
    of: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = logging.Handler()
    monkeypatch.setattr(mine, "emit", lambda record: None)
    monkeypatch.setattr(logging.getLogger(of or None), "handlers", [mine])
    during: list[list[logging.Handler]] = []

    class Look(BaseHook):
        def after_train_iter(self, runner: Runner) -> None:
            during.append(list(OURS.handlers))
            runner.logger.warning("shown by the script")

    trainer = echo_trainer()
    attach(trainer, tmp_path, LoggerHook(), Look())
    trainer.run([1.0])
    # The last resort says nothing where another handler is.
    silent = (logging.NullHandler, LastResort)
    added = [type(h) for h in during[0] if h is not mine and not isinstance(h, silent)]
    assert added == [logger_hook.LogFile]
    assert capsys.readouterr().err == ""


def test_the_lines_are_kept_in_a_file(tmp_path: Path) -> None:
    trainer = echo_trainer()
    attach(trainer, tmp_path, LoggerHook(interval=2))
    trainer.run([1.0, 2.0])
    (file,) = (tmp_path / "logs").iterdir()
    assert re.fullmatch(r"\d{8}_\d{6}\.log", file.name)
    lines = file.read_text().splitlines()
    assert MEASURED.sub("", lines[0]).endswith("  INFO     Epoch 1/1 [2/2]  loss 1.5000")
    assert lines[-1].endswith("  INFO     run ended after 1 epoch, 2 iterations")


def test_the_scripts_logger_gets_lines_and_keeps_its_level(tmp_path: Path) -> None:
    heard: list[str] = []
    logger = logging.Logger("mine", level=logging.INFO)
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    trainer = echo_trainer()
    attach(trainer, tmp_path, LoggerHook(interval=2), logger=logger)
    trainer.run([1.0, 2.0])
    assert MEASURED.sub("", heard[0]) == "Epoch 1/1 [2/2]  loss 1.5000"
    assert (logger.level, logger.handlers) == (logging.INFO, [handler])


def test_the_level_of_the_script_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OURS, "level", logging.WARNING)
    OURS.manager._clear_cache()  # type: ignore[attr-defined]
    trainer = echo_trainer()
    attach(trainer, tmp_path, LoggerHook(interval=1))
    trainer.run([1.0])
    assert list((tmp_path / "logs").iterdir()) == []
    assert OURS.level == logging.WARNING


def test_other_ranks_log_and_write_nothing(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logger_hook, "is_main_process", lambda: False)
    tiny = tiny_run()
    trainer, evaluator, data, val_data = tiny.trainer, tiny.evaluator, tiny.data, tiny.val_data
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run(val_data))
    _, writer = attach(trainer, tmp_path, LoggerHook(interval=1), evaluators=evaluator)
    trainer.run(data)
    assert caplog.messages == []
    assert writer.lines == []
    assert not (tmp_path / "logs").exists()


def test_an_unwritable_work_dir_does_not_end_the_run(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("in the way")
    trainer = echo_trainer()
    attach(trainer, tmp_path, LoggerHook(interval=1))
    trainer.run([1.0])
    assert training_lines(caplog) == ["Epoch 1/1 [1/1]  loss 1.0000"]
    assert "LoggerHook.before_run failed" in caplog.text


def test_it_is_also_called_log_hook() -> None:
    assert HOOKS.get("LogHook") is LoggerHook


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({"every": "2 iter"}, [2, 4, 6, 8]),
        ({"every": "2 epoch"}, [6]),
        ({"every": "1 epoch", "by_epoch": False}, [3, 6, 9]),
        ({"every": "1000 h"}, [3, 6, 9]),
        ({"interval": 2, "start": 5}, [5, 7, 9]),
    ],
)
def test_lines_come_as_often_as_every_says(settings: dict[str, Any], steps: list[int], tmp_path: Path) -> None:
    tiny, writer = tiny_run(), MemoryWriter()
    config = {"hooks": [{"type": "LoggerHook", **settings}], "writers": [writer], "work_dir": tmp_path}
    runner = attach_hooks(tiny.trainer, config)
    tiny.trainer.run(tiny.data, max_epochs=3)
    assert [step for name, _, step in writer.scalars if name == "loss"] == steps
    runner.detach()


@pytest.mark.parametrize("interval", [3, 20])
def test_the_wait_for_data_needs_no_timer(interval: int, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]

    def data() -> Iterator[int]:
        for number in range(40):
            now[0] += 0.002
            yield number

    def step(engine: Engine, batch: int) -> float:
        now[0] += 0.01
        return 0.5

    hook, trainer = LoggerHook(interval=interval), Engine(step)
    hook.clock = lambda: now[0]
    attach(trainer, tmp_path, hook)
    trainer.run(data(), epoch_length=40)
    lines = [line for line in caplog.messages if LINE_OF_TRAINING.match(line)]
    assert len(lines) == 40 // interval
    assert all("time  12.0 ms  data   2.0 ms" in line for line in lines)
    assert not trainer._event_handlers.get(Events.GET_BATCH_STARTED)
