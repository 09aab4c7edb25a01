"""Runs are killed whose scripts keep state that nobody passes: samplers, metrics, schedulers, loaders read twice."""

from __future__ import annotations

import hashlib
import os
import random
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from ignite.engine import Engine, Events
from ignite.handlers import CosineAnnealingScheduler, EarlyStopping
from ignite.metrics import Accuracy, RunningAverage
from torch import nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, Dataset, Sampler

from ignite_hooks import attach_hooks
from tests.faults.test_exact_resume import PLACES, Death, die_with_the_parent, flat
from tests.faults.tools import Life, Tell, drawn, saved_in, times, until

pytestmark = [
    pytest.mark.faults,
    pytest.mark.timeout(times(900, 3600)),
    # A script that steps its scheduler before the first step of its optimizer.
    pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step:UserWarning"),
]

LENGTH, EPOCHS, SIZE = 5, 3, 15
HOOKS = [{"type": "CheckpointHook", "by_epoch": False, "interval": 2, "max_keep_ckpts": 2, "save_best": False}]


class Augmented(Dataset[Any]):
    """Data with a random transform of its own."""

    def __init__(self) -> None:
        self.rng = numpy.random.RandomState(5)

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> Any:
        noise = torch.from_numpy(self.rng.normal(size=4)).float()
        return torch.full((4,), index / SIZE) + 0.1 * noise, index % 3


class Plain(Augmented):
    """The same data, always alike."""

    def __getitem__(self, index: int) -> Any:
        return torch.full((4,), index / SIZE), index % 3


class Own(Sampler[int]):
    """Draws an order with a generator or a counter of its own."""

    def __init__(self, kind: str) -> None:
        self.kind, self.calls = kind, 0
        self.python, self.numpy = random.Random(1), numpy.random.default_rng(2)
        self.order = list(range(SIZE))

    def __len__(self) -> int:
        return SIZE

    def __iter__(self) -> Iterator[int]:
        self.calls += 1
        if self.kind == "counter":
            return iter(random.Random(self.calls).sample(range(SIZE), SIZE))
        if self.kind == "numpy":
            return iter(self.numpy.permutation(SIZE).tolist())
        self.python.shuffle(self.order)
        return iter(list(self.order))


def collating(items: Any) -> Any:
    """Mix each batch by a global generator."""
    x, y = torch.utils.data.default_collate(items)
    return x * (1 + 0.1 * MIXING.random()), y


MIXING = random.Random(3)

LOADERS: dict[str, Callable[..., Any]] = {
    "sampler, python": lambda **options: DataLoader(Plain(), 3, sampler=Own("python"), **options),
    "sampler, numpy": lambda **options: DataLoader(Plain(), 3, sampler=Own("numpy"), **options),
    "sampler, counter": lambda **options: DataLoader(Plain(), 3, sampler=Own("counter"), **options),
    "data with a generator": lambda **options: DataLoader(Augmented(), 3, shuffle=True, **options),
    "collate_fn": lambda **options: DataLoader(Plain(), 3, shuffle=True, collate_fn=collating, **options),
}
SCHEDULERS = ("Ignite, iterations", "Ignite, epochs", "torch, iterations", "torch, epochs", "passed")


def script(folder: Path, draw: random.Random, resume: str | None = "auto") -> SimpleNamespace:
    """Return a script that keeps a lot of state itself; `draw` decides which."""
    seed = 0 if not any(folder.glob("*.pth")) else os.getpid()
    random.seed(seed), numpy.random.seed(seed), torch.manual_seed(seed), MIXING.seed(3)
    data, kind, workers = draw.choice(sorted(LOADERS)), draw.choice(SCHEDULERS), draw.choice([0, 0, 0, 1])
    accumulate, twice, asynchronous = draw.choice([1, 2]), draw.random() < 0.5, draw.random() < 0.5
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    mixing = numpy.random.default_rng(9)
    options = {"num_workers": workers, "worker_init_fn": partial(die_with_the_parent, os.getpid())} if workers else {}
    loader = LOADERS[data](**options)
    other = DataLoader(Plain(), 4, shuffle=True, generator=torch.Generator().manual_seed(4))

    def step(engine: Engine, batch: Any) -> Any:
        model.train()
        x, y = batch
        predicted = model(x + 0.05 * mixing.random())
        loss = nn.functional.cross_entropy(predicted, y)
        loss.backward()
        if engine.state.iteration % accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
        return predicted.detach(), y, loss.item()

    trainer, evaluator = Engine(step), Engine(lambda engine, batch: None)
    log: dict[int, Any] = {}
    services: dict[str, Any] = {"model": model, "optimizer": optimizer}
    if kind.startswith("Ignite"):
        event = Events.ITERATION_STARTED if kind.endswith("iterations") else Events.EPOCH_STARTED
        trainer.add_event_handler(event, CosineAnnealingScheduler(optimizer, "lr", 0.05, 0.001, 7))
    else:
        scheduler = lr_scheduler.ExponentialLR(optimizer, 0.9)
        event = Events.ITERATION_COMPLETED if kind.endswith("iterations") else Events.EPOCH_COMPLETED
        trainer.add_event_handler(event, lambda: scheduler.step())
        if kind == "passed":
            services["scheduler"] = scheduler
    Accuracy(lambda output: output[:2]).attach(trainer, "accuracy")
    RunningAverage(output_transform=lambda output: output[2]).attach(trainer, "running")
    stopping = EarlyStopping(20, lambda engine: -trainer.state.epoch, trainer)
    evaluator.add_event_handler(Events.COMPLETED, stopping)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run([0]) and None)

    @trainer.on(Events.ITERATION_COMPLETED(every=3))
    def read_again() -> None:
        # Twice in an epoch: the second loader, and perhaps the training data too.
        for x, _ in other:
            optimizer.param_groups[0]["weight_decay"] = float(x.sum()) / 1e4
        if twice and data in ("sampler, numpy", "data with a generator") and not workers:
            log[-trainer.state.iteration] = [float(x.sum()) for x, _ in loader]

    @trainer.on(Events.EPOCH_COMPLETED)
    def note() -> None:
        metrics = trainer.state.metrics
        log[trainer.state.epoch] = [metrics["accuracy"], metrics["running"], stopping.counter]

    hooks = [{**HOOKS[0], "async_save": asynchronous}]
    attach_hooks(trainer, hooks, evaluators=evaluator, work_dir=folder, resume=resume, **services)

    def digest() -> str:
        ends = [log[EPOCHS], trainer.state.metrics["running"], optimizer.param_groups[0]["lr"]]
        found = hashlib.sha256()
        for value in flat([model.state_dict(), optimizer.state_dict(), ends]):
            found.update(value)
        return found.hexdigest()

    told = f"{data}; {kind}; workers {workers}; accumulate {accumulate}; twice {twice}; async {asynchronous}"
    return SimpleNamespace(
        trainer=trainer, run=lambda: trainer.run(loader, max_epochs=EPOCHS), digest=digest, told=told
    )


@pytest.fixture(scope="module", autouse=True)
def imported(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Import what a script imports late, once, before the lives are forked."""
    script(tmp_path_factory.mktemp("imported"), random.Random(0)).run()


def live(tell: Tell, folder: Path, seed: int, death: Death | None) -> None:
    made = script(folder, random.Random(seed))
    done = 0

    def die() -> None:
        nonlocal done
        done += 1
        if death is not None and done == death.after and made.trainer.state.iteration < LENGTH * EPOCHS:
            if death.once_saved:
                until(lambda: saved_in(folder))
            os.kill(os.getpid(), signal.SIGKILL)

    if death is not None:
        made.trainer.add_event_handler(Events[death.place], die)
    made.trainer.add_event_handler(Events.STARTED, lambda: tell("began", made.trainer.state.iteration))
    made.run()
    tell("ended", made.digest(), made.told)


def whole_life(folder: Path, seed: int, deaths: list[Death]) -> tuple[str, str, int]:
    """Return the digest at the end, what the script does, and how often it was killed."""
    for killed, death in enumerate([*deaths, None]):
        newest = saved_in(folder)
        with Life(partial(live, folder=folder, seed=seed, death=death)) as life:
            told = list(life.tells())
            code = life.wait()
        assert told[0] == ["began", newest], (seed, deaths)
        if code == 0:
            return told[-1][1], told[-1][2], killed
        assert code == -signal.SIGKILL
    raise AssertionError("the last life must reach the end")


def drawn_deaths(draw: random.Random) -> list[Death]:
    deaths = [Death(draw.randint(3, 8), draw.choice(PLACES)) for _ in range(draw.randint(1, 3))]
    deaths[0] = Death(draw.randint(4, 8), draw.choice(PLACES), once_saved=True)
    return deaths


def test_scripts_with_state_of_their_own_end_with_the_same_bits(tmp_path: Path) -> None:
    draw, killed, number = drawn(), 0, 0
    while killed < times(6, 100):
        seed, deaths = draw.randrange(2**32), drawn_deaths(draw)
        wanted, told, _ = whole_life(tmp_path / f"whole {number}", seed, [])
        found, _, times_killed = whole_life(tmp_path / f"killed {number}", seed, deaths)
        assert found == wanted, (told, seed, deaths)
        killed, number = killed + times_killed, number + 1
