from __future__ import annotations

import copy
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine

from ignite_hooks import ConfigError, attach_hooks
from ignite_hooks.config.starting_weights import LoadFrom, read_load_from
from ignite_hooks.errors import Problem


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (None, None),
        ("w.pth", LoadFrom("w.pth")),
        (Path("w.pth"), LoadFrom("w.pth")),
        ({"path": "w.pth", "weights": "ema", "strict": True}, LoadFrom("w.pth", strict=True, weights="ema")),
    ],
)
def test_a_path_or_a_mapping_is_read(wanted: Any, expected: LoadFrom | None) -> None:
    problems: list[Problem] = []
    assert read_load_from(wanted, problems) == expected
    assert problems == []


@pytest.mark.parametrize(
    ("wanted", "place", "words"),
    [
        (3, "load_from", "a path, or a mapping"),
        ({}, "load_from.path", "missing: the file"),
        ({"path": "w", "weights": "mean"}, "load_from.weights", "raw"),
        ({"path": "w", "rname": {}}, "load_from.rname", "did you mean 'rename'?"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(wanted: Any, place: str, words: str) -> None:
    problems: list[Problem] = []
    assert read_load_from(wanted, problems) is None
    assert [problem.place for problem in problems] == [place]
    assert words in problems[0].message


def attached(folder: Path, config: Any = (), **given: Any) -> tuple[Any, Engine]:
    trainer = Engine(lambda engine, batch: 0.0)
    return attach_hooks(trainer, config, work_dir=folder, **given), trainer


@pytest.mark.parametrize("by_argument", [True, False])
def test_a_script_starts_from_weights(tmp_path: Path, by_argument: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    source, model = torch.nn.Linear(2, 3), torch.nn.Linear(2, 3)
    torch.save({"state_dict": source.state_dict(), "epoch": 3}, tmp_path / "w.pth")
    path = str(tmp_path / "w.pth")
    if by_argument:
        _, trainer = attached(tmp_path, [], model=model, load_from=path)
    else:
        _, trainer = attached(tmp_path, {"hooks": [], "load_from": {"path": path}}, model=model)
    assert torch.equal(model.weight, source.weight)
    trainer.run([0], max_epochs=2)
    told = [line for line in caplog.messages if "2 of 2 weights of the model are loaded" in line]
    assert len(told) == 1
    assert told[0].startswith(f"starts from {path}")


def test_a_resumed_run_has_its_own_weights(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    torch.save(torch.nn.Linear(2, 3).state_dict(), tmp_path / "w.pth")
    first = torch.nn.Linear(2, 3)
    _, trainer = attached(tmp_path / "run", ["CheckpointHook"], model=first)
    trainer.run([0])
    again = torch.nn.Linear(2, 3)
    given = {"resume": "auto", "load_from": tmp_path / "w.pth"}
    _, trainer = attached(tmp_path / "run", ["CheckpointHook"], model=again, **given)
    caplog.set_level(logging.INFO)
    trainer.run([0], max_epochs=2)
    assert torch.equal(again.weight, first.weight)
    assert "starts from" not in caplog.text


@pytest.mark.parametrize("content", [{"other": torch.ones(7)}, None])
def test_where_nothing_fits_nothing_is_attached(tmp_path: Path, content: Any) -> None:
    if content is not None:
        torch.save(content, tmp_path / "w.pth")
    model = torch.nn.Linear(2, 3)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ConfigError, match=r"load_from: .*w\.pth"):
        attached(tmp_path / "run", [], model=model, load_from=tmp_path / "w.pth")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    with pytest.raises(ConfigError, match="load_from: there is no model"):
        attached(tmp_path / "run", [], load_from=tmp_path / "w.pth")
    with pytest.raises(ConfigError, match="load_from: there are several models"):
        attached(tmp_path / "run", [], model={"g": model}, load_from=tmp_path / "w.pth")
    # The folder was given back.
    attached(tmp_path / "run", [], model=model)
