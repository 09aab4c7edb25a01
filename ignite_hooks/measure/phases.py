"""The time of an iteration by phase: at every moment a run is in exactly one phase."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from ignite_hooks.measure.eager_hook import EagerHook
from ignite_hooks.measure.step_marks import StepMarks
from ignite_hooks.model.parts import each
from ignite_hooks.system.devices import timed_event

DATA, FORWARD, BACKWARD, OPTIMIZER, HOOKS, OTHER, UNSAMPLED, PAUSE = range(8)

NAMES = ("data", "forward", "backward", "optimizer", "hooks", "other")
"""The phases of an iteration; steps that are not sampled and pauses are none of them."""

USUAL = [HOOKS, UNSAMPLED, HOOKS, DATA]
"""The phases that begin in an iteration whose step is not sampled."""

SHORT_STEP = 20e-3
"""Of steps shorter than this only some are sampled, about one in this many seconds ..."""
RAREST = 50
"""... but at least one in this many steps."""
MOST_EVENTS = 4096
"""Maximum number of events in the queue of the device that have not been read."""


class Phases:
    """Charge every moment to one phase; the clock is read when the phase changes.

    Hooks of torch on the model, on its output and on the optimizer mark forward, backward and update, so any step
    function can be measured. The loss belongs to the forward pass. On a GPU these three are also measured by events
    in the queue of the device, without waiting for it.

    Sampling a step takes some microseconds, most of them for the hook on the output.

    Args:
        clock: Returns seconds.
        sparing: Whether to sample only some of many short steps; the others count as equal to them.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter, *, sparing: bool = False) -> None:
        self._clock = clock
        self._seconds = [0.0] * (PAUSE + 1)
        self._phase, self._since = DATA, clock()
        self._rest = OTHER
        self._in_step = False
        self._before_pause = DATA, False
        self._is_sparing, self._until, self._step_began = sparing, 1, 0.0
        self._register_hooks: Callable[[], None] | None = None
        self._handles: list[Any] = []
        self._on_device: DeviceTimes | None = None
        self._measurable: tuple[str, ...] = ("data", "hooks", "other")
        self._begun = 0
        self._marks = StepMarks(clock)
        # Functions of C, as these four are called in every iteration.
        self.batch_comes = self._marks.marker(HOOKS)
        """Enter the hooks before a step."""
        self.step_begins = self._marks.marker_between(UNSAMPLED, lambda: self._until, self._sampled_step_begins)
        """Enter the step: the hooks before it have run."""
        self.step_ends = self._marks.marker_between(HOOKS, lambda: self._until, self._sampled_step_ends)
        """Leave the step: the hooks after it begin."""
        self.iteration_ends = self._marks.marker(DATA)
        """Leave the hooks: the wait for the next batch begins."""

    def __reduce__(self) -> Any:
        # A copy begins anew: iterators of C cannot be copied.
        return partial(Phases, sparing=self._is_sparing), (self._clock,)

    # -- what an iteration goes through -----------------------------------------------------------------------

    def enter(self, phase: int) -> None:
        """Charge the time from now on to this phase."""
        self._add_up()
        now = self._clock()
        self._seconds[self._phase] += now - self._since
        self._phase, self._since = phase, now

    def skip(self) -> None:
        """Discard the time since the last phase began, and enter the wait for data."""
        self._add_up()
        self._phase, self._since = DATA, self._clock()

    def _add_up(self) -> None:
        if self._marks.rows:
            self._phase, self._since, begun = self._marks.add_up(self._seconds, self._phase, self._since, USUAL)
            self._begun += begun

    def _sampled_step_begins(self) -> None:
        # If it does not end, the next one is sampled.
        self._until = 1
        if self._register_hooks is not None and not self._handles:
            self._register_hooks()
        self.enter(OTHER)
        self._in_step, self._rest = True, OTHER
        self._step_began = self._since

    def _sampled_step_ends(self) -> None:
        self.enter(HOOKS)
        if not self._in_step:
            return
        self._in_step = False
        if self._on_device is not None:
            self._on_device.mark(OTHER)
        self._until = one_in(self._since - self._step_began) if self._is_sparing else 1
        if self._until > 1:
            self._remove_hooks()

    def pause(self) -> None:
        """Pause for something that belongs to no iteration, such as an evaluation in the middle of one."""
        self._add_up()
        if self._phase != PAUSE:
            self._before_pause = self._phase, self._in_step
            self.enter(PAUSE)
            self._in_step = False

    def resume(self) -> None:
        """Continue after a pause."""
        if self._phase == PAUSE:
            phase, self._in_step = self._before_pause
            self.enter(phase)

    # -- what is known of them --------------------------------------------------------------------------------

    def seconds(self) -> list[float]:
        """Return the seconds of every phase, in the order of ``NAMES``; a wait for data counts once it has ended."""
        self._add_up()
        found = self._seconds[:PAUSE]
        if self._phase not in (DATA, PAUSE):
            found[self._phase] += self._clock() - self._since
        unsampled, seen = found.pop(UNSAMPLED), sum(found[phase] for phase in IN_STEP)
        if seen <= 0:
            found[OTHER] += unsampled
        elif unsampled:
            for phase in IN_STEP:
                found[phase] *= 1 + unsampled / seen
        return found

    @property
    def iterations(self) -> int:
        """The number of iterations that have begun."""
        self._add_up()
        return self._begun

    @property
    def known(self) -> tuple[str, ...]:
        """The phases that can be measured; a model called in compiled code runs no hooks."""
        without_hooks = () if self._seconds[FORWARD] else ("forward", "backward")
        return tuple(name for name in self._measurable if name not in without_hooks)

    def device_seconds(self) -> list[float] | None:
        """Return the seconds of the device for each phase, as far as it has finished; None without a GPU."""
        if self._on_device is None:
            return None
        seen = sum(self._seconds[phase] for phase in IN_STEP)
        times = 1 + self._seconds[UNSAMPLED] / seen if seen > 0 else 1.0
        return [value * times for value in self._on_device.seconds()]

    def read(self) -> tuple[list[float], list[float] | None, tuple[str, ...]]:
        """Return the seconds, those of the device, and the phases that can be measured."""
        return self.seconds(), self.device_seconds(), self.known

    # -- watching a model and an optimizer --------------------------------------------------------------------

    def watch(self, model: Any, optimizer: Any, criterion: Any = None) -> None:
        """Measure forward, backward and optimizer steps until `stop_watching`; there may be several of each."""
        self.stop_watching()
        modules = [one for one in each(model) if hasattr(type(one), "register_forward_pre_hook")]
        steppers = [one for one in each(optimizer) if hasattr(one, "register_step_post_hook")]
        if (device := gpu_of(modules)) is not None:
            self._on_device = DeviceTimes(partial(timed_event, device))

        def register_hooks() -> None:
            handles = self._handles
            for module in modules:
                handles.append(module.register_forward_pre_hook(EagerHook(self._on_forward)))
                handles.append(module.register_forward_hook(EagerHook(self._on_output)))
            if modules and hasattr(type(criterion), "register_forward_hook"):
                handles.append(criterion.register_forward_hook(EagerHook(self._on_loss)))
            for stepper in steppers:
                handles.append(stepper.register_step_pre_hook(EagerHook(self._on_optimizer)))
                handles.append(stepper.register_step_post_hook(EagerHook(self._on_optimizer_done)))

        if modules or steppers:
            self._register_hooks = register_hooks
        measurable = {"forward": bool(modules), "backward": bool(modules), "optimizer": bool(steppers)}
        self._measurable = tuple(name for name in NAMES if measurable.get(name, True))

    def stop_watching(self) -> None:
        """Remove the hooks from model and optimizer."""
        self._remove_hooks()
        self._register_hooks = self._on_device = None

    def _remove_hooks(self) -> None:
        while self._handles:
            self._handles.pop().remove()

    def _move(self, phase: int) -> None:
        if phase != self._phase:
            self.enter(phase)
            if self._on_device is not None:
                self._on_device.mark(phase)

    def _on_forward(self, *_: Any) -> None:
        if self._in_step:
            self._move(FORWARD)

    def _on_output(self, module: Any, inputs: Any, output: Any) -> None:
        if self._in_step and not self._await_backward(output):
            self._move(self._rest)

    def _on_loss(self, module: Any, inputs: Any, loss: Any) -> None:
        if self._in_step and self._await_backward(loss):
            self._move(self._rest)

    def _await_backward(self, output: Any) -> bool:
        """Register a hook for the gradient of an output; return False if it needs none."""
        tensor = output if hasattr(output, "requires_grad") else first_with_gradient(output)
        if tensor is None or not tensor.requires_grad:
            return False
        tensor.register_hook(EagerHook(self._on_backward))
        return True

    def _on_backward(self, *_: Any) -> None:
        if self._in_step and self._phase != BACKWARD:
            self._move(BACKWARD)
            call_after_backward(self._on_backward_done)

    def _on_backward_done(self) -> None:
        # Gradients of several processes are waited for in callbacks of the same kind, which may come after this one.
        call_after_backward(self._on_gradients_ready)

    def _on_gradients_ready(self) -> None:
        if self._in_step:
            self._move(self._rest)

    def _on_optimizer(self, *_: Any) -> None:
        if self._in_step:
            self._rest = OPTIMIZER
            self._move(OPTIMIZER)

    def _on_optimizer_done(self, *_: Any) -> None:
        self._rest = OTHER
        if self._in_step:
            self._move(OTHER)


IN_STEP = (FORWARD, BACKWARD, OPTIMIZER, OTHER)


def one_in(seconds: float) -> int:
    """Return the number of steps of this length of which one is sampled.

    Example:
        >>> one_in(0.02), one_in(0.001), one_in(0.0001), one_in(0.0)
        (1, 20, 50, 50)
    """
    return min(RAREST, max(1, round(SHORT_STEP / seconds))) if seconds > 0 else RAREST


class DeviceTimes:
    """Times of phases on a device: events in its queue, read when they have passed.

    Args:
        event: Returns an event with ``record``, ``query`` and ``elapsed_time`` in milliseconds.
    """

    def __init__(self, event: Callable[[], Any]) -> None:
        self._make = event
        self._seconds = [0.0] * len(NAMES)
        self._marks: list[tuple[int, Any]] = []
        self._spare: list[Any] = []

    def mark(self, phase: int) -> None:
        """Put an event into the queue: the work after it belongs to this phase."""
        if len(self._marks) < MOST_EVENTS:
            event = self._spare.pop() if self._spare else self._make()
            event.record()
            self._marks.append((phase, event))

    def seconds(self) -> list[float]:
        """Return the seconds of every phase, as far as the device has finished."""
        done = 0
        while done + 1 < len(self._marks) and self._marks[done + 1][1].query():
            (phase, begin), (_, end) = self._marks[done : done + 2]
            if phase in (FORWARD, BACKWARD, OPTIMIZER):
                self._seconds[phase] += begin.elapsed_time(end) / 1e3
            done += 1
        self._spare += [event for _, event in self._marks[:done]]
        del self._marks[:done]
        return list(self._seconds)


def gpu_of(modules: Iterable[Any]) -> str | None:
    """Return ``cuda`` or ``mps`` if the first parameter of a model is there, else None.

    Example:
        >>> import torch
        >>> gpu_of([torch.nn.Linear(1, 1), torch.nn.ReLU()])
    """
    first = [next(iter(module.parameters()), None) for module in modules]
    return next((one.device.type for one in first if one is not None and one.device.type in ("cuda", "mps")), None)


def call_after_backward(function: Callable[[], None]) -> None:
    """Call a function when the current backward pass has ended."""
    import torch

    torch.autograd.Variable._execution_engine.queue_callback(function)


def first_with_gradient(output: Any) -> Any:
    """Return the first tensor in an output that requires a gradient, or None."""
    if hasattr(output, "requires_grad"):
        return output if output.requires_grad else None
    parts: Iterable[Any] = ()
    if isinstance(output, Mapping):
        parts = output.values()
    elif isinstance(output, (list, tuple)):
        parts = output
    return next((found for part in parts if (found := first_with_gradient(part)) is not None), None)


def phase_shares(seconds: Mapping[str, float]) -> dict[str, float]:
    """Return each phase as a share of the whole.

    Example:
        >>> phase_shares({"data": 1.0, "forward": 3.0})
        {'data': 0.25, 'forward': 0.75}
    """
    whole = sum(seconds.values())
    return {name: value / whole for name, value in seconds.items()} if whole > 0 else {}
