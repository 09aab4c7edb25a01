"""The id of a run: made at its first start, and kept by whatever continues it."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from ignite_hooks.distributed.collectives import broadcast_object, is_main_process

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner

BYTES = 8


def identify(runner: Runner) -> None:
    """Give a run an id if it has none: it is new, or was resumed from a file without one. All ranks do it together."""
    if not runner.state.run_id:
        # From the system: the random numbers of the script stay as they are.
        runner.state.run_id = str(broadcast_object(secrets.token_hex(BYTES) if is_main_process() else ""))
