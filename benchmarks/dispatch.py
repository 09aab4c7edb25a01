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

import torch
from ignite.engine import Engine, Events
from measure import Chart, Figure, Lane, Result, Rounds, Spread, interleaved, script
from peers import lightning_follow, mmengine_follow, peers_there

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
    """Return a bare loop that calls the same methods, the lower bound of any dispatch."""
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
    """Return an engine with this many hooks of a class."""
    trainer = Engine(step)
    attach_hooks(trainer, [cls(name=f"hook{i}", **settings) for i in range(count)], work_dir=folder)
    return trainer


def plain(count: int, event: Any = Events.ITERATION_COMPLETED) -> Engine:
    """Return an engine with this many handlers of Ignite."""
    trainer = Engine(step)
    for _ in range(count):
        trainer.add_event_handler(event, Handler().answer)
    return trainer


def all_engines(folder: Path) -> dict[str, Engine]:
    """Return the rows of the table that are engines."""
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
    """Return the rows of the table without an engine."""
    cases = {}
    for count in (1, 10, 50):
        like = [ActingLikeMMEngine() for _ in range(count)]
        cases[f"calls alone, {count}"] = call_case(iterations, [Acting() for _ in range(count)], None)
        cases[f"calls alone, {count} like MMEngine"] = call_case(iterations, like, None, 0, None, None)
    return cases


def all_figures(rounds: Rounds) -> list[Figure]:
    """Return the numbers with their targets."""

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


def peers(folder: Path, iterations: int) -> dict[str, Lane]:
    """Return runs of MMEngine and Lightning with the same hooks: 0, 10 and 50 that act, or that are not due."""
    lanes: dict[str, Lane] = {}
    if "MMEngine" in peers_there():
        from mmengine.hooks import Hook

        class Acts(Hook):  # type: ignore[misc]
            def after_train_iter(
                self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None
            ) -> None:
                pass

        class Waits(Hook):  # type: ignore[misc]
            def after_train_iter(
                self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None
            ) -> None:
                if self.every_n_train_iters(runner, 50):
                    pass

        for count, cls, kind in cases_of(Acts, Waits):
            run = mmengine_follow(folder / f"mmengine{count}{kind}", lambda _: None, [cls() for _ in range(count)])
            lanes[f"MMEngine, {count} {kind}"] = Lane(run, iterations)
    if "Lightning" in peers_there():
        from lightning.pytorch.callbacks import Callback

        class Always(Callback):  # type: ignore[misc]
            def on_train_batch_end(self, trainer: Any, *given: Any) -> None:
                pass

        class Sometimes(Callback):  # type: ignore[misc]
            def on_train_batch_end(self, trainer: Any, *given: Any) -> None:
                if trainer.global_step % 50 == 0:
                    pass

        for count, cls, kind in cases_of(Always, Sometimes):
            run = lightning_follow(folder / f"lightning{count}{kind}", lambda _: None, [cls() for _ in range(count)])
            lanes[f"Lightning, {count} {kind}"] = Lane(run, iterations)
    return lanes


def cases_of(acting: Any, idle: Any) -> list[tuple[int, Any, str]]:
    """Return the case for each number and kind of hooks."""
    return [
        (0, acting, "acting"),
        (10, acting, "acting"),
        (50, acting, "acting"),
        (10, idle, "idle"),
        (50, idle, "idle"),
    ]


def measure(quick: bool) -> Result:
    """Measure all engines, calls and peers in turn."""
    torch.set_num_threads(1)
    # A multiple of 100, so that each part holds as many firings and timed calls as every other.
    iterations, count = 200, 4 if quick else 100
    with tempfile.TemporaryDirectory() as folder:
        lanes = {name: Lane(engine, iterations) for name, engine in all_engines(Path(folder)).items()}
        lanes |= peers(Path(folder), iterations)
        cases = {name: lane.advance for name, lane in lanes.items()} | all_calls(iterations)
        rounds = interleaved(cases, count)
        for lane in lanes.values():
            lane.end()
    shown = {
        "ours": "ours, {}",
        "Ignite handlers": "handlers, {}",
        "MMEngine": "MMEngine, {}",
        "Lightning": "Lightning, {}",
    }

    def bars(kind: str) -> dict[str, Spread]:
        names = {who: pattern.format(kind) for who, pattern in shown.items()}
        found = {who: rounds.values[name] for who, name in names.items() if name in rounds.values}
        return {who: Spread.of([value / 1e3 for value in values]) for who, values in found.items()}

    bare = rounds.spread("bare engine").median / 1e3
    charts = [
        Chart(f"dispatch_{name}", title, "µs per iteration", bars(kind), bare, "bare Ignite engine")
        for name, kind, title in (
            ("acting", "50 acting", "50 hooks that act at every iteration"),
            ("idle", "50 idle", "50 hooks that act every 50 iterations"),
        )
    ]
    about = f"nanoseconds per iteration of an empty step: {count} interleaved rounds of {iterations:,} iterations"
    return Result(about, "ns", rounds.values, all_figures(rounds), charts)


if __name__ == "__main__":
    script(measure, __doc__)
