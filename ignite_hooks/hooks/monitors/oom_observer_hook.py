"""Reports the use of memory when a run fails for lack of it."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from annotated_types import Ge

from ignite_hooks.distributed.collectives import rank
from ignite_hooks.hooks.base_hook import BaseHook, OnError, settings
from ignite_hooks.measure.machine import MB, is_out_of_memory, memory_of_machine, memory_of_process
from ignite_hooks.model.parts import each
from ignite_hooks.model.wrapping import unwrapped
from ignite_hooks.system.devices import memory_summary

if TYPE_CHECKING:
    from torch import Tensor

    from ignite_hooks.run.runner import Runner


HELP = (
    "smaller batches, with gradients accumulated over several of them",
    "torch.autocast with bfloat16, and torch.utils.checkpoint for the layers with the largest outputs",
    "optimizer.zero_grad(set_to_none=True), and no loss or output kept with its graph: use .detach()",
)


FAKE_TENSOR = "FakeTensor"
"""The type of tensors that compiling leaves behind, without memory and sometimes without size."""


@settings
class OOMObserverHook(BaseHook):
    """Write down what the memory was used for if a run fails because a GPU or the machine is out of memory.

    Until then it does nothing. To record allocations as well, use ``MemoryProfilerHook`` with
    ``dump_snapshot_on_oom``.

    Args:
        out_dir: Folder of the file, relative to the work directory.
        largest: Number of kinds of tensors to list, the largest first.

    Reads: model, optimizer, data_batch.
    Saves: oom/rank<N>.txt.
    """

    out_dir: Path = Path("oom")
    largest: Annotated[int, Ge(1)] = 20
    on_error: OnError = "warn"

    may_end_a_run: ClassVar[bool] = False

    def on_exception(self, runner: Runner, exception: BaseException) -> None:
        if not is_out_of_memory(exception):
            return
        path = runner.work_dir / self.out_dir / f"rank{rank()}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(report(runner, exception, self.largest), encoding="utf-8")
        runner.logger.error("out of memory in iteration %d: see %s", runner.global_step, path)


def report(runner: Runner, error: BaseException, largest: int) -> str:
    """Return a report of the current use of memory."""
    place = f"epoch {runner.trainer.state.epoch}, iteration {runner.global_step}, rank {rank()}"
    machine = {**memory_of_machine(), **memory_of_process()}
    parts = {
        "what failed": [place, str(error)],
        "the batch": shapes_in(runner.data_batch),
        "what the run needs": needs_of(runner),
        "the machine": [f"{name}: {value:,.0f}" for name, value in machine.items()],
        "tensors that are alive, by shape": live_tensors(largest),
        "what may help": HELP,
        "the GPU": memory_summary(),
    }
    texts = ["\n".join([name, *(f"  {line}" for line in lines)]) for name, lines in parts.items() if lines]
    return "\n\n".join(texts) + "\n"


def shapes_in(batch: Any, place: str = "batch") -> list[str]:
    """Return the tensors of a batch with their shapes.

    Example:
        >>> import torch
        >>> shapes_in({"image": torch.zeros(2, 3), "id": "a"})
        ['batch.image: 2 x 3 float32, 0.0 MB']
    """
    if hasattr(batch, "shape") and hasattr(batch, "dtype"):
        return [f"{place}: {kind_of(batch)}, {megabytes([batch]):,.1f} MB"]
    if isinstance(batch, Mapping):
        return [line for key, value in batch.items() for line in shapes_in(value, f"{place}.{key}")]
    if isinstance(batch, (list, tuple)):
        return [line for index, value in enumerate(batch) for line in shapes_in(value, f"{place}[{index}]")]
    return []


def needs_of(runner: Runner) -> list[str]:
    """Return the memory of weights, buffers, gradients and the optimizer."""
    import torch

    model = unwrapped(runner.model)
    if not isinstance(model, torch.nn.Module):
        return []
    weights = list(model.parameters())
    states = [value for one in each(runner.optimizer) for state in one.state.values() for value in state.values()]
    found: dict[str, list[Any]] = {
        "weights": weights,
        "buffers": list(model.buffers()),
        "gradients": [weight.grad for weight in weights if weight.grad is not None],
        "optimizer": [value for value in states if isinstance(value, torch.Tensor)],
    }
    return [f"{name}: {megabytes(tensors):,.1f} MB" for name, tensors in found.items()]


def live_tensors(largest: int) -> list[str]:
    """Return the tensors that Python knows, grouped by shape; those inside a graph are not among them."""
    import torch

    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for thing in gc.get_objects():
        # By the type alone: asking isinstance would wake lazy objects of other libraries.
        if issubclass(type(thing), torch.Tensor) and type(thing).__name__ != FAKE_TENSOR:
            kind = f"{kind_of(thing)} on {thing.device}"
            counts[kind] += 1
            sizes[kind] += thing.numel() * thing.element_size()
    return [f"{size / MB:,.1f} MB: {counts[kind]} of {kind}" for kind, size in sizes.most_common(largest)]


def kind_of(tensor: Any) -> str:
    """Return shape and type of a tensor in words."""
    shape = " x ".join(str(size) for size in tensor.shape) or "one number"
    return f"{shape} {str(tensor.dtype).removeprefix('torch.')}"


def megabytes(tensors: list[Tensor]) -> float:
    """Return the memory of tensors in MB."""
    return sum(one.numel() * one.element_size() for one in tensors) / MB
