"""Makes a run repeatable, and shows whether it is."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from annotated_types import Ge

from ignite_hooks.checkpoint.rng_state import random_state
from ignite_hooks.distributed.collectives import all_gather, is_main_process, rank, world_size
from ignite_hooks.hooks.base_hook import BaseHook, PriorityLike, settings
from ignite_hooks.measure.losses import is_number
from ignite_hooks.model.parts import each
from ignite_hooks.model.wrapping import is_sharded, unwrapped
from ignite_hooks.plan.priority import Priority
from ignite_hooks.plan.schedule import scheduled
from ignite_hooks.results.parting import DIGESTS, RUN, TENSORS, read_lines
from ignite_hooks.store.checksums import FAST, new_hash

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
MOST_TENSORS = 100
"""The number of tensors up to which each has a digest of its own, so that a line can still be read."""


@settings
class DeterminismHook(BaseHook):
    """Seed the run, forbid operations that are not deterministic, and keep digests of the run to compare two of them.

    A line of the file has digests of the weights, of the batch, of the random generators and of the optimizer, the loss
    and the learning rates: ``ignite-hooks diff`` names what differs first. With ``compare_with`` the first difference
    is reported, with the parts of the model it is in. Ranks whose weights should be equal are compared too, without
    buffers such as running statistics. Settings are restored at the end.

    Args:
        seed: What all random numbers begin with, on each rank others; None leaves them alone.
        deterministic: Whether operations that are not deterministic are errors.
        warn_only: Whether these are warnings instead.
        threads: The number of threads with which torch computes; another number gives other bits. None leaves it alone.
        interval: How many iterations lie between two digests.
        compare_with: The work directory of another run.

    Reads: model, optimizer.
    Saves: weights_digests.jsonl.
    """

    seed: Annotated[int, Ge(0)] | None = 0
    deterministic: bool = True
    warn_only: bool = False
    threads: Annotated[int, Ge(1)] | None = None
    interval: Annotated[int, Ge(1)] = 100
    compare_with: Path | None = None
    # Before any random number is drawn.
    priority: PriorityLike = Priority.HIGHEST

    may_end_a_run: ClassVar[bool] = False
    begins_with_run: ClassVar[bool] = True
    collective: ClassVar[bool] = True
    changes_training: ClassVar[bool] = True
    # After all other hooks have changed the weights.
    point_priority: ClassVar[dict[str, int]] = {"after_train_iter": 1}

    def __post_init__(self) -> None:
        self._before: dict[str, Any] = {}
        self._threads_before: int | None = None
        self._others: dict[int, dict[str, str]] = {}
        self._differs = self._warned_about_ranks = False

    def before_run(self, runner: Runner) -> None:
        self._differs = self._warned_about_ranks = False
        self._others = {} if self.compare_with is None else read_digests(self.compare_with / DIGESTS)
        self._set_threads()
        self._set_flags()
        # The random numbers of a resumed run are restored after this.
        if self.seed is not None and runner.global_step == 0:
            from ignite.utils import manual_seed

            manual_seed(self.seed + rank())

    def before_train(self, runner: Runner) -> None:
        """Remove the digests of iterations that a resumed run repeats."""
        if is_main_process():
            path, step = runner.work_dir / DIGESTS, runner.global_step
            kept = [content for n, content in read_lines(path).items() if n <= step] if step else []
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(map(line, kept)), encoding="utf-8")
        if runner.global_step == 0:
            self._look(runner)

    @scheduled
    def after_train_iter(self, runner: Runner) -> None:
        self._look(runner)

    def after_train(self, runner: Runner) -> None:
        """Record the final weights."""
        if not self.when.due(runner.global_step):
            self._look(runner)

    def cleanup(self) -> None:
        before, self._before = self._before, {}
        if before:
            import torch

            torch.use_deterministic_algorithms(before["deterministic"], warn_only=before["warn_only"])
            torch.backends.cudnn.benchmark = before["benchmark"]
            torch.backends.cudnn.deterministic = before["cudnn"]
            if before["workspace"] is None:
                os.environ.pop(WORKSPACE, None)

        if self._threads_before is not None:
            import torch

            torch.set_num_threads(self._threads_before)
            self._threads_before = None

    def _set_threads(self) -> None:
        if self.threads is not None:
            import torch

            self._threads_before = self._threads_before or torch.get_num_threads()
            torch.set_num_threads(self.threads)

    def _set_flags(self) -> None:
        if not self.deterministic or self._before:
            return
        import torch

        self._before = {
            "deterministic": torch.are_deterministic_algorithms_enabled(),
            "warn_only": torch.is_deterministic_algorithms_warn_only_enabled(),
            "benchmark": torch.backends.cudnn.benchmark,
            "cudnn": torch.backends.cudnn.deterministic,
            "workspace": os.environ.get(WORKSPACE),
        }
        os.environ.setdefault(WORKSPACE, ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=self.warn_only)
        torch.backends.cudnn.benchmark = False
        torch.backends.cudnn.deterministic = True

    def _look(self, runner: Runner) -> None:
        import torch

        from ignite_hooks.model.wrapping import is_lazy_model

        # Lazy parameters have no size before their first forward pass.
        module, step = unwrapped(runner.model), runner.global_step
        if not isinstance(module, torch.nn.Module) or is_lazy_model(module):
            return
        found = digests_of(module.state_dict())
        if world_size() > 1 and not is_sharded(runner.model):
            # Buffers are not compared: between two synchronisations each rank has the statistics of its batches.
            self._compare_ranks(runner, all_gather(digests_of(dict(module.named_parameters()))))
        if not is_main_process():
            return
        around = dict(digests_around(runner))
        tensors = tensor_digests(module.state_dict())
        with (runner.work_dir / DIGESTS).open("a", encoding="utf-8") as file:
            file.write(line({"iteration": step, **found, RUN: around, **({TENSORS: tensors} if tensors else {})}))
        runner.logger.info("iteration %d: weights %s", step, found["all"])
        other = self._others.get(step)
        if other is not None and other != found and not self._differs:
            self._differs = True
            where, earlier = ", ".join(different(found, other)), [n for n in self._others if n < step]
            since = f"equal until iteration {max(earlier)}" if earlier else "from the beginning"
            words = "iteration %d: the weights differ from those in %s, in %s (%s)"
            runner.logger.warning(words, step, self.compare_with, where, since)

    def _compare_ranks(self, runner: Runner, said: list[dict[str, str]]) -> None:
        wrong = [number for number, theirs in enumerate(said) if theirs != said[0]]
        if wrong and not self._warned_about_ranks:
            self._warned_about_ranks = True
            where = ", ".join(different(said[0], said[wrong[0]]))
            words = "iteration %d: the weights of rank %d differ from those of rank 0, in %s"
            runner.logger.warning(words, runner.global_step, wrong[0], where)


def digests_of(tensors: Mapping[str, Any]) -> dict[str, str]:
    """Return a digest of all these weights and buffers, and one for each direct part of the model."""
    import torch

    parts: dict[str, Any] = {"all": hashlib.sha256()}
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            continue
        whole = getattr(tensor, "_local_tensor", tensor).detach().cpu().contiguous()
        data = name.encode() + whole.reshape(-1).view(torch.uint8).numpy().tobytes()
        for part in ("all", name.partition(".")[0]):
            parts.setdefault(part, hashlib.sha256()).update(data)
    return {part: digest.hexdigest()[:16] for part, digest in parts.items()}


def different(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Return the parts that differ.

    Example:
        >>> different({"all": "1", "head": "2", "neck": "3"}, {"all": "4", "head": "5", "neck": "3"})
        ['head']
    """
    return [part for part in {**one, **other} if part != "all" and one.get(part) != other.get(part)]


def digests_around(runner: Runner) -> Iterator[tuple[str, Any]]:
    """Yield what an iteration depends on besides the weights: digests, the loss and the learning rates."""
    state = runner.trainer_state
    if runner.global_step:
        yield "data", digest_of(state.batch)
    numbers = random_state()
    on_gpu = numbers.get("cuda", numbers.get("mps"))
    yield (
        "random",
        digest_of([numbers["torch"], on_gpu, *map(repr, map(numbers.get, ("python", "numpy")))]),
    )
    if runner.global_step and (losses := runner.loss_dict):
        yield "loss", sum(float(value) for value in losses.values() if is_number(value))
    optimizers = [one for one in each(runner.optimizer) if hasattr(one, "param_groups")]
    if optimizers:
        yield "rates", [float(group["lr"]) for one in optimizers for group in one.param_groups if "lr" in group]
        yield "optimizer", digest_of([one.state_dict()["state"] for one in optimizers])


def tensor_digests(tensors: Mapping[str, Any]) -> dict[str, str]:
    """Return a short digest of each tensor; nothing where there are too many to be read."""
    if len(tensors) > MOST_TENSORS:
        return {}
    return {name: digest_of(tensor)[:8] for name, tensor in tensors.items()}


def digest_of(thing: Any) -> str:
    """Return a digest of the tensors and plain values in mappings and lists; other objects are left out.

    Example:
        >>> digest_of({"a": [1, 2.0]}) == digest_of({"a": [1, 2.0]}), digest_of([1]) == digest_of([2])
        (True, False)
    """
    import torch

    checksum = new_hash(FAST)

    def add(value: Any) -> None:
        if isinstance(value, torch.Tensor):
            whole = getattr(value, "_local_tensor", value).detach().cpu().contiguous()
            checksum.update(memoryview(f"{whole.dtype}{tuple(whole.shape)}".encode()))
            checksum.update(whole.reshape(-1).view(torch.uint8).numpy().data)
        elif isinstance(value, Mapping):
            for key, item in value.items():
                add(str(key))
                add(item)
        elif isinstance(value, list | tuple):
            for item in value:
                add(item)
        elif hasattr(value, "tobytes"):
            raw: bytes = value.tobytes()
            checksum.update(memoryview(raw))
        elif value is None or isinstance(value, bool | int | float | str):
            checksum.update(memoryview(f"{value!r};".encode("utf-8", "backslashreplace")))

    add(thing)
    return checksum.hexdigest()[:16]


def line(content: Mapping[str, Any]) -> str:
    """Return the digests of an iteration as a line of the file."""
    return json.dumps(content) + "\n"


def read_digests(path: Path) -> dict[int, dict[str, str]]:
    """Return the digests of a run by iteration."""
    if not path.exists():
        raise FileNotFoundError(
            f"compare_with: there is no {path}: give the work directory of a run with DeterminismHook"
        )
    beside = ("iteration", RUN, TENSORS)
    return {n: {k: v for k, v in parts.items() if k not in beside} for n, parts in read_lines(path).items()}
