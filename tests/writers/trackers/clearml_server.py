"""A stand-in for the server of ClearML, to which the real SDK and the real agent talk over HTTP.

It answers as a real one does, by `clearml_state.py`. It checks neither credentials nor rights nor sizes, finds tasks by
a few fields (`clearml_queries.py`) and all else by identifiers, and keeps everything in memory.
"""

from __future__ import annotations

import contextlib
import json
import re
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.writers.trackers.clearml_state import ClearMLServer, Rejected
from tests.writers.trackers.servers import serving

__all__ = ["ClearMLServer", "clearml_server"]
# A boundary of a form ends its headers by an empty line, and its content before the closing boundary.
FORM = re.compile(rb'name="([^"]*)"[^\r\n]*(?:\r\n[^\r\n]+)*\r\n\r\n(.*?)\r\n--', re.DOTALL)


@contextlib.contextmanager
def clearml_server() -> Iterator[ClearMLServer]:
    """Run a server on a free port."""
    state = ClearMLServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def handle_any(self) -> None:
            body = self.body()
            path = self.path.partition("?")[0]
            call = re.match(r"/+(?:v[\d.]+/)?([a-z_]+\.[a-z_]+)$", path)
            with state.lock:
                fails = state.fails()
                if not fails:
                    state.received += self.path.encode() + str(self.headers).encode() + body
            if fails:
                self.fail()
                return
            if call is None:
                self.handle_file(path, body)
                return
            code, message, data = 200, "OK", dict[str, Any]()
            with state.lock:
                try:
                    if call[1] == "events.add_batch":
                        state.take_events(body)
                        data = {"added": 1, "errors": 0}
                    else:
                        data = state.answer(call[1], json.loads(body or b"{}"))
                except Rejected as error:
                    code, message = 400, str(error)
            meta = {"id": "0", "trx": "0", "result_code": code, "result_subcode": 0 if code == 200 else 110}
            meta |= {"result_msg": message}
            meta |= {"endpoint": {"name": call[1], "requested_version": "2.30", "actual_version": "2.30"}}
            self.say(json.dumps({"meta": meta, "data": data}, default=str).encode(), code)

        def fail(self) -> None:
            self.close_connection = True
            if state.failure == "hangs":
                state.recovered.wait()
            elif state.failure == "answers 500":
                self.say(b"{}", 500)

        def handle_file(self, path: str, body: bytes) -> None:
            """Keep a file that is sent, as the file storage does, and return one that is asked for."""
            path = urllib.parse.unquote(path)
            with state.lock:
                if self.command in ("POST", "PUT") and body:
                    files = FORM.findall(body) if "multipart" in (self.headers.get("Content-Type") or "") else []
                    for name, content in files:
                        # As it is: the SDK quotes a name once for the storage, and once more in the address.
                        state.uploads[f"/{name.decode().lstrip('/')}"] = content
                    if not files:
                        state.uploads[path] = body
                kept = state.uploads.get(path)
                if self.command == "DELETE":
                    state.uploads.pop(path, None)
            known = path in ("", "/", "/debug.ping") or self.command in ("POST", "PUT")
            self.say(b"{}" if kept is None or self.command in ("POST", "PUT") else kept, 200 if known or kept else 404)

        def body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)

        def say(self, content: bytes, code: int = 200) -> None:
            # Who has asked may be gone.
            with contextlib.suppress(ConnectionError):
                self.send_response(code)
                self.send_header("Content-Type", "application/json" if code != 200 else "application/octet-stream")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = handle_any

    with serving(Handler) as url:
        state.url = url
        yield state
        state.recover()
