"""The connections between the processes of a run: closed where one has left, so that nobody waits for it."""

from __future__ import annotations

import os
import socket
from collections.abc import Collection
from typing import Any


def close_connections(pid: int, besides: Collection[int] = ()) -> int:
    """Close the TCP connections of this process to another one of this machine; return how many there were.

    A collective over gloo that waits for the other process then fails at once, as if that process had ended.

    Args:
        pid: The number of the other process.
        besides: Ports of connections that stay.
    """
    import psutil

    try:
        theirs = {(_address(of.laddr), _address(of.raddr)) for of in _established(psutil.Process(pid))}
        mine = [of for of in _established(psutil.Process()) if of.fd >= 0]
    except psutil.Error:
        return 0
    closed = 0
    for connection in mine:
        ends = _address(connection.raddr), _address(connection.laddr)
        if ends in theirs and not {ends[0][1], ends[1][1]} & set(besides):
            closed += _shut_down(connection.fd, ends[0])
    return closed


def _shut_down(descriptor: int, there: tuple[str, int]) -> bool:
    """Shut a connection down, if the descriptor is still that of the connection to this address."""
    try:
        with socket.socket(fileno=os.dup(descriptor)) as connection:
            if _address(connection.getpeername()) != there:
                return False
            connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return False
    return True


def _established(process: Any) -> list[Any]:
    return [of for of in process.net_connections("tcp") if of.status == "ESTABLISHED" and of.raddr]


def _address(address: Any) -> tuple[str, int]:
    """Return host and port; IPv4 looks the same in a socket of either family."""
    return str(address[0]).removeprefix("::ffff:"), int(address[1])
