"""Leaves out strong augmentations in the last epochs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from annotated_types import Ge

from ignite_hooks.hooks.base_hook import BaseHook, settings
from ignite_hooks.model import loader_workers as workers
from ignite_hooks.model.wrapping import unwrapped
from ignite_hooks.run.progress import planned_epochs

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner


@settings
class YOLOXModeSwitchHook(BaseHook):
    """Run the last epochs without some augmentations of the data, and with the L1 loss of the model.

    In exactly the last ``num_last_epochs``, also of a run that is resumed within them, the data set is switched by
    ``update_skip_type_keys(keys)``, before a batch is loaded; worker processes are restarted. Modules of the model
    with a switch ``use_l1`` have it on. After the run both are as before.

    Args:
        num_last_epochs: How many epochs run in this mode.
        skip_type_keys: The augmentations that are left out.

    Reads: model; the loader the trainer runs on.
    """

    num_last_epochs: Annotated[int, Ge(0)] = 15
    skip_type_keys: tuple[str, ...] = ("Mosaic", "RandomAffine", "MixUp")

    may_end_a_run: ClassVar[bool] = False

    # After the samplers know the epoch: restarted data asks them at once.
    point_priority: ClassVar[Mapping[str, int]] = {"before_train_epoch": 95}

    def __post_init__(self) -> None:
        self._datasets: list[Any] = []
        self._switched: list[Any] | None = None
        self._has_warned = False

    def before_run(self, runner: Runner, model: Any = None) -> None:
        self._switched, self._has_warned = None, False
        self._datasets = list(workers.datasets_with(runner.trainer.state.dataloader, "update_skip_type_keys"))
        if self._datasets:
            workers.use_own_loader(runner)
        elif not _with_l1(model):
            runner.logger.warning(
                "there is nothing to switch in the last epochs: the data set has no update_skip_type_keys(keys), and "
                "no module of the model has use_l1"
            )

    def before_train_epoch(self, runner: Runner, epoch: int, model: Any = None) -> None:
        epochs = planned_epochs(runner)
        if epochs is None and not self._has_warned:
            self._has_warned = True
            runner.logger.warning(
                "how many epochs there will be is not known, so none is among the last: say max_epochs"
            )
        if self._switched is not None or not is_last(epoch, epochs, self.num_last_epochs):
            return
        self._switched = [module for module in _with_l1(model) if not module.use_l1]
        for module in self._switched:
            module.use_l1 = True
        for dataset in self._datasets:
            dataset.update_skip_type_keys(self.skip_type_keys)
        if self._datasets:
            workers.restart_workers(runner)
            runner.logger.info("from epoch %d on without %s", epoch + 1, ", ".join(self.skip_type_keys))

    def cleanup(self, runner: Runner) -> None:
        workers.restore_loader(runner)
        if self._switched is not None:
            for module in self._switched:
                module.use_l1 = False
            for dataset in self._datasets:
                dataset.update_skip_type_keys(())
        self._datasets, self._switched = [], None


def is_last(epoch: int, max_epochs: int | None, count: int) -> bool:
    """Return whether an epoch, counted from 0, is one of the last ``count``.

    Example:
        >>> [epoch for epoch in range(5) if is_last(epoch, 5, 2)]
        [3, 4]
    """
    return max_epochs is not None and epoch >= max_epochs - count


def _with_l1(model: Any) -> list[Any]:
    modules = unwrapped(model).modules() if hasattr(type(model), "modules") else ()
    return [module for module in modules if isinstance(getattr(module, "use_l1", None), bool)]
