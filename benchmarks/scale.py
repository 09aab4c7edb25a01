"""What grows: counts of calls, a run of a million iterations with the default set, and 1, 2, 4 and 8 processes.

The long run has an empty step, so that nothing but the hooks can grow: at ten places of it the memory that is held, the
files, the open files and the threads are written down. The processes count their collectives, which is exact on any
machine, and time them, which on fewer cores than processes only tells the order of magnitude. Writes the tables of
``docs/scale.md``.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any

import ignite.distributed as idist
import torch
from growth import table as table_of_growth
from ignite.engine import Engine
from ignite.metrics import Average
from measure import put_in

from ignite_hooks import attach_hooks
from ignite_hooks.distributed import collectives as ranks

PAGE = Path(__file__).parents[1] / "docs" / "scale.md"
EPOCHS, PLACES = 20, 10
HOOKS: list[dict[str, Any]] = [
    {"type": "RuntimeInfoHook"},
    {"type": "IterTimerHook"},
    {"type": "LoggerHook"},
    {"type": "EMAHook"},
    {"type": "EvalHook", "metric": "loss", "rule": "less"},
    {"type": "EarlyStoppingHook", "monitor": "val_loss", "patience": 1000},
    {"type": "CheckpointHook", "max_keep_ckpts": 2, "save_best": False},
]
WORLD = (1, 2, 4, 8)


# -- a long run ------------------------------------------------------------------------------------------------


def long_run(iterations: int, folder: Path, *, traced: bool = False) -> list[dict[str, float]]:
    """Return what is held at ten places of a run with the default set and an empty step.

    Args:
        iterations: Of the whole run.
        folder: Where its files go.
        traced: Whether Python's own count of its memory is included, which makes everything slower.
    """
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trainer, evaluator = Engine(lambda *_: 0.5), Engine(lambda *_: 0.5)
    Average().attach(evaluator, "loss")
    runner = attach_hooks(
        trainer,
        HOOKS,
        evaluators=evaluator,
        work_dir=folder,
        model=model,
        optimizer=optimizer,
        val_loader=[None] * 3,
    )
    seen: list[dict[str, float]] = []
    each, began = iterations // PLACES, time.perf_counter()

    def data() -> Iterator[None]:
        for place in range(EPOCHS):
            yield from repeat(None, iterations // EPOCHS)
            if place % (EPOCHS // PLACES) == 1 and len(seen) < PLACES - 1:
                seen.append(look(len(seen) * each + each, time.perf_counter() - began, folder))

    if traced:
        tracemalloc.start()
    try:
        trainer.run(data(), max_epochs=EPOCHS, epoch_length=iterations // EPOCHS)
        seen.append(look(iterations, time.perf_counter() - began, folder))
    finally:
        tracemalloc.stop()
        runner.close()
    return seen


def look(iteration: int, seconds: float, folder: Path) -> dict[str, float]:
    """Return what is held now."""
    gc.collect()
    sizes = sizes_of(folder)
    checkpoints = [size for path, size in sizes.items() if path.suffix == ".pth"]
    return {
        "iteration": iteration,
        "seconds": seconds,
        "resident_mb": int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20,
        "python_kb": tracemalloc.get_traced_memory()[0] / 1024 if tracemalloc.is_tracing() else 0.0,
        "objects": len(gc.get_objects()),
        "threads": threading.active_count(),
        "open_files": len(list(Path("/proc/self/fd").iterdir())),
        "files": len(sizes),
        "checkpoints": len(checkpoints),
        "checkpoint_bytes": max(checkpoints, default=0),
        "log_bytes": sum(size for path, size in sizes.items() if path.suffix in (".log", ".jsonl")),
    }


def sizes_of(folder: Path) -> dict[Path, int]:
    """Return the sizes of the files of a running run: one may be deleted meanwhile."""
    found = {}
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            if path.is_file() and not path.name.startswith("."):
                found[path] = path.stat().st_size
    return found


# -- several processes -----------------------------------------------------------------------------------------

COLLECTIVES = ("all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_object", "broadcast", "barrier")


class Counting:
    """Counts the collectives of this process and their bytes."""

    def __init__(self) -> None:
        self.calls, self.bytes = 0, 0
        self._inside = False

    def __enter__(self) -> Counting:
        import torch.distributed as dist

        self._real = {name: getattr(dist, name) for name in COLLECTIVES}
        for name, function in self._real.items():
            setattr(dist, name, self._wrap(function))
        return self

    def _wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any, **named: Any) -> Any:
            outer, self._inside = self._inside, True
            if not outer:
                self.calls += 1
            try:
                if not outer:
                    self.bytes += sum(g.numel() * g.element_size() for g in given if isinstance(g, torch.Tensor))
                return function(*given, **named)
            finally:
                self._inside = outer

        return counted

    def __exit__(self, *_: object) -> None:
        import torch.distributed as dist

        for name, function in self._real.items():
            setattr(dist, name, function)


def in_processes(quick: bool) -> dict[str, dict[str, float]]:
    """Return the collectives of what ranks do together, with their bytes and milliseconds."""
    rounds, iterations = (3, 20) if quick else (15, 200)
    tensors = [torch.randn(64) for _ in range(200)]
    found: dict[str, dict[str, float]] = {}

    def note(name: str, call: Callable[[], Any], times: int, per: int = 1) -> None:
        seconds = []
        with Counting() as counting:
            for _ in range(times):
                start = time.perf_counter()
                call()
                seconds.append((time.perf_counter() - start) * 1e3 / per)
        each = times * per
        found[name] = {
            "ms": statistics.median(seconds),
            "collectives": counting.calls / each,
            "bytes": counting.bytes / each,
        }

    note("a vote about the end of a run", lambda: ranks.all_reduce_max([0, 0, 1, 2, 3]), rounds * 4)
    note("200 averages of 64 made equal", lambda: ranks.broadcast_tensors(tensors), rounds)
    note("their mean taken", lambda: ranks.average(tensors), rounds)

    def trained(hooks: Sequence[Any]) -> Callable[[], None]:
        def run() -> None:
            model = torch.nn.Linear(4, 3)
            trainer, evaluator = Engine(lambda *_: 0.5), Engine(lambda *_: 0.5)
            Average().attach(evaluator, "loss")
            runner = attach_hooks(
                trainer,
                list(hooks),
                evaluators=evaluator,
                work_dir=ranks.broadcast_object(tempfile.mkdtemp()),
                model=model,
                optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
                val_loader=[None] * 8,
            )
            trainer.run(range(iterations), max_epochs=1)
            runner.close()

        return run

    looking = ["RuntimeInfoHook", "IterTimerHook", "LoggerHook"]
    note("an iteration, hooks that only look on", trained(looking), 2, iterations)
    note("an iteration, the default set, one epoch of all", trained(HOOKS), 2, iterations)
    return found


def world_of(size: int, quick: bool) -> dict[str, Any]:
    """Return what rank 0 of this many processes has found."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "WORLD_SIZE": str(size)}
        common |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "LOCAL_WORLD_SIZE": str(size)}
        places = [{**common, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(size)] if size > 1 else [{}]
        command = [sys.executable, __file__, "--as", str(result), *(["--quick"] if quick else [])]
        processes = [subprocess.Popen(command, env={**os.environ, **place}) for place in places]
        codes = [process.wait() for process in processes]
        if any(codes):
            raise SystemExit("a process has failed")
        return dict(json.loads(result.read_text(encoding="utf-8")))


def one_of_them(result: Path, quick: bool) -> None:
    """Do the work of one process."""
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    if "RANK" in os.environ:
        idist.initialize("gloo")
    found = in_processes(quick)
    if idist.get_rank() == 0:
        result.write_text(json.dumps(found), encoding="utf-8")
    if "RANK" in os.environ:
        idist.barrier()
    os._exit(0)


# -- the page --------------------------------------------------------------------------------------------------


def table_of_run(seen: Sequence[Mapping[str, float]]) -> Iterator[str]:
    """Yield the table of the long run, place by place."""
    yield "| iteration | resident MB | objects | threads | open files | checkpoints | size of one | log and metrics |"
    yield "|--:|--:|--:|--:|--:|--:|--:|--:|"
    for row in seen:
        yield (
            f"| {row['iteration']:,.0f} | {row['resident_mb']:.1f} | {row['objects']:,.0f} | {row['threads']:.0f} | "
            f"{row['open_files']:.0f} | {row['checkpoints']:.0f} | {row['checkpoint_bytes'] / 1024:.1f} KB | "
            f"{row['log_bytes'] / 2**20:.2f} MB |"
        )
    first, last = seen[1], seen[-1]
    passed = last["iteration"] - first["iteration"]
    yield ""
    yield (
        f"From iteration {first['iteration']:,.0f} to {last['iteration']:,.0f}, that is "
        f"{(last['resident_mb'] - first['resident_mb']) / passed * 1e6:+.2f} MB of memory and "
        f"{last['objects'] - first['objects']:+,.0f} objects for each million iterations, and "
        f"{(last['log_bytes'] - first['log_bytes']) / passed * 50:.0f} bytes for each line of the log with its row of "
        f"metrics. {last['seconds'] / last['iteration'] * 1e6:.0f} µs an iteration, all included, "
        f"{slowing(seen):.2f} times as long in the last tenth as in the second."
    )


def slowing(seen: Sequence[Mapping[str, float]]) -> float:
    """Return the time of the last part of a run over that of the second."""
    return (seen[-1]["seconds"] - seen[-2]["seconds"]) / (seen[1]["seconds"] - seen[0]["seconds"])


def table_of_worlds(worlds: Mapping[int, Mapping[str, Mapping[str, float]]]) -> Iterator[str]:
    """Yield the table of collectives, bytes and time by the number of processes."""
    sizes = list(worlds)
    in_words = " / ".join(map(str, sizes))
    yield f"| per call or iteration, in {in_words} processes | collectives | bytes from a rank | ms |"
    yield "|---|--:|--:|--:|"
    for name in worlds[sizes[-1]]:
        rows = [worlds[size][name] for size in sizes]
        cells = [" / ".join(short(row[what]) for row in rows) for what in ("collectives", "bytes", "ms")]
        yield f"| {name} | {' | '.join(cells)} |"


def short(value: float) -> str:
    """Return a number with three digits."""
    return "0" if value == 0 else f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def main() -> None:
    """Run, count, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="20,000 iterations and two processes; writes no page")
    parser.add_argument("--iterations", type=int, default=1_000_000, help="of the long run")
    parser.add_argument("--only", choices=["run", "processes", "growth"], help="one of the parts")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the places of the long run alone, memory traced")
    parser.add_argument("--page", type=Path, default=PAGE, help="whose tables are written")
    parser.add_argument("--as", dest="result", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.result is not None:
        one_of_them(given.result, given.quick)
    if given.only in (None, "growth"):
        lines = list(table_of_growth(2 if given.quick else 3))
        print("\n".join(lines), end="\n\n", flush=True)
        if not given.quick:
            put_in(given.page, "growth", "make scale", lines)
    if given.only in (None, "run"):
        logger = logging.getLogger("ignite_hooks")
        logger.propagate = False
        logger.addHandler(logging.FileHandler(os.devnull))
        if given.json is not None:
            with tempfile.TemporaryDirectory() as folder:
                seen = long_run(given.iterations, Path(folder), traced=True)
            given.json.write_text(json.dumps(seen), encoding="utf-8")
            return
        with tempfile.TemporaryDirectory() as folder:
            lines = list(table_of_run(long_run(20_000 if given.quick else given.iterations, Path(folder))))
        print("\n".join(lines), end="\n\n", flush=True)
        if not given.quick:
            put_in(given.page, "long run", "make scale", lines)
    if given.only in (None, "processes"):
        worlds = {size: world_of(size, given.quick) for size in (WORLD[:2] if given.quick else WORLD)}
        lines = list(table_of_worlds(worlds))
        print("\n".join(lines))
        if not given.quick:
            put_in(given.page, "processes", "make scale", lines)


if __name__ == "__main__":
    main()
