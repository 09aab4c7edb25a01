"""A run that does not happen: every call of a plan in order, as far as it can be known beforehand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from ignite_hooks.plan.methods import own_method
from ignite_hooks.plan.slots import Slot


class Step(NamedTuple):
    """One call of a simulated run; epoch and iteration count from 1, 0 is before the first."""

    point: str
    hook: str
    epoch: int
    iteration: int


class PlanSimulation:
    """Walks through a plan as a run would.

    What depends on the numbers of a run (a new best, an early stop) or on the clock is left out.

    Args:
        slots_at: Returns the slots of a point in order: the ``at`` of a plan.
        epochs: The epochs of the run.
        iterations: The iterations of each epoch.
        evaluation_iterations: The iterations of each evaluation.
    """

    def __init__(
        self, slots_at: Callable[[str], Iterable[Slot]], epochs: int, iterations: int, evaluation_iterations: int
    ) -> None:
        self._slots_at = slots_at
        self.epochs, self.iterations, self.evaluation_iterations = epochs, iterations, evaluation_iterations
        self.epoch = self.iteration = 0
        self._evaluated_at: dict[int, int] = {}

    def run(self) -> Iterator[Step]:
        """Yield every call in order."""
        yield from self.calls_at("before_run")
        yield from self.calls_at("before_train")
        for epoch in range(1, self.epochs + 1):
            self.epoch = epoch
            yield from self.calls_at("before_epoch")
            yield from self.calls_at("before_train_epoch")
            for _ in range(self.iterations):
                self.iteration += 1
                yield from self.calls_at("before_train_iter")
                yield from self.calls_at("after_train_iter")
            yield from self.calls_at("after_train_epoch")
            yield from self.calls_at("after_epoch")
        for point in ("after_train", "after_run", "cleanup"):
            yield from self.calls_at(point)

    def calls_at(self, point: str) -> Iterator[Step]:
        """Yield the calls at one point, each with those it leads to."""
        for slot in self._slots_at(point):
            if not self.is_due(slot):
                continue
            yield Step(point, slot.hook, self.epoch, self.iteration)
            leads_to = own_method(type(slot.owner), "leads_to")
            for nested in leads_to(slot.owner, slot.method, self) if leads_to is not None else ():
                if nested in ("val", "test"):
                    self._evaluated_at[id(slot.owner)] = self.iteration
                    yield from self._evaluation(nested)
                else:
                    yield from self.calls_at(nested)

    def is_due(self, slot: Slot) -> bool:
        """Return whether a slot fires where the simulation is now; a clock never does."""
        return slot.is_due(self.epoch if slot.counts_epochs else self.iteration)

    def has_just_evaluated(self, hook: object) -> bool:
        """Return whether this hook has evaluated at the iteration where the simulation is now."""
        return self._evaluated_at.get(id(hook)) == self.iteration

    def _evaluation(self, kind: str) -> Iterator[Step]:
        yield from self.calls_at(f"before_{kind}")
        yield from self.calls_at(f"before_{kind}_epoch")
        for _ in range(self.evaluation_iterations):
            yield from self.calls_at(f"before_{kind}_iter")
            yield from self.calls_at(f"after_{kind}_iter")
        yield from self.calls_at(f"after_{kind}_epoch")
        yield from self.calls_at(f"after_{kind}")
