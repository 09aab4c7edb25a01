"""``ignite-hooks send`` beside a run that still delivers, which it leaves alone, and beside a server that is away."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.faults.tools import until
from tests.tools import trackers_at
from tests.writers.trackers.clearml_server import clearml_server
from tests.writers.trackers.servers import unreachable
from tests.writers.trackers.wandb_server import wandb_server

for module in ("clearml", "wandb"):
    pytest.importorskip(module)

from tests.hooks.trackers.test_clearml_hook import told  # noqa: E402 - it needs what may be missing

pytestmark = [pytest.mark.slow, pytest.mark.faults]
RUN = """
import sys
import torch
from ignite_hooks.registry import WRITERS

writer = WRITERS.get(sys.argv[1])(work_dir=sys.argv[2], mode=sys.argv[3], deadline=240.0)
for step in range(1, 11):
    writer.write_scalars({"loss": step / 2}, step)
    if step == 5:
        sys.stdin.readline()
writer.close()
"""
SOME = {step: step / 2 for step in range(1, 6)}
WHOLE = {step: step / 2 for step in range(1, 11)}
WAITS = {
    ("ClearMLWriter", "online"): "clearml.spool",
    ("ClearMLWriter", "offline"): "clearml.spool",
    ("WandbWriter", "online"): "wandb/run-*/*.wandb.unsent",
    ("WandbWriter", "offline"): "wandb/offline-run-*/*.wandb",
}
"""The file that is there while a run delivers, and waits to be sent if it is killed."""


@dataclass
class Place:
    """A stand-in for a server: its address, and what it has."""

    variables: dict[str, str]
    losses: Callable[[], dict[int, float]]
    runs: Callable[[], int]
    repeats: Callable[[], list[Any]]


@contextlib.contextmanager
def served(writer: str) -> Iterator[Place]:
    if writer == "ClearMLWriter":
        pytest.importorskip("clearml")
        with clearml_server() as server:
            keys = {"CLEARML_API_ACCESS_KEY": "a", "CLEARML_API_SECRET_KEY": "b"}
            hosts = {f"CLEARML_{which}_HOST": server.url for which in ("API", "FILES", "WEB")}
            yield Place(
                {**hosts, **keys},
                lambda: dict(told(server).get("loss", [])),  # type: ignore[arg-type]
                lambda: len(server.tasks),
                lambda: server.repeats,
            )
    else:
        pytest.importorskip("wandb")
        with wandb_server() as server:
            yield Place(
                {"WANDB_BASE_URL": server.url, "WANDB_API_KEY": "0" * 40},
                lambda: {row["_step"]: row["loss"] for rows in server.runs.values() for row in rows},
                lambda: len(server.runs),
                lambda: [
                    step
                    for rows in server.runs.values()
                    for step in {row["_step"] for row in rows}
                    if [row["_step"] for row in rows].count(step) > 1
                ],
            )


@pytest.mark.parametrize("ends", ["by itself", "killed"])
@pytest.mark.parametrize(("writer", "mode"), WAITS)
def test_a_run_that_still_delivers_is_left_alone(writer: str, mode: str, ends: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with trackers_at(tmp_path), served(writer) as place:
        environment = {**os.environ, **place.variables, "WANDB_MODE": mode}

        def send(*codes: int) -> str:
            command = [sys.executable, "-m", "ignite_hooks", "send", str(folder)]
            done = warm.run(command, also=warm.TRACKERS, capture_output=True, text=True, env=environment, timeout=250)
            assert done.returncode in codes, done.stdout + done.stderr
            return done.stdout

        command = [sys.executable, "-W", "ignore", "-c", RUN, writer, str(folder), mode]
        pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
        with warm.Popen(command, also=warm.TRACKERS, env=environment, text=True, **pipes) as process:
            until(lambda: [*folder.glob(WAITS[writer, mode])])
            before = place.runs()
            owner = f"a run (process {process.pid} on {socket.gethostname()})"
            assert f"{owner} still delivers it: nothing to do" in send(3)
            assert place.runs() == before
            if ends == "killed":
                process.kill()
            else:
                _, said = process.communicate("\n", timeout=250)
                assert process.returncode == 0, said
        if ends == "killed" and writer == "WandbWriter":
            # Its own process keeps the first rows in memory, and may have written nothing: it is not kept out.
            send(0, 1)
            return
        if ends == "killed" or mode == "offline":
            assert " sent to " in send(0)
        assert place.losses() == (SOME if ends == "killed" else WHOLE)
        assert place.runs() == 1
        assert place.repeats() == []
        assert [*folder.glob(".*.lock")] == []
        assert "nothing waits to be sent" in send(0)


@pytest.mark.parametrize(
    ("file", "variables", "reason"),
    [
        ("clearml-offline-1.zip", {"CLEARML_API_ACCESS_KEY": "a", "CLEARML_API_SECRET_KEY": "b"}, "does not answer"),
        ("clearml-offline-1.zip", {}, "no credentials are configured (clearml-init)"),
        ("wandb/offline-run-1-a/run-a.wandb", {"WANDB_API_KEY": "0" * 40}, "does not answer"),
        ("wandb/offline-run-1-a/run-a.wandb", {}, "no key is configured (wandb login)"),
    ],
)
def test_what_a_client_would_ask_for_in_vain_is_one_line(
    file: str, variables: dict[str, str], reason: str, tmp_path: Path
) -> None:
    """The clients themselves ask for many minutes, and say nothing meanwhile."""
    pytest.importorskip("clearml")
    pytest.importorskip("wandb")
    waits = tmp_path / "run" / file
    waits.parent.mkdir(parents=True)
    waits.write_bytes(bytes(100))
    url = unreachable()
    with trackers_at(tmp_path):
        environment = {**os.environ, "HOME": str(tmp_path), "CLEARML_API_HOST": url, "WANDB_BASE_URL": url, **variables}
        command = [sys.executable, "-m", "ignite_hooks", "send", str(tmp_path / "run")]
        done = warm.run(command, also=warm.TRACKERS, capture_output=True, text=True, env=environment, timeout=100)
    assert (done.returncode, done.stdout) == (1, "")
    server = f"{url} " if reason == "does not answer" else ""
    assert f"{waits}: Unreachable: {server}{reason}\n" in done.stderr
    assert waits.exists()
