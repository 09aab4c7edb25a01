"""What a save of a sharded model (FSDP2) costs the training loop of two processes, beside a copy of as many bytes.

Starts itself twice, as torchrun does. One run is trained throughout; its iterations are divided into blocks, of which
each has one save after its second iteration, or none, in an order that both processes know. A block lasts as long as in
the slower process; what is still being written at its end is waited for outside the time. Each process computes with
one thread: where there are no more cores than processes, what is computed for a save comes off the loop.
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
BLOCK = 8
"""Iterations of a block."""
WHY = (
    "each of the two processes computes with a core of its own; with two cores there is none left for what writes, and "
    "what that computes (planning, checksums, the copy to aligned memory) comes off the loop"
)


class Blocks(BaseHook):
    """Save once in each block, in a way that is drawn, and note how long the block took."""

    def __init__(self, saves: dict[str, Callable[[Any], object]], rounds: int) -> None:
        super().__init__()
        self.saves, self.seconds = saves, dict[str, list[float]]()
        dice = random.Random(0)
        self.order = [name for _ in range(rounds + 1) for name in dice.sample(list(saves), len(saves))]
        self.processor = dict[str, list[float]]()
        self.began = self.used = 0.0

    def before_train_iter(self, runner: Any) -> None:
        block, at = divmod(runner.iter, BLOCK)
        if at == 0:
            runner.checkpoints.wait_until_finished()
            if block > len(self.saves):
                used = sum(all_gather(time.process_time() - self.used))
                self.processor.setdefault(self.order[block - 1], []).append(used)
            idist.barrier()
            self.began, self.used = time.perf_counter(), time.process_time()

    def after_train_iter(self, runner: Any) -> None:
        block, at = divmod(runner.iter, BLOCK)
        if at == 1 and block < len(self.order):
            self.saves[self.order[block]](runner)
        if at == BLOCK - 1:
            lasted = max(all_gather(time.perf_counter() - self.began))
            # The first round counts for nobody.
            if block >= len(self.saves):
                self.seconds.setdefault(self.order[block], []).append(lasted)


def work(quick: bool, result: Path) -> None:
    """Do the work of one process."""
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    idist.initialize("gloo")
    width, layers, rounds = (256, 4, 2) if quick else (2048, 10, 4)
    torch.manual_seed(0)
    model: Any = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(layers)))
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batch = torch.randn(8 if quick else 64, width)
    folder = Path(broadcast_object(tempfile.mkdtemp(dir=result.parent)))

    def step(_engine: Engine, _batch: Any) -> None:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    def ours(runner: Any, background: bool) -> None:
        runner.checkpoints.save(SaveRequest("ours.pth", "periodic", background=background))

    def theirs(runner: Any) -> None:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        dcp.save(state, storage_writer=dcp.FileSystemWriter(folder / f"theirs {runner.iter}"))
        shutil.rmtree(folder / f"theirs {runner.iter - len(saves) * BLOCK}", ignore_errors=True)

    saves: dict[str, Callable[[Any], object]] = {
        "no save": lambda _: None,
        "beside": lambda runner: ours(runner, background=True),
        "synchronous": lambda runner: ours(runner, background=False),
        "torch": theirs,
    }
    blocks, trainer = Blocks(saves, rounds), Engine(step)
    attach_hooks(trainer, [blocks], work_dir=folder, model=model, optimizer=optimizer)
    # One more iteration, at which the processor time of the last block is known.
    trainer.run(range(BLOCK * len(blocks.order) + 1), max_epochs=1)

    values = [*model.parameters(), *(one for state in optimizer.state.values() for one in state.values())]
    mine = sum(local_part(value).nbytes for value in values)
    source, target = (torch.ones(mine, dtype=torch.uint8) for _ in range(2))
    copies, computed = [], []
    for _ in range(rounds):
        idist.barrier()
        began, used = time.perf_counter(), time.process_time()
        target.copy_(source)
        copies.append(max(all_gather(time.perf_counter() - began)))
        computed.append(sum(all_gather(time.process_time() - used)))
    blocks.processor["memcpy"] = computed
    processor = {f"processor, {name}": seconds for name, seconds in blocks.processor.items()}
    if idist.get_rank() == 0:
        content = {"seconds": blocks.seconds | {"memcpy": copies} | processor, "bytes": mine}
        result.write_text(json.dumps(content), encoding="utf-8")
    sys.stdout.flush()
    os._exit(0)


def started(quick: bool) -> dict[str, Any]:
    """Return what the two processes have measured."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "WORLD_SIZE": "2"}
        common |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "LOCAL_WORLD_SIZE": "2"}
        command = [sys.executable, __file__, "--as", str(result), *(["--quick"] if quick else [])]
        world = [{**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(2)]
        processes = [subprocess.Popen(command, env=each) for each in world]
        codes = [process.wait() for process in processes]
        if any(codes):
            raise SystemExit("a process has failed")
        return dict(json.loads(result.read_text(encoding="utf-8")))


def measure(quick: bool) -> Result:
    """Start the processes, and gather what they have measured."""
    found = started(quick)
    rounds = Rounds(found["seconds"])
    label = f"{2 * found['bytes'] / 1e6:.0f} MB on two ranks"

    def lost(name: str) -> Spread:
        return rounds.combined(lambda a, b, copy: (a - b) / copy, name, "no save", "memcpy")

    def computed(name: str) -> Spread:
        cases = [f"processor, {case}" for case in (name, "no save", "torch")]
        return rounds.combined(lambda a, b, other: (a - b) / (other - b), *cases)

    figures = [
        Figure(f"{label}, beside: loop time lost / memcpy", lost("beside"), "×", MOST_BESIDE, WHY),
        Figure(f"{label}, synchronous: loop time lost / memcpy", lost("synchronous"), "×"),
        Figure(f"{label}, torch: loop time lost / memcpy", lost("torch"), "×"),
        Figure("processor time of a save beside / of torch.distributed.checkpoint", computed("beside"), "×", 1.0),
    ]
    names = {"ours, beside": "beside", "ours, synchronous": "synchronous", "torch.distributed.checkpoint": "torch"}
    bars = {who: rounds.combined(lambda a, b: (a - b) * 1e3, case, "no save") for who, case in names.items()}
    copy = rounds.spread("memcpy").median * 1e3
    chart = Chart("save_sharded", f"Loop time lost by one save of {label}", "ms", bars, copy, "memcpy of as much")
    values = {name: [each * 1e3 for each in all_of_it] for name, all_of_it in rounds.values.items()}
    about = f"milliseconds of {BLOCK} iterations in two processes with gloo, one thread each"
    return Result(about, "ms", values, figures, [chart])


if __name__ == "__main__":
    if "--as" in sys.argv:
        at = sys.argv.index("--as")
        work("--quick" in sys.argv, Path(sys.argv[at + 1]))
    script(measure, __doc__)
