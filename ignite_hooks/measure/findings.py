"""What stands out in measurements, in sentences that say what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from ignite_hooks.measure.known_causes import known_causes
from ignite_hooks.measure.phases import phase_shares
from ignite_hooks.measure.profile import Profile
from ignite_hooks.measure.trend import Trend
from ignite_hooks.text import calls, duration, percent

# -- phases of an iteration, as shares of it --------------------------------------------------------------------

MUCH_DATA = 0.2
LEAST_DATA = 1e-3
"""The seconds of an iteration below which more workers save nothing: handing over a batch costs as much."""

MUCH_WAITING = 0.25
"""The share of the time without a processor from which on a measured time says little about the training."""

MUCH_OF_HOOKS = 0.1
TIMES_OTHERS, MUCH_LATER = 1.2, 0.05
"""How much longer than the others a rank takes, and for which share of an iteration they wait, before it is named."""
MUCH_BACKWARD = 0.4
TIMES_FORWARD = 4.0

# -- profiles ---------------------------------------------------------------------------------------------------

MUCH_FOR_ONE = 0.25
"""The share of the time from which on an operator is named."""

MANY_OPERATORS = 1000
SMALL_OPERATOR = 20e-6
"""The mean time in seconds below which this many operators in an iteration are an overhead."""

# -- memory and machine -----------------------------------------------------------------------------------------

LEAST_LEAK_MB = 16.0
"""The growth in MB below which nothing is called a leak."""

WATCHED = {
    "memory/process_mb": "this process",
    "memory/children_mb": "the processes it has started",
    "memory/gpu_allocated_mb": "the GPU",
}
"""The readings of memory in which leaks are searched, and their owners."""

IDLE_GPU = 50.0
FULL_MEMORY = 95.0
FEWEST_READINGS = 5

_time = partial(duration, precise=True)


def phase_findings(
    seconds: Mapping[str, float],
    workers: int | None = None,
    iterations: int | None = None,
    ranks: int = 1,
    waited: float = 0.0,
) -> list[str]:
    """Return what stands out in the phases of an iteration.

    Args:
        seconds: Seconds by phase.
        workers: Number of processes that load the data, if known.
        iterations: Number of iterations these are the seconds of, if known.
        ranks: Number of processes that train together.
        waited: The share of the time in which a thread of the training waited for a processor.

    Example:
        >>> phase_findings({"data": 4.3, "forward": 2.0, "backward": 3.7}, workers=0)
        ['data loading takes 43 % of the iteration: set num_workers of the loader, which is 0']
        >>> phase_findings({"data": 0.1, "forward": 2.0, "backward": 4.0})
        []
    """
    if waited >= MUCH_WAITING:
        return [_no_processor(waited)]
    share = phase_shares(seconds)
    found = []
    pays = iterations is None or seconds.get("data", 0.0) >= LEAST_DATA * iterations
    if share.get("data", 0) >= MUCH_DATA and pays:
        remedy = {None: "load it in workers, or make it cheaper", 0: "set num_workers of the loader, which is 0"}
        words = remedy.get(workers, f"raise num_workers, now {workers}, or make a sample cheaper")
        found.append(f"data loading takes {percent(share['data'])} of the iteration: {words}")
    forward, backward = seconds.get("forward", 0.0), seconds.get("backward", 0.0)
    if share.get("backward", 0) >= MUCH_BACKWARD and backward > TIMES_FORWARD * forward:
        times = ""
        if forward > 0:
            times = f", {backward / forward:.1f} times as long as the forward pass (about 2 is usual)"
        words = "look for slow autograd functions and gradient hooks"
        if ranks > 1:
            words = "it waits for the gradients of other ranks (all-reduce); accumulate gradients with no_sync(), or "
            words += "look for a slower rank"
        found.append(f"the backward pass takes {percent(share['backward'])} of the iteration{times}: {words}")
    if share.get("hooks", 0) >= MUCH_OF_HOOKS:
        words = "runner.report() says which; set overhead_budget to slow down those that only observe"
        found.append(f"hooks take {percent(share['hooks'])} of the iteration: {words}")
    return found


def rank_findings(own: Sequence[float], whole: Sequence[float]) -> list[str]:
    """Return which rank the others wait for, if one is slower than they are.

    Args:
        own: Seconds of an iteration in which a rank waits for no other, by rank.
        whole: Seconds of an iteration, by rank.

    Example:
        >>> rank_findings([0.010, 0.011, 0.022], [0.030, 0.030, 0.030])
        ['rank 2 is the slowest: 22.0 ms of an iteration are its own, 10.5 ms those of the others, who wait for it']
        >>> rank_findings([0.010, 0.011], [0.030, 0.030])
        []
    """
    slowest = max(range(len(own)), key=lambda rank: own[rank], default=0)
    others = [seconds for rank, seconds in enumerate(own) if rank != slowest]
    if not others:
        return []
    mean = sum(others) / len(others)
    if own[slowest] < TIMES_OTHERS * mean or own[slowest] - mean < MUCH_LATER * whole[slowest]:
        return []
    words = f"{own[slowest] * 1e3:.1f} ms of an iteration are its own, {mean * 1e3:.1f} ms those of the others"
    return [f"rank {slowest} is the slowest: {words}, who wait for it"]


def profile_findings(profile: Profile) -> list[str]:
    """Return what stands out in a profile: phases, operators, functions and waits for the device."""
    if not profile.iterations or profile.total <= 0:
        return []
    waited = profile.waited / profile.total
    if waited >= MUCH_WAITING:
        return [_no_processor(waited), *_waits_for_device(profile)]
    found = phase_findings(profile.usual, profile.workers, profile.iterations, profile.ranks)
    causes = known_causes(profile)
    found += causes.values()
    for operator in sorted(profile.operators.values(), key=lambda o: -o.time):
        if operator.time / profile.total < MUCH_FOR_ONE:
            break
        if operator.name in causes or operator.name.endswith("Synchronize"):
            continue  # a host that waits for its device is said below
        if "optimizer" in causes and operator.name.startswith("Optimizer.step#"):
            continue
        each = _time(operator.time / max(1, operator.calls))
        share = percent(operator.time / profile.total)
        found.append(f"{operator.name} takes {share} of the iteration: {calls(operator.calls)} of {each}")
    for function in sorted(profile.functions.values(), key=lambda f: -f.own)[:1]:
        if function.own / profile.total >= MUCH_FOR_ONE:
            by = f", called by {function.stack[0]}" if function.stack else ""
            found.append(f"{function.name} takes {percent(function.own / profile.total)} of the iteration{by}")
    count = sum(o.calls for o in profile.operators.values())
    time = sum(o.time for o in profile.operators.values())
    many = count / profile.iterations >= MANY_OPERATORS and time / max(1, count) < SMALL_OPERATOR
    if many and time / profile.total > 0.5:
        words = "larger batches, fused or foreach operators or torch.compile have fewer"
        per_iteration = f"{count // profile.iterations} operators per iteration"
        found.append(f"{per_iteration} take {_time(time / count)} each: {words}")
    return found + _waits_for_device(profile)


def _waits_for_device(profile: Profile) -> list[str]:
    waits = profile.operators.get("aten::_local_scalar_dense")
    if waits is None or waits.calls <= profile.iterations or not any(o.device for o in profile.operators.values()):
        return []
    times = f"{waits.calls / profile.iterations:.0f} times per iteration"
    return [f"the host waits for the device {times}: .item(), float() or print() of a tensor"]


def _no_processor(waited: float) -> str:
    return (
        f"threads of the training waited for a processor {percent(waited)} of the time, so no phase is judged: other "
        "programs hold it, or there are more threads than processors; set OMP_NUM_THREADS to fewer"
    )


def memory_findings(trends: Mapping[str, Trend]) -> list[str]:
    """Return the readings of memory that grow steadily, by their names in ``WATCHED``."""
    found = []
    for name, trend in trends.items():
        growth = trend.growth()
        if growth is None:
            continue
        (first, before), (last, after) = trend.settled()[0], trend.settled()[-1]
        if after - before >= LEAST_LEAK_MB:
            words = f"{after - before:.0f} MB in {last - first:.0f} iterations, and steadily: something is kept"
            found.append(f"the memory of {WATCHED[name]} grows by {growth:.2f} MB per iteration, {words}")
    return found


def machine_findings(sums: Mapping[str, tuple[int, float]]) -> list[str]:
    """Return what stands out in readings of the machine, of which the number and the sum are known by name.

    Example:
        >>> machine_findings({"system/memory_percent": (10, 970.0)})
        ['97 % of the memory of the machine is in use: the system may end the run']
    """
    found = []
    for name, (count, total) in sums.items():
        mean = total / count
        if count < FEWEST_READINGS:
            continue
        if name.startswith("gpu") and name.endswith("/percent") and mean < IDLE_GPU:
            gpu = name.partition("/")[0].removeprefix("gpu")
            words = "it waits for data, for the host or for other ranks, or its batches are small"
            found.append(f"GPU {gpu} is busy {mean:.0f} % of the time: {words}")
        if name == "system/memory_percent" and mean >= FULL_MEMORY:
            found.append(f"{mean:.0f} % of the memory of the machine is in use: the system may end the run")
    return found


def some_of(names: Sequence[str], most: int = 5) -> str:
    """Return the first names and the number of the others.

    Example:
        >>> some_of(["a", "b"]), some_of(list("abcdefg"))
        ('a, b', 'a, b, c, d, e and 2 more')
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"
