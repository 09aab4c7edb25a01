"""The plan: which hook runs where, in which order and how often, as data that can be read before anything runs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping

from ignite_hooks.plan.methods import default_name
from ignite_hooks.plan.points import ALIASES, POINTS
from ignite_hooks.plan.simulate import PlanSimulation, Step
from ignite_hooks.plan.slots import Slot, custom_slots, in_order, slots_of
from ignite_hooks.text import html_table, labelled, table

NOTES = ("reads", "writes", "saves")
"""What the docstring of a hook says besides its settings; a table says it once for each hook."""


class Plan:
    """Which hook runs at which point, in which order and how often.

    Args:
        hooks: The hooks by name, in the order of the configuration.
        now: Returns the number of finished iterations and epochs, for the column ``next``.
        slowed: The factors by which the intervals of some hooks are longer than their settings say.
    """

    def __init__(
        self,
        hooks: Mapping[str, object],
        now: Callable[[], tuple[int, int]] = lambda: (0, 0),
        slowed: Mapping[str, int] | None = None,
    ) -> None:
        self.hooks = dict(hooks)
        self._now = now
        found: dict[str, list[Slot]] = {point: [] for point in POINTS}
        for name, hook in self.hooks.items():
            for slot in slots_of(name, hook, (slowed or {}).get(name, 1)):
                found[slot.point.name].append(slot)
        self.slots = {point: in_order(slots) for point, slots in found.items()}
        """The slots of the known points, in the order in which they run."""

    def at(self, point: str) -> tuple[Slot, ...]:
        """Return the slots of a point in the order in which they run; any method name can be a point."""
        name = ALIASES.get(point, point)
        if name in self.slots:
            return self.slots[name]
        return in_order(custom_slots(name, self.hooks))

    def __iter__(self) -> Iterator[Slot]:
        for slots in self.slots.values():
            yield from slots

    def __len__(self) -> int:
        return sum(len(slots) for slots in self.slots.values())

    @property
    def digest(self) -> str:
        """A fingerprint of what runs where, in which order and how often: equal plans, equal digests."""
        return hashlib.sha256("\n".join(self.lines()).encode()).hexdigest()

    def lines(self) -> list[str]:
        """Return the slots as text: everything that decides what happens when."""
        return [f"{s.point.name} {s.hook} {default_name(s.owner)} {s.method} {s.priority} {s.how_often}" for s in self]

    def rows(self) -> list[dict[str, str]]:
        """Return the plan as a table: a row for each slot."""
        iterations, epochs = self._now()
        rows = []
        noted: set[str] = set()
        for point, slots in self.slots.items():
            for order, slot in enumerate(slots, 1):
                notes = dict.fromkeys(NOTES, "")
                if slot.hook not in noted:
                    notes = labelled(type(slot.owner).__doc__ or "", NOTES)
                noted.add(slot.hook)
                rows.append(
                    {
                        "point": point if order == 1 else "",
                        "order": str(order),
                        "hook": slot.hook,
                        "priority": str(slot.priority),
                        "how often": slot.how_often,
                        "next": slot.next_after(iterations, epochs),
                        **notes,
                    }
                )
        return rows

    def timeline(self, epochs: int, iterations: int, evaluation_iterations: int = 1) -> Iterator[Step]:
        """Yield every call of a simulated run of some epochs, each of so many iterations, with its evaluations."""
        yield from PlanSimulation(self.at, epochs, iterations, evaluation_iterations).run()

    def __str__(self) -> str:
        return table(self.rows()) or "no hooks"

    def _repr_html_(self) -> str:
        rows = self.rows()
        return html_table(rows, wide=NOTES) if rows else "<p>no hooks</p>"
