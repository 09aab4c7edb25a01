"""Makes a run repeatable, and shows whether it is."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from annotated_types import Ge

from ignite_hooks.distributed.collectives import all_gather, is_main_process, rank, world_size
from ignite_hooks.hooks.base_hook import BaseHook, PriorityLike, settings
from ignite_hooks.model.wrapping import is_sharded, unwrapped
from ignite_hooks.plan.priority import Priority
from ignite_hooks.plan.schedule import scheduled

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner

FILE = "weights_digests.jsonl"
WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"


@settings
class DeterminismHook(BaseHook):
    """Seed the run, forbid operations that are not deterministic, and keep digests of the weights to compare two runs.

    With ``compare_with`` the first difference is reported, with the parts of the model it is in. Ranks whose weights
    should be equal are compared too, without buffers such as running statistics. Settings are restored at the end.

    Args:
        seed: What all random numbers begin with, on each rank others; None leaves them alone.
        deterministic: Whether operations that are not deterministic are errors.
        warn_only: Whether these are warnings instead.
        threads: The number of threads with which torch computes; another number gives other bits. None leaves it alone.
        interval: How many iterations lie between two digests.
        compare_with: The work directory of another run.

    Reads: model.
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
        self._others = {} if self.compare_with is None else read_digests(self.compare_with / FILE)
        self._set_threads()
        self._set_flags()
        # The random numbers of a resumed run are restored after this.
        if self.seed is not None and runner.global_step == 0:
            from ignite.utils import manual_seed

            manual_seed(self.seed + rank())

    def before_train(self, runner: Runner) -> None:
        """Remove the digests of iterations that a resumed run repeats."""
        if is_main_process():
            path = runner.work_dir / FILE
            kept = (
                {n: parts for n, parts in read_digests(path).items() if n <= runner.global_step}
                if path.exists()
                else {}
            )
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(map(line, kept.items())) if runner.global_step else "", encoding="utf-8")
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
        with (runner.work_dir / FILE).open("a", encoding="utf-8") as file:
            file.write(line((step, found)))
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


def line(item: tuple[int, Mapping[str, str]]) -> str:
    """Return the digests of an iteration as a line of the file."""
    iteration, parts = item
    return json.dumps({"iteration": iteration, **parts}) + "\n"


def read_digests(path: Path) -> dict[int, dict[str, str]]:
    """Return the digests of a run by iteration."""
    if not path.exists():
        raise FileNotFoundError(
            f"compare_with: there is no {path}: give the work directory of a run with DeterminismHook"
        )
    found = {}
    for text in path.read_text(encoding="utf-8").splitlines(keepends=True):
        # A killed process may leave a part of its last line.
        if text.endswith("}\n"):
            parts = json.loads(text)
            found[int(parts.pop("iteration"))] = parts
    return found
