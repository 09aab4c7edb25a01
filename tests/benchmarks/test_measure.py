from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest


def counting(names: list[str]) -> tuple[dict[str, Callable[[], float]], Counter[str]]:
    """Return cases whose value is how often they have run, and the counts."""
    ran: Counter[str] = Counter()

    def case(name: str) -> Callable[[], float]:
        def run() -> float:
            ran[name] += 1
            return float(ran[name])

        return run

    return {name: case(name) for name in names}, ran


def test_each_case_runs_once_per_round_and_the_first_round_does_not_count(measure: Any) -> None:
    cases, ran = counting(["a", "b"])
    rounds = measure.interleaved(cases, 5)
    assert ran == {"a": 6, "b": 6}
    assert rounds.values == {"a": [2, 3, 4, 5, 6], "b": [2, 3, 4, 5, 6]}


@pytest.mark.parametrize(("each", "times"), [(1, 10), (2, 5), (3, 3), (5, 2)])
def test_a_long_case_runs_in_each_so_many_rounds(measure: Any, each: int, times: int) -> None:
    cases, _ = counting(["short", "long"])
    rounds = measure.interleaved(cases, 10, {"long": each})
    assert [len(rounds.values[name]) for name in ("short", "long")] == [10, times]


def test_a_ratio_is_of_values_of_the_same_round(measure: Any) -> None:
    cases, _ = counting(["short", "long"])
    rounds = measure.interleaved(cases, 10, {"long": 3})
    # Rounds 2, 5 and 8; the short one has run once before the rounds that count.
    found = rounds.combined(lambda long, short: short - 10 * long, "long", "short")
    assert found == measure.Spread.of([3 - 10, 6 - 20, 9 - 30])


def test_what_a_case_takes_more_is_compared_with_the_median_of_another_that_may_take_less_in_a_round(
    measure: Any,
) -> None:
    rounds = measure.Rounds({"ours": [13, 14, 15], "theirs": [12, 10, 14], "none": [10, 10, 10]})
    assert rounds.against("ours", "theirs", "none") == measure.Spread.of([1.5, 2, 2.5])


def test_a_ratio_of_cases_without_a_round_in_common_is_refused(measure: Any) -> None:
    cases, _ = counting(["a", "b"])
    rounds = measure.interleaved(cases, 5, {"a": 2, "b": 5})
    with pytest.raises(ValueError, match="at least"):
        rounds.combined(lambda a, b: a / b, "a", "b")
