"""What ``make clients`` compares is the same in every process, and what fails by itself is not ours."""

from __future__ import annotations

import pytest

from tests.clients.ignite_tests import failing_more
from tests.clients.record import without_addresses


def test_endings_are_compared_without_addresses_of_objects() -> None:
    message = "RuntimeError: applying <Compose object at 0x7f97cd2957d0> ended with code 0x1f"
    assert without_addresses(message) == "RuntimeError: applying <Compose object at 0x...> ended with code 0x1f"


@pytest.mark.parametrize(
    ("without", "with_line", "more"),
    [
        ({"a::f[0]": True, "a::f[1]": False}, {"a::f[0]": True, "a::f[1]": False}, set()),
        ({"a::f[0]": True, "a::f[1]": False}, {"a::f[0]": False, "a::f[1]": False}, {"a::f"}),
        ({"a::f[<x at 1>]": True}, {"a::f[<x at 2>]": False}, {"a::f"}),
        ({"a::f": False, "a::g": True}, {"a::f": True, "a::g": True}, set()),
    ],
    ids=["fails by itself", "one more fails", "values named by address", "one fewer fails"],
)
def test_only_failures_beyond_those_without_our_line_count(
    without: dict[str, bool], with_line: dict[str, bool], more: set[str]
) -> None:
    assert failing_more(with_line, without) == more
