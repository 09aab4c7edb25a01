"""Actions of all ranks that succeed on all of them or on none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch.distributed as dist

from ignite_hooks.errors import CheckpointError

Result = TypeVar("Result")
Report = TypeVar("Report")


def run_on_all_ranks(act: Callable[[], Result], group: Any = None) -> Result:
    """Return what an action returns; if it fails on one rank, raise on all of them.

    Args:
        act: The action, without collectives.
        group: How the ranks talk; the group of the training by default.
    """
    return run_and_gather(act, lambda _: None, group)[0]


def gather_results(act: Callable[[], Result], group: Any = None) -> list[Result]:
    """Return what an action returns on each rank; if it fails on one, raise on all."""
    return run_and_gather(act, lambda found: found, group)[1]


def run_and_gather(
    act: Callable[[], Result], report: Callable[[Result], Report], group: Any = None
) -> tuple[Result, list[Report]]:
    """Return what an action returns here, and what each rank reports about its own."""
    found: Any = None
    said: tuple[Any, str | None]
    try:
        found = act()
        said = report(found), None
    except CheckpointError as error:
        said = None, str(error)
    except Exception as error:
        said = None, f"{type(error).__name__}: {error}"
    everyone: list[Any] = [said]
    if dist.is_initialized() and dist.get_world_size() > 1:
        everyone = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, said, group=group)
    failures = {rank: failure for rank, (_, failure) in enumerate(everyone) if failure is not None}
    if failures:
        # Often the same error on all ranks.
        (rank, first), more = next(iter(failures.items())), len(failures) - 1
        among = f" (rank {rank}{f' and {more} more' if more else ''})" if len(everyone) > 1 else ""
        raise CheckpointError(f"{first}{among}")
    return cast(Result, found), [each for each, _ in everyone]
