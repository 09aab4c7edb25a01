"""Writers close after the cleanup of every hook, and who asks learns what has arrived."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ignite_hooks import BaseHook, attach_hooks
from ignite_hooks.engine.closing import WRITERS_CLOSED
from ignite_hooks.testing import tiny_run
from ignite_hooks.writers.memory import MemoryWriter


class Asks(BaseHook):
    """Notes whether the writers are closed."""

    custom_points: ClassVar[Sequence[str]] = (WRITERS_CLOSED,)

    def __init__(self) -> None:
        super().__init__()
        self.memory = MemoryWriter()
        self.seen: list[tuple[str, bool]] = []

    def cleanup(self) -> None:
        self.seen.append(("cleanup", self.memory.closed))

    def after_writers_closed(self) -> None:
        self.seen.append((WRITERS_CLOSED, self.memory.closed))


class Fails(BaseHook):
    def cleanup(self) -> None:
        raise ValueError("cannot clean up")


@pytest.mark.parametrize("others", [[], [Fails()]], ids=["as usual", "a cleanup fails"])
def test_writers_close_between_the_cleanup_and_who_asks(others: list[Any], tmp_path: Path) -> None:
    run, asks = tiny_run(), Asks()
    attach_hooks(run.trainer, {"hooks": [*others, asks], "writers": [asks.memory]}, work_dir=tmp_path, **run.services)
    if others:
        with pytest.raises(Exception, match="cannot clean up"):
            run.trainer.run(run.data, max_epochs=1)
    else:
        run.trainer.run(run.data, max_epochs=1)
    assert asks.seen == [("cleanup", False), (WRITERS_CLOSED, True)]
