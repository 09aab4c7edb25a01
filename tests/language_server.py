"""A language server as an editor talks to it: JSON-RPC over its standard input and output."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any


class LanguageServer:
    """The language server of basedpyright, in a folder.

    Args:
        folder: The workspace; settings are read from its ``pyrightconfig.json``.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._requests = 0
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from basedpyright.langserver import main; main()", "--stdio"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> LanguageServer:
        root = self.folder.as_uri()
        workspace = [{"uri": root, "name": "workspace"}]
        client = {"workspace": {"configuration": True, "workspaceFolders": True}}
        self.ask("initialize", processId=None, rootUri=root, capabilities=client, workspaceFolders=workspace)
        self.tell("initialized")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def completions(self, name: str, code: str) -> dict[str, dict[str, Any]]:
        """Return what the server offers at the end of the code, by label."""
        uri = (self.folder / name).as_uri()
        document = {"uri": uri, "languageId": "python", "version": 1, "text": code}
        self.tell("textDocument/didOpen", textDocument=document)
        lines = code.split("\n")
        position = {"line": len(lines) - 1, "character": len(lines[-1])}
        found = self.ask("textDocument/completion", textDocument={"uri": uri}, position=position)
        return {item["label"]: self.ask("completionItem/resolve", **item) for item in found["items"]}

    def ask(self, method: str, **given: Any) -> Any:
        """Send a request and return its answer; what the server asks meanwhile gets no settings."""
        self._requests += 1
        self._send(id=self._requests, method=method, params=given)
        while True:
            message = self._receive()
            if message.get("id") == self._requests and "method" not in message:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']['message']}")
                return message["result"]
            if "id" in message:
                wanted = message.get("params") or {}
                self._send(id=message["id"], result=[None for _ in wanted.get("items", [])] or None)

    def tell(self, method: str, **given: Any) -> None:
        """Send what has no answer."""
        self._send(method=method, params=given)

    def _send(self, **message: Any) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self._process.stdin is not None
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self._process.stdin.flush()

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        size = 0
        while line := self._process.stdout.readline().strip():
            name, _, value = line.partition(b":")
            size = int(value) if name.lower() == b"content-length" else size
        body = self._process.stdout.read(size)
        if not body:
            raise RuntimeError("the language server has ended")
        message: dict[str, Any] = json.loads(body)
        return message
