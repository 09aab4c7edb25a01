"""`homes.py`: the places of checkpoints, from the settings of a hook."""

from __future__ import annotations

from pathlib import Path

import pytest

from ignite_hooks import ConfigError, attach_hooks
from ignite_hooks.checkpoint import homes
from ignite_hooks.checkpoint.machines import Machines
from ignite_hooks.store import Manifest
from ignite_hooks.store.mirror.mirror import Mirror
from ignite_hooks.testing import tiny_run, tiny_trainer


def attached(folder: Path, **settings: object) -> None:
    tiny = tiny_run()
    attach_hooks(
        tiny.trainer,
        [{"type": "CheckpointHook", "save_best": False, **settings}],
        work_dir=folder,
        model=tiny.model,
    )
    tiny.trainer.run(tiny.data, max_epochs=3)


def test_retention_acts_in_the_mirror_too(tmp_path: Path) -> None:
    attached(tmp_path / "run", mirror=str(tmp_path / "there"), max_keep_ckpts=1)
    names = {"epoch_3.pth", "last.pth"}
    assert {entry.name for entry in Manifest.load(tmp_path / "there").entries} == names
    assert {path.name for path in (tmp_path / "there").glob("*.pth")} == names


def test_a_mirror_without_a_protocol_is_relative_to_the_work_directory(tmp_path: Path) -> None:
    attached(tmp_path / "run", mirror="../there")
    assert (tmp_path / "there" / "last.pth").exists()


def test_a_mirror_in_memory_is_one_too(tmp_path: Path) -> None:
    import fsspec

    attached(tmp_path / "run", mirror=f"memory://{tmp_path.name}-{id(tmp_path)}")
    names = fsspec.filesystem("memory").ls(f"/{tmp_path.name}-{id(tmp_path)}", detail=False)
    assert f"/{tmp_path.name}-{id(tmp_path)}/last.pth" in names


@pytest.mark.parametrize(("aborting", "given", "waited"), [(False, 60.0, 60.0), (True, 60.0, 10.0), (True, 5.0, 5.0)])
def test_the_end_waits_less_after_a_signal(
    aborting: bool, given: float, waited: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[float] = []
    monkeypatch.setattr(Mirror, "finish", lambda _, seconds: found.append(seconds))
    tiny = tiny_run()
    runner = attach_hooks(tiny.trainer, [], work_dir=tmp_path)
    places = homes.Homes(runner, runner.checkpoints.store)
    places.add_mirror(tmp_path, str(tmp_path / "there"), given)
    runner.state.aborting = aborting
    places.close()
    assert found == [waited]


def test_a_mirror_that_nothing_reads_is_an_error_before_the_run(tmp_path: Path) -> None:
    trainer, _ = tiny_trainer()
    with pytest.raises(ConfigError, match=r"mirror: nonsense://x cannot be reached"):
        attach_hooks(trainer, [{"type": "CheckpointHook", "save_best": False, "mirror": "nonsense://x"}])


@pytest.mark.parametrize("url", ["s3://bucket/run", Path("s3://bucket/run"), "gs://b"])
def test_a_work_directory_at_a_url_is_refused_with_the_remedy(url: str | Path) -> None:
    trainer, _ = tiny_trainer()
    with pytest.raises(ConfigError) as caught:
        attach_hooks(trainer, [], work_dir=url)
    words = "s3://bucket/run" if "s3" in str(url) else "gs://b"
    assert f"give a local folder here, and CheckpointHook mirror: {words}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_who_loses_a_rank_is_told_the_newest_checkpoint_and_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(homes, "command", lambda: "python train.py --lr 1")
    runner = attach_hooks(tiny_run().trainer, [], work_dir=tmp_path)
    places = homes.Homes(runner, runner.checkpoints.store)
    how = "; to go on, on all machines, with resume: auto: python train.py --lr 1"
    assert places.advice() == f"; nothing was saved yet{how}"
    places.newest = tmp_path / "epoch_2.pth"
    assert places.advice() == f"; the newest checkpoint is {places.newest}{how}"
    places._machines = Machines(("a", "b"), (0, 1))
    assert places.advice() == f"; the newest checkpoint is {places.newest} on a{how}"
