"""What a dry run makes of a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ignite_hooks import BaseTrainer, ConfigError
from ignite_hooks.trainer.dry_run import dry_run_config
from tests.trainer.tools import config


def test_every_hook_acts_at_once() -> None:
    profiler = {"type": "ProfilerHook", "schedule": {"wait": 10, "warmup": 10, "active": 80}}
    hooks = [{"type": "LoggerHook", "interval": 50}, {"type": "EvalHook", "every": "3 epoch"}, profiler]
    found = dry_run_config({"hooks": hooks, "training": {"epochs": 50}}, evaluates=True)
    assert found["training"] == {"epochs": 1, "epoch_length": 2}
    assert found["hooks"][:2] == [{"type": "LoggerHook", "interval": 1}, {"type": "EvalHook", "every": "1 epoch"}]
    assert found["hooks"][2]["schedule"] == {"wait": 0, "warmup": 1, "active": 1}


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "epochs": ({"training": {"epochs": "two"}}, "training.epochs: a whole number of at least 1 is needed, not 'two'"),
    "the length of an epoch": ({"training": {"epoch_length": 0}}, "training.epoch_length: a whole number"),
    "an interval": ({"hooks": [{"type": "LoggerHook", "interval": "abc"}]}, "hooks[0].interval: a whole number"),
    "a negative interval": ({"hooks": [{"type": "LoggerHook", "interval": -1}]}, "hooks[0].interval: "),
    "a start": ({"hooks": [{"type": "EvalHook", "start": "x"}]}, "hooks[0].start: a whole number"),
    "a time": ({"hooks": [{"type": "LoggerHook", "every": "often"}]}, "hooks[0].every: "),
    "a schedule": ({"hooks": [{"type": "ProfilerHook", "schedule": {"wiat": 1}}]}, "hooks[0].schedule: "),
    "an own interval": ({"hooks": [{"type": "MyHook", "interval": -3}]}, "hooks[0].type: no hook is called 'MyHook'"),
    "a tracker": ({"hooks": [{"type": "WandbHook", "mode": "ofline"}]}, "hooks[0].mode: "),
    "a default hook": ({"default_hooks": {"logger": {"interval": 0}}}, "default_hooks.logger.interval: "),
    "a writer": ({"writers": [{"type": "WandbWriter", "mode": 3}]}, "writers[0].mode: "),
    "a folder": ({"work_dir": 3}, "work_dir: "),
    "where to resume": ({"resume": 3}, "resume: true, false, 'auto', 'required' or the path"),
}


@pytest.mark.parametrize(("sections", "message"), WRONG.values(), ids=WRONG)
def test_problems_are_not_hidden_by_replaced_settings(sections: dict[str, Any], message: str, tmp_path: Path) -> None:
    whole = config(**sections)
    if "default_hooks" in sections:
        del whole["hooks"]
    with pytest.raises(ConfigError) as raised:
        BaseTrainer(dry_run_config(whole, evaluates=True), work_dir=tmp_path / "run")
    assert message in str(raised.value)


def test_files_are_written_nowhere_else(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    hooks = [
        {"type": "CheckpointHook", "out_dir": str(elsewhere / "weights")},
        {"type": "TimeTrackingHook", "log_path": str(elsewhere / "time.log")},
        {"type": "HistoryPlotHook", "out_dir": "../elsewhere/curves"},
    ]
    writers = [{"type": "JsonlWriter", "path": str(elsewhere / "numbers.jsonl")}]
    content = dry_run_config(config(hooks=hooks, writers=writers), evaluates=True)
    BaseTrainer(content, work_dir=tmp_path / "run").train()
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert {"weights", "time.log", "curves", "numbers.jsonl"} <= {path.name for path in (tmp_path / "run").iterdir()}


def test_a_dry_run_sends_no_notifications(tmp_path: Path) -> None:
    hooks = [{"type": "NotifyHook", "command": ["touch", str(tmp_path / "told")], "at": ["start", "end"]}]
    BaseTrainer(dry_run_config(config(hooks=hooks), evaluates=True), work_dir=tmp_path / "run").train()
    assert not (tmp_path / "told").exists()
