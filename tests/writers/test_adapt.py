"""Objects of other libraries as writers."""

from __future__ import annotations

from typing import Any

import pytest

from ignite_hooks.writers.adapt import adapt
from ignite_hooks.writers.many import ManyWriters
from ignite_hooks.writers.memory import MemoryWriter


class Duck:
    """Has the three methods of the specification, and another parent."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def write_scalar(self, *arguments: Any) -> None:
        self.calls.append(("scalar", *arguments))

    def write_image(self, *arguments: Any) -> None:
        self.calls.append(("image", *arguments))

    def write_config(self, *arguments: Any) -> None:
        self.calls.append(("config", *arguments))


def test_an_object_with_three_methods_is_a_writer() -> None:
    duck = Duck()
    many = ManyWriters([duck])
    many.write_scalars({"loss": 0.5, "lr": 0.1}, 7, kind="train", epoch=1)
    many.write_image("cat", None, 7)
    many.write_text("note", "hello", 7)
    many.write_config({"seed": 1})
    many.flush()
    many.close()
    scalars = [("scalar", "loss", 0.5, 7), ("scalar", "lr", 0.1, 7)]
    assert duck.calls == [*scalars, ("image", "cat", None, 7), ("config", {"seed": 1})]
    assert many.failures() == {}


def test_further_methods_of_an_object_are_used() -> None:
    class Rich(Duck):
        def write_scalars(self, scalars: Any, step: int, *, kind: str = "", epoch: Any = None) -> None:
            self.calls.append(("scalars", scalars, step, kind, epoch))

        def close(self) -> None:
            self.calls.append(("close",))

    rich = Rich()
    many = ManyWriters([rich])
    many.write_scalars({"loss": 0.5}, 7, kind="val", epoch=1)
    many.close()
    assert rich.calls == [("scalars", {"loss": 0.5}, 7, "val", 1), ("close",)]


def test_another_signature_of_write_scalars_is_not_called() -> None:
    class Other(Duck):
        def write_scalars(self, scalars: Any, step: int) -> None:
            raise AssertionError("not with these arguments")

    other = Other()
    ManyWriters([other]).write_scalars({"loss": 0.5}, 7, kind="val", epoch=1)
    assert other.calls == [("scalar", "val/loss", 0.5, 7)]


def test_a_writer_needs_no_adapting() -> None:
    memory = MemoryWriter()
    assert adapt(memory) is memory
    assert ManyWriters([memory]).writers == [memory]


def test_an_object_that_is_no_writer_is_rejected_by_name() -> None:
    class Half:
        def write_scalar(self) -> None: ...

    with pytest.raises(TypeError, match=r"^Half is not a writer: it has no write_image, write_config$"):
        ManyWriters([Half()])


def test_a_failing_object_is_reported_under_its_own_name() -> None:
    class Broken(Duck):
        def write_config(self, *arguments: Any) -> None:
            raise RuntimeError("no")

    many = ManyWriters([Broken(), Broken()])
    many.write_config({})
    assert list(many.failures()) == ["Broken", "Broken#2"]
