"""Process groups for threads that talk to other ranks beside the training."""

from __future__ import annotations

from typing import Any

_free: list[tuple[int, Any]] = []
"""Groups that nobody uses, each with the identity of the default group it belongs to."""


class SideGroup:
    """A process group of all ranks on the CPU, for one thread; made at the first use, which is on all ranks together.

    The collectives of two threads must not meet in one group: their messages would be mixed up.
    """

    def __init__(self) -> None:
        self._group: Any = None

    def get(self) -> Any:
        """Return the group; None where there is no process group at all. At first, all ranks have to call it."""
        import torch.distributed as dist

        if self._group is None and dist.is_available() and dist.is_initialized():
            default = id(dist.group.WORLD)
            _free[:] = [entry for entry in _free if entry[0] == default]
            self._group = _free.pop() if _free else (default, dist.new_group(backend="gloo"))
        return None if self._group is None else self._group[1]

    def give_back(self) -> None:
        """Let another thread use the group; ranks begin and end their runs in the same order."""
        if self._group is not None:
            _free.append(self._group)
            self._group = None

    def drop(self) -> None:
        """Forget the group, over which messages may have been lost."""
        self._group = None
