"""`room.py`: the memory that is left, in trees of files such as the kernel shows."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest

from ignite_hooks.store.room import MemoryLeft, groups_of_process, memory_left, room_for_copies, swing_of_process

MB = 2**20
NO_LIMIT_V1 = "9223372036854771712"


class Fake:
    """A folder with what ``/proc/self`` and control groups of one version hold."""

    def __init__(self, folder: Path, version: int, *, path: str = "/job/step", root: str = "/") -> None:
        self.proc, self.mount, self.version = folder / "proc", folder / "cgroup", version
        self.mount.mkdir()
        (self.proc / "self").mkdir(parents=True)
        own = f"5:cpu:/other\n4:blkio,memory:{path}\n" if version == 1 else f"0::{path}\n"
        kind = "cgroup cgroup rw,memory" if version == 1 else "cgroup2 cgroup2 rw"
        (self.proc / "self/cgroup").write_text(f"{own}1:name=systemd:/elsewhere\n")
        (self.proc / "self/mountinfo").write_text(
            "23 1 254:0 / / rw - ext4 /dev/vda rw\n"
            f"31 23 0:30 / {folder}/cpu rw - cgroup cgroup rw,cpu\n"
            f"35 31 0:32 {root} {self.mount} rw shared:9 - {kind}\n"
        )

    def group(self, path: str, limit: int | str, used: int, *, cache: int = 0, high: str = "max") -> None:
        """Make a group; sizes in MB, without which they are taken as they are."""
        folder = self.mount / path
        folder.mkdir(parents=True, exist_ok=True)
        limit = str(limit * MB) if isinstance(limit, int) else limit
        names = ["memory.limit_in_bytes", "memory.usage_in_bytes"]
        if self.version == 2:
            names = ["memory.max", "memory.current"]
            (folder / "memory.high").write_text(f"{high}\n")
        prefix = "total_" if self.version == 1 else ""
        files: Mapping[str, str] = {
            names[0]: limit,
            names[1]: str(used * MB),
            "memory.stat": f"anon 7\n{prefix}inactive_file {cache * MB}\n{prefix}active_file {MB}\n",
        }
        for name, content in files.items():
            (folder / name).write_text(f"{content}\n")

    def left(self) -> tuple[int, int]:
        found = memory_left(self.proc)
        return found.free // MB, found.limit // MB


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def fake(request: pytest.FixtureRequest, tmp_path: Path) -> Fake:
    return Fake(tmp_path, request.param)


def test_the_limit_of_the_own_group_counts_and_copies_of_files_are_free(fake: Fake) -> None:
    fake.group("job/step", 100, 60, cache=20)
    assert fake.left() == (100 - 60 + 20 + 1, 100)


def test_a_group_around_it_may_be_tighter(fake: Fake) -> None:
    fake.group("job", 90, 80)
    fake.group("job/step", 100, 60)
    assert fake.left() == (11, 90)


@pytest.mark.parametrize("word", [NO_LIMIT_V1, "max", "", "nonsense"])
def test_without_a_limit_the_machine_counts(fake: Fake, word: str) -> None:
    fake.group("job/step", word, 60)
    left, machine = memory_left(fake.proc), psutil.virtual_memory()
    assert left.limit == machine.total
    assert 0 < left.free < machine.total


def test_the_high_mark_of_version_2_is_a_limit_too(tmp_path: Path) -> None:
    fake = Fake(tmp_path, 2)
    fake.group("job/step", 100, 60, high=str(80 * MB))
    assert fake.left() == (21, 80)


@pytest.mark.parametrize("root", ["/job/step", "/somewhere/else"])
def test_in_a_container_the_mount_is_the_own_group(tmp_path: Path, root: str) -> None:
    fake = Fake(tmp_path, 1, root=root)
    fake.group("", 100, 60)
    assert fake.left() == (41, 100)


@pytest.mark.parametrize("content", ["", "nonsense\n", "4:memory\n"])
def test_what_cannot_be_read_sets_no_limit(tmp_path: Path, content: str) -> None:
    fake = Fake(tmp_path, 1)
    (fake.proc / "self/cgroup").write_text(content)
    assert memory_left(fake.proc).limit == psutil.virtual_memory().total
    assert list(groups_of_process(tmp_path / "missing")) == []
    assert swing_of_process(tmp_path / "missing") == 0


def test_this_process_has_groups_and_memory() -> None:
    left = memory_left()
    assert 0 < left.free <= left.limit
    assert " of " in str(left)
    assert all(os.path.isdir(group.folder) for group in groups_of_process())


def test_what_training_took_before_it_may_take_again(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self/status").write_text("Name:\tpython\nVmHWM:\t 3072 kB\nVmRSS:\t 1024 kB\n")
    assert swing_of_process(tmp_path) == 2 * MB


@pytest.mark.parametrize(
    ("free", "limit", "swing", "room"),
    [
        (1000, 2000, 0, 900),
        (1000, 2000, 300, 600),
        (1000, 1_000_000, 0, 1000 - 2048),
        (1000, 1000, 0, 1000 - 64),
        (10, 1000, 0, -54),
    ],
)
def test_a_part_of_the_memory_stays_free(free: int, limit: int, swing: int, room: int) -> None:
    assert room_for_copies(MemoryLeft(free * MB, limit * MB), swing * MB) == room * MB
