"""`connections.py`: only what leads to the process that has left is closed."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from ignite_hooks.distributed.connections import close_connections

CHILD = """
import socket, sys
connections = [socket.create_connection(("127.0.0.1", int(port))) for port in sys.argv[1:]]
print(connections[0].recv(1), flush=True)
print(connections[1].recv(1), flush=True)
"""


@pytest.fixture
def servers() -> Iterator[list[socket.socket]]:
    found = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    yield found
    for server in found:
        server.close()


def test_connections_to_one_process_are_closed_but_for_some_ports(servers: list[socket.socket]) -> None:
    closed, kept = (server.getsockname()[1] for server in servers)
    command = [sys.executable, "-c", CHILD, str(closed), str(kept)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        here = [server.accept()[0] for server in servers]
        assert close_connections(child.pid, besides=[kept]) == 1
        assert child.stdout.readline() == "b''\n"
        here[1].sendall(b"x")
        assert child.stdout.readline() == "b'x'\n"
    for connection in here:
        connection.close()


def test_a_process_that_has_ended_has_no_connections() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    assert close_connections(child.pid) == 0
