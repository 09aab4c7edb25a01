"""`worker_generators.py`: whether workers have drawn; `test_skip.py` has runs with real workers."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from torch.utils.data import DataLoader, Subset

from ignite_hooks.model import worker_generators
from ignite_hooks.model.worker_generators import ReportingCollate, WorkerReport, note_seeded


class Data(list[int]):
    count = 0


@pytest.mark.parametrize(
    ("draw", "drawn"),
    [
        (lambda data: None, False),
        (lambda data: random.random(), True),
        (lambda data: numpy.random.rand(), True),
        (lambda data: torch.rand(()), True),
        (lambda data: setattr(data, "count", 1), True),
        (lambda data: setattr(data, "late", []), True),
    ],
)
def test_a_worker_says_what_it_has_drawn_or_counted(draw: Any, drawn: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    data = Data([1, 2])
    info = SimpleNamespace(id=1, dataset=Subset(data, [0, 1]))
    monkeypatch.setattr(worker_generators, "_seeded", [])
    monkeypatch.setattr(torch.utils.data, "get_worker_info", lambda: info)
    note_seeded()
    flags = torch.zeros(2, dtype=torch.uint8)
    collate = ReportingCollate(sum, flags)
    assert collate([1, 2]) == 3
    assert flags.tolist() == [0, 0]
    draw(data)
    assert collate([1, 2]) == 3
    assert flags.tolist() == [0, int(drawn)]


def test_a_worker_that_was_not_watched_from_its_start_counts_as_one_that_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_generators, "_seeded", [])
    monkeypatch.setattr(torch.utils.data, "get_worker_info", lambda: SimpleNamespace(id=0, dataset=[1]))
    flags = torch.zeros(1, dtype=torch.uint8)
    ReportingCollate(sum, flags)([1])
    assert flags.tolist() == [1]


def test_a_loader_gets_its_function_back() -> None:
    loader: Any = DataLoader([1, 2], num_workers=1)
    before = loader.collate_fn
    report = WorkerReport(loader)
    assert isinstance(loader.collate_fn, ReportingCollate)
    report.give_back()
    assert loader.collate_fn is before
    assert report.untouched()
