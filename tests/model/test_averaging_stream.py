"""The stream of a GPU, by a stand-in that writes down what is queued where: there is no GPU here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from ignite_hooks.model.averaging_stream import AveragingStream

GPU = torch.device("cuda", 1)


class Queue:
    """A stream that remembers what was queued."""

    current: Queue

    def __init__(self, device: torch.device, name: str = "own") -> None:
        assert device == GPU
        self.name, self.queued = name, list[str]()

    def wait_stream(self, other: Queue) -> None:
        self.queued.append(f"wait for {other.name} after {len(other.queued)}")


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> Queue:
    training = Queue.current = Queue(GPU, "training")

    @contextlib.contextmanager
    def stream(queue: Queue) -> Iterator[None]:
        before, Queue.current = Queue.current, queue
        yield
        Queue.current = before

    def current_stream(device: Any) -> Queue:
        assert device == GPU
        return Queue.current

    monkeypatch.setattr(torch.cuda, "Stream", Queue)
    monkeypatch.setattr(torch.cuda, "stream", stream)
    monkeypatch.setattr(torch.cuda, "current_stream", current_stream)
    return training


def update(momentum: float) -> bool:
    Queue.current.queued.append(f"update {momentum}")
    return True


def test_an_update_waits_for_the_step_and_the_next_step_for_it(training: Queue) -> None:
    averaging = AveragingStream(GPU)
    assert averaging.result() is None
    assert training.queued == [], "nothing to wait for"
    training.queued.append("step 1")
    averaging.submit(update, 0.9)
    training.queued.append("forward 2")
    averaging.wait()
    assert averaging.result() is True
    assert averaging.result() is None
    training.queued.append("step 2")
    averaging.close()
    own = averaging._stream.queued
    assert own == ["wait for training after 1", "update 0.9"]
    wait = "wait for own after 2"
    assert training.queued == ["step 1", "forward 2", wait, wait, "step 2"]
