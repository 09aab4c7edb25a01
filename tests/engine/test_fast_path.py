"""The single handler of an iteration event."""

from __future__ import annotations

import contextlib
import random
import signal
import threading
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ignite.engine import Engine, Events

from ignite_hooks import BaseHook, Runner, attach_hooks
from ignite_hooks.engine.fast_path import TIMED_EVERY
from tests.tools import echo_trainer


def acting(name: str, log: list[Any], **settings: Any) -> BaseHook:
    class Acting(BaseHook):
        def after_train_iter(self, runner: Any) -> None:
            log.append((name, runner.global_step))

    return Acting(name=name, **settings)


def test_any_mixture_of_schedules_fires_in_order_exactly_when_due(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    for round_ in range(20):
        log: list[Any] = []
        given = [
            (f"h{i}", chance.choice([1, 1, 2, 3, 7, 50]), chance.choice([0, 0, 1, 5, 30]), chance.randint(0, 100))
            for i in range(chance.randint(1, 8))
        ]
        hooks = [acting(name, log, interval=n, start=start, priority=p) for name, n, start, p in given]
        trainer = echo_trainer()
        runner = attach_hooks(trainer, hooks, work_dir=tmp_path / str(round_))
        epochs, length = chance.randint(1, 3), chance.randint(1, 150)
        trainer.run(range(length), max_epochs=epochs)
        order = sorted(given, key=lambda hook: -hook[3])
        expected = [
            (name, n)
            for n in range(1, epochs * length + 1)
            for name, interval, start, _ in order
            if n >= start and (n - start) % interval == 0
        ]
        assert log == expected, (seed, round_)
        for name, *_ in given:
            calls = runner.report().tallies[name, "after_train_iter"].calls
            assert calls == [who for who, _ in log].count(name), (seed, round_, name)


def test_calls_of_every_iteration_are_counted_and_1_percent_timed(tmp_path: Path) -> None:
    log: list[Any] = []
    trainer = echo_trainer()
    runner = attach_hooks(trainer, [acting("a", log)], work_dir=tmp_path)
    trainer.run(range(1000), max_epochs=2)
    tally = runner.report().tallies["a", "after_train_iter"]
    assert tally.calls == 2000
    assert 2000 // TIMED_EVERY <= tally.timed <= 2000 // TIMED_EVERY + 2


def test_a_batch_is_not_kept_alive_after_its_event(tmp_path: Path) -> None:
    class Batch:
        pass

    alive: list[Any] = []

    class Looker(BaseHook):
        def after_train_iter(self, runner: Any, data_batch: Any) -> None:
            alive.append(weakref.ref(data_batch))

    def step(engine: Engine, batch: Batch) -> None:
        assert all(reference() is None for reference in alive), "the batches of earlier iterations are gone"

    trainer = Engine(step)
    attach_hooks(trainer, [Looker()], work_dir=tmp_path)
    trainer.run((Batch() for _ in range(250)), epoch_length=250)
    assert len(alive) == 250


def test_stop_by_an_acting_hook_takes_effect_in_that_iteration(tmp_path: Path) -> None:
    for at in (1, 2, 57, TIMED_EVERY + 1, TIMED_EVERY + 2):

        class Stopper(BaseHook):
            def after_train_iter(self, runner: Any, at: int = at) -> None:
                if runner.global_step == at:
                    runner.stop("enough")

        trainer = echo_trainer()
        attach_hooks(trainer, [Stopper()], work_dir=tmp_path)
        trainer.run(range(300))
        assert trainer.state.iteration == at


def test_the_step_before_is_met_with_the_same_number(tmp_path: Path) -> None:
    log: list[Any] = []

    class Both(BaseHook):
        def before_train_iter(self, runner: Any, batch_idx: int, data_batch: Any) -> None:
            log.append(("before", runner.global_step, batch_idx, data_batch))

        def after_train_iter(self, runner: Any, batch_idx: int, outputs: Any) -> None:
            log.append(("after", runner.global_step, batch_idx, outputs))

    trainer = echo_trainer()
    attach_hooks(trainer, [Both(interval=2)], work_dir=tmp_path)
    trainer.run(["a", "b", "c"], max_epochs=2)
    assert log == [
        *[("before", 2, 1, "b"), ("after", 2, 1, "b")],
        *[("before", 4, 0, "a"), ("after", 4, 0, "a")],
        *[("before", 6, 2, "c"), ("after", 6, 2, "c")],
    ]


def test_hook_that_changes_hooks_and_fails_is_treated_as_others(tmp_path: Path) -> None:
    log: list[Any] = []

    class Meddler(BaseHook):
        on_error = "warn"

        def after_train_iter(self, runner: Any) -> None:
            if runner.global_step == 3:
                runner.register_hook(acting("new", log))
                raise ValueError("boom")

    trainer = echo_trainer()
    runner = attach_hooks(trainer, [Meddler(priority=60), acting("old", log)], work_dir=tmp_path)
    trainer.run(range(5))
    assert [n for name, n in log if name == "old"] == [1, 2, 3, 4, 5]
    assert [n for name, n in log if name == "new"] == [4, 5]
    assert runner.report().failures["Meddler"].count == 1


def test_a_failure_costs_the_next_hooks_no_arguments(tmp_path: Path) -> None:
    seen: list[Any] = []

    class Fails(BaseHook):
        on_error = "warn"

        def after_train_iter(self, outputs: Any) -> None:
            if outputs == 3:
                raise ValueError("boom")

    class Sees(BaseHook):
        def after_train_iter(self, runner: Any, outputs: Any) -> None:
            seen.append(outputs)

    trainer = echo_trainer()
    runner = attach_hooks(trainer, [Fails(), Sees()], work_dir=tmp_path)
    trainer.run(range(1, 6), max_epochs=1)
    assert seen == [1, 2, 3, 4, 5]
    assert runner.report().failures.keys() == {"Fails"}


def test_the_handler_rests_while_no_hook_answers_iterations(tmp_path: Path) -> None:
    trainer, counts = echo_trainer(), list[int]()
    attach_hooks(trainer, ["RuntimeInfoHook"], work_dir=tmp_path)
    trainer.add_event_handler(
        Events.ITERATION_STARTED, lambda: counts.append(len(trainer._event_handlers[Events.ITERATION_COMPLETED]))
    )
    trainer.run(range(5), max_epochs=2)
    assert counts == [1, *[0] * 9]
    assert Events.ITERATION_COMPLETED not in trainer._event_handlers


class Noting(BaseHook):
    """Notes what was called in an iteration, the method or what stands in its place."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[str] = []

    def after_train_iter(self) -> None:
        self.log.append("method")

    @property
    def quiet_calls(self) -> dict[Any, Any]:
        return {Noting.after_train_iter: partial(self.log.append, "quiet")}


class NotingItsOwn(Noting):
    def after_train_iter(self) -> None:
        self.log.append("own")


@pytest.mark.parametrize(
    ("cls", "expected"), [(Noting, ["method", "quiet", "quiet"]), (NotingItsOwn, ["own", "own", "own"])]
)
def test_a_quiet_call_replaces_a_method_but_never_one_of_a_subclass(
    cls: type[Noting], expected: list[str], tmp_path: Path
) -> None:
    trainer, hook = echo_trainer(), cls()
    runner = attach_hooks(trainer, [hook], work_dir=tmp_path)
    trainer.run(range(3))
    assert hook.log == expected
    assert runner.report().tallies[cls.__name__, "after_train_iter"].calls == 3


def by_the_script(runner: Runner) -> None:
    runner.stop("enough")


def by_another_thread(runner: Runner) -> None:
    thread = threading.Thread(target=runner.stop, args=("enough",))
    thread.start()
    thread.join()


def by_a_signal(runner: Runner) -> None:
    signal.raise_signal(signal.SIGUSR1)


@pytest.mark.parametrize("stop", [by_the_script, by_another_thread, by_a_signal])
@pytest.mark.parametrize("event", [Events.GET_BATCH_COMPLETED, Events.ITERATION_STARTED, Events.ITERATION_COMPLETED])
def test_a_resting_run_stops_in_the_iteration_in_which_that_is_asked_for(
    event: Any, stop: Callable[[Runner], None], tmp_path: Path
) -> None:
    trainer = echo_trainer()
    runner = attach_hooks(trainer, {"hooks": [], "signals": {"SIGUSR1": "stop"}}, work_dir=tmp_path)
    trainer.add_event_handler(event(once=3), lambda: stop(runner))
    with contextlib.suppress(SystemExit):  # the usual effect of the signal
        trainer.run(range(5), max_epochs=2)
    # The batch of an iteration is fetched before it is counted.
    assert trainer.state.iteration == (4 if event == Events.GET_BATCH_COMPLETED else 3)
    assert runner.stop_reason in ("enough", "SIGUSR1 received")


def test_a_hook_registered_while_the_handler_rests_is_called(tmp_path: Path) -> None:
    log: list[Any] = []
    trainer = echo_trainer()
    runner = attach_hooks(trainer, [], work_dir=tmp_path)
    trainer.add_event_handler(Events.ITERATION_STARTED(once=3), lambda: runner.register_hook(acting("new", log)))
    trainer.add_event_handler(Events.ITERATION_STARTED(once=6), lambda: runner.remove_hook("Acting"))
    trainer.run(range(4), max_epochs=2)
    assert log == [("new", 3), ("new", 4), ("new", 5)]


def test_a_handler_that_many_threads_wake_at_once_is_called_once(tmp_path: Path) -> None:
    trainer = echo_trainer()
    runner = attach_hooks(trainer, [], work_dir=tmp_path)
    counts: list[int] = []

    def wake() -> None:
        threads = [threading.Thread(target=runner.installation.wake) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        counts.append(len(trainer._event_handlers[Events.ITERATION_COMPLETED]))

    trainer.add_event_handler(Events.ITERATION_STARTED, wake)
    trainer.run(range(20))
    assert counts == [1] * 20
