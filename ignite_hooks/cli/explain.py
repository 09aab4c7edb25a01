"""The command ``explain``: show the plan of a configuration."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ignite_hooks.cli.text import table_limit, wrap_paragraph
from ignite_hooks.cli.validate import print_notes, print_problems, review_file
from ignite_hooks.text import counted

if TYPE_CHECKING:
    from ignite_hooks.plan.plan import Plan
    from ignite_hooks.plan.slots import Slot


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    explain = commands.add_parser("explain", help="show which hook runs where, in which order and how often")
    explain.add_argument("config", metavar="CONFIG", help="a .yaml, .json, .toml or .py file")
    explain.add_argument("--timeline", action="store_true", help="print every call of a short run instead")
    explain.add_argument("--epochs", metavar="N", type=_count, default=2, help="epochs of the short run (default 2)")
    explain.add_argument("--iters", metavar="N", type=_count, default=3, help="iterations per epoch (default 3)")
    explain.add_argument(
        "--val-iters", metavar="N", type=_count, default=1, help="iterations per evaluation (default 1)"
    )
    explain.add_argument("--wide", action="store_true", help="show every column whole, however wide the terminal is")
    explain.set_defaults(command=_explain)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"a whole number is needed, not {text!r}")
    return int(text)


def _explain(options: argparse.Namespace) -> int:
    from ignite_hooks.plan.plan import Plan

    review = review_file(options.config, load=True)
    if review.problems:
        print_problems(review)
        return 2
    plan = Plan(review.hooks)
    if options.timeline:
        _print_timeline(plan, options)
        return 0
    print(f"{options.config}: {counted(len(review.hooks) + review.unseen, 'hook')}")
    _print_plan(plan, options)
    review.notes += [review.added] if review.added else []
    if review.notes:
        print()
        print_notes(review)
    return 0


def _print_timeline(plan: Plan, options: argparse.Namespace) -> None:
    wide = max((len(slot.point.name) for slot in plan), default=5)
    print(f"{'epoch':>5}  {'iteration':>9}  {'point':<{wide}}  hook")
    for step in plan.timeline(options.epochs, options.iters, options.val_iters):
        print(f"{step.epoch:>5}  {step.iteration:>9}  {step.point:<{wide}}  {step.hook}")


def _calls(plan: Plan, options: argparse.Namespace) -> list[str]:
    """Return how often each slot is called in a short run; ``?`` if that depends on the clock."""
    from ignite_hooks.plan.simulate import PlanSimulation

    class Counting(PlanSimulation):
        def is_due(self, slot: Slot) -> bool:
            is_due = super().is_due(slot)
            calls[slot] += is_due
            return is_due

    calls = dict.fromkeys(plan, 0)
    for _ in Counting(plan.at, options.epochs, options.iters, options.val_iters).run():
        pass
    by_clock = {slot for slot in plan if slot.when is not None and slot.when.unit == "second"}
    return ["?" if slot in by_clock else str(count) for slot, count in calls.items()]


def _print_plan(plan: Plan, options: argparse.Namespace) -> None:
    from ignite_hooks.plan.layout import NOTES, fitted_plan

    rows, planned, calls = [], plan.rows(), _calls(plan, options)
    # Hooks without a known point come last and have no count.
    for row, count in zip(planned, [*calls, *[""] * (len(planned) - len(calls))], strict=True):
        notes = {name: row.pop(name) for name in NOTES}
        rows.append(row | {"calls": count} | notes)
    text, hidden = fitted_plan(rows, None if options.wide else table_limit())
    if "calls" not in hidden:
        run = f"a run of {counted(options.epochs, 'epoch')} with {counted(options.iters, 'iteration')} each"
        print(wrap_paragraph(f"calls: in {run}, evaluations of {counted(options.val_iters, 'iteration')}", ""))
    print(f"\n{text}")
    if not hidden:
        return
    for name, hook in plan.hooks.items():
        _print_effects(name, hook)
    if cut := [name for name in hidden if name not in NOTES]:
        print(f"\nnot shown whole: {', '.join(cut)}; --wide shows all")


def _print_effects(name: str, hook: Any) -> None:
    from ignite_hooks.config.describe import notes_of

    effects = {word: text for word, text in notes_of(type(hook)).items() if text}
    if effects:
        print(f"\n{name}")
    for word, text in effects.items():
        print(wrap_paragraph(f"{word:<6}  {text}", "  ", 8))
