"""Handlers of Ignite as entries of a configuration: attached or called, taken away again, and nothing else."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine, Events
from ignite.handlers import EMAHandler, EpochOutputStore, TerminateOnNan, TimeLimit, Timer

from ignite_hooks import ConfigError, Runner, attach_hooks, build_hook
from ignite_hooks.config.ignite_handlers import handler_class, point_of_event
from ignite_hooks.config.ready import NEEDED
from ignite_hooks.testing import tiny_run


class Run:
    """A small run with its engines, ready for entries."""

    def __init__(self, tmp_path: Path) -> None:
        run = tiny_run()
        self.trainer, self.evaluator, self.data, self.val_data, self.model = (
            run.trainer,
            run.evaluator,
            run.data,
            run.val_data,
            run.model,
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.other = Engine(lambda engine, batch: batch)
        self.tmp_path = tmp_path

    def attach(self, *entries: Any, **services: Any) -> Runner:
        return attach_hooks(
            self.trainer,
            list(entries),
            work_dir=self.tmp_path,
            evaluators={"val": self.evaluator, "other": self.other},
            model=self.model,
            optimizer=self.optimizer,
            **services,
        )

    def problems(self, *entries: Any, **services: Any) -> list[tuple[str, str]]:
        with pytest.raises(ConfigError) as caught:
            self.attach(*entries, **services)
        assert handlers(self.trainer) == handlers(self.evaluator) == {}
        return [tuple(problem) for problem in caught.value.problems]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = Run(tmp_path)
    made.trainer._event_handlers.clear()
    made.evaluator._event_handlers.clear()
    return made


def handlers(engine: Engine) -> dict[Any, int]:
    return {event: len(entries) for event, entries in engine._event_handlers.items() if entries}


def test_a_plain_callable_is_called_at_its_event(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = run.attach({"type": "ignite.handlers.TimeLimit", "limit_sec": 3600})
    run.trainer.run(run.data, max_epochs=2)
    assert run.trainer.state.iteration == 6
    assert list(runner.hooks) == ["TimeLimit"]
    assert [(slot.point.name, slot.how_often) for slot in runner.plan] == [("after_train_iter", "always")]
    monkeypatch.setattr("ignite.handlers.time_limit.time.time", lambda: 1e12)
    run.trainer.run(run.data, max_epochs=4)
    assert run.trainer.state.iteration == 7


def test_the_same_as_an_object(run: Run) -> None:
    called: list[Engine] = []
    runner = run.attach(TimeLimit(3600), TerminateOnNan(), called.append)
    run.trainer.run(run.data, max_epochs=1)
    assert called == [run.trainer] * 3
    assert list(runner.hooks)[:2] == ["TimeLimit", "TerminateOnNan"]


def test_terminate_on_nan_stops_the_run(run: Run) -> None:
    run.attach("ignite.handlers.TerminateOnNan")
    bad = (torch.full((8, 4), torch.nan), run.data[0][1])
    run.trainer.run([run.data[0], bad, run.data[0]], max_epochs=1)
    assert run.trainer.state.iteration == 2


@pytest.mark.parametrize(
    ("entry", "calls"),
    [
        ({}, 6),
        ({"interval": 2}, 3),
        ({"every": "1 epoch", "event": "EPOCH_COMPLETED"}, 2),
        ({"event": "EPOCH_COMPLETED"}, 2),
        ({"event": "EPOCH_STARTED"}, 2),
        ({"event": "ITERATION_STARTED"}, 6),
        ({"event": "STARTED"}, 1),
        ({"event": "COMPLETED"}, 1),
        ({"event": Events.COMPLETED}, 1),
        ({"event": "COMPLETED", "engine": "val"}, 3),
        ({"event": "ITERATION_COMPLETED", "engine": "val"}, 6),
        ({"engine": "trainer"}, 6),
        ({"event": "EPOCH_COMPLETED(every=2)"}, 1),
        ({"event": Events.ITERATION_COMPLETED(every=2)}, 3),
        ({"event": "ITERATION_COMPLETED(once=4)"}, 1),
        ({"event": Events.ITERATION_COMPLETED(after=2)}, 4),
        ({"event": "ITERATION_COMPLETED(every=2)", "engine": "val"}, 3),
    ],
)
def test_engine_and_event(run: Run, entry: dict[str, Any], calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Engine] = []
    monkeypatch.setattr(TimeLimit, "__call__", lambda self, engine: seen.append(engine))
    run.attach({"type": "ignite.handlers.TimeLimit", **entry})
    run.trainer.run(run.data, max_epochs=2)
    for _ in range(3):
        run.evaluator.run(run.val_data)
        run.other.run([1, 2, 3])
    assert seen == [run.evaluator if entry.get("engine") == "val" else run.trainer] * calls


def test_what_attaches_itself_is_attached_and_taken_away(run: Run) -> None:
    before = handlers(run.trainer)
    runner = run.attach({"type": "ignite.handlers.EMAHandler", "model": "@model", "momentum": 0.5})
    handler = runner.hooks["EMAHandler"].config["handler"]
    assert isinstance(handler, EMAHandler)
    run.trainer.run(run.data, max_epochs=1)
    averaged = handler.ema_model.weight.clone()
    assert not torch.equal(averaged, run.model.weight)
    runner.detach()
    run.trainer.run(run.data, max_epochs=2)
    assert torch.equal(handler.ema_model.weight, averaged)
    assert handlers(run.trainer) == before


def test_a_timer_and_a_store_of_outputs(run: Run) -> None:
    runner = run.attach(
        {"type": "ignite.handlers.Timer", "average": True, "arguments": {"step": "ITERATION_COMPLETED"}},
        {"type": "ignite.handlers.EpochOutputStore", "engine": "val"},
        {"type": "ignite.handlers.Timer", "name": "of_val", "engine": "val"},
    )
    run.trainer.run(run.data, max_epochs=2)
    run.evaluator.run(run.val_data)
    assert isinstance(runner.hooks["Timer"].config["handler"], Timer)
    assert runner.hooks["Timer"].config["handler"].step_count == 6
    store = runner.hooks["EpochOutputStore"].config["handler"]
    assert isinstance(store, EpochOutputStore)
    assert len(store.data) == 2
    runner.detach()
    assert handlers(run.trainer) == {}
    assert handlers(run.evaluator) == {}


@pytest.mark.parametrize(
    "given",
    [
        {"engine": "val", "arguments": {"reset_engine": "@trainer"}},
        {"engine": "val"},
        {"engine": "val", "event": "COMPLETED"},
        {"event": "EPOCH_COMPLETED"},
        {},
    ],
    ids=str,
)
def test_early_stopping_of_ignite_stops_wherever_it_is_attached(given: dict[str, Any], run: Run) -> None:
    run.attach(
        {"type": "EvalHook", "save_best": False},
        {
            "type": "ignite.handlers.EarlyStopping",
            "patience": 2,
            "score_function": lambda engine: -run.trainer.state.epoch,
            "trainer": "@trainer",
            **given,
        },
        val_loader=run.val_data,
    )
    run.trainer.run(run.data, max_epochs=10)
    assert run.trainer.state.epoch == 3


def test_a_parameter_scheduler_moves_the_learning_rate(run: Run) -> None:
    runner = run.attach(
        {
            "type": "ignite.handlers.CosineAnnealingScheduler",
            "optimizer": "@optimizer",
            "param_name": "lr",
            "start_value": 1,
            "end_value": 0.0,
            "cycle_size": 4,
        }
    )
    rates: list[float] = []
    run.trainer.add_event_handler(
        Events.ITERATION_COMPLETED, lambda: rates.append(round(run.optimizer.param_groups[0]["lr"], 3))
    )
    run.trainer.run(run.data, max_epochs=1)
    assert rates == [1.0, 0.854, 0.5]
    runner.detach()
    run.trainer.run(run.data, max_epochs=2)
    assert rates == [1.0, 0.854, 0.5, 0.5, 0.5, 0.5]


def test_a_handler_that_chooses_its_event_takes_another(run: Run) -> None:
    entry = {"type": "ignite.handlers.LRScheduler", "lr_scheduler": "@scheduler", "event": "EPOCH_COMPLETED"}
    scheduler = torch.optim.lr_scheduler.StepLR(run.optimizer, step_size=1, gamma=0.1)
    run.attach(entry, scheduler=scheduler)
    assert handlers(run.trainer) == {Events.EPOCH_COMPLETED: 1}


def test_a_checkpoint_of_ignite_gets_its_arguments(run: Run) -> None:
    run.attach(
        {
            "type": "ignite.handlers.ModelCheckpoint",
            "dirname": str(run.tmp_path / "ignite"),
            "filename_prefix": "it",
            "event": "EPOCH_COMPLETED",
            "arguments": {"to_save": {"model": "@model"}},
        }
    )
    run.trainer.run(run.data, max_epochs=2)
    assert [path.name for path in (run.tmp_path / "ignite").iterdir()] == ["it_model_6.pt"]


@pytest.mark.parametrize("around", [{"to_save": {"m": "@model"}}, {"arguments": {"to_save": {"m": "@model"}}}])
def test_a_model_checkpoint_continues_with_its_files(around: dict[str, Any], run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "own"
    entry = {"type": "ignite.handlers.ModelCheckpoint", "dirname": str(folder), "filename_prefix": "x", "n_saved": 2}
    entry |= {"require_empty": False, "event": "EPOCH_COMPLETED", **around}
    runner = run.attach(entry, {"type": "CheckpointHook", "save_best": False})
    run.trainer.run(run.data, max_epochs=2)
    assert sorted(path.name for path in folder.iterdir()) == ["x_m_3.pt", "x_m_6.pt"]
    runner.detach()
    (folder / "x_m_3.pt").unlink()
    run.attach(entry, {"type": "CheckpointHook", "save_best": False}, resume=True)
    run.trainer.run(run.data, max_epochs=4)
    assert sorted(path.name for path in folder.iterdir()) == ["x_m_12.pt", "x_m_9.pt"]


def test_the_plan_shows_the_filter_of_an_event(run: Run) -> None:
    def noted(engine: Engine) -> None: ...

    runner = run.attach(
        {"type": noted, "name": "a", "event": "EPOCH_COMPLETED(every=2)"},
        {"type": noted, "name": "b", "event": "EPOCH_COMPLETED(once=2)"},
    )
    assert {slot.hook: slot.how_often for slot in runner.plan} == {"a": "every 2 epochs", "b": "once=2"}


def test_a_progress_bar(run: Run) -> None:
    if importlib.util.find_spec("tqdm") is None:
        [(place, message)] = run.problems("ignite.handlers.ProgressBar")
        assert place == "hooks[0]"
        assert "tqdm" in message
    else:
        run.attach("ignite.handlers.ProgressBar")
        run.trainer.run(run.data, max_epochs=1)


@pytest.mark.parametrize(
    "name",
    [
        "ignite.handlers.x.y",
        "ignite.handlers.time_limit.TimeLimit",
        "ignite.handlers.",
        "ignite.handlers.__class__",
        "ignite.handlers.__builtins__",
        "ignite.handlers.time_limit",
        "ignite.handlers.global_step_from_engine",
        "ignite.handlers.Engine",
        "ignite.handlers.Events",
        "ignite.handlers.Any",
        "ignite.handlers.TimeLimit ",
        "ignite.handlers.timelimit",
        "ignite.handlers",
        "ignite.engine.Engine",
        "ignite.handlersTimeLimit",
        "os.system",
        "builtins.eval",
        "torch.load",
    ],
)
def test_nothing_else_can_be_named_by_its_path(run: Run, name: str) -> None:
    [(place, message)] = run.problems({"type": name, "limit_sec": 3})
    assert place == "hooks[0].type"
    assert ("has no handler" if name.startswith("ignite.handlers.") else "no hook is called") in message


def test_only_classes_of_handlers_are_found() -> None:
    assert handler_class("ignite.handlers.TimeLimit") is TimeLimit
    with pytest.raises(LookupError, match="has no handler 'TimLimit', did you mean 'TimeLimit'"):
        handler_class("ignite.handlers.TimLimit")


@pytest.mark.parametrize(
    ("entry", "place", "message"),
    [
        ({"limit_sec": "1"}, "limit_sec", "a whole number or null is needed, not '1'"),
        ({"limit_sec": -1}, "limit_sec", "Argument limit_sec should be a positive integer."),
        ({"limit_sek": 1}, "limit_sek", "not a setting of TimeLimit, did you mean 'limit_sec'?"),
        (
            {"priority": 101},
            "priority",
            "101 is not a priority: give a name such as HIGH, or a whole number from 0 to 100",
        ),
        ({"every": "x"}, "every", "'x' does not say how often: write '50 iter', '2 epoch' or '10 min'"),
        ({"engine": "vla"}, "engine", "there is no engine 'vla', did you mean 'val'?"),
        ({"engine": "zzz"}, "engine", "there is no engine 'zzz'; there are trainer, "),
        ({"engine": 3}, "engine", "a string is needed, not 3"),
        (
            {"event": 3},
            "event",
            "3 is not an event of this engine: one of STARTED, EPOCH_STARTED, ITERATION_STARTED, ",
        ),
        ({"event": ["x"]}, "event", "['x'] is not an event of this engine: one of "),
        (
            {"event": "EPOCH_COMPLETE"},
            "event",
            "'EPOCH_COMPLETE' is not an event of this engine, did you mean 'EPOCH_COMPLETED'?",
        ),
        ({"arguments": ["x"]}, "arguments", "a mapping is needed, not ['x']"),
        (
            {"arguments": {"x": 1}},
            "arguments",
            "TimeLimit cannot be called with these: got an unexpected keyword argument 'x'",
        ),
        (
            {"arguments": {"engine": 1}},
            "arguments",
            "TimeLimit cannot be called with these: multiple values for argument 'engine'",
        ),
        (
            {"arguments": {"x": "@nothing"}},
            "arguments.x",
            "there is no service 'nothing': pass nothing=... to attach_hooks()",
        ),
    ],
)
def test_mistakes_of_a_callable(run: Run, entry: dict[str, Any], place: str, message: str) -> None:
    [found] = run.problems({"type": "ignite.handlers.TimeLimit", **entry})
    assert found[0] == f"hooks[0].{place}"
    assert found[1].startswith(message)


@pytest.mark.parametrize(
    ("entry", "place", "message"),
    [
        ({"type": "Timer", "event": "STARTED"}, "event", "Timer chooses its events itself and takes none"),
        (
            {"type": "Timer", "arguments": {"step": "ITERATION_COMPLETE"}},
            "arguments",
            "step is 'ITERATION_COMPLETE', did you mean 'ITERATION_COMPLETED'?",
        ),
        (
            {"type": "Timer", "arguments": {"stop": 1}},
            "arguments",
            "Timer.attach cannot be called with these: got an unexpected keyword argument 'stop'",
        ),
        ({"type": "EMAHandler", "model": "@model", "event": "EPOCH"}, "event", "event is 'EPOCH'"),
        ({"type": "EMAHandler"}, "model", "missing: EMAHandler needs it"),
        (
            {"type": "EMAHandler", "model": "@modell"},
            "model",
            "there is no service 'modell': pass modell=... to attach_hooks()",
        ),
        ({"type": "EMAHandler", "model": 3}, "model", "model should be an instance of nn.Module"),
        (
            {"type": "ModelCheckpoint", "dirname": "x"},
            "arguments",
            "ModelCheckpoint cannot be called with these: missing a required argument: 'to_save'",
        ),
        (
            {"type": "EarlyStopping", "patience": 2, "trainer": "@trainer", "score_function": 3},
            "score_function",
            "a function is needed, not 3",
        ),
    ],
)
def test_mistakes_of_what_attaches_itself(
    run: Run, entry: dict[str, Any], place: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.tmp_path)  # Ignite makes the folder before it looks at the rest.
    [found] = run.problems(entry | {"type": f"ignite.handlers.{entry['type']}"})
    assert found[0] == f"hooks[0].{place}"
    assert found[1].startswith(message)


def test_a_filtered_event_and_a_schedule_are_one_too_many(run: Run) -> None:
    entry = {"type": "ignite.handlers.TimeLimit", "event": "EPOCH_COMPLETED(every=2)", "interval": 3}
    assert run.problems(entry) == [
        ("hooks[0].interval", "the event has a filter that says how often: leave out one of the two")
    ]


def test_an_object_that_ignite_could_not_use_either(run: Run) -> None:
    assert run.problems(object()) == [
        ("hooks[0]", f"not a hook: object can neither be attached to an engine nor called with one; {NEEDED}")
    ]
    assert run.problems(lambda engine, more: None) == [
        (
            "hooks[0]",
            "not a hook: arguments: function cannot be called with these: missing a required argument: 'more'; "
            "write {'type': ..., 'arguments': {'more': ...}}",
        )
    ]


class Counter:
    """Counts its calls, which get no engine."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1


@pytest.mark.parametrize(
    "made", [lambda counter: counter, lambda counter: counter.__call__, lambda counter: lambda: counter()]
)
@pytest.mark.parametrize(("event", "calls"), [(None, 6), ("EPOCH_COMPLETED", 2)])
@pytest.mark.parametrize("registered", [False, True])
def test_a_handler_without_parameters_is_called_as_ignite_does(
    made: Any, event: str | None, calls: int, registered: bool
) -> None:
    counter, trainer = Counter(), Engine(lambda engine, batch: None)
    hook = made(counter) if event is None else build_hook({"type": made(counter), "event": event})
    runner = attach_hooks(trainer, [] if registered else [hook], work_dir="unused")
    if registered:
        runner.register_hook(hook)
    trainer.run([1, 2, 3], max_epochs=2)
    assert counter.calls == calls


def test_the_evaluator_of_an_earlier_eval_hook_can_be_named(run: Run) -> None:
    eval_hook = {"type": "EvalHook", "name": "mine", "dataloader": "@val_loader", "save_best": False}
    timer = {"type": "ignite.handlers.Timer", "engine": "mine"}
    loader = {"val_loader": run.val_data}
    assert run.problems(timer, eval_hook, **loader) == [
        ("Timer.engine", "the evaluator 'mine' is made by a hook further down: move this entry below it")
    ]
    runner = run.attach(eval_hook, timer, **loader)
    assert handlers(runner.evaluators["mine"])[Events.STARTED] > 0


def test_an_entry_is_built_without_a_run() -> None:
    hook = build_hook({"type": "ignite.handlers.TimeLimit", "limit_sec": 5, "name": "limit", "priority": "LOW"})
    assert (hook.name, hook.priority, hook.get_triggered_stages()) == ("limit", "LOW", ["after_train_iter"])


@pytest.mark.parametrize(
    ("event", "engine", "point"),
    [
        ("STARTED", None, "before_run"),
        ("EPOCH_COMPLETED", "trainer", "after_epoch"),
        ("STARTED", "val", "before_val"),
        ("COMPLETED", "mine", "after_val"),
        ("ITERATION_COMPLETED", "test", "after_test_iter"),
    ],
)
def test_the_point_of_an_event(event: str, engine: str | None, point: str) -> None:
    assert point_of_event(event, engine) == point
