"""Profiles as data: which iterations to record, what was recorded, and a report of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import Any, Literal

from ignite_hooks.measure import phases
from ignite_hooks.text import duration, operations, percent, size

Stage = Literal["wait", "warmup", "active", "done"]

_time = partial(duration, precise=True)


TRACES = "Traces"
ROWS = 15
"""Maximum number of operators in a table."""


MOST_CALLERS = 6
"""Maximum number of callers shown for a function."""


@dataclass(frozen=True)
class Cycles:
    """The iterations, or epochs, that are recorded: wait, warm up, record, and repeat.

    Example:
        >>> cycles = Cycles(wait=1, warmup=1, active=2, repeat=2)
        >>> [cycles.at(n)[1] for n in range(1, 10)]
        ['wait', 'warmup', 'active', 'active', 'wait', 'warmup', 'active', 'active', 'done']
        >>> cycles.at(7)
        (1, 'active')
    """

    wait: int = 0
    warmup: int = 0
    active: int = 1
    repeat: int = 1

    @property
    def length(self) -> int:
        """The length of one cycle."""
        return self.wait + self.warmup + self.active

    @property
    def skipped(self) -> int:
        """The number of iterations or epochs before the first that is recorded."""
        return self.wait + self.warmup

    def at(self, n: int) -> tuple[int, Stage]:
        """Return the cycle, counted from 0, and the stage of the n-th iteration or epoch, counted from 1."""
        cycle, place = divmod(n - 1, self.length)
        if cycle >= self.repeat:
            return cycle, "done"
        return cycle, "wait" if place < self.wait else "warmup" if place < self.wait + self.warmup else "active"

    def next_begin(self, n: int) -> int | None:
        """Return the first iteration or epoch after the n-th that is not waited through, or None."""
        following = n + 1
        cycle, stage = self.at(following)
        if stage == "wait":
            following = cycle * self.length + self.wait + 1
        return None if self.at(following)[1] == "done" else following


@dataclass(frozen=True)
class Operator:
    """The sum over all calls of one operator in the recorded iterations; times in seconds, memory in bytes."""

    name: str
    calls: int = 0
    own: float = 0.0
    """Time without the operators it called."""
    total: float = 0.0
    device: float = 0.0
    memory: int = 0
    flops: int = 0
    stack: tuple[str, ...] = ()
    """The callers of its longest call, the innermost first."""

    def __add__(self, other: Operator) -> Operator:
        added = {name: getattr(self, name) + getattr(other, name) for name in _ADDED}
        return replace(self, **added, stack=self.stack or other.stack)

    @property
    def time(self) -> float:
        """Time on the device if there is one, otherwise its own time."""
        return self.device or self.own


_ADDED = ("calls", "own", "total", "device", "memory", "flops")


@dataclass(frozen=True)
class Circumstances:
    """The settings under which was recorded, as far as they explain the time of operators.

    Args:
        fills: Whether torch fills every new tensor, as it does for deterministic algorithms.
        foreach_off: Whether an optimizer updates each tensor alone, as it was told to.
        fusable: Whether that optimizer can update all tensors at once.
        by_default: Whether an optimizer could update all tensors at once, and was not told how to update them.
        samples: Number of samples in a batch, if known.
        pinned: Whether the loader pins memory, if known.
    """

    fills: bool = False
    foreach_off: bool = False
    fusable: bool = False
    by_default: bool = False
    samples: int | None = None
    pinned: bool | None = None


@dataclass
class Profile:
    """Everything that was recorded of a run."""

    iterations: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    """Seconds by phase."""
    each: list[dict[str, float]] = field(default_factory=list)
    """Seconds by phase of each iteration, if known."""
    operators: dict[str, Operator] = field(default_factory=dict)
    functions: dict[str, Operator] = field(default_factory=dict)
    """Python functions, if call stacks were recorded."""
    traces: list[str] = field(default_factory=list)
    workers: int | None = None
    circumstances: Circumstances = field(default_factory=Circumstances)
    ranks: int = 1
    waited: float = 0.0
    """Seconds of the recorded iterations in which a thread of the training waited for a processor."""

    def add(
        self,
        iterations: int,
        seconds: Mapping[str, float],
        operators: Iterable[Operator],
        functions: Iterable[Operator] = (),
        each: Iterable[Mapping[str, float]] = (),
        waited: float = 0.0,
    ) -> None:
        """Add what one cycle has recorded; `waited` is the share of its time."""
        self.waited += waited * sum(seconds.values())
        self.each += [dict(one) for one in each]
        self.iterations += iterations
        for name, value in seconds.items():
            self.seconds[name] = self.seconds.get(name, 0.0) + value
        for added, new in ((self.operators, operators), (self.functions, functions)):
            for one in new:
                added[one.name] = added[one.name] + one if one.name in added else one

    @property
    def total(self) -> float:
        """Seconds of the recorded iterations."""
        return sum(self.seconds.values())

    @property
    def usual(self) -> dict[str, float]:
        """Seconds by phase, if every iteration were like the middle one.

        Where other programs take the processor, single iterations have a phase of many times its length, and nothing
        in the training is to blame for it.
        """
        if not self.each:
            return self.seconds
        return {name: median(one.get(name, 0.0) for one in self.each) * self.iterations for name in self.seconds}

    @property
    def flops(self) -> int:
        """Floating point operations of the operators that can be counted."""
        return sum(operator.flops for operator in self.operators.values())


def read_events(events: Iterable[Any], *, stacks: bool) -> tuple[list[Operator], list[Operator]]:
    """Return the operators among the events of torch's profiler, and the Python functions of the training thread."""
    events = list(events)
    training = {event.thread for event in events if str(event.name).startswith("ProfilerStep")}
    # The work of a device is counted by the operator that has started it, and again by an event of its own.
    started = {kernel.name for event in events for kernel in getattr(event, "kernels", ())}
    operators: dict[str, Operator] = {}
    functions: dict[str, Operator] = {}
    longest: dict[str, Any] = {}
    for event in events:
        name = str(event.name)
        if name.startswith(("ProfilerStep", "autograd::engine::evaluate_function", "[")):
            continue  # in brackets: memory
        if not is_on_host(event) and (event.is_user_annotation or name in started) and not name.startswith("Mem"):
            continue
        of_python = stacks and (name.startswith(("<built-in", "nn.Module: ")) or "): " in name)
        if of_python and training and event.thread not in training:
            continue  # other threads mostly wait
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


def is_on_host(event: Any) -> bool:
    """Return whether an event of torch's profiler is one of the host, and not of a GPU."""
    return str(getattr(event, "device_type", "CPU")).rpartition(".")[2] == "CPU"


def callers(event: Any) -> tuple[str, ...]:
    """Return the names of the callers of an event, the innermost first."""
    found: list[str] = []
    event = getattr(event, "cpu_parent", None)
    while event is not None and len(found) < MOST_CALLERS:
        found.append(str(event.name))
        event = event.cpu_parent
    return tuple(found)


@dataclass(frozen=True)
class Section:
    """A heading with sentences and a table."""

    title: str
    lines: Sequence[str] = ()
    rows: Sequence[Mapping[str, str]] = ()


def sections(
    profile: Profile,
    findings: Sequence[str],
    others: Sequence[str] = (),
) -> list[Section]:
    """Return the report of a profile.

    Args:
        profile: What was recorded.
        findings: What stands out in it.
        others: Findings of other hooks.
    """
    found = [f"- {text}" for text in findings]
    parts = [Section("Findings", found or ["Nothing stands out in the iterations that were looked at."])]
    parts.append(Section("What the other hooks found in the whole run", [f"- {text}" for text in others]))
    if profile.iterations:
        each = profile.total / profile.iterations
        rate = f", {operations(profile.flops / profile.total)}/s" if profile.flops and profile.total > 0 else ""
        words = f"{profile.iterations} iterations of {_time(each)} on average while they were looked at{rate}."
        share = phases.phase_shares(profile.seconds)
        rows = [
            {
                "phase": name,
                "per iteration": _time(value / profile.iterations),
                "share": percent(share[name]),
            }
            for name, value in profile.seconds.items()
            if share
        ]
        parts.append(Section("Where the time goes", [words], rows))
    parts.append(Section("Operators by time", (), _table(profile, lambda o: o.time)))
    parts.append(Section("Operators by memory", (), _table(profile, lambda o: o.memory)))
    if profile.flops:
        parts.append(Section("Operators by FLOPs", (), _table(profile, lambda o: o.flops)))
    if profile.functions:
        parts.append(Section("Functions by time", ["Call stacks: the innermost first."], _functions(profile)))
    if profile.traces:
        names = [f"- {name}" for name in profile.traces]
        parts.append(Section(TRACES, ["Open them at https://ui.perfetto.dev, or in chrome://tracing.", *names]))
    return [part for part in parts if part.lines or part.rows]


def _table(profile: Profile, key: Any) -> list[dict[str, str]]:
    chosen = sorted((o for o in profile.operators.values() if key(o) > 0), key=lambda o: -key(o))[:ROWS]
    on_device = any(o.device for o in chosen)
    return [
        {
            "operator": o.name,
            "calls": str(o.calls),
            **({"device": _time(o.device)} if on_device else {}),
            "own time": _time(o.own),
            "share": percent(o.time / profile.total) if profile.total > 0 else "",
            "memory": size(o.memory),
            "FLOPs": operations(o.flops) if o.flops else "",
        }
        for o in chosen
    ]


def _functions(profile: Profile) -> list[dict[str, str]]:
    chosen = sorted(profile.functions.values(), key=lambda o: -o.own)[:ROWS]
    return [
        {
            "function": o.name,
            "calls": str(o.calls),
            "own time": _time(o.own),
            "called by": " < ".join(o.stack),
        }
        for o in chosen
    ]


def as_markdown(title: str, parts: Sequence[Section]) -> str:
    """Return the report as Markdown."""
    lines = [f"# {title}", ""]
    for part in parts:
        lines += [f"## {part.title}", ""]
        if part.lines:
            lines += [*part.lines, ""]
        if part.rows:
            head = list(part.rows[0])
            lines += [_row(head), _row(["---"] * len(head))]
            lines += [_row([row[name].replace("|", "\\|") for name in head]) for row in part.rows]
            lines.append("")
    return "\n".join(lines)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
