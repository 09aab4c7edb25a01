"""The time of an iteration on each rank, exchanged once at the end of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ignite_hooks.distributed.collectives import all_gather, world_size
from ignite_hooks.run.state import RankTime

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner


def exchange_times(runner: Runner) -> None:
    """Tell all ranks what a mean iteration took on each of them; every rank has to call this."""
    if world_size() == 1:
        return
    timer = runner.get_service("timer")
    # A hook may have been removed on one rank; the exchange must not depend on it.
    mine = timer.rank_time() if hasattr(timer, "rank_time") else None
    found = all_gather(None if mine is None else [mine.whole, mine.own])
    if all(isinstance(one, list) for one in found):
        runner.state.rank_times = tuple(RankTime(*one) for one in found)
