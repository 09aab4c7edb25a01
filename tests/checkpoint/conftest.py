"""Fixtures of tests of checkpoints: no fsync, as no file must survive a crash."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Skip syncs, as no file here has to survive the machine, and threads, which slow down small models."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
