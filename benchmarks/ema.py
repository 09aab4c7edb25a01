"""What an update of EMAHook costs, beside one ``_foreach_lerp_`` over cached lists and Ignite's EMAHandler.

In one thread: 161 tensors with 25.6 million parameters as in a ResNet-50, and 2,000 tensors of 64 elements. The check
for numbers that are not finite is in "ours"; "ours, unchecked" shows what it costs. Then exchanging the weights for
the averages, and whole iterations of a training with and without a hook, where "overlap" needs a spare core.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
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

MOST_OF_A_LERP = 1.10
MOST_OF_IGNITE = round(1 / 15, 3)
MOST_MS_OF_A_SWAP = 0.5
MOMENTUM = 0.9999
WHY = "reading the weights once more to see that they are finite is the difference to the line below, which does not"


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

    found = {
        f"{name}: one _foreach_lerp_": timed(lambda: torch._foreach_lerp_(averages, weights, 1 - MOMENTUM)),
        f"{name}: ours": timed(by(ours)),
        f"{name}: ours, unchecked": timed(by(unchecked)),
        f"{name}: EMAHandler": timed(lambda: handler._update_ema_model(engine, "ema_momentum")),
        f"{name}: swap in and out": timed(swap),
    }
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
    "in line": {},
    "overlap": {"overlap": True},
    "every 10": {"interval": 10},
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


def loops(rounds: int, folder: Path) -> Rounds:
    """Return the milliseconds per iteration, measured ten iterations of each training at a time."""
    # A lane runs in a separate thread, which begins with the common number of threads.
    lanes = {f"loop: {name}": Lane(training(name, folder), 10, warm_up=1) for name in LOOPS}

    def ahead(lane: Lane) -> Callable[[], float]:
        return lambda: lane.advance() / 1e6

    found = interleaved({name: ahead(lane) for name, lane in lanes.items()}, rounds)
    for lane in lanes.values():
        lane.end()
    return found


def figures_of(rounds: Rounds) -> list[Figure]:
    """Return the numbers with their targets."""

    def ratio(case: str, to: str) -> Any:
        return rounds.combined(lambda a, b: a / b, case, to)

    big, many, *_ = MODELS
    if f"{big}: ours" not in rounds.values:
        return []
    lerp = f"{big}: one _foreach_lerp_"
    return [
        Figure(f"{big}: ours / one _foreach_lerp_", ratio(f"{big}: ours", lerp), "×", MOST_OF_A_LERP, WHY),
        Figure("... unchecked", ratio(f"{big}: ours, unchecked", lerp), "×", MOST_OF_A_LERP),
        Figure("... EMAHandler", ratio(f"{big}: EMAHandler", lerp), "×"),
        Figure(f"{many}: ours / EMAHandler", ratio(f"{many}: ours", f"{many}: EMAHandler"), "×", MOST_OF_IGNITE),
        Figure("... unchecked", ratio(f"{many}: ours, unchecked", f"{many}: EMAHandler"), "×", MOST_OF_IGNITE),
        Figure("... one _foreach_lerp_", ratio(f"{many}: one _foreach_lerp_", f"{many}: EMAHandler"), "×"),
        Figure(f"{big}: swap in and out", rounds.spread(f"{big}: swap in and out"), "ms", 2 * MOST_MS_OF_A_SWAP),
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
        added = whole.combined(lambda a, b: (a / b - 1) * 100, f"loop: {name}", "loop: none")
        figures.append(Figure(f"loop: {name}, added to none", added, "%"))
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
