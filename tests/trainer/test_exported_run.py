"""`exported_run.py`: the model of a run is exported after its end."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
import yaml

from ignite_hooks import BaseTrainer
from ignite_hooks.cli.app import main
from tests.trainer.test_tested_run import CONFIG, DATA


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "few_samples", raising=False)
    Path("few_samples.py").write_text(DATA)
    Path("small.yaml").write_text(CONFIG)
    BaseTrainer("small.yaml", work_dir="run").train()


def test_chosen_weights_of_a_run_are_exported_with_their_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["test", "run", "--checkpoint", "last", "--weights", "ema"]) == 0
    words = ["export", "run", "--checkpoint", "last", "--format", "pth"]
    checkpoint = torch.load("run/last.pth", weights_only=True)
    kept = {
        "raw": checkpoint["state_dict"],
        "slow": checkpoint["ema_state_dicts"]["slow"],
        "ema": checkpoint["ema_state_dict"],
    }
    for weights, saved in kept.items():
        assert main([*words, "--weights", weights]) == 0
        exported = torch.load("run/export/model.pth", weights_only=True)["state_dict"]
        assert all(torch.equal(exported[name], saved[name]) for name in saved)
    printed = capsys.readouterr().out
    assert "model.pth" in printed
    assert "checked with batches of 1 and 5" in printed
    tested = json.loads(Path("run/result.json").read_text())["tests"]["test/last.pth/ema"]["metrics"]
    front = yaml.safe_load(Path("run/export/README.md").read_text().split("---\n")[1])
    (results,) = front["model-index"][0]["results"]
    assert {one["type"]: one["value"] for one in results["metrics"]} == tested


def test_what_cannot_be_exported_is_one_line_and_leaves_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    assert main(["export", "run", "--format", "pth", "--tolerance", "-1"]) == 2
    assert main(["export", "run", "--format", "onnx", "--dtype", "bfloat16"]) == 2
    assert main(["export", "nowhere"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert "--tolerance: a number above 0 is needed, not -1" in lines[0]
    assert "onnx: onnxruntime computes no bfloat16 here" in lines[1]
    assert "there is no such folder" in lines[2]
    assert not Path("run/export").exists()
