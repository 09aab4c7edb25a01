from __future__ import annotations

import contextlib
import gc
import gzip
import inspect
import json
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from ignite.engine import Engine, Events
from matplotlib.figure import Figure
from torch import nn
from torch.autograd.profiler_util import FunctionEvent

from ignite_hooks import BaseHook, ConfigError, HookError, Runner, attach_hooks, build_hook
from ignite_hooks.hooks import profiler_hook
from ignite_hooks.hooks.profiler_hook import ProfilerHook
from ignite_hooks.measure.phases import Phases
from ignite_hooks.testing import TinyRun, failing_at, tiny_run
from ignite_hooks.writers.memory import MemoryWriter
from tests.measure.test_phases import Hands

pytestmark = pytest.mark.usefixtures("few_objects")


@pytest.fixture(autouse=True)
def _plainly_drawn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw an empty picture: drawing takes a second, and most tests are not about it."""
    if "picture" not in request.node.name:
        monkeypatch.setattr(profiler_hook, "draw_profile", lambda *_: Figure(figsize=(1, 1)))


@dataclass
class Looked:
    """A run that was profiled."""

    run: TinyRun
    runner: Runner
    writer: MemoryWriter
    hook: ProfilerHook

    @property
    def traces(self) -> list[list[str]]:
        """Return the steps in each trace that was written."""
        return [steps(path) for path in sorted((self.runner.work_dir / "profile").glob("trace_*.json.gz"))]

    @property
    def report(self) -> str:
        path = self.runner.work_dir / "profile" / "profile_report.md"
        return path.read_text() if path.exists() else ""


def steps(path: Path) -> list[str]:
    """Return the names of the iterations in a trace; check that every event has what a viewer needs."""
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    assert all({"ph", "pid"} <= event.keys() for event in events)
    complete = [event for event in events if event["ph"] == "X"]
    assert all(event["dur"] >= 0 and event["ts"] >= 0 for event in complete)
    assert any(event["name"] == "aten::addmm" for event in complete)
    return [e["name"] for e in complete if e["name"].startswith("ProfilerStep") and e.get("cat") == "user_annotation"]


def looked(
    folder: Path, *others: Any, batches: int = 12, epochs: int = 1, fails: bool = False, **settings: Any
) -> Looked:
    run, writer = tiny_run(batches=batches), MemoryWriter()
    settings = {"record_shapes": False, "profile_memory": False, "with_flops": False, **settings}
    hook = ProfilerHook(**settings)
    config = {"hooks": [hook, *others], "writers": [writer]}
    runner = attach_hooks(run.trainer, config, evaluators=run.evaluator, work_dir=folder, **run.services)
    with contextlib.suppress(HookError) if fails else contextlib.nullcontext():
        run.trainer.run(run.data, max_epochs=epochs)
    assert "ProfilerHook" not in runner.report().failures
    return Looked(run, runner, writer, hook)


CASES: dict[str, tuple[dict[str, Any], list[int]]] = {
    "two cycles": ({"schedule": {"wait": 2, "warmup": 1, "active": 3, "repeat": 2}}, [3, 3]),
    "no schedule: one to warm up, then so many": ({"profile_iters": 4}, [4]),
    "once by default": ({"schedule": {"active": 2}}, [2]),
    "cycles without a pause": ({"schedule": {"active": 2, "repeat": 3}}, [2, 2, 2]),
    "no more than asked": ({"schedule": {"warmup": 1, "active": 5}, "profile_iters": 3}, [3]),
    "no more than asked in all": ({"schedule": {"active": 3, "repeat": 2}, "profile_iters": 4}, [3, 1]),
    "the end of the run closes a cycle": ({"schedule": {"wait": 9, "warmup": 1, "active": 50}}, [2]),
    "a run that is stopped while it warms up": ({"schedule": {"wait": 9, "warmup": 5, "active": 5}}, []),
    "a run that is stopped before": ({"schedule": {"wait": 20, "active": 5}}, []),
    "no trace asked for": ({"schedule": {"active": 2}, "export_chrome_trace": False}, []),
}


@pytest.mark.parametrize(("settings", "lengths"), CASES.values(), ids=CASES)
def test_number_and_length_of_traces_follow_the_schedule(
    tmp_path: Path, settings: dict[str, Any], lengths: list[int]
) -> None:
    class Stops(BaseHook):
        def after_train_iter(self, runner: Runner) -> None:
            if runner.global_step == 12:
                runner.stop("in the middle")

    found = looked(tmp_path, Stops(), batches=36, **settings)
    assert [len(trace) for trace in found.traces] == lengths
    wanted = sum(lengths) or (2 if settings.get("export_chrome_trace") is False else 0)
    assert found.report.startswith(f"# Profile of {wanted} iterations") == bool(wanted)


@pytest.mark.parametrize(
    ("settings", "lengths"),
    [
        ({}, [2]),
        ({"schedule": {"wait": 1, "active": 1, "repeat": 2}}, [2, 2]),
        ({"schedule": {"warmup": 1, "active": 2}}, [6]),
        ({"schedule": {"active": 3}, "profile_iters": 4}, [4]),
    ],
    ids=str,
)
def test_the_schedule_can_count_epochs(tmp_path: Path, settings: dict[str, Any], lengths: list[int]) -> None:
    found = looked(tmp_path, batches=3, epochs=4, by_epoch=True, **settings)
    assert [len(trace) for trace in found.traces] == lengths


def test_a_run_that_fails_leaves_what_was_seen(tmp_path: Path) -> None:
    found = looked(tmp_path, failing_at("after_train_iter", call=4), fails=True, schedule={"wait": 1, "active": 10})
    assert [len(trace) for trace in found.traces] == [3], "the iteration that failed is in it as far as it came"
    assert found.report.startswith("# Profile of 2 iterations")


def test_a_profiler_of_the_script_is_not_disturbed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as own:
        found = looked(tmp_path, schedule={"wait": 2, "active": 3, "repeat": 2})
    assert any(event.name == "aten::addmm" for event in own.events() or [])
    assert (found.traces, found.report) == ([], "")
    assert caplog.text.count("another profiler of torch is running") == 1


def test_each_trace_is_handed_on_with_torchs_profiler(tmp_path: Path) -> None:
    seen: list[int] = []
    looked(
        tmp_path,
        schedule={"active": 1, "repeat": 2},
        on_trace_ready=lambda profiler: seen.append(len(profiler.key_averages())),
    )
    assert len(seen) == 2
    assert all(seen)


def test_records_are_freed_at_the_end_of_each_cycle(tmp_path: Path) -> None:
    alive: list[list[bool]] = []
    recorded: list[weakref.ref[Any]] = []

    def note(profiler: Any) -> None:
        alive.append([one() is not None for one in recorded])
        recorded.extend([weakref.ref(profiler), weakref.ref(profiler.profiler), weakref.ref(profiler.events()[0])])

    gc.disable()
    try:
        looked(tmp_path, schedule={"active": 1, "repeat": 3}, with_stack=True, on_trace_ready=note)
    finally:
        gc.enable()
    assert alive == [[], [False] * 3, [False] * 6]


class Garbled:
    """An event of torch whose name has been overwritten."""

    def name(self) -> str:
        return b"psutil/_pslinux.py(0): 0\x9e\x98\xbbF\x7f".decode()


def test_only_an_event_with_an_unreadable_name_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch remembers where the name of a function is; that of a module that is loaded meanwhile is freed with it."""
    stop = torch.profiler.profile.stop

    def stop_and_spoil(profiler: Any) -> None:
        stop(profiler)
        whole = profiler.profiler.kineto_results
        spoilt = SimpleNamespace(events=lambda: [Garbled(), *whole.events(), Garbled()])
        for name in ("trace_start_ns", "experimental_event_tree", "save"):
            setattr(spoilt, name, getattr(whole, name))
        profiler.profiler.kineto_results = spoilt

    monkeypatch.setattr(torch.profiler.profile, "stop", stop_and_spoil)
    found = looked(tmp_path, schedule={"active": 2}, with_stack=True)
    assert [len(trace) for trace in found.traces] == [2]
    assert "aten::addmm" in found.report


def test_phases_tables_and_the_picture_go_to_the_writers(tmp_path: Path) -> None:
    found = looked(tmp_path, schedule={"active": 3}, profile_memory=True, with_flops=True)
    ((scalars, step, kind, _),) = found.writer.lines
    assert (step, kind) == (12, "system")
    assert list(scalars) == [f"profile/{p}_ms" for p in ("data", "forward", "backward", "optimizer", "hooks", "other")]
    ((_, image, _),) = found.writer.images
    assert image.shape[2] == 4
    ((_, text, _),) = found.writer.texts
    assert text == found.report
    for title in ("Where the time goes", "Operators by time", "Operators by memory", "Operators by FLOPs", "Traces"):
        assert f"## {title}" in text
    assert "hooks cost" not in text, "the end of the run tells that, with one value everywhere"


def test_without_export_tensorboard_they_do_not(tmp_path: Path) -> None:
    found = looked(tmp_path, schedule={"active": 1}, export_tensorboard=False)
    assert (found.writer.lines, found.writer.images, found.writer.texts) == ([], [], [])
    assert found.report


def test_the_page_needs_no_other_file(tmp_path: Path) -> None:
    found = looked(tmp_path, schedule={"active": 1})
    page = (found.runner.work_dir / "profile" / "profile_report.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "data:image/png;base64," in page
    assert 'src="http' not in page
    assert "aten::<wbr>addmm" in page


TELLS_FUNCTIONS = "is_python_function" in inspect.signature(FunctionEvent).parameters


class Sleepy(torch.autograd.Function):
    """A function that sleeps in the backward pass."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> torch.Tensor:
        time.sleep(0.06)
        return gradients[0]


class SleepyModel(nn.Linear):
    def forward(self, x: torch.Tensor) -> Any:
        return Sleepy.apply(super().forward(x))  # type: ignore[no-untyped-call]


@dataclass
class Batches:
    """Batches, each after a pause."""

    pause: Callable[[], object]
    num_workers: int = 2

    def __len__(self) -> int:
        return 8

    def __iter__(self) -> Iterator[torch.Tensor]:
        for _ in range(8):
            self.pause()
            yield torch.ones(2, 2)


def findings_of(
    folder: Path, model: nn.Module, pause: Callable[[], object] = lambda: None, **settings: Any
) -> tuple[str, str]:
    """Return the findings of the report, and the whole report."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(engine: Engine, batch: torch.Tensor) -> None:
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()

    trainer = Engine(step)
    hook = ProfilerHook(schedule={"wait": 1, "warmup": 2, "active": 4}, **settings)
    runner = attach_hooks(trainer, [hook], work_dir=folder, model=model, optimizer=optimizer)
    trainer.run(Batches(pause))
    assert runner.report().failures == {}
    assert runner.report().findings.get("ProfilerHook", []) == hook.findings()
    report = (folder / "profile" / "profile_report.md").read_text()
    return report.partition("## Findings")[2].partition("##")[0], report


class Slowly(nn.Linear):
    """A module that is slow by the clock of a test."""

    def __init__(self, hands: Hands, seconds: float) -> None:
        super().__init__(2, 1)
        self.take = lambda: hands.turn(seconds)

    def forward(self, x: torch.Tensor) -> Any:
        self.take()
        return super().forward(x)


@pytest.mark.usefixtures("enough_processors")
@pytest.mark.parametrize(("step", "is_named"), [(0.035, True), (0.045, False)])
def test_a_loader_that_takes_ten_milliseconds_is_found_and_named(
    step: float, is_named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the clock of the test, beside a step of which that is more or less than a fifth."""
    hands = Hands()
    monkeypatch.setattr(profiler_hook, "Phases", lambda: Phases(hands))
    found, _ = findings_of(tmp_path, Slowly(hands, step), pause=lambda: hands.turn(0.01))
    assert ("data loading takes" in found) == is_named


@pytest.mark.usefixtures("enough_processors")
def test_a_slow_loader_is_found_and_named_in_real_time(tmp_path: Path) -> None:
    found, _ = findings_of(tmp_path, nn.Linear(2, 1), pause=lambda: time.sleep(0.1))
    assert "data loading takes" in found
    assert "raise num_workers, now 2" in found


@pytest.mark.usefixtures("enough_processors")
@pytest.mark.parametrize("with_stack", [False, True])
def test_a_backward_pass_that_sleeps_is_found_and_named(tmp_path: Path, with_stack: bool) -> None:
    # The profiler of torch 2.7 tells no functions of Python.
    named = with_stack and TELLS_FUNCTIONS
    # A thread that waits all the time is no finding.
    over = threading.Event()
    waits = threading.Thread(target=over.wait, daemon=True)
    waits.start()
    try:
        found, report = findings_of(tmp_path, SleepyModel(2, 1), with_stack=with_stack)
    finally:
        over.set()
        waits.join()
    assert "the backward pass takes" in found
    assert ("<built-in function sleep> takes" if named else "SleepyBackward takes") in found
    assert ("): backward" in found) == named
    assert ("## Functions by time" in report) == named
    assert "threading.py" not in found


def test_what_other_hooks_have_found_is_in_the_report(tmp_path: Path) -> None:
    class Finder(BaseHook):
        def before_run(self) -> None: ...

        def findings(self) -> list[str]:
            return ["a needle"]

    found = looked(tmp_path, Finder(), schedule={"active": 1})
    assert "- Finder: a needle" in found.report


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"schedule": {"wait": 2}}, "needs 'active'"),
        ({"schedule": {"active": 60, "repeat": 3}}, "at least 121 are needed"),
        ({"schedule": {"active": 0}}, "schedule"),
        ({"schedule": {"active": 1, "every": 2}}, "schedule"),
        ({"profile_iters": 0}, "profile_iters"),
        ({"interval": 5}, "interval"),
    ],
    ids=str,
)
def test_what_cannot_be_looked_at_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_hook({"type": "ProfilerHook", **settings})


def test_the_plan_says_where_it_looks(tmp_path: Path) -> None:
    hook = ProfilerHook(schedule={"wait": 2, "warmup": 1, "active": 3, "repeat": 2})
    run = tiny_run()
    runner = attach_hooks(run.trainer, [hook], work_dir=tmp_path)
    assert "3 iters after 3, 2 x" in str(runner.plan)


@pytest.mark.parametrize("by_epoch", [False, True])
def test_a_budget_does_not_change_its_schedule(tmp_path: Path, by_epoch: bool) -> None:
    schedule: Any = {"active": 1, "repeat": 2} if by_epoch else {"wait": 40, "active": 2, "repeat": 2}
    hook = ProfilerHook(schedule=schedule, by_epoch=by_epoch, profile_iters=400, export_chrome_trace=False)
    run = tiny_run(batches=53)
    runner = attach_hooks(run.trainer, {"hooks": [hook], "overhead_budget": 1e-6}, work_dir=tmp_path, **run.services)
    run.trainer.run(run.data, max_epochs=2)
    assert runner.report().slowed == {}
    assert "slowed" not in str(runner.plan)
    seen = (tmp_path / "profile" / "profile_report.md").read_text().splitlines()[0]
    assert seen == f"# Profile of {104 if by_epoch else 4} iterations"


@pytest.mark.parametrize("timer_comes", [0, 1])
def test_all_hooks_but_the_timer_are_profiled(tmp_path: Path, timer_comes: int) -> None:
    hooks: list[Any] = [ProfilerHook(schedule={"active": 3}), {"type": "CheckpointHook", "save_best": False}]
    hooks.insert(timer_comes, "IterTimerHook")
    run = tiny_run()
    runner = attach_hooks(run.trainer, hooks, work_dir=tmp_path, **run.services)
    first, second, *_ = [slot.hook for slot in runner.plan.at("before_train_iter")]
    *_, last_but_one, last = [slot.hook for slot in runner.plan.at("after_train_iter")]
    assert [first, second, last_but_one, last] == ["IterTimerHook", "ProfilerHook", "ProfilerHook", "IterTimerHook"]


WAITS = {"type": "ProfilerHook", "schedule": {"wait": 4, "warmup": 1, "active": 2}}


@pytest.mark.parametrize(
    ("settings", "epochs", "message"),
    [
        ({}, 1, "nothing would be profiled: 5 iterations are waited and warmed up, and the run has 4: wait less"),
        ({"schedule": {"wait": 2, "active": 1}, "by_epoch": True}, 2, "2 epochs are waited and warmed up, and the run"),
        ({}, 2, None),
        ({"schedule": {"wait": 1, "active": 1}, "by_epoch": True}, 2, None),
        ({"schedule": None, "profile_iters": 99}, 1, None),
    ],
)
def test_a_window_that_cannot_come_is_an_error_before_the_run(
    settings: dict[str, Any], epochs: int, message: str | None, tmp_path: Path
) -> None:
    """Though a failure of the hook would only be a warning."""
    run = tiny_run(batches=4)
    attach_hooks(run.trainer, [{**WAITS, **settings}], work_dir=tmp_path, **run.services)
    with pytest.raises(ConfigError, match=message) if message else contextlib.nullcontext():
        run.trainer.run(run.data, max_epochs=epochs)
    assert run.trainer.state.iteration == (0 if message else 4 * epochs)


@pytest.mark.parametrize(
    ("hooks", "writers", "is_wrong"),
    [
        ([], [], True),
        ([], ["ConsoleWriter"], True),
        (["TensorBoardHook"], [], False),
        ([], ["TensorboardWriter"], False),
        ([BaseHook(name="plain")], [], True),
    ],
)
def test_tensorboard_that_cannot_be_is_an_error(
    hooks: list[Any], writers: list[str], is_wrong: bool, tmp_path: Path
) -> None:
    cfg = {"hooks": [{"type": "ProfilerHook", "export_tensorboard": True}, *hooks], "writers": writers}
    wrong = "hooks[0].export_tensorboard: no writer of this run is for TensorBoard: add a TensorBoardHook"
    with pytest.raises(ConfigError, match=re.escape(wrong)) if is_wrong else contextlib.nullcontext():
        attach_hooks(tiny_run().trainer, cfg, work_dir=tmp_path)


class Another(BaseHook):
    """It might bring a writer for TensorBoard."""

    def before_run(self) -> None: ...


def test_what_could_still_come_is_told_in_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = tiny_run(batches=9)
    runner = attach_hooks(
        run.trainer, [{**WAITS, "export_tensorboard": True}, Another()], work_dir=tmp_path, **run.services
    )
    run.trainer.add_event_handler(Events.ITERATION_COMPLETED(once=4), lambda: runner.stop("enough"))
    run.trainer.run(run.data, max_epochs=1)
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert told == [
        f"export_tensorboard: {profiler_hook.NO_TENSORBOARD}",
        "nothing was profiled: 5 iterations are waited and warmed up, and the run ended after 4: wait less",
    ]
