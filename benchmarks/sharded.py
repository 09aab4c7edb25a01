"""What a save of a sharded model (FSDP2) costs the training loop of two processes, beside a copy of as many bytes.

Starts itself twice, as torchrun does, for each of two loops. In the one each process computes with one thread, all the
time: where there are no more cores than processes, what is computed for a save comes off this loop. In the other the
forward and backward pass is a pause, as if a device computed them, and the optimizer steps.

One run is trained throughout; its iterations are divided into blocks. Each block with a save, after its first
iteration, has one without beside it, before or after: the speed of a machine that others use changes from block to
block. A block lasts as long as in the slower process; what is still being written at its end is waited for outside the
time. Memory that an iteration frees stays with its process: getting it back from the system would take longer than all
else, and differs from time to time.
"""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ignite.distributed as idist
import torch
import torch.distributed.checkpoint as dcp
from ignite.engine import Engine
from measure import Chart, Figure, Result, Rounds, Spread, script
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from ignite_hooks import BaseHook, attach_hooks
from ignite_hooks.checkpoint.save import SaveRequest
from ignite_hooks.distributed.collectives import all_gather, broadcast_object
from ignite_hooks.model.wrapping import local_part

MOST_BESIDE = 1.5
BLOCK = 6
"""Iterations of a block."""
PAUSE = 0.15
"""Seconds for which a loop waits for its device."""
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**32), "MALLOC_TRIM_THRESHOLD_": str(2**40), "MALLOC_ARENA_MAX": "1"}
LOOPS = {"cores to spare": "--waits", "no core to spare": "--computes"}
WHY = {
    "cores to spare": (
        "torch collects the sharded state of model and optimizer, and the ranks agree that all have memory, before the "
        "copy begins: 15 to 20 ms, half a copy; then the step of the optimizer shares the memory with what writes"
    ),
    "no core to spare": (
        "each of the two processes computes with a core of its own; with two cores there is none left for what writes, "
        "and what that computes (the copy, checksums, planning) comes off the loop"
    ),
}


class Blocks(BaseHook):
    """Save once in each second block, in a way that is drawn, and note how long each block took."""

    def __init__(self, saves: dict[str, Callable[[Any], object]], rounds: int) -> None:
        super().__init__()
        self.saves, self.seconds, self.processor = saves, dict[str, list[float]](), dict[str, list[float]]()
        dice, self.order = random.Random(0), list[str]()
        for _ in range(rounds + 1):
            for name in dice.sample(list(saves), len(saves)):
                self.order += dice.sample([name, without(name)], 2)
        self.uncounted = 2 * len(saves)
        """The blocks of the first round."""
        self.began = self.used = 0.0

    def before_train_iter(self, runner: Any) -> None:
        block, at = divmod(runner.iter, BLOCK)
        if at == 0:
            runner.checkpoints.wait_until_finished()
            if block > self.uncounted:
                used = sum(all_gather(time.process_time() - self.used))
                self.processor.setdefault(self.order[block - 1], []).append(used)
            idist.barrier()
            self.began, self.used = time.perf_counter(), time.process_time()

    def after_train_iter(self, runner: Any) -> None:
        block, at = divmod(runner.iter, BLOCK)
        if at == 0 and block < len(self.order) and self.order[block] in self.saves:
            self.saves[self.order[block]](runner)
        if at == BLOCK - 1:
            lasted = max(all_gather(time.perf_counter() - self.began))
            if block >= self.uncounted:
                self.seconds.setdefault(self.order[block], []).append(lasted)


def without(name: str) -> str:
    """Return the name of the blocks without a save that are beside those with one."""
    return f"no save next to {name}"


def work(quick: bool, result: Path, waits: bool) -> None:
    """Do the work of one process."""
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    idist.initialize("gloo")
    width, layers, rounds = (256, 4, 2) if quick else (2048, 10, 6)
    torch.manual_seed(0)
    model: Any = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(layers)))
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batch = torch.randn(8 if quick else 64, width)
    folder = Path(broadcast_object(tempfile.mkdtemp(dir=result.parent)))

    def gradients() -> None:
        optimizer.zero_grad()
        model(batch).square().mean().backward()

    def step(_engine: Engine, _batch: Any) -> None:
        if waits:
            time.sleep(PAUSE)
        else:
            gradients()
        optimizer.step()

    def ours(runner: Any, background: bool) -> None:
        runner.checkpoints.save(SaveRequest("ours.pth", "periodic", background=background))

    def theirs(runner: Any) -> None:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        dcp.save(state, storage_writer=dcp.FileSystemWriter(folder / f"theirs {runner.iter}"))
        for old in folder.glob("theirs *"):
            if old.name != f"theirs {runner.iter}":
                shutil.rmtree(old, ignore_errors=True)

    saves: dict[str, Callable[[Any], object]] = {
        "beside": lambda runner: ours(runner, background=True),
        "synchronous": lambda runner: ours(runner, background=False),
        "torch": theirs,
    }
    gradients()
    blocks, trainer = Blocks(saves, rounds), Engine(step)
    attach_hooks(trainer, [blocks], work_dir=folder, model=model, optimizer=optimizer)
    # One more iteration, at which the processor time of the last block is known.
    trainer.run(range(BLOCK * len(blocks.order) + 1), max_epochs=1)

    values = [*model.parameters(), *(one for state in optimizer.state.values() for one in state.values())]
    mine = sum(local_part(value).nbytes for value in values)
    source, target = (torch.ones(mine, dtype=torch.uint8) for _ in range(2))
    copies = []
    for _ in range(rounds):
        idist.barrier()
        began = time.perf_counter()
        target.copy_(source)
        copies.append(max(all_gather(time.perf_counter() - began)))
    processor = {f"{name}, processor": seconds for name, seconds in blocks.processor.items()}
    if idist.get_rank() == 0:
        content = {"seconds": blocks.seconds | {"memcpy": copies} | processor, "bytes": mine}
        result.write_text(json.dumps(content), encoding="utf-8")
    sys.stdout.flush()
    os._exit(0)


def started(quick: bool, loop: str) -> dict[str, Any]:
    """Return what the two processes of a loop have measured."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "WORLD_SIZE": "2"}
        common |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "LOCAL_WORLD_SIZE": "2", **KEEP_MEMORY}
        command = [sys.executable, __file__, LOOPS[loop], "--as", str(result), *(["--quick"] if quick else [])]
        world = [{**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(2)]
        processes = [subprocess.Popen(command, env=each) for each in world]
        codes = [process.wait() for process in processes]
        if any(codes):
            raise SystemExit("a process has failed")
        return dict(json.loads(result.read_text(encoding="utf-8")))


def measure(quick: bool) -> Result:
    """Start the processes of each loop, and gather what they have measured."""
    figures, charts, values = list[Figure](), list[Chart](), dict[str, list[float]]()
    for loop in LOOPS:
        found = started(quick, loop)
        rounds = Rounds(found["seconds"])
        label = f"{2 * found['bytes'] / 1e6:.0f} MB on two ranks, {loop}"
        figures += figures_of(rounds, label, WHY[loop])
        charts.append(chart_of(rounds, label, LOOPS[loop].lstrip("-")))
        values |= {f"{loop}, {name}": [each * 1e3 for each in all_of_it] for name, all_of_it in rounds.values.items()}
    about = f"milliseconds of {BLOCK} iterations in two processes with gloo, one thread each"
    return Result(about, "ms", values, figures, charts)


def figures_of(rounds: Rounds, label: str, why: str) -> list[Figure]:
    """Return what saves cost a loop."""

    def lost(name: str) -> Spread:
        return rounds.combined(lambda a, b, copy: (a - b) / copy, name, without(name), "memcpy")

    cases = [f"{case}, processor" for one in ("beside", "torch") for case in (one, without(one))]
    computed = rounds.combined(lambda a, b, c, d: (a - b) / (c - d), *cases)
    return [
        Figure(f"{label}, beside: loop time lost / memcpy", lost("beside"), "×", MOST_BESIDE, why),
        Figure(f"{label}, synchronous: loop time lost / memcpy", lost("synchronous"), "×"),
        Figure(f"{label}, torch: loop time lost / memcpy", lost("torch"), "×"),
        Figure(f"{label}: processor time of a save beside / of torch.distributed.checkpoint", computed, "×", 1.0),
    ]


def chart_of(rounds: Rounds, label: str, name: str) -> Chart:
    """Return a picture of what saves cost a loop."""
    names = {"ours, beside": "beside", "ours, synchronous": "synchronous", "torch.distributed.checkpoint": "torch"}
    bars = {who: rounds.combined(lambda a, b: (a - b) * 1e3, case, without(case)) for who, case in names.items()}
    copy = rounds.spread("memcpy").median * 1e3
    return Chart(
        f"save_sharded_{name}", f"Loop time lost by one save of {label}", "ms", bars, copy, "memcpy of as much"
    )


if __name__ == "__main__":
    if "--as" in sys.argv:
        at = sys.argv.index("--as")
        work("--quick" in sys.argv, Path(sys.argv[at + 1]), "--waits" in sys.argv)
    script(measure, __doc__)
