"""`buffers.py`: how many buffers there are depends on the memory that is left."""

from __future__ import annotations

import logging
import mmap
import os
import sys
import threading

import pytest

from ignite_hooks.store.buffers import SMALL_BUFFER, Buffer, Buffers, NoRoomError
from tests import warm

SIZE = SMALL_BUFFER


class Memory:
    """Room that buffers use up."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.asked = 0
        self.buffers = Buffers(self.ask)

    def ask(self, given_back: int) -> int:
        self.asked += 1
        return self.room


@pytest.mark.parametrize(("room", "count"), [(SIZE - 1, 0), (SIZE, 1), (10 * SIZE, 2)])
def test_memory_that_is_not_free_is_not_taken(room: int, count: int) -> None:
    memory = Memory(room)
    for number in range(count):
        memory.buffers.acquire(SIZE)
        assert memory.buffers.count == number + 1
        memory.room -= SIZE if room < 2 * SIZE else 0
    if count < 2:
        assert memory.buffers.busy() is bool(count)
    if count == 0:
        with pytest.raises(NoRoomError):
            memory.buffers.acquire(SIZE)
        assert memory.buffers.count == 0


def test_small_buffers_are_taken_without_asking() -> None:
    memory = Memory(-1)
    for _ in range(2):
        memory.buffers.acquire(SIZE - 1)
    assert (memory.buffers.count, memory.asked) == (2, 0)


def test_with_one_buffer_the_next_save_waits_for_it(caplog: pytest.LogCaptureFixture) -> None:
    memory = Memory(SIZE)
    first = memory.buffers.acquire(SIZE)
    memory.room = 0
    found = []
    with caplog.at_level(logging.INFO):
        other = threading.Thread(target=lambda: found.append(memory.buffers.acquire(SIZE)))
        other.start()
        other.join(0.05)
        assert other.is_alive()
        memory.buffers.release(first)
        other.join(60)
    assert found == [first]
    assert memory.buffers.waited > 0
    assert caplog.text.count("memory for one copy of 16.0 MB only") == 1


@pytest.mark.parametrize("when", ["release", "acquire"])
def test_memory_is_given_back_when_it_gets_tight(when: str) -> None:
    memory = Memory(10 * SIZE)
    buffer = memory.buffers.acquire(SIZE)
    if when == "acquire":
        memory.buffers.release(buffer)
    memory.room = -1
    if when == "release":
        memory.buffers.release(buffer)
    else:
        with pytest.raises(NoRoomError):
            memory.buffers.acquire(SIZE)
    assert (memory.buffers.count, buffer.memory) == (0, None)
    memory.room = SIZE
    assert memory.buffers.acquire(SIZE).memory is not None, "it is taken again once there is room"


def test_a_buffer_that_is_too_small_is_replaced_within_its_own_room() -> None:
    memory = Memory(10 * SIZE)
    memory.buffers.release(memory.buffers.acquire(SIZE))
    memory.room = SIZE // 2
    bigger = memory.buffers.acquire(SIZE + SIZE // 2)
    assert (memory.buffers.count, len(bigger.view)) == (1, SIZE + SIZE // 2)
    memory.buffers.release(bigger)
    with pytest.raises(NoRoomError):
        memory.buffers.acquire(4 * SIZE)
    assert memory.buffers.count == 0


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (MemoryError, NoRoomError),
        (RuntimeError, NoRoomError),
        (OSError, NoRoomError),
        (ValueError, ValueError),
        (KeyboardInterrupt, KeyboardInterrupt),
    ],
)
def test_memory_that_was_not_had_leaves_the_place_to_others(
    error: type[BaseException], raised: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_self: Buffer, size: int, pinned: bool) -> None:
        raise error

    memory = Memory(10 * SIZE)
    with monkeypatch.context() as patch:
        patch.setattr(Buffer, "reserve", fail)
        with pytest.raises(raised):
            memory.buffers.acquire(SIZE)
    assert memory.buffers.count == 0
    assert memory.buffers.acquire(SIZE).memory is not None


def test_a_prepared_buffer_is_the_one_of_the_first_save() -> None:
    memory = Memory(10 * SIZE)
    memory.buffers.prepare(SIZE + 100)
    (prepared,) = memory.buffers._free
    assert memory.buffers.acquire(SIZE) is prepared
    assert bytes(prepared.view[:: SIZE // 8]) == bytes(9)


@pytest.mark.parametrize(("room", "taken"), [(SIZE - 1, 0), (10 * SIZE, 1)])
def test_nothing_is_prepared_where_memory_is_tight_or_there_already(room: int, taken: int) -> None:
    memory = Memory(room)
    if taken:
        memory.buffers.acquire(SIZE)
    memory.buffers.prepare(SIZE)
    assert (memory.buffers.count, len(memory.buffers._free)) == (taken, 0)


def test_a_buffer_is_in_the_parent_only_and_a_child_that_frees_it_frees_nothing_else() -> None:
    buffer = Buffer()
    buffer.reserve(SIZE, pinned=False)
    buffer.view[:5] = b"state"
    child = os.fork()
    if child == 0:
        held = bytes(buffer.view[:5])
        other = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        other[:5] = b"other"
        buffer.give_back()
        os._exit(0 if held == bytes(5) and other[:5] == b"other" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert bytes(buffer.view[:5]) == b"state"


def test_that_there_is_no_room_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    memory = Memory(0)
    for _ in range(3):
        with pytest.raises(NoRoomError):
            memory.buffers.acquire(SIZE)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "training waits while a save is written; give the job more memory" in caplog.text


SCRIPT = """
import logging, resource, sys, torch
from ignite_hooks.store import FolderStore
logging.basicConfig(stream=sys.stdout)
with FolderStore(sys.argv[1]) as store:
    given = {"kind": "last", "epoch": 0, "iteration": 1}
    state = {"w": torch.ones(25_000_000)}
    store.begin("a.pth", {"w": torch.ones(1000)}, **given).wait()
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 60_000_000, resource.RLIM_INFINITY))
    saving = store.begin("b.pth", state, **given)
    assert saving.done()
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert float(store.load(saving.wait())["w"].sum()) == 25_000_000
    assert not store.begin("c.pth", state, **given).wait() == saving.path
    print([entry.name for entry in store.entries()])
"""


@pytest.mark.slow
def test_memory_that_the_system_refuses_costs_no_save(tmp_path: object) -> None:
    done = warm.run([sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("no memory for a copy of 95.4 MB: training waits while this save is written") == 1
    assert "['a.pth', 'b.pth', 'c.pth']" in done.stdout
