"""Fixtures of tests of stores: numbered states, and a folder that holds two of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from ignite_hooks.store import Entry, FolderStore, Retire


@pytest.fixture(autouse=True)
def quick_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip fsync, which only takes time here: what a killed process has written is not lost."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def make_state() -> Callable[[int], dict[str, Any]]:
    def make(number: int) -> dict[str, Any]:
        return {"number": number, "state_dict": {"weight": torch.full((64,), float(number))}}

    return make


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FolderStore]:
    with FolderStore(tmp_path / "checkpoints") as opened:
        yield opened


@pytest.fixture
def two_saved(tmp_path: Path, make_state: Callable[[int], dict[str, Any]]) -> Path:
    """Return a closed folder with ``epoch_1.pth`` of iteration 10, then ``last.pth`` of iteration 20."""
    folder = tmp_path / "checkpoints"
    with FolderStore(folder) as opened:
        opened.save("epoch_1.pth", make_state(10), kind="periodic", epoch=1, iteration=10)
        opened.save("last.pth", make_state(20), kind="last", epoch=2, iteration=20)
    return folder


def all_but_newest(keep: int) -> Retire:
    """Choose the periodic checkpoints beyond the newest ones."""

    def retire(entries: list[Entry]) -> list[Entry]:
        periodic = sorted((entry for entry in entries if entry.kind == "periodic"), key=lambda entry: entry.iteration)
        return periodic[: len(periodic) - keep]

    return retire


def overwrite(store: FolderStore, make_state: Callable[[int], dict[str, Any]]) -> None:
    store.save("last.pth", make_state(30), kind="last", epoch=3, iteration=30)


def number_of_newest(store: FolderStore) -> int:
    newest = store.newest()
    assert newest is not None
    return int(store.load(newest)["number"])
