"""Hooks on their engines: order, places of handlers, paired points, and complete removal."""

from __future__ import annotations

import copy
import gc
import random
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine, Events
from ignite.metrics import Average, Loss, RunningAverage

from ignite_hooks import BaseHook, ConfigError, HookEvents, Priority, attach_hooks
from ignite_hooks.testing import RecordingHook, tiny_run
from ignite_hooks.writers.jsonl import read_jsonl
from tests.tools import Log, echo_trainer

EVERY_EVENT = [event for event in Events if event not in (Events.EXCEPTION_RAISED, Events.TERMINATE_SINGLE_EPOCH)]


def expected_run(epochs: int, iterations: int, evaluation_iterations: int) -> list[tuple[str, int, int]]:
    """Return every point of a run whose script evaluates at the end of each epoch."""
    steps = [("before_run", 0, 0), ("before_train", 0, 0)]
    for epoch in range(1, epochs + 1):
        first = (epoch - 1) * iterations
        steps += [("before_epoch", epoch, first), ("before_train_epoch", epoch, first)]
        for n in range(first + 1, first + iterations + 1):
            steps += [("before_train_iter", epoch, n), ("after_train_iter", epoch, n)]
        last = first + iterations
        evaluation = ["before_val", "before_val_epoch"]
        evaluation += ["before_val_iter", "after_val_iter"] * evaluation_iterations
        evaluation += ["after_val_epoch", "after_val"]
        steps += [(point, epoch, last) for point in ["after_train_epoch", *evaluation, "after_epoch"]]
    end = (epochs, epochs * iterations)
    return [*steps, ("after_train", *end), ("after_run", *end), ("cleanup", *end)]


def test_points_are_called_in_the_order_of_the_specification(tmp_path: Path) -> None:
    tiny = tiny_run()
    trainer, evaluator, data, val_data = tiny.trainer, tiny.evaluator, tiny.data, tiny.val_data
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run(val_data))
    log: Log = []
    attach_hooks(trainer, [RecordingHook(log=log, name="recorder")], evaluators=evaluator, work_dir=tmp_path)
    trainer.run(data, max_epochs=2)
    assert [step[1:] for step in log] == expected_run(epochs=2, iterations=3, evaluation_iterations=2)


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


# -- seats ------------------------------------------------------------------------------------------------------


def test_hooks_see_later_metrics_and_enclose_the_scripts_evaluation(tmp_path: Path) -> None:
    tiny = tiny_run()
    trainer, evaluator, data, val_data = tiny.trainer, tiny.evaluator, tiny.data, tiny.val_data
    seen: Log = []

    class Looker(BaseHook):
        def after_train_iter(self, metrics: Any) -> None:
            seen.append(("iter", "running" in metrics))

        def after_train_epoch(self, runner: Any) -> None:
            seen.append(("train epoch", "mean" in runner.metrics, "val_accuracy" in runner.metrics))

        def after_val_epoch(self, metrics: Any) -> None:
            seen.append(("val epoch", "val_loss" in metrics))

        def after_epoch(self, metrics: Any) -> None:
            seen.append(("epoch", "val_accuracy" in metrics))

    attach_hooks(trainer, [Looker()], evaluators=evaluator, work_dir=tmp_path)
    RunningAverage(output_transform=lambda loss: loss).attach(trainer, "running")
    Average(output_transform=lambda loss: loss).attach(trainer, "mean")
    Loss(torch.nn.CrossEntropyLoss()).attach(evaluator, "loss")
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run(val_data))
    trainer.run(data, max_epochs=1)
    assert seen == [
        *[("iter", True)] * 3,
        ("train epoch", True, False),
        ("val epoch", True),
        ("epoch", True),
    ]


def handlers_of(engine: Engine) -> dict[Any, list[Any]]:
    return {event: list(handlers) for event, handlers in engine._event_handlers.items() if handlers}


def test_running_engines_alone_have_handlers_one_per_event_and_place(tmp_path: Path) -> None:
    tiny = tiny_run()
    trainer, evaluator, data, val_data = tiny.trainer, tiny.evaluator, tiny.data, tiny.val_data
    before = handlers_of(trainer), handlers_of(evaluator)
    counts: dict[str, int] = {}

    class Counter(BaseHook):
        def before_train_iter(self, runner: Any) -> None:
            counts.update({event.name: len(h) for event, h in runner.trainer._event_handlers.items() if h})

    hooks = [Counter(name=f"counter {i}") for i in range(5)]
    attach_hooks(trainer, hooks, evaluators=evaluator, work_dir=tmp_path)
    assert (handlers_of(trainer), handlers_of(evaluator)) == before
    trainer.run(data, max_epochs=1)
    evaluator.run(val_data)
    assert (handlers_of(trainer), handlers_of(evaluator)) == before
    assert counts == {
        "STARTED": 1,
        "EPOCH_STARTED": 2,
        "DATALOADER_STOP_ITERATION": 1,
        "ITERATION_STARTED": 1,
        "ITERATION_COMPLETED": 1,
        "EPOCH_COMPLETED": 2,
        "TERMINATE_SINGLE_EPOCH": 1,
        "TERMINATE": 2,
        "COMPLETED": 2,
    }


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


# -- the ends of a run ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "options"),
    [
        ("terminate in the middle", {"max_epochs": 3}),
        ("max_iters in the middle", {"max_iters": 5}),
        ("terminate_epoch", {"max_epochs": 3}),
        ("terminate_epoch without its event", {"max_epochs": 3}),
        ("terminate without COMPLETED", {"max_epochs": 3}),
        ("terminate at the start of an epoch", {"max_epochs": 3}),
    ],
)
def test_every_epoch_that_begins_is_closed_and_cleanup_comes_once(
    how: str, options: dict[str, int], tmp_path: Path
) -> None:
    log: Log = []
    trainer = echo_trainer()
    attach_hooks(trainer, [RecordingHook(log=log, name="recorder")], work_dir=tmp_path)

    @trainer.on(Events.ITERATION_COMPLETED(once=5))
    def end(engine: Engine) -> None:
        if how == "terminate in the middle":
            engine.terminate()
        elif how == "terminate without COMPLETED":
            engine.terminate(skip_completed=True)
        elif how.startswith("terminate_epoch"):
            engine.terminate_epoch(skip_epoch_completed="without" in how)

    @trainer.on(Events.EPOCH_STARTED(once=2))
    def end_at_start(engine: Engine) -> None:
        if how == "terminate at the start of an epoch":
            engine.terminate()

    trainer.run([1, 2, 3], **options)
    points = [point for _, point, *_ in log]
    open_epochs = 0
    for point in points:
        open_epochs += {"before_train_epoch": 1, "after_train_epoch": -1}.get(point, 0)
        assert open_epochs in (0, 1)
    assert open_epochs == 0
    for before, after in (("before_epoch", "after_epoch"), ("before_train_epoch", "after_train_epoch")):
        assert points.count(before) == points.count(after)
    assert points.count("cleanup") == 1
    assert points[-1] == "cleanup"
    assert points.count("after_run") == (how != "terminate without COMPLETED")


def test_an_interrupted_run_is_cleaned_up_only_at_its_end(tmp_path: Path) -> None:
    log: Log = []
    trainer = echo_trainer()
    runner = attach_hooks(
        trainer,
        [RecordingHook(log=log, name="recorder", points=["before_run", "after_train_iter", "cleanup"])],
        work_dir=tmp_path,
    )
    trainer.add_event_handler(Events.ITERATION_COMPLETED(every=2), trainer.interrupt)
    trainer.run([1, 2, 3], max_epochs=1)
    assert [point for _, point, *_ in log] == ["before_run", *["after_train_iter"] * 2]
    trainer.run([1, 2, 3], max_epochs=1)
    assert [point for _, point, *_ in log] == ["before_run", *["after_train_iter"] * 3, "cleanup"]

    log.clear()
    trainer.run([1, 2, 3], max_epochs=3)
    runner.close()
    runner.close()
    assert [point for _, point, *_ in log].count("cleanup") == 1


def test_an_interrupted_run_that_is_collected_says_nothing(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    log: Log = []
    trainer = echo_trainer()
    trainer.add_event_handler(Events.EXCEPTION_RAISED, lambda error: None)
    attach_hooks(trainer, [RecordingHook(log=log, name="recorder", points=["on_exception"])], work_dir=tmp_path)
    trainer.add_event_handler(Events.ITERATION_COMPLETED(once=2), lambda engine: engine.interrupt())
    trainer.run([1, 2, 3], max_epochs=1)
    del trainer
    gc.collect()
    assert log == []
    assert not recwarn.list


def test_a_run_that_is_refused_leaves_nothing_behind(tmp_path: Path) -> None:
    log: Log = []
    trainer = echo_trainer()
    attach_hooks(trainer, [RecordingHook(log=log, name="recorder")], work_dir=tmp_path)
    with pytest.raises(ValueError, match="mutually exclusive"):
        trainer.run([1], max_epochs=1, max_iters=1)
    assert log == []
    assert handlers_of(trainer) == {}
    trainer.run([1])
    assert log[-1][1] == "cleanup"


def test_runs_one_after_the_other_are_whole_runs(tmp_path: Path) -> None:
    log: Log = []
    trainer = echo_trainer()
    attach_hooks(
        trainer,
        [RecordingHook(log=log, name="recorder", points=["before_run", "after_epoch", "after_run", "cleanup"])],
        work_dir=tmp_path,
    )
    trainer.run([1, 2], max_epochs=1)
    trainer.run([1, 2], max_epochs=3)
    assert [step[1:3] for step in log] == [
        *[("before_run", 0), ("after_epoch", 1), ("after_run", 1), ("cleanup", 1)],
        *[("before_run", 1), ("after_epoch", 2), ("after_epoch", 3), ("after_run", 3), ("cleanup", 3)],
    ]


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
    assert added == 0
    *rest, last = [at for _, at, *_ in log[removed + 1 :]]
    assert all(at == point for at in rest), "only the point that was being handled is finished"
    assert last == "cleanup"
    assert log[-1][2] == 3, "and not at the end of the run"
    during = [at for _, at, *_ in log[1:removed]]
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


def test_the_events_of_checkpoints_work_in_a_plain_script(tmp_path: Path) -> None:
    tiny = tiny_run()
    trainer, data, model = tiny.trainer, tiny.data, tiny.model
    runner = attach_hooks(trainer, ["CheckpointHook"], work_dir=tmp_path, model=model)
    seen: Log = []

    @trainer.on(HookEvents.BEFORE_SAVE_CHECKPOINT)
    def add(engine: Engine) -> None:
        assert runner.checkpoint is not None
        runner.checkpoint["mine"] = engine.state.epoch
        seen.append(("before", engine.last_event_name))

    trainer.add_event_handler(HookEvents.AFTER_SAVE_CHECKPOINT, lambda: seen.append(("after",)))
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda engine: seen.append((engine.last_event_name.name,)))
    trainer.run(data, max_epochs=1)
    assert [step[0] for step in seen] == ["EPOCH_COMPLETED", *["before", "after"] * 2]
    assert torch.load(tmp_path / "epoch_1.pth", weights_only=True)["mine"] == 1
    assert all(event.name.startswith("HOOK_") for event in HookEvents)
    assert not set(HookEvents) & set(Events)


@pytest.mark.parametrize("data", [[1, 2, 3], iter(range(100))], ids=["a list", "an iterator of unknown length"])
def test_an_epoch_that_is_cut_short_is_not_finished(data: Any, tmp_path: Path) -> None:
    seen: Log = []

    class Looker(BaseHook):
        def after_train_iter(self, runner: Any) -> None:
            if runner.global_step == 2:
                runner.stop("enough")

        def after_train_epoch(self, runner: Any) -> None:
            seen.append(("closing", runner.epoch, runner.state.epoch_complete))

        def after_run(self, runner: Any) -> None:
            seen.append(("after", runner.epoch, runner.state.epoch_complete))

    trainer = echo_trainer()
    attach_hooks(trainer, [Looker()], work_dir=tmp_path)
    trainer.run(data, max_epochs=3)
    assert trainer.state.iteration == 2
    assert seen == [("closing", 0, False), ("after", 0, False)]


def test_an_epoch_that_the_script_shortens_is_a_finished_one(tmp_path: Path) -> None:
    tiny = tiny_run()
    trainer, data, model = tiny.trainer, tiny.data, tiny.model
    attach_hooks(trainer, ["CheckpointHook"], work_dir=tmp_path, model=model)
    trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda engine: engine.terminate_epoch())
    trainer.run(data, max_epochs=2)
    assert {"epoch_1.pth", "epoch_2.pth", "last.pth"} <= {path.name for path in tmp_path.iterdir()}


def test_a_failed_attachment_removes_the_handlers_it_added(tmp_path: Path) -> None:
    class Broken(BaseHook):
        def attached(self) -> None:
            self.runner.trainer.add_event_handler(Events.STARTED, lambda: None)
            raise RuntimeError("cannot be attached")

    trainer = echo_trainer()
    with pytest.raises(RuntimeError, match="cannot be attached"):
        attach_hooks(trainer, [Broken()], work_dir=tmp_path)
    assert handlers_of(trainer) == {}
    assert "run" not in vars(trainer)


@pytest.mark.parametrize("resume", [None, "auto"])
def test_numbers_of_a_new_run_exclude_those_of_earlier_runs(resume: str | None, tmp_path: Path) -> None:
    for _ in range(2):
        trainer = echo_trainer()
        attach_hooks(trainer, [{"type": "LoggerHook", "interval": 1}], work_dir=tmp_path, resume=resume)
        trainer.run([0.5] * 3)
    steps = {path.name: [row["step"] for row in read_jsonl(path)] for path in tmp_path.glob("metrics*")}
    assert steps == {"metrics.jsonl": [1, 2, 3], "metrics.earlier-1.jsonl": [1, 2, 3]}
