"""Profiles some iterations with torch.profiler and reports where the time goes."""

from __future__ import annotations

import base64
import gc
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypedDict

from annotated_types import Ge

from ignite_hooks.distributed.collectives import is_main_process, world_size
from ignite_hooks.drawing.profile import draw_profile, png
from ignite_hooks.errors import ConfigError, Problem, SettingError
from ignite_hooks.hooks.base_hook import BaseHook, OnError, PriorityLike, Situation, settings
from ignite_hooks.measure.findings import profile_findings
from ignite_hooks.measure.known_causes import circumstances_of
from ignite_hooks.measure.phases import DATA, HOOKS, NAMES, Phases
from ignite_hooks.measure.processor_waits import ProcessorWaits
from ignite_hooks.measure.profile import Cycles, Profile, as_markdown, read_events, sections
from ignite_hooks.model.parts import each
from ignite_hooks.plan.methods import at
from ignite_hooks.plan.priority import Order, Priority
from ignite_hooks.plan.schedule import NEVER, When
from ignite_hooks.report.profile_page import profile_page
from ignite_hooks.system.host import trim_memory

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner

FOLDER = "profile"
NO_TENSORBOARD = (
    "no writer of this run is for TensorBoard: add a TensorBoardHook, or leave the setting out, since others get the "
    "profile anyway"
)
MOST_OPERATORS = 10
"""Number of operators in the picture."""


class ProfileSchedule(TypedDict, total=False):
    """The iterations to profile."""

    wait: Annotated[int, Ge(0)]
    warmup: Annotated[int, Ge(0)]
    active: Annotated[int, Ge(1)]
    repeat: Annotated[int, Ge(1)]


@dataclass(frozen=True)
class ProfiledIterations(When):
    """Every iteration to profile, and none that is only waited through, which then costs nothing."""

    next_due: Callable[[int], int] | None = field(default=None, compare=False, repr=False)
    """Returns the next iteration after the n-th with something to do; None stands for every iteration."""

    @property
    def always(self) -> bool:
        return self.next_due is None

    def due(self, n: int) -> bool:
        return self.following(n - 1) == n

    def following(self, n: int) -> int:
        return n + 1 if self.next_due is None else self.next_due(n)


METHODS_OF_AN_ITERATION = ("before_train_iter", "begin_step", "end_step", "after_train_iter")


@settings
class ProfilerHook(BaseHook):
    """Profile some iterations with torch.profiler; write traces, tables and what stands out to ``profile``.

    Args:
        by_epoch: Whether the schedule counts epochs; without a schedule, whether to profile the first epoch.
        profile_iters: Maximum number of iterations to profile; without a schedule, the number after one to warm up.
        schedule: Number of iterations to wait, to warm up and to record (active), and of repetitions, by default one.
        on_trace_ready: Called with torch's profiler for each trace; the profiler is emptied afterwards.
        record_shapes: Whether to record the shapes of inputs.
        profile_memory: Whether to record memory.
        with_stack: Whether to record Python functions and their callers; slow.
        with_flops: Whether to count floating point operations, of operators that torch can count.
        export_chrome_trace: Whether to write traces, which Perfetto and Chrome open.
        export_tensorboard: Whether to pass phases, tables and the picture to the writers as well.

    Reads: model, optimizer, criterion.
    Writes: profile/trace_N.json.gz, profile/profile_report.md and .html; profile/<phase>_ms.
    """

    by_epoch: bool = False
    profile_iters: Annotated[int, Ge(1)] = 100
    schedule: ProfileSchedule | None = None
    on_trace_ready: Callable[..., Any] | None = None
    record_shapes: bool = True
    profile_memory: bool = True
    with_stack: bool = False
    with_flops: bool = True
    export_chrome_trace: bool = True
    export_tensorboard: bool = True
    # Around all others, so that they are profiled too.
    priority: PriorityLike = Priority.HIGHEST
    on_error: OnError = "warn"
    draws: ClassVar[bool] = True

    def __post_init__(self) -> None:
        given: dict[str, Any] = dict(self.schedule or {})
        if self.schedule is not None and "active" not in given:
            raise SettingError("schedule", "needs 'active', the number of iterations to record")
        self._cycles = Cycles(
            wait=given.get("wait", 0),
            warmup=given.get("warmup", 0 if self.by_epoch or given else 1),
            active=given.get("active", 1 if self.by_epoch else self.profile_iters),
            repeat=given.get("repeat", 1),
        )
        before_last = (self._cycles.repeat - 1) * (1 if self.by_epoch else self._cycles.active)
        if before_last >= self.profile_iters:
            raise SettingError(
                "profile_iters",
                f"{self.profile_iters} iterations are all recorded before the last of "
                f"{self._cycles.repeat} cycles begins: at least {before_last + 1} are needed",
            )
        self._reset()

    def _reset(self) -> None:
        self._torch: Any = None
        self._recording = False
        self._iteration = self._epoch = self._cycle = self._recorded_iterations = 0
        self._began_at: int | None = None
        self._remaining = self.profile_iters
        self._next = NEVER
        self._profile = Profile()
        self._phases, self._processor = Phases(), ProcessorWaits()
        self._before: list[float] = []
        self._after: list[list[float]] = []
        """Seconds by phase after each iteration of a cycle."""
        self._is_reported = False

    @property
    def when(self) -> When:
        """The schedule, which follows from the state of this hook."""
        return ProfiledIterations() if self.by_epoch else ProfiledIterations(next_due=self._next_due)

    def _next_due(self, n: int) -> int:
        if self._torch is not None or self._began_at is None:
            return n + 1
        return max(n + 1, self._began_at + self._next)

    def how_often(self, method: str) -> str | None:
        """Return how often it profiles, in words."""
        if method not in METHODS_OF_AN_ITERATION:
            return None
        cycles, unit = self._cycles, "epochs" if self.by_epoch else "iters"
        return f"{cycles.active} {unit} after {cycles.wait + cycles.warmup}, {cycles.repeat} x"

    def check(self, situation: Situation) -> Iterator[tuple[str, str]]:
        if self._wants_tensorboard and situation.is_known and not situation.has_tensorboard:
            yield "export_tensorboard", NO_TENSORBOARD

    @property
    def _wants_tensorboard(self) -> bool:
        return "export_tensorboard" in self.given and self.export_tensorboard

    # -- a run ------------------------------------------------------------------------------------------------

    def before_run(self, runner: Runner) -> None:
        self._reset()
        length, skipped = runner.max_epochs if self.by_epoch else runner.max_iters, self._cycles.skipped
        if self.schedule is not None and length is not None and skipped >= length:
            message = f"nothing would be profiled: {self._skipped}, and the run has {length}: wait less"
            raise ConfigError([Problem(f"{self.name or type(self).__name__}.schedule", message)])

    def before_train(self, runner: Runner) -> None:
        self._began_at = runner.global_step
        self._profile.workers = getattr(runner.trainer.state.dataloader, "num_workers", None)
        if not self.by_epoch and is_main_process():
            self._next = self._cycles.next_begin(0) or NEVER
        if (
            self._wants_tensorboard
            and is_main_process()
            and not any("tensorboard" in type(one).__name__.lower() for one in runner.writer.writers)
        ):
            runner.logger.warning("export_tensorboard: %s", NO_TENSORBOARD)

    def before_train_epoch(self) -> None:
        self._phases.skip()
        self._epoch += 1
        if self.by_epoch and self._torch is None and self._remaining > 0 and is_main_process():
            is_due = self._cycles.at(self._epoch)[1] in ("warmup", "active")
            self._next = self._iteration + 1 if is_due else NEVER

    @at("before_train_iter", order=Order.OUTER)
    def before_train_iter(self, runner: Runner) -> None:
        self._iteration = runner.global_step - (self._began_at or 0)
        if self._torch is None:
            if self._iteration < self._next:
                return
            if is_profiling():
                self._next, self._remaining = NEVER, 0
                runner.logger.warning("another profiler of torch is running and would be ended: nothing is profiled")
                return
            self._begin(runner)
        else:
            self._recording = self._recording or self._cycle_and_stage[1] == "active"
            self._torch.step()
        self._phases.enter(HOOKS)

    @at("before_train_iter", order=Order.INNERMOST)
    def begin_step(self) -> None:
        """Begin the step, after all other hooks have run."""
        if self._torch is not None:
            self._phases.step_begins()

    @at("after_train_iter", order=Order.INNERMOST)
    def end_step(self) -> None:
        """End the step, before all other hooks run."""
        if self._torch is not None:
            self._phases.step_ends()

    @at("after_train_iter", order=Order.OUTER)
    def after_train_iter(self, runner: Runner) -> None:
        """End the iteration, after all other hooks have run."""
        if self._torch is None:
            return
        self._phases.enter(DATA)
        if self._recording:
            self._recorded_iterations += 1
            self._after.append(self._phases.seconds())
            self._remaining -= 1
        else:
            self._before = self._phases.seconds()
        ends = not self.by_epoch and not self._continues_at(self._iteration + 1)
        if ends or self._remaining == 0:
            self._end(runner)

    def after_train_epoch(self, runner: Runner) -> None:
        if self._torch is not None and self.by_epoch and not self._continues_at(self._epoch + 1):
            self._end(runner)

    def before_val(self) -> None:
        self._phases.pause()

    def after_val(self) -> None:
        self._phases.resume()

    before_test, after_test = before_val, after_val

    def after_run(self, runner: Runner) -> None:
        self._write_report(runner)

    def cleanup(self, runner: Runner) -> None:
        """Write the report also if the run has failed."""
        self._write_report(runner)

    def findings(self) -> list[str]:
        """Return what stands out in the profile."""
        return profile_findings(self._profile)

    # -- one cycle --------------------------------------------------------------------------------------------

    @property
    def _cycle_and_stage(self) -> tuple[int, str]:
        return self._cycles.at(self._epoch if self.by_epoch else self._iteration)

    def _continues_at(self, n: int) -> bool:
        cycle, stage = self._cycles.at(n)
        return cycle == self._cycle and stage in ("warmup", "active")

    def _begin(self, runner: Runner) -> None:
        from torch.profiler import ProfilerAction, profile, supported_activities

        self._cycle, stage = self._cycle_and_stage
        # Without an epoch to warm up, the first iteration of the epoch is the warm-up.
        self._recording = stage == "active" and not (self.by_epoch and self._cycles.warmup == 0)
        self._recorded_iterations = 0
        self._after.clear()
        loader = runner.trainer.state.dataloader
        self._profile.circumstances = circumstances_of(runner.data_batch, each(runner.optimizer), loader)
        self._profile.ranks = world_size()
        self._torch = profile(
            activities=supported_activities(),  # type: ignore[no-untyped-call]
            schedule=lambda _: ProfilerAction.RECORD if self._recording else ProfilerAction.WARMUP,
            record_shapes=self.record_shapes,
            profile_memory=self.profile_memory,
            with_stack=self.with_stack,
            with_flops=self.with_flops,
        )
        self._torch.start()
        self._phases, self._processor = Phases(), ProcessorWaits()
        self._phases.watch(runner.model, runner.optimizer, runner.get_service("criterion"))
        self._before = self._phases.seconds()

    def _end(self, runner: Runner) -> None:
        """End a cycle and take over what was recorded."""
        profiler, self._torch = self._torch, None
        is_over = self.by_epoch or self._remaining == 0
        self._next = NEVER if is_over else self._cycles.next_begin(self._iteration) or NEVER
        known, now = self._phases.known, self._phases.seconds()
        self._phases.stop_watching()
        self._processor.stop()
        if not self._recording:
            # Torch complains if it is stopped during its warm-up.
            self._recording = True
            profiler.step()
        profiler.stop()
        if self.with_stack:
            profiler.profiler.kineto_results = ReadableEvents(profiler.profiler.kineto_results)
        try:
            if self._recorded_iterations > 0:
                self._read(runner, profiler, known, now)
        finally:
            release_events(profiler)

    def _read(self, runner: Runner, profiler: Any, known: Collection[str], now: list[float]) -> None:
        seconds = {name: now[i] - self._before[i] for i, name in enumerate(NAMES) if name in known}
        by_iteration = [
            {name: end[i] - begin[i] for i, name in enumerate(NAMES) if name in known}
            for begin, end in pairwise([self._before, *self._after])
        ]
        operators, functions = read_events(profiler.events(), stacks=self.with_stack)
        if self.export_chrome_trace:
            path = runner.work_dir / FOLDER / f"trace_{len(self._profile.traces) + 1}.json.gz"
            path.parent.mkdir(parents=True, exist_ok=True)
            profiler.export_chrome_trace(str(path))
            self._profile.traces.append(path.name)
        self._profile.add(
            self._recorded_iterations, seconds, operators, functions, by_iteration, self._processor.share()
        )
        if self.on_trace_ready is not None:
            self.on_trace_ready(profiler)

    def _write_report(self, runner: Runner) -> None:
        """Write the report, unless it is written already."""
        if self._torch is not None:
            self._end(runner)
        if self._is_reported or self._profile.iterations == 0:
            self._tell_nothing(runner)
            return
        self._is_reported = True
        report = runner.report()
        own = profile_findings(self._profile)
        report.findings = {name: said for name, said in report.findings.items() if runner.hooks[name] is not self}
        others = report.finding_lines()
        parts = sections(self._profile, own, others)
        title = f"Profile of {self._profile.iterations} iterations"
        figure = self._draw()
        folder = runner.work_dir / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        text = as_markdown(title, parts)
        (folder / "profile_report.md").write_text(text, encoding="utf-8")
        page = profile_page(title, parts, base64.b64encode(png(figure)).decode())
        (folder / "profile_report.html").write_text(page, encoding="utf-8")
        runner.logger.info("profile of %d iterations: %s", self._profile.iterations, folder / "profile_report.html")
        for finding in own:
            runner.logger.info("profile: %s", finding)
        if self.export_tensorboard:
            step, each = runner.global_step, 1e3 / self._profile.iterations
            scalars = {f"profile/{name}_ms": value * each for name, value in self._profile.seconds.items()}
            runner.writer.write_scalars(scalars, step, kind="system")
            runner.writer.write_text("profile", text, step)
            runner.writer.write_figure("profile", figure, step)

    def _tell_nothing(self, runner: Runner) -> None:
        """Warn once of a run that was too short for the iterations to profile."""
        if self._is_reported or self._began_at is None or self._remaining == 0 or not is_main_process():
            return
        self._is_reported = True
        runner.logger.warning(
            "nothing was profiled: %s, and the run ended after %d: wait less",
            self._skipped,
            self._epoch if self.by_epoch else runner.global_step - self._began_at,
        )

    @property
    def _skipped(self) -> str:
        return f"{self._cycles.skipped} {'epochs' if self.by_epoch else 'iterations'} are waited and warmed up"

    def _draw(self) -> Any:
        each = 1e3 / self._profile.iterations
        slowest = sorted(self._profile.operators.values(), key=lambda o: -o.time)[:MOST_OPERATORS]
        phases = {name: value * each for name, value in self._profile.seconds.items()}
        return draw_profile(phases, [(o.name, o.time * each) for o in slowest if o.time > 0])


class ReadableEvents:
    """What torch has recorded, without events whose names cannot be read.

    Torch keeps the address of the name of a Python function, not the name. If a module is loaded meanwhile, its name
    may be freed once its code has run, and the memory may hold something else by the time it is read.
    """

    def __init__(self, recorded: Any) -> None:
        self._recorded = recorded

    def __getattr__(self, name: str) -> Any:
        return getattr(self._recorded, name)

    def events(self) -> list[Any]:
        """Return the events with a readable name."""
        return [event for event in self._recorded.events() if has_readable_name(event)]


def has_readable_name(event: Any) -> bool:
    """Return whether the name of an event can be read."""
    try:
        event.name()
    except UnicodeDecodeError:
        return False
    return True


def release_events(profiler: Any) -> None:
    """Free what torch's profiler has recorded.

    It refers to itself, so garbage collection would free it much later. By then its weak references to tensors have
    been seen to write into memory that belongs to something else. Its events take hundreds of megabytes; memory that
    stays allocated for them would hide a leak for long.
    """
    profiler.action_map.clear()
    profiler.profiler = None
    gc.collect()
    trim_memory()


def is_profiling() -> bool:
    """Return whether a profiler of torch is running already, which another one would end."""
    import torch

    return bool(torch._C._autograd._profiler_enabled())
