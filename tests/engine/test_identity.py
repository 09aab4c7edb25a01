"""`identity.py`: the id of a run, from its first start through every resume."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from ignite_hooks.store import FolderStore, Manifest
from tests.checkpoint.runs import script

pytestmark = pytest.mark.usefixtures("quick")

HOOKS = [{"type": "CheckpointHook", "save_best": False}]


def ids(folder: Path) -> set[str]:
    """Return the ids in the manifest and in the files of a folder."""
    with FolderStore(folder) as store:
        entries = store.entries()
    inside = {torch.load(folder / entry.name, weights_only=True)["meta"]["run"] for entry in entries}
    assert inside == {entry.run for entry in entries}
    return inside


def test_a_resumed_run_keeps_the_id_of_its_first_start(tmp_path: Path) -> None:
    first = script(tmp_path, HOOKS)
    first.run(1)
    again = script(tmp_path, HOOKS, resume="auto")
    again.run(2)
    assert ids(tmp_path) == {first.runner.state.run_id} == {again.runner.state.run_id}
    assert len(first.runner.state.run_id) == 16


def test_every_new_run_has_its_own_id(tmp_path: Path) -> None:
    training = script(tmp_path, HOOKS)
    training.run(1)
    first = training.runner.state.run_id
    training.trainer.state.iteration = training.trainer.state.epoch = 0
    training.run(1)
    assert ids(tmp_path) == {training.runner.state.run_id} != {first}
    assert ids(tmp_path / "earlier-1") == {first}


def test_an_id_leaves_the_random_numbers_alone(tmp_path: Path) -> None:
    seen = []
    for name in "ab":
        random.seed(0)
        script(tmp_path / name, HOOKS).run(1)
        seen.append(random.random())
    assert seen[0] == seen[1]


def test_a_run_from_before_ids_gets_one_when_resumed(tmp_path: Path) -> None:
    script(tmp_path, HOOKS).run(2)
    without_ids(tmp_path)
    resumed = script(tmp_path, HOOKS, resume="auto")
    resumed.run(3)
    assert resumed.runner.state.resumed_from == tmp_path / "last.pth"
    with FolderStore(tmp_path) as store:
        found = {entry.name: entry.run for entry in store.entries()}
    new = resumed.runner.state.run_id
    assert found == {"epoch_1.pth": "", "epoch_2.pth": "", "epoch_3.pth": new, "last.pth": new}


def without_ids(folder: Path) -> None:
    """Make the files of a folder as they were before runs had ids."""
    with FolderStore(folder) as store:
        entries = store.entries()
        states: list[dict[str, Any]] = [store.load(folder / entry.name) for entry in entries]
        for entry, state in zip(entries, states, strict=True):
            del state["meta"]["run"]
            store.save(entry.name, state, kind=entry.kind, epoch=entry.epoch, iteration=entry.iteration)
    assert b'"run"' not in (folder / "manifest.json").read_bytes()
    assert {entry.run for entry in Manifest.load(folder).entries} == {""}
