"""A whole checkpoint without a file: what `Runner.state_dict` returns, for Ignite's own `Checkpoint`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ignite_hooks.checkpoint.save import SaveRequest, state_of_run
from ignite_hooks.errors import CheckpointError
from ignite_hooks.model.wrapping import is_sharded
from ignite_hooks.store.plain import to_plain

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner


def state_dict_of(runner: Runner) -> dict[str, Any]:
    """Return what a checkpoint would hold; whatever changes the run changes its tensors."""
    if is_sharded(runner.model):
        raise CheckpointError("the model is sharded, so that no rank has all of its state: save it by CheckpointHook")
    return runner.checkpoints.left_out.plain(state_of_run(runner, SaveRequest("", "manual")))


def copy_of_state(state: object) -> dict[str, Any]:
    """Return a copy, on the CPU, of what `state_dict_of` has returned."""
    if not isinstance(state, Mapping) or "meta" not in state:
        raise CheckpointError("load_state_dict() takes what Runner.state_dict() has returned, and this is not that")
    copied: dict[str, Any] = to_plain(state, clone=True)
    return copied
