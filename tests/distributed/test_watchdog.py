from __future__ import annotations

import os
import subprocess
import sys
import time

import psutil
import pytest

from ignite_hooks.distributed.watchdog import Peer, is_of_another_rank, this_host
from ignite_hooks.errors import HookError


def test_a_running_process_has_not_exited() -> None:
    assert not Peer.found(1, this_host(), os.getpid()).has_exited()


def test_setting_the_clock_does_not_end_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = Peer.found(1, this_host(), os.getpid())
    now = psutil.boot_time()
    # Linux derives the boot time from the clock, and psutil adds it to the start of a process.
    monkeypatch.setattr(psutil._pslinux, "boot_time", lambda: now + 3600)
    assert abs(psutil.Process().create_time() - time.time()) > 1800, "the start time of a process follows the clock"
    assert not peer.has_exited()


def test_a_killed_process_has_exited_even_before_it_is_reaped() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        peer = Peer.found(1, this_host(), process.pid)
        assert not peer.has_exited()
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert peer.has_exited()
    assert peer.has_exited()
    assert Peer.found(1, this_host(), process.pid).has_exited()


def test_another_process_with_the_same_number_is_not_the_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = Peer.found(1, this_host(), os.getpid())
    monkeypatch.setattr(psutil._pslinux.Process, "create_time", lambda *_, **__: 1.0)
    assert peer.has_exited()


def test_nothing_is_known_of_a_process_of_another_machine() -> None:
    far = Peer.found(2, "elsewhere x y", 1)
    assert not far.has_exited()
    assert str(far) == "rank 2 (process 1 on elsewhere)"


@pytest.mark.parametrize(
    ("error", "is_lost"),
    [
        (RuntimeError("[gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:934."), True),
        (ConnectionResetError("Connection reset by peer"), True),
        (RuntimeError("NCCL communicator was aborted"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (KeyboardInterrupt(), False),
    ],
)
def test_errors_caused_by_a_lost_rank_are_recognized(error: BaseException, is_lost: bool) -> None:
    assert is_of_another_rank(error) is is_lost
    in_a_hook = HookError("EvalHook", "after_train_epoch", 1, 2, error)
    in_a_hook.__cause__ = error
    assert is_of_another_rank(in_a_hook) is is_lost
