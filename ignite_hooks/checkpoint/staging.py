"""What reads the state beside the training, and has to end before anything changes the state."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ignite_hooks.store.interface import Saving


class Staging:
    """The copy of a save, and others that have asked to be waited for."""

    def __init__(self) -> None:
        self.saving: Saving | None = None
        """The save whose copy is being made."""
        self.readers: list[Callable[[], object]] = []
        """Wait for what else reads the state, such as an update of averages."""

    def wait(self) -> None:
        """Return once the state may change."""
        for wait in self.readers:
            wait()
        if self.saving is not None:
            self.saving.wait_copied()
            self.saving = None
