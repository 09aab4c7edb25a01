"""What the ranks of a run decide together: whether their plans are the same, and when the run ends."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ignite_hooks.checkpoint.capture import settings_of
from ignite_hooks.distributed.collectives import all_gather, all_reduce_max, rank, world_size
from ignite_hooks.errors import RankError
from ignite_hooks.plan.schedule import NEVER

if TYPE_CHECKING:
    from ignite_hooks.plan.plan import Plan, Slot

LOOK_EVERY = 0.05
"""The seconds after which a rank asks the others anew whether the run is to end, when no hook had a say before."""

AT_START, AT_EPOCH, IN_EPOCH, AT_EPOCH_END, IN_EVALUATION = range(5)
PLACES = ("at the start of the run", "at the start of", "in", "at the end of", "in an evaluation in")
"""Where ranks vote, and how messages call it."""


@dataclass(frozen=True)
class Verdict:
    """How a vote came out."""

    reason: str | None = None
    """Why the run ends, or None."""
    signal: int = 0
    """The number of the signal that ends it."""


class Agreement:
    """The votes of the ranks of one run: each is one small collective, at places that all ranks come by.

    In an iteration there is a vote where a hook that may end the run has just been called, and about twenty times a
    second for the sake of signals; there is none where no hook of the plan has an interest in how a run ends.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._wish: str | None = None
        self._signal = 0
        self._slots: list[Slot] = []
        self._always = False
        self._asked: tuple[int, float] | None = None
        self.needed = False
        """Whether there are several ranks, and a hook that has an interest in the end."""
        self.next_vote = NEVER
        """The next iteration in which there is a vote because of the time that has passed."""
        self.next_step = 0
        """The next step of an evaluation in which there is one."""

    def begin(self, plan: Plan) -> None:
        """Take up the plan of a run that begins."""
        self._wish, self._signal, self._asked = None, 0, None
        self.follow(plan)

    def follow(self, plan: Plan) -> None:
        """Take up a plan that has changed."""
        self.needed = world_size() > 1 and any(may_end_a_run(hook) for hook in plan.hooks.values())
        slots = [*plan.at("before_train_iter"), *plan.at("after_train_iter")]
        self._slots = [slot for slot in slots if may_end_a_run(slot.owner)]
        self._always = any(may_end_always(slot) for slot in self._slots)
        self.next_vote = 0 if self.needed else NEVER

    def wish(self, reason: str, signal: int = 0) -> None:
        """Note that this rank wants the run to end; the first reason counts."""
        self._wish, self._signal = self._wish or reason, self._signal or signal

    def due(self, iteration: int) -> bool:
        """Whether there is a vote in this iteration: the same answer on all ranks."""
        if not self.needed:
            return False
        return self._always or iteration >= self.next_vote or any(s.when and s.when.due(iteration) for s in self._slots)

    def soon(self) -> None:
        """Vote in the next iteration: something has been done on all ranks that may end the run."""
        if self.needed:
            self.next_vote = 0

    def vote(self, kind: int, epoch: int, iteration: int, step: int = 0) -> Verdict:
        """Ask all ranks whether the run is to end; a RankError where they are at different places."""
        place = ((iteration << 20) + step) * 8 + kind
        wanted, signal, pause, first, last = all_reduce_max(
            [int(self._wish is not None), self._signal, self._pause(step or iteration), place, -place]
        )
        if step:
            self.next_step = step + pause
        else:
            self.next_vote, self.next_step = iteration + pause, 0
        if first != -last:
            places = all_gather([kind, epoch, iteration])
            raise RankError(
                "the ranks of this run are at different places: "
                + ", ".join(f"rank {r} {in_words(*place)}" for r, place in enumerate(places))
                + ": give all of them the same number of batches, and evaluate and stop on all of them alike"
            )
        if not wanted:
            return Verdict()
        return Verdict(agreed_reason(all_gather(self._wish)), signal)

    def _pause(self, count: int) -> int:
        """How many iterations are done by the time another look is due."""
        if self._always:
            return 1
        now, before = self._now(), self._asked
        self._asked = (count, now)
        if before is None or now <= before[1] or count <= before[0]:
            return 1
        return max(1, min(1000, int(LOOK_EVERY * (count - before[0]) / (now - before[1]))))


def may_end_a_run(hook: object) -> bool:
    """Whether a hook may end a run, or has something to do when it ends early."""
    cls = type(hook)
    said = getattr(cls, "may_end_a_run", None)
    return bool(getattr(cls, "on_error", "raise") == "raise" if said is None else said)


def may_end_always(slot: Slot) -> bool:
    """Whether a hook is called in iterations of which not all ranks know alike, or in every one."""
    return slot.acts_always or slot.decides or slot.when is None or slot.when.unit == "second"


def agreed_reason(wishes: Sequence[str | None]) -> str:
    """The reason of the first rank that has one, with its number where others have none or another."""
    first = next(index for index, wish in enumerate(wishes) if wish is not None)
    same = all(wish == wishes[first] for wish in wishes)
    return str(wishes[first]) if same else f"{wishes[first]} on rank {first}"


def in_words(kind: int, epoch: int, iteration: int) -> str:
    """A place.

    Example:
        >>> in_words(2, 1, 30), in_words(3, 2, 40)
        ('in epoch 1, iteration 30', 'at the end of epoch 2, iteration 40')
    """
    return PLACES[kind] if kind == 0 else f"{PLACES[kind]} epoch {epoch}, iteration {iteration}"


def compare_plans(plan: Plan) -> None:
    """Refuse to begin where a rank has other hooks than rank 0, or has them otherwise."""
    mine = {
        "names": list(plan.hooks),
        "settings": {name: settings_of(hook) for name, hook in plan.hooks.items()},
        "lines": [[slot.hook, line] for slot, line in zip(plan, plan.lines(), strict=True)],
    }
    if len(set(all_gather(hashlib.sha256(json.dumps(mine).encode()).hexdigest()))) == 1:
        return
    first, *others = all_gather(mine)
    found = [what for number, other in enumerate(others, 1) for what in differences(first, other, number)]
    raise RankError(
        f"the ranks of this run have different hooks: {'; '.join(found[:5])}{' and more' if len(found) > 5 else ''}: "
        f"attach the same hooks with the same settings on every rank (this is rank {rank()})"
    )


def differences(first: Mapping[str, Any], other: Mapping[str, Any], number: int) -> Iterator[str]:
    """In what the hooks of a rank differ from those of rank 0."""
    names, theirs = first["names"], other["names"]
    yield from (f"rank {number} has no {name!r}, which rank 0 has" for name in names if name not in theirs)
    yield from (f"rank {number} has {name!r}, which rank 0 has not" for name in theirs if name not in names)
    if names != theirs and sorted(names) == sorted(theirs):
        yield f"they stand in another order on rank {number}"
    for name in [name for name in names if name in theirs]:
        here, there = first["settings"][name], other["settings"][name]
        changed = [key for key in here if here[key] != there.get(key)]
        yield from (f"{name}.{key} is {here[key]} on rank 0 and {there.get(key)} on rank {number}" for key in changed)
        mine, its = ({line for hook, line in whole["lines"] if hook == name} for whole in (first, other))
        if mine != its and not changed:
            yield f"rank {number} has another {name!r}: {', '.join(sorted(mine ^ its)[:2])}"
