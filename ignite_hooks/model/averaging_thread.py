"""A thread that updates averages beside the training."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ignite_hooks.model.optimizers import param_groups
from ignite_hooks.model.parts import each

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor


class AveragingThread:
    """A thread for one update at a time."""

    def __init__(self) -> None:
        self._worker = one_worker()
        self._pending: Future[bool] | None = None

    def submit(self, update: Callable[[float], bool], momentum: float) -> None:
        """Begin an update; call it only after `result`."""
        self._pending = self._worker.submit(update, momentum)

    def result(self) -> bool | None:
        """Wait for the update; return whether it was made, or None if none was submitted."""
        pending, self._pending = self._pending, None
        return None if pending is None else pending.result()

    def wait(self) -> None:
        """Wait for the update, whatever comes of it."""
        if self._pending is not None:
            self._pending.exception()

    def close(self) -> None:
        """End the thread."""
        self._worker.shutdown()


def why_no_thread(model: Any, optimizer: Any) -> str | None:
    """Return the reason why updates cannot run beside the training, or None."""
    optimizers = list(each(optimizer))
    if not optimizers or not all(hasattr(one, "register_step_pre_hook") for one in optimizers):
        return "no optimizer was given whose steps can be waited for"
    trained = {id(parameter) for parameter in model.parameters() if parameter.requires_grad}
    known = {id(parameter) for group in param_groups(optimizer) for parameter in group["params"]}
    if trained - known:
        return "the optimizer that was given does not train all of the model"
    devices = {tensor.device for tensor in model.parameters()}
    if len(devices) > 1 or any(device.type not in ("cpu", "cuda") for device in devices):
        return "not all of the model is in the memory of the CPU, or of one GPU"
    if any(hasattr(tensor, "_local_tensor") for tensor in model.parameters()):
        return "the model is sharded"
    return None


def one_worker() -> ThreadPoolExecutor:
    """Return a thread that leaves the other cores to the training."""
    from concurrent.futures import ThreadPoolExecutor

    import torch

    # A setting of each thread, which nothing else tells.
    flushes = float(torch.tensor(1e-38) * 0.01) == 0

    def take_one_core() -> None:
        # A thread takes the common number the first time it asks, whatever was set before.
        torch.get_num_threads()
        torch.set_num_threads(1)
        torch.set_flush_denormal(flushes)

    worker, threads = ThreadPoolExecutor(1, thread_name_prefix="EMAHook"), torch.get_num_threads()
    worker.submit(take_one_core).result()
    # That has also set the common number, which later threads begin with.
    torch.set_num_threads(threads)
    return worker
