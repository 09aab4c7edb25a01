"""Fixtures for every test."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
import torch

# Before any fixture and any fork: small tensors on a busy machine are slower with more.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Let the next test begin with one thread again, whatever number this one or its hooks have set."""
    yield
    torch.set_num_threads(1)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip syncs, in tests whose files need not survive the machine."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture(autouse=True)
def handlers_of_signals() -> Iterator[None]:
    """Put back the handlers of signals: ClearML leaves its own, under which Ctrl-C is no KeyboardInterrupt."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler or signal.SIG_DFL)
