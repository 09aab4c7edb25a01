"""Saving states of which every process has a part, beside the training or while it waits."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ignite.distributed as idist
import pytest
import torch
import torch.distributed.checkpoint as dcp
from ignite.engine import Events
from torch.utils.data import DataLoader, TensorDataset

from ignite_hooks import BaseHook, CheckpointHook, EMAHook, EvalHook
from ignite_hooks.checkpoint import machines
from ignite_hooks.errors import CheckpointError
from ignite_hooks.store import FolderStore, Manifest, background
from ignite_hooks.store.files import new_file
from ignite_hooks.store.sharded import saving
from tests.ranks import run_ranks
from tests.sharded import WARM_UP, Training, numbers_of, small_model
from tests.store.conftest import all_but_newest

pytestmark = pytest.mark.slow

FILES = [".metadata", "__0_0.distcp", "__1_0.distcp", "state.pth"]


# -- saving ------------------------------------------------------------------------------------------------------


def test_the_manifest_lists_every_file_of_a_sharded_checkpoint(saved: Path) -> None:
    with FolderStore(saved) as store:
        assert [entry.name for entry in store.entries()] == ["epoch_2", "epoch_3", "last"], "older ones are gone"
        for entry in store.entries():
            assert store.verify(entry) is None
            assert sorted(path.name for path in (saved / entry.name).iterdir()) == FILES
            assert [part.name for part in entry.files] == FILES
            assert entry.size == sum((saved / entry.name / name).stat().st_size for name in FILES)
    listed = {entry.name for entry in Manifest.load(saved).entries}
    assert {path.name for path in saved.iterdir() if path.is_dir()} - {"logs"} == listed, "nothing is left behind"


def test_a_store_gives_the_whole_state_without_any_process_group(
    two_ranks: tuple[Path, dict[str, Any]], saved: Path
) -> None:
    state = FolderStore(saved).load(saved / "last")
    assert numbers_of(state["state_dict"]) == two_ranks[1]["weights"]
    assert numbers_of(state["ema_state_dict"]) == two_ranks[1]["averages"]
    assert numbers_of(state["optimizer"]["state"]) == two_ranks[1]["optimizer"]
    assert (state["meta"]["iter"], state["trainer"]["epoch"]) == (9, 3)


def test_the_tools_of_torch_read_it_too(two_ranks: tuple[Path, dict[str, Any]], saved: Path) -> None:
    found = {"state_dict.0.weight": torch.zeros(6, 4)}
    with pytest.warns(UserWarning, match="assuming the intent is to load in a single process"):
        dcp.load(found, checkpoint_id=saved / "last")
    assert found["state_dict.0.weight"].tolist() == two_ranks[1]["weights"]["0.weight"]


# -- failures ----------------------------------------------------------------------------------------------------


def failing_save(work_dir: str, failing: int, where: str) -> list[Any]:
    training = Training(work_dir, EMAHook(), CheckpointHook())
    training.run(1)

    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device", "__1_0.distcp")

    mine = idist.get_rank() == failing
    with pytest.MonkeyPatch.context() as patch:
        if mine:
            place: Any = {"data": (saving, "write_archive"), "split": (saving, "parts_of_state")}[where]
            patch.setattr(*place, fail)
        with pytest.raises(CheckpointError) as caught:
            training.runner.save_checkpoint("extra.pth")
    # All of them can go on.
    idist.barrier()
    training.runner.save_checkpoint("more.pth")
    return [str(caught.value), sorted(path.name for path in Path(work_dir).iterdir())]


@pytest.mark.parametrize(("failing", "where"), [(0, "data"), (1, "data"), (1, "split")])
def test_if_one_rank_fails_none_commits_and_all_learn_it(failing: int, where: str, tmp_path: Path) -> None:
    for message, names in run_ranks(failing_save, str(tmp_path), failing, where):
        assert f"rank {failing}" in message
        assert "No space left" in message or "disk full" in message
        assert "extra" not in names
        assert "more" in names
        assert not [name for name in names if name.startswith(".tmp")]
    assert [entry.name for entry in FolderStore(tmp_path).entries()] == ["epoch_1", "last", "more"]


def failing_run(work_dir: str) -> dict[str, Any]:
    training = Training(work_dir, CheckpointHook())
    held: dict[str, Any] = {}

    @training.trainer.on(Events.ITERATION_STARTED(once=5))
    def fail() -> None:
        held.update(training.holds())
        raise ValueError("at iteration 5")

    with pytest.raises(ValueError, match="at iteration 5"):
        training.run(3)
    return held


def test_a_failing_run_of_one_rank_saves_its_state(tmp_path: Path) -> None:
    (held,) = run_ranks(failing_run, str(tmp_path), ranks=1)
    state = FolderStore(tmp_path).load(tmp_path / "exception_iter_4")
    assert numbers_of(state["state_dict"]) == held["weights"]
    assert numbers_of(state["optimizer"]["state"]) == held["optimizer"]


# -- evaluation --------------------------------------------------------------------------------------------------


def evaluated(work_dir: str, by_hook: bool) -> dict[str, Any]:
    saving = CheckpointHook(save_best="mse", keep_best=1, published_keys=["state_dict", "ema_state_dict"])
    hooks = [EMAHook(warm_up=WARM_UP), saving, *([EvalHook(metric="mse")] if by_hook else [])]
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(1))
    data = DataLoader(TensorDataset(x, torch.zeros(8, 1)), batch_size=2)
    training = Training(work_dir, *hooks, val_loader=data)
    scores: list[float] = []
    held: list[Any] = []
    afterwards: list[Any] = []

    class Look(BaseHook):
        def after_val(self) -> None:
            afterwards.append(training.holds())

    training.runner.register_hook(Look())
    if not by_hook:
        training.trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: training.evaluator.run(data))
    training.evaluator.add_event_handler(Events.STARTED, lambda: held.append(training.holds()))

    @training.evaluator.on(Events.COMPLETED)
    def after() -> None:
        # The script's last handlers see what was scored.
        before = held[-1]
        assert training.holds() == before | {"weights": before["averages"]}
        assert before["weights"] != before["averages"]
        scores.append(training.evaluator.state.metrics["mse"])

    training.run(3)
    assert afterwards == held, "the averages have been in the model, and nothing has changed"
    return {"scores": scores, "held": held, "best": training.runner.best["mse"].file}


@pytest.mark.parametrize("by_hook", [False, True], ids=["by the script", "by EvalHook"])
def test_a_sharded_best_checkpoint_holds_weights_and_averages(by_hook: bool, tmp_path: Path) -> None:
    first, second = run_ranks(evaluated, str(tmp_path), by_hook)
    assert first == second
    scores = first["scores"]
    assert len(scores) == 3
    best = min(range(3), key=scores.__getitem__)
    assert first["best"] == f"best_mse_epoch_{best + 1}"
    state = FolderStore(tmp_path).load(tmp_path / first["best"])
    assert numbers_of(state["state_dict"]) == first["held"][best]["weights"]
    assert numbers_of(state["ema_state_dict"]) == first["held"][best]["averages"]
    model = small_model()
    model.load_state_dict(state["ema_state_dict"])
    mse = model.eval()(torch.randn(8, 4, generator=torch.Generator().manual_seed(1))).pow(2).mean().item()
    assert mse == pytest.approx(scores[best], abs=1e-6)
    assert len([path for path in tmp_path.glob("best_mse_epoch_*") if path.is_dir()]) == 1
    (published,) = tmp_path.glob("last-*.pth")
    assert numbers_of(torch.load(published, weights_only=True)["state_dict"]) == first["held"][2]["weights"]


# -- folders in a store ------------------------------------------------------------------------------------------


def test_only_what_the_manifest_lists_is_deleted(saved: Path) -> None:
    (saved / "epoch_2" / "notes.txt").write_text("dear")
    (saved / "stranger").mkdir()
    with FolderStore(saved) as store:
        store.save("a.pth", {}, kind="manual", epoch=0, iteration=0, retire=all_but_newest(0))
        assert [entry.name for entry in store.entries()] == ["last", "a.pth"]
    assert [path.name for path in (saved / "epoch_2").iterdir()] == ["notes.txt"]
    assert not (saved / "epoch_3").exists()
    assert (saved / "stranger").is_dir()


def test_manifests_from_before_there_were_folders_are_read(tmp_path: Path) -> None:
    with FolderStore(tmp_path) as store:
        store.save("a.pth", {"a": 1}, kind="last", epoch=0, iteration=0)
    assert "files" not in json.loads((tmp_path / "manifest.json").read_text())["entries"][0]
    assert FolderStore(tmp_path).newest() == tmp_path / "a.pth"


def on_two_disks(work_dir: str) -> list[Any]:
    mine = str(idist.get_rank())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machines, "_identity", lambda: mine)
        patch.setattr(socket, "gethostname", lambda: f"node{mine}")
        training = Training(Path(work_dir) / mine, CheckpointHook())
        with pytest.raises(CheckpointError) as caught:
            training.run(1)
    return [str(caught.value), training.trainer.state.iteration]


def test_machines_without_a_common_disk_are_told_before_the_first_iteration(tmp_path: Path) -> None:
    for rank, (message, iteration) in enumerate(run_ranks(on_two_disks, str(tmp_path))):
        assert message == (
            f"a sharded model is saved by all machines together, but {tmp_path / str(rank)} on node1 is not the one on "
            "node0: put the work directory on a disk that all of them share"
        )
        assert iteration == 0


# -- beside the training -----------------------------------------------------------------------------------------


class Beside:
    """A run of one rank that saves each second of six iterations beside the training, on a disk that waits."""

    def __init__(self, work_dir: str, **settings: Any) -> None:
        self.reported: list[tuple[str, int]] = []
        self.held: dict[int, Any] = {}
        self.disk = threading.Event()
        beside = self

        class Witness(BaseHook):
            def before_save_checkpoint(self, runner: Any) -> None:
                beside.held[runner.global_step] = beside.training.holds()

            def after_save_checkpoint(self, runner: Any, path: Path) -> None:
                beside.reported.append((path.name, runner.global_step))

        hook = CheckpointHook(interval=2, by_epoch=False, save_best=False, save_last=False, **settings)
        self.training = Training(work_dir, hook, EMAHook(warm_up=WARM_UP), Witness())
        self.runner, self.trainer = self.training.runner, self.training.trainer
        self.thread: Any = None
        self.trainer.add_event_handler(Events.STARTED, self.hold)

    def hold(self) -> None:
        """Let the saving thread begin only when the disk is there."""
        store: Any = self.runner.checkpoints.store()
        self.thread = store.saving_thread()
        self.thread._thread.submit(self.disk.wait, 60)

    def run(self) -> None:
        self.trainer.run([1.0, 0.5, 2.0, 1.5, 0.7, 0.2], max_epochs=1)


def saves_beside(work_dir: str) -> list[Any]:
    beside = Beside(work_dir)

    @beside.trainer.on(Events.ITERATION_STARTED(once=4))
    def free() -> None:
        # Two iterations are over since the state was copied, and no rank has written anything.
        beside.disk.set()

    # Messages of the training, while the saving threads send theirs.
    beside.trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda: beside.training.holds() and None)
    beside.run()
    return [beside.held[2], beside.held[4], beside.reported]


def test_ranks_train_on_while_the_state_of_an_iteration_is_written(tmp_path: Path) -> None:
    first, second = run_ranks(saves_beside, str(tmp_path))
    assert first == second
    *held, reported = first
    for number, found in zip((2, 4), held, strict=True):
        state = FolderStore(tmp_path).load(tmp_path / f"iter_{number}")
        assert numbers_of(state["state_dict"]) == found["weights"]
        assert numbers_of(state["ema_state_dict"]) == found["averages"]
        assert numbers_of(state["optimizer"]["state"]) == found["optimizer"]
    assert [name for name, _ in reported] == ["iter_2", "iter_4", "iter_6"]
    assert reported[0][1] > 3, "the first is reported when its files are there, on both ranks in one iteration"


def changes_by_hand(work_dir: str) -> list[Any]:
    beside, told = Beside(work_dir), list[str]()
    hook = beside.runner.hooks["CheckpointHook"]

    @beside.trainer.on(Events.ITERATION_STARTED(once=3))
    def change() -> None:
        # Before any thread has copied it: the saving threads wait, and this is before the next step.
        if idist.get_rank() == 1:
            with torch.no_grad():
                beside.training.model[0].weight.mul_(2.0)

    @beside.trainer.on(Events.ITERATION_COMPLETED(once=3))
    def free() -> None:
        beside.disk.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beside.runner.logger, "error", lambda words, *given: told.append(words % given))
        beside.run()
    return [told, hook.state.failed]


def test_a_shard_that_changes_before_it_is_copied_fails_the_save_on_all_ranks(tmp_path: Path) -> None:
    for told, failed in run_ranks(changes_by_hand, str(tmp_path)):
        assert failed == 1
        assert "state_dict.0.weight was changed before it had been copied" in "".join(told)
        assert "(rank 1)" in "".join(told)
    names = [entry.name for entry in FolderStore(tmp_path).entries()]
    assert names == ["iter_4", "iter_6"], "from then on, states are copied at once"


def lacks_memory(work_dir: str) -> list[Any]:
    beside, seen = Beside(work_dir), list[bool]()
    beside.disk.set()
    if idist.get_rank() == 1:

        def none(*_: Any) -> Any:
            return None

        patch = pytest.MonkeyPatch()
        patch.setattr(background, "copy_if_room", none)

    @beside.trainer.on(Events.ITERATION_STARTED(once=3))
    def look() -> None:
        seen.append((Path(work_dir) / "iter_2").is_dir())
        seen.append(beside.thread.buffers.busy())

    beside.run()
    return seen


def test_where_one_rank_has_no_memory_for_a_copy_all_wait_for_the_write(tmp_path: Path) -> None:
    assert run_ranks(lacks_memory, str(tmp_path)) == [[True, False], [True, False]]
    assert [entry.name for entry in FolderStore(tmp_path).entries()] == ["iter_2", "iter_4", "iter_6"]


def fails_beside(work_dir: str) -> list[Any]:
    beside, original = Beside(work_dir, max_keep_ckpts=1), saving.write_archive
    beside.disk.set()

    def fail_once(*given: Any) -> None:
        if idist.get_rank() == 1 and "iter_4" in str(given[0]._path):
            raise OSError(28, "No space left on device")
        original(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(saving, "new_file", named_file)
        patch.setattr(saving, "write_archive", fail_once)
        beside.run()
    return [beside.runner.hooks["CheckpointHook"].state.failed, [name for name, _ in beside.reported]]


@contextlib.contextmanager
def named_file(path: Path) -> Iterator[Any]:
    """Open a new file that knows its path."""
    with new_file(path) as file:
        file._path = path
        yield file


def test_a_save_that_fails_beside_the_training_leaves_the_one_before(tmp_path: Path) -> None:
    assert run_ranks(fails_beside, str(tmp_path)) == [[1, ["iter_2", "iter_6"]]] * 2
    assert [entry.name for entry in FolderStore(tmp_path).entries()] == ["iter_6"]
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith((".tmp", "iter"))) == ["iter_6"]


def saves_at_epochs(work_dir: str) -> list[Any]:
    disk, reported = threading.Event(), list[tuple[str, int]]()

    class Witness(BaseHook):
        def after_save_checkpoint(self, runner: Any, path: Path) -> None:
            reported.append((path.name, runner.epoch))

    training = Training(work_dir, CheckpointHook(save_best=False, save_last=False), Witness())
    store: Any = training.runner.checkpoints.store()
    training.trainer.add_event_handler(
        Events.STARTED, lambda: store.saving_thread()._thread.submit(disk.wait, 60) and None
    )
    training.trainer.add_event_handler(Events.ITERATION_STARTED(once=5), disk.set)
    training.run(3)
    return reported


def test_the_next_epoch_does_not_wait_for_the_checkpoint_of_the_last(tmp_path: Path) -> None:
    first, second = run_ranks(saves_at_epochs, str(tmp_path))
    assert first == second
    assert [name for name, _ in first] == ["epoch_1", "epoch_2", "epoch_3"]
    assert first[0][1] >= 1, "not in the first epoch: the second began while nothing of it was written"
