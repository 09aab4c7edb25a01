"""The notebook of the experiment with a server: the clone is real there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.agent.agent import ROOT, Agent

nbformat: Any = pytest.importorskip("nbformat")
papermill: Any = pytest.importorskip("papermill")


def test_the_clone_of_the_notebook_trains_what_was_edited(
    agent: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in agent.environment.items():
        monkeypatch.setenv(name, value)
    for name in ("HOME", "IGNITE_HOOKS_WORK_DIR"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    done = tmp_path / "done.ipynb"
    given = {"MODE": "online", "WORK_DIR": "elsewhere"}
    settings = {"cwd": str(tmp_path), "execution_timeout": 300, "progress_bar": False, "kernel_name": "python3"}
    papermill.execute_notebook(str(ROOT / "notebooks" / "clearml_experiment.ipynb"), str(done), given, **settings)
    text = done.read_text("utf-8")
    assert "values of the ClearML task: Training/batch_size: 50 -> 25; Training/optimizer/lr: 0.003 -> 0.03" in text
    assert "the weights of a run by hand: True" in text
    assert '"image/png"' in text
    assert [task["name"] for task in agent.server.tasks.values()] == ["notebook", "notebook, higher rate"]
