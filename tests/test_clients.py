"""What ``make clients`` compares is the same in every process."""

from __future__ import annotations

from tests.clients.record import without_addresses


def test_endings_are_compared_without_addresses_of_objects() -> None:
    message = "RuntimeError: applying <Compose object at 0x7f97cd2957d0> ended with code 0x1f"
    assert without_addresses(message) == "RuntimeError: applying <Compose object at 0x...> ended with code 0x1f"
