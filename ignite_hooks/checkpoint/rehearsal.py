"""A save without a file at the start of a run: it finds what no checkpoint can hold, and what a save takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from ignite_hooks.checkpoint.capture import capture
from ignite_hooks.distributed.collectives import is_main_process
from ignite_hooks.model.parts import each
from ignite_hooks.model.wrapping import is_sharded
from ignite_hooks.store.archive import archive_size
from ignite_hooks.store.interface import ShardedStore
from ignite_hooks.store.plain import to_plain_leaving_out
from ignite_hooks.store.room import copies_that_fit, memory_left, room_for_copies, swing_of_process
from ignite_hooks.text import size as in_words

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from ignite_hooks.run.runner import Runner

# The numbers that an optimizer of torch keeps for each weight from its first step on.
NUMBERS_PER_WEIGHT: Final = {
    "SGD": 0,
    "ASGD": 1,
    "Adadelta": 2,
    "Adam": 2,
    "AdamW": 2,
    "Adamax": 2,
    "NAdam": 2,
    "RAdam": 2,
    "RMSprop": 1,
    "Rprop": 2,
}

AMPLE: Final = 4
"""For how many copies there must be room before memory is taken that nothing needs yet: a step may need more than is
known."""


def rehearse(runner: Runner) -> None:
    """Name the parts of the state that cannot be saved, and say what a save takes, if a hook saves checkpoints.

    Only types are looked at, nothing is copied. With several ranks all of them do it together.
    """
    if any(getattr(hook, "saves_checkpoints", False) for hook in runner.hooks.registered.values()):
        plain, parts = to_plain_leaving_out(capture(runner), copies_nothing=True)
        runner.checkpoints.left_out.note(parts)
        if is_sharded(runner.model):
            meet_beside(runner)
        elif is_main_process():
            tell_size(runner, plain)


def meet_beside(runner: Runner) -> None:
    """Check that all ranks of a sharded model can save together, and let their saving threads find each other.

    All ranks have to call it.
    """
    checkpoints = runner.checkpoints
    for folder in checkpoints.homes.folders:
        checkpoints.homes.check_shared(folder)
        store = checkpoints.store(folder)
        if isinstance(store, ShardedStore):
            store.saving_thread().group.get()


def tell_size(runner: Runner, plain: Mapping[str, Any]) -> None:
    """Say in one line what a save of this run takes.

    Args:
        runner: The run, before its first step.
        plain: Its state in plain types, which has just been captured.
    """
    hooks = [hook for hook in runner.hooks.registered.values() if getattr(hook, "saves_checkpoints", False)]
    optimizers = [one for one in each(runner.optimizer) if hasattr(one, "param_groups")]
    optimizers += runner.checkpoints.script.optimizers
    to_come = sum(map(state_to_come, optimizers))
    saves_optimizer = any(getattr(hook, "save_optimizer", True) for hook in hooks)
    later = [size for one in optimizers for size in tensors_to_come(one)] if saves_optimizer else []
    size = archive_size(plain, later)
    background = any(getattr(hook, "async_save", True) for hook in hooks)
    left = memory_left()
    room = room_for_copies(left, swing_of_process()) - to_come - sum(map(gradients_to_come, optimizers))
    known = all(type(optimizer).__name__ in NUMBERS_PER_WEIGHT or _has_state(optimizer) for optimizer in optimizers)
    # Hooks add to a save, such as averages of the weights.
    at_least = not known or bool(runner.plan.at("before_save_checkpoint"))
    runner.logger.info("%s", description(size, room, str(left), background=background, at_least=at_least))
    if background and copies_that_fit(size, room, AMPLE) == AMPLE:
        runner.checkpoints.prepare(size)


def description(size: int, room: int, left: str, *, background: bool = True, at_least: bool = False) -> str:
    """Return what a save takes, as a sentence.

    Args:
        size: The bytes of a state.
        room: The bytes that copies may take.
        left: The memory that is left, in words.
        background: Whether saves are to be written beside the training.
        at_least: Whether the optimizer or hooks may need more than is known.

    Example:
        >>> description(100 * 2**20, 2**30, "1.1 GB of 4.0 GB")
        'a save takes 100.0 MB on disk and, beside training, up to 200.0 MB of memory (1.1 GB of 4.0 GB are left)'
    """
    start = f"a save takes {'at least ' if at_least else ''}{in_words(size)} on disk"
    copies = copies_that_fit(size, room)
    if not background:
        return f"{start} and no memory: training waits while it is written (async_save: false)"
    if copies == 0:
        return f"{start} and no memory: too little is left for a copy ({left}), so training waits while it is written"
    if copies == 1:
        return f"{start} and, beside training, {in_words(size)} of memory for one copy ({left} are left)"
    return f"{start} and, beside training, up to {in_words(copies * size)} of memory ({left} are left)"


def state_to_come(optimizer: Optimizer) -> int:
    """Return the bytes that the state of an optimizer takes from its first step on, if it has made none."""
    if _has_state(optimizer):
        return 0
    return sum(_bytes(group["params"]) * _numbers(type(optimizer).__name__, group) for group in optimizer.param_groups)


def tensors_to_come(optimizer: Optimizer) -> Iterator[int]:
    """Yield the bytes of each tensor that an optimizer makes in its first step, if it has made none."""
    kind = type(optimizer).__name__
    for group in optimizer.param_groups if not _has_state(optimizer) else ():
        for weight in group["params"]:
            yield from [_bytes([weight])] * _numbers(kind, group)
            if NUMBERS_PER_WEIGHT.get(kind):  # which step it is
                yield 4


def gradients_to_come(optimizer: Optimizer) -> int:
    """Return the bytes of gradients that are not there yet."""
    return sum(_bytes(weight for weight in group["params"] if weight.grad is None) for group in optimizer.param_groups)


def _has_state(optimizer: Optimizer) -> bool:
    return bool(getattr(optimizer, "state", None))


def _numbers(kind: str, group: Mapping[str, Any]) -> int:
    more = [group.get("momentum"), group.get("amsgrad"), group.get("centered")]
    return NUMBERS_PER_WEIGHT.get(kind, 0) + sum(map(bool, more)) if kind in NUMBERS_PER_WEIGHT else 0


def _bytes(weights: Iterable[Any]) -> int:
    return sum(weight.numel() * weight.element_size() for weight in weights if weight.requires_grad)
