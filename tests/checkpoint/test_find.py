"""A checkpoint is found by its path or its bare name; where it is not found, the message lists what there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from ignite_hooks import CheckpointError
from ignite_hooks.checkpoint.find import checkpoint_folders, find_checkpoint
from tests.checkpoint.runs import CHECKPOINT, script

pytestmark = pytest.mark.usefixtures("quick")


def test_a_bare_name_is_loaded_and_resumed_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hooks = [{**CHECKPOINT, "save_best": False, "out_dir": "saved"}]
    script(tmp_path / "run", hooks).run(3)
    monkeypatch.chdir(tmp_path)
    now = script(tmp_path / "run", hooks, resume="epoch_2.pth")
    now.runner.load_checkpoint("epoch_1.pth")
    assert now.trainer.state.epoch == 1
    now.run(3)
    assert now.runner.resumed_from == tmp_path / "run/saved/epoch_2.pth"


def test_a_name_that_is_not_there_lists_what_is(tmp_path: Path) -> None:
    now = script(tmp_path, [{**CHECKPOINT, "save_best": False, "save_last": False}])
    now.run(2)
    with pytest.raises(CheckpointError) as caught:
        now.runner.load_checkpoint("epoch_3.pth")
    assert f"cannot load epoch_3.pth: No such file; {tmp_path} holds epoch_1.pth, epoch_2.pth" in str(caught.value)
    with pytest.raises(CheckpointError, match=r"elsewhere holds none"):
        now.runner.load_checkpoint(tmp_path / "elsewhere/a.pth")


def test_a_link_is_followed_and_a_dead_one_named(tmp_path: Path) -> None:
    script(tmp_path / "run").run(2)
    (tmp_path / "run/best.pth").symlink_to("epoch_1.pth")
    (tmp_path / "run/dead.pth").symlink_to("gone.pth")
    now = script(tmp_path / "run")
    now.runner.load_checkpoint("best.pth")
    assert now.trainer.state.epoch == 1
    assert find_checkpoint(now.runner, "best.pth") == tmp_path / "run/epoch_1.pth"
    with pytest.raises(CheckpointError, match=r"it is a link to gone\.pth, which is not there"):
        now.runner.load_checkpoint(tmp_path / "run/dead.pth")


def test_the_work_directory_is_looked_at_first(tmp_path: Path) -> None:
    now = script(tmp_path, [{**CHECKPOINT, "save_best": False, "out_dir": "saved"}])
    assert checkpoint_folders(now.runner) == [tmp_path, tmp_path / "saved"]
    assert not (tmp_path / "saved").exists(), "looking makes no folder"
