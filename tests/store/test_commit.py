"""`commit.py`: killed at every step, full disks, files of others."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ignite_hooks.errors import CheckpointError
from ignite_hooks.store import FolderStore
from ignite_hooks.store.folder import write_state
from ignite_hooks.store.manifest import FILE_NAME, CheckpointFile, Manifest
from ignite_hooks.store.verify import describe_file
from tests.store.conftest import all_but_newest, number_of_newest, overwrite

pytestmark = pytest.mark.faults

STEPS = ("open", "write", "fsync", "replace", "unlink", "ftruncate", "pwrite")


MakeState = Callable[[int], dict[str, Any]]


Action = Callable[[FolderStore, MakeState], object]


def add_and_retire(store: FolderStore, make_state: MakeState) -> None:
    store.save("epoch_3.pth", make_state(30), kind="periodic", epoch=3, iteration=30, retire=all_but_newest(1))


def replace_a_stranger(store: FolderStore, make_state: MakeState) -> None:
    (store.folder / "best.pth").write_text("theirs")
    store.save("best.pth", make_state(30), kind="best", epoch=3, iteration=30)


def killed_at(step: int, steps: tuple[str, ...], action: Callable[[], object]) -> bool:
    """Run the action in a forked process that gets SIGKILL just before a step; return whether it came that far."""
    child = os.fork()
    if child == 0:
        try:
            kill_before(step, steps)
            action()
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, -signal.SIGKILL), f"the child failed with {code}"
    return code != 0


def kill_before(last: int, steps: tuple[str, ...]) -> None:
    count = 0

    def counted(name: str) -> Callable[..., Any]:
        original = getattr(os, name)

        def step(*arguments: Any, **more: Any) -> Any:
            nonlocal count
            count += 1
            if count == last:
                if name == "write":  # half of it still arrives
                    original(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments, **more)

        return step

    for name in steps:
        setattr(os, name, counted(name))


def check_resumable(folder: Path, make_state: MakeState) -> int:
    """Return the number of the state that a restart finds; check that the folder is tidy and writable afterwards."""
    found = number_of_newest(FolderStore(folder))
    with FolderStore(folder) as store:
        assert number_of_newest(store) == found
        assert [store.verify(entry) for entry in store.entries()] == [None] * len(store.entries())
        files = {path.name for path in folder.iterdir() if path.read_bytes() != b"theirs"}
        assert files - {".lock", FILE_NAME} == {entry.name for entry in store.entries()}
        assert Manifest.load(folder).pending is None
        store.save("last.pth", make_state(99), kind="last", epoch=9, iteration=99)
        assert number_of_newest(store) == 99
    return found


@pytest.mark.parametrize(
    ("action", "steps"),
    [(overwrite, STEPS), (add_and_retire, STEPS[2:]), (replace_a_stranger, STEPS[2:])],
)
def test_killed_at_any_step_one_of_both_states_is_there(
    two_saved: Path,
    tmp_path: Path,
    make_state: MakeState,
    action: Action,
    steps: tuple[str, ...],
    caplog: pytest.LogCaptureFixture,
) -> None:
    found = []
    for step in range(1, 200):
        folder = tmp_path / f"killed_{step}"
        shutil.copytree(two_saved, folder)

        def run(folder: Path = folder) -> None:
            with FolderStore(folder) as store:
                action(store, make_state)

        survived = not killed_at(step, steps, run)
        found.append(check_resumable(folder, make_state))
        if survived:
            break
    print(f"{action.__name__}: {len(found) - 1} kills")
    assert survived
    assert set(found) == {20, 30}
    assert found == sorted(found), "once the new state was there it must stay"
    assert "cannot be used" not in caplog.text, "an interrupted save is not a damaged file"


def save_folder(store: FolderStore, number: int) -> Path:
    temporary = store.begin_folder("last")
    (temporary / ".metadata").write_bytes(b"of torch")
    write_state(temporary / "state.pth", {"format": 1, "state": {"number": number}, "shards": []})
    files = [describe_file(path) for path in temporary.iterdir()]
    return store.commit_folder(temporary, "last", files, kind="last", epoch=0, iteration=number)


def test_killed_while_replacing_a_folder_one_of_both_is_there(tmp_path: Path) -> None:
    before = tmp_path / "before"
    with FolderStore(before) as store:
        save_folder(store, 20)
    found = []
    for step in range(1, 200):
        folder = Path(shutil.copytree(before, tmp_path / f"killed_{step}"))

        def run(folder: Path = folder) -> None:
            with FolderStore(folder) as store:
                save_folder(store, 30)

        survived = not killed_at(step, (*STEPS, "mkdir", "rmdir"), run)
        with FolderStore(folder) as store:
            (entry,) = store.entries()
            assert store.verify(entry) is None
            found.append(number_of_newest(store))
            assert {path.name for path in folder.iterdir()} == {".lock", FILE_NAME, "last"}
            save_folder(store, 99)
        assert number_of_newest(FolderStore(folder)) == 99
        if survived:
            break
    assert survived
    assert set(found) == {20, 30}
    assert found == sorted(found), "once the new state was there it must stay"


def test_a_folder_and_a_file_can_replace_each_other(tmp_path: Path) -> None:
    with FolderStore(tmp_path) as store:
        for number in 1, 3:
            store.save("last", {"number": number}, kind="last", epoch=0, iteration=number)
            assert number_of_newest(store) == number
            save_folder(store, number + 1)
            assert number_of_newest(store) == number + 1
        assert {path.name for path in tmp_path.iterdir()} == {".lock", FILE_NAME, "last"}


def test_a_folder_on_another_disk_is_not_kept(tmp_path: Path) -> None:
    with FolderStore(tmp_path) as store:
        temporary = store.begin_folder("last")
        elsewhere = CheckpointFile("__1_0.distcp", 5, "xxh3_128:" + "0" * 32)
        with pytest.raises(CheckpointError, match=r"__1_0.distcp cannot be seen by rank 0: all ranks need"):
            store.commit_folder(temporary, "last", [elsewhere], kind="last", epoch=0, iteration=1)
        store.drop_folder(temporary)
        assert store.entries() == []
        assert {path.name for path in tmp_path.iterdir()} == {".lock"}


@pytest.mark.parametrize("step_of_save", [5, 8, 10, 17])  # before: sync, rename, listing, unlink
def test_killed_again_while_recovering_changes_nothing(
    two_saved: Path, tmp_path: Path, make_state: MakeState, step_of_save: int
) -> None:
    def interrupted() -> None:
        with FolderStore(two_saved) as store:
            add_and_retire(store, make_state)

    steps = ("fsync", "replace", "unlink")
    killed_at(step_of_save, steps, interrupted)
    expected = number_of_newest(FolderStore(two_saved))
    for step in range(1, 50):
        folder = tmp_path / f"killed_{step}"
        shutil.copytree(two_saved, folder)
        survived = not killed_at(step, steps, FolderStore(folder).open)
        assert check_resumable(folder, make_state) == expected
        if survived:
            return
    pytest.fail("recovering never came to its end")


def save_last(store: FolderStore, make_state: MakeState, number: int) -> None:
    state, retire = make_state(number), all_but_newest(1)
    store.save("last.pth", state, kind="last", epoch=0, iteration=number, retire=retire)


def test_random_kills_lose_at_most_one_save(tmp_path: Path, make_state: MakeState) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    folder = tmp_path / "checkpoints"
    reached = 0
    for _ in range(12):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                with FolderStore(folder) as store:
                    for number in range(reached + 1, 10_000):
                        name = f"epoch_{number}.pth"
                        store.save(name, make_state(number), kind="periodic", epoch=0, iteration=number)
                        save_last(store, make_state, number)
                        os.write(writer, b"!")
            finally:
                os._exit(1)
        os.close(writer)
        os.read(reader, 1)
        signal.sigtimedwait([], draw.uniform(0, 0.05))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        acknowledged = reached + 1
        while data := os.read(reader, 4096):
            acknowledged += len(data)
        os.close(reader)
        with FolderStore(folder) as store:
            reached = number_of_newest(store)
            assert acknowledged <= reached <= acknowledged + 1
            assert len(list(folder.glob("*.pth"))) == len(store.entries())
            save_last(store, make_state, reached)
            assert len(list(folder.glob("*.pth"))) == len(store.entries()) == 2


def save_error(store: FolderStore, make_state: MakeState) -> CheckpointError | None:
    try:
        overwrite(store, make_state)
    except CheckpointError as error:
        return error
    return None


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("open", errno.EROFS),
        ("write", errno.ENOSPC),
        ("fsync", errno.EDQUOT),
        ("fsync", errno.EIO),
        ("replace", errno.ENOSPC),
    ],
)
@pytest.mark.parametrize("for_good", [True, False], ids=["for good", "once"])
def test_a_failing_disk_costs_only_that_save(
    two_saved: Path,
    make_state: MakeState,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    number: int,
    for_good: bool,
) -> None:
    original = getattr(os, name)
    store = FolderStore(two_saved).open()
    for failing in range(1, 200):
        count = 0

        def step(*arguments: Any, **more: Any) -> Any:
            nonlocal count
            count += 1
            reading = name == "open" and not arguments[1] & os.O_CREAT
            if not reading and (count == failing or (for_good and count > failing)):  # noqa: B023
                raise OSError(number, os.strerror(number))
            return original(*arguments, **more)

        with monkeypatch.context() as patch:
            patch.setattr(os, name, step)
            error = save_error(store, make_state)
        if error is not None:
            assert isinstance(error.__cause__, OSError)
            assert error.__cause__.errno == number
            reasons = {errno.ENOSPC: "disk full, needs 0.0 MB, ", errno.EDQUOT: "quota used up, needs 0.0 MB, "}
            full = reasons.get(number, "")
            assert str(error).startswith(f"cannot save last.pth: {full}")
        assert not list(two_saved.glob(".tmp-*"))
        restarted = FolderStore(two_saved)
        assert number_of_newest(store) == number_of_newest(restarted)
        assert number_of_newest(store) in (20, 30)
        for reader in store, restarted:
            assert [reader.verify(entry) for entry in reader.entries()] == [None, None]
        if count < failing:
            break
        store.save("last.pth", make_state(20), kind="last", epoch=2, iteration=20)
    store.close()
    assert error is None, "every step was tried"
    assert failing > 2


def test_interrupting_a_save_removes_its_temporary_file(
    store: FolderStore, make_state: MakeState, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        overwrite(store, make_state)
    assert not list(store.folder.glob(".tmp-*"))


def test_a_file_that_cannot_be_deleted_now_goes_later(
    two_saved: Path, make_state: MakeState, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*arguments: object, **more: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted", "epoch_1.pth")

    with FolderStore(two_saved) as store:
        with monkeypatch.context() as patch:
            patch.setattr(os, "unlink", refuse)
            given: dict[str, Any] = {"kind": "last", "epoch": 3, "iteration": 30}
            store.save("last.pth", make_state(30), retire=lambda entries: entries[:1], **given)
        assert "cannot delete checkpoints: Operation not permitted" in caplog.text
        overwrite(store, make_state)
        assert [entry.name for entry in store.entries()] == ["last.pth"]
        assert (two_saved / "epoch_1.pth").exists()
    with FolderStore(two_saved):
        assert not (two_saved / "epoch_1.pth").exists()


def test_a_file_that_replaced_a_deleted_one_stays(two_saved: Path) -> None:
    entry, last = FolderStore(two_saved).entries()
    Manifest((last,), deleting=(entry,)).save(two_saved)
    (two_saved / "epoch_1.pth").write_text("theirs")
    with FolderStore(two_saved) as store:
        assert [each.name for each in store.entries()] == ["last.pth"]
    assert (two_saved / "epoch_1.pth").read_text() == "theirs"
