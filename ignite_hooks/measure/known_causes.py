"""Known causes of time in operators: what the settings of torch, the optimizer and the loader explain."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from ignite_hooks.measure.batches import batch_size
from ignite_hooks.measure.profile import Circumstances, Operator, Profile
from ignite_hooks.text import percent

WORTH = 0.05
"""The share of the time from which on a known cause is named."""

FEW_SAMPLES = 8
SHORT_OPERATOR = 20e-6
"""The mean time in seconds below which starting an operator costs as much as its work."""


def circumstances_of(batch: Any, optimizers: Iterable[Any], loader: Any) -> Circumstances:
    """Return the settings that explain operators, as they are now."""
    torch = sys.modules["torch"]
    fills = torch.are_deterministic_algorithms_enabled() and torch.utils.deterministic.fill_uninitialized_memory
    groups = [group for one in optimizers for group in getattr(one, "param_groups", ())]
    return Circumstances(
        fills=bool(fills),
        foreach_off=any(group.get("foreach") is False and not group.get("fused") for group in groups),
        samples=batch_size(batch),
        pinned=getattr(loader, "pin_memory", None),
    )


def known_causes(profile: Profile) -> dict[str, str]:
    """Return what is known to take time, and what helps, by the operator or the phase that it explains."""
    found: dict[str, str] = {}
    known, each = profile.circumstances, max(1, profile.iterations)
    fill, copy = (profile.operators.get(name, Operator(name)) for name in ("aten::fill_", "aten::copy_"))
    on_device = any(operator.device for operator in profile.operators.values())

    def is_much(seconds: float) -> bool:
        return profile.total > 0 and seconds / profile.total >= WORTH

    if known.fills and is_much(fill.time):
        found[fill.name] = (
            f"{fill.name} takes {percent(fill.time / profile.total)} of the iteration, {fill.calls // each} calls in "
            "each: deterministic algorithms fill every new tensor; "
            "torch.utils.deterministic.fill_uninitialized_memory = False turns this off"
        )
    optimizer = profile.usual.get("optimizer", 0.0)
    if known.foreach_off and is_much(optimizer):
        found["optimizer"] = (
            f"the optimizer takes {percent(optimizer / profile.total)} of the iteration with foreach=False, which "
            "updates each tensor alone: leave foreach out, or set fused=True"
        )
    if on_device and known.pinned is False and is_much(copy.time):
        found[copy.name] = (
            f"{copy.name} takes {percent(copy.time / profile.total)} of the iteration: set pin_memory=True of the "
            "loader, and copy with non_blocking=True"
        )
    count = sum(operator.calls for operator in profile.operators.values())
    time = sum(operator.time for operator in profile.operators.values())
    few = known.samples is not None and known.samples <= FEW_SAMPLES
    if few and time / max(1, count) < SHORT_OPERATOR and is_much(time) and time / profile.total >= 0.5:
        found["batch"] = (
            f"batches have {known.samples} {'sample' if known.samples == 1 else 'samples'}, so starting operators "
            "takes longer than their work: larger batches cost hardly more"
        )
    return found
