"""One writer among several: its failures, and the interval of its pictures."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from ignite_hooks.writers.many import ManyWriters
from ignite_hooks.writers.memory import MemoryWriter
from tests.writers.test_many import Flaky, run


@pytest.mark.parametrize(
    ("bad_steps", "asked", "off"),
    [
        ((1, 2, 3), [1, 2, 3], True),
        ((2, 3, 4), [1, 2, 3, 4], True),
        ((1, 2, 4, 5), [1, 2, 3, 4, 5, 6], False),
        ((), [1, 2, 3, 4, 5, 6], False),
    ],
)
def test_three_failures_in_a_row_disable_a_writer(bad_steps: tuple[int, ...], asked: list[int], off: bool) -> None:
    bad = Flaky(*bad_steps)
    many = ManyWriters([bad])
    run(many)
    assert bad.asked == asked
    assert [report["off"] for report in many.failures().values()] == ([off] if bad_steps else [])


def test_a_failure_to_flush_counts_as_a_failure() -> None:
    class Full(MemoryWriter):
        def flush(self) -> None:
            raise OSError("disk full")

    many = ManyWriters([Full()])
    for _ in range(5):
        many.flush()
    assert many.failures()["Full"] == {"count": 3, "last": "flush: OSError: disk full", "off": True}


def test_only_the_first_failure_has_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="ignite_hooks"):
        run(ManyWriters([Flaky(1, 2, 3)]))
    assert [(record.name, bool(record.exc_info), record.message) for record in caplog.records] == [
        ("ignite_hooks", True, "writer Flaky failed in write_scalars: OSError: disk full at 1"),
        ("ignite_hooks", False, "writer Flaky failed in write_scalars: OSError: disk full at 2"),
        ("ignite_hooks", False, "writer Flaky failed in write_scalars: OSError: disk full at 3"),
        ("ignite_hooks", False, "writer Flaky is switched off: 3 failures in a row"),
    ]


def test_a_disabled_writer_is_still_closed() -> None:
    bad = Flaky(1, 2, 3)
    many = ManyWriters([bad])
    run(many)
    assert not bad.closed
    many.close()
    assert bad.closed


def test_ctrl_c_is_not_a_failure_of_the_writer() -> None:
    class Interrupted(MemoryWriter):
        def write_scalar(self, name: str, value: Any, step: int) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ManyWriters([Interrupted()]).write_scalar("loss", 0.5, 1)


def test_late_pictures_and_those_of_a_new_run_are_written() -> None:
    """Each hook draws in its own thread, and a second run counts from 1 again."""
    memory = MemoryWriter()
    many = ManyWriters([memory])
    spaced = MemoryWriter()
    many.join(spaced, pictures_every=100)
    for step in (500, 510, 500, 1, 2):
        many.write_image("cat", None, step)
    assert [step for _, _, step in memory.images] == [500, 510, 500, 1, 2]
    assert [step for _, _, step in spaced.images] == [500, 500, 1]
