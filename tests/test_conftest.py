"""`conftest.py`: slow tests come first; what a test lacks is said, and never hidden where everything is installed."""

from __future__ import annotations

import pytest

from ignite_hooks.errors import ConfigError, Problem
from tests.conftest import EVERYTHING, lacks, slow_first, without_extras

MISSING = ModuleNotFoundError("No module named 'nowhere'", name="nowhere.part")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MISSING, "needs nowhere"),
        (ModuleNotFoundError("No module named 'tests.nowhere'", name="tests.nowhere"), ""),
        (ModuleNotFoundError("No module named 'torch.nowhere'", name="torch.nowhere"), ""),
        (ConfigError([Problem("dataset", "scikit-learn: pip install 'ignite-hooks[demo]'")]), "needs an extra"),
        (ConfigError([Problem("dataset", "it is empty")]), ""),
        (AssertionError("pip install 'ignite-hooks[demo]'"), ""),
    ],
    ids=str,
)
def test_a_missing_extra_is_known_by_its_error(error: Exception, said: str) -> None:
    assert lacks(error) == said


def test_a_test_without_its_extra_is_skipped_with_a_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(EVERYTHING, raising=False)
    expected = pytest.raises(pytest.skip.Exception, match=r"needs nowhere: pip install -e '.\[dev\]'")
    with expected, without_extras():
        raise MISSING


def test_where_everything_is_to_be_there_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(EVERYTHING, "1")
    with pytest.raises(ModuleNotFoundError), without_extras():
        raise MISSING


@pytest.mark.parametrize("processes", [1, 2, 3, 4])
@pytest.mark.parametrize("length", [0, 1, 7, 40])
def test_each_process_begins_with_its_share_of_the_slow_tests(length: int, processes: int) -> None:
    items = list(range(length))
    slow = set(items[1::5])
    ordered = slow_first(items, slow, processes)
    assert sorted(ordered) == items
    found = []
    for left in range(processes, 0, -1):
        # As `--dist worksteal` cuts it.
        share, ordered = ordered[: len(ordered) // left], ordered[len(ordered) // left :]
        found.append(len(slow & {*share}))
        assert share == sorted(share, key=lambda item: (item not in slow, item))
    assert max(found) - min(found) <= 1


def test_other_errors_stay_errors() -> None:
    with pytest.raises(ZeroDivisionError), without_extras():
        raise ZeroDivisionError
