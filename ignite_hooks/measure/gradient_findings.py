"""What stands out in the gradients of layers: which layer, how far it is from the others or from before, what helps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median

from ignite_hooks.measure.findings import some_of
from ignite_hooks.measure.gradients import GradientFlow

FAR = 1e3
"""The factor from the median of the layers of its kind at which a layer stands out."""

FAR_FROM_OTHERS = 1e5
"""The same, where there are too few layers of its kind, from the median of all layers."""

FEWEST = 3
"""The number of layers from which on a median says what is usual."""

JUMP = 1e2
"""The factor from its own median at which a layer stands out."""

HUGE = 1e4
"""The gradient relative to the weights, as the median of all layers, above which all gradients explode."""

FAST, SLOW = 0.1, 1e-7
"""The shares of its weights above and below which an update of a layer is remarkable."""


def gradient_findings(flow: GradientFlow) -> list[str]:
    """Return what stands out in the gradients and updates of layers.

    Example:
        >>> from ignite_hooks.measure.gradients import LayerGradient
        >>> flow = GradientFlow()
        >>> found = {name: LayerGradient(1.0, 4, weight=2.0) for name in ("second", "third", "last")}
        >>> found = {"first": LayerGradient(1e-9, 4, weight=2.0), **found}
        >>> flow.add(found, kinds=dict.fromkeys(found, "Linear"))
        >>> gradient_findings(flow)
        ['the gradient vanishes in first: relative to the weights 1e-09 of the median of the Linear layers; other \
activations, normalisation, skip connections or initial weights help']
    """
    found = []
    if broken := [name for name, layer in flow.layers.items() if layer.not_finite]:
        found.append(f"the gradient is not finite in {some_of(broken)}")
    usual = {name: layer.mean for name, layer in flow.layers.items() if layer.samples > layer.not_finite}
    if not any(usual.values()):
        return found
    if dead := [name for name, mean in usual.items() if mean == 0]:
        found.append(f"no gradient comes to {some_of(dead)}: detached, frozen by mistake, or not used by the loss")
    found += _levels(flow)
    found += _jumps(flow)
    ratios = flow.ratios()
    if fast := [name for name, ratio in ratios.items() if ratio > FAST]:
        found.append(f"an update changes {some_of(fast)} by more than {FAST:.0%}: the learning rate is high")
    slow = [name for name, ratio in ratios.items() if 0 < ratio < SLOW]
    if slow:
        found.append(f"an update hardly changes {some_of(slow)}: less than {SLOW:g} of the weights")
    return found


def outliers(levels: Mapping[str, float], usual: float, far: float) -> tuple[list[str], list[str]]:
    """Return the layers far below and far above a usual level; levels are in the order of the model.

    Where the levels climb or fall through the whole model, both ends are far from its middle, and only the early end
    stands out: gradients vanish or explode on their way from the loss.

    Example:
        >>> outliers({"a": 1.0, "b": 1e9, "c": 1.0}, usual=1.0, far=1e3)
        ([], ['b'])
        >>> outliers({"a": 1e-4, "b": 1.0, "c": 1e4}, usual=1.0, far=1e3)
        (['a'], [])
    """
    low = [name for name, level in levels.items() if level * far <= usual]
    high = [name for name, level in levels.items() if level >= usual * far]
    if low and high:
        places = {name: place for place, name in enumerate(levels)}
        if places[low[-1]] < places[high[0]]:
            return low, []
        if places[high[-1]] < places[low[0]]:
            return [], high
    return low, high


def _levels(flow: GradientFlow) -> list[str]:
    """Return the layers that are far from those of their kind, or from all where these are few."""
    levels = {name: level for name, layer in flow.layers.items() if (level := layer.level)}
    if len(levels) < FEWEST:
        return []
    whole = median(levels.values())
    found = []
    if whole >= HUGE:
        found.append(
            f"the gradients explode: in the median layer they are {whole:.0e} times as large as the weights; "
            "smaller initial weights, normalisation, or a loss that is a mean and not a sum help"
        )
    kinds: dict[str, dict[str, float]] = {}
    for name, level in levels.items():
        kinds.setdefault(flow.kinds.get(name, ""), {})[name] = level
    small = {name: level for same in kinds.values() if len(same) < FEWEST for name, level in same.items()}
    groups = [
        (f"the {kind} layers" if kind else "the layers", same, median(same.values()), FAR)
        for kind, same in kinds.items()
        if len(same) >= FEWEST
    ]
    groups.append(("all layers", small, whole, FAR_FROM_OTHERS))
    for others, same, usual, far in groups:
        low, high = outliers(same, usual, far)
        if low:
            words = f"relative to the weights {_times(same, low, usual, min)} of the median of {others}"
            remedy = "other activations, normalisation, skip connections or initial weights help"
            found.append(f"the gradient vanishes in {some_of(low)}: {words}; {remedy}")
        if high:
            words = f"relative to the weights {_times(same, high, usual, max)} times the median of {others}"
            found.append(f"the gradient explodes in {some_of(high)}: {words}; look at what scales it, or clip it")
    return found


def _times(
    levels: Mapping[str, float], names: Sequence[str], usual: float, farthest: Callable[[Iterable[float]], float]
) -> str:
    return f"{farthest(levels[name] for name in names) / usual:.0e}"


def _jumps(flow: GradientFlow) -> list[str]:
    """Return the layers whose gradient was once far from their own median."""
    found = []
    up = {name: layer.rise for name, layer in flow.layers.items() if layer.rise >= JUMP}
    if up:
        words = f"in one iteration {max(up.values()):.0e} times its median: clip it, or lower the learning rate"
        found.append(f"the gradient jumps in {some_of(list(up))}: {words}")
    down = {name: layer.fall for name, layer in flow.layers.items() if layer.fall * JUMP <= 1}
    if down:
        words = f"it fell to {min(down.values()):.0e} of its median while that of most layers did not"
        found.append(f"the gradient collapses in {some_of(list(down))}: {words}")
    return found
