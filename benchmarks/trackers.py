"""What training loses while a tracker's server misbehaves: MLflowHook against a server in each kind of trouble.

The server runs in a separate process. ``mode: online`` insists on it, so it is asked again and again; records go
to the spool. The clock runs inside of the run only: what its end waits for is bounded by ``deadline``.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Iterator
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


def _serve(how: str, answer: Any) -> None:
    with faulty(how) as url:
        answer.send(url)
        with contextlib.suppress(EOFError):
            answer.recv()


@contextlib.contextmanager
def served(how: str) -> Iterator[str]:
    """Yield the address of a server with a fault, in another process."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(how, there), daemon=True)
    process.start()
    yield here.recv()
    here.send(None)
    process.join(5)
    process.terminate()


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
    torch.set_num_threads(1)
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    logging.getLogger("ignite_hooks").setLevel(logging.ERROR)
    count = 5 if quick else 40
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as servers:
        places = {how: Path(folder) / how.replace(" ", "-") for how in [*FAULTS, "is not there"]}
        urls = {how: servers.enter_context(served(how)) for how in FAULTS} | {"is not there": unreachable()}
        engines = {how: engine(place, urls[how]) for how, place in places.items()}
        # Twice the same: their memory alone, which lies elsewhere, makes runs differ.
        lanes = {name: Lane(engine(None)[0], ITERATIONS) for name in ("no tracker", CONTROL)}
        lanes |= {f"a server that {how}": Lane(made, ITERATIONS) for how, (made, _) in engines.items()}
        rounds = interleaved({name: lane.advance for name, lane in lanes.items()}, count)
        for lane in lanes.values():
            lane.end()
        whole = {how: kept(place, engines[how][0].state.iteration) for how, place in places.items()}
        shares = [
            own_share(runner, rounds.spread(f"a server that {how}").median) for how, (_, runner) in engines.items()
        ]
    against = {case: rounds.combined(lambda a, b: a / b, case, "no tracker") for case in list(lanes)[1:]}
    reason = (
        "the hook itself takes the share of the last line; what takes the rest is not known, and two runs without a "
        "tracker differ too, as the line before it says"
    )
    control, *others = against
    figures = [Figure(f"{case} / no tracker", against[case], "×", MOST, reason) for case in others]
    figures.append(Figure(f"{control} / no tracker", against[control], "×"))
    figures.append(Figure("of an iteration, what the hook itself takes", Spread.of(shares), "%", (MOST - 1) * 100))
    lost = [how for how, is_whole in whole.items() if not is_whole]
    if lost:
        raise RuntimeError(f"metrics were lost where a server {', '.join(lost)}")
    about = f"nanoseconds per iteration: {count} interleaved rounds of {ITERATIONS} iterations"
    notes = ["Every loss that was due is in the spool, once and in order."]
    return Result(about, "ns", rounds.values, figures, form=",.3f", notes=notes)


if __name__ == "__main__":
    script(measure, __doc__)
