"""A run resumed with another batch size or number of ranks ends after its epochs and sees each sample once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ignite.distributed as idist
import pytest
import torch
from ignite.engine import Engine
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, WeightedRandomSampler

from ignite_hooks import attach_hooks
from ignite_hooks.checkpoint.data.rest_of_epoch import are_counts, counts_of
from tests.ranks import run_ranks

SAMPLES = 24
LOADERS: dict[str, Callable[[int], Any]] = {
    "in order": lambda batch: DataLoader(range(SAMPLES), batch),
    "shuffled": lambda batch: DataLoader(range(SAMPLES), batch, shuffle=True),
    "own generator": lambda batch: DataLoader(
        range(SAMPLES), batch, shuffle=True, generator=torch.Generator().manual_seed(3)
    ),
    "sampler with a generator": lambda batch: DataLoader(
        range(SAMPLES), batch, sampler=RandomSampler(range(SAMPLES), generator=torch.Generator().manual_seed(3))
    ),
    "workers": lambda batch: DataLoader(range(SAMPLES), batch, shuffle=True, num_workers=1),
    "distributed sampler": lambda batch: DataLoader(range(SAMPLES), batch, sampler=_distributed(1, 0)),
}


def _distributed(ranks: int, rank: int) -> Any:
    return DistributedSampler(range(SAMPLES), num_replicas=ranks, rank=rank, seed=7)


def train(loader: Any, folder: Path, stop_at: int = -1, log: list[Any] | None = None, **options: Any) -> Any:
    """Run a script that resumes and stops after an iteration; return the runner and each step's epoch and batch."""
    seen: list[tuple[int, int, list[int]]] = [] if log is None else log
    torch.manual_seed(len(seen))

    def step(engine: Engine, batch: Any) -> None:
        seen.append((engine.state.epoch, engine.state.iteration, [int(value) for value in batch]))
        if engine.state.iteration == stop_at:
            runner.stop("stopped here")

    trainer = Engine(step)
    runner = attach_hooks(
        trainer, [{"type": "CheckpointHook", "save_best": False}], work_dir=folder, resume="auto", trainer_=trainer
    )
    trainer.run(loader, **(options or {"max_epochs": 4}))
    return runner


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("stop_at", [2, 5, 6, 8, 12])
@pytest.mark.parametrize(("before", "after"), [(4, 8), (4, 5), (8, 3), (4, 24)])
def test_another_batch_size_trains_the_rest_of_the_epochs(
    before: int, after: int, stop_at: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log: list[Any] = []
    train(LOADERS["shuffled"](before), tmp_path, stop_at, log)
    if stop_at < SAMPLES // before * 4:
        assert log[-1][1] == stop_at
    runner = train(LOADERS["shuffled"](after), tmp_path, log=log)
    seen = Counter((epoch, sample) for epoch, _, batch in log for sample in batch)
    assert set(seen.values()) == {1}
    assert len(seen) == 4 * SAMPLES
    assert [iteration for _, iteration, _ in log] == list(range(1, len(log) + 1))
    assert runner.epoch == 4
    assert runner.max_iters == len(log)
    if stop_at < SAMPLES // before * 4:
        assert f"the batch size was {before} and is {after}" in caplog.text


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", LOADERS)
def test_each_known_order_goes_on_where_it_was(name: str, tmp_path: Path) -> None:
    whole: list[Any] = []
    train(LOADERS[name](4), tmp_path / "whole", log=whole, max_epochs=2)
    log: list[Any] = []
    train(LOADERS[name](4), tmp_path / "parts", 2, log)
    train(LOADERS[name](3), tmp_path / "parts", 4, log)
    train(LOADERS[name](8), tmp_path / "parts", log=log, max_epochs=2)
    flat = [[sample for epoch, _, batch in each if epoch == 1 for sample in batch] for each in (log, whole)]
    assert flat[0] == flat[1]
    assert [len(batch) for epoch, _, batch in log if epoch == 1] == [4, 4, 3, 3, 8, 2]


@pytest.mark.usefixtures("quick")
def test_max_iters_is_the_end_where_it_was_given(tmp_path: Path) -> None:
    log: list[Any] = []
    train(LOADERS["shuffled"](4), tmp_path, 8, log, max_iters=20)
    train(LOADERS["shuffled"](8), tmp_path, log=log, max_iters=20)
    assert len(log) == 20


@pytest.mark.usefixtures("quick")
def test_a_run_goes_on_in_the_same_process(tmp_path: Path) -> None:
    log: list[Any] = []
    train(LOADERS["in order"](4), tmp_path, 15, log)
    runner = train(LOADERS["in order"](8), tmp_path, log=log, max_epochs=3)
    trainer = runner.trainer
    assert trainer.state.epoch == 3
    trainer.run(LOADERS["in order"](8), max_epochs=5)
    seen = Counter((epoch, sample) for epoch, _, batch in log for sample in batch)
    assert len(seen) == 5 * SAMPLES
    assert set(seen.values()) == {1}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (DataLoader(range(24), 4), DataLoader(range(48), 8), "the data had 24 samples and has 48"),
        (
            DataLoader(range(24), 4, sampler=WeightedRandomSampler([1.0] * 24, 24)),
            DataLoader(range(24), 8, sampler=WeightedRandomSampler([1.0] * 24, 24)),
            "the order of WeightedRandomSampler is drawn again and may be another",
        ),
        ([[1, 2]] * 6, [[1, 2, 3, 4]] * 3, "3 of 6 iterations count as 1 of 3"),
    ],
)
def test_what_cannot_be_exact_is_told(
    before: Any, after: Any, words: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train(before, tmp_path, 9)
    runner = train(after, tmp_path)
    assert words in caplog.text
    assert runner.epoch == 4


def live(folder: str, stop_at: int, batch: int, epochs: int) -> list[Any]:
    """Train on all ranks; return what this rank sees, and a random number of its own."""
    ranks = idist.get_world_size()
    sampler = _distributed(ranks, idist.get_rank()) if ranks > 1 else None
    loader = DataLoader(range(SAMPLES), batch, sampler=sampler, shuffle=sampler is None)
    log: list[Any] = []
    train(loader, Path(folder), stop_at, log, max_epochs=epochs)
    return [log, float(torch.rand(()))]


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1)])
def test_another_number_of_ranks_trains_the_rest_of_the_epochs(before: int, after: int, tmp_path: Path) -> None:
    runs = [
        run_ranks(live, str(tmp_path), stop_at, batch, 4, ranks=ranks)
        for ranks, stop_at, batch in ((before, 5, 2), (after, -1, 3))
    ]
    seen = Counter((epoch, sample) for found in runs for log, _ in found for epoch, _, batch in log for sample in batch)
    assert set(seen.values()) == {1}
    assert len(seen) == 4 * SAMPLES
    iterations = [iteration for found in runs for _, iteration, _ in found[0][0]]
    assert iterations == list(range(1, len(iterations) + 1))
    assert len({number for _, number in runs[1]}) == after


@pytest.mark.parametrize("wrong", [1, {}, {"order": {}}, {**(counts_of(LOADERS["shuffled"](4)) or {}), "batch": 0}])
def test_nothing_else_is_taken_for_counts(wrong: Any) -> None:
    assert are_counts(None)
    assert are_counts(counts_of(LOADERS["own generator"](4)))
    assert not are_counts(wrong)
