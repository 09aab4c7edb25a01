from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from ignite.engine import Engine, Events

from ignite_hooks import ConfigError, Secret, attach_hooks
from ignite_hooks.distributed.collectives import broadcast_object
from tests.faults.tools import until
from tests.ranks import run_ranks

# Appends its arguments to the file that is the first of them.
NOTE = [sys.executable, "-c", "import sys; print(*sys.argv[2:], sep='|', file=open(sys.argv[1], 'a'))"]


def told(folder: Path, how: str = "ends", **settings: Any) -> list[list[str]]:
    """Return the arguments of a command after a run that ends in some way."""
    note = folder / "told.txt"
    command = [*NOTE, str(note), "{status}", "{epoch}", "{iteration}", "{message}"]

    def step(engine: Engine, batch: Any) -> float:
        if how == "fails" and engine.state.iteration == 2:
            raise ValueError("no such\nluck")
        if how == "is interrupted" and engine.state.iteration == 2:
            raise KeyboardInterrupt
        return 0.5

    trainer = Engine(step)
    config = {"hooks": [{"type": "NotifyHook", "command": command, **settings}], "api_key": "k-1234567890"}
    runner = attach_hooks(trainer, config, work_dir=folder / "run-k-1234567890")
    if how == "is stopped":
        trainer.add_event_handler(Events.ITERATION_COMPLETED(once=2), lambda: runner.stop("enough"))
    try:
        trainer.run(range(3))
    except (ValueError, KeyboardInterrupt):
        pass  # the point of it
    return [line.split("|") for line in note.read_text().splitlines()] if note.exists() else []


@pytest.mark.parametrize(
    ("how", "settings", "expected"),
    [
        ("ends", {}, [["ended", "1", "3", "ended; epoch 1, iteration 3"]]),
        ("is stopped", {}, [["stopped", "1", "2", "stopped; epoch 1, iteration 2; enough"]]),
        ("fails", {}, [["failed", "1", "2", "failed; epoch 1, iteration 2; ValueError: no such luck"]]),
        ("is interrupted", {}, [["stopped", "1", "2", "stopped; epoch 1, iteration 2; KeyboardInterrupt"]]),
        ("fails", {"at": ["end"]}, []),
        ("ends", {"at": ["failure"]}, []),
        ("ends", {"at": ["start"]}, [["started", "0", "0", "started"]]),
    ],
    ids=str,
)
def test_every_end_is_notified_once_without_secrets(
    how: str, settings: dict[str, Any], expected: list[list[str]], tmp_path: Path
) -> None:
    found = told(tmp_path, how, **settings)
    words = f"run run-*** on {socket.gethostname()} "
    assert found == [[*line[:3], words + line[3]] for line in expected]


def test_an_argument_is_one_argument_whatever_is_in_it(tmp_path: Path) -> None:
    note, trainer = tmp_path / "told.txt", Engine(lambda *_: None)
    words = ["$(touch x); `touch y` && 'z'", "{unknown}", "{status}{status}"]
    attach_hooks(trainer, [{"type": "NotifyHook", "command": [*NOTE, str(note), *words]}], work_dir=tmp_path / "run")
    trainer.run([0])
    assert note.read_text() == "$(touch x); `touch y` && 'z'|{unknown}|endedended\n"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["no-such-program"], "the command could not be notified: FileNotFoundError"),
        ([sys.executable, "-c", "raise SystemExit('not today')"], "ended with 1: not today"),
        ([sys.executable, "-c", "import time; time.sleep(60)"], "timed out after 0.3 seconds"),
    ],
)
def test_a_failing_command_costs_a_line_not_the_run(
    command: list[str], message: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = Engine(lambda *_: None)
    entry = {"type": "NotifyHook", "command": command, "timeout": 0.3 if "sleep" in command[-1] else 30.0}
    runner = attach_hooks(trainer, [entry], work_dir=tmp_path)
    trainer.run([0])
    assert message in caplog.text
    assert runner.report().failures == {}


@pytest.mark.parametrize(("error", "length"), [("x" * 300_000, 1500), ("a\0b", None)])
def test_an_error_with_any_text_is_sent(error: str, length: int | None, tmp_path: Path) -> None:
    def fail(*_: Any) -> None:
        raise ValueError(error)

    note, trainer = tmp_path / "told.txt", Engine(fail)
    entry = {"type": "NotifyHook", "command": [*NOTE, str(note), "{message}"]}
    attach_hooks(trainer, [entry], work_dir=tmp_path / "run")
    with pytest.raises(ValueError):
        trainer.run([0])
    said = note.read_text().strip()
    assert "ValueError: " in said
    assert length is None or len(said) == length


def test_background_processes_of_a_command_are_not_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trainer, file = Engine(lambda *_: None), tmp_path / "pid"
    command = ["sh", "-c", f"sleep 60 & echo $! > {file}"]
    attach_hooks(trainer, [{"type": "NotifyHook", "command": command, "timeout": 30}], work_dir=tmp_path / "run")
    trainer.run([0])
    os.kill(int(file.read_text()), signal.SIGKILL)  # it is still there
    assert "could not be notified" not in caplog.text


def test_a_command_that_times_out_is_killed_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, file = Engine(lambda *_: None), tmp_path / "pid"
    wait = subprocess.Popen.wait

    def wait_once_it_has_started(self: Any, timeout: float | None = None) -> int:
        until(lambda: file.exists() and file.read_text().endswith("\n"))
        return wait(self, timeout)

    # Its time begins when it has started another, however long that takes.
    monkeypatch.setattr(subprocess.Popen, "wait", wait_once_it_has_started)
    command = ["sh", "-c", f"sleep 60 & echo $! > {file}; wait"]
    attach_hooks(trainer, [{"type": "NotifyHook", "command": command, "timeout": 0.3}], work_dir=tmp_path / "run")
    trainer.run([0])
    until(lambda: file.exists() and file.read_text().endswith("\n"))
    until(lambda: not is_running(int(file.read_text())))


def is_running(pid: int) -> bool:
    # An ended process that nobody has waited for is still listed.
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "State:\tZ" not in status.read_text()


class Inbox(HTTPServer):
    """A server that keeps what is posted to it."""

    def __init__(self) -> None:
        inbox: list[dict[str, Any]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                inbox.append(json.loads(body))
                self.send_response(404 if "missing" in self.path else 200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        self.inbox = inbox


@pytest.fixture
def server() -> Iterator[Inbox]:
    with Inbox() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("secret", [str, Secret])
def test_a_webhook_is_posted_what_there_is_to_say(secret: Any, server: Inbox, tmp_path: Path) -> None:
    trainer = Engine(lambda *_: None)
    address = secret(f"http://127.0.0.1:{server.server_port}/hook")
    attach_hooks(trainer, [{"type": "NotifyHook", "webhook": address}], work_dir=tmp_path / "run")
    trainer.run(range(2))
    (post,) = server.inbox
    assert post["text"] == post["content"] == post["message"]
    assert post["text"].endswith("ended; epoch 1, iteration 2")
    assert (post["status"], post["epoch"], post["iteration"]) == ("ended", 1, 2)


def test_a_refusing_webhook_is_reported_without_its_address(
    server: Inbox, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = Engine(lambda *_: None)
    address = f"http://127.0.0.1:{server.server_port}/missing/T0SECRET"
    attach_hooks(trainer, [{"type": "NotifyHook", "webhook": address}], work_dir=tmp_path)
    trainer.run([0])
    assert "127.0.0.1 could not be notified: HTTPError: HTTP Error 404" in caplog.text
    assert "T0SECRET" not in caplog.text


# What Apprise 2.2 imports.
@pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")
def test_services_of_apprise_are_told_without_their_addresses(
    server: Inbox, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("apprise")
    caplog.set_level(logging.INFO)
    host = f"json://127.0.0.1:{server.server_port}"
    services = [f"{host}/hook/T0SECRET", Secret(f"{host}/missing/T1SECRET"), "nosuch://T2SECRET-123"]
    trainer = Engine(lambda *_: None)
    attach_hooks(trainer, [{"type": "NotifyHook", "apprise": services}], work_dir=tmp_path / "run")
    trainer.run(range(2))
    posts = {(post["title"].partition(" on ")[0], post["message"]) for post in server.inbox}
    assert posts == {("run run", "epoch 1, iteration 2")}
    assert "json could not be notified: RuntimeError: the service has refused it" in caplog.text
    assert "nosuch could not be notified: ValueError: Apprise knows no such address" in caplog.text
    assert "SECRET" not in caplog.text


@contextlib.contextmanager
def joined_with() -> Iterator[list[Any]]:
    """Return the seconds for which a run waits for its threads."""
    waited: list[Any] = []
    join = threading.Thread.join

    def joined(thread: threading.Thread, timeout: float | None = None) -> None:
        if thread.name.startswith("NotifyHook"):
            waited.append(timeout)
        join(thread, timeout)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "join", joined)
        yield waited


@pytest.mark.parametrize("behaviour", ["silent", "dripping"])
def test_a_dead_webhook_never_holds_the_run(behaviour: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One accepts and sends nothing; one sends a byte now and then, so that no read ever times out."""
    over = threading.Event()
    # One that drips is to be left alone for its slowness, and not for a pause of this busy machine between two bytes.
    timeout = 0.5 if behaviour == "silent" else 2
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(60)

        def drip() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
                while behaviour == "dripping" and not over.wait(0.05):
                    connection.sendall(b"x")
                over.wait(60)

        server = threading.Thread(target=drip)
        server.start()
        trainer = Engine(lambda *_: None)
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/T0SECRET"
        attach_hooks(trainer, [{"type": "NotifyHook", "webhook": address, "timeout": timeout}], work_dir=tmp_path)
        with joined_with() as waited:
            trainer.run([0])
        over.set()
        server.join()
    for thread in threading.enumerate():
        if thread.name.startswith("NotifyHook"):
            thread.join(60)
    assert len(waited) == 1
    assert 0 <= waited[0] <= timeout + 0.5, "the run waits no longer"
    words = {"silent": "could not be notified: TimeoutError", "dripping": "does not answer within 2 s"}
    assert words[behaviour] in caplog.text
    assert "T0SECRET" not in caplog.text


def test_all_notifications_together_have_one_timeout(tmp_path: Path) -> None:
    """What began at the start of a run, and a webhook and a command at its end."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        over = threading.Event()

        def drip(connection: socket.socket) -> None:
            with connection, contextlib.suppress(OSError):
                connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
                while not over.wait(0.05):
                    connection.sendall(b"x")

        def serve() -> None:
            for _ in range(2):
                threading.Thread(target=drip, args=(listening.accept()[0],)).start()

        server = threading.Thread(target=serve)
        server.start()
        trainer = Engine(lambda *_: None)
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        entry = {"type": "NotifyHook", "webhook": address, "timeout": 1, "at": ["start", "end"]}
        attach_hooks(trainer, [entry], work_dir=tmp_path)
        try:
            with joined_with() as waited:
                trainer.run([0])
        finally:
            over.set()
            server.join()
    first, second = waited
    assert first > 1
    assert second < 0.5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "set a command, a webhook, or addresses for apprise"),
        ({"command": "notify-send hello"}, "command"),
        ({"webhook": "file:///etc/passwd"}, "an address that begins with https:// or http:// is needed"),
        ({"apprise": ["mailto"]}, r"apprise: addresses such as mailto://... or tgram://TOKEN/CHAT are needed"),
        ({"command": ["true"], "at": ["never"]}, "at"),
        ({"command": []}, "command"),
        ({"command": ["sh", "-c", "echo '{message}'"]}, r"a shell would run the text that replaces {message}: pass"),
    ],
    ids=str,
)
def test_what_cannot_work_is_refused(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        attach_hooks(Engine(lambda *_: None), [{"type": "NotifyHook", **settings}], work_dir=tmp_path)


def in_each_process(folder: str) -> int:
    told(Path(broadcast_object(folder)))
    return len(Path(folder, "told.txt").read_text().splitlines()) if Path(folder, "told.txt").exists() else 0


@pytest.mark.slow
def test_only_the_first_rank_notifies(tmp_path: Path) -> None:
    run_ranks(in_each_process, str(tmp_path))
    assert len((tmp_path / "told.txt").read_text().splitlines()) == 1
