"""A task that waits in a queue; that an agent trains it is tested by `tests/agent`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ignite_hooks.errors import ConfigError
from ignite_hooks.trainer import commands, queued
from ignite_hooks.trainer.queued import enqueue
from ignite_hooks.writers.trackers.clearml_task import Views

CONFIG = """
model: mlp
dataset: digits
training: {epochs: 1, optimizer: {type: Adam, lr: 0.01}}  # by hand
hooks: [{type: ClearMLHook, project: digits, tags: [a]}, EMAHook]
"""
Asked = tuple[Views, str, str, dict[str, Any]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Asked]:
    """What would be asked of the server."""
    found: list[Asked] = []

    def take(views: Views, file: str, queue: str, **more: Any) -> tuple[str, str]:
        found.append((views, file, queue, more))
        return "3f", "http://there/3f"

    monkeypatch.setattr(queued, "queued_task", take)
    return found


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "a.yaml").write_text(CONFIG)
    return str(tmp_path / "a.yaml")


def test_the_task_has_the_configuration_with_what_set_says(asked: list[Asked], file: str) -> None:
    told = enqueue(file, ["training.optimizer.lr=0.5"], "gpu")
    assert told == "task 3f waits in the queue gpu: http://there/3f"
    [(views, *rest)] = asked
    assert rest == [file, "gpu", {"project": "digits", "tags": ["a"]}]
    assert views.text == CONFIG.replace("0.01", "0.5")
    assert views.parameters["Training/optimizer/lr"] == "0.5"


def test_no_task_is_made_of_a_wrong_configuration(asked: list[Asked], file: str) -> None:
    pytest.importorskip("clearml")
    with pytest.raises(ConfigError) as caught:
        enqueue(file, ["hooks.1.momentum=lots", "training.epochs=-1"], "gpu")
    assert {problem.place for problem in caught.value.problems} == {"hooks[1].momentum", "training.epochs"}
    with pytest.raises(ConfigError, match=r"add \{type: ClearMLHook, project: NAME\}"):
        enqueue(file, ["hooks.0.connect=false"], "gpu")
    assert asked == []


def test_an_agent_trains_and_queues_nothing(
    asked: list[Asked], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], file: str
) -> None:
    pytest.importorskip("clearml")
    monkeypatch.setattr(commands, "_train", lambda *_: print("trained"))
    given: dict[str, Any] = {"resume": None, "overrides": (), "work_dir": None, "dry_run": False, "queue": "gpu"}
    assert commands.train(file, **given) == 0
    monkeypatch.setenv("CLEARML_TASK_ID", "3f")
    assert commands.train(file, **given) == 0
    assert capsys.readouterr().out == "task 3f waits in the queue gpu: http://there/3f\ntrained\n"
