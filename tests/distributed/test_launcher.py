"""`launcher.py`: restarts are counted, and Slurm is asked to start a job again."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from ignite_hooks.distributed.launcher import requeue, restarted, slurm_job


@pytest.mark.parametrize("value", ["", "0", "-1", "many"])
def test_only_a_number_above_zero_is_a_restart(value: str) -> None:
    assert restarted({"SLURM_RESTART_COUNT": value}) is None
    assert restarted({"SLURM_RESTART_COUNT": value, "TORCHELASTIC_RESTART_COUNT": "3"}) is not None


def test_only_a_number_is_a_slurm_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    assert slurm_job() == "17"
    monkeypatch.setenv("SLURM_JOB_ID", "17; rm")
    assert slurm_job() is None


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("exit 0", None),
        ("kill -TERM $$", None),
        ("echo 'Invalid job id' >&2; exit 1", "Invalid job id"),
        ("exit 3", "scontrol requeue 17 ended with code 3"),
    ],
)
def test_what_scontrol_says_is_returned(
    script: str, problem: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = tmp_path / "scontrol"
    command.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/said\n{script}\n')
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert requeue("17") == problem
    assert (tmp_path / "said").read_text() == "requeue 17\n"


def test_a_missing_scontrol_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "scontrol" in (requeue("17") or "")
