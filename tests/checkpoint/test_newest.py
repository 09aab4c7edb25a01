"""`newest.py`: the newest checkpoint of one run that verifies, here, in a mirror, or on any machine."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ignite_hooks import CheckpointError, attach_hooks
from ignite_hooks.checkpoint import machines
from ignite_hooks.distributed.collectives import rank
from ignite_hooks.store import FolderStore
from ignite_hooks.testing import tiny_trainer
from tests.checkpoint.runs import content, same, script
from tests.ranks import run_ranks

SAVING = {"type": "CheckpointHook", "save_best": False, "max_keep_ckpts": -1}


@pytest.mark.usefixtures("quick")
def test_an_emptied_disk_goes_on_from_the_mirror_with_the_same_bits(tmp_path: Path) -> None:
    script(tmp_path / "whole", [SAVING]).run(4)
    folder, mirrored = tmp_path / "run", {**SAVING, "mirror": str(tmp_path / "mirror")}
    first = script(folder, [mirrored])
    first.run(2)
    shutil.rmtree(folder)
    again = script(folder, [mirrored], resume="auto")
    again.run(4)
    assert again.runner.state.run_id == first.runner.state.run_id
    here, whole = content(folder / "last.pth"), content(tmp_path / "whole" / "last.pth")
    del here["meta"]["settings"], whole["meta"]["settings"]
    assert same(here, whole)
    there = FolderStore(tmp_path / "mirror")
    assert {entry.name: there.verify(entry) for entry in there.entries()} == dict.fromkeys(
        ["epoch_1.pth", "epoch_2.pth", "epoch_3.pth", "epoch_4.pth", "last.pth"]
    )


@pytest.mark.usefixtures("quick")
def test_what_is_torn_in_the_mirror_is_passed_over(tmp_path: Path) -> None:
    folder, mirrored = tmp_path / "run", {**SAVING, "mirror": str(tmp_path / "mirror")}
    script(folder, [mirrored]).run(3)
    shutil.rmtree(folder)
    for name in ("last.pth", "epoch_3.pth"):
        path = tmp_path / "mirror" / name
        path.write_bytes(path.read_bytes()[:-1])
    again = script(folder, [mirrored], resume="auto")
    again.run(3)
    assert again.runner.state.resumed_from == folder / "epoch_2.pth"


@pytest.mark.usefixtures("quick")
def test_a_mirror_of_another_run_is_an_error_that_names_both(tmp_path: Path) -> None:
    mirrored = {**SAVING, "mirror": str(tmp_path / "mirror")}
    script(tmp_path / "one", [mirrored]).run(1)
    script(tmp_path / "two", [SAVING]).run(1)
    with pytest.raises(CheckpointError, match="checkpoints of different runs") as caught:
        script(tmp_path / "two", [mirrored], resume="auto").run(2)
    assert str(tmp_path / "two") in str(caught.value)
    assert str(tmp_path / "mirror") in str(caught.value)


@pytest.mark.usefixtures("quick")
def test_files_of_another_run_do_not_compete(tmp_path: Path) -> None:
    script(tmp_path / "longer", [SAVING]).run(4)
    shorter = script(tmp_path / "run", [SAVING])
    shorter.run(1)
    shutil.copy(tmp_path / "longer" / "last.pth", tmp_path / "run" / "epoch_9.pth")
    again = script(tmp_path / "run", [SAVING], resume="auto")
    again.run(2)
    assert again.runner.state.resumed_from == tmp_path / "run" / "last.pth"
    assert again.runner.state.run_id == shorter.runner.state.run_id


def train(folder: str, epochs: int, resume: Any = None, **settings: Any) -> dict[str, Any]:
    """Train on a machine of its own, as far as files and host names tell."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machines, "_identity", lambda: f"machine {rank()}")
        patch.setattr(machines.socket, "gethostname", lambda: f"node{rank()}")
        torch.manual_seed(rank())
        trainer, data = tiny_trainer()
        model = DistributedDataParallel(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(engine: Any, batch: Any) -> float:
            optimizer.zero_grad()
            loss = model(torch.randn(5, 3)).square().sum()
            loss.backward()
            optimizer.step()
            return float(loss)

        trainer._process_function = step
        mine = Path(folder) / str(rank())
        runner = attach_hooks(
            trainer,
            [{**SAVING, **settings}],
            work_dir=mine,
            resume=resume,
            model=model,
            optimizer=optimizer,
        )
        try:
            trainer.run(data, max_epochs=epochs)
        except CheckpointError as error:
            return {"error": str(error)}
        return {
            "run": runner.state.run_id,
            "sum": float(sum(weight.double().sum() for weight in model.parameters())),
            "files": sorted(path.name for path in mine.glob("*")) if mine.exists() else [],
            "iteration": trainer.state.iteration,
        }


def hand_over_in_each_process(folder: str) -> list[Any]:
    """Live three times: rank 1 has nothing; then only rank 1 has something; then two runs meet."""
    found = [train(folder, 1), train(folder, 2, "auto")]
    torch.distributed.barrier()
    if rank() == 0:
        os.rename(f"{folder}/0", f"{folder}/1")
    torch.distributed.barrier()
    found.append(train(folder, 3, "auto"))
    torch.distributed.barrier()
    if rank() == 1:
        shutil.rmtree(f"{folder}/1")
    torch.distributed.barrier()
    found.append(train(f"{folder}/other", 1))
    torch.distributed.barrier()
    if rank() == 0:
        os.rename(f"{folder}/other/0", f"{folder}/1")
    torch.distributed.barrier()
    found.append(train(folder, 4, "auto"))
    return found


@pytest.mark.slow
def test_the_newest_of_any_machine_is_handed_to_those_that_lack_it(tmp_path: Path) -> None:
    first, second = run_ranks(hand_over_in_each_process, str(tmp_path))
    for mine, its in zip(first[:3], second[:3], strict=True):
        assert (mine["run"], mine["sum"], mine["iteration"]) == (its["run"], its["sum"], its["iteration"])
    assert len({one["run"] for one in first[:3]}) == 1
    length = first[0]["iteration"]
    assert [one["iteration"] for one in first[:3]] == [length, 2 * length, 3 * length]
    assert second[1]["files"] == []
    for one in (first[4], second[4]):
        assert "different runs" in one["error"]
        assert "node0" in one["error"]
        assert "node1" in one["error"]


def copies_in_each_process(folder: str) -> list[Any]:
    return [train(folder, 2, copies="per_machine"), train(f"{folder}/plain", 2)]


@pytest.mark.slow
def test_every_machine_keeps_the_same_bytes(tmp_path: Path) -> None:
    _, second = run_ranks(copies_in_each_process, str(tmp_path))
    names = {"epoch_1.pth", "epoch_2.pth", "last.pth", "manifest.json"}
    for name in names:
        assert (tmp_path / "0" / name).read_bytes() == (tmp_path / "1" / name).read_bytes(), name
    assert "metrics.jsonl" not in second[0]["files"]
    assert names <= set(second[0]["files"])
    assert second[1]["files"] == []
