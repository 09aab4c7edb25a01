"""Updates of averages beside the training: where a core is free they cost it nothing.

An update reads the weights twice, to see that they are finite and to average them, and both at the speed of memory: no
arrangement within the iteration makes that free. But after a step of the optimizer the weights stay as they are until
its next one. So a thread updates the averages beside the next forward and backward pass, and the step waits for it.

Bits must not depend on it, so it takes for granted no more than saving beside the training does: within an epoch only
steps of the optimizer change weights. What a script really does is looked at: `Weights` compares them, bit by bit in
the first updates and in a few later ones, and by their version counters in all of them. Where they change otherwise,
where it is unknown whether an epoch ends, or where it was not measured to be faster, updates are made in line.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from ignite_hooks.model.optimizers import param_groups
from ignite_hooks.model.parts import each
from ignite_hooks.model.wrapping import is_lazy_model
from ignite_hooks.system.host import usable_cores

if TYPE_CHECKING:
    from logging import Logger

    from torch import Tensor

    from ignite_hooks.model.averages import TensorAverages
    from ignite_hooks.model.optimizers import StepHooks

LOOKS: Final = 4
"""The updates in line after which weights are compared bit by bit before any is made beside the training."""

MEASURED: Final = 46
"""The updates that are timed after these: half of them in line, half beside the training."""

FASTER: Final = 0.99
"""An iteration beside which updates are made has to take at most this share of one with an update in line."""

MOST: Final = 200
"""After so many updates without a decision, as in very short epochs, all further ones are made in line."""

LOOK_AGAIN: Final = 1000
"""Every so many updates one is made in line and weights are compared bit by bit again."""

LEAST: Final = 1 << 20
"""Fewer parameters are averaged faster than handed over."""


class Worker(Protocol):
    """What makes one update at a time beside the training."""

    def submit(self, update: Callable[[float], bool], momentum: float) -> None:
        """Begin an update; call it only after `result`."""
        ...

    def wait(self) -> None:
        """Wait for the update, whatever comes of it."""
        ...

    def result(self) -> bool | None:
        """Wait for the update; return whether it was made, or None if none was submitted."""
        ...

    def close(self) -> None:
        """Release what it holds."""
        ...


class Trial:
    """The trial of the first updates: whether they are faster beside the training.

    Args:
        clock: Seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._seconds: tuple[list[float], list[float]] = ([], [])
        self._began: float | None = None
        self._count = 0

    def interrupt(self) -> None:
        """Do not count the time since the last update."""
        self._began = None

    def next(self) -> bool:
        """Return whether the next update is made beside the training; the time since the last one is that one's."""
        now = self._clock()
        if self._began is not None:
            self._seconds[beside_in_trial(self._count - 1)].append(now - self._began)
        self._began, self._count = now, self._count + 1
        return beside_in_trial(self._count - 1)

    def is_over(self) -> bool:
        """Return whether all updates of the trial have been timed."""
        return sum(map(len, self._seconds)) >= MEASURED

    @property
    def milliseconds(self) -> tuple[float, float]:
        """The time from an update in line to the next one, and that from one beside the training."""
        # The lower quartiles: other processes and slow batches make some iterations longer and none shorter.
        in_line, beside = (sorted(seconds)[len(seconds) // 4] * 1e3 for seconds in self._seconds)
        return in_line, beside


def beside_in_trial(number: int) -> bool:
    """Return whether an update of the trial is made beside the training; a machine that slows down favours none.

    Example:
        >>> "".join("-B"[beside_in_trial(number)] for number in range(12))
        '-BB--BB--BB-'
    """
    return (number + number // 2) % 2 == 1


class Weights:
    """Weights as they were at one moment.

    Args:
        tensors: The weights.
        exactly: Whether a change that no version counter shows counts, such as one through ``tensor.data``.
    """

    def __init__(self, tensors: Sequence[Tensor], *, exactly: bool) -> None:
        self._tensors = tensors
        self._versions = [tensor._version for tensor in tensors]
        self._sums = self._bits() if exactly else None

    def have_changed(self) -> bool:
        """Return whether they are others now."""
        if self._versions != [tensor._version for tensor in self._tensors]:
            return True
        return self._sums is not None and self._sums != self._bits()

    def _bits(self) -> list[int]:
        return [_sum_of_bits(tensor) for tensor in self._tensors]


def _sum_of_bits(tensor: Tensor) -> int:
    import torch

    from ignite_hooks.model.averaging_kernels import is_dense

    real = torch.view_as_real(tensor.detach()) if tensor.is_complex() else tensor.detach()
    flat = (real if is_dense(real) else real.contiguous()).as_strided((real.numel(),), (1,))
    # Eight bytes at a time: a sum that casts takes thirty times as long.
    wide = 8 // flat.element_size()
    first = min(-flat.storage_offset() % wide, flat.numel())
    last = flat.numel() - (flat.numel() - first) % wide
    narrow = {2: torch.int16, 4: torch.int32, 8: torch.int64}[flat.element_size()]
    ends = (flat[:first].view(narrow), flat[last:].view(narrow))
    whole = flat[first:last].view(torch.int64) if last > first else ends[0]
    return sum(int(part.sum()) for part in (whole, *ends))


class Beside:
    """Updates of averages, in line or beside the training.

    Args:
        worker: Makes those beside the training.
        trial: Decides whether they are; None where that has been decided.
        logger: Says what was decided.
    """

    def __init__(self, worker: Worker, trial: Trial | None, logger: Logger) -> None:
        self.worker, self._trial, self._logger = worker, trial, logger
        self._is_over = False
        self._is_safe = trial is None
        self._looks = self._count = 0
        self._weights: Weights | None = None
        self._was_late = False
        self._detach: list[Callable[[], object]] = []

    def attach(self, step_hooks: StepHooks, readers: list[Callable[[], object]], catch_up: Callable[[], None]) -> None:
        """Finish updates before a step of the optimizer, and before anything else that changes weights and says so.

        Args:
            step_hooks: The functions before the steps of the optimizer.
            readers: What is called before weights are changed otherwise.
            catch_up: Waits for an update and counts it.
        """
        import torch

        def before_step(*_: Any) -> None:
            if torch.compiler.is_compiling():
                return  # this must not become a part of a compiled graph; `update` sees that no step waits
            catch_up()
            self._look(before_step=True)

        step_hooks.add("overlap", before_step)
        readers.append(self._before_change)
        self._detach = [lambda: step_hooks.remove("overlap"), lambda: readers.remove(self._before_change)]

    def looked(self) -> Beside | None:
        """Look at the weights before an update; return None where it and all further ones are made in line."""
        self._look(before_step=False)
        if not self._is_over:
            return self
        self.close()
        return None

    def update(self, part: TensorAverages, momentum: float, *, at_end: bool) -> bool | None:
        """Make an update, or begin it beside the training.

        Args:
            part: The averages.
            momentum: The share of them that is kept.
            at_end: Whether weights may change before the next iteration.

        Returns:
            What `TensorAverages.update` does; None if it has begun.
        """
        self._count += not at_end
        trial, tensors = self._trial, part.tensors()
        exactly = not self._is_safe or (trial is not None and self._count % LOOK_AGAIN == 0)
        if exactly or (at_end and trial is not None):
            if trial is not None:
                trial.interrupt()
        elif self._is_next():
            self._begin(part, momentum, Weights(tensors, exactly=False))
            return None
        made = part.update(momentum)
        self._weights = Weights(tensors, exactly=True) if exactly and not at_end else None
        self._is_over = self._is_over or (self._count >= MOST and not self._is_decided)
        return made

    def close(self) -> None:
        """Finish the update and let go of everything."""
        self.worker.close()
        while self._detach:
            self._detach.pop()()

    def _begin(self, part: TensorAverages, momentum: float, weights: Weights) -> None:
        def make(share: float) -> bool:
            made = part.update(share)
            self._was_late = weights.have_changed()
            return made

        self._weights = weights
        self.worker.submit(make, momentum)

    def _before_change(self) -> None:
        """Let a change of the weights wait that is no secret."""
        self.worker.wait()
        self._weights = None

    def _look(self, *, before_step: bool) -> None:
        """Compare the weights with those of the last update: only a step of the optimizer may change them.

        Args:
            before_step: Whether that comes next; otherwise there has been none.
        """
        weights, self._weights = self._weights, None
        if weights is None:
            return
        if weights.have_changed():
            self._end_changed()
        elif before_step and not self._is_safe:
            self._looks += 1
            self._is_safe = self._looks == LOOKS

    @property
    def _is_decided(self) -> bool:
        return self._is_safe and (self._trial is None or self._trial.is_over())

    def _is_next(self) -> bool:
        """Return whether the next update is made beside the training."""
        if self._is_over or self._trial is None or self._trial.is_over():
            return not self._is_over
        is_next = self._trial.next()
        if self._trial.is_over():
            in_line, beside = self._trial.milliseconds
            is_next = beside <= FASTER * in_line
            self._is_over = not is_next
            self._logger.info(
                "the average is updated %s: an iteration took %.1f ms with updates beside it, %.1f with those in line",
                "beside the training" if is_next else "in line",
                beside,
                in_line,
            )
        return is_next

    def _end_changed(self) -> None:
        self._is_over = True
        if self._was_late:
            self._logger.warning(
                "weights changed between two steps of the optimizer, while an update of the average read them: it may "
                "hold some of both, and all further ones are made in line; set overlap: false of EMAHook if something "
                "else than the optimizer changes weights"
            )
        else:
            self._logger.info("the average is updated in line: not only steps of the optimizer change weights")


def why_not_by_itself(model: Any, optimizer: Any) -> str | None:
    """Return the reason why updates beside the training are not even tried unless they are asked for, or None."""
    import torch

    if not all(isinstance(one, torch.optim.Optimizer) for one in each(optimizer)):
        return "the optimizer is none of torch's"
    if any(parameter.device.type != "cpu" for parameter in model.parameters()):
        return "it has not been tested on a GPU"
    if usable_cores() < 2:
        return "there is one core"
    if is_lazy_model(model):
        return "the weights of the model do not exist yet"
    known = {id(parameter) for group in param_groups(optimizer) for parameter in group["params"]}
    if any(id(parameter) not in known or not parameter.requires_grad for parameter in model.parameters()):
        return "the optimizer does not train all of the model"
    if sum(parameter.numel() for parameter in model.parameters()) < LEAST:
        return "the model is small"
    return None
