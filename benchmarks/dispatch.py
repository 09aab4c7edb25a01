"""What hooks cost per iteration, beside the bare Ignite engine and Ignite's own handlers.

Times are nanoseconds per iteration of an engine whose step does nothing. "idle" hooks answer ``after_train_iter``
every 50 iterations: "between firings" leaves the firings out by a start no run reaches (the plan and the handler are
the same), the other rows hold them. "acting" hooks answer at every iteration with an empty body.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from itertools import repeat
from pathlib import Path
from typing import Any

from ignite.engine import Engine, Events
from measure import (
    Figure,
    Lane,
    Rounds,
    arguments,
    interleaved,
    print_figures,
    print_table,
    write_json,
)

from ignite_hooks import BaseHook, attach_hooks

MOST_RATIO = 1.35
MOST_NS = 45.0
MOST_NS_AS_SHARE = round(MOST_NS / 193, 3)
"""The same target on a machine of any speed: where it was set, a handler of Ignite added 193 ns."""

MOST_SHARE = 0.25
MOST_UNUSED = 1.03
"""What counts as no measurable cost: less than the quartiles of a quiet run are apart."""

UNREACHED = 1 << 40


class Acting(BaseHook):
    """Answers every iteration and wants the runner."""

    def after_train_iter(self, runner: Any) -> None:
        pass


class ActingLikeMMEngine(BaseHook):
    """Answers every iteration with the signature of MMEngine."""

    def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        pass


class Elsewhere(BaseHook):
    """Answers no point of an iteration."""

    def before_epoch(self, runner: Any) -> None:
        pass


class Handler:
    """What a plain handler of Ignite does here: nothing, in a method that receives the engine."""

    def answer(self, engine: Engine) -> None:
        pass


def call_case(iterations: int, hooks: list[Any], *given: Any) -> Callable[[], float]:
    """The same methods called in a bare loop: what no dispatch can be below."""
    methods = [hook.after_train_iter for hook in hooks]

    def with_one(runner: Any) -> None:
        for _ in repeat(None, iterations):
            for method in methods:
                method(runner)

    def with_four(runner: Any, index: int, batch: Any, output: Any) -> None:
        for _ in repeat(None, iterations):
            for method in methods:
                method(runner, index, batch, output)

    loop = with_one if len(given) == 1 else with_four

    def run() -> float:
        start = time.perf_counter()
        loop(*given)
        return (time.perf_counter() - start) / iterations * 1e9

    return run


def step(engine: Engine, batch: Any) -> None:
    """Train nothing."""


def ours(folder: Path, count: int, cls: type[BaseHook], **settings: Any) -> Engine:
    """An engine with so many hooks of a class."""
    trainer = Engine(step)
    attach_hooks(trainer, [cls(name=f"hook{i}", **settings) for i in range(count)], work_dir=folder)
    return trainer


def plain(count: int, event: Any = Events.ITERATION_COMPLETED) -> Engine:
    """An engine with so many handlers of Ignite."""
    trainer = Engine(step)
    for _ in range(count):
        trainer.add_event_handler(event, Handler().answer)
    return trainer


def all_engines(folder: Path) -> dict[str, Engine]:
    """The rows of the table that are engines."""
    engines = {
        "bare engine": plain(0),
        "ours, no hooks": ours(folder, 0, Acting),
        "ours, 50 without iteration points": ours(folder, 50, Elsewhere),
    }
    for count in (10, 50):
        engines[f"ours, {count} idle, between firings"] = ours(folder, count, Acting, interval=50, start=UNREACHED)
        engines[f"ours, {count} idle"] = ours(folder, count, Acting, interval=50)
        engines[f"handlers, {count} idle"] = plain(count, Events.ITERATION_COMPLETED(every=50))
    for count in (1, 10, 50):
        engines[f"ours, {count} acting"] = ours(folder, count, Acting)
        engines[f"ours, {count} acting like MMEngine"] = ours(folder, count, ActingLikeMMEngine)
        engines[f"handlers, {count} acting"] = plain(count)
    return engines


def all_calls(iterations: int) -> dict[str, Callable[[], float]]:
    """The rows of the table without an engine."""
    cases = {}
    for count in (1, 10, 50):
        like = [ActingLikeMMEngine() for _ in range(count)]
        cases[f"calls alone, {count}"] = call_case(iterations, [Acting() for _ in range(count)], None)
        cases[f"calls alone, {count} like MMEngine"] = call_case(iterations, like, None, 0, None, None)
    return cases


def all_figures(rounds: Rounds) -> list[Figure]:
    """The numbers with their targets."""

    def ratio(case: str, to: str) -> Any:
        return rounds.combined(lambda a, b: a / b, case, to)

    def slope(pattern: str) -> Any:
        return rounds.combined(lambda low, high: (high - low) / 40, pattern.format(10), pattern.format(50))

    def four(combine: Callable[[float, float], float], a: str, b: str) -> Any:
        names = [pattern.format(count) for pattern in (a, b) for count in (10, 50)]
        return rounds.combined(lambda al, ah, bl, bh: combine((ah - al) / 40, (bh - bl) / 40), *names)

    def above(a: str, b: str) -> Any:
        return four(lambda x, y: x - y, a, b)

    def share(a: str, b: str) -> Any:
        return four(lambda x, y: x / y, a, b)

    def above_as_share(a: str, b: str, to: str) -> Any:
        names = [pattern.format(count) for pattern in (a, b, to) for count in (10, 50)]
        return rounds.combined(lambda al, ah, bl, bh, cl, ch: ((ah - al) - (bh - bl)) / (ch - cl), *names)

    acting, like, handlers = "ours, {} acting", "ours, {} acting like MMEngine", "handlers, {} acting"
    alone, alone_like = "calls alone, {}", "calls alone, {} like MMEngine"
    bare = "bare engine"
    return [
        Figure("50 idle hooks, between firings / bare", ratio("ours, 50 idle, between firings", bare), "×", MOST_RATIO),
        Figure("50 idle hooks, with firings / bare", ratio("ours, 50 idle", bare), "×"),
        Figure("50 idle handlers of Ignite / bare", ratio("handlers, 50 idle", bare), "×"),
        Figure("each further acting hook, above the call", above(acting, alone), "ns", MOST_NS),
        Figure("... with the signature of MMEngine", above(like, alone_like), "ns", MOST_NS),
        Figure(
            "... above the call / handler of Ignite", above_as_share(acting, alone, handlers), "×", MOST_NS_AS_SHARE
        ),
        Figure("each further acting hook / handler of Ignite", share(acting, handlers), "×", MOST_SHARE),
        Figure("... with the signature of MMEngine", share(like, handlers), "×"),
        Figure(
            "50 hooks without iteration points / no hooks",
            ratio("ours, 50 without iteration points", "ours, no hooks"),
            "×",
            MOST_UNUSED,
        ),
        Figure("attached without hooks / bare", ratio("ours, no hooks", bare), "×"),
        Figure("each further acting hook, whole", slope(acting), "ns"),
        Figure("... with the signature of MMEngine", slope(like), "ns"),
        Figure("each further handler of Ignite, whole", slope(handlers), "ns"),
        Figure("the call alone", slope(alone), "ns"),
        Figure("... with the signature of MMEngine", slope(alone_like), "ns"),
    ]


def main() -> None:
    """Measure, print, write."""
    given = arguments(__doc__)
    # A multiple of 100, so that each part holds as many firings and timed calls as every other.
    iterations, count = 200, 10 if given.quick else 300
    with tempfile.TemporaryDirectory() as folder:
        lanes = {name: Lane(engine, iterations) for name, engine in all_engines(Path(folder)).items()}
        cases = {name: lane.advance for name, lane in lanes.items()} | all_calls(iterations)
        rounds = interleaved(cases, count)
        for lane in lanes.values():
            lane.end()
    print(f"nanoseconds per iteration: {count} interleaved rounds of {iterations:,} iterations\n")
    bare = "bare engine"
    rows = []
    for name in cases:
        median, quartiles = rounds.spread(name).text(",.0f")
        times = rounds.combined(lambda a, b: a / b, name, bare).median
        rows.append([name, median, quartiles, "" if name.startswith("calls") else f"{times:.2f}"])
    print_table(["case", "median", "quartiles", "× bare"], rows)
    figures = all_figures(rounds)
    print_figures(figures)
    write_json(given.json, rounds, figures)


if __name__ == "__main__":
    main()
