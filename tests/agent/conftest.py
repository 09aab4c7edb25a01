"""Tests that need the agent of ClearML are collected by ``make agent`` only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.agent import VARIABLE, Agent
from tests.writers.trackers.clearml_server import clearml_server

collect_ignore_glob = [] if os.environ.get(VARIABLE) else ["test_*.py"]


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    """An agent in its own home, and the server that it talks to."""
    with clearml_server() as server:
        yield Agent(server, tmp_path / "home")
