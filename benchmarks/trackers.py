"""What training loses while a tracker's server misbehaves: MLflowHook against a server in each kind of trouble.

Every run and every server has a process of its own, so that a run without a tracker pays for no client and no thread
of another one. ``mode: online`` insists on the server, so it is asked again and again; records go to the spool. The
clock runs inside of the run only: what its end waits for is bounded by ``deadline``.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from ignite.engine import Engine
from measure import Figure, Lane, Result, Spread, interleaved, script

from ignite_hooks import attach_hooks
from ignite_hooks.writers.trackers.spool import Spool

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.writers.trackers.servers import FAULTS, faulty, unreachable

MOST = 1.01
ITERATIONS = 100
CONTROL = "no tracker, once more"
INTERVAL = 50
"""The hook's own default."""


def engine(folder: Path | None, url: str = "") -> tuple[Engine, Any]:
    """Return an engine with steps of a few milliseconds, with the hook and its runner if there is a folder for it."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(512, 256), torch.randint(0, 10, (512,))

    def step(_: Engine, __: object) -> torch.Tensor:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    trainer = Engine(step)
    if folder is None:
        return trainer, None
    hook = {"type": "MLflowHook", "tracking_uri": url, "mode": "online", "interval": INTERVAL}
    return trainer, attach_hooks(trainer, [hook], model=model, optimizer=optimizer, work_dir=folder)


def _serve(there: Any, how: str) -> None:
    with faulty(how) as url:
        there.send(url)
        with contextlib.suppress(EOFError):
            there.recv()


def _train(there: Any, folder: Path | None, url: str) -> None:
    """Train in this process: a part for each message, and at the end what the hook took and what it kept."""
    prepare()
    trainer, runner = engine(folder, url)
    lane = Lane(trainer, ITERATIONS)
    taken = []
    while there.recv():
        taken.append(lane.advance())
        there.send(taken[-1])
    lane.end()
    steps = trainer.state.iteration
    whole = folder is None or kept(folder, steps)
    there.send((whole, 0.0 if runner is None else own_share(runner, Spread.of(taken).median)))


@contextlib.contextmanager
def process(work: Any, *given: Any) -> Iterator[Any]:
    """Yield a connection to a function that runs in another process."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    running = context.Process(target=work, args=(there, *given), daemon=True)
    running.start()
    try:
        yield here
    finally:
        here.close()
        running.join(60)
        running.terminate()


def advance(there: Any) -> float:
    """Let a run in another process take its next iterations; return the nanoseconds per iteration."""
    there.send(True)
    return float(there.recv())


def prepare() -> None:
    """Make this process one that measures: one thread of torch, no telemetry, no lines of the log."""
    torch.set_num_threads(1)
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    logging.getLogger("ignite_hooks").setLevel(logging.ERROR)


def kept(folder: Path, steps: int) -> bool:
    """Return whether every loss that was due is in the spool, once and in order."""
    found = [
        record.step
        for record in Spool(folder / "mlflow.spool")
        if record.what == "scalars" and "loss" in record.content
    ]
    return found == list(range(INTERVAL, steps + 1, INTERVAL))


def own_share(runner: Any, nanoseconds: float) -> float:
    """Return the hook's own share of such an iteration, in percent, from the report of the run."""
    tallies = [
        tally for (_, point), tally in runner.report().tallies.items() if point in ("after_train_iter", "after_step")
    ]
    return float(sum(tally.total for tally in tallies) / runner.global_step * 1e9 / nanoseconds * 100)


def measure(quick: bool) -> Result:
    """Measure whole iterations beside a server with each kind of fault."""
    prepare()
    count = 5 if quick else 40
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as processes:
        urls = {how: processes.enter_context(process(_serve, how)).recv() for how in FAULTS}
        urls["is not there"] = unreachable()
        # Twice the same: their memory alone, which lies elsewhere, makes runs differ.
        runs: dict[str, tuple[Path | None, str]] = {"no tracker": (None, ""), CONTROL: (None, "")}
        runs |= {f"a server that {how}": (Path(folder) / how.replace(" ", "-"), url) for how, url in urls.items()}
        lanes = {case: processes.enter_context(process(_train, *given)) for case, given in runs.items()}
        rounds = interleaved({case: partial(advance, there) for case, there in lanes.items()}, count)
        for there in lanes.values():
            there.send(False)
        ends = {case: there.recv() for case, there in lanes.items()}
    shares = [share for case, (_, share) in ends.items() if runs[case][0] is not None]
    against = {case: rounds.combined(lambda a, b: a / b, case, "no tracker") for case in list(lanes)[1:]}
    reason = (
        "the hook itself takes the share of the last line; what takes the rest is not known, and two runs without a "
        "tracker differ too, as the line before it says"
    )
    control, *others = against
    figures = [Figure(f"{case} / no tracker", against[case], "×", MOST, reason) for case in others]
    figures.append(Figure(f"{control} / no tracker", against[control], "×"))
    figures.append(Figure("of an iteration, what the hook itself takes", Spread.of(shares), "%", (MOST - 1) * 100))
    lost = [case for case, (is_whole, _) in ends.items() if not is_whole]
    if lost:
        raise RuntimeError(f"metrics were lost by {', '.join(lost)}")
    about = f"nanoseconds per iteration: {count} interleaved rounds of {ITERATIONS} iterations"
    notes = ["Every loss that was due is in the spool, once and in order."]
    return Result(about, "ns", rounds.values, figures, form=",.3f", notes=notes)


if __name__ == "__main__":
    script(measure, __doc__)
