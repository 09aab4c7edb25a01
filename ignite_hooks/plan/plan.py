"""The plan: which hook runs where, in which order and how often, as data that can be read before anything runs."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping

from ignite_hooks.plan.hook_settings import HookSettings, read_settings
from ignite_hooks.plan.layout import NOTES, fitted_plan
from ignite_hooks.plan.methods import default_name, own_method
from ignite_hooks.plan.points import ALIASES, POINTS
from ignite_hooks.plan.simulate import PlanSimulation, Step
from ignite_hooks.plan.slots import Slot, custom_slots, in_order, slots_of
from ignite_hooks.terminal import width_of
from ignite_hooks.text import html_table, labelled, table

APART = "apart"
"""Stands in place of a point for hooks that answer none of the known points."""


def _apart(hook: object) -> str:
    """Return in words when a hook acts that answers none of the known points."""
    said = own_method(type(hook), "acts_by_itself")
    if said is not None and (words := said(hook)):
        return str(words)
    return "as its attached() arranges" if own_method(type(hook), "attached") else "when runner.call_hook() names it"


def _notes_of(hook: object) -> dict[str, str]:
    """Return what a hook reads, writes and saves, as its class says and as follows from its settings."""
    notes = labelled(type(hook).__doc__ or "", NOTES)
    said = own_method(type(hook), "notes_for_plan")
    for name, words in (said(hook) if said is not None else {}).items():
        notes[name] = f"{notes[name]}; {words}" if notes.get(name) else words
    return notes


class Plan:
    """Which hook runs at which point, in which order and how often.

    Args:
        hooks: The hooks by name, in the order of the configuration.
        now: Returns the number of finished iterations and epochs, for the column ``next``.
        slowed: The factors by which the intervals of some hooks are longer than their settings say.
        before: The plan before this one: the settings of hooks that it has are not read again.
    """

    def __init__(
        self,
        hooks: Mapping[str, object],
        now: Callable[[], tuple[int, int]] = lambda: (0, 0),
        slowed: Mapping[str, int] | None = None,
        before: Plan | None = None,
    ) -> None:
        self.hooks = dict(hooks)
        self.settings: dict[str, HookSettings] = {}
        """The settings of each hook, as they were when it was registered."""
        self._now = now
        for name, hook in self.hooks.items():
            known = before is not None and before.hooks.get(name) is hook
            self.settings[name] = before.settings[name] if before is not None and known else read_settings(hook)
        found: dict[str, list[Slot]] = {point: [] for point in POINTS}
        for name, hook in self.hooks.items():
            for slot in slots_of(name, hook, (slowed or {}).get(name, 1), self.settings[name]):
                found[slot.point.name].append(slot)
        self.slots = {point: in_order(slots) for point, slots in found.items()}
        """The slots of the known points, in the order in which they run."""

    def at(self, point: str) -> tuple[Slot, ...]:
        """Return the slots of a point in the order in which they run; any method name can be a point."""
        name = ALIASES.get(point, point)
        if name in self.slots:
            return self.slots[name]
        return in_order(custom_slots(name, self.hooks, self.settings))

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
        return [line for _, line in self.lines_by_hook()]

    def lines_by_hook(self) -> Iterator[tuple[str, str]]:
        """Yield each line with the name of its hook; hooks that answer no point have one too."""
        for s in self:
            yield s.hook, f"{s.point.name} {s.hook} {default_name(s.owner)} {s.method} {s.priority} {s.how_often}"
        for name, hook in self._without_slots().items():
            yield name, f"{name} {default_name(hook)} {_apart(hook)}"

    def _without_slots(self) -> dict[str, object]:
        """Return the hooks that answer none of the known points."""
        answering = {slot.hook for slot in self}
        return {name: hook for name, hook in self.hooks.items() if name not in answering}

    def rows(self) -> list[dict[str, str]]:
        """Return the plan as a table: a row for each slot."""
        iterations, epochs = self._now()
        rows = []
        noted: set[str] = set()
        for point, slots in self.slots.items():
            for order, slot in enumerate(slots, 1):
                notes = dict.fromkeys(NOTES, "")
                # Of two methods of one hook the name of the hook says too little.
                alone = [other.hook for other in slots].count(slot.hook) == 1
                if slot.hook not in noted:
                    notes = _notes_of(slot.owner)
                noted.add(slot.hook)
                rows.append(
                    {
                        "point": point if order == 1 else "",
                        "order": str(order),
                        "hook": slot.hook if slot.method == point or alone else f"{slot.hook}.{slot.method}",
                        "priority": str(slot.priority),
                        "how often": slot.how_often,
                        "next": slot.next_after(iterations, epochs),
                        **notes,
                    }
                )
        empty = dict.fromkeys(("point", "order", "hook", "priority", "how often", "next"), "")
        for number, (name, hook) in enumerate(self._without_slots().items()):
            point, notes = "" if number else APART, _notes_of(hook)
            rows.append({**empty, "point": point, "hook": name, "how often": _apart(hook), **notes})
        return rows

    def timeline(self, epochs: int, iterations: int, evaluation_iterations: int = 1) -> Iterator[Step]:
        """Yield every call of a simulated run: epochs of a number of iterations, and evaluations."""
        yield from PlanSimulation(self.at, epochs, iterations, evaluation_iterations).run()

    def __str__(self) -> str:
        return table(self.rows()) or "no hooks"

    def __repr__(self) -> str:
        """Show the plan, as wide as the terminal is."""
        text, hidden = fitted_plan(self.rows(), width_of(sys.stdout))
        return f"{text}\nnot shown whole: {', '.join(hidden)}; print() shows all" if hidden else text

    def _repr_html_(self) -> str:
        rows = self.rows()
        return html_table(rows, wide=NOTES) if rows else "<p>no hooks</p>"
