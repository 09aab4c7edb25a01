"""Fixtures of tests of configurations."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
