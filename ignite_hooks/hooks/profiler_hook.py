"""Looks into some iterations with torch.profiler and writes down where the time goes."""

from __future__ import annotations

import base64
import gc
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from annotated_types import Ge

from ignite_hooks.distributed.collectives import is_main_process
from ignite_hooks.drawing.profile import draw_profile, png
from ignite_hooks.errors import SettingError
from ignite_hooks.hooks.base_hook import BaseHook, OnError, PriorityLike, settings
from ignite_hooks.measure.machine import give_back
from ignite_hooks.measure.phases import DATA, HOOKS, NAMES, Phases
from ignite_hooks.measure.profile import Cycles, Operator, Profile, as_markdown, sections
from ignite_hooks.plan.methods import at
from ignite_hooks.plan.priority import Order, Priority
from ignite_hooks.plan.schedule import NEVER, When
from ignite_hooks.report.profile_page import profile_page

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner

FOLDER = "profile"
DRAWN = 10
"""So many operators are in the picture."""
DEEPEST = 6
"""So many callers of a function are shown."""


class ProfileSchedule(TypedDict, total=False):
    """Which iterations are looked at."""

    wait: Annotated[int, Ge(0)]
    warmup: Annotated[int, Ge(0)]
    active: Annotated[int, Ge(1)]
    repeat: Annotated[int, Ge(1)]


@dataclass(frozen=True)
class Looks(When):
    """Every iteration that is looked at and none that is only waited through, which then costs nothing."""

    next_look: Callable[[int], int] | None = field(default=None, compare=False, repr=False)
    """The iteration after the n-th in which there is something to do; None: all of them."""

    @property
    def always(self) -> bool:
        return self.next_look is None

    def due(self, n: int) -> bool:
        return self.following(n - 1) == n

    def following(self, n: int) -> int:
        return n + 1 if self.next_look is None else self.next_look(n)


METHODS_OF_AN_ITERATION = ("before_train_iter", "begin_step", "end_step", "after_train_iter")


@settings
class ProfilerHook(BaseHook):
    """Look into some iterations with torch.profiler; write traces, tables and what stands out to ``profile``.

    Args:
        by_epoch: Whether the schedule counts epochs; without one, whether the first epoch is looked at.
        profile_iters: The most iterations that are looked at; without a schedule, how many after one to warm up.
        schedule: How many iterations to wait, warm up and look at (active), and how often that is repeated, by default
            once.
        on_trace_ready: Called with torch's profiler for each trace, which is empty afterwards.
        record_shapes: Whether the trace holds the shapes of inputs.
        profile_memory: Whether memory is counted.
        with_stack: Whether Python functions and their callers are recorded; slow.
        with_flops: Whether floating point operations are counted, of operators for which torch knows how.
        export_chrome_trace: Whether traces are written, which Perfetto and Chrome open.
        export_tensorboard: Whether phases, tables and the picture also go to the writers.

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
    # Around all others, so that what they do is seen too.
    priority: PriorityLike = Priority.HIGHEST
    on_error: OnError = "warn"

    def __post_init__(self) -> None:
        given: dict[str, Any] = dict(self.schedule or {})
        if self.schedule is not None and "active" not in given:
            raise SettingError("schedule", "needs 'active', how many iterations are looked at")
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
                f"{self.profile_iters} iterations are all looked at before the last of "
                f"{self._cycles.repeat} cycles begins: at least {before_last + 1} are needed",
            )
        self._forget()

    def _forget(self) -> None:
        self._torch: Any = None
        self._recording = False
        self._iteration = self._epoch = self._cycle = self._seen = 0
        self._began_at: int | None = None
        self._left = self.profile_iters
        self._next = NEVER
        self._profile = Profile()
        self._phases = Phases()
        self._before: list[float] = []
        self._told = False

    @property
    def when(self) -> When:
        """The schedule of this hook is of another kind: its iterations follow from its state."""
        return Looks() if self.by_epoch else Looks(next_look=self._next_look)

    def _next_look(self, n: int) -> int:
        if self._torch is not None or self._began_at is None:
            return n + 1
        return max(n + 1, self._began_at + self._next)

    def how_often(self, method: str) -> str | None:
        if method not in METHODS_OF_AN_ITERATION:
            return None
        cycles, unit = self._cycles, "epochs" if self.by_epoch else "iters"
        return f"{cycles.active} {unit} after {cycles.wait + cycles.warmup}, {cycles.repeat} x"

    # -- a run ------------------------------------------------------------------------------------------------

    def before_run(self) -> None:
        self._forget()

    def before_train(self, runner: Runner) -> None:
        self._began_at = runner.global_step
        self._profile.workers = getattr(runner.trainer.state.dataloader, "num_workers", None)
        if not self.by_epoch and is_main_process():
            self._next = self._cycles.next_begin(0) or NEVER

    def before_train_epoch(self) -> None:
        self._phases.skip()
        self._epoch += 1
        if self.by_epoch and self._torch is None and self._left > 0 and is_main_process():
            looks = self._cycles.at(self._epoch)[1] in ("warmup", "active")
            self._next = self._iteration + 1 if looks else NEVER

    @at("before_train_iter", order=Order.OUTER)
    def before_train_iter(self, runner: Runner) -> None:
        self._iteration = runner.global_step - (self._began_at or 0)
        if self._torch is None:
            if self._iteration < self._next:
                return
            if another_runs():
                self._next, self._left = NEVER, 0
                runner.logger.warning("another profiler of torch is running, and would be ended: nothing is profiled")
                return
            self._begin(runner)
        else:
            self._recording = self._recording or self._place[1] == "active"
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
            self._seen += 1
            self._left -= 1
        else:
            self._before = self._phases.seconds()
        ends = not self.by_epoch and not self._goes_on_at(self._iteration + 1)
        if ends or self._left == 0:
            self._end(runner)

    def after_train_epoch(self, runner: Runner) -> None:
        if self._torch is not None and self.by_epoch and not self._goes_on_at(self._epoch + 1):
            self._end(runner)

    def before_val(self) -> None:
        self._phases.pause()

    def after_val(self) -> None:
        self._phases.go_on()

    before_test, after_test = before_val, after_val

    def after_run(self, runner: Runner) -> None:
        self._tell(runner)

    def cleanup(self, runner: Runner) -> None:
        """Where a run failed, what was seen until then is worth as much."""
        self._tell(runner)

    def findings(self) -> list[str]:
        """What stands out, in words."""
        return self._profile.findings()

    # -- one cycle --------------------------------------------------------------------------------------------

    @property
    def _place(self) -> tuple[int, str]:
        return self._cycles.at(self._epoch if self.by_epoch else self._iteration)

    def _goes_on_at(self, n: int) -> bool:
        cycle, stage = self._cycles.at(n)
        return cycle == self._cycle and stage in ("warmup", "active")

    def _begin(self, runner: Runner) -> None:
        from torch.profiler import ProfilerAction, profile, supported_activities

        self._cycle, stage = self._place
        # An epoch that is looked at without one to warm up begins with an iteration to warm up.
        self._recording = stage == "active" and not (self.by_epoch and self._cycles.warmup == 0)
        self._seen = 0
        self._torch = profile(
            activities=supported_activities(),  # type: ignore[no-untyped-call]
            schedule=lambda _: ProfilerAction.RECORD if self._recording else ProfilerAction.WARMUP,
            record_shapes=self.record_shapes,
            profile_memory=self.profile_memory,
            with_stack=self.with_stack,
            with_flops=self.with_flops,
        )
        self._torch.start()
        self._phases = Phases()
        self._phases.watch(runner.model, runner.optimizer, runner.get_service("criterion"))
        self._before = self._phases.seconds()

    def _end(self, runner: Runner) -> None:
        """Take down what was seen of a cycle."""
        profiler, self._torch = self._torch, None
        self._next = NEVER if self.by_epoch or self._left == 0 else self._cycles.next_begin(self._iteration) or NEVER
        known, now = self._phases.known, self._phases.seconds()
        self._phases.leave()
        if not self._recording:
            # Torch does not like to be stopped while it warms up.
            self._recording = True
            profiler.step()
        profiler.stop()
        if self.with_stack:
            profiler.profiler.kineto_results = Readable(profiler.profiler.kineto_results)
        try:
            if self._seen > 0:
                self._read(runner, profiler, known, now)
        finally:
            let_go(profiler)

    def _read(self, runner: Runner, profiler: Any, known: Collection[str], now: list[float]) -> None:
        seconds = {name: now[i] - self._before[i] for i, name in enumerate(NAMES) if name in known}
        operators, functions = read(profiler.events(), stacks=self.with_stack)
        if self.export_chrome_trace:
            path = runner.work_dir / FOLDER / f"trace_{len(self._profile.traces) + 1}.json.gz"
            path.parent.mkdir(parents=True, exist_ok=True)
            profiler.export_chrome_trace(str(path))
            self._profile.traces.append(path.name)
        self._profile.add(self._seen, seconds, operators, functions)
        if self.on_trace_ready is not None:
            self.on_trace_ready(profiler)

    def _tell(self, runner: Runner) -> None:
        """Write the report, once."""
        if self._torch is not None:
            self._end(runner)
        if self._told or self._profile.iterations == 0:
            return
        self._told = True
        report = runner.report()
        mine = self._profile.findings()
        report.findings = {name: said for name, said in report.findings.items() if runner.hooks[name] is not self}
        others = report.finding_lines()
        parts = sections(self._profile, others, report.costs())
        title = f"Profile of {self._profile.iterations} iterations"
        figure = self._drawn()
        folder = runner.work_dir / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        text = as_markdown(title, parts)
        (folder / "profile_report.md").write_text(text, encoding="utf-8")
        page = profile_page(title, parts, base64.b64encode(png(figure)).decode())
        (folder / "profile_report.html").write_text(page, encoding="utf-8")
        runner.logger.info("profile of %d iterations: %s", self._profile.iterations, folder / "profile_report.html")
        for finding in mine:
            runner.logger.info("profile: %s", finding)
        if self.export_tensorboard:
            step, each = runner.global_step, 1e3 / self._profile.iterations
            scalars = {f"profile/{name}_ms": value * each for name, value in self._profile.seconds.items()}
            runner.writer.write_scalars(scalars, step, kind="system")
            runner.writer.write_text("profile", text, step)
            runner.writer.write_figure("profile", figure, step)

    def _drawn(self) -> Any:
        each = 1e3 / self._profile.iterations
        dearest = sorted(self._profile.operators.values(), key=lambda o: -o.time)[:DRAWN]
        phases = {name: value * each for name, value in self._profile.seconds.items()}
        return draw_profile(phases, [(o.name, o.time * each) for o in dearest if o.time > 0])


class Readable:
    """What torch has recorded, without events whose names cannot be read.

    It remembers where the name of a Python function is, and not what it says: that of a module which is loaded
    meanwhile is freed once its code has run, and what stands there then is often no text.
    """

    def __init__(self, recorded: Any) -> None:
        self._recorded = recorded

    def __getattr__(self, name: str) -> Any:
        return getattr(self._recorded, name)

    def events(self) -> list[Any]:
        """Those with a name."""
        return [event for event in self._recorded.events() if has_name(event)]


def has_name(event: Any) -> bool:
    """Whether the name of an event can be read."""
    try:
        event.name()
    except UnicodeDecodeError:
        return False
    return True


def let_go(profiler: Any) -> None:
    """Free what torch's profiler has recorded.

    It refers to itself, and would be freed by some garbage collection long afterwards. By then the weak references to
    tensors that it holds have been seen to write into memory that belongs to something else. Its events, hundreds of
    megabytes of them, refer to each other; memory that were kept for more of them would hide a leak for long.
    """
    profiler.action_map.clear()
    profiler.profiler = None
    gc.collect()
    give_back()


def read(events: Iterable[Any], *, stacks: bool) -> tuple[list[Operator], list[Operator]]:
    """The operators among the events of torch's profiler, and the Python functions of the thread that trains."""
    events = list(events)
    training = {event.thread for event in events if str(event.name).startswith("ProfilerStep")}
    operators: dict[str, Operator] = {}
    functions: dict[str, Operator] = {}
    longest: dict[str, Any] = {}
    for event in events:
        name = str(event.name)
        if name.startswith(("ProfilerStep", "autograd::engine::evaluate_function")):
            continue
        of_python = stacks and (name.startswith(("<built-in", "nn.Module: ")) or "): " in name)
        if of_python and training and event.thread not in training:
            continue  # other threads wait most of the time
        found = functions if of_python else operators
        one = Operator(
            name,
            1,
            event.self_cpu_time_total / 1e6,
            event.cpu_time_total / 1e6,
            float(getattr(event, "self_device_time_total", 0.0)) / 1e6,
            int(getattr(event, "self_cpu_memory_usage", 0) + getattr(event, "self_device_memory_usage", 0)),
            int(event.flops or 0),
        )
        found[name] = found[name] + one if name in found else one
        if stacks and event.self_cpu_time_total >= getattr(longest.get(name), "self_cpu_time_total", 0.0):
            longest[name] = event
    if stacks:
        functions = {name: replace(one, stack=callers(longest.get(name))) for name, one in functions.items()}
    return list(operators.values()), list(functions.values())


def callers(event: Any) -> tuple[str, ...]:
    """The names of what called an event, the innermost first."""
    found: list[str] = []
    event = getattr(event, "cpu_parent", None)
    while event is not None and len(found) < DEEPEST:
        found.append(str(event.name))
        event = event.cpu_parent
    return tuple(found)


def another_runs() -> bool:
    """Whether a profiler of torch is running already: another would end it."""
    import torch

    return bool(torch._C._autograd._profiler_enabled())
