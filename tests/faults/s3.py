"""A real S3 server on loopback, behind a proxy that can cut connections, answer 500, or say nothing."""

from __future__ import annotations

import contextlib
import random
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import warm

SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


class BadNetwork:
    """A proxy in front of a server. Set `mode` to ``well``, ``cut``, ``error``, ``silent`` or ``mixed``.

    Args:
        port: The port of the server.
        dice: Decides what happens to which connection where the mode is ``mixed``.
    """

    def __init__(self, port: int, dice: random.Random) -> None:
        self.mode = "well"
        self.most = 20_000
        """The bytes after which a connection is cut at the latest."""
        self._port, self._dice = port, dice
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._ended = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """End all connections."""
        self._ended.set()
        self._listener.close()

    def _accept(self) -> None:
        while not self._ended.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        mode = self.mode
        if mode == "mixed":
            mode = self._dice.choice(["well", "well", "well", "cut", "error"])
        with contextlib.suppress(OSError), client:
            if mode == "silent":
                self._ended.wait()
            elif mode == "error":
                client.recv(65536)
                client.sendall(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            else:
                limit = self._dice.randrange(1, self.most) if mode == "cut" else None
                self._pass_on(client, limit)

    def _pass_on(self, client: socket.socket, limit: int | None) -> None:
        """Copy bytes both ways, up to a limit."""
        mode = self.mode
        with socket.create_connection(("127.0.0.1", self._port)) as server:
            ends = {client: server, server: client}
            while not self._ended.is_set() and (self.mode == mode or mode == "mixed"):
                for ready in select.select(list(ends), [], [], 0.1)[0]:
                    part = ready.recv(65536)
                    if not part:
                        return
                    if limit is not None:
                        limit -= len(part)
                        if limit < 0:
                            return
                    ends[ready].sendall(part)


@contextlib.contextmanager
def s3_server(dice: random.Random) -> Iterator[tuple[BadNetwork, dict[str, str]]]:
    """Yield a proxy in front of an S3 server with a bucket called ``bucket``, and the environment of a client."""
    pytest.importorskip("moto", reason="the S3 server of the tests: pip install -e '.[dev]'")
    pytest.importorskip("s3fs")
    with tempfile.TemporaryFile() as output:
        command = [sys.executable, "-W", "ignore", "-c", SERVER]
        server = warm.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, also=("moto.server",)
        )
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline())
            request = urllib.request.Request(f"http://127.0.0.1:{port}/bucket", method="PUT")
            until = time.monotonic() + 60
            while True:
                try:
                    urllib.request.urlopen(request, timeout=30).close()
                    break
                except urllib.error.URLError:
                    assert time.monotonic() < until
            network = BadNetwork(port, dice)
            environment = {
                "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
                "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI-K7MDENG-bPxRfiCY",
                "AWS_DEFAULT_REGION": "us-east-1",
                "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{network.port}",
                "AWS_MAX_ATTEMPTS": "1",
            }
            try:
                yield network, environment
            finally:
                network.close()
        finally:
            server.kill()
            server.communicate()


SECRETS = ("wJalrXUtnFEMI",)


def without_secrets(*folders: Path) -> bool:
    """Return whether no file below these folders holds a credential."""
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return not any(secret.encode() in path.read_bytes() for path in files for secret in SECRETS)
