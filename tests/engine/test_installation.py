"""The hooks on their engines: priorities, an unmodified script, and nothing left behind."""

from __future__ import annotations

import copy
import gc
import random
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine, EventEnum, Events
from ignite.handlers import Checkpoint, DiskSaver, FastaiLRFinder
from ignite.metrics import Average, Loss, RunningAverage

from ignite_hooks import BaseHook, ConfigError, HookEvents, Priority, Runner, attach_hooks
from ignite_hooks.testing import RecordingHook, tiny_run
from tests.tools import Log, echo_trainer

EVERY_EVENT = [event for event in Events if event not in (Events.EXCEPTION_RAISED, Events.TERMINATE_SINGLE_EPOCH)]


def test_priorities_rise_before_fall_after_and_ties_keep_their_order(tmp_path: Path) -> None:
    given = [("a", 50), ("b", 10), ("c", 90), ("d", 50), ("e", 10)]
    for seed in range(5):
        shuffled = random.Random(seed).sample(given, len(given))
        log: Log = []
        trainer = echo_trainer()
        hooks = [RecordingHook(log=log, name=name, priority=priority) for name, priority in shuffled]
        attach_hooks(trainer, hooks, work_dir=tmp_path / str(seed))
        trainer.run([1], max_epochs=1)
        ascending = [name for name, _ in sorted(shuffled, key=lambda item: item[1])]
        descending = [name for name, _ in sorted(shuffled, key=lambda item: -item[1])]
        for point in {point for _, point, *_ in log}:
            called = [name for name, at, *_ in log if at == point]
            assert called == (ascending if point.startswith("before_") else descending), (seed, point)


def test_only_a_mapping_replaces_priorities_per_point(tmp_path: Path) -> None:
    log: Log = []

    class Average(BaseHook):
        priority = Priority.ABOVE_NORMAL
        point_priority = {"after_train_iter": 95}

        def after_train_iter(self) -> None:
            log.append((self.name, "iter"))

        def after_epoch(self) -> None:
            log.append((self.name, "epoch"))

    hooks = [Average(name="plain", priority=20), Average(name="mapped", priority={"after_train_iter": 5})]
    trainer = echo_trainer()
    runner = attach_hooks(trainer, hooks, work_dir=tmp_path)
    assert [(s.hook, s.priority) for s in runner.plan.at("after_train_iter")] == [("plain", 95), ("mapped", 5)]
    assert [(s.hook, s.priority) for s in runner.plan.at("after_epoch")] == [("mapped", 40), ("plain", 20)]
    trainer.run([1])
    assert log == [("plain", "iter"), ("mapped", "iter"), ("mapped", "epoch"), ("plain", "epoch")]


# -- an unmodified script behaves the same ---------------------------------------------------------------------


def mnist_like(hooks: Any, work_dir: Path, *, metrics_first: bool, known_loaders: bool) -> tuple[Log, Any]:
    """Run a script like Ignite's MNIST example; return everything its handlers saw, and the weights."""
    tiny = tiny_run()
    trainer, evaluator, data, val_data, model = tiny.trainer, tiny.evaluator, tiny.data, tiny.val_data, tiny.model
    log: Log = []

    def attach() -> None:
        if hooks is not None:
            loaders = {"train_loader": data, "val_loader": val_data} if known_loaders else {}
            attach_hooks(trainer, hooks, evaluators=evaluator, work_dir=work_dir, model=model, **loaders)

    if not metrics_first:
        attach()
    RunningAverage(output_transform=lambda loss: loss).attach(trainer, "running")
    Average(output_transform=lambda loss: loss).attach(trainer, "mean_loss")
    Loss(torch.nn.CrossEntropyLoss()).attach(evaluator, "loss")

    @trainer.on(Events.ITERATION_COMPLETED(every=2))
    def log_training(engine: Engine) -> None:
        log.append(("log", engine.state.iteration, engine.state.output, dict(engine.state.metrics)))

    @trainer.on(Events.EPOCH_COMPLETED)
    def validate(engine: Engine) -> None:
        for loader in (data, val_data):
            evaluator.run(loader)
            log.append(("validated", engine.last_event_name.name, dict(evaluator.state.metrics)))

    for event in EVERY_EVENT:
        for kind, engine in (("trainer", trainer), ("evaluator", evaluator)):
            engine.add_event_handler(
                event,
                lambda e, kind=kind, name=event.name: log.append(
                    (kind, name, e.last_event_name.name, e.state.epoch, e.state.iteration, e.state.output is None)
                ),
            )
    if metrics_first:
        attach()
    trainer.run(data, max_epochs=3)
    return log, {name: value.clone() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("metrics_first", [True, False])
@pytest.mark.parametrize(
    ("hooks", "known_loaders"),
    [
        ([], False),
        (["CheckpointHook", "EarlyStoppingHook"], False),
        ([{"type": "CheckpointHook", "best_metric": "val_loss", "by_epoch": False, "interval": 2}], True),
    ],
)
def test_a_plain_script_sees_the_same_events_metrics_and_weights(
    hooks: Any, known_loaders: bool, metrics_first: bool, tmp_path: Path
) -> None:
    options = {"metrics_first": metrics_first, "known_loaders": known_loaders}
    alone, weights_alone = mnist_like(None, tmp_path / "alone", **options)
    hooked, weights_hooked = mnist_like(hooks, tmp_path / "hooked", **options)
    assert hooked == alone
    assert all(torch.equal(weights_alone[name], weights_hooked[name]) for name in weights_alone)


def test_a_progress_bar_of_ignite_still_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm")
    from ignite.handlers import ProgressBar

    tiny = tiny_run()
    trainer, data, model = tiny.trainer, tiny.data, tiny.model
    ProgressBar().attach(trainer, output_transform=lambda loss: {"loss": loss})
    attach_hooks(trainer, ["CheckpointHook"], work_dir=tmp_path, model=model)
    trainer.run(data, max_epochs=2)
    assert "Epoch [2/2]" in capsys.readouterr().err


def handlers_of(engine: Engine) -> dict[Any, list[Any]]:
    return {event: list(handlers) for event, handlers in engine._event_handlers.items() if handlers}


def test_detach_restores_the_engines_and_attaching_again_works(tmp_path: Path) -> None:
    tiny = tiny_run()
    trainer, evaluator, data, val_data = tiny.trainer, tiny.evaluator, tiny.data, tiny.val_data
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run(val_data))

    def look() -> Any:
        return [
            (handlers_of(engine), list(engine._allowed_events), sorted(vars(engine))) for engine in (trainer, evaluator)
        ]

    before = look()
    for _ in range(2):
        log: Log = []
        runner = attach_hooks(
            trainer, [RecordingHook(log=log, name="recorder")], evaluators=evaluator, work_dir=tmp_path
        )
        trainer.add_event_handler(HookEvents.BEFORE_SAVE_CHECKPOINT, lambda: None)
        trainer.run(data, max_epochs=1)
        trainer.state.max_epochs = None
        assert log
        runner.detach()
        assert look() == before
    with pytest.raises(RuntimeError, match="not attached"):
        _ = next(iter(runner.hooks.values())).runner


def test_attaching_twice_is_refused_and_says_what_to_do(tmp_path: Path) -> None:
    tiny = tiny_run()
    trainer, evaluator = tiny.trainer, tiny.evaluator
    attach_hooks(trainer, [], evaluators=evaluator, work_dir=tmp_path)
    with pytest.raises(ConfigError, match=r"trainer already has hooks.*detach\(\).*register_hook"):
        attach_hooks(trainer, [], work_dir=tmp_path)
    other = echo_trainer()
    with pytest.raises(ConfigError, match="evaluator 'val' already has hooks"):
        attach_hooks(other, [], evaluators=evaluator, work_dir=tmp_path)
    assert "run" not in vars(other)


def test_a_copy_of_an_engine_runs_itself(tmp_path: Path) -> None:
    trainer = echo_trainer()
    attach_hooks(trainer, [], work_dir=tmp_path)
    twin = copy.deepcopy(trainer)
    twin.run([1, 2], max_epochs=2)
    assert (twin.state.iteration, trainer.state.iteration) == (4, 0)


def test_a_run_that_was_already_wrapped_stays_wrapped(tmp_path: Path) -> None:
    trainer = echo_trainer()
    seen = []

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        seen.append("wrapped")
        return Engine.run(trainer, *args, **kwargs)

    trainer.run = wrapped
    runner = attach_hooks(trainer, [], work_dir=tmp_path)
    trainer.run([1])
    runner.detach()
    assert seen == ["wrapped"]
    assert trainer.run is wrapped


def test_nothing_keeps_an_engine_alive(tmp_path: Path) -> None:
    tiny = tiny_run()
    trainer, data = tiny.trainer, tiny.data
    trainer.run(data)  # the first optimizer step of a process imports much, and keeps its frames
    gc.collect()
    gc.disable()
    try:
        tiny = tiny_run()
        trainer, evaluator, data, val_data = tiny.trainer, tiny.evaluator, tiny.data, tiny.val_data
        log: Log = []
        services = {"val_loader": val_data}
        runner = attach_hooks(
            trainer,
            ["EvalHook", RecordingHook(log=log, name="recorder"), "CheckpointHook"],
            evaluators=evaluator,
            work_dir=tmp_path,
            **services,
        )
        trainer.run(data, max_epochs=1)
        with pytest.raises(TypeError, match="iterable"):
            trainer.run(0, max_epochs=2)  # type: ignore[arg-type]
        gone = weakref.ref(trainer), weakref.ref(evaluator), weakref.ref(runner)
        del tiny, trainer, evaluator, runner
        assert [reference() for reference in gone] == [None, None, None]
    finally:
        gc.enable()


def test_a_state_and_metrics_that_the_script_replaces_are_followed(tmp_path: Path) -> None:
    seen: Log = []

    class Looker(BaseHook):
        def after_train_iter(self, runner: Any, metrics: Any) -> None:
            seen.append((runner.global_step, metrics["mine"]))

    trainer = echo_trainer()

    @trainer.on(Events.ITERATION_COMPLETED)
    def replace(engine: Engine) -> None:
        engine.state.metrics = {"mine": engine.state.iteration * 10.0}
        engine.state = copy.copy(engine.state)

    attach_hooks(trainer, [Looker()], work_dir=tmp_path)
    trainer.run([1, 2, 3], max_epochs=1)
    assert seen == [(1, 10.0), (2, 20.0), (3, 30.0)]


# -- hooks and services that come and go ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "point", ["before_epoch", "before_train_iter", "after_train_iter", "after_epoch", "after_val_iter"]
)
def test_a_hook_can_be_added_and_removed_at_any_point(point: str, tmp_path: Path) -> None:
    tiny = tiny_run()
    trainer, evaluator, data, val_data = tiny.trainer, tiny.evaluator, tiny.data, tiny.val_data
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run(val_data))
    log: Log = []
    new = RecordingHook(log=log, name="new")

    def act(self: BaseHook, runner: Any) -> None:
        if runner.trainer.state.epoch == 1 and "new" not in runner.hooks:
            runner.register_hook(new)
            log.append(("added",))
        elif runner.trainer.state.epoch == 3 and "new" in runner.hooks:
            runner.remove_hook("new")
            log.append(("removed",))

    actor = type("Actor", (BaseHook,), {point: act})(priority=50)
    attach_hooks(trainer, [actor], evaluators=evaluator, work_dir=tmp_path)
    trainer.run(data, max_epochs=4)
    added, removed = log.index(("added",)), log.index(("removed",))
    assert [at for _, at, *_ in log[:added]] == ["before_run", "before_train"]
    *rest, last = [at for _, at, *_ in log[removed + 1 :]]
    assert all(at == point for at in rest), "only the point that was being handled is finished"
    assert last == "cleanup"
    assert log[-1][2] == 3, "and not at the end of the run"
    during = [at for _, at, *_ in log[added + 1 : removed]]
    assert during.count("before_train_epoch") >= 2
    assert "cleanup" not in during


def test_a_service_registered_during_a_run_reaches_later_calls(tmp_path: Path) -> None:
    seen: Log = []

    class User(BaseHook):
        def before_run(self, runner: Any) -> None:
            runner.register_service("board", "new")

        def after_train_iter(self, board: str = "none") -> None:
            seen.append((board,))

    trainer = echo_trainer()
    attach_hooks(trainer, [User()], work_dir=tmp_path)
    trainer.run([1])
    assert seen == [("new",)]


class ScriptEvents(EventEnum):
    """An event of the script."""

    MINE_DONE = "mine_done"


def test_detach_leaves_events_that_the_script_registered_later(tmp_path: Path) -> None:
    trainer, seen = echo_trainer(), []
    before = list(trainer._allowed_events)
    runner = attach_hooks(trainer, [Checkpoint({"trainer": trainer}, DiskSaver(tmp_path / "own"))], work_dir=tmp_path)
    trainer.register_events(*ScriptEvents, event_to_attr={ScriptEvents.MINE_DONE: "epoch"})
    trainer.add_event_handler(ScriptEvents.MINE_DONE, lambda: seen.append("mine"))
    runner.detach()
    trainer.fire_event(ScriptEvents.MINE_DONE)
    assert seen == ["mine"]
    assert trainer._allowed_events == [*before, ScriptEvents.MINE_DONE]


EVENTS_OF_HOOKS = [
    *("before_run", "before_train", "before_epoch", "before_train_iter", "after_train_iter", "after_train_epoch"),
    *("before_val", "before_val_epoch", "before_val_iter", "after_val_iter", "after_val_epoch", "after_val"),
    *("after_epoch", "before_save_checkpoint", "after_save_checkpoint", "after_train", "after_run", "cleanup"),
]


class Detaches(BaseHook):
    """Detaches at one point."""

    def __init__(self, point: str, **settings: Any) -> None:
        super().__init__(**settings)
        self.point = point

    def answers(self) -> Any:
        return {self.point: self.detach}

    def detach(self, runner: Any) -> None:
        runner.detach()


@pytest.mark.parametrize("point", EVENTS_OF_HOOKS)
def test_a_hook_may_detach_at_any_point(point: str, tmp_path: Path) -> None:
    tiny, log = tiny_run(), []
    trainer, evaluator = tiny.trainer, tiny.evaluator
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run(tiny.val_data))
    before = [(handlers_of(engine), sorted(vars(engine))) for engine in (trainer, evaluator)]
    recorders = [RecordingHook(log=log, name=name, priority=at) for name, at in (("first", 1), ("last", 99))]
    hooks = [*recorders, Detaches(point, priority=50), {"type": "CheckpointHook", "save_best": False}]
    runner = attach_hooks(trainer, hooks, evaluators=evaluator, work_dir=tmp_path, model=tiny.model)
    assert trainer.run(tiny.data, max_epochs=2).iteration == 6
    assert [(handlers_of(engine), sorted(vars(engine))) for engine in (trainer, evaluator)] == before
    calls = [(hook, at) for hook, at, *_ in log]
    assert [call for call in calls if call[1] == "cleanup"] == [("last", "cleanup"), ("first", "cleanup")]
    assert calls[-2:] == [("last", "cleanup"), ("first", "cleanup")]
    # Neither of the others was called once more than the other.
    assert {at: calls.count(("first", at)) for _, at in calls} == {at: calls.count(("last", at)) for _, at in calls}
    assert ("first", point) in calls
    assert getattr(recorders[0], "_runner", None) is None
    assert not runner.state.running


def test_a_hook_may_detach_from_a_run_that_fails(tmp_path: Path) -> None:
    trainer = Engine(lambda engine, batch: 1 / 0)
    attach_hooks(trainer, [Detaches("on_exception")], work_dir=tmp_path)
    with pytest.raises(ZeroDivisionError):
        trainer.run([1])
    assert handlers_of(trainer) == {}
    with pytest.raises(ZeroDivisionError):
        trainer.run([1])


@pytest.mark.parametrize("of", ["trainer", "evaluator"])
@pytest.mark.parametrize("event", ["STARTED", "EPOCH_STARTED", "ITERATION_COMPLETED", "EPOCH_COMPLETED", "COMPLETED"])
def test_a_script_may_detach_in_any_event(event: str, of: str, tmp_path: Path) -> None:
    tiny, log = tiny_run(), []
    engine = getattr(tiny, of)
    engine.add_event_handler(Events[event], lambda: runner.detach())
    tiny.trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: tiny.evaluator.run(tiny.val_data))
    before = [handlers_of(each) for each in (tiny.trainer, tiny.evaluator)]
    hooks = [RecordingHook(log=log, name="recorder")]
    runner = attach_hooks(tiny.trainer, hooks, evaluators=tiny.evaluator, work_dir=tmp_path)
    assert tiny.trainer.run(tiny.data, max_epochs=2).iteration == 6
    assert [at for _, at, *_ in log][-1] == "cleanup"
    assert [handlers_of(each) for each in (tiny.trainer, tiny.evaluator)] == before


def test_a_trial_of_learning_rates_has_no_hooks_and_resumes_nothing(tmp_path: Path) -> None:
    def train(*, find: bool, resume: Any, work_dir: Path) -> tuple[Any, Runner, Log]:
        tiny, log = tiny_run(), []
        tiny.trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: tiny.evaluator.run(tiny.val_data))
        optimizer = tiny.services["optimizer"]
        # A save beside the training is reported when it is done, which may be an iteration later.
        saves = {"type": "CheckpointHook", "async_save": False}
        hooks = [RecordingHook(log=log, name="recorder"), saves, "EMAHook"]
        options = {"work_dir": work_dir, "resume": resume, "model": tiny.model, "optimizer": optimizer}
        runner = attach_hooks(tiny.trainer, hooks, evaluators=tiny.evaluator, **options)
        if find:
            to_save = {"model": tiny.model, "optimizer": optimizer}
            with (
                FastaiLRFinder().attach(tiny.trainer, to_save=to_save, num_iter=4, end_lr=1.0, diverge_th=1e9) as trial,
                pytest.warns(UserWarning, match="without loss diverging"),
            ):
                trial.run(tiny.data)
            assert log == []
            assert not list(runner.work_dir.glob("*.pth")) or resume
        tiny.trainer.run(tiny.data, max_epochs=3)
        return tiny.model.state_dict(), runner, log

    alone, _, calls = train(find=False, resume=None, work_dir=tmp_path / "alone")
    found, runner, same_calls = train(find=True, resume=None, work_dir=tmp_path / "found")
    assert [call[:2] for call in same_calls] == [call[:2] for call in calls]
    assert all(torch.equal(alone[name], found[name]) for name in alone)
    _, resumed, _ = train(find=True, resume=tmp_path / "found" / "epoch_2.pth", work_dir=tmp_path / "resumed")
    assert resumed.resumed_from == tmp_path / "found" / "epoch_2.pth"
    assert runner.resumed_from is None
