"""What an update of EMAHook costs, beside one ``_foreach_lerp_`` over cached lists and Ignite's EMAHandler.

In one thread: 161 tensors with 25.6 million parameters as in a ResNet-50, and 2,000 tensors of 64 elements. The check
for numbers that are not finite is in "ours"; "ours, unchecked" shows what it costs, and "reading the weights" what no
check can be below. Then exchanging the weights for the averages, and whole iterations of a training with and without a
hook: "by default" is tried in line and beside the training first, "in line" is without a thread.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from ignite.engine import Engine, Events
from ignite.handlers import EMAHandler
from measure import Chart, Figure, Lane, Result, Rounds, interleaved, script
from peers import peers_there, timm_ema
from torch import nn

from ignite_hooks import EMAHook, attach_hooks
from ignite_hooks.model.averages import Averages
from ignite_hooks.model.averaging_beside import LOOKS, MEASURED

MOST_OF_A_LERP = 1.02
MOST_OF_A_SMALL_LERP = 1.2
MOST_OF_IGNITE = round(1 / 15, 3)
MOST_MS_OF_A_SWAP = 0.5
MOST_IN_A_LOOP = 1.0
MOMENTUM = 0.9999
TRIED = LOOKS + MEASURED + 2
WHY = (
    "all averages are updated or none, so every weight is read before the first average is written, to see that it is "
    "finite, and again for that: reading the weights alone takes the time of the line below, and an iteration hides it"
)
WHY_SMALL = (
    "between two steps neither data nor code are in the caches, and then the first call of any further operation of "
    "torch takes a third of such an update: see that of a dot product of 64 numbers"
)
WHY_SWAP = "assigning `tensor.data` 4,000 times takes the time of the line below"
WHY_MANY = (
    "concatenating the weights, by one operation of torch, and asking where each of them lies take the shares of the "
    "lines below, nearly all of it; the handler is a loop of Python, which this machine is quick at"
)


def resnet50() -> list[tuple[int, ...]]:
    """Return the shapes of the parameters of a ResNet-50."""
    shapes: list[tuple[int, ...]] = [(64, 3, 7, 7), (64,), (64,)]
    channels = 64
    for blocks, width in zip((3, 4, 6, 3), (64, 128, 256, 512), strict=True):
        for block in range(blocks):
            for out, inner, size in ((width, channels, 1), (width, width, 3), (4 * width, width, 1)):
                shapes += [(out, inner, size, size), (out,), (out,)]
            if block == 0:
                shapes += [(4 * width, channels, 1, 1), (4 * width,), (4 * width,)]
            channels = 4 * width
    return [*shapes, (1000, 2048), (1000,)]


def vit() -> list[tuple[int, ...]]:
    """Return the shapes of the 152 parameters of a ViT-B/16, 86.6 million in all."""
    wide = 768
    block: list[tuple[int, ...]] = [(wide,), (wide,), (3 * wide, wide), (3 * wide,), (wide, wide), (wide,), (wide,)]
    block += [(wide,), (4 * wide, wide), (4 * wide,), (wide, 4 * wide), (wide,)]
    ends: list[tuple[int, ...]] = [(1, 1, wide), (1, 197, wide), (wide, 3, 16, 16), (wide,), (wide,), (wide,)]
    return [*ends, *block * 12, (1000, wide), (1000,)]


MODELS: dict[str, list[tuple[int, ...]]] = {
    "25.6 M in 161": resnet50(),
    "0.13 M in 2,000": [(64,)] * 2000,
    "0.27 M in 6": [(512, 300), (512,), (200, 512), (200,), (10, 200), (10,)],
    "86.6 M in 152": vit(),
}


SMALL, MANY = "0.27 M in 6", "0.13 M in 2,000"


def nothing(*_: Any) -> None:
    """Do nothing, as the step of an engine that does not run."""


def timed(call: Callable[[], Any]) -> Callable[[], float]:
    """Return a measurement: the milliseconds of one call."""

    def run() -> float:
        start = time.perf_counter()
        call()
        return (time.perf_counter() - start) * 1e3

    return run


def updates(name: str, shapes: list[tuple[int, ...]]) -> dict[str, Callable[[], float]]:
    """Return one update by each contender, each with separate averages."""
    model = nn.ParameterList([torch.randn(shape) * 0.02 for shape in shapes])
    ours, unchecked = Averages(model), Averages(model)
    unchecked.weights.strategy.is_finite = lambda _: True  # type: ignore[method-assign]
    weights = [parameter.detach() for parameter in model]
    averages = [weight.clone() for weight in weights]
    handler, engine = EMAHandler(model, momentum=1 - MOMENTUM), Engine(nothing)
    handler.attach(engine)

    def by(own: Averages) -> Callable[[], None]:
        def update() -> None:
            own.refresh()
            own.weights.update(MOMENTUM)

        return update

    def swap() -> None:
        ours.swap_in()
        ours.swap_out()

    parameters, own = list(model), [parameter.data for parameter in model]
    put: Any = torch.Tensor.data
    halves = [weight.flatten()[: weight.numel() // 2] for weight in weights]
    others = [weight.flatten()[-(weight.numel() // 2) :] for weight in weights]
    few = torch.ones(64)

    def assign() -> None:
        deque(map(put.__set__, parameters, averages), maxlen=0)
        deque(map(put.__set__, parameters, own), maxlen=0)

    found = {
        f"{name}: one _foreach_lerp_": timed(lambda: torch._foreach_lerp_(averages, weights, 1 - MOMENTUM)),
        f"{name}: ours": timed(by(ours)),
        f"{name}: ours, unchecked": timed(by(unchecked)),
        f"{name}: EMAHandler": timed(lambda: handler._update_ema_model(engine, "ema_momentum")),
        f"{name}: swap in and out": timed(swap),
        f"{name}: assigning data": timed(assign),
        f"{name}: reading the weights": timed(lambda: [torch.dot(*pair) for pair in zip(halves, others, strict=True)]),
    }
    if name == MANY:
        flat, own_places = torch.cat(weights), list(model)
        found[f"{name}: concatenating"] = timed(lambda: torch.cat(weights, out=flat))
        found[f"{name}: addresses"] = timed(lambda: list(map(torch.Tensor.data_ptr, own_places)))
    if name == SMALL:
        found[f"{name}: a dot product of 64"] = timed(lambda: torch.dot(few, few).item())
    if "MMEngine" in peers_there():
        from mmengine.model import ExponentialMovingAverage

        theirs = ExponentialMovingAverage(model, momentum=1 - MOMENTUM)
        theirs.update_parameters(model)  # the first one only copies
        found[f"{name}: MMEngine"] = timed(lambda: theirs.update_parameters(model))
    if "timm" in peers_there():
        average = timm_ema()(model, decay=MOMENTUM)
        found[f"{name}: timm"] = timed(lambda: average.update(model))
    return found


LOOPS: dict[str, dict[str, Any] | None] = {
    "none": None,
    "by default": {},
    "in line": {"overlap": False},
    "overlap": {"overlap": True},
    "every 10": {"interval": 10, "overlap": False},
    "EMAHandler": None,
}


def training(name: str, folder: Path) -> Engine:
    """Return the training of 12.6 million parameters with iterations of about 55 ms in one thread."""
    torch.manual_seed(0)
    widths = [512, *[1448] * 6, 512]
    layers = [nn.Sequential(nn.Linear(a, b), nn.ReLU()) for a, b in pairwise(widths)]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    x, y = torch.randn(32, 512), torch.randn(32, 512)

    def step(*_: Any) -> None:
        # Gradients that are given back to the system and fetched again cost more than what is measured here.
        optimizer.zero_grad(set_to_none=False)
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()

    trainer = Engine(step)
    settings = LOOPS[name]
    if name == "EMAHandler":
        EMAHandler(model, momentum=1 - MOMENTUM).attach(trainer, event=Events.ITERATION_COMPLETED)
    elif settings is not None:
        attach_hooks(trainer, [EMAHook(**settings)], work_dir=folder / name, model=model, optimizer=optimizer)
    return trainer


def run_of(trainer: Engine) -> Callable[[Any], Any]:
    """Return a function that trains: an epoch of known length, as that of a list or a DataLoader is."""

    def run(data: Any) -> None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Data iterator can not provide data anymore")
            trainer.run(data, max_epochs=1, epoch_length=10**9)

    return run


class Clock:
    """A clock that also notes the processor time of the thread that reads it."""

    def __init__(self) -> None:
        self.noted: list[float] = []

    def __call__(self) -> float:
        self.noted.append(time.thread_time())
        return time.perf_counter()

    @property
    def last(self) -> float:
        """The processor time between the last two readings."""
        return self.noted[-1] - self.noted[-2]


def loops(rounds: int, folder: Path) -> Rounds:
    """Return the milliseconds per iteration, by the clock and of the processor, ten iterations of each at a time."""
    # A lane runs in a separate thread, which begins with the common number of threads.
    clocks = {f"loop: {name}": Clock() for name in LOOPS}
    lanes = {f"loop: {name}": Lane(run_of(training(name, folder)), 10, 1, clocks[f"loop: {name}"]) for name in LOOPS}
    for _ in range(TRIED // 11 + 1):
        lanes["loop: by default"].advance()  # the first updates find out whether they are faster beside the training
    processor: dict[str, list[float]] = {f"{name}, processor": [] for name in lanes}

    def ahead(name: str) -> float:
        milliseconds = lanes[name].advance() / 1e6
        processor[f"{name}, processor"].append(clocks[name].last / 10 * 1e3)
        return milliseconds

    found = interleaved({name: partial(ahead, name) for name in lanes}, rounds)
    for lane in lanes.values():
        lane.end()
    # The first round does not count.
    return Rounds({**found.values, **{name: values[1:] for name, values in processor.items()}})


def figures_of(rounds: Rounds) -> list[Figure]:
    """Return the numbers with their targets."""

    def ratio(case: str, to: str) -> Any:
        return rounds.combined(lambda a, b: a / b, case, to)

    big, many, small, bigger = MODELS
    if f"{big}: ours" not in rounds.values:
        return []

    def of_lerp(name: str, case: str) -> Any:
        return ratio(f"{name}: {case}", f"{name}: one _foreach_lerp_")

    def of_handler(case: str) -> Any:
        return ratio(f"{many}: {case}", f"{many}: EMAHandler")

    found = []
    for name in (big, bigger):
        found += [
            Figure(f"{name}: ours / one _foreach_lerp_", of_lerp(name, "ours"), "×", MOST_OF_A_LERP, WHY),
            Figure("... reading the weights", of_lerp(name, "reading the weights"), "×"),
            Figure("... unchecked", of_lerp(name, "ours, unchecked"), "×", MOST_OF_A_LERP),
            Figure("... EMAHandler", of_lerp(name, "EMAHandler"), "×"),
        ]
    return [
        *found,
        Figure(f"{small}: ours / one _foreach_lerp_", of_lerp(small, "ours"), "×", MOST_OF_A_SMALL_LERP, WHY_SMALL),
        Figure("... unchecked", of_lerp(small, "ours, unchecked"), "×"),
        Figure("... a dot product of 64", of_lerp(small, "a dot product of 64"), "×"),
        Figure(f"{many}: ours / EMAHandler", of_handler("ours"), "×", MOST_OF_IGNITE, WHY_MANY),
        Figure("... unchecked", of_handler("ours, unchecked"), "×", MOST_OF_IGNITE, WHY_MANY),
        *(
            Figure(f"... {case}", of_handler(case), "×")
            for case in ("concatenating", "addresses", "one _foreach_lerp_")
        ),
        Figure(f"{big}: swap in and out", rounds.spread(f"{big}: swap in and out"), "ms", 2 * MOST_MS_OF_A_SWAP),
        Figure(f"{many}: swap in and out", rounds.spread(f"{many}: swap in and out"), "ms", 1.0, WHY_SWAP),
        Figure("... assigning data", rounds.spread(f"{many}: assigning data"), "ms"),
    ]


def measure(quick: bool) -> Result:
    """Measure updates and swaps, then whole iterations."""
    torch.set_num_threads(1)
    models = {name: shapes for name, shapes in MODELS.items() if not quick or "M in 1" not in name}
    cases = {case: run for name, shapes in models.items() for case, run in updates(name, shapes).items()}
    rounds = interleaved(cases, 3 if quick else 25)
    figures = figures_of(rounds)
    with tempfile.TemporaryDirectory() as folder:
        whole = loops(2 if quick else 12, Path(folder))
    for name in list(LOOPS)[1:]:
        by_default = name == "by default"
        for clock in ("", ", processor") if by_default else ("",):
            added = whole.combined(lambda a, b: (a / b - 1) * 100, f"loop: {name}{clock}", f"loop: none{clock}")
            title = "... by the processor time of the loop" if clock else f"loop: {name}, added to none"
            figures.append(Figure(title, added, "%", MOST_IN_A_LOOP if by_default else None))
    contenders = {"ours": "ours", "Ignite EMAHandler": "EMAHandler", "MMEngine": "MMEngine", "timm": "timm"}
    charts = []
    for index, name in enumerate(models):
        names = {who: f"{name}: {case}" for who, case in contenders.items()}
        lerp = f"{name}: one _foreach_lerp_"
        bars = {
            who: rounds.combined(lambda a, b: a / b, case, lerp) for who, case in names.items() if case in rounds.values
        }
        title = f"EMA update, {name} tensors / one _foreach_lerp_"
        charts.append(Chart(f"ema_{index}", title, "×", bars, 1.0, "one _foreach_lerp_"))
    values = {**rounds.values, **whole.values}
    about = "milliseconds in one thread: one update, or one iteration of the loop"
    return Result(about, "ms", values, figures, charts, ".3f")


if __name__ == "__main__":
    script(measure, __doc__)
