"""`folder.py`: files, links, and what others put there."""

from __future__ import annotations

import errno
import io
import os
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ignite_hooks.errors import CheckpointError
from ignite_hooks.store import FolderStore
from ignite_hooks.store.manifest import FILE_NAME

MakeState = Callable[[int], dict[str, Any]]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name not in (".lock", FILE_NAME))


def test_nothing_is_created_before_open(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "a" / "b")
    assert store.newest() is None
    assert store.entries() == []
    assert list(tmp_path.iterdir()) == []
    with store:
        assert names(tmp_path / "a" / "b") == []


def test_writing_needs_open(tmp_path: Path, make_state: MakeState) -> None:
    store = FolderStore(tmp_path)
    actions: list[Callable[[], object]] = [
        lambda: store.save("a.pth", make_state(1), kind="last", epoch=0, iteration=0),
        lambda: store.begin("a.pth", make_state(1), kind="last", epoch=0, iteration=0),
        lambda: store.begin_folder("a"),
        lambda: store.start_afresh(),
    ]
    for action in actions:
        with pytest.raises(CheckpointError, match="is not open for writing"):
            action()


def test_reading_does_not_need_open_and_changes_nothing(two_saved: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in two_saved.iterdir()}
    store = FolderStore(two_saved)
    newest = store.newest()
    assert newest == two_saved / "last.pth"
    assert store.load(newest)["number"] == 20
    assert {path: path.stat().st_mtime_ns for path in two_saved.iterdir()} == before


def test_a_relative_folder_stays_where_it_was(
    tmp_path: Path, make_state: MakeState, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with FolderStore(Path("runs")) as store:
        monkeypatch.chdir(tmp_path / "elsewhere")
        store.save("a.pth", make_state(1), kind="last", epoch=0, iteration=0)
    assert names(tmp_path / "runs") == ["a.pth"]


def test_a_new_process_finds_what_was_saved(two_saved: Path) -> None:
    with FolderStore(two_saved) as store:
        assert [entry.name for entry in store.entries()] == ["epoch_1.pth", "last.pth"]
        assert [store.verify(entry) for entry in store.entries()] == [None, None]


def test_torch_alone_opens_the_file(two_saved: Path) -> None:
    assert torch.load(two_saved / "last.pth", weights_only=True)["number"] == 20


def test_temporary_files_of_a_dead_run_go(two_saved: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (two_saved / ".tmp-last.pth-1-abc").write_bytes(b"half")
    (two_saved / ".tmp-link").symlink_to(victim)
    (two_saved / ".tmp-folder" / "of somebody").mkdir(parents=True)
    (two_saved / ".tmp-sharded").mkdir()
    (two_saved / ".tmp-sharded" / "state.pth").touch()
    with FolderStore(two_saved):
        assert names(two_saved) == [".tmp-folder", "epoch_1.pth", "last.pth"]
    assert victim.read_text() == "precious"


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EROFS, "Read-only file system"),
        (errno.EACCES, "Permission denied"),
        (errno.ENOSPC, "disk full, needs 0.0 MB,"),
    ],
)
def test_a_folder_that_cannot_be_written_is_refused_at_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    original = os.open

    def refuse(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        if flags & os.O_EXCL:
            raise OSError(number, os.strerror(number), str(path))
        return original(path, flags, *rest, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with pytest.raises(CheckpointError, match=words):
            FolderStore(tmp_path).open()
    FolderStore(tmp_path).open().close()


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in tmp_path / "file", tmp_path / "file" / "below":
        with pytest.raises(CheckpointError, match="cannot write checkpoints in"):
            FolderStore(folder).open()


def test_a_foreign_file_is_renamed_not_overwritten(
    store: FolderStore, make_state: MakeState, caplog: pytest.LogCaptureFixture
) -> None:
    (store.folder / "last.pth").write_text("theirs")
    store.save("last.pth", make_state(1), kind="last", epoch=0, iteration=1)
    assert (store.folder / "last.pth.not-ours-1").read_text() == "theirs"
    assert store.load(store.folder / "last.pth")["number"] == 1
    assert "was not saved by us" in caplog.text


def test_only_listed_files_are_deleted(store: FolderStore, make_state: MakeState) -> None:
    (store.folder / "epoch_0.pth").write_text("theirs")
    for iteration in 1, 2:
        given: dict[str, Any] = {"kind": "periodic", "epoch": 0, "iteration": iteration}
        store.save(f"epoch_{iteration}.pth", make_state(1), retire=lambda entries: entries, **given)
    assert names(store.folder) == ["epoch_0.pth", "epoch_2.pth"]


@pytest.mark.parametrize("listed", [True, False])
def test_saving_over_a_link_leaves_its_target_alone(
    two_saved: Path, tmp_path: Path, make_state: MakeState, listed: bool
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    name = "last.pth" if listed else "new.pth"
    (two_saved / name).unlink(missing_ok=True)
    (two_saved / name).symlink_to(victim)
    with FolderStore(two_saved) as store:
        path = store.save(name, make_state(30), kind="last", epoch=0, iteration=30)
        assert not path.is_symlink()
        assert store.load(path)["number"] == 30
    assert victim.read_text() == "precious"


def test_a_link_in_the_folder_is_not_read(two_saved: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.pth"
    (two_saved / "last.pth").rename(copy)
    (two_saved / "last.pth").symlink_to(copy)
    store = FolderStore(two_saved)
    assert store.newest() == two_saved / "epoch_1.pth"
    with pytest.raises(CheckpointError, match="symbolic link"):
        store.load(two_saved / "last.pth")


@pytest.mark.parametrize("name", [".lock", FILE_NAME])
def test_a_link_in_place_of_our_own_files_is_refused(two_saved: Path, tmp_path: Path, name: str) -> None:
    victim = tmp_path / "victim"
    shutil.copy(two_saved / name, victim)
    (two_saved / name).unlink()
    (two_saved / name).symlink_to(victim)
    before = victim.read_bytes()
    with pytest.raises(CheckpointError):
        FolderStore(two_saved).open()
    assert victim.read_bytes() == before


def test_a_pipe_in_the_folder_does_not_stop_the_run(two_saved: Path) -> None:
    (two_saved / "last.pth").unlink()
    os.mkfifo(two_saved / "last.pth")
    assert FolderStore(two_saved).newest() == two_saved / "epoch_1.pth"


def test_a_file_elsewhere_is_loaded_through_a_link_too(two_saved: Path, tmp_path: Path) -> None:
    (tmp_path / "link.pth").symlink_to(two_saved / "last.pth")
    assert FolderStore(tmp_path / "other").load(tmp_path / "link.pth")["number"] == 20


@pytest.mark.parametrize("way", ["save", "begin"])
def test_the_order_of_steps_survives_a_power_cut(
    store: FolderStore, make_state: MakeState, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    store.save("old.pth", make_state(1), kind="last", epoch=0, iteration=1)
    steps: list[str] = []

    def short(path: object) -> str:
        name = Path(str(path)).name
        if name.startswith(".tmp-"):
            return "temporary " + ("manifest" if FILE_NAME in name else "state")
        return {FILE_NAME: "manifest", store.folder.name: "folder", "new.pth": "state"}.get(name, name)

    def record(name: str) -> None:
        original = getattr(os, name)

        def step(target: Any, *arguments: Any, **more: Any) -> Any:
            path = os.readlink(f"/proc/self/fd/{target}") if isinstance(target, int) else target
            goal = f" to {short(arguments[0])}" if name == "replace" else ""
            line = f"{name} {short(path)}{goal}"
            if line not in steps[-1:]:
                steps.append(line)
            return original(target, *arguments, **more)

        monkeypatch.setattr(os, name, step)

    for name in "write", "fsync", "replace", "unlink":
        record(name)
    steps.clear()
    given: dict[str, Any] = {"kind": "last", "epoch": 0, "iteration": 1, "retire": lambda entries: entries[:1]}
    if way == "save":
        store.save("new.pth", make_state(1), **given)
    else:
        store.begin("new.pth", make_state(1), **given).wait()
    manifest = [
        "write temporary manifest",
        "fsync temporary manifest",
        "replace temporary manifest to manifest",
        "fsync folder",
    ]
    data = ["write temporary state", "fsync temporary state"]
    committed = [*data, *manifest, "replace temporary state to state", "fsync folder", *manifest]
    assert steps == [*committed, *manifest, "unlink old.pth"]


class Payload:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {self.target}",)


class Evaluated(Payload):
    def __reduce__(self) -> tuple[object, ...]:
        return eval, (f"open({str(self.target)!r}, 'w')",)


class Rebuilt(Payload):
    def __reduce__(self) -> tuple[object, ...]:
        return torch.Tensor, (2,), {"a": Payload(self.target)}


def as_torch_file(value: object) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def as_old_torch_file(value: object) -> bytes:
    file = io.BytesIO()
    torch.save(value, file, _use_new_zipfile_serialization=False)
    return file.getvalue()


def spliced(value: object) -> bytes:
    """Return an honest file in which only the pickle was exchanged."""
    honest_file, result = io.BytesIO(as_torch_file({"a": torch.ones(2)})), io.BytesIO()
    with zipfile.ZipFile(honest_file) as honest, zipfile.ZipFile(result, "w") as evil:
        for name in honest.namelist():
            data = pickle.dumps(value, 2) if name.endswith("data.pkl") else honest.read(name)
            evil.writestr(name, data)
    return result.getvalue()


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("wrap", [pickle.dumps, as_torch_file, as_old_torch_file, spliced])
@pytest.mark.parametrize("payload", [Payload, Evaluated, Rebuilt])
@pytest.mark.parametrize("inside", [True, False])
def test_code_in_a_file_is_refused_and_not_run(
    two_saved: Path, tmp_path: Path, wrap: Callable[[object], bytes], payload: type[Payload], inside: bool
) -> None:
    target = tmp_path / "executed"
    path = (two_saved if inside else tmp_path) / "evil.pth"
    path.write_bytes(wrap({"state_dict": payload(target)}))
    with pytest.raises(CheckpointError, match=r"cannot load .*evil\.pth") as caught:
        FolderStore(two_saved).load(path)
    assert not target.exists()
    assert caught.value.__cause__ is not None
    assert "weights_only" not in str(caught.value)


def test_a_file_that_holds_no_dict_is_refused(two_saved: Path, tmp_path: Path) -> None:
    torch.save([1], tmp_path / "list.pth")
    with pytest.raises(CheckpointError, match="holds a list, expected a dict"):
        FolderStore(two_saved).load(tmp_path / "list.pth")
