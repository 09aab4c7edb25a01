"""A stand-in for the server of W&B that starts runs and keeps their rows."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.writers.trackers.servers import serving


@dataclass
class Server:
    url: str = ""
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    """The logged rows by step."""
    begun: threading.Event = field(default_factory=threading.Event)
    down: bool = False


def _answers(variables: dict[str, Any]) -> dict[str, Any]:
    project = {"id": "p", "name": "digits", "entity": {"id": "e", "name": "somebody"}}
    counts = dict.fromkeys(("historyLineCount", "eventsLineCount", "logLineCount"), 0)
    run = {
        "id": "x",
        "name": variables.get("name"),
        "config": "{}",
        "summaryMetrics": "{}",
        "project": project,
        **counts,
    }
    return {
        "upsertBucket": {"bucket": run, "inserted": True},
        "viewer": {"id": "v", "username": "somebody", "entity": "somebody", "flags": "{}", "teams": {"edges": []}},
        "serverInfo": {"cliVersionInfo": {}, "latestLocalVersionInfo": None, "features": []},
        "createRunFiles": {"runID": "x", "uploadHeaders": [], "files": []},
        "model": None,
    }


@contextlib.contextmanager
def wandb_server() -> Iterator[Server]:
    """Run the server; while it is ``down`` it answers 500."""
    server = Server()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: Any) -> None: ...

        def do_GET(self) -> None:
            self.say({})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if server.down:
                self.say({}, 500)
            elif self.path.endswith("/graphql"):
                self.say({"data": _answers(json.loads(body).get("variables") or {})})
            else:
                if self.path.endswith("/file_stream"):
                    for line in json.loads(body).get("files", {}).get("wandb-history.jsonl", {}).get("content", []):
                        row = json.loads(line)
                        server.rows[row["_step"]] = row
                    server.begun.set()
                self.say({"exitcode": None, "limits": {}})

        def say(self, what: Any, code: int = 200) -> None:
            answer = json.dumps(what).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    with serving(Handler) as server.url:
        yield server
