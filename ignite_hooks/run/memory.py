"""Memory that the end of a run leaves held: batches, outputs and the frames of tracebacks."""

from __future__ import annotations

import gc
import sys
import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ignite.engine import State


def free_memory(*states: State) -> None:
    """Let go of the last batch and output of engines and of the last exception, and return cached GPU memory.

    The traceback of an exception keeps each of its frames with everything in it, and an interactive shell keeps the
    traceback for ``%debug``.
    """
    import torch

    for state in states:
        state.batch = state.output = None
    for name in ("last_value", "last_exc"):
        error = getattr(sys, name, None)
        if isinstance(error, BaseException):
            clear_frames(error)
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def clear_frames(error: BaseException) -> None:
    """Clear the frames of an exception and of those that led to it; the lines of the traceback stay."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            traceback.clear_frames(one.__traceback__)
            waiting += [one.__cause__, one.__context__]
