"""The whole way from a configuration to files on disk, in an otherwise unchanged script."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import ignite_hooks
from ignite_hooks import ConfigError, attach_hooks
from ignite_hooks.testing import RecordingHook, tiny_run
from tests import warm
from tests.tools import Log

ROOT = Path(__file__).parent.parent


def test_default_hooks_write_checkpoints_numbers_and_a_log(tmp_path: Path) -> None:
    tiny = tiny_run()
    trainer, data, val_data = tiny.trainer, tiny.data, tiny.val_data
    runner = attach_hooks(trainer, work_dir=tmp_path, val_loader=val_data)
    trainer.run(data, max_epochs=3)
    assert list(runner.hooks) == ["runtime_info", "timer", "logger", "checkpoint", "eval"]
    files = {path.name for path in tmp_path.iterdir()}
    assert {"epoch_1.pth", "epoch_2.pth", "epoch_3.pth", "last.pth", "manifest.json", "metrics.jsonl"} <= files
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    evaluations = [line for line in lines if line["kind"] == "val"]
    assert [line["step"] for line in evaluations] == [3, 6, 9]
    assert evaluations[-1]["scalars"]["accuracy"] == runner.metrics["val_accuracy"]
    best = torch.load(tmp_path / str(runner.best["accuracy"].file), weights_only=True)
    assert {"meta", "state_dict", "optimizer"} <= set(best)
    assert "Epoch" in next((tmp_path / "logs").iterdir()).read_text()


def test_the_same_configuration_in_every_format_gives_the_same_plan(tmp_path: Path) -> None:
    texts = {
        "yaml": "hooks:\n  - {type: CheckpointHook, interval: 2, save_best: false}\n  - type: LoggerHook\n",
        "json": '{"hooks": [{"type": "CheckpointHook", "interval": 2, "save_best": false}, {"type": "LoggerHook"}]}',
        "toml": '[[hooks]]\ntype = "CheckpointHook"\ninterval = 2\nsave_best = false\n[[hooks]]\ntype = "LoggerHook"\n',
        "py": "hooks = [dict(type='CheckpointHook', interval=2, save_best=False), dict(type='LoggerHook')]\n",
    }
    digests = set()
    for suffix, text in texts.items():
        path = tmp_path / f"config.{suffix}"
        path.write_text(text)
        digests.add(attach_hooks(tiny_run().trainer, path, work_dir=tmp_path).plan.digest)
    assert len(digests) == 1


def test_all_mistakes_are_reported_at_once_and_nothing_is_attached(tmp_path: Path) -> None:
    trainer = tiny_run().trainer
    path = tmp_path / "wrong.yaml"
    path.write_text(
        "hoks: []\nhooks:\n  - {type: EarlyStoppingHook, monitr: val_loss}\n  - {type: LogerHook}\n"
        "  - {type: CheckpointHook, interval: 0, max_keep_ckpts: two, rule: best}\nseed: -1\n"
    )
    with pytest.raises(ConfigError) as caught:
        attach_hooks(trainer, path, work_dir=tmp_path)
    places = [problem.place for problem in caught.value.problems]
    assert places == [
        "hoks",
        "seed",
        "hooks[0].monitr",
        "hooks[1].type",
        "hooks[2].interval",
        "hooks[2].max_keep_ckpts",
        "hooks[2].rule",
    ]
    assert all(len(str(problem)) < 200 and "\n" not in str(problem) for problem in caught.value.problems)
    assert "did you mean 'monitor'?" in str(caught.value)
    assert "did you mean 'LoggerHook'?" in str(caught.value)
    assert "run" not in vars(trainer)


def test_a_killed_run_resumes_as_if_never_killed(tmp_path: Path) -> None:
    def train(folder: Path, epochs: int, resume: Any) -> tuple[dict[str, Any], Any]:
        tiny = tiny_run()
        trainer, data, val_data, model = tiny.trainer, tiny.data, tiny.val_data, tiny.model
        runner = attach_hooks(trainer, work_dir=folder, val_loader=val_data, resume=resume)
        trainer.run(data, max_epochs=epochs)
        return {name: value.clone() for name, value in model.state_dict().items()}, runner

    whole, whole_runner = train(tmp_path / "whole", 5, None)
    train(tmp_path / "parts", 2, None)
    parts, runner = train(tmp_path / "parts", 5, "auto")
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    assert dict(runner.best) == dict(whole_runner.best)
    files = [sorted(path.name for path in (tmp_path / name).glob("*.pth")) for name in ("whole", "parts")]
    assert files[0] == files[1]


@pytest.mark.slow
def test_the_example_trains_a_real_model(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    command = [sys.executable, "examples/attach_to_script.py", "--epochs", "3", "--work-dir", str(tmp_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = warm.run(
        command, also=warm.LEARNS, cwd=ROOT, capture_output=True, text=True, timeout=240, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("best accuracy 0.9")
    assert "run ended after 3 epochs, 72 iterations" in done.stderr
    assert (tmp_path / "last.pth").exists()


def test_importing_the_package_loads_nothing_and_starts_nothing() -> None:
    code = (
        "import sys, threading, ignite_hooks as ih; ih.BaseHook, ih.HOOKS, ih.load_config\n"
        "heavy = {'torch', 'ignite', 'matplotlib', 'tensorboard', 'wandb', 'mlflow', 'clearml', 'pydantic'}\n"
        "heavy &= set(sys.modules)\n"
        "print(sorted(heavy), threading.active_count())\n"
        "from ignite_hooks import attach_hooks\n"
        "print(sorted({'matplotlib', 'tensorboard', 'wandb', 'mlflow', 'clearml'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["[] 1", "[]"]


def test_every_public_name_is_there() -> None:
    for name in ignite_hooks.__all__:
        assert getattr(ignite_hooks, name) is not None
    for name in ignite_hooks.HOOKS:
        assert getattr(ignite_hooks, name) is ignite_hooks.HOOKS.get(name)
        assert name in dir(ignite_hooks)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        ignite_hooks.nothing


def test_only_the_engine_package_registers_handlers() -> None:
    users = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "ignite_hooks").rglob("*.py")
        if "add_event_handler(" in path.read_text() or ".on(Events" in path.read_text()
    ]
    outside = {path for path in users if not path.startswith("ignite_hooks/testing/")}
    assert outside <= {"ignite_hooks/engine/handlers.py"}


def test_the_specifications_full_configuration_has_the_order_it_states(tmp_path: Path) -> None:
    tiny = tiny_run()
    trainer, data, val_data = tiny.trainer, tiny.data, tiny.val_data
    log: Log = []
    configuration = [
        {
            "type": "CheckpointHook",
            "interval": 1,
            "max_keep_ckpts": 3,
            "save_best": True,
            "best_metric": "accuracy",
            "rule": "greater",
        },
        {"type": "LoggerHook", "interval": 50},
        {"type": "EvalHook", "interval": 1, "save_best": True, "metric": "accuracy"},
        {
            "type": "EarlyStoppingHook",
            "monitor": "val_loss",
            "patience": 10,
            "mode": "min",
            "restore_best_weights": True,
        },
        RecordingHook(log=log, name="recorder"),
    ]
    runner = attach_hooks(trainer, configuration, work_dir=tmp_path, val_loader=val_data)
    priorities = {slot.hook: slot.priority for slot in runner.plan.at("after_val_epoch")}
    assert priorities == {
        "EarlyStoppingHook": 90,
        "EvalHook": 70,
        "CheckpointHook": 60,
        "LoggerHook": 50,
        "recorder": 50,
    }
    trainer.run(data, max_epochs=2)
    assert (tmp_path / "last.pth").exists()


def test_a_hook_attaches_itself_without_default_hooks_and_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tiny = tiny_run()
    hook = RecordingHook()
    runner = hook.attach(tiny.trainer, colour="red")
    assert list(runner.hooks.values()) == [hook]
    assert runner.get_service("colour") == "red"
    assert "metrics.jsonl" not in [getattr(writer, "path", Path()).name for writer in runner.writer.writers]
    tiny.trainer.add_event_handler("ITERATION_COMPLETED", lambda: runner.writer.write_scalar("x", 1.0, 1))
    tiny.trainer.run(tiny.data, max_epochs=1)
    assert hook.calls
    # The folder is promised to the run, and given back empty at the end of the process.
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} <= {".claim"}


def test_a_hook_joins_the_runner_of_its_engine(tmp_path: Path) -> None:
    tiny = tiny_run()
    runner = attach_hooks(tiny.trainer, [RecordingHook()], work_dir=tmp_path, colour="red")
    second = RecordingHook(name="second")
    assert second.attach(tiny.trainer, colour="red", size=runner) is runner
    assert runner.get_service("size") is runner
    for wrong in ({"colour": "blue"}, {"work_dir": tmp_path}):
        with pytest.raises(ConfigError, match=f"a runner already, with another {next(iter(wrong))}: leave it out"):
            RecordingHook(name="third").attach(tiny.trainer, **wrong)
    assert list(runner.hooks) == ["RecordingHook", "second"]
    with pytest.raises(TypeError, match="needs an Ignite Engine"):
        RecordingHook().attach(tiny.model)


def test_a_hook_that_attaches_itself_writes_numbers_into_a_named_folder(tmp_path: Path) -> None:
    tiny = tiny_run()
    runner = RecordingHook().attach(tiny.trainer, work_dir=tmp_path)
    assert "metrics.jsonl" in [getattr(writer, "path", Path()).name for writer in runner.writer.writers]
