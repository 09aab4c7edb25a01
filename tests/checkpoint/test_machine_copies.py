"""`machine_copies.py`: which ranks write, where some machines see one folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from ignite_hooks.checkpoint.machine_copies import writing_ranks
from ignite_hooks.checkpoint.machines import Machines, hand_over
from ignite_hooks.distributed.collectives import rank
from ignite_hooks.store.manifest import Entry
from tests.ranks import run_ranks


def writers_in_each_process(folder: str) -> list[Any]:
    apart = Machines(("a", "b", "c"), (0, 1, 2))
    together = Machines(("a", "b", "b"), (0, 1, 1))
    own = Path(folder) / str(rank())
    shared = Path(folder) / "shared"
    two_of_three = Path(folder) / str(min(rank(), 1))
    found = [writing_ranks(own, apart), writing_ranks(shared, apart), writing_ranks(two_of_three, apart)]
    return [*found, writing_ranks(own, together), sorted(path.name for path in own.iterdir())]


def send_in_each_process(folder: str) -> list[Any]:
    source, target = Path(folder) / "source", Path(folder) / f"target-{rank()}"
    if rank() == 1:
        source.write_bytes(bytes(range(256)) * 1000)
    torch.distributed.barrier()
    entry = Entry("a.pth", 256_000, "sha256:" + "0" * 64, 0, 0)
    hand_over(entry, source if rank() == 1 else None, target if rank() == 2 else None, 1)
    missing = ""
    try:
        hand_over(entry, Path(folder) / "nowhere" if rank() == 1 else None, None, 1)
    except Exception as error:
        missing = f"{error}"
    return [target.exists() and target.read_bytes() == source.read_bytes(), missing]


@pytest.mark.slow
def test_machines_that_see_one_folder_keep_one_copy(tmp_path: Path) -> None:
    found = run_ranks(writers_in_each_process, str(tmp_path), ranks=3)
    for of_rank in found:
        assert of_rank[:4] == [[0, 1, 2], [0], [0, 1], [0, 1]]
    assert [of_rank[4] for of_rank in found] == [[], [], []]


@pytest.mark.slow
def test_a_file_arrives_whole_or_all_ranks_are_told(tmp_path: Path) -> None:
    found = run_ranks(send_in_each_process, str(tmp_path), ranks=3)
    assert [arrived for arrived, _ in found] == [False, False, True]
    assert all("No such file" in missing for _, missing in found)
