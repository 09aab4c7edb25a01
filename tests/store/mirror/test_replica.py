"""`replica.py` is tested with the thread that uses it, in `test_mirror.py`; here is what needs no thread."""

from __future__ import annotations

from pathlib import Path

import pytest

from ignite_hooks.store import FolderStore
from ignite_hooks.store.mirror.remote import Remote
from ignite_hooks.store.mirror.replica import Replica


def test_retention_deletes_there_only_what_is_listed(tmp_path: Path) -> None:
    replica = Replica(Remote(str(tmp_path / "there")))
    with FolderStore(tmp_path / "run") as store:
        for number in (1, 2):
            store.save(f"epoch_{number}.pth", {}, kind="periodic", epoch=number, iteration=number)
        for entry in store.entries():
            replica.copy(entry, store.folder)
    (tmp_path / "there" / "mine.pth").write_text("not ours")
    replica.retire(lambda entries: entries, "epoch_2.pth")
    assert sorted(path.name for path in (tmp_path / "there").glob("*.pth")) == ["epoch_2.pth", "mine.pth"]
    assert replica.read().deleting == ()


def test_a_first_copy_that_was_cut_off_is_nothing_to_resume_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    remote = Remote(str(tmp_path / "there"))
    with FolderStore(tmp_path / "run") as store:
        store.save("iter_2.pth", {}, kind="periodic", epoch=1, iteration=2)
        (entry,) = store.entries()

        def die(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(remote, "put", die)
            with pytest.raises(KeyboardInterrupt):
                Replica(remote).copy(entry, store.folder)
        assert Replica(remote).read().pending == entry
        assert Replica(remote).candidates() == []
        assert "iter_2.pth was on its way to" in caplog.text
        # It has arrived, and only the last line of the manifest is missing.
        remote.put("iter_2.pth", str(store.folder / "iter_2.pth"), entry.size)
        assert Replica(remote).candidates() == [entry]
