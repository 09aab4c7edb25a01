"""`checkpoint_table.py`: what a run has saved, and its content by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from ignite_hooks import CheckpointError, Runner, attach_hooks, read_run
from ignite_hooks.results.checkpoint_table import CheckpointTable
from ignite_hooks.testing import tiny_run

HOOKS: list[dict[str, Any]] = [{"type": "EvalHook"}, {"type": "CheckpointHook", "best_metric": "accuracy"}]


def trained(folder: Path, epochs: int, hooks: list[dict[str, Any]] = HOOKS) -> tuple[Any, Runner]:
    run = tiny_run()
    runner = attach_hooks(run.trainer, hooks, work_dir=folder, **run.services)
    run.trainer.run(run.data, max_epochs=epochs)
    return run, runner


def test_a_table_has_size_epoch_and_the_score_that_is_ranked(tmp_path: Path) -> None:
    run, runner = trained(tmp_path, 2)
    assert repr(runner.checkpoints) == repr(read_run(tmp_path).checkpoints)
    head, *rows = repr(runner.checkpoints).splitlines()
    assert head.split() == ["file", "kind", "epoch", "iteration", "size", "score"]
    assert [row.split()[0] for row in rows if "best" not in row] == ["epoch_1.pth", "epoch_2.pth", "last.pth"]
    assert {row.split("B  ")[1].split()[0] for row in rows} == {"accuracy"}
    assert "val_loss" not in runner.checkpoints._repr_html_()
    del run


def test_a_checkpoint_is_loaded_by_its_name(tmp_path: Path) -> None:
    run, runner = trained(tmp_path, 2)
    last = {name: weight.clone() for name, weight in run.model.state_dict().items()}
    found = read_run(tmp_path).checkpoints.load("epoch_1.pth")
    runner.checkpoints.load("epoch_1.pth")
    assert all(torch.equal(run.model.state_dict()[name], found["state_dict"][name]) for name in last)
    assert not all(torch.equal(run.model.state_dict()[name], last[name]) for name in last)
    for checkpoints in (runner.checkpoints, read_run(tmp_path).checkpoints):
        with pytest.raises(CheckpointError, match=r"epoch_3.pth.*did you mean 'epoch_[12].pth'"):
            checkpoints.load("epoch_3.pth")


def test_a_damaged_checkpoint_is_not_loaded(tmp_path: Path) -> None:
    trained(tmp_path, 1)
    content = bytearray((tmp_path / "last.pth").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "last.pth").write_bytes(content)
    with pytest.raises(CheckpointError, match="cannot load"):
        read_run(tmp_path).checkpoints.load("last.pth")


def test_what_an_earlier_run_has_left_in_the_folder_is_not_of_this_run(tmp_path: Path) -> None:
    trained(tmp_path, 3)
    run, runner = trained(tmp_path, 1)
    assert (tmp_path / "earlier-1" / "epoch_3.pth").exists()
    names = [entry.name for entry in runner.checkpoints.table()]
    assert "epoch_3.pth" not in names
    assert names.count("epoch_1.pth") == 1
    del run


def test_a_folder_of_its_own_is_found(tmp_path: Path) -> None:
    run, runner = trained(tmp_path, 1, [{"type": "CheckpointHook", "out_dir": "saved", "save_best": False}])
    assert next(iter(runner.checkpoints.table().paths)) == tmp_path / "saved" / "epoch_1.pth"
    assert "state_dict" in read_run(tmp_path).checkpoints.load("last.pth")
    del run


def test_a_run_without_checkpoints_says_so(tmp_path: Path) -> None:
    assert repr(CheckpointTable()) == CheckpointTable()._repr_html_() == "no checkpoints"
    assert repr(CheckpointTable.of(tmp_path / "none")) == "no checkpoints"
    with pytest.raises(CheckpointError, match=r"there is no last\.pth among no checkpoints"):
        CheckpointTable().load("last.pth")
