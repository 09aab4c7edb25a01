"""Ceilings on the calls and opcodes that hooks add to an iteration: a slowdown fails here without a clock.

The ceilings are what was counted with the Python and torch of ``constraints.txt``, and a little more. Where a change is
worth more than it costs, raise one and say so. Times are in ``docs/benchmarks.md``.
"""

from __future__ import annotations

import itertools
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine, Events, create_supervised_evaluator
from ignite.metrics import Loss, RunningAverage

from benchmarks.meter import FIRST, Cost, Meter, cost_of, mean_cost_of
from ignite_hooks import BaseHook, IterTimerHook, attach_hooks
from ignite_hooks.model.averaging_kernels import TOGETHER
from tests.ranks import run_ranks


class Acting(BaseHook):
    """Answers an iteration with nothing."""

    def after_train_iter(self, runner: Any) -> None:
        pass


class Elsewhere(BaseHook):
    """Answers no iteration."""

    def before_epoch(self, runner: Any) -> None:
        pass


def timer(**settings: Any) -> IterTimerHook:
    """Return a timer whose clock makes every step short, so that the same steps are measured in each run."""
    hook = IterTimerHook(**settings)
    hook.clock = itertools.count(0.0, 1e-6).__next__
    return hook


def ten(cls: type[BaseHook], **settings: Any) -> list[Any]:
    return [cls(name=f"hook{i}", **settings) for i in range(10)]


def logging_set() -> list[Any]:
    return [timer(), {"type": "LoggerHook"}, {"type": "TensorBoardHook"}]


def default_set() -> list[Any]:
    others = ["RuntimeInfoHook", "LoggerHook", "EMAHook", "CheckpointHook", {"type": "EvalHook", "metric": "loss"}]
    return [timer(), *others, {"type": "EarlyStoppingHook", "monitor": "val_loss"}]


NOTHING = Cost(0, 0, 0)
NEVER = {"wait": 1 << 40, "warmup": 1, "active": 1}

QUIET: dict[str, tuple[Callable[[], list[Any]], Cost]] = {
    "hooks absent": (list, NOTHING),
    "without a method for iterations": (lambda: ten(Elsewhere), NOTHING),
    "not due": (lambda: ten(Acting, interval=50), Cost(1, 1, 49)),
    "due": (lambda: ten(Acting), Cost(11, 1, 176)),
    "a checkpoint": (lambda: [{"type": "CheckpointHook", "by_epoch": False, "interval": 1000}], Cost(1, 1, 49)),
    "an evaluation": (lambda: [{"type": "EvalHook", "metric": "loss"}], NOTHING),
    "early stopping": (lambda: [{"type": "EarlyStoppingHook"}, {"type": "EvalHook", "metric": "loss"}], NOTHING),
    "ProfilerHook, waiting": (lambda: [{"type": "ProfilerHook", "schedule": NEVER}], Cost(2, 2, 98)),
    "IterTimerHook": (lambda: [timer()], Cost(2, 2, 184)),
    "LoggerHook": (lambda: ["LoggerHook"], Cost(3, 4, 138)),
    "EMAHook": (lambda: ["EMAHook"], Cost(9.2, 7.3, 342)),
    "the logging set": (logging_set, Cost(6, 5, 300)),
    "the default set": (default_set, Cost(12.2, 11.3, 530)),
}
"""What a quiet iteration may cost above the bare engine."""

LINES: dict[str, tuple[Callable[[], list[Any]], Cost]] = {
    "the logging set": (logging_set, Cost(15, 12, 510)),
    "the default set": (default_set, Cost(20, 17, 720)),
}
"""What an iteration may cost in the mean, lines of the log included: one in 50."""

STARTS = Cost(22_600, 26_900, 735_000)
"""What the default set may cost from `attach_hooks` to the first batch, in a process that has had a run."""
ENDS = Cost(23_600, 27_700, 705_000)
"""What it may cost from the last batch to the end of the run: an evaluation, two checkpoints, a result."""


@pytest.fixture(autouse=True)
def heard() -> Iterator[None]:
    """Add a handler to the log, so that lines are formatted but not shown."""
    logger, handler = logging.getLogger("ignite_hooks"), logging.FileHandler("/dev/null")
    logger.addHandler(handler)
    yield
    logger.removeHandler(handler)
    handler.close()


def engine(hooks: list[Any] | None, folder: Path) -> Engine:
    """Return a trainer whose step does nothing, with a model of four tensors."""
    trainer = Engine(lambda engine, batch: 0.5)
    if hooks is not None:
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 3))
        attach_hooks(
            trainer,
            hooks,
            evaluators=create_supervised_evaluator(model, {"loss": Loss(torch.nn.functional.cross_entropy)}),
            work_dir=folder,
            model=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            val_loader=[(torch.zeros(2, 4), torch.zeros(2, dtype=torch.int64))],
        )
    return trainer


def assert_at_most(cost: Cost, ceiling: Cost) -> None:
    over = {name: (it, most) for name, it, most in zip(Cost._fields, cost, ceiling, strict=True) if it > most}
    assert not over, f"counted and ceiling: {over}"


@pytest.mark.parametrize("name", QUIET)
def test_an_idle_iteration_stays_below_its_ceiling(name: str, tmp_path: Path) -> None:
    hooks, ceiling = QUIET[name]
    trainer, bare = engine(hooks(), tmp_path), cost_of(engine(None, tmp_path))
    # The averages of a small model are brought forward in one of so many iterations.
    cost = mean_cost_of(trainer, FIRST, TOGETHER) if name in ("EMAHook", "the default set") else cost_of(trainer)
    assert_at_most(cost - bare, ceiling)


class Remembers:
    """A handler of a script with a state."""

    def __init__(self) -> None:
        self.count, self.latest = 0, [0.0]

    def __call__(self, engine: Engine) -> None:
        self.count += 1
        self.latest = [*self.latest, 1.0][-9:]

    def state_dict(self) -> dict[str, int]:
        return {"count": self.count}

    def load_state_dict(self, state: Any) -> None:
        self.count = state["count"]


def with_state(trainer: Engine) -> Engine:
    """Attach handlers, a metric and a scheduler of a script, whose state checkpoints hold."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: (optimizer.step(), scheduler.step()))
    trainer.add_event_handler(Events.ITERATION_COMPLETED, Remembers())
    RunningAverage(output_transform=lambda output: output).attach(trainer, "mean")
    return trainer


def test_state_that_a_script_attached_costs_an_iteration_nothing(tmp_path: Path) -> None:
    hooks, ceiling = QUIET["a checkpoint"]
    bare = cost_of(with_state(engine(None, tmp_path)))
    assert_at_most(cost_of(with_state(engine(hooks(), tmp_path))) - bare, ceiling)


def cost_with_lines(name: str, folder: str) -> Cost:
    bare = mean_cost_of(engine(None, Path(folder)), 110, 100)
    return mean_cost_of(engine(LINES[name][0](), Path(folder)), 110, 100) - bare


@pytest.mark.parametrize("name", LINES)
def test_the_mean_with_log_lines_stays_below_its_ceiling(name: str, tmp_path: Path) -> None:
    # In a process of its own: here, trackers and pytest listen to every line, which costs calls that are not ours.
    [counted] = run_ranks(cost_with_lines, name, str(tmp_path), ranks=1)
    assert_at_most(Cost(*counted), LINES[name][1])


class Stretch:
    """Data of one short epoch; counts what a run does before its first batch, and after its last one is asked for."""

    def __init__(self) -> None:
        self.meter = Meter()
        self.start = NOTHING

    def __len__(self) -> int:
        return 3

    def begin(self) -> None:
        sys.setprofile(self.meter.profile)
        sys.settrace(self.meter.trace)

    def stop(self) -> Cost:
        sys.settrace(None)
        sys.setprofile(None)
        counted, self.meter = Cost(self.meter.calls, self.meter.c_calls, self.meter.opcodes), Meter()
        return counted

    def __iter__(self) -> Iterator[int]:
        self.start = self.stop()
        yield from range(2)
        self.begin()
        yield 2


def cost_of_start_and_end(folder: str) -> tuple[Cost, Cost]:
    """Return what the default set costs before the first batch and after the last, in the second run of a process."""
    for run in ("first", "second"):
        stretch = Stretch()
        stretch.begin()
        trainer = engine(default_set(), Path(folder, run))
        trainer.run(stretch, max_epochs=1)
        end = stretch.stop()
    return stretch.start, end


def test_a_start_and_an_end_stay_below_their_ceilings(tmp_path: Path) -> None:
    [(start, end)] = run_ranks(cost_of_start_and_end, str(tmp_path), ranks=1)
    assert_at_most(Cost(*start), STARTS)
    assert_at_most(Cost(*end), ENDS)


def test_an_old_run_costs_no_more_than_a_young_one(tmp_path: Path) -> None:
    young = mean_cost_of(engine(default_set(), tmp_path / "young"), 110, 100)
    old = mean_cost_of(engine(default_set(), tmp_path / "old"), 3010, 100)
    assert old.opcodes <= young.opcodes * 1.02


def test_averaging_costs_the_same_for_any_number_of_small_tensors(tmp_path: Path) -> None:
    def cost(count: int) -> Cost:
        trainer = Engine(lambda engine, batch: 0.5)
        model = torch.nn.ParameterList([torch.zeros(8) for _ in range(count)])
        attach_hooks(trainer, ["EMAHook"], work_dir=tmp_path, model=model)
        return mean_cost_of(trainer, FIRST, TOGETHER)

    assert cost(100) == cost(2000)
