"""`tested_run.py`: the weights of a run are tested after its end, and its result has the figures."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from ignite_hooks import BaseTrainer, attach_hooks, read_run
from ignite_hooks.cli.app import main
from ignite_hooks.errors import ConfigError
from ignite_hooks.testing import tiny_trainer
from ignite_hooks.trainer.tested_run import config_of_test, find_run

DATA = """\
import torch
from torch.utils.data import TensorDataset
from ignite_hooks.trainer.datasets import Data

def blobs():
    x = torch.rand(32, 4, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(x, (x[:, 0] > x[:, 1]).long())
    return Data(data, data, data, num_classes=2, shape=(4,))
"""
CONFIG = """\
model: {type: mlp, hidden: [4]}
imports: [few_samples]
dataset: {type: "few_samples:blobs"}
training: {epochs: 2, seed: 0, batch_size: 16, optimizer: {type: SGD, lr: 0.5}}
hooks: [{type: EMAHook, momentum: 0.5, also: {slow: 0.9}}, {type: CheckpointHook, save_best: loss}, {type: LoggerHook}]
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "few_samples", raising=False)
    for name in ("KINETO_LOG_LEVEL", "TORCH_CPP_LOG_LEVEL"):
        monkeypatch.setenv(name, "as before")
    Path("few_samples.py").write_text(DATA)
    Path("small.yaml").write_text(CONFIG)


def scalars_of(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Return what TensorBoard shows of a run."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder)).Reload()
    return {tag: [(one.step, one.value) for one in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def _trained() -> BaseTrainer:
    trainer = BaseTrainer("small.yaml", work_dir="run")
    trainer.train()
    return trainer


def test_the_command_measures_what_the_run_measures_of_the_same_weights(capsys: pytest.CaptureFixture[str]) -> None:
    trainer = _trained()
    files = {path.name for path in Path("run").iterdir()}
    told = {}
    for word, weights in (("last", "raw"), ("last", "ema"), ("best", "raw"), ("last", "slow")):
        assert main(["test", "run", "--checkpoint", word, "--weights", weights]) == 0
        loss = trainer.test(word, weights)["loss"]
        told[word, weights] = capsys.readouterr().out
        assert "test: accuracy 0." in told[word, weights]
        assert f"loss {loss:.4f}" in told[word, weights]
    assert len({text.splitlines()[0] for text in told.values()}) > 1
    tests = json.loads(Path("run/result.json").read_text())["tests"]
    assert len(tests) == 4
    assert {one["weights"] for one in tests.values()} == {"raw", "ema", "slow"}
    assert "averages 'slow', the last weights saved" in told["last", "slow"]
    assert {path.name for path in Path("run").iterdir()} == files


def test_a_run_is_found_by_its_folder_its_configuration_or_a_checkpoint(capsys: pytest.CaptureFixture[str]) -> None:
    _trained()
    for named in ("run", "run/config.yaml", "run/epoch_2.pth"):
        assert main(["test", named, "--split", "val"]) == 0
    tests = read_run("run").result.tests  # type: ignore[union-attr]
    assert set(tests) == {"val/last.pth/ema", "val/epoch_2.pth/ema"}
    assert "val/epoch_2.pth/ema" in repr(read_run("run"))
    assert "averages, the last weights saved, which the run delivers" in capsys.readouterr().out
    assert main(["test", "small.yaml"]) == 2
    assert "no run of it is here" in capsys.readouterr().err
    assert main(["test", "small.yaml", "--split", "train"]) == 2


def test_nothing_that_a_result_says_becomes_a_path() -> None:
    _trained()
    torch.save({"state_dict": {}}, "other.pth")
    path = Path("run/result.json")
    result = json.loads(path.read_text())
    for name in ("../other.pth", str(Path("other.pth").absolute())):
        best = {"loss": {"value": 0, "step": 1, "file": name}}
        path.write_text(json.dumps({**result, "delivered": name, "best": best}))
        with pytest.raises(ConfigError, match="not in run any longer"):
            find_run(Path("run"), None)
        with pytest.raises(ConfigError, match="no best weights"):
            find_run(Path("run"), "best")


def test_a_wrong_name_is_told_with_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    _trained()
    for given, words in (
        (("run", "--checkpoint", "epoch_7.pth"), "there is no epoch_7.pth, did you mean"),
        (("nowhere",), "there is no such folder"),
        (("run", "--weights", "slwo"), "there are no weights 'slwo', did you mean 'slow'?"),
        (("run/epoch_2.pth", "--checkpoint", "best"), "is a checkpoint already"),
    ):
        assert main(["test", *given]) == 2
        assert words in capsys.readouterr().err


def test_the_run_of_a_script_is_tested_by_the_script(capsys: pytest.CaptureFixture[str]) -> None:
    trainer, data = tiny_trainer()
    attach_hooks(trainer, [{"type": "LoggerHook"}], work_dir="script")
    trainer.run(data, max_epochs=1)
    assert main(["test", "script"]) == 2
    assert "a script tests with runner.test()" in capsys.readouterr().err


def test_a_test_has_no_hooks_that_only_observe() -> None:
    content = {
        "default_hooks": {"logger": {"interval": 2}},
        "training": {"load_from": "gone.pth", "seed": 1},
        "custom_hooks": [{"type": "WandbHook"}, {"type": "Mine"}],
    }
    changed = config_of_test(content)
    assert changed["custom_hooks"] == [{"type": "Mine"}]
    assert changed["training"] == {"seed": 1}
    assert changed["default_hooks"] == {"runtime_info": None, "timer": None, "logger": None}


def test_other_data_is_tested_and_recorded_beside(capsys: pytest.CaptureFixture[str]) -> None:
    _trained()
    others = DATA.replace("manual_seed(0)", "manual_seed(9)").replace("x[:, 0] > x[:, 1]", "x[:, 0] < x[:, 1]")
    Path("few_others.py").write_text(others)
    assert main(["test", "run"]) == 0
    wanted = "{type: 'few_others:blobs'}"
    assert main(["test", "run", "--data", wanted, "--set", "imports=[few_samples, few_others]"]) == 0
    tests = read_run("run").result.tests  # type: ignore[union-attr]
    assert set(tests) == {"test/last.pth/ema", f"test@{wanted}/last.pth/ema"}
    assert len({one.metrics["loss"] for one in tests.values()}) == 2
    assert f"test@{wanted}: accuracy" in capsys.readouterr().out
    assert main(["test", "run", "--data", "elsewhere"]) == 2
    assert "--data: the data of this run is at no place" in capsys.readouterr().err


def test_report_and_tracker_of_a_run_that_has_ended_get_its_tests(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tensorboard")
    hooks = CONFIG.replace("{type: LoggerHook}", "{type: ReportHook}, {type: TensorBoardHook}")
    Path("small.yaml").write_text(hooks + "evaluation: {metrics: [accuracy, loss, confusion_matrix]}\n")
    _trained()
    for given in ((), ("--checkpoint", "best", "--weights", "raw")):
        assert main(["test", "run", *given]) == 0
        assert "handed to TensorBoardHook" in capsys.readouterr().out
    tests = read_run("run").result.tests  # type: ignore[union-attr]
    best = next(name for name in tests if name.endswith("/raw"))
    shown, stem = scalars_of(Path("run/tensorboard")), Path(tests[best].checkpoint).stem
    assert shown["test/loss"][-1] == (4, pytest.approx(tests["test/last.pth/ema"].metrics["loss"]))
    assert shown[f"test@{stem}-raw/loss"] == [(4, pytest.approx(tests[best].metrics["loss"]))]
    text = Path("run/report.html").read_text()
    assert text.count('id="tests"') == 1
    section = text[text.index('<section id="tests"') : text.index("<!--/tests-->")]
    assert f"{tests[best].metrics['loss']:.4f}" in section
    assert section.count("confusion_matrix") == 1
    assert "last.pth" in section


def test_a_script_tests_after_the_run_and_everyone_hears_of_it() -> None:
    pytest.importorskip("tensorboard")
    Path("small.yaml").write_text(CONFIG.replace("{type: LoggerHook}", "{type: ReportHook}, {type: TensorBoardHook}"))
    trainer = _trained()
    before = scalars_of(Path("run/tensorboard"))["test/loss"]
    loss = trainer.test()["loss"]
    chosen = trainer.test("best", "raw")["loss"]
    tests = read_run("run").result.tests  # type: ignore[union-attr]
    assert tests["test/last.pth/ema"].metrics["loss"] == pytest.approx(loss)
    [key] = [key for key in tests if key.endswith("/raw")]
    after = scalars_of(Path("run/tensorboard"))
    assert after["test/loss"] == [*before, (4, pytest.approx(loss))]
    assert after[f"test@{Path(tests[key].checkpoint).stem}-raw/loss"] == [(4, pytest.approx(chosen))]
    assert Path("run/report.html").read_text().count("<!--tests--><section") == 1
