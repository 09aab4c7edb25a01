"""Ends a run on request: of a hook, or of a signal, on any rank."""

from __future__ import annotations

import enum
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING

from ignite_hooks.distributed.collectives import all_gather, all_reduce_max, world_size
from ignite_hooks.errors import RankError
from ignite_hooks.plan.schedule import NEVER
from ignite_hooks.results.outcome import StopKind
from ignite_hooks.run.state import Phase, RunState

if TYPE_CHECKING:
    from ignite.engine import Engine

    from ignite_hooks.engine.fast_path import IterationBoxes
    from ignite_hooks.engine.signals import Signals
    from ignite_hooks.plan.plan import Plan
    from ignite_hooks.plan.slots import Slot

SECONDS_BETWEEN_VOTES = 0.05
"""The approximate time between two votes that are held only because of signals."""

SECONDS_OF_A_SIGNAL = 5.0
"""The time in which one signal reaches all ranks, as where Slurm sends it to several machines."""


class VotePoint(IntEnum):
    """A point of the run at which the ranks vote."""

    RUN_START = 0
    EPOCH_START = 1
    IN_EPOCH = 2
    EPOCH_END = 3
    IN_EVALUATION = 4


_WORDS = {
    VotePoint.RUN_START: "at the start of the run",
    VotePoint.EPOCH_START: "at the start of",
    VotePoint.IN_EPOCH: "in",
    VotePoint.EPOCH_END: "at the end of",
    VotePoint.IN_EVALUATION: "in an evaluation in",
}
"""The descriptions of the points in messages."""


class Order(enum.Flag):
    """What the ranks do in the same iteration because a signal, or somebody outside, has asked for it."""

    SAVE = enum.auto()
    REQUEUE = enum.auto()
    """Ask Slurm to start the job again, after this save."""
    EVALUATE = enum.auto()
    SAVE_AT_END = enum.auto()
    """Save the last state when the run ends, whatever the hook that saves is set to."""
    REQUEUE_AT_END = enum.auto()


NOTHING = Order(0)


@dataclass(frozen=True)
class StopRequest:
    """A request to end the run, or none."""

    reason: str | None = None
    signal: int = 0
    """The number of the signal that ends the run."""
    orders: Order = NOTHING
    """What else is to be done."""
    kind: StopKind = ""
    """Who ends the run."""
    saves: int = 0
    """How many saves have ended and are yet to be reported."""


class Stopping:
    """Ends a run in phases: ``RUNNING``, ``REQUESTED`` on this rank, ``AGREED`` by all ranks, ``CLOSING``.

    A single process needs no vote: its request is agreed at once.

    Args:
        state: Receives the phase of the run and the reason for its end.
        vote: The vote of the ranks; a single process takes none.
        boxes: The iteration events that are handled; a request wakes them.
    """

    def __init__(self, state: RunState, vote: StopVote, boxes: IterationBoxes) -> None:
        self.vote = vote
        self.signals: Signals | None = None
        self._state, self._boxes = state, boxes
        self._request = StopRequest()
        self._ordered: deque[Order] = deque()
        """The orders that are not agreed on yet; a signal or another thread may add one at any time."""
        self._due = NOTHING
        self._of_others = NOTHING, 0.0
        """What the ranks have agreed on last while this one had not asked for it, and when."""
        self.count_saves: Callable[[], int] = int
        """Returns how many saves have ended on this rank and are yet to be reported."""
        self.saves_ended = 0
        """How many of them have ended on all ranks, by the vote that was just taken."""
        self.requeues = False
        """Whether a save that a signal has asked for makes Slurm start the job again."""

    def reset(self) -> None:
        """Forget how the previous run ended."""
        self._state.stop_reason, self._state.aborting = None, False
        self._state.stop_kind, self._state.leaves_with = "", None
        self._state.delivered = None
        self._state.save_at_end = self._state.requeue_at_end = False
        self._request, self._due, self._of_others = StopRequest(), NOTHING, (NOTHING, 0.0)
        self._ordered.clear()

    def begin(self) -> None:
        """Accept requests from now on."""
        self._state.phase = Phase.RUNNING

    def request(self, reason: str, kind: StopKind = "", leave_with: BaseException | None = None) -> None:
        """Request the end of the run after the current iteration; keep the first reason."""
        if self._state.running and self._state.stop_reason is None and self._request.reason is None:
            self._state.leaves_with = leave_with
            if self.vote.needed:
                self._keep(replace(self._request, reason=reason, kind=kind))
            else:
                self._agree(reason, kind)
        self._boxes.wake()

    def leave(self) -> None:
        """Raise the exception with which a stopped run was to be left, now that it is cleaned up."""
        error, self._state.leaves_with = self._state.leaves_with, None
        if error is not None:
            raise error

    def order(self, wanted: Order) -> None:
        """Ask all ranks for something besides training; any thread may call this."""
        self._ordered.append(wanted)
        if not self.vote.needed:
            self._boxes.wake()

    def take_due(self) -> Order:
        """Return what all ranks have agreed to do now; it is due only once."""
        if self._ordered and not self.vote.needed:
            self._agree_on(self._taken())
        due, self._due = self._due, NOTHING
        return due

    def _taken(self) -> Order:
        taken = NOTHING
        while self._ordered:
            taken |= self._ordered.popleft()
        return taken

    def _agree_on(self, orders: Order) -> None:
        self._due |= orders & (Order.SAVE | Order.REQUEUE | Order.EVALUATE)
        self._state.save_at_end |= Order.SAVE_AT_END in orders
        self._state.requeue_at_end |= Order.REQUEUE_AT_END in orders

    def on_signal(self, name: str, action: str = "stop") -> None:
        """Save, or request the end of the run, and of an evaluation, because of a signal."""
        # Slurm sends SIGTERM also to jobs that nobody wants any more.
        requeues = self.requeues and name not in ("SIGTERM", "SIGINT")
        if action == "save":
            wanted = Order.SAVE | (Order.REQUEUE if requeues else NOTHING)
            if not self._is_known(wanted):
                self.order(wanted)
            return
        extra = Order.SAVE_AT_END if action == "save and stop" else NOTHING
        extra |= Order.REQUEUE_AT_END if requeues else NOTHING
        if extra and not self.vote.needed:
            self._agree_on(extra)
        elif extra:
            self._ordered.append(extra)
        reason = f"{name} received"
        if self.vote.needed:
            number = self._request.signal or int(signal.Signals[name])
            self._keep(replace(self._request, reason=self._request.reason or reason, signal=number))
        else:
            self._state.aborting = True
            self.request(reason)

    def _is_known(self, wanted: Order) -> bool:
        """Return whether a signal has reached other ranks before, and they have agreed on what it asks for."""
        (known, when), self._of_others = self._of_others, (NOTHING, 0.0)
        return wanted in known and self.vote.now() - when < SECONDS_OF_A_SIGNAL

    def _keep(self, request: StopRequest) -> None:
        self._request = request
        if self._state.phase is Phase.RUNNING:
            self._state.phase = Phase.REQUESTED

    def _agree(self, reason: str, kind: StopKind) -> None:
        self._state.stop_reason, self._state.stop_kind, self._state.phase = reason, kind, Phase.AGREED

    def stop_if_agreed(self, trainer: Engine, point: VotePoint) -> None:
        """End the run if any rank has requested it; every rank must call this at the same point."""
        self.saves_ended = 0
        if self.vote.needed and self._state.stop_reason is None:
            self.take_vote(trainer, point)
        self.terminate_if_stopped(trainer)

    def take_vote(self, trainer: Engine, point: VotePoint, step: int = 0) -> None:
        """Vote with the other ranks; every rank must call this at the same point."""
        state = trainer.state
        request = replace(self._request, orders=self._taken(), saves=self.count_saves())
        agreed = self.vote.take(request, point, int(state.epoch), int(state.iteration), step)
        self._agree_on(agreed.orders)
        if Order.SAVE in agreed.orders:
            self._of_others = (NOTHING if Order.SAVE in request.orders else agreed.orders), self.vote.now()
        self.saves_ended = agreed.saves
        if agreed.reason is not None and self._state.stop_reason is None:
            self._agree(agreed.reason, agreed.kind)
        if agreed.signal:
            self._state.aborting = True
            if self.signals is not None:
                self.signals.share(agreed.signal)
        self.schedule_vote()

    def schedule_vote(self) -> None:
        """Schedule the next vote, in the same iteration on every rank."""
        if self.vote.needed:
            self._boxes.check_at("after_train_iter", self.vote.next_iteration)

    def terminate_if_stopped(self, trainer: Engine) -> None:
        """Let Ignite end the run if its end is agreed."""
        if self._state.stop_reason is not None:
            trainer.terminate()


class StopVote:
    """The votes of the ranks of a run: each is one small collective, at a point that every rank reaches.

    The ranks vote after each iteration in which a hook that may end the run was called, and about twenty times a
    second because of signals. They vote only if a hook of the plan may end a run or acts when one ends early.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.now = now
        self._slots: list[Slot] = []
        self._every_iteration = False
        self.asked_for = False
        """Whether the configuration names signals: then the ranks vote, whatever their hooks."""
        self._last: tuple[int, float] | None = None
        self.needed = False
        """Whether there are several ranks and a hook that may end a run, or acts when one ends early."""
        self.next_iteration = NEVER
        """The next iteration with a vote that is due by time."""
        self.next_step = 0
        """The next evaluation step with a vote."""

    def begin(self, plan: Plan) -> None:
        """Start a new run with this plan."""
        self._last = None
        self.use_plan(plan)

    def use_plan(self, plan: Plan) -> None:
        """Use a new plan."""
        self.needed = world_size() > 1 and (self.asked_for or any(may_end_a_run(hook) for hook in plan.hooks.values()))
        slots = [*plan.at("before_train_iter"), *plan.at("after_train_iter")]
        self._slots = [slot for slot in slots if may_end_a_run(slot.owner)]
        self._every_iteration = any(_may_act_in_any_iteration(slot) for slot in self._slots)
        self.next_iteration = 0 if self.needed else NEVER

    def is_due(self, iteration: int) -> bool:
        """Return whether the ranks vote in this iteration; the answer is the same on all ranks."""
        if not self.needed:
            return False
        if self._every_iteration or iteration >= self.next_iteration:
            return True
        return any(slot.when and slot.when.due(iteration) for slot in self._slots)

    def vote_next_iteration(self) -> None:
        """Vote in the next iteration, because something that may end the run was done on all ranks."""
        if self.needed:
            self.next_iteration = 0

    def take(self, request: StopRequest, point: VotePoint, epoch: int, iteration: int, step: int = 0) -> StopRequest:
        """Return the request that the ranks agree on; raise a RankError if they are at different places."""
        # Three bits for the point, twenty for the step of an evaluation, the others for the iteration.
        encoded = ((iteration << 20) + step) * 8 + point
        own = [
            int(request.reason is not None),
            request.signal,
            self._pause(step or iteration),
            encoded,
            -encoded,
            -request.saves,
        ]
        wanted, number, pause, first, last, saves, *ordered = all_reduce_max(
            [*own, *(int(order in request.orders) for order in Order)]
        )
        if step:
            self.next_step = step + pause
        else:
            self.next_iteration, self.next_step = iteration + pause, 0
        if first != -last:
            places = all_gather([int(point), epoch, iteration])
            raise RankError(
                "the ranks of this run are at different places: "
                + ", ".join(f"rank {r} {place_in_words(*place)}" for r, place in enumerate(places))
                + ": give every rank the same number of batches, and evaluate and stop on every rank alike"
            )
        orders = NOTHING
        for order, is_wanted in zip(Order, ordered, strict=True):
            orders |= order if is_wanted else NOTHING
        if not wanted:
            return StopRequest(orders=orders, saves=-saves)
        said = all_gather([request.reason, request.kind])
        kind = next(kind for reason, kind in said if reason is not None)
        return StopRequest(agreed_reason([reason for reason, _ in said]), number, orders, kind, -saves)

    def _pause(self, count: int) -> int:
        """Return the number of iterations until the next vote is due by time."""
        if self._every_iteration:
            return 1
        now, before = self.now(), self._last
        self._last = (count, now)
        if before is None or now <= before[1] or count <= before[0]:
            return 1
        return max(1, min(1000, int(SECONDS_BETWEEN_VOTES * (count - before[0]) / (now - before[1]))))


def may_end_a_run(hook: object) -> bool:
    """Return ``may_end_a_run`` of the hook's class; by default whether its ``on_error`` is ``raise``."""
    cls = type(hook)
    said = getattr(cls, "may_end_a_run", None)
    if said is not None:
        return bool(said)
    return bool(getattr(cls, "on_error", "raise") == "raise")


def _may_act_in_any_iteration(slot: Slot) -> bool:
    """Return whether a slot acts in every iteration, or in iterations that other ranks cannot predict."""
    return slot.acts_always or slot.decides or slot.when is None or slot.when.unit == "second"


def agreed_reason(reasons: Sequence[str | None]) -> str:
    """Return the reason of the first rank that has one, with that rank's number unless all reasons are the same."""
    first = next(index for index, reason in enumerate(reasons) if reason is not None)
    same = all(reason == reasons[first] for reason in reasons)
    return str(reasons[first]) if same else f"{reasons[first]} on rank {first}"


def place_in_words(point: int, epoch: int, iteration: int) -> str:
    """Return a description of where a rank is.

    Example:
        >>> place_in_words(2, 1, 30), place_in_words(3, 2, 40)
        ('in epoch 1, iteration 30', 'at the end of epoch 2, iteration 40')
    """
    words = _WORDS[VotePoint(point)]
    return words if point == VotePoint.RUN_START else f"{words} epoch {epoch}, iteration {iteration}"
