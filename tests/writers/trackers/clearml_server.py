"""A stand-in for the server of ClearML that keeps what the real SDK sends over HTTP."""

from __future__ import annotations

import base64
import contextlib
import copy
import json
import re
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.writers.trackers.servers import serving


def _token() -> str:
    """Return a well-formed token; its signature is not checked."""

    def part(content: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")

    claims = {"exp": time.time() + 86400, "iat": time.time(), "api_version": "2.30", "server_version": "2.0", "env": ""}
    return f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{part(claims)}.{part({'signed': 'by nobody'})}"


RUNNING = ("created", "queued", "in_progress")
STATES = {
    "started": ((*RUNNING, "stopped", "failed", "completed"), "in_progress"),
    "stopped": ((*RUNNING, "stopped"), "stopped"),
    "completed": (("in_progress", "stopped", "completed"), "completed"),
    "failed": ((*RUNNING, "stopped", "failed"), "failed"),
}
"""For each call the states before it, and the one after it."""


@dataclass
class ClearMLServer:
    """The requests, in order."""

    url: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    uploads: dict[str, bytes] = field(default_factory=dict)
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    models: dict[str, dict[str, Any]] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    received: bytes = b""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, call: str, asked: dict[str, Any]) -> dict[str, Any]:
        """Return the data of an answer."""
        kind, _, what = call.partition(".")
        self.calls.append((call, asked))
        if call == "auth.login":
            return {"token": _token()}
        if kind in ("tasks", "models"):
            return self._thing(self.tasks if kind == "tasks" else self.models, what, asked)
        if what in ("create", "get_or_create"):
            return {"id": uuid.uuid4().hex}
        if call == "projects.get_all":
            return {"projects": []}
        if call == "projects.get_by_id":
            return {"project": {"id": asked["project"], "name": "of the stand-in"}}
        return {"updated": 1}

    def clone(self, task: str, name: str | None = None) -> str:
        """Copy script, parameters, configuration and destination of a task, but no models, artifacts and events."""
        kept = ("script", "hyperparams", "configuration", "output", "project", "type", "tags", "container")
        new = {key: copy.deepcopy(value) for key, value in self.tasks[task].items() if key in kept}
        new |= {"id": uuid.uuid4().hex, "status": "created", "parent": task, "name": name or "Clone"}
        self.tasks[new["id"]] = new
        return str(new["id"])

    def _thing(self, things: dict[str, dict[str, Any]], what: str, asked: dict[str, Any]) -> dict[str, Any]:
        name = "task" if things is self.tasks else "model"
        if what == "create":
            new = {"id": uuid.uuid4().hex, "status": "created", "project": asked.get("project"), **asked}
            # A default server fills in no destination for models.
            new.setdefault("output", {})
            things[new["id"]] = new
            return {"id": new["id"], "created": True}
        thing = things.get(asked.get(name) or "", {})
        if what in ("get_all", "get_all_ex"):
            wanted = asked.get("id") or []
            return {f"{name}s": [thing for id_, thing in things.items() if not wanted or id_ in wanted]}
        if what == "get_by_id":
            return {name: thing}
        if what == "clone":
            return {"id": self.clone(asked["task"], asked.get("new_task_name"))}
        if what in STATES:
            before, after = STATES[what]
            if asked.get("force") or thing.get("status") in before:
                thing["status"] = after
                thing.update({key: asked[key] for key in ("status_reason", "status_message") if asked.get(key)})
            else:
                return {"updated": 0}
        elif what in ("update", "edit"):
            thing.update({key: value for key, value in asked.items() if key != name and value is not None})
        elif what == "edit_configuration":
            configuration = thing.setdefault("configuration", {})
            configuration.update({item["name"]: item for item in asked["configuration"]})
        elif what == "add_or_update_model":
            thing.setdefault("output_models", []).append(asked)
        return {"updated": 1, "fields": {}, "started": 1}


@contextlib.contextmanager
def clearml_server() -> Iterator[ClearMLServer]:
    """Run a server on a free port."""
    state = ClearMLServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            call = re.search(r"/?(?:v[\d.]+/)?([a-z_]+\.[a-z_]+)$", self.path.partition("?")[0])
            with state.lock:
                state.received += self.path.encode() + str(self.headers).encode() + body
                if call is None:
                    if self.command in ("POST", "PUT") and body:
                        state.uploads[self.path] = body
                    self.say(b"{}")
                    return
                if call[1] == "events.add_batch":
                    state.events += [json.loads(line) for line in body.splitlines() if line.strip()]
                    data: dict[str, Any] = {"added": 1, "errors": 0}
                else:
                    data = state.answer(call[1], json.loads(body or b"{}"))
            meta = {"id": "0", "trx": "0", "result_code": 200, "result_subcode": 0, "result_msg": "OK"}
            meta |= {"endpoint": {"name": call[1], "requested_version": "2.30", "actual_version": "2.30"}}
            self.say(json.dumps({"meta": meta, "data": data}).encode())

        def say(self, content: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            # Who has asked may be gone.
            with contextlib.suppress(ConnectionError):
                self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_HEAD = handle_any

    with serving(Handler) as url:
        state.url = url
        yield state
