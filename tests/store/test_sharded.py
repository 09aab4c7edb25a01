"""`sharded.py`: states of which every process has a part, in one folder."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ignite.distributed as idist
import pytest
import torch
import torch.distributed.checkpoint as dcp
from ignite.engine import Engine, Events
from torch.utils.data import DataLoader, TensorDataset

from ignite_hooks import BaseHook, CheckpointHook, EMAHook, EvalHook, attach_hooks
from ignite_hooks.errors import CheckpointError
from ignite_hooks.store import FolderStore, Manifest
from ignite_hooks.store import sharded as sharded_module
from ignite_hooks.store.archive import write_archive
from tests.ranks import run_ranks
from tests.sharded import Training, numbers_of, small_model
from tests.store.conftest import all_but_newest

pytestmark = pytest.mark.slow

WARM_UP = 1
FILES = [".metadata", "__0_0.distcp", "__1_0.distcp", "state.pth"]


def trained(work_dir: str, sharded: bool = True, mesh: Sequence[int] = ()) -> dict[str, Any]:
    hooks = EMAHook(warm_up=WARM_UP), CheckpointHook(max_keep_ckpts=2)
    training = Training(work_dir, *hooks, sharded=sharded, mesh=mesh)
    training.run(3)
    return training.holds()


def resumed(work_dir: str, sharded: bool = True, epochs: int = 4, mesh: Sequence[int] = ()) -> dict[str, Any]:
    found: dict[str, Any] = {}

    class Look(BaseHook):
        def before_train(self, runner: Any) -> None:
            found.update(training.holds(), iteration=runner.global_step, resumed=str(runner.state.resumed_from.name))

    hooks = EMAHook(warm_up=WARM_UP), CheckpointHook(max_keep_ckpts=2), Look()
    training = Training(work_dir, *hooks, sharded=sharded, mesh=mesh, resume="auto")
    training.run(epochs)
    return found


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Return what two ranks have saved, and what they held at the end."""
    folder = tmp_path_factory.mktemp("two_ranks")
    first, second = run_ranks(trained, str(folder))
    assert first == second
    return folder, first


@pytest.fixture
def saved(two_ranks: tuple[Path, dict[str, Any]], tmp_path: Path) -> Path:
    """Return a copy of what two ranks have saved."""
    return Path(shutil.copytree(two_ranks[0], tmp_path / "work"))


def without(found: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name not in names}


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


# -- failures ----------------------------------------------------------------------------------------------------


def failing_save(work_dir: str, failing: int, where: str) -> list[Any]:
    training = Training(work_dir, EMAHook(), CheckpointHook())
    training.run(1)

    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device", "__1_0.distcp")

    mine = idist.get_rank() == failing
    with pytest.MonkeyPatch.context() as patch:
        if mine:
            place: Any = {"data": (dcp.FileSystemWriter, "_write_data"), "list": (sharded_module, "describe_file")}[
                where
            ]
            patch.setattr(*place, fail)
        with pytest.raises(CheckpointError) as caught:
            training.runner.save_checkpoint("extra.pth")
    # All of them can go on.
    idist.barrier()
    training.runner.save_checkpoint("more.pth")
    return [str(caught.value), sorted(path.name for path in Path(work_dir).iterdir())]


@pytest.mark.parametrize(("failing", "where"), [(0, "data"), (1, "data"), (1, "list")])
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
