from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest

from ignite_hooks.distributed.watchdog import Peer, is_of_another_rank, started_at, this_host
from ignite_hooks.errors import HookError


def test_a_running_process_has_not_exited() -> None:
    assert not Peer(1, this_host(), os.getpid(), started_at()).has_exited()


def test_a_killed_process_has_exited_even_before_it_is_reaped() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        peer = Peer(1, this_host(), process.pid, psutil.Process(process.pid).create_time())
        assert not peer.has_exited()
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert peer.has_exited()
    assert peer.has_exited()


def test_another_process_with_the_same_number_is_not_the_peer() -> None:
    assert Peer(1, this_host(), os.getpid(), started_at() - 100).has_exited()


def test_nothing_is_known_of_a_process_of_another_machine() -> None:
    far = Peer(2, "elsewhere x y", 1, 0.0)
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
