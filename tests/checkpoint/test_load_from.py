"""`load_from.py`: checkpoints of others load as far as they fit, with a table, all of it or nothing."""

from __future__ import annotations

import copy
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ignite_hooks import BaseTrainer, CheckpointError, ConfigError
from ignite_hooks.checkpoint.load_from import load_from
from tests.trainer.tools import config


def _model(classes: int = 2) -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, classes))


def _under(prefix: str, state: Any) -> dict[str, Any]:
    return {prefix + name: value for name, value in state.items()}


STATE = {name: torch.full_like(value, 2) for name, value in _model().state_dict().items()}
AVERAGE = {name: torch.full_like(value, 3) for name, value in STATE.items()}
OPTIMIZER = {"state": {0: {"momentum_buffer": torch.ones(4, 3)}}, "param_groups": [{"lr": 0.1, "params": [0]}]}
FILES: dict[str, tuple[Any, str]] = {
    "ours": (
        {"meta": {"format": 2, "epoch": 1, "iter": 4}, "state_dict": STATE, "ema_state_dict": AVERAGE},
        "ignite_hooks",
    ),
    "bare": (STATE, "a bare state_dict"),
    "bare, of DistributedDataParallel": (_under("module.", STATE), "a bare state_dict"),
    "bare, of torch.compile": (_under("_orig_mod.", STATE), "a bare state_dict"),
    "Ignite": ({"model": STATE, "optimizer": OPTIMIZER, "trainer": {"iteration": 3}}, "Ignite"),
    "MMEngine": (
        {
            "meta": {"mmengine_version": "0.10.7", "epoch": 1},
            "message_hub": {"log_scalars": {}},
            "state_dict": STATE,
            "ema_state_dict": {"steps": torch.tensor(7), **_under("module.", AVERAGE)},
            "optimizer": OPTIMIZER,
        },
        "MMEngine",
    ),
    "Lightning": (
        {
            "pytorch-lightning_version": "2.5.0",
            "state_dict": {**_under("model.", STATE), "criterion.weight": torch.ones(2)},
            "optimizer_states": [OPTIMIZER],
        },
        "Lightning",
    ),
    "timm": ({"arch": "net", "epoch": 3, "state_dict": STATE, "state_dict_ema": AVERAGE, "metric": 0.5}, "timm"),
    "under model": ({"model": STATE, "epoch": 3}, ""),
}


@pytest.mark.parametrize("name", FILES)
def test_checkpoints_of_others_load(tmp_path: Path, name: str) -> None:
    content, origin = FILES[name]
    torch.save(content, tmp_path / "w.pth")
    model = _model()
    words = load_from(model, tmp_path / "w.pth")
    assert "9 of 9 weights" in words
    assert f"({origin}):" in words or not origin
    assert all(torch.equal(value, STATE[key]) for key, value in model.state_dict().items())
    averages = [one for one in content if one in ("ema_state_dict", "state_dict_ema")]
    if averages:
        load_from(model, tmp_path / "w.pth", weights="ema")
        assert all(torch.equal(value, AVERAGE[key]) for key, value in model.state_dict().items())
    else:
        with pytest.raises(CheckpointError, match="holds no averages"):
            load_from(model, tmp_path / "w.pth", weights="ema")


def test_a_head_of_another_size_keeps_its_weights_and_is_told(tmp_path: Path) -> None:
    torch.save(STATE, tmp_path / "w.pth")
    model = _model(5)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(CheckpointError, match="strict: true"):
        load_from(model, tmp_path / "w.pth", strict=True)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    words = load_from(model, tmp_path / "w.pth")
    assert "7 of 9 weights" in words
    assert "2.weight  2 x 4 in the file and 5 x 4 here" in words
    assert torch.equal(model.state_dict()["2.weight"], before["2.weight"])
    assert torch.equal(model.state_dict()["0.weight"], STATE["0.weight"])


def test_a_model_is_as_it_was_where_nothing_fits_or_loading_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = _model()
    before = copy.deepcopy(model.state_dict())
    torch.save({"a": torch.ones(9)}, tmp_path / "other.pth")
    with pytest.raises(CheckpointError, match=r"nothing of .* fits the model: it has a; the model has 0\.weight"):
        load_from(model, tmp_path / "other.pth")
    torch.save({**STATE, "0.bias": torch.ones(4, dtype=torch.complex64)}, tmp_path / "complex.pth")
    with pytest.raises(CheckpointError, match="complex there and real here"):
        load_from(model, tmp_path / "complex.pth")
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_a_training_starts_from_a_file_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    first = BaseTrainer(config(), work_dir=tmp_path / "first")
    saved = {name: torch.full_like(value, 0.5) for name, value in first.model.state_dict().items()}
    torch.save(saved, tmp_path / "w.pth")
    start = {"load_from": str(tmp_path / "w.pth"), "epochs": 1}
    second = BaseTrainer(config(training=start), work_dir=tmp_path / "second")
    assert all(torch.equal(value, saved[name]) for name, value in second.model.state_dict().items())
    second.train()
    assert [line for line in caplog.messages if "starts from" in line and "w.pth" in line]


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("none.pth", "training.load_from: cannot load none.pth"),
        ({"path": "none.pth", "stric": True}, "did you mean 'strict'"),
        ({"strict": True}, "training.load_from.path: missing"),
    ],
)
def test_a_wrong_setting_is_told_with_its_place(tmp_path: Path, wanted: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        BaseTrainer(config(training={"load_from": wanted}), work_dir=tmp_path)
