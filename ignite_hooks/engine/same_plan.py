"""Checks before the first iteration that all ranks run the same plan, with the same hooks and settings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ignite_hooks.distributed.collectives import all_gather, rank
from ignite_hooks.engine.dispatch import on_error_of
from ignite_hooks.errors import RankError
from ignite_hooks.plan.settings_digest import settings_of_hooks

if TYPE_CHECKING:
    from ignite_hooks.plan.plan import Plan
    from ignite_hooks.run.runner import Runner


def warn_of_collective_hooks(runner: Runner) -> None:
    """Name the hooks whose failures end the run because they use collectives, whatever their setting says."""
    for name, hook in runner.hooks.registered.items():
        wanted = runner.plan.settings[name].on_error
        if on_error_of(hook, wanted) != wanted:
            runner.logger.warning(
                "%s: on_error %r is treated as 'raise': with several ranks, a collective hook cannot fail on one rank "
                "alone",
                name,
                wanted,
            )


def compare_plans(plan: Plan) -> None:
    """Raise a RankError if the hooks of any rank, or their settings, differ from those of rank 0."""
    mine = {
        "names": list(plan.hooks),
        "settings": settings_of_hooks(plan.hooks),
        "lines": [[hook, line] for hook, line in plan.lines_by_hook()],
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
    """Yield the differences between the hooks of a rank and those of rank 0."""
    names, theirs = first["names"], other["names"]
    yield from (f"rank {number} has no {name!r}, which rank 0 has" for name in names if name not in theirs)
    yield from (f"rank {number} has {name!r}, which rank 0 does not have" for name in theirs if name not in names)
    if names != theirs and sorted(names) == sorted(theirs):
        yield f"their order differs on rank {number}"
    for name in [name for name in names if name in theirs]:
        here, there = first["settings"][name], other["settings"][name]
        changed = [key for key in here if here[key] != there.get(key)]
        yield from (f"{name}.{key} is {here[key]} on rank 0 and {there.get(key)} on rank {number}" for key in changed)
        mine, its = ({line for hook, line in whole["lines"] if hook == name} for whole in (first, other))
        if mine != its and not changed:
            yield f"{name!r} differs on rank {number}: {', '.join(sorted(mine ^ its)[:2])}"
