"""Where the time of an iteration goes: at every moment a run is in exactly one phase."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ignite_hooks.model.eager_hook import EagerHook
from ignite_hooks.model.optimizers import each
from ignite_hooks.text import percent

DATA, FORWARD, BACKWARD, OPTIMIZER, HOOKS, OTHER, UNSEEN, PAUSE = range(8)

NAMES = ("data", "forward", "backward", "optimizer", "hooks", "other")
"""The phases of an iteration; a step that is not looked into is none of them, and a pause belongs to none."""

MUCH_DATA = 0.2
MUCH_OF_HOOKS = 0.1
MUCH_BACKWARD = 0.4
TIMES_FORWARD = 4.0
SHORT_STEP = 20e-3
"""Of steps that are shorter only some are looked into, about one in so many seconds ..."""
RAREST = 50
"""... but at least one of these."""
MOST_EVENTS = 4096
"""Beyond so many that nobody has asked for, no more are put into the queue of the device."""


class Phases:
    """Charges every moment to one phase, with a clock that is read where one phase follows another.

    Forward and backward begin where the model and its output say so, the optimizer's share where it does; so any
    step will do. The loss belongs to the forward pass. On a GPU these three are also measured by events in the queue
    of the device, which nobody waits for.

    Looking into a step takes some microseconds, most of them for the hook on its output.

    Args:
        clock: Seconds.
        sparing: Whether only some of many short steps are looked into; the others are taken to be like them.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter, *, sparing: bool = False) -> None:
        self._clock = clock
        self._seconds = [0.0] * (PAUSE + 1)
        self._phase, self._since = DATA, clock()
        self._rest = OTHER
        self._in_step = False
        self._before_pause = DATA, False
        self._sparing, self._until, self._step_began = sparing, 1, 0.0
        self._attach: Callable[[], None] | None = None
        self._watches: list[Any] = []
        self._on_device: DeviceTimes | None = None
        self._told: tuple[str, ...] = ("data", "hooks", "other")

    # -- what an iteration goes through -----------------------------------------------------------------------

    def enter(self, phase: int) -> None:
        """From now on the time belongs to this phase."""
        now = self._clock()
        self._seconds[self._phase] += now - self._since
        self._phase, self._since = phase, now

    def skip(self) -> None:
        """Charge the time until now to nobody, and wait for data."""
        self._phase, self._since = DATA, self._clock()

    def step_begins(self) -> None:
        """The hooks have done what they do before the step."""
        self._until -= 1
        if self._until > 0:
            self.enter(UNSEEN)
            return
        if self._attach is not None and not self._watches:
            self._attach()
        self.enter(OTHER)
        self._in_step, self._rest = True, OTHER
        self._step_began = self._since

    def step_ends(self) -> None:
        """The hooks begin with what they do after the step."""
        self.enter(HOOKS)
        if not self._in_step:
            return
        self._in_step = False
        if self._on_device is not None:
            self._on_device.mark(OTHER)
        self._until = one_in(self._since - self._step_began) if self._sparing else 1
        if self._until > 1:
            self._detach()

    def pause(self) -> None:
        """Something begins that belongs to no iteration, an evaluation in the middle of one."""
        if self._phase != PAUSE:
            self._before_pause = self._phase, self._in_step
            self.enter(PAUSE)
            self._in_step = False

    def go_on(self) -> None:
        """It has ended."""
        if self._phase == PAUSE:
            phase, self._in_step = self._before_pause
            self.enter(phase)

    # -- what is known of them --------------------------------------------------------------------------------

    def seconds(self) -> list[float]:
        """Of every phase up to now, in the order of ``NAMES``; the wait for a batch counts once it has come."""
        found = self._seconds[:PAUSE]
        if self._phase not in (DATA, PAUSE):
            found[self._phase] += self._clock() - self._since
        unseen, seen = found.pop(UNSEEN), sum(found[phase] for phase in IN_STEP)
        if seen <= 0:
            found[OTHER] += unseen
        elif unseen:
            for phase in IN_STEP:
                found[phase] *= 1 + unseen / seen
        return found

    @property
    def known(self) -> tuple[str, ...]:
        """The phases that can be told; a model that is called in compiled code is never heard of."""
        unheard = () if self._seconds[FORWARD] else ("forward", "backward")
        return tuple(name for name in self._told if name not in unheard)

    def device_seconds(self) -> list[float] | None:
        """What the device has taken for each phase, as far as it has got; None where there is only the CPU."""
        if self._on_device is None:
            return None
        seen = sum(self._seconds[phase] for phase in IN_STEP)
        times = 1 + self._seconds[UNSEEN] / seen if seen > 0 else 1.0
        return [value * times for value in self._on_device.seconds()]

    # -- watching a model and an optimizer --------------------------------------------------------------------

    def watch(self, model: Any, optimizer: Any, criterion: Any = None) -> None:
        """Hear of forward, backward and optimizer steps until `leave`."""
        self.leave()
        is_module = hasattr(type(model), "register_forward_pre_hook")
        steppers = [one for one in each(optimizer) if hasattr(one, "register_step_post_hook")]
        if is_module and is_on_gpu(model):
            self._on_device = DeviceTimes(cuda_event)

        def attach() -> None:
            watches = self._watches
            if is_module:
                watches.append(model.register_forward_pre_hook(EagerHook(self._on_forward)))
                watches.append(model.register_forward_hook(EagerHook(self._on_output)))
            if is_module and hasattr(type(criterion), "register_forward_hook"):
                watches.append(criterion.register_forward_hook(EagerHook(self._on_loss)))
            for stepper in steppers:
                watches.append(stepper.register_step_pre_hook(EagerHook(self._on_optimizer)))
                watches.append(stepper.register_step_post_hook(EagerHook(self._on_optimizer_done)))

        if is_module or steppers:
            self._attach = attach
        told = {"forward": is_module, "backward": is_module, "optimizer": bool(steppers)}
        self._told = tuple(name for name in NAMES if told.get(name, True))

    def leave(self) -> None:
        """Let go of model and optimizer."""
        self._detach()
        self._attach = self._on_device = None

    def _detach(self) -> None:
        while self._watches:
            self._watches.pop().remove()

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
        """Hear of the moment in which a gradient comes to what was computed; False where none will."""
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
    """How many steps of this length have one that is looked into.

    Example:
        >>> one_in(0.02), one_in(0.001), one_in(0.0001), one_in(0.0)
        (1, 20, 50, 50)
    """
    return min(RAREST, max(1, round(SHORT_STEP / seconds))) if seconds > 0 else RAREST


class DeviceTimes:
    """Phases on a device: events in its queue, read when they have passed.

    Args:
        event: Makes an event with ``record``, ``query`` and ``elapsed_time`` in milliseconds.
    """

    def __init__(self, event: Callable[[], Any]) -> None:
        self._make = event
        self._seconds = [0.0] * len(NAMES)
        self._marks: list[tuple[int, Any]] = []
        self._spare: list[Any] = []

    def mark(self, phase: int) -> None:
        """From here on in the queue, the device works for this phase."""
        if len(self._marks) < MOST_EVENTS:
            event = self._spare.pop() if self._spare else self._make()
            event.record()
            self._marks.append((phase, event))

    def seconds(self) -> list[float]:
        """Of every phase, as far as the device has got."""
        done = 0
        while done + 1 < len(self._marks) and self._marks[done + 1][1].query():
            (phase, begin), (_, end) = self._marks[done : done + 2]
            if phase in (FORWARD, BACKWARD, OPTIMIZER):
                self._seconds[phase] += begin.elapsed_time(end) / 1e3
            done += 1
        self._spare += [event for _, event in self._marks[:done]]
        del self._marks[:done]
        return list(self._seconds)


def cuda_event() -> Any:
    """An event of CUDA's that takes the time."""
    import torch

    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def is_on_gpu(model: Any) -> bool:
    """Whether a model's first parameter is on a CUDA device."""
    parameter = next(iter(model.parameters()), None)
    return parameter is not None and bool(parameter.is_cuda)


def call_after_backward(function: Callable[[], None]) -> None:
    """Call a function when the backward pass that is running has ended."""
    import torch

    torch.autograd.Variable._execution_engine.queue_callback(function)


def first_with_gradient(output: Any) -> Any:
    """The first tensor in an output that a gradient can come to, or None."""
    if hasattr(output, "requires_grad"):
        return output if output.requires_grad else None
    parts: Iterable[Any] = ()
    if isinstance(output, Mapping):
        parts = output.values()
    elif isinstance(output, (list, tuple)):
        parts = output
    return next((found for part in parts if (found := first_with_gradient(part)) is not None), None)


def shares(seconds: Mapping[str, float]) -> dict[str, float]:
    """Each phase as a share of the whole.

    Example:
        >>> shares({"data": 1.0, "forward": 3.0})
        {'data': 0.25, 'forward': 0.75}
    """
    whole = sum(seconds.values())
    return {name: value / whole for name, value in seconds.items()} if whole > 0 else {}


def findings(seconds: Mapping[str, float], workers: int | None = None) -> list[str]:
    """What stands out in the phases, in words.

    Args:
        seconds: By phase.
        workers: How many processes load the data, where that is known.

    Example:
        >>> findings({"data": 4.3, "forward": 2.0, "backward": 3.7}, workers=0)
        ['data loading takes 43 % of the iteration: set num_workers of the loader, which is 0']
        >>> findings({"data": 0.1, "forward": 2.0, "backward": 4.0})
        []
    """
    share = shares(seconds)
    found = []
    if share.get("data", 0) >= MUCH_DATA:
        remedy = {None: "load it in workers, or make it cheaper", 0: "set num_workers of the loader, which is 0"}
        words = remedy.get(workers, f"raise num_workers, now {workers}, or make a sample cheaper")
        found.append(f"data loading takes {percent(share['data'])} of the iteration: {words}")
    forward, backward = seconds.get("forward", 0.0), seconds.get("backward", 0.0)
    if share.get("backward", 0) >= MUCH_BACKWARD and backward > TIMES_FORWARD * forward:
        times = f", {backward / forward:.1f} times the forward pass where 2 are usual" if forward > 0 else ""
        words = "look for slow autograd functions and gradient hooks"
        found.append(f"the backward pass takes {percent(share['backward'])} of the iteration{times}: {words}")
    if share.get("hooks", 0) >= MUCH_OF_HOOKS:
        words = "runner.report() says which; an overhead_budget slows those down that only observe"
        found.append(f"hooks take {percent(share['hooks'])} of the iteration: {words}")
    return found
