"""A checkpoint says what its bits depend on, and a resumed run names each difference in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from ignite_hooks.checkpoint.environment import environment, environment_changes
from tests.checkpoint.runs import content, script


@pytest.mark.usefixtures("quick")
def test_another_number_of_threads_is_told_with_the_remedy(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    torch.set_num_threads(2)
    script(tmp_path).run(1)
    assert content(tmp_path / "last.pth")["meta"]["environment"]["torch threads"] == 2
    torch.set_num_threads(1)
    script(tmp_path, resume="auto").run(2)
    (told,) = [message for message in caplog.messages if "other bits" in message]
    assert "because of torch threads 2 -> 1; {type: DeterminismHook, threads: 2} sets the number" in told
    caplog.clear()
    torch.set_num_threads(2)
    hooks: list[Any] = [
        "CheckpointHook",
        {"type": "DeterminismHook", "threads": 1, "seed": None, "deterministic": False},
    ]
    script(tmp_path, hooks, resume="auto").run(3)
    assert "other bits" not in caplog.text
    assert torch.get_num_threads() == 2


def test_each_difference_is_named() -> None:
    assert environment_changes(environment()) is None
    saved = {**environment(), "torch": "2.0.0", "MKL_CBWR": "AVX2", "unknown": 3}
    told = environment_changes(saved)
    assert told is not None
    assert f"torch 2.0.0 -> {torch.__version__}, MKL_CBWR AVX2 -> not set" in told
    assert "DeterminismHook" not in told


@pytest.mark.parametrize("saved", [None, 3, {}])
def test_a_file_without_an_environment_differs_in_nothing(saved: object) -> None:
    assert environment_changes(saved) is None
