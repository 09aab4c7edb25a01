"""The events of a run in their order, and the ends of a run."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine, Events
from torch import nn

from ignite_hooks import BaseHook, ConfigError, HookError, attach_hooks, build_hook
from ignite_hooks.hooks.training.lambda_hook import LambdaHook
from ignite_hooks.testing import RecordingHook, tiny_run
from ignite_hooks.writers.jsonl import read_jsonl
from tests.engine.test_installation import handlers_of
from tests.tools import Log, echo_trainer


def expected_run(epochs: int, iterations: int, evaluation_iterations: int) -> list[tuple[str, int, int]]:
    """Every point of a run that evaluates in a handler of its own at the end of each epoch."""
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
    recwarn.clear()  # of an old torch
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


@pytest.mark.parametrize("resume", [None, "auto"])
def test_numbers_of_a_new_run_exclude_those_of_earlier_runs(resume: str | None, tmp_path: Path) -> None:
    for _ in range(2):
        trainer = echo_trainer()
        attach_hooks(trainer, [{"type": "LoggerHook", "interval": 1}], work_dir=tmp_path, resume=resume)
        trainer.run([0.5] * 3)
    steps = {path.name: [row["step"] for row in read_jsonl(path)] for path in tmp_path.glob("metrics*")}
    assert steps == {"metrics.jsonl": [1, 2, 3], "metrics.earlier-1.jsonl": [1, 2, 3]}


def test_an_exception_handler_added_at_the_start_finds_the_hooks_told_first(tmp_path: Path) -> None:
    log: list[str] = []

    class Told(BaseHook):
        def on_exception(self, exception: BaseException) -> None:
            log.append(f"hook: {exception}")

    def step(engine: Engine, batch: int) -> None:
        raise RuntimeError("broken step")

    trainer = Engine(step)

    @trainer.on(Events.STARTED)
    def begin() -> None:
        trainer.add_event_handler(Events.EXCEPTION_RAISED, lambda error: log.append(f"script: {error}"))

    attach_hooks(trainer, [Told()], work_dir=tmp_path)
    trainer.run([1])
    assert log == ["hook: broken step", "script: broken step"]


class Late(BaseHook):
    """Needs its beginning: it fails at any other point without it."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.log: list[str] | None = None

    def before_run(self) -> None:
        self.log = ["before_run"]

    def before_train(self) -> None:
        assert self.log is not None
        self.log.append("before_train")

    def after_train_iter(self, runner: Any) -> None:
        assert self.log is not None
        self.log.append(f"iteration {runner.global_step}")

    def cleanup(self) -> None:
        assert self.log is not None
        self.log.append("cleanup")


@pytest.mark.parametrize(
    ("point", "expected"),
    [
        ("before_run", ["before_run", "before_train", "iteration 1", "iteration 2", "iteration 3", "cleanup"]),
        ("before_train", ["before_run", "before_train", "iteration 1", "iteration 2", "iteration 3", "cleanup"]),
        ("before_epoch", ["before_run", "before_train", "iteration 1", "iteration 2", "iteration 3", "cleanup"]),
        ("after_train_iter", ["before_run", "before_train", "iteration 2", "iteration 3", "cleanup"]),
        ("after_run", ["before_run", "before_train", "cleanup"]),
    ],
)
def test_a_hook_that_comes_late_gets_its_beginning_first(point: str, expected: list[str], tmp_path: Path) -> None:
    late = Late()

    def bring(runner: Any) -> None:
        if "Late" not in runner.hooks:
            runner.register_hook(late)

    trainer = Engine(lambda engine, batch: batch)
    attach_hooks(trainer, [LambdaHook(**{point: bring})], work_dir=tmp_path)
    trainer.run([1, 2, 3])
    assert late.log == expected


def test_a_late_hook_that_fails_to_begin_is_gone_and_cleaned_up(tmp_path: Path) -> None:
    class Fails(Late):
        def before_train(self) -> None:
            raise ValueError("boom")

    trainer, late, caught = Engine(lambda engine, batch: batch), Fails(), list[BaseException]()
    runner = attach_hooks(trainer, [], work_dir=tmp_path)

    @trainer.on(Events.ITERATION_COMPLETED(once=2))
    def bring() -> None:
        try:
            runner.register_hook(late)
        except HookError as error:
            caught.append(error)

    trainer.run([1, 2, 3])
    assert (late.log, len(runner.hooks), len(caught)) == (["before_run", "cleanup"], 0, 1)


def test_a_hook_that_must_begin_with_the_run_cannot_come_later(tmp_path: Path) -> None:
    class First(Late):
        begins_with_run = True

    trainer = Engine(lambda engine, batch: batch)
    runner = attach_hooks(trainer, [], work_dir=tmp_path)

    @trainer.on(Events.ITERATION_COMPLETED(once=2))
    def bring() -> None:
        with pytest.raises(ConfigError, match="First: must be there when the run begins: register it before"):
            runner.register_hook(First())

    trainer.run([1, 2, 3])
    runner.register_hook(First())
    assert list(runner.hooks) == ["First"]


def test_a_late_hook_with_a_schedule_in_seconds_acts(tmp_path: Path) -> None:
    trainer, late = Engine(lambda engine, batch: batch), Late(every="1 s")
    runner = attach_hooks(trainer, [], work_dir=tmp_path)
    clock = [0.0]
    for one in runner.installation.dispatcher._clocks.values():
        one._now = lambda: clock[0]
    trainer.add_event_handler(Events.ITERATION_STARTED(once=2), lambda: runner.register_hook(late))
    trainer.add_event_handler(Events.ITERATION_STARTED(once=4), lambda: runner.register_service("more", 1))
    trainer.add_event_handler(Events.ITERATION_STARTED, lambda: clock.__setitem__(0, clock[0] + 0.5))
    trainer.run(range(8))
    assert late.log == ["before_run", "before_train", "iteration 3", "iteration 5", "iteration 7", "cleanup"]


@pytest.mark.parametrize(
    ("entry", "written"),
    [
        ({"type": "ReportHook"}, "report.html"),
        ({"type": "TensorBoardHook", "interval": 1}, "**/events.out.tfevents*"),
    ],
)
def test_a_hook_that_comes_late_leaves_its_files(entry: dict[str, Any], written: str, tmp_path: Path) -> None:
    tiny = tiny_run()
    runner = attach_hooks(tiny.trainer, [], work_dir=tmp_path, model=tiny.model)
    tiny.trainer.add_event_handler(
        Events.ITERATION_COMPLETED(once=2), lambda: runner.register_hook(build_hook(entry, runner.services))
    )
    tiny.trainer.run(tiny.data, max_epochs=3)
    assert list(tmp_path.glob(written))


def test_a_teacher_can_come_late(tmp_path: Path) -> None:
    model = nn.ModuleDict({"student": nn.Linear(1, 1), "teacher": nn.Linear(1, 1)})
    optimizer = torch.optim.SGD(model["student"].parameters(), lr=0.1)
    trainer = Engine(lambda engine, batch: batch)
    runner = attach_hooks(trainer, [], work_dir=tmp_path, model=model, optimizer=optimizer)
    trainer.add_event_handler(
        Events.ITERATION_COMPLETED(once=2), lambda: runner.register_hook(build_hook("MeanTeacherHook"))
    )
    trainer.run([1.0, 2.0, 3.0, 4.0])
    assert runner.report().tallies["MeanTeacherHook", "after_train_iter"].calls == 2
