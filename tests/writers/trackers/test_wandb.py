"""The settings of the writer for W&B; what it records is tested in `tests/hooks/trackers/test_wandb_hook.py`."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from ignite_hooks.writers.trackers.wandb import WandbWriter
from tests.tools import trackers_at
from tests.writers.trackers.wandb_server import wandb_server

wandb: Any = pytest.importorskip("wandb")


def test_the_variable_of_wandb_decides_in_mode_auto(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for value, mode in (("offline", "offline"), ("disabled", "disabled"), ("", "auto")):
        monkeypatch.setenv("WANDB_MODE", value)
        assert WandbWriter(work_dir=tmp_path).mode == mode
        assert WandbWriter(work_dir=tmp_path, mode="online").mode == "online"


def records(folder: Path) -> WandbWriter:
    writer = WandbWriter(work_dir=folder, mode="auto", deadline=240.0)
    writer.write_scalars({"loss": 1.0}, 1)
    writer.close()
    return writer


@pytest.mark.slow
def test_a_later_run_uses_the_server_that_the_variables_name_by_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """W&B reads its variables once per process, and would record the second run on the server of the first."""
    with trackers_at(tmp_path), wandb_server() as first, wandb_server() as second:
        monkeypatch.delenv("WANDB_MODE")
        monkeypatch.setenv("NETRC", str(tmp_path / "none"))
        for server, key in ((first, "0" * 40), (second, "1" * 40)):
            monkeypatch.setenv("WANDB_BASE_URL", server.url)
            monkeypatch.setenv("WANDB_API_KEY", key)
            writer = records(tmp_path / key[:1])
            assert writer.page.startswith(server.url)
            assert str(writer.run_id) in writer.page
            assert [server.rows.keys() for server in (first, second)] == [{1}, {1} if server is second else set()]
        monkeypatch.delenv("WANDB_BASE_URL")
        monkeypatch.delenv("WANDB_API_KEY")
        assert records(tmp_path / "2").page == ""
        assert "WandbWriter: no key is configured (wandb login), so it works offline" in caplog.text


def test_while_a_run_is_open_changed_variables_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with trackers_at(tmp_path):
        monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:1")
        settings = wandb.Settings(silent=True, console="off")
        open_run = wandb.init(mode="offline", dir=str(tmp_path), settings=settings, reinit="create_new")
        monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:2")
        records(tmp_path)
        open_run.finish()
    assert "the variables WANDB_... have changed, but the ones before hold, with http://127.0.0.1:1," in caplog.text
