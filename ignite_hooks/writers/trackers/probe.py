"""Asks a server for an answer before a tracker uses it."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import time
import urllib.parse

PATIENCE = 2.0
"""Seconds within which a server has to answer."""


def answers(url: str, patience: float = PATIENCE) -> bool:
    """Return whether an HTTP server answers in time; some accept connections and never answer."""
    until = time.monotonic() + patience
    try:
        parts = urllib.parse.urlsplit(url if "//" in url else f"http://{url}")
        secure = parts.scheme == "https"
        address = parts.hostname or "", parts.port or (443 if secure else 80)
        with contextlib.ExitStack() as stack:
            connection = stack.enter_context(socket.create_connection(address, timeout=patience))
            if secure:
                connection.settimeout(max(0.01, until - time.monotonic()))
                context = ssl.create_default_context()
                connection = stack.enter_context(context.wrap_socket(connection, server_hostname=address[0]))
            request = f"GET {parts.path or '/'} HTTP/1.0\r\nHost: {parts.netloc}\r\n\r\n"
            connection.sendall(request.encode("ascii", "replace"))
            said = b""
            while b"\n" not in said:
                # The limit is for the whole answer, because a slow server may send single bytes.
                connection.settimeout(max(0.01, until - time.monotonic()))
                heard = connection.recv(100)
                if not heard or time.monotonic() > until:
                    return False
                said += heard
            return re.match(rb"HTTP/\S+ [1-4]\d\d\b", said) is not None
    except (OSError, ValueError):
        return False
