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
    """The logged rows of the last run by step."""
    runs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """All rows that came, by the id of the run, in order."""
    begun: threading.Event = field(default_factory=threading.Event)
    down: bool = False
    stopped: bool = False
    """Whether somebody has stopped the run on its page."""
    sweep: str = ""
    """The configuration of a sweep, as YAML."""
    tries: list[dict[str, Any]] = field(default_factory=list)
    """What its agent is to try, a run each."""

    def next_command(self, running: object) -> list[dict[str, Any]]:
        """Return what the agent of the sweep is to do: the next run once the last one has ended."""
        if running:
            return []
        if not self.tries:
            return [{"type": "exit"}]
        args = {name: {"value": value} for name, value in self.tries.pop(0).items()}
        return [{"type": "run", "run_id": f"try{len(self.tries)}", "program": "train.py", "args": args}]


def _bucket(server: Server, name: str) -> dict[str, Any] | None:
    """Return what is there of a run, for whoever goes on with it."""
    rows = server.runs.get(name)
    if rows is None:
        return None
    tail = json.dumps([json.dumps(rows[-1])] if rows else [])
    return {
        "id": name,
        "name": name,
        "summaryMetrics": json.dumps(rows[-1] if rows else {}),
        "displayName": name,
        "logLineCount": 0,
        "historyLineCount": len(rows),
        "eventsLineCount": 0,
        "historyTail": tail,
        "eventsTail": "[]",
        "config": "{}",
        "tags": [],
        "wandbConfig": json.dumps({"t": 1}),
    }


def _answers(server: Server, query: str, variables: dict[str, Any]) -> dict[str, Any]:
    if "RunResumeStatus" in query:
        return {"model": {"id": "m", "name": "m", "bucket": _bucket(server, str(variables.get("name")))}}
    if "SweepWithRuns" in query:
        return {"project": {"sweep": {"id": "s", "name": "s", "config": server.sweep, "runs": {"edges": []}}}}
    if "CreateAgent" in query:
        return {"createAgent": {"agent": {"id": "a"}}}
    if "Heartbeat" in query:
        commands = server.next_command(json.loads(variables["runState"]))
        return {"agentHeartbeat": {"agent": {"id": "a"}, "commands": json.dumps(commands)}}
    if "upsertBucket" in query and variables.get("name"):
        server.runs.setdefault(str(variables["name"]), [])
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
                asked = json.loads(body)
                self.say({"data": _answers(server, asked.get("query") or "", asked.get("variables") or {})})
            else:
                if self.path.endswith("/file_stream"):
                    for line in json.loads(body).get("files", {}).get("wandb-history.jsonl", {}).get("content", []):
                        row = json.loads(line)
                        server.rows[row["_step"]] = row
                        server.runs.setdefault(self.path.split("/")[-2], []).append(row)
                    server.begun.set()
                self.say({"exitcode": None, "limits": {}, "stopped": server.stopped})

        def say(self, what: Any, code: int = 200) -> None:
            answer = json.dumps(what).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    with serving(Handler) as server.url:
        yield server
