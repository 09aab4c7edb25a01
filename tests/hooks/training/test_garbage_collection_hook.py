from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ignite.engine import Engine

from ignite_hooks import attach_hooks
from ignite_hooks.distributed.collectives import broadcast_object
from tests.ranks import run_ranks


@pytest.fixture(autouse=True)
def _collecting() -> Iterator[None]:
    """Enable the garbage collector before and after a test."""
    yield
    gc.enable()


def collections(folder: Path, batches: int = 6, **settings: Any) -> list[tuple[int, int]]:
    """Return the iterations of one epoch in which garbage is collected, with the generation."""
    trainer = Engine(lambda engine, batch: [[] for _ in range(2000)])
    attach_hooks(trainer, [{"type": "GarbageCollectionHook", **settings}], work_dir=folder)
    found: list[tuple[int, int]] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and trainer.state.iteration > 0:
            found.append((trainer.state.iteration, info["generation"]))

    gc.callbacks.append(note)
    try:
        trainer.run(range(batches))
    finally:
        gc.callbacks.remove(note)
    return found


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"interval": 2}, [(2, 1), (4, 1), (6, 1), (6, 2)]),
        ({"interval": 4, "generation": 0}, [(4, 0), (6, 2)]),
        ({"interval": 4, "generation": 2}, [(4, 2), (6, 2)]),
        ({}, [(6, 2)]),
    ],
    ids=str,
)
def test_garbage_is_collected_in_these_iterations_and_no_others(
    settings: dict[str, Any], expected: list[tuple[int, int]], tmp_path: Path
) -> None:
    # What comes after the run belongs to Python again.
    assert collections(tmp_path, **settings)[: len(expected)] == expected


@pytest.mark.parametrize("enabled", [True, False])
def test_python_goes_on_as_before(enabled: bool, tmp_path: Path) -> None:
    gc.enable() if enabled else gc.disable()
    collections(tmp_path)
    assert gc.isenabled() is enabled


def test_python_goes_on_as_before_after_a_failure(tmp_path: Path) -> None:
    def fail(engine: Engine, batch: Any) -> None:
        assert not gc.isenabled()
        raise RuntimeError("boom")

    trainer = Engine(fail)
    attach_hooks(trainer, ["GarbageCollectionHook"], work_dir=tmp_path)
    with pytest.raises(RuntimeError, match="boom"):
        trainer.run([0])
    assert gc.isenabled()


def in_each_process(folder: str) -> list[tuple[int, int]]:
    return collections(Path(broadcast_object(folder)), batches=9, interval=4)[:3]


@pytest.mark.slow
def test_all_ranks_collect_in_the_same_iterations(tmp_path: Path) -> None:
    assert run_ranks(in_each_process, str(tmp_path)) == [[[4, 1], [8, 1], [9, 2]]] * 2
