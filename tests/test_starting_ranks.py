from __future__ import annotations

import threading

import ignite.distributed as idist
import pytest

from tests.ranks import Ranks, run_ranks


def total_of_ranks(start: int) -> list[int]:
    return [idist.get_rank(), int(idist.all_reduce(start + idist.get_rank()))]


def fail_on_rank_1() -> None:
    if idist.get_rank() == 1:
        raise ValueError("not on this rank")


def never_end() -> None:
    threading.Event().wait()


@pytest.mark.slow
def test_results_of_all_ranks_come_back_in_order() -> None:
    assert run_ranks(total_of_ranks, 10, ranks=3) == [[0, 33], [1, 33], [2, 33]]


@pytest.mark.slow
def test_a_rank_that_fails_is_shown_with_what_it_printed() -> None:
    with pytest.raises(AssertionError, match=r"(?s)rank 0, exit 0.*rank 1, exit 1.*ValueError: not on this rank"):
        run_ranks(fail_on_rank_1)


def test_ranks_that_overrun_are_killed_without_leftovers() -> None:
    ranks = Ranks(never_end)
    with pytest.raises(AssertionError, match=r"(?s)rank 0, exit -9.*rank 1, exit -9"):
        ranks.results(seconds=0)
    assert all(process.poll() is not None for process in ranks.processes)
    assert not ranks.folder.exists()
