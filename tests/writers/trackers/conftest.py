"""Fixtures of tests of deliveries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ignite_hooks.writers.trackers.delivery import Delivery
from ignite_hooks.writers.trackers.spool import Spool
from tests.writers.trackers.places import Place


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.fixture
def deliver(place: Place, tmp_path: Path) -> Callable[..., Delivery]:
    def make(**settings: Any) -> Delivery:
        spool = Spool(tmp_path / "a.spool", {"writer": "A"})
        return Delivery(place.connect, spool, "A", **{"retries": (), "pause": 0.0, **settings})

    return make
