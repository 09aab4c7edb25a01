"""``make machines``: runs on two and three machines that share no disk, which die, lose their cables and come back.

Writes docs/machines.md. It fails where it cannot run: as root, with ``ip netns``.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.machines.job import BATCH, EPOCHS, SAMPLES, train
from tests.machines.net import SWITCH, Machine, enter_network, machines

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/machines.md"
PATIENCE = 120.0
PER_MACHINE = {"copies": "per_machine"}
S3 = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="10.77.0.100", port=9000, verbose=False)
server.start()
print("up", flush=True)
sys.stdin.read()
"""


@dataclass
class Life:
    """One start of a run on some machines."""

    on: list[Machine]
    pids: list[int]
    printed: list[Path]
    codes: dict[int, int] = field(default_factory=dict)

    def text(self, rank: int = 0) -> str:
        return self.printed[rank].read_text(errors="replace")

    def done(self) -> int:
        """Return the newest iteration that any rank has finished."""
        return max((number for rank in range(len(self.on)) for number in numbers("DONE", self.text(rank))), default=0)

    def poll(self) -> bool:
        """Return whether all ranks have ended."""
        for pid in self.pids:
            if pid not in self.codes:
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    self.codes[pid] = os.waitstatus_to_exitcode(status)
        return len(self.codes) == len(self.pids)

    def until(self, condition: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
        """Wait; what does not come is a failure that shows what all ranks have printed."""
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                self.fail(f"{what} did not come in {seconds:.0f} s")
            time.sleep(0.02)

    def wait(self, seconds: float = PATIENCE) -> list[int]:
        self.until(self.poll, "the end of all ranks", seconds)
        return [self.codes[pid] for pid in self.pids]

    def kill(self) -> None:
        for pid in self.pids:
            if pid not in self.codes:
                os.kill(pid, signal.SIGKILL)
                self.codes[pid] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def fail(self, why: str) -> None:
        self.kill()
        told = "\n".join(f"--- {m.host}\n{self.text(rank)[-4000:]}" for rank, m in enumerate(self.on))
        raise AssertionError(f"{why}\n{told}")

    def begins(self) -> int:
        found = numbers("BEGINS", self.text())
        if not found:
            self.fail("the run did not begin")
        return found[-1]


class Bench:
    """Starts lives, and keeps what they leave."""

    def __init__(self, folder: Path, dice: random.Random) -> None:
        self.folder, self.dice, self.starts = folder, dice, 0
        self.results: list[tuple[str, str]] = []

    def start(
        self,
        on: Sequence[Machine],
        *,
        settings: dict[str, Any] | None = None,
        pace: float = 0.03,
        timeout: float = 20.0,
        apart: bool = True,
    ) -> Life:
        """Start a run; the first machine is the one at which the ranks meet."""
        self.starts += 1
        printed = [self.folder / f"printed-{self.starts}-{rank}.txt" for rank in range(len(on))]
        pids = []
        for rank, machine in enumerate(on):
            given: dict[str, Any] = {
                "folder": str(machine.run / "job"),
                "rank": rank,
                "ranks": len(on),
                "master": on[0].address,
                "port": 29500 + self.starts,
                "pace": pace,
                "timeout": timeout,
                "settings": settings or {},
            }
            printed[rank].touch()
            (machine.disk / "job").mkdir(exist_ok=True)
            pids.append(machine.start(partial(train, **given), printed[rank], apart=apart))
        return Life(list(on), pids, printed)

    def told(self, what: str, result: str) -> None:
        print(f"{what}: {result}", flush=True)
        self.results.append((what, result))


def numbers(word: str, text: str) -> list[int]:
    return [
        int(line.split()[1]) for line in text.splitlines() if line.startswith(f"{word} ") and len(line.split()) == 2
    ]


def weights(folder: Path) -> Any:
    import torch

    state = torch.load(folder / "last.pth", weights_only=True)
    return {key: state[key] for key in ("state_dict", "optimizer", "trainer", "random")}


def must_be_same(one: Any, other: Any, place: str = "") -> None:
    """Raise an error that names the first difference between two states."""
    import torch

    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other), f"other bits in {place}"
    elif isinstance(one, dict):
        assert one.keys() == other.keys(), place
        for key in one:
            must_be_same(one[key], other[key], f"{place}.{key}")
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other), place
        for number, pair in enumerate(zip(one, other, strict=True)):
            must_be_same(*pair, f"{place}.{number}")
    else:
        assert one == other, f"{one} and {other} in {place}"


def newest_on(machines_: Sequence[Machine]) -> int:
    """Return the iteration of the newest checkpoint on these disks that verifies."""
    from ignite_hooks.store import FolderStore

    found = [0]
    for machine in machines_:
        store = FolderStore(machine.disk / "job")
        found += [entry.iteration for entry in store.entries() if store.verify(entry) is None]
    return max(found)


def wipe(*machines_: Machine) -> None:
    for machine in machines_:
        shutil.rmtree(machine.disk / "job", ignore_errors=True)


def plain(bench: Bench, nodes: list[Machine]) -> dict[int, Any]:
    """Run undisturbed, on one machine and on several, and compare the bits; return the weights by number of ranks."""
    from tests.machines.net import Machine

    whole = {}
    for ranks in (2, 3):
        wipe(*nodes)
        alone = Machine(1, nodes[0].tag, bench.folder, bench.folder / "one")
        alone.run.mkdir(exist_ok=True)
        (alone.run / "job").mkdir()
        one = bench.start([alone] * ranks, pace=0, apart=False)
        assert one.wait() == [0] * ranks, one.fail("one machine")
        whole[ranks] = weights(alone.run / "job")
        shutil.rmtree(alone.run)
        life = bench.start(nodes[:ranks], pace=0)
        if life.wait() != [0] * ranks:
            life.fail("several machines")
        must_be_same(weights(nodes[0].disk / "job"), whole[ranks])
        assert "files on the first machine only" in life.text(), life.text()
        others = [path.name for node in nodes[1:ranks] for path in (node.disk / "job").glob("*.pth")]
        assert others == [], others
        bench.told(f"undisturbed, {ranks} machines", "the bits of one machine; files on the first machine only")
    return whole


def die(bench: Bench, life: Life, moments: range) -> Machine:
    """Let a random machine die after one of these iterations, and wait for the others to end by themselves."""
    moment = bench.dice.choice(moments)
    life.until(lambda: life.done() >= moment or life.poll(), f"iteration {moment}")
    victim = bench.dice.randrange(len(life.on))
    pid = life.pids[victim]
    if pid not in life.codes:
        os.kill(pid, signal.SIGKILL)
        life.codes[pid] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    codes = life.wait()
    for rank, code in enumerate(codes):
        if rank != victim and code == 0:
            life.fail("a rank ended as if nothing had happened")
    told = "\n".join(life.text(rank) for rank in range(len(life.on)) if rank != victim)
    if len(life.on) > 1 and "to go on, on all machines, with resume: auto: " not in told:
        life.fail("nobody said how to go on")
    for rank, machine in enumerate(life.on):
        if rank != victim and f"on {life.on[victim].host})" not in life.text(rank):
            life.fail(f"{machine.host} has not named the host that is gone, {life.on[victim].host}")
    return life.on[victim]


def die_after_beginning(bench: Bench, life: Life, limit: int) -> Machine:
    """Let a random machine die within so many iterations after the run has begun."""
    life.until(lambda: bool(numbers("BEGINS", life.text())) or life.poll(), "the beginning")
    return die(bench, life, range(life.begins() + 1, life.begins() + limit))


def deaths(bench: Bench, nodes: list[Machine], whole: dict[int, Any], count: int) -> None:
    """Let machines die while the number of machines stays: the bits stay, too."""
    wipe(*nodes)
    reached, losses = 0, 0
    for _ in range(count):
        on = bench.dice.sample(nodes, 2)
        # Two machines without a checkpoint would begin another run, which is refused where it meets the first.
        while newest_on(on) == 0 and newest_on(nodes) > 0:
            on = bench.dice.sample(nodes, 2)
        expected = newest_on(on)
        life = bench.start(on, settings=PER_MACHINE)
        victim = die_after_beginning(bench, life, 9)
        begun = life.begins()
        if begun != expected:
            life.fail(f"went on from {begun}, not from {expected}")
        reached = max(reached, begun)
        # Sometimes with its disk; the others have copies.
        survivors = [node for node in nodes if node is not victim]
        if bench.dice.random() < 0.4 and newest_on(survivors) > 0:
            wipe(victim)
            losses += 1
    assert reached > 0
    # All that is left, so that the newest is known to somebody.
    best = max(nodes, key=lambda node: newest_on([node]))
    other = bench.dice.choice([node for node in nodes if node is not best])
    life = bench.start([other, best], settings=PER_MACHINE, pace=0)
    if life.wait() != [0, 0]:
        life.fail("the last life")
    for node in (other, best):
        must_be_same(weights(node.disk / "job"), whole[2])
    bench.told(
        f"{count} deaths of one of two machines, drawn from three, copies: per_machine",
        f"each life went on from the newest on its disks, {losses} times after a disk was lost; the bits of the "
        "undisturbed run, on both",
    )


def changing(bench: Bench, nodes: list[Machine], count: int) -> None:
    """Let machines die while their number changes: no sample is lost or seen twice in an epoch that counts."""
    wipe(*nodes)
    sizes = [number % 3 + 1 for number in range(count)]
    bench.dice.shuffle(sizes)
    for size in sizes:
        keeper = max(nodes, key=lambda node: newest_on([node]))
        others = [node for node in nodes if node is not keeper]
        on = bench.dice.sample([keeper, *bench.dice.sample(others, size - 1)], size)
        expected = newest_on(on)
        life = bench.start(on, settings=PER_MACHINE)
        die_after_beginning(bench, life, 7)
        if life.begins() != expected:
            life.fail(f"went on from {life.begins()}, not from {expected}")
    keeper = max(nodes, key=lambda node: newest_on([node]))
    life = bench.start([keeper], settings=PER_MACHINE, pace=0)
    if life.wait() != [0]:
        life.fail("the last life")
    bench.told(
        f"{count} deaths while 1, 2 and 3 machines take turns ({', '.join(map(str, sizes))})",
        "each life went on from the newest on its disks; the run ended",
    )


def shrink(bench: Bench, nodes: list[Machine]) -> None:
    """Go on alone in the middle of an epoch: the rest of its samples, each once."""
    wipe(*nodes)
    life = bench.start(nodes[:2], settings=PER_MACHINE, pace=0.1)
    life.until(lambda: newest_on(nodes[1:2]) >= 4, "a checkpoint in the middle of an epoch")
    life.kill()
    saved = newest_on(nodes[1:2])
    before = [line.split() for node in nodes[:2] for line in (node.disk / "job" / "seen.txt").read_text().splitlines()]
    done = Counter(sample for line in before if int(line[0]) <= saved and line[1] == "1" for sample in line[3:])
    alone = bench.start([nodes[1]], settings=PER_MACHINE, pace=0)
    if alone.wait() != [0]:
        alone.fail("alone")
    lines = [line.split() for line in (nodes[1].disk / "job" / "seen.txt").read_text().splitlines()]
    rest = Counter(sample for line in lines if line[2] == "1" and line[1] == "1" for sample in line[3:])
    assert sum(done.values()) == saved * 2 * BATCH
    assert done + rest == Counter(map(str, range(SAMPLES))), (saved, len(done), len(rest))
    bench.told(
        f"two machines, then one, after {saved * 2 * BATCH} of {SAMPLES} samples",
        f"the one that was left read the other {sum(rest.values())}, each once",
    )


def cables(bench: Bench, nodes: list[Machine], whole: dict[int, Any], seconds: float, timeout: float) -> None:
    """Pull a cable out for a while."""
    wipe(*nodes)
    life = bench.start(nodes[:2], settings=PER_MACHINE, pace=0.1, timeout=timeout)
    moment = bench.dice.randrange(3, 9)
    life.until(lambda: life.done() >= moment or life.poll(), f"iteration {moment}")
    began = time.monotonic()
    nodes[1].cable("down")
    try:
        life.until(lambda: time.monotonic() - began >= seconds, "the time", seconds + 5)
        ended = life.poll()
    finally:
        nodes[1].cable("up")
    codes = life.wait()
    if codes == [0, 0]:
        result = "survived"
    else:
        told = life.text(0) + life.text(1)
        if "to go on, on all machines, with resume: auto: " not in told:
            life.fail("ended without saying how to go on")
        result = "told, and ended on both" + (" before the cable was back" if ended else "")
        again = bench.start(nodes[:2], settings=PER_MACHINE, pace=0)
        if again.wait() != [0, 0] or again.begins() == 0:
            again.fail("after the cable was back")
        result += f"; went on from iteration {again.begins()}"
    must_be_same(weights(nodes[0].disk / "job"), whole[2])
    bench.told(
        f"a cable out for {seconds:.0f} s (timeout {timeout:.0f} s)", f"{result}; the bits of the undisturbed run"
    )


def newest_in_mirror(*, pending: bool = False) -> int:
    """Return the iteration of the newest checkpoint that the S3 server lists, or may have got, too."""
    import boto3
    from botocore.exceptions import ClientError

    try:
        found = boto3.client("s3").get_object(Bucket="bucket", Key="run/manifest.json")
    except ClientError as error:
        if error.response["Error"]["Code"] != "NoSuchKey":
            raise
        return 0
    manifest = json.load(found["Body"])
    entries = [*manifest["entries"], *([manifest["pending"]] if pending and manifest.get("pending") else [])]
    return max((int(entry["iteration"]) for entry in entries), default=0)


def is_mirrored(life: Life, known: int) -> bool:
    """Return whether the mirror lists a later checkpoint than a known one, or the life has ended."""
    return newest_in_mirror() > known or life.poll()


def mirrored(bench: Bench, nodes: list[Machine], whole: dict[int, Any], count: int) -> None:
    """Empty all disks between two lives: the S3 server has everything."""
    wipe(*nodes)
    os.environ.update(
        AWS_ACCESS_KEY_ID="AKIAIOSFODNN7EXAMPLE",
        AWS_SECRET_ACCESS_KEY="wJalrXUtnFEMI-K7MDENG",
        AWS_DEFAULT_REGION="us-east-1",
        AWS_ENDPOINT_URL_S3=f"http://{SWITCH}:9000",
    )
    server = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", S3],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == b"up\n"
        urllib.request.urlopen(urllib.request.Request(f"http://{SWITCH}:9000/bucket", method="PUT"), timeout=30).close()
        settings = {"mirror": "s3://bucket/run", "mirror_timeout": 60}
        reached = []
        for _ in range(count):
            least, most = newest_in_mirror(), newest_in_mirror(pending=True)
            life = bench.start(bench.dice.sample(nodes, 2), settings=settings, pace=0.1)
            # Not before this life has added something: a death that comes earlier shows nothing.
            life.until(partial(is_mirrored, life, most), "a mirrored checkpoint")
            die(bench, life, range(life.done(), life.done() + 4))
            reached.append(life.begins())
            if reached[-1] not in (least, most):
                life.fail(f"went on from {reached[-1]}, not from {least}, the newest in the mirror")
            wipe(*nodes)
        life = bench.start(nodes[:2], settings=settings, pace=0)
        if life.wait() != [0, 0]:
            life.fail("the last life")
        reached.append(life.begins())
        for earlier, later in itertools.pairwise(reached):
            if later <= earlier:
                life.fail(f"lives began at {reached}: one did not get further")
        must_be_same(weights(nodes[0].disk / "job"), whole[2])
        for node in nodes:
            for path in (node.disk / "job").rglob("*"):
                assert path.is_dir() or b"wJalr" not in path.read_bytes(), path
    finally:
        server.kill()
        server.communicate()
    begun = ", ".join(map(str, reached))
    bench.told(
        f"{count} deaths with every disk emptied, mirror: s3://… on the switch",
        f"lives began at {begun}; the bits of the undisturbed run; no credential in any file",
    )


def main() -> int:
    """Run everything, write the page; the exit code is 0 only if all of it held."""
    if os.geteuid() != 0:
        print("make machines: only root can make network namespaces")
        return 1
    seed = int(os.environ.get("IGNITE_HOOKS_SEED") or random.randrange(2**32))
    print(f"IGNITE_HOOKS_SEED={seed}", flush=True)
    began = time.monotonic()
    # Imported before the first fork: a rank begins at once.
    import torch
    import torch._dynamo

    import ignite_hooks.attach
    import ignite_hooks.hooks.checkpoint_hook  # noqa: F401

    torch.set_num_threads(1)
    for variable in ("CUDA_VISIBLE_DEVICES",):
        os.environ.setdefault(variable, "")
    with tempfile.TemporaryDirectory(prefix="machines-") as name:
        folder = Path(name)
        with machines(3, folder) as nodes:
            # Here the switch, and an S3 server on it, can be reached.
            enter_network(f"{nodes[0].tag}-sw")
            bench = Bench(folder, random.Random(seed))
            whole = plain(bench, nodes)
            deaths(bench, nodes, whole, 10)
            changing(bench, nodes, 6)
            shrink(bench, nodes)
            cables(bench, nodes, whole, 1, 20)
            cables(bench, nodes, whole, 60, 10)
            mirrored(bench, nodes, whole, 8)
    seconds = time.monotonic() - began
    write_page(bench, seed, seconds)
    print(f"all of it held, in {seconds:.0f} s")
    return 0


def write_page(bench: Bench, seed: int, seconds: float) -> None:
    rows = "\n".join(f"| {what} | {result} |" for what, result in bench.results)
    PAGE.write_text(
        f"""# Machines without a common disk

`make machines` (as root, on Linux with `ip netns`) makes three machines of namespaces: each has its own network on a
switch, its own mounts with a disk of its own at the same path, its own host name and processes. On them it trains a
network with dropout, batch statistics and Adam ({EPOCHS} epochs of {SAMPLES} samples, batches of {BATCH} on each
machine), kills machines, takes disks away and pulls cables. It writes this page, and fails where it cannot run.

The last time: {bench.starts} starts in {seconds:.0f} s, `IGNITE_HOOKS_SEED={seed}`.

| what happened | what came of it |
|---|---|
{rows}

No life began at 0 where a disk had a checkpoint, none fell behind an earlier one, and every life ended by itself.

A machine of this kind shares the kernel and its clock with the others: what a real one adds (clocks that differ, other
processors, a network that loses packets) is not tried here.
""",
        encoding="utf-8",
    )


if __name__ == "__main__":
    sys.exit(main())
