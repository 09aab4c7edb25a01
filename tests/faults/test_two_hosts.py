"""Two network namespaces stand for two hosts: `examples/cluster` trains on both until one is cut off."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from ignite_hooks.store import FolderStore

pytestmark = [pytest.mark.faults, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
EPOCHS = 12
CUT_AFTER = 3


def ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


class Host:
    """A namespace with an interface called ``wire``, and what runs in it."""

    def __init__(self, number: int) -> None:
        self.name = f"ignite-hooks-{number}-{secrets.token_hex(3)}"
        self.address = f"10.77.0.{number}"

    def torchrun(self, folder: Path, output: int) -> subprocess.Popen[str]:
        """Start the training by the recipe; the ports are those of this namespace alone."""
        recipe = ("examples/cluster/torchrun.sh", "--epochs", str(EPOCHS), "--timeout", "4", "--work-dir", str(folder))
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        given = {"HEAD": "10.77.0.1", "INTERFACE": "wire", "LAST_CALL": "2", "PATH": path, "PYTHONPATH": str(ROOT)}
        return subprocess.Popen(
            ["ip", "netns", "exec", self.name, *recipe, "--copies", "per_machine"],
            cwd=ROOT,
            env={**os.environ, **given},
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def clear(self) -> None:
        """End all that runs in it, and the namespace with its end of the wire."""
        for process in ip("netns", "pids", self.name).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(process), signal.SIGKILL)
        ip("netns", "del", self.name)


@pytest.fixture
def hosts() -> Iterator[list[Host]]:
    """Yield two hosts on one wire, and remove them afterwards."""
    if os.geteuid() != 0:
        pytest.skip("only root can make network namespaces")
    with contextlib.ExitStack() as stack:
        made = [Host(1), Host(2)]
        try:
            for host in made:
                ip("netns", "add", host.name)
                stack.callback(host.clear)
            first, second = (host.name for host in made)
            ip("link", "add", "wire", "netns", first, "type", "veth", "peer", "name", "wire", "netns", second)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no network namespaces here: {getattr(error, 'stderr', None) or error}")
        for host in made:
            ip("-n", host.name, "addr", "add", f"{host.address}/24", "dev", "wire")
            ip("-n", host.name, "link", "set", "lo", "up")
            ip("-n", host.name, "link", "set", "wire", "up")
        yield made


def test_a_host_continues_alone_if_the_other_is_cut_off(hosts: list[Host], tmp_path: Path) -> None:
    first, second = hosts
    told: list[str] = []
    # A folder of its own for each: what the second host wrote would be seen.
    with (tmp_path / "second.txt").open("wb") as output:
        cut_off = second.torchrun(tmp_path / "second", output.fileno())
    running = first.torchrun(tmp_path / "first", subprocess.PIPE)
    with cut_off, running:
        try:
            assert running.stdout is not None
            for line in running.stdout:
                told.append(line.rstrip("\n"))
                if told[-1] == f"epoch {CUT_AFTER} on 2":
                    ip("-n", second.name, "link", "set", "wire", "down")
            code = running.wait()
        finally:
            running.kill()
            cut_off.kill()
    text = "\n".join(told)
    assert code == 0, f"{text}\n--- the other host\n{(tmp_path / 'second.txt').read_text()}"
    together = [int(epoch) for epoch in re.findall(r"^epoch (\d+) on 2$", text, re.MULTILINE)]
    alone = [int(epoch) for epoch in re.findall(r"^epoch (\d+) on 1$", text, re.MULTILINE)]
    (resumed,) = re.findall(r"resumed from .*: epoch (\d+), iteration (\d+)", text)
    assert together == list(range(1, len(together) + 1))
    assert int(resumed[0]) in (len(together) - 1, len(together)), "a checkpoint may be on its way when the wire is cut"
    assert int(resumed[1]) == 25 * int(resumed[0])
    assert alone == list(range(int(resumed[0]) + 1, EPOCHS + 1))
    # Copies of what both had saved together are on the host that was cut off.
    with FolderStore(tmp_path / "second") as store:
        kept = [entry for entry in store.entries() if store.verify(entry) is None]
    assert abs(max(entry.epoch for entry in kept) - int(resumed[0])) <= 1, "each writes its own"
    with FolderStore(tmp_path / "first") as store:
        listed = {entry.name for entry in store.entries()}
        assert {store.verify(entry) for entry in store.entries()} == {None}
    assert listed == {path.name for path in (tmp_path / "first").glob("*.pth")}
    assert {f"epoch_{EPOCHS}.pth", "last.pth"} < listed
    last = torch.load(tmp_path / "first" / "last.pth", weights_only=True)
    done = {"iteration": 25 * EPOCHS, "epoch": EPOCHS, "epoch_length": 25, "terminated": False}
    assert last["trainer"] | {"user": {}} == {**done, "user": {}}
    assert len(re.findall("^best accuracy", text, re.MULTILINE)) == 1
