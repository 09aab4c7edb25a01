"""What two ranks have saved of a sharded model."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.ranks import run_ranks
from tests.sharded import trained


@pytest.fixture(scope="package")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Return what two ranks have saved, and what they held at the end."""
    folder = tmp_path_factory.mktemp("two_ranks")
    first, second = run_ranks(trained, str(folder))
    assert first == second
    return folder, first


@pytest.fixture
def saved(two_ranks: tuple[Path, dict[str, Any]], tmp_path: Path) -> Path:
    """Return a copy of what two ranks have saved."""
    return Path(shutil.copytree(two_ranks[0], tmp_path / "work"))
