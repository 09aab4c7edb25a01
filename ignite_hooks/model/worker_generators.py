"""Whether the workers of a loader have drawn random numbers: each says so before the batch arrives."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ignite_hooks.model.parts import each

if TYPE_CHECKING:
    from torch import Tensor

_seeded: list[Any] = []
"""In a worker: what `_states` was before its first batch."""


def note_seeded() -> None:
    """Remember in a worker, after everything has been seeded, how its generators and its data set are."""
    from torch.utils.data import get_worker_info

    info = get_worker_info()
    if info is not None:
        _seeded[:] = [_states(info.dataset)]


class ReportingCollate:
    """A ``collate_fn`` whose worker says whether it has drawn since it was seeded; it can be sent to a spawned process.

    Args:
        collate: The function of the script.
        drawn: A number for each worker in shared memory, which is not 0 once the worker has drawn.
    """

    def __init__(self, collate: Callable[[Any], Any], drawn: Tensor) -> None:
        self.collate = collate
        self.drawn = drawn

    def __call__(self, samples: Any) -> Any:
        from torch.utils.data import get_worker_info

        batch, info = self.collate(samples), get_worker_info()
        if info is not None and not self.drawn[info.id] and _seeded != [_states(info.dataset)]:
            self.drawn[info.id] = 1
        return batch


class WorkerReport:
    """What the workers of one iterator say.

    Args:
        loader: The loader, whose ``collate_fn`` is replaced until `give_back`.
    """

    def __init__(self, loader: Any) -> None:
        import torch

        self._loader = loader
        self._collate = loader.collate_fn
        self._drawn = torch.zeros(loader.num_workers, dtype=torch.uint8).share_memory_()  # type: ignore[no-untyped-call]
        loader.collate_fn = ReportingCollate(self._collate, self._drawn)

    def give_back(self) -> None:
        """Give the loader its function back, once the iterator is made."""
        if isinstance(self._loader.collate_fn, ReportingCollate):
            self._loader.collate_fn = self._collate

    def untouched(self) -> bool:
        """Return whether no worker has drawn for a batch that has arrived."""
        return not self._drawn.any()


def _states(dataset: Any) -> tuple[Any, ...]:
    """Return what changes when a number is drawn or a data set counts, to be compared."""
    import torch

    numpy = sys.modules.get("numpy")
    drawn = () if numpy is None else numpy.random.get_state()
    parts = [part.tolist() if hasattr(part, "tolist") else part for part in drawn]
    return random.getstate(), torch.get_rng_state().numpy().tobytes(), parts, _counters(dataset)


def _counters(dataset: Any) -> list[dict[str, Any]]:
    """Return the numbers and sizes that a data set, those in it and their transforms hold."""
    found, seen, rest = [], set(), [dataset]
    while rest:
        one = rest.pop()
        values = getattr(one, "__dict__", None)
        if type(values) is not dict or id(one) in seen:
            continue
        seen.add(id(one))
        found.append({name: _mark(value) for name, value in values.items()})
        rest += [values.get(name) for name in ("dataset", "transform", "transforms", "target_transform")]
        rest += each(values.get("datasets"))
    return found


def _mark(value: Any) -> Any:
    if isinstance(value, (bool, int, float, str, type(None))):
        return value
    return len(value) if isinstance(value, (list, dict, set, tuple)) else None
