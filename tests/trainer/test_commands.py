"""A run from the command line, and the code it ends with."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ignite_hooks.cli.app import main
from tests import warm

pytest.importorskip("sklearn")

SMALL = """\
model: {type: mlp, hidden: [16]}
dataset: digits
training: {epochs: 2, seed: 0, batch_size: 128}
default_hooks: {logger: {interval: 5}}
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a separate folder, and undo what the commands leave in the process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("small.yaml").write_text(SMALL)


def test_a_metric_that_is_no_number_is_left_out_of_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    matrix = "evaluation.metrics=[accuracy, ConfusionMatrix]"
    assert main(["train", "small.yaml", "--set", "training.epochs=1", "--set", matrix]) == 0
    said = capsys.readouterr().out
    assert "test accuracy 0." in said
    assert "ConfusionMatrix" not in said


def test_a_run_reports_its_best_and_resumes_with_other_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "small.yaml"]) == 0
    assert Path("work_dirs/small/config.yaml").is_file()
    said = capsys.readouterr().out
    assert "best accuracy 0." in said
    assert "test accuracy 0." in said
    assert main(["resume", "work_dirs/small", "--set", "training.epochs=3"]) == 0
    assert Path("work_dirs/small/epoch_3.pth").is_file()
    assert main(["train", "small.yaml", "--resume", "auto", "--set", "training.epochs=4"]) == 0
    assert Path("work_dirs/small/epoch_4.pth").is_file()
    assert not Path("work_dirs/small-2").exists()


def test_a_longer_run_warns_of_no_setting_that_nobody_set(caplog: pytest.LogCaptureFixture) -> None:
    short = ["--set", "training.epoch_length=2"]
    assert main(["train", "small.yaml", *short, "--set", "training.epochs=1"]) == 0
    caplog.clear()
    assert (
        main(["resume", "work_dirs/small", "--set", "training.epochs=2", "--set", "training.grad_accumulation=2"]) == 0
    )
    assert not [line for line in caplog.messages if "settings differ" in line]


def test_a_setting_that_somebody_set_is_told_when_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    short = ["--set", "training.epoch_length=2"]
    assert main(["train", "small.yaml", *short, "--set", "training.epochs=1"]) == 0
    caplog.clear()
    changed = ["--set", "training.epochs=2", "--set", "default_hooks.logger.interval=7"]
    assert main(["resume", "work_dirs/small", *changed]) == 0
    assert [line for line in caplog.messages if "settings differ" in line and "interval 5 -> 7" in line]


def test_a_second_run_has_a_separate_folder() -> None:
    for _ in range(2):
        assert main(["train", "small.yaml", "--set", "training.epochs=1", "--set", "training.epoch_length=1"]) == 0
    assert sorted(path.name for path in Path("work_dirs").iterdir()) == ["small", "small-2"]


def test_a_wrong_configuration_exits_with_2_and_all_problems(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "small.yaml", "--set", "modle=cnn", "--set", "training.epochs=0"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "small.yaml: modle: not a section of a trainer, did you mean 'model'?",
        "small.yaml: training.epochs: a whole number of at least 1 is needed, not 0",
    ]
    assert main(["train", "nowhere.yaml"]) == 2
    assert main(["resume", "nowhere"]) == 2
    assert not Path("work_dirs").exists()


def test_a_whole_configuration_needs_no_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "small.yaml"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "small.yaml: 5 hooks, no problems",
        "  note: to check model and data as well, run 'ignite-hooks train small.yaml --dry-run'",
    ]


def test_explain_says_what_the_trainer_adds(capsys: pytest.CaptureFixture[str]) -> None:
    Path("exact.yaml").write_text(SMALL.replace("default_hooks: {logger: {interval: 5}}", "hooks: []"))
    assert main(["explain", "exact.yaml"]) == 0
    assert "note: the trainer adds val (EvalHook), test (EvalHook, at the end), config" in capsys.readouterr().out
    Path("whole.yaml").write_text(SMALL.replace("epochs: 2", "epochs: 2, scheduler: CosineAnnealingLR"))
    assert main(["explain", "whole.yaml"]) == 0
    assert "note: the trainer adds test (EvalHook, at the end), scheduler, config" in capsys.readouterr().out


def test_a_failure_is_1_with_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "small.yaml", "--set", "training.criterion=MSELoss"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_a_dry_run_leaves_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    Path("scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(Path("scratch").absolute()))
    assert main(["train", "small.yaml", "--dry-run"]) == 0
    assert "the dry run went well" in capsys.readouterr().out
    assert sorted(path.name for path in Path().iterdir()) == ["scratch", "small.yaml"]
    assert list(Path("scratch").iterdir()) == []


def test_a_dry_run_finds_a_failing_hook_that_only_warns(capsys: pytest.CaptureFixture[str]) -> None:
    Path("own_hooks.py").write_text(
        "from ignite_hooks import BaseHook\n"
        "class Failing(BaseHook):\n"
        "    on_error = 'warn'\n"
        "    interval = 1000\n"
        "    def after_train_iter(self):\n"
        "        raise ValueError('boom')\n"
    )
    hook = "custom_hooks=[{type: 'own_hooks:Failing', interval: 1000}]"
    assert main(["train", "small.yaml", "--dry-run", "--set", "imports=[own_hooks]", "--set", hook]) == 1
    assert "the dry run has met failures of Failing" in capsys.readouterr().err
    sys.modules.pop("own_hooks")


MASKED = """\
writers:
  - {type: MlflowWriter, token: '***'}
  - {type: MLflowWriter, tracking_uri: 'https://***@host/x', experiment: '*** a **** b'}
"""


@pytest.mark.parametrize("command", [["resume", "run"], ["train", "run/config.yaml"]], ids=["resume", "train"])
def test_a_secret_that_was_masked_is_asked_for(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    Path("run").mkdir()
    Path("run/config.yaml").write_text(SMALL + MASKED)
    assert main(command) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"run/config.yaml: {place}: is a secret, which no file holds: give it with --set {place}=..."
        for place in ("writers.0.token", "writers.1.tracking_uri")
    ]
    assert [path.name for path in Path("run").iterdir()] == ["config.yaml"]


def test_a_missing_checkpoint_is_reported_before_training(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "small.yaml", "--resume", "epoch_7.pth", "--work-dir", "run"]) == 2
    here = Path.cwd()
    message = f"resume: there is no checkpoint 'epoch_7.pth', neither in {here} nor in {here / 'run'}"
    message += ": give the path of a checkpoint, or 'auto'"
    assert capsys.readouterr().err.splitlines() == [f"small.yaml: {message}"]
    assert not Path("run").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["SIGTERM", "Ctrl-C"])
def test_a_signal_saves_and_sets_the_exit_code(number: int, code: int) -> None:
    command = [sys.executable, "-m", "ignite_hooks", "train", "small.yaml", "--set", "training.epochs=100000"]
    start = warm.Popen if number == signal.SIGTERM else subprocess.Popen
    with start(command, stderr=subprocess.PIPE, text=True, env=environment()) as run:
        assert run.stderr is not None
        for line in run.stderr:
            if "Epoch" in line and " 2/" in line:
                run.send_signal(number)
                break
        rest = run.stderr.read()
    assert run.returncode == code, rest
    assert "received" in rest
    assert Path("work_dirs/small/last.pth").is_file()


@pytest.mark.slow
def test_it_runs_under_torchrun() -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    # A table needs no scikit-learn, which each rank would import.
    Path("table.csv").write_text("a,b,kind\n" + "".join(f"{i % 7},{i % 5},{i % 2}\n" for i in range(600)))
    table = "dataset={type: csv, path: table.csv, target: kind, test_fraction: 0.2}"
    command = [*torchrun, "-m", "ignite_hooks", "train", "small.yaml", "--work-dir", "run", "--set", table]
    # The launcher is that of torch; its ranks are real processes.
    done = warm.run(command, capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("test accuracy") == 1
    assert "Use data loader kwargs" not in done.stderr


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}
