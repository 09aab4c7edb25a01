"""Servers on loopback: some with faults, and one that works."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def _answer_500(connection: socket.socket, over: threading.Event) -> None:
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


def _never_answer(connection: socket.socket, over: threading.Event) -> None:
    over.wait()


def _reset(connection: socket.socket, over: threading.Event) -> None:
    connection.recv(1)
    # Linger for no time: what is unsent is dropped, and the other side gets RST.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


def _trickle(connection: socket.socket, over: threading.Event) -> None:
    connection.recv(65536)
    for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b" " * 1000:
        connection.sendall(bytes([byte]))
        if over.wait(0.5):
            return


FAULTS: dict[str, Callable[[socket.socket, threading.Event], None]] = {
    "never answers": _never_answer,
    "answers 500": _answer_500,
    "resets": _reset,
    "is slow": _trickle,
}


@contextlib.contextmanager
def faulty(how: str) -> Iterator[str]:
    """Run a server with a fault, and yield its address."""
    over = threading.Event()

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            FAULTS[how](connection, over)

    def accept() -> None:
        while not over.is_set():
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=serve, args=(connection,), daemon=True))
            threads[-1].start()

    threads: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            over.set()
            listening.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for thread in threads:
                thread.join()


def unreachable() -> str:
    """Return the address of a port without a server."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return f"http://127.0.0.1:{listening.getsockname()[1]}"


class Quiet(ThreadingHTTPServer):
    """Says nothing of clients that are killed while they talk."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextlib.contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Run a server, and yield its address."""
    server = Quiet(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
