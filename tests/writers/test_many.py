from __future__ import annotations

from typing import Any

import numpy

from ignite_hooks.writers.interface import Writer
from ignite_hooks.writers.many import PRODUCERS_WAIT, ManyWriters
from ignite_hooks.writers.memory import MemoryWriter


class Flaky(MemoryWriter):
    """Fails at given steps."""

    def __init__(self, *bad_steps: int) -> None:
        super().__init__()
        self.bad_steps = bad_steps
        self.asked: list[int] = []

    def write_scalar(self, name: str, value: Any, step: int) -> None:
        self.asked.append(step)
        if step in self.bad_steps:
            raise OSError(f"disk full at {step}\nand a second line")
        super().write_scalar(name, value, step)


def steps(writer: Flaky) -> list[int]:
    return [step for _, _, step in writer.scalars]


def run(many: ManyWriters, count: int = 6) -> None:
    for step in range(1, count + 1):
        many.write_scalars({"loss": 0.5}, step)
        many.flush()


def test_everything_reaches_every_writer_in_order() -> None:
    order: list[str] = []

    class Noting(Writer):
        def __init__(self, name: str) -> None:
            self.name = name

        def __getattribute__(self, method: str) -> Any:
            if method.startswith("write_") or method in ("resumed", "flush", "close"):
                return lambda *_, **__: order.append(f"{self.name}.{method}")
            return super().__getattribute__(method)

    many = ManyWriters([Noting("a"), Noting("b")])
    many.write_scalar("loss", 0.5, 1)
    many.write_scalars({"loss": 0.5}, 1, kind="val", epoch=1)
    many.write_measured({"loss": 0.5}, 1, kind="val", epoch=1)
    many.write_image("cat", None, 1)
    many.write_figure("plot", None, 1)
    many.write_histogram("weights", [], 1)
    many.write_text("note", "hello", 1)
    many.write_config({})
    many.write_graph(None, None)
    many.write_table("t", ["a"], [[1]], 1)
    many.write_result("r", {"kind": "table"}, 1)
    many.write_video("v", numpy.zeros((1, 2, 2, 3)), 1)
    many.write_artifact("file")
    many.resumed(1)
    many.flush()
    many.close()
    # These two arrive as what they were made to, once for all writers.
    made = ("write_audio", "write_video")
    called = [name for name in vars(Writer) if name.startswith("write_") or name in ("resumed", "flush", "close")]
    methods = [name for name in called if name not in made]
    assert sorted(order) == sorted(f"{writer}.{method}" for method in methods for writer in "ab")
    assert [entry[0] for entry in order] == ["a", "b"] * len(methods)


def test_kind_and_epoch_are_passed_on() -> None:
    memory = MemoryWriter()
    ManyWriters([memory]).write_scalars({"acc": 0.9}, 7, kind="val", epoch=2)
    assert memory.lines == [({"acc": 0.9}, 7, "val", 2)]


def test_a_failing_writer_does_not_disturb_the_others() -> None:
    before, bad, after = Flaky(), Flaky(2), Flaky()
    many = ManyWriters([before, bad, after])
    run(many)
    assert steps(before) == steps(after) == [1, 2, 3, 4, 5, 6]
    assert steps(bad) == [1, 3, 4, 5, 6]
    assert many.failures() == {"Flaky#2": {"count": 1, "last": "write_scalars: OSError: disk full at 2", "off": False}}


def test_a_failure_to_close_leaves_the_others_closed() -> None:
    class Stuck(MemoryWriter):
        def close(self) -> None:
            raise ConnectionError("server gone")

    memory = MemoryWriter()
    many = ManyWriters([Stuck(), memory])
    many.close()
    assert memory.closed
    assert many.failures()["Stuck"]["last"] == "close: ConnectionError: server gone"


def test_there_may_be_no_writers() -> None:
    many = ManyWriters([])
    run(many)
    many.close()
    assert many.failures() == {}


# -- writers with their own hook ------------------------------------------------------------------------------


def test_a_joined_writer_gets_everything_but_write_measured() -> None:
    always, own = MemoryWriter(), MemoryWriter()
    many = ManyWriters([always])
    place = many.join(own)
    many.write_measured({"loss": 0.5}, 1)
    many.write_scalar("mine", 2.0, 1)
    place.write_scalars({"loss": 0.4}, 2)
    assert always.scalars == [("loss", 0.5, 1), ("mine", 2.0, 1)]
    assert own.scalars == [("mine", 2.0, 1), ("loss", 0.4, 2)]


def test_a_writer_that_leaves_is_closed() -> None:
    own = MemoryWriter()
    many = ManyWriters([])
    place = many.join(own)
    many.leave(place)
    many.write_scalar("mine", 2.0, 1)
    place.write_scalar("mine", 2.0, 1)
    assert own.closed
    assert own.scalars == []
    assert many.writers == []


def test_at_the_end_of_a_run_a_writer_leaves_after_everything_has_come() -> None:
    own = MemoryWriter()
    many = ManyWriters([])
    place = many.join(own)
    many.prepare_to_close()
    assert 0 < many.seconds_left <= PRODUCERS_WAIT
    many.leave(place)
    many.write_image("late", None, 2)
    assert not own.closed
    many.close()
    many.write_image("too late", None, 3)
    assert own.closed
    assert [name for name, _, _ in own.images] == ["late"]
    assert many.writers == []
    assert many.seconds_left == PRODUCERS_WAIT, "another run has its own end"


def test_failures_of_a_writer_that_left_are_still_reported() -> None:
    many = ManyWriters([MemoryWriter(), Flaky()])
    place = many.join(Flaky(1))
    place.write_scalar("loss", 0.5, 1)
    many.leave(place)
    assert many.failures()["Flaky#2"]["count"] == 1


def test_a_disabled_writer_gets_no_measures() -> None:
    bad = Flaky(1, 2, 3)
    many = ManyWriters([bad])
    for step in range(1, 6):
        many.write_measured({"loss": 0.5}, step)
    assert bad.asked == [1, 2, 3]


def test_a_result_is_drawn_once_and_only_where_pictures_are_taken() -> None:
    drawn = []

    def draw() -> Any:
        drawn.append(1)
        return numpy.zeros((2, 2, 3), numpy.uint8)

    one, other, tracker = MemoryWriter(), MemoryWriter(), MemoryWriter()
    many = ManyWriters([one, other])
    place = many.join(tracker, pictures=False)
    many.write_measured_result("m", {"kind": "matrix", "values": [[1]]}, 3, draw=draw)
    assert (len(one.images), len(other.images), len(drawn), tracker.results) == (1, 1, 1, [])
    place.write_result("m", {"kind": "matrix", "values": [[1]]}, 3, draw=draw)
    assert (len(tracker.results), tracker.images, len(drawn)) == (1, [], 1)


def test_addresses_of_the_run_are_known_by_the_names_of_their_writers() -> None:
    class PlaceWriter(MemoryWriter):
        page = ""

    place = PlaceWriter()
    many = ManyWriters([place, MemoryWriter()])
    assert many.pages() == {}
    place.page = "https://host/run"
    assert many.pages() == {"PlaceWriter": "https://host/run"}
