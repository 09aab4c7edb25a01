"""Reading what any number of processes has saved, without believing it."""

from __future__ import annotations

import os
import pickle
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from ignite.engine import Engine

from ignite_hooks import BaseHook, CheckpointHook, EMAHook, attach_hooks
from ignite_hooks.errors import CheckpointError
from ignite_hooks.store import FolderStore
from ignite_hooks.store.archive import write_archive
from tests.ranks import run_ranks
from tests.sharded import WARM_UP, Training, numbers_of, trained

pytestmark = pytest.mark.slow


def resumed(work_dir: str, sharded: bool = True, epochs: int = 4, mesh: Sequence[int] = ()) -> dict[str, Any]:
    found: dict[str, Any] = {}

    class Look(BaseHook):
        def before_train(self, runner: Any) -> None:
            found.update(training.holds(), iteration=runner.global_step, resumed=str(runner.state.resumed_from.name))

    hooks = EMAHook(warm_up=WARM_UP), CheckpointHook(max_keep_ckpts=2), Look()
    training = Training(work_dir, *hooks, sharded=sharded, mesh=mesh, resume="auto")
    training.run(epochs)
    return found


def without(found: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name not in names}


# -- resuming ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ranks", "sharded"), [(1, True), (1, False), (2, True), (3, True)], ids=["1", "1, not sharded", "2", "3"]
)
def test_any_number_of_ranks_resumes_with_the_same_numbers(
    ranks: int, sharded: bool, two_ranks: tuple[Path, dict[str, Any]], saved: Path
) -> None:
    everyone = run_ranks(resumed, str(saved), sharded, ranks=ranks)
    for found in everyone:
        assert without(found, "iteration", "resumed") == two_ranks[1]
        assert (found["iteration"], found["resumed"]) == (9, "last")
    names = ["epoch_3", "epoch_4", "last"] if sharded else ["epoch_3", "last", "epoch_4.pth", "last.pth"]
    assert sorted(entry.name for entry in FolderStore(saved).entries()) == sorted(names)


@pytest.mark.parametrize("sharded", [True, False], ids=["a folder", "a file"])
def test_two_ranks_go_on_from_what_one_has_saved(sharded: bool, tmp_path: Path) -> None:
    (alone,) = run_ranks(trained, str(tmp_path), sharded, ranks=1)
    assert (tmp_path / ("last" if sharded else "last.pth")).exists()
    for found in run_ranks(resumed, str(tmp_path)):
        assert without(found, "iteration", "resumed") == alone


def test_replicated_shards_are_saved_once_and_can_be_resharded(tmp_path: Path) -> None:
    saved, same = run_ranks(trained, str(tmp_path), True, [2, 1])
    (weight,) = [
        s for s in FolderStore(tmp_path).load_shards(tmp_path / "last")["shards"] if s[1] == "optimizer.state.0.exp_avg"
    ]
    assert len(weight[5]) == 1
    for found in run_ranks(resumed, str(tmp_path), True, 4, [1, 2]):
        assert without(found, "iteration", "resumed") == saved == same


def both(work_dir: str) -> list[Any]:
    folder = Path(work_dir)
    whole = Training(folder / "whole", EMAHook(), CheckpointHook())
    whole.run(4)
    Training(folder / "parts", EMAHook(), CheckpointHook()).run(2)
    parts = Training(folder / "parts", EMAHook(), CheckpointHook(), resume="auto")
    parts.run(4)
    return [whole.holds(), parts.holds()]


def test_a_resumed_run_ends_like_one_never_stopped(tmp_path: Path) -> None:
    for whole, parts in run_ranks(both, str(tmp_path)):
        assert whole == parts


class Pair:
    """Two sharded models, each with an optimizer."""

    def __init__(self, work_dir: Path, **options: Any) -> None:
        made = [Training(work_dir / f"unused {name}") for name in "gd"]
        for one in made:
            one.runner.detach()
        self.models = dict(zip("gd", (one.model for one in made), strict=True))
        self.optimizers = {name: torch.optim.AdamW(model.parameters(), lr=0.01) for name, model in self.models.items()}
        self.x = made[0].x
        self.trainer = Engine(self.step)
        hooks = [EMAHook(warm_up=WARM_UP), CheckpointHook()]
        attach_hooks(self.trainer, hooks, work_dir=work_dir, model=self.models, optimizer=self.optimizers, **options)

    def step(self, engine: Engine, batch: Any) -> float:
        loss = sum((model(self.x * batch).pow(2).mean() for model in self.models.values()), torch.zeros(()))
        loss.backward()
        for optimizer in self.optimizers.values():
            optimizer.step()
            optimizer.zero_grad()
        return float(loss.item())

    def run(self, epochs: int) -> Any:
        self.trainer.run([1.0, 0.5, 2.0], max_epochs=epochs)
        return numbers_of({name: model.state_dict() for name, model in self.models.items()})


def several_both(work_dir: str) -> list[Any]:
    folder = Path(work_dir)
    whole = Pair(folder / "whole").run(4)
    Pair(folder / "parts").run(2)
    return [whole, Pair(folder / "parts", resume="required").run(4)]


def test_several_sharded_models_end_like_ones_never_stopped(tmp_path: Path) -> None:
    for whole, parts in run_ranks(several_both, str(tmp_path)):
        assert parts == whole
    assert (tmp_path / "parts" / "last").is_dir()


def damage(file: str) -> Callable[[Path], None]:
    def flip(folder: Path) -> None:
        data = bytearray((folder / file).read_bytes())
        data[len(data) // 2] ^= 1
        (folder / file).write_bytes(data)

    return flip


def link(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to(folder.with_name("elsewhere"))


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (damage("__1_0.distcp"), "__1_0.distcp: wrong checksum"),
        (damage("state.pth"), "state.pth: wrong checksum"),
        (lambda folder: (folder / "__0_0.distcp").unlink(), "__0_0.distcp: missing"),
        (lambda folder: os.truncate(folder / "__0_0.distcp", 5), "__0_0.distcp: 5 bytes instead of"),
        (shutil.rmtree, "missing"),
        (link, "is a symbolic link, which is not followed"),
    ],
    ids=["bit", "bit of ours", "no file", "cut", "no folder", "link"],
)
def test_a_damaged_one_is_noticed(harm: Callable[[Path], None], reason: str, saved: Path) -> None:
    harm(saved / "last")
    store = FolderStore(saved)
    (last,) = [entry for entry in store.entries() if entry.name == "last"]
    assert str(store.verify(last)).startswith(reason)
    with pytest.raises(CheckpointError, match="cannot load"):
        store.load(saved / "last")
    assert store.newest() == saved / "epoch_3"


def test_every_rank_falls_back_to_the_newest_that_is_whole(saved: Path) -> None:
    damage("__1_0.distcp")(saved / "last")
    found = run_ranks(resumed, str(saved), True, 3)
    assert [each["resumed"] for each in found] == ["epoch_3", "epoch_3"]


def load_named(work_dir: str, name: str) -> str:
    training = Training(work_dir, EMAHook())
    with pytest.raises(CheckpointError) as caught:
        training.runner.load_checkpoint(Path(work_dir, name))
    return str(caught.value)


def test_all_ranks_refuse_what_one_of_them_finds_damaged(saved: Path) -> None:
    damage("__1_0.distcp")(saved / "last")
    for message in run_ranks(load_named, str(saved), "last"):
        assert message == f"cannot load {saved / 'last'}: __1_0.distcp: wrong checksum (rank 0 and 1 more)"


# -- nothing in a folder is believed -----------------------------------------------------------------------------


class Evil:
    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.canary),)


def unlisted(saved: Path) -> Path:
    """Return a folder that no manifest lists, so that only reading it can find what is wrong."""
    return Path(shutil.copytree(saved / "last", saved / "foreign"))


def test_the_pickle_that_torch_writes_is_never_opened(saved: Path, tmp_path: Path) -> None:
    folder, canary = unlisted(saved), tmp_path / "canary"
    (folder / ".metadata").write_bytes(pickle.dumps(Evil(canary)))
    with pytest.raises(dcp.CheckpointException), pytest.warns(match="in a single process"):
        dcp.load({"state_dict.0.weight": torch.zeros(6, 4)}, checkpoint_id=folder)
    assert canary.exists(), "torch itself runs what is in it"
    canary.rmdir()
    assert FolderStore(saved).load(folder)["meta"]["iter"] == 9
    assert not canary.exists()


@pytest.mark.parametrize("name", ["state.pth", "__1_0.distcp"])
def test_code_in_the_other_files_is_not_run(name: str, saved: Path, tmp_path: Path) -> None:
    folder, canary = unlisted(saved), tmp_path / "canary"
    torch.save(Evil(canary), tmp_path / "evil")
    size = (folder / name).stat().st_size
    (folder / name).write_bytes((tmp_path / "evil").read_bytes().ljust(size, b"\0"))
    with pytest.raises(CheckpointError):
        FolderStore(saved).load(folder)
    assert not canary.exists()


def rewritten(folder: Path, change: Callable[[Any], None]) -> None:
    content = torch.load(folder / "state.pth", weights_only=True)
    content["shards"] = [list(shard) for shard in content["shards"]]
    change(content)
    with (folder / "state.pth").open("wb") as file:
        write_archive(file, content)


def first_chunk(**changes: Any) -> Callable[[Any], None]:
    def change(content: Any) -> None:
        place, key, shape, dtype, placements, (chunk, *others) = content["shards"][0]
        fields = ("offsets", "sizes", "file", "start", "length")
        new = tuple(changes.get(name, value) for name, value in zip(fields, chunk, strict=True))
        content["shards"][0] = [place, key, shape, dtype, placements, (new, *others)]

    return change


@pytest.mark.parametrize(
    "change",
    [
        *(first_chunk(file=name) for name in ["../last/__0_0.distcp", "/etc/passwd", ".metadata", "..", "", 3]),
        *(first_chunk(sizes=sizes) for sizes in [(6, 4), (0, 4), (-1, 4), (10**12, 4), (3,), "ab", None]),
        *(first_chunk(offsets=offsets) for offsets in [(4, 0), (10**12, 0), (-3, 0), (0,), None]),
        *(first_chunk(start=start) for start in [-1, 1, 10**12, "0", None]),
        *(first_chunk(length=length) for length in [-1, 0, 10, 10**15, None]),
        lambda content: content.update(format=2),
        lambda content: content.update(shards=[1]),
        lambda content: content.update(shards={}),
        lambda content: content.pop("shards"),
        lambda content: content.update(state=[]),
        lambda content: content["shards"][0].__setitem__(0, ([], {})),
        lambda content: content["shards"][0].__setitem__(2, (10**9, 10**9)),
        lambda content: content["shards"][0].__setitem__(3, "torch.float32"),
        lambda content: content["shards"][0].__setitem__(3, torch.quint8),
        lambda content: content["shards"].append(content["shards"][0]),
    ],
)
def test_what_the_list_of_shards_says_is_checked(change: Callable[[Any], None], saved: Path) -> None:
    folder = unlisted(saved)
    rewritten(folder, change)
    with pytest.raises(CheckpointError, match=f"^cannot load {re.escape(str(folder))}: "):
        FolderStore(saved).load(folder)


def test_shards_that_are_links_are_not_followed(saved: Path) -> None:
    folder = unlisted(saved)
    (folder / "__0_0.distcp").unlink()
    (folder / "__0_0.distcp").symlink_to(saved / "last" / "__0_0.distcp")
    with pytest.raises(CheckpointError, match="is a symbolic link"):
        FolderStore(saved).load(folder)
