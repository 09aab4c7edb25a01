"""The tiny trainer."""

from __future__ import annotations

import torch
from ignite.engine import Events

from ignite_hooks.checkpoint.rng_state import random_state
from ignite_hooks.store.memory import MemoryStore as StoreInMemory
from ignite_hooks.testing import MemoryStore, MemoryWriter, tiny_run, tiny_trainer
from ignite_hooks.writers.memory import MemoryWriter as WriterInMemory


def test_tiny_runs_differ_only_by_their_seed() -> None:
    def losses(seed: int) -> list[float]:
        run = tiny_run(seed=seed)
        found: list[float] = []
        run.trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda engine: found.append(engine.state.output))
        run.trainer.run(run.data, max_epochs=2)
        return found

    assert losses(0) == losses(0) != losses(1)
    assert len(losses(0)) == 6


def test_a_tiny_run_leaves_global_random_state_alone() -> None:
    before = random_state()
    run = tiny_run()
    run.trainer.run(run.data, max_epochs=1)
    run.evaluator.run(run.val_data)
    after = random_state()
    assert before["python"] == after["python"]
    assert before["numpy"] == after["numpy"]
    assert torch.equal(before["torch"], after["torch"])


def test_a_tiny_run_learns() -> None:
    run = tiny_run(batches=10)
    before = run.evaluator.run(run.val_data).metrics["loss"]
    run.trainer.run(run.data, max_epochs=20)
    after = run.evaluator.run(run.val_data).metrics
    assert after["loss"] < before / 2
    assert after["accuracy"] > 0.8


def test_a_tiny_trainer_has_as_many_batches_as_asked_for() -> None:
    trainer, data = tiny_trainer(batches=5)
    assert len(data) == 5
    assert trainer.run(data).iteration == 5


def test_memory_writer_and_store_are_exported() -> None:
    assert MemoryWriter is WriterInMemory
    assert MemoryStore is StoreInMemory
