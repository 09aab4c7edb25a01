"""`replica.py` is tested with the thread that uses it, in `test_mirror.py`; here is what needs no thread."""

from __future__ import annotations

from pathlib import Path

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
