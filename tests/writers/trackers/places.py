"""A place for records that can be down and can hang."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from ignite_hooks.writers.trackers.delivery import Delivery
from ignite_hooks.writers.trackers.spool import TrackerRecord
from ignite_hooks.writers.trackers.tracker import Ending, Refused, Tracker

SOON = 30.0
"""Seconds after which something that should happen has failed."""


class Place(Tracker):
    """Keeps the records that arrive; can be down, and can hang."""

    def __init__(self) -> None:
        self.arrived_so_far: list[TrackerRecord] = []
        self.down = False
        self.asked = threading.Semaphore(0)
        self.answer = threading.Event()
        self.answer.set()
        self.connected = 0
        self.closed: list[str] = []

    def connect(self) -> Place:
        self.connected += 1
        return self

    def send(self, records: Sequence[TrackerRecord]) -> None:
        self.asked.release()
        self.answer.wait()
        if self.down:
            raise ConnectionError("the line is dead")
        super().send(records)

    def scalars(self, record: TrackerRecord) -> None:
        if record.step == 13:
            raise Refused("13 is not a step")
        self.arrived_so_far.append(record)

    def close(self, ended: Ending = "finished") -> bool:
        self.closed.append(ended)
        return not self.down

    @property
    def steps(self) -> list[int]:
        return [record.step for record in self.arrived_so_far]


def put(delivery: Delivery, *steps: int) -> None:
    for step in steps:
        delivery.put(TrackerRecord("scalars", step, float(step), {"loss": 1.0}))
