from __future__ import annotations

from ignite_hooks.checkpoint.staging import Staging


class Copying:
    def __init__(self, waited: list[str]) -> None:
        self.waited = waited

    def wait_copied(self) -> None:
        self.waited.append("copied")


def test_what_reads_the_state_is_waited_for_and_a_copy_but_once() -> None:
    waited: list[str] = []
    staging = Staging()
    staging.wait()
    staging.saving = Copying(waited)  # type: ignore[assignment]
    staging.readers.append(lambda: waited.append("averaged"))
    staging.wait()
    assert sorted(waited) == ["averaged", "copied"]
    assert staging.saving is None
    staging.wait()
    assert waited.count("copied") == 1
    assert waited.count("averaged") == 2, "a reader says itself whether there is something to wait for"
