"""The settings of the writer for W&B; what it records is tested in `tests/hooks/trackers/test_wandb_hook.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from ignite_hooks.writers.trackers.wandb import WandbWriter

pytest.importorskip("wandb")


def test_the_variable_of_wandb_decides_in_mode_auto(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for value, mode in (("offline", "offline"), ("disabled", "disabled"), ("", "auto")):
        monkeypatch.setenv("WANDB_MODE", value)
        assert WandbWriter(work_dir=tmp_path).mode == mode
        assert WandbWriter(work_dir=tmp_path, mode="online").mode == "online"
