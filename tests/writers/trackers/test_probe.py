"""Servers that answer, and servers with faults."""

from __future__ import annotations

import pytest

from ignite_hooks.writers.trackers.probe import PATIENCE, answers
from tests.writers.trackers.servers import FAULTS, faulty, unreachable


@pytest.mark.parametrize("how", list(FAULTS))
def test_a_server_with_a_fault_does_not_answer(how: str) -> None:
    with faulty(how) as url:
        # For all bytes together: the slow one sends the next in time, and would have said 200 in the end.
        assert not answers(url, patience=1.0)


def test_a_port_without_a_server_does_not_answer() -> None:
    assert not answers(unreachable())
    assert not answers("no address at all")
    assert not answers("http://")


def test_a_server_has_two_seconds_to_answer() -> None:
    assert PATIENCE == 2.0
