"""What two processes cost each other: making averages equal, agreeing about the end of a run, evaluating together.

Starts itself twice, as torchrun does. The averages are 200 small tensors, made equal in one message or one by one.
Agreeing is counted as well as timed: collectives per iteration with hooks that may end a run, and with none. Evaluating
is timed as a whole, with data that takes only time to compute: once by one process, once by both.
"""

from __future__ import annotations

import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ignite.distributed as idist
import torch
from ignite.engine import Engine
from measure import Chart, Figure, Result, Rounds, Spread, exactly, script
from torch.utils.data import DataLoader, TensorDataset

from ignite_hooks import BaseHook, attach_hooks
from ignite_hooks.distributed import collectives as ranks

MOST_OF_SINGLY = 0.1
MOST_OF_ONE_PROCESS = round(1 / 1.7, 3)
MOST_COLLECTIVES = 1.01
"""One in an iteration, and a few at the ends of epochs."""
MOST_OF_LOOKING = 0.001
"""None in an iteration, and one in a run, at whose end the ranks wait for each other."""
TENSORS = 200


def medians(cases: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Return the milliseconds of every case, in the same order in both processes."""
    found: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, call in cases.items():
            idist.barrier()
            start = time.perf_counter()
            call()
            found[name].append((time.perf_counter() - start) * 1e3)
    return found


def of_averages(rounds: int) -> dict[str, list[float]]:
    """Return the milliseconds of making 200 small tensors equal."""
    tensors = [torch.randn(64) for _ in range(TENSORS)]

    def one_by_one() -> None:
        for tensor in tensors:
            idist.broadcast(tensor, src=0)

    return medians(
        {
            "together": lambda: ranks.broadcast_tensors(tensors),
            "together, their mean": lambda: ranks.average(tensors),
            "one by one": one_by_one,
        },
        rounds,
    )


class Watches(BaseHook):
    """A hook that may end the run, in any iteration."""

    def after_train_iter(self, runner: Any) -> None:
        pass


def of_agreeing(iterations: int) -> dict[str, float]:
    """Return the collectives in an iteration and its microseconds."""
    import torch.distributed as dist

    found = {}
    real, counted = dist.all_reduce, 0

    def counting(*args: Any, **kwargs: Any) -> Any:
        nonlocal counted
        counted += 1
        return real(*args, **kwargs)

    dist.all_reduce = counting
    cases: dict[str, list[Any]] = {
        "no hook": [],
        "hooks that only look on": ["LoggerHook", "IterTimerHook"],
        "a checkpoint at the end": ["LoggerHook", {"type": "CheckpointHook", "save_best": False}],
        "a hook that may end it any time": [Watches()],
    }
    for name, hooks in cases.items():
        trainer = Engine(lambda *_: 0.5)
        attach_hooks(trainer, hooks, work_dir=ranks.broadcast_object(tempfile.mkdtemp()))
        counted = 0
        start = time.perf_counter()
        trainer.run(range(iterations), max_epochs=1)
        found[f"{name}: us"] = (time.perf_counter() - start) / iterations * 1e6
        found[f"{name}: collectives"] = counted / iterations
    dist.all_reduce = real
    return found


def of_evaluating(rounds: int) -> list[float]:
    """Return the seconds of one evaluation whose cost is only computation."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(6)), torch.nn.Linear(512, 10))
    data = TensorDataset(torch.randn(16384, 512), torch.randint(10, (16384,)))
    trainer = Engine(lambda *_: None)
    runner = attach_hooks(
        trainer,
        [{"type": "DistEvalHook", "broadcast_buffers": False}],
        work_dir=ranks.broadcast_object(tempfile.mkdtemp()),
        model=model,
        val_loader=DataLoader(data, batch_size=64),
    )
    found = []
    for _ in range(rounds + 1):
        idist.barrier()
        start = time.perf_counter()
        runner.validate()
        found.append(time.perf_counter() - start)
    return found[1:]


def work(kind: str, quick: bool, result: Path) -> None:
    """Do the work of one process."""
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    idist.initialize("gloo") if "RANK" in os.environ else None
    found: dict[str, Any] = {"evaluating": of_evaluating(2 if quick else 5)}
    if kind == "two":
        found["averages"] = of_averages(5 if quick else 60)
        found["agreeing"] = of_agreeing(50 if quick else 2000)
    if idist.get_rank() == 0:
        result.write_text(json.dumps(found), encoding="utf-8")
    sys.stdout.flush()
    os._exit(0)


def started(kind: str, quick: bool) -> dict[str, Any]:
    """Return what rank 0 of one or two processes has measured."""
    with tempfile.TemporaryDirectory() as folder:
        result, store = Path(folder) / "result.json", None
        world: list[dict[str, str]] = [{}]
        if kind == "two":
            store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
            common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "WORLD_SIZE": "2"}
            common |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "LOCAL_WORLD_SIZE": "2"}
            world = [{**common, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(2)]
        command = [sys.executable, __file__, "--as", kind, str(result), *(["--quick"] if quick else [])]
        processes = [subprocess.Popen(command, env={**os.environ, **each}) for each in world]
        codes = [process.wait() for process in processes]
        if any(codes):
            raise SystemExit("a process has failed")
        return dict(json.loads(result.read_text(encoding="utf-8")))


def measure(quick: bool) -> Result:
    """Start the processes, and gather what they have measured."""
    turns = 2 if quick else 4
    pairs = [(started("one", quick), started("two", quick)) for _ in range(turns)]
    two = pairs[-1][1]
    averages = Rounds(two["averages"])
    evaluations = Rounds(
        {
            "one process": [statistics.median(one["evaluating"]) for one, _ in pairs],
            "two processes": [statistics.median(both["evaluating"]) for _, both in pairs],
        }
    )
    agreeing = two["agreeing"]

    def share(of: float, whole: float) -> float:
        return of / whole

    def counted(name: str) -> Spread:
        return exactly(agreeing[f"{name}: collectives"])

    figures = [
        Figure(
            "averages: together / one by one", averages.combined(share, "together", "one by one"), "×", MOST_OF_SINGLY
        ),
        Figure(
            "collectives in an iteration, at worst", counted("a hook that may end it any time"), "", MOST_COLLECTIVES
        ),
        Figure("... with hooks that only look on", counted("hooks that only look on"), "", MOST_OF_LOOKING),
        Figure(
            "evaluating: two processes / one",
            evaluations.combined(share, "two processes", "one process"),
            "×",
            MOST_OF_ONE_PROCESS,
        ),
    ]
    names = [name.removesuffix(": us") for name in agreeing if name.endswith(": us")]
    values = {
        **{f"averages of {TENSORS} tensors, {name}": found for name, found in averages.values.items()},
        **{f"an evaluation, {name}": [s * 1e3 for s in found] for name, found in evaluations.values.items()},
        **{f"an empty step, {name}": [agreeing[f"{name}: us"] / 1e3] for name in names},
    }
    bars = {
        "ours, averages together": averages.spread("together"),
        "ours, their mean": averages.spread("together, their mean"),
        "one broadcast each": averages.spread("one by one"),
    }
    chart = Chart("synchronising", f"{TENSORS} tensors made equal in two processes", "ms", bars)
    about = "milliseconds; two processes with gloo, one thread each"
    return Result(about, "ms", values, figures, [chart], ".3f")


if __name__ == "__main__":
    if "--as" in sys.argv:
        at = sys.argv.index("--as")
        work(sys.argv[at + 1], "--quick" in sys.argv, Path(sys.argv[at + 2]))
    script(measure, __doc__)
