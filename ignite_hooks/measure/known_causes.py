"""Known causes of time in operators: what the settings of torch, the optimizer and the loader explain."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from ignite_hooks.measure.batches import batch_size
from ignite_hooks.measure.phases import phase_shares
from ignite_hooks.measure.profile import Circumstances, Operator, Profile
from ignite_hooks.text import percent

WORTH = 0.05
"""The share of the time from which on a known cause is named."""

PAGEABLE = "Memcpy HtoD (Pageable -> Device)"
"""Torch's name for copies to a GPU from memory that is not pinned."""

MUCH_FOR_OPTIMIZER = 0.25
MOST_OF_IT = 0.5
FEW_SAMPLES = 8
SHORT_OPERATOR = 20e-6
"""The mean time in seconds below which starting an operator costs as much as its work."""

_OPTIMIZER = ("leave foreach out", "set fused=True")


def circumstances_of(batch: Any, optimizers: Iterable[Any], loader: Any) -> Circumstances:
    """Return the settings that explain operators, as they are now."""
    torch = sys.modules["torch"]
    fills = torch.are_deterministic_algorithms_enabled() and torch.utils.deterministic.fill_uninitialized_memory
    groups = [group for one in optimizers for group in getattr(one, "param_groups", ())]
    alone = [group for group in groups if group.get("foreach") is False and not group.get("fused")]
    return Circumstances(
        fills=bool(fills),
        foreach_off=bool(alone),
        fusable=any("fused" in group for group in alone),
        by_default=any(group.get("foreach") is None and group.get("fused", True) is None for group in groups),
        samples=batch_size(batch),
        pinned=getattr(loader, "pin_memory", None),
    )


def known_causes(profile: Profile) -> dict[str, str]:
    """Return what is known to take time, and what helps, by the operator or the phase that it explains."""
    found: dict[str, str] = {}
    known, each = profile.circumstances, max(1, profile.iterations)
    fill, copy = (profile.operators.get(name, Operator(name)) for name in ("aten::fill_", PAGEABLE))
    on_device = any(operator.device for operator in profile.operators.values())

    def is_much(seconds: float) -> bool:
        return profile.total > 0 and seconds / profile.total >= WORTH

    if known.fills and is_much(fill.time):
        found[fill.name] = (
            f"{fill.name} takes {percent(fill.time / profile.total)} of the iteration, {fill.calls // each} calls in "
            "each: deterministic algorithms fill every new tensor; "
            "torch.utils.deterministic.fill_uninitialized_memory = False turns this off"
        )
    # Phases are compared with phases of the middle iteration, operators with all that was recorded.
    share = phase_shares(profile.usual)
    optimizer = share.get("optimizer", 0.0)
    # On a CPU, torch updates each tensor alone by itself as well: only fused=True helps there.
    remedies = [text for text in _OPTIMIZER if (on_device if "foreach" in text else known.fusable)]
    if known.foreach_off and remedies and optimizer >= WORTH:
        found["optimizer"] = (
            f"the optimizer takes {percent(optimizer)} of the iteration with foreach=False, which "
            f"updates each tensor alone: {', or '.join(remedies)}"
        )
    elif known.by_default and not on_device and optimizer >= MUCH_FOR_OPTIMIZER:
        found["optimizer"] = (
            f"the optimizer takes {percent(optimizer)} of the iteration: on a CPU torch updates each tensor alone; set "
            "fused=True"
        )
    if known.pinned is not True and is_much(copy.time):
        found[copy.name] = (
            f"copies from memory that is not pinned take {percent(copy.time / profile.total)} of the iteration: set "
            "pin_memory=True of the loader, and copy with non_blocking=True"
        )
    count = sum(operator.calls for operator in profile.operators.values())
    time = sum(operator.time for operator in profile.operators.values())
    few = known.samples is not None and known.samples <= FEW_SAMPLES
    # Between short operators Python takes as long as they do: the steps count, not the operators.
    steps = sum(share.get(name, 0.0) for name in ("forward", "backward", "optimizer", "other"))
    if few and count and time / count < SHORT_OPERATOR and steps >= MOST_OF_IT:
        found["batch"] = (
            f"batches have {known.samples} {'sample' if known.samples == 1 else 'samples'}, so starting operators "
            "takes longer than their work: larger batches cost hardly more"
        )
    return found
