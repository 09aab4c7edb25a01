"""What a complete set of hooks adds to the same work written by hand: by us, Ignite's handlers, MMEngine, Lightning.

Checkpoint each epoch, log every 50 iterations, EMA, validation each epoch, early stopping, a timer: 4 epochs of 500
iterations of a small MLP, as whole runs whose parts take turns. A run is timed from its first batch to its end, with a
clock on the wall and by what its thread has computed; how long it takes to its first batch, and from its last one to
its end, is measured beside it.
"""

from __future__ import annotations

import json
import logging
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from courses import Data, Found, whole_runs
from ignite.engine import Engine, Events
from ignite.handlers import Checkpoint, DiskSaver, EarlyStopping, EMAHandler, Timer
from ignite.metrics import Loss, RunningAverage
from measure import Chart, Figure, Result, Rounds, Spread, script
from meter import Cost, mean_cost_of
from peers import lightning_run, mmengine_run, peers_there
from torch import nn

from ignite_hooks import attach_hooks
from ignite_hooks.store.folder import FolderStore

MOST_US = 15.0
MOST_SHARE = 1.02
MOST_START_MS = 4.0
MOST_END_MS = 10.0
AT_START = (
    "of its processor time a quarter goes into building and checking the hooks and their plan, a quarter into searches "
    "for what the script keeps and a resumed run needs, a sixth into rehearsing a save, which finds what no checkpoint "
    "can hold before training begins, and a tenth into the position in the data; by the clock, the folder of the "
    "checkpoints is locked and written to"
)
AT_END = (
    "half of its processor time goes into two checkpoints, that of the last epoch and last.pth, each of which searches "
    "for what the script keeps anew, as its handlers may have run between them; a sixth is the evaluation after the "
    "last epoch, a tenth the result of the run; by the clock, the first of the checkpoints is waited for, too"
)
EPOCHS, LENGTH, INTERVAL = 4, 500, 50
MOMENTUM = 0.999


class Work:
    """What all of them do alike: a model, its step, its evaluation."""

    def __init__(self, length: int = LENGTH, samples: int = 32) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.criterion = nn.CrossEntropyLoss()
        batch = torch.randn(samples, 32), torch.randint(10, (samples,))
        self.data, self.val_data = Data(batch, length), Data((batch[0][:32], batch[1][:32]), 10)

    def step(self, batch: Any) -> float:
        """Train one step."""
        x, y = batch
        self.optimizer.zero_grad()
        loss = self.criterion(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return float(loss.item())

    def predict(self, batch: Any, model: nn.Module | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Evaluate one step."""
        with torch.no_grad():
            return (model or self.model)(batch[0]), batch[1]


def by_hand(work: Work, folder: Path) -> None:
    """Run the same work without any library, as one would write it for one script."""
    weights = [parameter.detach() for parameter in work.model.parameters()]
    averages = [weight.clone() for weight in weights]
    losses: list[float] = []
    best, waited, done, seconds, step = float("inf"), 0, 0, 0.0, work.step
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "log.txt").open("w") as log, (folder / "metrics.jsonl").open("w") as rows:

        def write(numbers: Mapping[str, Any]) -> None:
            rows.write(json.dumps({"step": done, **numbers}) + "\n")
            rows.flush()
            log.write("  ".join(f"{name} {value:.4f}" for name, value in numbers.items()) + "\n")
            log.flush()

        for _ in range(EPOCHS):
            work.model.train()
            before = time.perf_counter()
            for batch in work.data:
                losses.append(step(batch))
                torch._foreach_lerp_(averages, weights, 1 - MOMENTUM)
                now = time.perf_counter()
                seconds += now - before
                before = now
                done += 1
                if done % INTERVAL == 0:
                    lr = work.optimizer.param_groups[0]["lr"]
                    write({"loss": sum(losses) / len(losses), "lr": lr, "time": seconds / INTERVAL})
                    losses.clear()
                    seconds = 0.0
            exchange(work.model, averages)
            work.model.eval()
            total, count = 0.0, 0
            for batch in work.val_data:
                predicted, wanted = work.predict(batch)
                total += work.criterion(predicted, wanted).item() * len(wanted)
                count += len(wanted)
            exchange(work.model, weights)
            write({"val_loss": total / count})
            best, waited = (total / count, 0) if total / count < best else (best, waited + 1)
            state = {"model": work.model.state_dict(), "ema": averages, "optimizer": work.optimizer.state_dict()}
            torch.save(state, folder / "last.tmp")
            (folder / "last.tmp").replace(folder / "last.pth")
            if waited >= 10:
                break


def exchange(model: nn.Module, values: list[torch.Tensor]) -> None:
    """Let the parameters show other memory."""
    for parameter, value in zip(model.parameters(), values, strict=True):
        parameter.data = value


def bare_engine(work: Work, *_: Any) -> None:
    """Ignite alone: neither logs, nor saves, nor evaluates."""
    Engine(lambda _, batch: work.step(batch)).run(work.data, max_epochs=EPOCHS)


def evaluator_of(work: Work, model: nn.Module) -> Engine:
    """Return an evaluator like that of a script."""
    evaluator = Engine(lambda _, batch: work.predict(batch, model))
    Loss(work.criterion).attach(evaluator, "loss")
    evaluator.add_event_handler(Events.STARTED, lambda: model.eval())
    return evaluator


HOOKS: list[dict[str, Any]] = [
    {"type": "RuntimeInfoHook"},
    {"type": "IterTimerHook"},
    {"type": "LoggerHook"},
    {"type": "EMAHook", "momentum": MOMENTUM},
    {"type": "EvalHook", "metric": "loss", "rule": "less"},
    {"type": "EarlyStoppingHook", "monitor": "val_loss"},
    {"type": "CheckpointHook", "save_best": False},
]


def ours(work: Work, folder: Path) -> None:
    """Run with hooks of this package."""
    trainer = Engine(lambda _, batch: work.step(batch))
    trainer.add_event_handler(Events.EPOCH_STARTED, lambda: work.model.train())
    runner = attach_hooks(
        trainer,
        HOOKS,
        evaluators=evaluator_of(work, work.model),
        work_dir=folder,
        model=work.model,
        optimizer=work.optimizer,
        val_loader=work.val_data,
    )
    trainer.run(work.data, max_epochs=EPOCHS)
    runner.close()


def ignite_handlers(work: Work, folder: Path) -> None:
    """Run with the handlers of Ignite that do the same."""
    trainer = Engine(lambda _, batch: work.step(batch))
    trainer.add_event_handler(Events.EPOCH_STARTED, lambda: work.model.train())
    folder.mkdir(parents=True, exist_ok=True)
    logger = logging.getLogger("benchmark.ignite")
    ema = EMAHandler(work.model, momentum=1 - MOMENTUM)
    ema.attach(trainer, event=Events.ITERATION_COMPLETED)
    evaluator = evaluator_of(work, ema.ema_model)
    RunningAverage(output_transform=float).attach(trainer, "loss")
    timer = Timer(average=True)
    timer.attach(trainer, step=Events.ITERATION_COMPLETED)

    with (folder / "metrics.jsonl").open("w") as rows:

        def write(numbers: Mapping[str, Any]) -> None:
            rows.write(json.dumps({"step": trainer.state.iteration, **numbers}) + "\n")
            rows.flush()
            logger.info("  ".join(f"{name} {value:.4f}" for name, value in numbers.items()))

        @trainer.on(Events.ITERATION_COMPLETED(every=INTERVAL))
        def log() -> None:
            lr = work.optimizer.param_groups[0]["lr"]
            write({"loss": trainer.state.metrics["loss"], "lr": lr, "time": timer.value()})

        @trainer.on(Events.EPOCH_COMPLETED)
        def validate() -> None:
            evaluator.run(work.val_data)
            write({"val_loss": evaluator.state.metrics["loss"]})

        stopping = EarlyStopping(10, lambda engine: -engine.state.metrics["loss"], trainer)
        evaluator.add_event_handler(Events.COMPLETED, stopping)
        saved = {"model": work.model, "ema": ema.ema_model, "optimizer": work.optimizer}
        saver = Checkpoint(saved, DiskSaver(str(folder / "saved"), create_dir=True), n_saved=1)
        trainer.add_event_handler(Events.EPOCH_COMPLETED, saver)
        trainer.run(work.data, max_epochs=EPOCHS)


CONTENDERS: dict[str, Callable[[Work, Path], None]] = {
    "by hand": by_hand,
    "bare Ignite engine": bare_engine,
    "ours": ours,
    "Ignite handlers": ignite_handlers,
}
PEERS: dict[str, Callable[[Work, Path], None]] = {"MMEngine": mmengine_run, "Lightning": lightning_run}


def one_write(folder: Path) -> float:
    """Return the ms of writing the last checkpoint of a run once more, with nothing else to be done."""
    with FolderStore(folder) as store:
        (entry,) = [one for one in store.entries() if one.name == "last.pth"]
        state = store.load(folder / entry.name)
        start = time.perf_counter()
        store.save(entry.name, state, kind="last", epoch=entry.epoch, iteration=entry.iteration)
        return (time.perf_counter() - start) * 1e3


def samples_for(milliseconds: float) -> int:
    """Return the batch size with which a step takes this long."""
    samples = 64
    while True:
        work = Work(samples=samples)
        times = []
        for _ in range(30):
            start = time.perf_counter()
            work.step(work.data.batch)
            times.append(time.perf_counter() - start)
        if sorted(times)[len(times) // 4] * 1e3 >= milliseconds:
            return samples
        samples = int(samples * 1.2) + 16


def counted(*types: str) -> Cost:
    """Return what hooks of these types add to an iteration with an empty step: the mean of a hundred with two lines."""

    def mean(hooks: list[dict[str, Any]] | None) -> Cost:
        work, trainer = Work(), Engine(lambda *_: 0.5)
        with tempfile.TemporaryDirectory() as folder:
            if hooks is not None:
                services = {"model": work.model, "optimizer": work.optimizer, "val_loader": work.val_data}
                evaluators = evaluator_of(work, work.model)
                attach_hooks(trainer, hooks, evaluators=evaluators, work_dir=folder, **services)
            return mean_cost_of(trainer, 110, 100)

    return mean([hook for hook in HOOKS if hook["type"] in types]) - mean(None)


def why() -> str:
    """Explain our figures by what an iteration of ours calls."""
    nothing, whole = counted(), counted(*(hook["type"] for hook in HOOKS))
    average, timer, logger = (counted(name) - nothing for name in ("EMAHook", "IterTimerHook", "LoggerHook"))

    def told(cost: Cost) -> str:
        return f"{cost.opcodes:,.0f} and {cost.calls + cost.c_calls:.0f}"

    return (
        "an iteration of the engine itself is in it (see the bare engine); of the opcodes and calls that we add, "
        f"{told(whole)}, the average, which also looks whether the weights are finite, takes {told(average)}, the "
        f"timer, which reads a clock four times, {told(timer)}, and the losses with their lines {told(logger)}; all "
        "of it takes longer between two steps than by itself, as the average by hand does, too; what is not within "
        "epochs is what a run pays once, or once an epoch: its end, saves and evaluations, divided among the "
        "iterations; by the clock, the end also waits until the last checkpoint is safe, which the "
        "loop by hand does not"
    )


def averages_by_hand(count: int) -> Rounds:
    """Return the µs of the average in the loop by hand: between two training steps, and right after another average."""
    work, clock = Work(), time.perf_counter
    weights = [parameter.detach() for parameter in work.model.parameters()]
    averages = [weight.clone() for weight in weights]
    found: dict[str, list[float]] = {"between steps": [], "right after another": []}
    for _ in range(count):
        for case, step in (("between steps", True), ("right after another", False)):
            if step:
                work.step(work.data.batch)
            start = clock()
            torch._foreach_lerp_(averages, weights, 1 - MOMENTUM)
            found[case].append((clock() - start) * 1e6)
    return Rounds(found)


def quietly() -> logging.Handler:
    """Set up logging as in a job: records are formatted and go to a file that nobody reads."""
    handler = logging.FileHandler("/dev/null")
    for name in ("ignite_hooks", "benchmark.ignite"):
        logger = logging.getLogger(name)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        logger.addHandler(handler)
    return handler


def measure(quick: bool) -> Result:
    """Measure tiny steps, then steps of a millisecond."""
    torch.set_num_threads(1)
    quietly()
    length = 20 if quick else LENGTH
    contenders = CONTENDERS | {name: run for name, run in PEERS.items() if name in peers_there()}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def found(make: Callable[[], Work], rounds: int, every: int) -> Found:
            where = folder / str(len(list(folder.iterdir())))
            where.mkdir()
            pace = {} if quick else dict.fromkeys(PEERS, every)
            return whole_runs(contenders, make, where, EPOCHS, 2 if quick else rounds, pace, {"ours": one_write})

        tiny = found(lambda: Work(length), 20, 4)
        samples = 64 if quick else samples_for(1.0)
        at_1ms = found(lambda: Work(length, samples), 10, 5)
    reason, by_itself = why(), averages_by_hand(50 if quick else 2000)

    def above(rounds: Rounds, case: str) -> Spread:
        return rounds.combined(lambda a, b: a - b, case, "by hand")

    def times(rounds: Rounds, case: str) -> Spread:
        return rounds.combined(lambda a, b: a / b, case, "by hand")

    clock, start, end = tiny.clock, tiny.start, tiny.end
    others = [name for name in contenders if name not in ("by hand", "ours")]
    figures = [
        Figure("the default set, above the same by hand", above(clock, "ours"), "µs", MOST_US, reason),
        Figure("... by the processor time of its thread", above(tiny.cpu, "ours"), "µs", MOST_US, reason),
        Figure("... within epochs, by the processor time", above(tiny.inside_cpu, "ours"), "µs"),
        Figure(
            "... Ignite handlers, within epochs, by the processor time", above(tiny.inside_cpu, "Ignite handlers"), "µs"
        ),
        *(Figure(f"... {name}", above(clock, name), "µs") for name in others),
        Figure("the average in the loop by hand, between two steps", by_itself.spread("between steps"), "µs"),
        Figure("... right after one of its kind", by_itself.spread("right after another"), "µs"),
        Figure("steps of 1 ms: the default set / by hand", times(at_1ms.clock, "ours"), "×", MOST_SHARE, reason),
        Figure("... by the processor time of its thread", times(at_1ms.cpu, "ours"), "×", MOST_SHARE, reason),
        *(Figure(f"... {name}", times(at_1ms.clock, name), "×") for name in others),
        Figure(
            "from the first line of the script to the first batch", start.spread("ours"), "ms", MOST_START_MS, AT_START
        ),
        Figure("... by the processor time of its thread", tiny.start_cpu.spread("ours"), "ms"),
        *(Figure(f"... {name}", start.spread(name), "ms") for name in others),
        Figure(
            "from the last batch to the end of the run, but for one write",
            end.combined(lambda whole, write: whole - write, "ours", "ours, afterwards"),
            "ms",
            MOST_END_MS,
            AT_END,
        ),
        Figure("... by the processor time of its thread, all of it", tiny.end_cpu.spread("ours"), "ms"),
        Figure("... by the clock, all of it", end.spread("ours"), "ms"),
        *(Figure(f"... {name}, all of it", end.spread(name), "ms") for name in ("by hand", *others)),
    ]
    shown = [name for name in contenders if name != "by hand"]
    charts = [
        Chart("default_set", "The default set, above the same by hand", "µs per iteration", by(above, clock, shown)),
        Chart("default_set_1ms", "Steps of 1 ms: a run / by hand", "×", by(times, at_1ms.clock, shown), 1.0, "by hand"),
        Chart("run_start", "From the first line to the first batch", "ms", {n: start.spread(n) for n in shown}),
        Chart("run_end", "From the last batch to the end of the run", "ms", {n: end.spread(n) for n in shown}),
    ]
    kinds = {
        "{}": clock,
        "{}, processor": tiny.cpu,
        "{}, within epochs, processor": tiny.inside_cpu,
        "steps of 1 ms, {}": at_1ms.clock,
        "steps of 1 ms, {}, processor": at_1ms.cpu,
        "to the first batch, {} (ms)": start,
        "to the first batch, {}, processor (ms)": tiny.start_cpu,
        "from the last batch, {} (ms)": end,
        "from the last batch, {}, processor (ms)": tiny.end_cpu,
    }
    values = {form.format(name): found for form, rounds in kinds.items() for name, found in rounds.values.items()}
    about = f"microseconds per iteration of whole runs of {EPOCHS} x {length} iterations, one thread of torch"
    return Result(about, "µs", values, figures, charts)


def by(number: Callable[[Rounds, str], Spread], rounds: Rounds, names: list[str]) -> dict[str, Spread]:
    """Return the bars of a chart."""
    return {name: number(rounds, name) for name in names}


if __name__ == "__main__":
    script(measure, __doc__)
