"""Forked ranks, which start at once because everything is imported, and can be killed at any moment."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator

import ignite.distributed as idist
import torch

from tests.faults.tools import Life, Tell


@functools.cache
def warm() -> None:
    """Make an optimizer step, whose first call imports much of torch: once here instead of in every rank."""
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 1)).sum().backward()
    optimizer.step()


@contextlib.contextmanager
def forked(live: Callable[[Tell], object], ranks: int = 2) -> Iterator[list[Life]]:
    """Yield the processes of one group, which all do the same; kill the remaining ones at the end."""
    warm()
    # The store is here, on a port that the system chose, and outlives every rank.
    meeting = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    def one(rank: int) -> Life:
        def begin(tell: Tell) -> None:
            world = {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": ranks}
            address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": meeting.port, "TORCHELASTIC_USE_AGENT_STORE": True}
            os.environ.update({name: str(value) for name, value in {**world, **address}.items()})
            torch.set_num_threads(1)
            idist.initialize("gloo")
            live(tell)

        return Life(begin)

    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(one(rank)) for rank in range(ranks)]
