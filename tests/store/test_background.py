"""`background.py` and `copies.py` in a folder: saves that continue while the state changes."""

from __future__ import annotations

import errno
import gc
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from ignite_hooks.errors import CheckpointError
from ignite_hooks.store import FolderStore, Saving, folder
from tests import warm

MakeState = Callable[[int], dict[str, Any]]


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Return an event before which no file is written; copies are made."""
    opened, original = threading.Event(), folder.write_state

    def wait_and_write(*arguments: Any) -> tuple[int, str]:
        assert opened.wait(60)
        return original(*arguments)

    monkeypatch.setattr(folder, "write_state", wait_and_write)
    yield opened
    opened.set()


def begin(store: FolderStore, state: dict[str, Any], number: int, steady: Any = (), **more: Any) -> Saving:
    given = {"kind": "periodic", "epoch": 0, "iteration": number, "steady": steady, **more}
    return store.begin(f"epoch_{number}.pth", state, **given)


def test_no_file_mixes_two_moments(store: FolderStore) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(200, 300), torch.nn.BatchNorm1d(300))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.randn(4, 200)).sum().backward()
    optimizer.step()
    momenta = [state["momentum_buffer"] for state in optimizer.state.values()]
    steady = [*model.parameters(), *momenta]
    buffers = list(model.buffers())

    def fill(tensors: list[torch.Tensor], number: int) -> None:
        with torch.no_grad():
            for tensor in tensors:
                tensor.fill_(number)

    fill([*steady, *buffers], 0)
    for number in range(30):
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()["state"]}
        saving = begin(store, state, number, steady)
        fill(buffers, number + 1)
        saving.wait_copied()
        fill(steady, number + 1)
    for number in range(30):
        loaded = store.load(store.folder / f"epoch_{number}.pth")
        tensors = [*loaded["model"].values(), *(each["momentum_buffer"] for each in loaded["optimizer"].values())]
        assert [tensor.unique().tolist() for tensor in tensors] == [[number]] * len(tensors)


@pytest.mark.parametrize("size", [3, 100_000])
def test_a_state_changed_too_early_is_not_saved_and_named(store: FolderStore, gate: threading.Event, size: int) -> None:
    gate.set()
    held, release = threading.Event(), threading.Event()
    first = begin(store, {"a": 1}, 1, done=lambda: (held.set(), release.wait(60)))  # type: ignore[func-returns-value]
    assert held.wait(60)
    weights = [torch.nn.Parameter(torch.ones(size)) for _ in range(3)]
    state = {"model": {"layers": [weight.detach() for weight in weights]}}
    saving = begin(store, state, 2, weights)
    with torch.no_grad():
        weights[1].add_(1)
    release.set()
    with pytest.raises(CheckpointError, match=r"model\.layers\[1\] was changed before it had been copied"):
        saving.wait()
    assert [entry.iteration for entry in store.entries()] == [1]
    assert not list(store.folder.glob(".tmp-*"))
    assert first.wait().exists()
    assert begin(store, state, 3, weights).wait().exists()


def test_memory_freed_after_its_copy_is_still_saved(store: FolderStore, gate: threading.Event) -> None:
    weight = torch.arange(1000.0)
    saving = begin(store, {"w": weight.detach()}, 1, [weight])
    saving.wait_copied()
    weight.untyped_storage().resize_(0)
    gate.set()
    assert torch.equal(store.load(saving.wait())["w"], torch.arange(1000.0))


def test_tensors_of_inference_mode_are_copied_at_once(store: FolderStore, gate: threading.Event) -> None:
    with torch.inference_mode():
        weight = torch.ones(50_000)
    saving = begin(store, {"w": weight}, 1, [weight])
    with torch.inference_mode():
        weight.zero_()
    gate.set()
    assert store.load(saving.wait())["w"].unique().tolist() == [1]


def test_whoever_needs_the_copy_makes_it_while_the_thread_writes(store: FolderStore, gate: threading.Event) -> None:
    weight = torch.ones(100_000)
    begin(store, {"a": 1}, 1)
    second = begin(store, {"w": weight.detach()}, 2, [weight])
    second.wait_copied()
    assert not second.done()
    weight.zero_()
    gate.set()
    assert store.load(second.wait())["w"].unique().tolist() == [1]


def test_a_third_save_waits_for_the_first(store: FolderStore, make_state: MakeState, gate: threading.Event) -> None:
    savings = [begin(store, make_state(number), number) for number in (1, 2)]
    third: list[Saving] = []
    other = threading.Thread(target=lambda: third.append(begin(store, make_state(3), 3)))
    other.start()
    other.join(0.05)
    assert other.is_alive()
    assert third == []
    assert not any(saving.done() for saving in savings)
    gate.set()
    other.join(60)
    third[0].wait()
    assert [entry.iteration for entry in store.entries()] == [1, 2, 3]
    assert store._writer is not None
    assert store._writer.buffers.count == 2


def test_a_store_is_busy_when_the_next_save_would_wait(
    store: FolderStore, make_state: MakeState, gate: threading.Event
) -> None:
    busy = [store.busy()]
    savings = []
    for number in (1, 2):
        savings.append(begin(store, make_state(number), number))
        busy.append(store.busy())
    gate.set()
    for saving in savings:
        saving.wait()
    store.newest()
    assert [*busy, store.busy()] == [False, False, True, False]
    assert [saving.waited for saving in savings] == [0.0, 0.0]


def test_while_writing_keeps_up_there_is_one_buffer(store: FolderStore, make_state: MakeState) -> None:
    for number in range(5):
        begin(store, make_state(number), number).wait()
        store.newest()
    assert store._writer is not None
    assert store._writer.buffers.count == 1


ASKING: dict[str, Callable[[FolderStore], object]] = {
    "save": lambda store: store.save("b.pth", {}, kind="last", epoch=0, iteration=0),
    "begin_folder": lambda store: store.begin_folder("a"),
    "load": lambda store: store.load(store.folder / "epoch_1.pth"),
    "newest": lambda store: store.newest(),
    "start_afresh": lambda store: store.start_afresh(),
    "close": lambda store: store.close(),
}


@pytest.mark.parametrize("asking", ASKING)
def test_what_needs_the_files_waits_for_them(
    store: FolderStore, make_state: MakeState, gate: threading.Event, asking: str
) -> None:
    saving = begin(store, make_state(1), 1)
    seen: list[bool] = []

    def ask() -> None:
        ASKING[asking](store)
        seen.append(saving.done())

    other = threading.Thread(target=ask)
    other.start()
    other.join(0.02)
    assert store.entries() == []
    assert seen == []
    gate.set()
    other.join(60)
    assert seen == [True]
    assert saving.wait() == store.folder / "epoch_1.pth"


def test_a_failed_save_fails_only_for_itself(
    store: FolderStore, make_state: MakeState, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []
    with monkeypatch.context() as patch:

        def full(*arguments: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        patch.setattr(os, "write", full)
        saving = begin(store, make_state(1), 1, done=lambda: told.append(1))
        for _ in range(2):
            with pytest.raises(CheckpointError, match=r"^cannot save epoch_1\.pth: disk full, needs"):
                saving.wait()
    assert saving.done()
    assert store.newest() is None
    assert not list(store.folder.glob(".tmp-*"))
    assert begin(store, make_state(2), 2).wait().exists()
    assert [entry.iteration for entry in store.entries()] == [2]
    store.close()
    assert told == [1]


def test_a_callback_that_fails_is_logged(
    store: FolderStore, make_state: MakeState, caplog: pytest.LogCaptureFixture
) -> None:
    saving = begin(store, make_state(1), 1, done=lambda: 1 // 0)
    assert saving.wait().exists()
    store.close()
    assert "ZeroDivisionError" in caplog.text


def test_closing_ends_the_thread_and_frees_the_buffers(store: FolderStore, make_state: MakeState) -> None:
    before = threading.active_count()
    begin(store, make_state(1), 1)
    assert threading.active_count() == before + 1
    store.close()
    assert threading.active_count() == before
    assert store._writer is None
    with store.open():
        assert begin(store, make_state(2), 2).wait().exists()


def test_a_store_without_background_saves_starts_no_thread(store: FolderStore, make_state: MakeState) -> None:
    before = threading.active_count()
    store.save("a.pth", make_state(1), kind="last", epoch=0, iteration=1)
    assert threading.active_count() == before


def test_a_forgotten_store_still_writes_and_gives_the_lock_back(tmp_path: Path, make_state: MakeState) -> None:
    saving = begin(FolderStore(tmp_path).open(), make_state(1), 1)
    assert saving.wait().exists()
    del saving
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("checkpoints")]
    gc.collect()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    FolderStore(tmp_path).open().close()


@pytest.mark.faults
def test_a_forked_child_does_not_wait_for_the_saving_thread(
    store: FolderStore, make_state: MakeState, gate: threading.Event
) -> None:
    saving = begin(store, make_state(1), 1)
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        try:
            store.close()
            assert store.entries() == []
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    gate.set()
    assert saving.wait().exists()


SCRIPT = """
import sys, torch
from ignite_hooks.store import FolderStore
store = FolderStore(sys.argv[1]).open()
{body}
"""


def run_script(body: str, path: Path) -> str:
    done = warm.run(
        [sys.executable, "-c", SCRIPT.format(body=body), str(path)], check=True, capture_output=True, text=True
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.slow
def test_the_last_save_completes_without_close(tmp_path: Path) -> None:
    body = "store.begin('a.pth', {'w': torch.ones(3_000_000)}, kind='last', epoch=0, iteration=1)"
    run_script(body, tmp_path)
    found = FolderStore(tmp_path).newest()
    assert found == tmp_path / "a.pth"
    assert not list(tmp_path.glob(".tmp-*"))


MEMORY = """
def peak():
    return next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
given = {{"kind": "last", "epoch": 0, "iteration": 1}}
store.save("warm.pth", {{"w": torch.ones(1000)}}, **given)
state = {{str(i): torch.ones(5_000_000) for i in range(10)}}
before = peak()
{saves}
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("saves", "copies"),
    [
        ("store.save('a.pth', state, **given)", 0),
        ("for _ in range(3): store.begin('a.pth', state, **given).wait()", 1),
        ("for _ in range(5): store.begin('a.pth', state, **given)\nstore.close()", 2),
    ],
    ids=["save", "begin and wait", "begin"],
)
def test_saving_takes_no_more_memory_than_its_buffers(tmp_path: Path, saves: str, copies: int) -> None:
    body = MEMORY.format(saves=saves)
    grown = float(run_script(body, tmp_path))
    state = 200e6 / 1024**2
    assert copies * state - 5 < grown < copies * state + 30


@pytest.mark.faults
def test_killed_in_background_only_the_save_under_way_is_lost(tmp_path: Path, make_state: MakeState) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    path = tmp_path / "checkpoints"
    reached = 0
    for _ in range(20):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                with FolderStore(path) as store:
                    for number in range(reached + 1, 10_000):
                        state = make_state(number)
                        weight = state["state_dict"]["weight"]
                        told: Any = lambda: os.write(writer, b"!")  # noqa: E731, B023
                        begin(
                            store, state, number, [weight], done=told, retire=lambda entries: entries[:-1]
                        ).wait_copied()
                        weight.fill_(-1)
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
        with FolderStore(path) as store:
            newest = store.newest()
            assert newest is not None
            loaded = store.load(newest)
            reached = loaded["number"]
            assert loaded["state_dict"]["weight"].unique().tolist() == [reached]
            assert acknowledged <= reached <= acknowledged + 1
            assert len(list(path.glob("*.pth"))) == len(store.entries()) <= 2


def test_tied_weights_are_copied_once_and_come_back_tied(store: FolderStore) -> None:
    weight = torch.ones(100)
    loaded = store.load(begin(store, {"a": weight, "b": weight.view(10, 10)}, 1, [weight]).wait())
    assert loaded["a"].data_ptr() == loaded["b"].data_ptr()
