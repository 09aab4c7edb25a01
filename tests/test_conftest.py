"""`conftest.py`: what a test lacks is said, and never hidden where everything is installed."""

from __future__ import annotations

import pytest

from ignite_hooks.errors import ConfigError, Problem
from tests.conftest import EVERYTHING, lacks, without_extras

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


def test_other_errors_stay_errors() -> None:
    with pytest.raises(ZeroDivisionError), without_extras():
        raise ZeroDivisionError
