"""Where W&B's writer finds its settings; what it records is in `tests/hooks/test_wandb_hook.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from ignite_hooks.writers.trackers.wandb import WandbWriter

pytest.importorskip("wandb")


def test_its_own_variable_decides_in_mode_auto(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for value, mode in (("offline", "offline"), ("disabled", "disabled"), ("", "auto")):
        monkeypatch.setenv("WANDB_MODE", value)
        assert WandbWriter(work_dir=tmp_path).mode == mode
        assert WandbWriter(work_dir=tmp_path, mode="online").mode == "online"
