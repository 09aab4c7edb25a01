"""`machines.py`: where ranks run; what is handed over is tested in `test_machine_copies.py` and `test_newest.py`."""

from __future__ import annotations

import socket

from ignite_hooks.checkpoint.machines import Machines


def test_a_process_alone_is_one_machine() -> None:
    machines = Machines.of_all_ranks()
    assert (machines.hosts, machines.firsts, machines.several) == ((socket.gethostname(),), (0,), False)
    assert machines.is_first
    assert machines.on(0) == ""


def test_a_message_names_hosts_only_where_there_are_several() -> None:
    assert Machines(("a", "a", "b"), (0, 0, 2)).on(2) == " on b"
    assert Machines(("a", "a"), (0, 0)).on(1) == ""
