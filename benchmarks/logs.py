"""What the default logging set costs per iteration: console, metrics.jsonl, TensorBoard, learning rates, timer.

Times are microseconds per iteration of a tiny model, above the same run without hooks. "After 100,000 iterations" is
the same set on an engine that has already run that long: a cost that grows with the run would show.
"""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Callable, Iterable
from itertools import repeat
from pathlib import Path
from typing import Any

import torch
from ignite.engine import Engine, Events
from ignite.handlers import Timer
from ignite.metrics import RunningAverage
from measure import Chart, Figure, Lane, Result, Rounds, Spread, interleaved, script
from meter import mean_cost_of
from peers import lightning_follow, mmengine_follow, peers_there

from ignite_hooks import attach_hooks

MOST_MICROSECONDS = 6.0
HOOKS: list[dict[str, Any]] = [{"type": "LoggerHook"}, {"type": "IterTimerHook"}, {"type": "TensorBoardHook"}]
LONG = 100_000
MOST_OF_PEERS = {"MMEngine": 0.2, "Lightning": 0.1}


def engine(folder: Path | None) -> Engine:
    """Return a tiny training run, with the logging set if there is a folder for it."""
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(8, 4), torch.randint(0, 3, (8,))

    def step(_: Engine, __: object) -> float:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    trainer = Engine(step)
    if folder is not None:
        attach_hooks(trainer, HOOKS, model=model, optimizer=optimizer, work_dir=folder)
    return trainer


def empty_engine(folder: Path) -> Engine:
    """Return an engine with an empty step, which runs many iterations quickly; the hooks see the same."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    trainer = Engine(lambda _, __: 0.5)
    attach_hooks(trainer, HOOKS, optimizer=optimizer, work_dir=folder)
    return trainer


def why(folder: Path) -> str:
    """Explain our figures by what an iteration of ours calls."""

    def cost(name: str, which: list[dict[str, Any]], first: int, count: int) -> float:
        trainer = Engine(lambda _, __: 0.5)
        attach_hooks(trainer, which, work_dir=folder / name)
        return mean_cost_of(trainer, first, count).opcodes

    bare = mean_cost_of(Engine(lambda _, __: 0.5), 10, 20).opcodes
    attached, whole = cost("nothing", [], 10, 20), cost("whole", HOOKS, 110, 100)
    timer, logger = (cost(hook["type"], [hook], 10, 20) - attached for hook in HOOKS[1::-1])
    lines = whole - cost("quiet", HOOKS, 10, 20)
    return (
        f"of {whole - bare:,.0f} opcodes an iteration, {timer:.0f} are the timer, which reads a clock four times, "
        f"{logger:.0f} the losses taken down, and {lines:.0f} the fiftieth part of a line with its row of JSON and its "
        f"scalars for TensorBoard, each made of some {lines * 50:,.0f}"
    )


def by_mmengine(folder: Path) -> Callable[[Iterable[Any]], None]:
    """Return a run of MMEngine with its default hooks and TensorBoard."""
    backends = [{"type": "LocalVisBackend"}, {"type": "TensorboardVisBackend"}]
    hooks = {"checkpoint": None, "logger": {"type": "LoggerHook", "interval": 50}}
    return mmengine_follow(
        folder, lambda _: 0.5, [], default_hooks=hooks, visualizer={"type": "Visualizer", "vis_backends": backends}
    )


def by_lightning(folder: Path) -> Callable[[Iterable[Any]], None]:
    """Return a run of Lightning: ``self.log``, the learning rate, TensorBoard every 50 steps; no progress bar."""
    from lightning.pytorch.callbacks import LearningRateMonitor
    from lightning.pytorch.loggers import TensorBoardLogger

    return lightning_follow(folder, lambda _: 0.5, [LearningRateMonitor()], logs=True, logger=TensorBoardLogger(folder))


def by_ignite(folder: Path) -> Engine:
    """Return an Ignite engine with an average, a timer, and a line, JSON and TensorBoard every 50 iterations."""
    from torch.utils.tensorboard import SummaryWriter

    trainer, optimizer = Engine(lambda _, __: 0.5), torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    RunningAverage(output_transform=float).attach(trainer, "loss")
    timer, writer = Timer(average=True), SummaryWriter(str(folder))
    timer.attach(trainer, step=Events.ITERATION_COMPLETED)
    rows = (folder / "metrics.jsonl").open("w")

    @trainer.on(Events.ITERATION_COMPLETED(every=50))
    def log() -> None:
        step, lr = trainer.state.iteration, optimizer.param_groups[0]["lr"]
        numbers = {"loss": trainer.state.metrics["loss"], "lr": lr, "time": timer.value()}
        rows.write(json.dumps({"step": step, **numbers}) + "\n")
        rows.flush()
        logging.getLogger("ignite_hooks").info("  ".join(f"{name} {value:.4f}" for name, value in numbers.items()))
        for name, value in numbers.items():
            writer.add_scalar(name, value, step)

    return trainer


def measure(quick: bool) -> Result:
    """Measure young lanes, and lanes that have already run long."""
    torch.set_num_threads(1)
    iterations, count, long = 200, 4 if quick else 60, 1_000 if quick else LONG
    # As in a job whose output goes to a file.
    logger = logging.getLogger("ignite_hooks")
    logger.propagate = False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = logging.FileHandler(folder / "console")
        logger.addHandler(log)
        lanes = {
            "no hooks": Lane(engine(None), iterations),
            "logging set": Lane(engine(folder / "a"), iterations),
            "empty step, ours": Lane(empty_engine(folder / "b"), iterations),
            "empty step, ours, old": Lane(empty_engine(folder / "c"), iterations),
            "empty step, no hooks": Lane(Engine(lambda _, __: 0.5), iterations),
            "empty step, Ignite": Lane(by_ignite(made(folder / "d")), iterations),
        }
        if "MMEngine" in peers_there():
            plainly = mmengine_follow(folder / "e", lambda _: 0.5, [])
            lanes["empty step, MMEngine, no hooks"] = Lane(plainly, iterations)
            lanes["empty step, MMEngine"] = Lane(by_mmengine(folder / "f"), iterations)
            lanes["empty step, MMEngine, old"] = Lane(by_mmengine(folder / "g"), iterations)
        if "Lightning" in peers_there():
            plainly = lightning_follow(folder / "h", lambda _: 0.5, [])
            lanes["empty step, Lightning, no hooks"] = Lane(plainly, iterations)
            lanes["empty step, Lightning"] = Lane(by_lightning(folder / "i"), iterations)
        for lane_name, lane in lanes.items():
            # MMEngine takes minutes for the second half: less is enough to show that it grows.
            for _ in repeat(None, (long if "ours" in lane_name else long // 3) // iterations * ("old" in lane_name)):
                lane.advance()
        rounds = interleaved({name: lane.advance for name, lane in lanes.items()}, count)
        for lane in lanes.values():
            lane.end()
        reason = why(folder)
        logger.removeHandler(log)
        log.close()

    def above(case: str, bare: str = "empty step, no hooks") -> Spread:
        return rounds.combined(lambda a, b: (a - b) / 1000, case, bare)

    young, aged = "empty step, ours", "empty step, ours, old"
    figures = [
        Figure("the logging set, above an empty step", above(young), "µs", MOST_MICROSECONDS, reason),
        Figure(f"... after {long:,} iterations", above(aged), "µs", MOST_MICROSECONDS, reason),
        Figure("... after that many / at the start", rounds.combined(lambda a, b: a / b, aged, young), "×", 1.1),
        Figure("the logging set on a tiny model, above no hooks", above("logging set", "no hooks"), "µs"),
        Figure("... as a share of the iteration", rounds.combined(lambda a, b: a / b, "logging set", "no hooks"), "×"),
    ]
    bars = {"ours": above(young), f"ours, after {long:,}": above(aged), "Ignite handlers": above("empty step, Ignite")}
    for peer in ("MMEngine", "Lightning"):
        for case, title in ((peer, peer), (f"{peer}, old", f"{peer}, after {long // 3:,}")):
            if f"empty step, {case}" in rounds.values:
                bars[title] = above(f"empty step, {case}", f"empty step, {peer}, no hooks")
    figures += [Figure(f"{who}, above its own bare loop", bar, "µs") for who, bar in bars.items() if "ours" not in who]
    figures += [
        Figure(f"ours / {peer}, each above its own bare loop", share_of(rounds, young, peer), "×", most, reason)
        for peer, most in MOST_OF_PEERS.items()
        if peer in bars
    ]
    chart = Chart("logging", "The default logging set, above the own bare loop", "µs per iteration", bars)
    about = f"nanoseconds per iteration: {count} interleaved rounds of {iterations:,} iterations"
    return Result(about, "ns", rounds.values, figures, [chart])


def share_of(rounds: Rounds, case: str, peer: str) -> Spread:
    """Return what ours adds, over what the logging of a peer adds to its own loop."""

    def share(ours: float, bare: float, theirs: float, their_bare: float) -> float:
        return (ours - bare) / (theirs - their_bare)

    cases = case, "empty step, no hooks", f"empty step, {peer}", f"empty step, {peer}, no hooks"
    return rounds.combined(share, *cases)


def made(folder: Path) -> Path:
    """Create and return a folder."""
    folder.mkdir(parents=True)
    return folder


if __name__ == "__main__":
    script(measure, __doc__)
