"""A position in the data, and how the iterator was made from which it is counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ignite_hooks.checkpoint.data.rest_of_epoch import Rest
from ignite_hooks.checkpoint.rng_state import RngState


@dataclass
class IteratorOrigin:
    """How the iterator that is in use was made: from which data, after which iteration, with which random state."""

    data: object
    iteration: int
    rng: RngState
    first: RngState | None = None
    """The random state at its first batch, where handlers ran in between."""
    sized: bool = True
    """Whether Ignite knew the length of the epoch at that time."""
    skipped: int = 0
    """The number of batches that the engine skipped at once."""
    rest: Rest | None = None
    """What it began with, if it yields only the rest of an epoch."""


@dataclass
class DataPosition:
    """A position from which a run continues exactly, as long as no further iteration is finished."""

    iteration: int
    epoch: int
    data: dict[str, Any]
    random: Mapping[str, Any]

    @property
    def rng(self) -> RngState:
        """The state of all generators at this position."""
        found = {word: self.data[word] for word in ("generators", "epochs")}
        return {"random": self.random, **found, "own": self.data.get("own", {})}

    def origin(self, data: object) -> IteratorOrigin:
        """Return how the iterator was made from which this position was reached."""
        saved = self.data
        began = self.iteration - saved["drawn"]
        return IteratorOrigin(data, began, saved["made"], saved["first"], saved["sized"])
