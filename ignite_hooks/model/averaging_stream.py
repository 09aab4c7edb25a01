"""A stream of a GPU that updates averages beside the training. Not yet tested on a real GPU.

The GPU does what a thread does on the CPU: the stream of the training goes on with the next forward pass, and before
the next step of the optimizer it waits for an event of this one. The host waits for neither.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class AveragingStream:
    """A stream for one update at a time.

    Args:
        device: The GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._made: bool | None = None

    def submit(self, update: Callable[[float], bool], momentum: float) -> None:
        """Queue an update behind all that is queued now; call it only after `result`."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            self._made = update(momentum)

    def wait(self) -> None:
        """Let the stream of the training wait for the update."""
        if self._made is not None:
            torch.cuda.current_stream(self._device).wait_stream(self._stream)

    def result(self) -> bool | None:
        """Let the stream of the training wait; return whether an update was made, or None if none was submitted."""
        self.wait()
        made, self._made = self._made, None
        return made

    def close(self) -> None:
        """Do nothing: a stream is returned by itself."""
