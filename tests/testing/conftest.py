"""Tests of the kit for testing hooks run on one thread and leave no signal handlers behind."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    # On tensors this small threads only wait for each other.
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def signal_handlers() -> Iterator[None]:
    """Restore the signal handlers that hooks with broken promises leave behind."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
