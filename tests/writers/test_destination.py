"""One writer among several: its failures, and the interval of its pictures."""

from __future__ import annotations

import logging
import threading
from typing import Any

import numpy
import pytest

from ignite_hooks.writers.destination import RARE, Destination
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
    many.close()
    assert [step for _, _, step in spaced.images] == [500, 500, 1, 2]


@pytest.mark.parametrize(
    ("every", "steps"), [(1, [1, 2, 3, 5, 6]), (2, [1, 3, 5, 6]), (5, [1, 6]), (9, [1, 6])], ids=str
)
def test_each_name_has_its_own_interval_and_its_last_picture(every: int, steps: list[int]) -> None:
    memory = MemoryWriter()
    destination = Destination(memory, "memory", pictures_every=every)
    for step in (1, 2, 3, 5, 6):
        destination.show("write_image", "val/cam", step, step)
        destination.show("write_image", "train/cam", step, step)
        if step == 2:
            destination.show("write_image", "late", step, step)
    destination.leave()
    assert sorted(memory.images) == sorted(
        [(name, step, step) for name in ("val/cam", "train/cam") for step in steps] + [("late", 2, 2)]
    )


@pytest.mark.parametrize("name", sorted(RARE))
def test_no_interval_leaves_out_a_rare_picture(name: str) -> None:
    memory = MemoryWriter()
    destination = Destination(memory, "memory", pictures_every=1000)
    for step in (1, 2, 3):
        destination.show("write_image", name, None, step)
    assert [step for _, _, step in memory.images] == [1, 2, 3]


def test_a_last_picture_is_not_what_was_drawn_over_it_later() -> None:
    memory, canvas = MemoryWriter(), numpy.zeros((2, 2, 3), numpy.uint8)
    destination = Destination(memory, "memory", pictures_every=10)
    for step in (1, 2):
        canvas[:] = step
        destination.show("write_image", "cat", canvas, step)
    canvas[:] = 9
    destination.leave()
    assert memory.images[-1][1].max() == 2


def test_who_takes_no_pictures_gets_none_at_the_end_either() -> None:
    memory = MemoryWriter()
    destination = Destination(memory, "memory", takes_pictures=False)
    destination.show("write_image", "cat", None, 1)
    destination.leave()
    assert memory.images == []
    assert memory.closed


def test_closing_waits_for_a_picture_that_is_being_written() -> None:
    order: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    class Slow(MemoryWriter):
        def write_image(self, name: str, image: Any, step: int) -> None:
            begun.set()
            assert go_on.wait(60)
            order.append("picture")

        def close(self) -> None:
            order.append("close")

    destination = Destination(Slow(), "slow")
    drawing = threading.Thread(target=destination.show, args=("write_image", "cat", None, 1))
    drawing.start()
    assert begun.wait(60)
    closing = threading.Thread(target=destination.leave)
    closing.start()
    go_on.set()
    closing.join()
    drawing.join()
    destination.show("write_image", "cat", None, 2)
    assert order == ["picture", "close"]


def test_a_disabled_destination_only_answers_if_told_to() -> None:
    memory = MemoryWriter()
    destination = Destination(memory, "memory", disabled=True)
    destination.call("write_scalar", "loss", 0.5, 1)
    destination.show("write_image", "cat", None, 1)
    assert memory.scalars == memory.images == []
    destination.call("close", even_if_disabled=True)
    assert memory.closed
