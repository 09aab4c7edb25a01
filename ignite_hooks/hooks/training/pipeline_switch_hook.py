"""Gives the data set other transforms from some epoch on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from annotated_types import Ge

from ignite_hooks.hooks.base_hook import BaseHook, settings
from ignite_hooks.model import loader_workers as workers

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner

PLACES = ("pipeline", "transform", "transforms")
"""The attributes of a data set that may hold what is done to a sample."""


@settings
class PipelineSwitchHook(BaseHook):
    """Replace the transforms of the data set once, before the first epoch that is to have others.

    A run that is resumed after it has them from its first batch on. Worker processes are restarted. After the run
    the data set has its own transforms again.

    Args:
        switch_epoch: How many epochs run with the transforms that the data set has.
        switch_pipeline: What follows: a function or a list of functions; in a file, the names of services.

    Reads: the loader the trainer runs on.
    """

    switch_epoch: Annotated[int, Ge(0)]
    switch_pipeline: Callable[..., Any] | list[Callable[..., Any]]

    may_end_a_run: ClassVar[bool] = False

    # After the samplers know the epoch: restarted data asks them at once.
    point_priority: ClassVar[Mapping[str, int]] = {"before_train_epoch": 95}

    def __post_init__(self) -> None:
        self._datasets: list[Any] = []
        self._before: list[tuple[Any, str, Any]] | None = None

    def before_run(self, runner: Runner) -> None:
        self._before = None
        self._datasets = list(workers.datasets_with(runner.trainer.state.dataloader, *PLACES))
        if self._datasets:
            workers.use_own_loader(runner)
        else:
            runner.logger.warning("the data set has none of %s: there is nothing to switch", ", ".join(PLACES))

    def before_train_epoch(self, runner: Runner, epoch: int) -> None:
        if self._before is not None or epoch < self.switch_epoch or not self._datasets:
            return
        wanted = self.switch_pipeline
        pipeline = InOrder(wanted) if isinstance(wanted, list) else wanted
        self._before = [(*place, getattr(*place)) for dataset in self._datasets for place in places_of(dataset)]
        for owner, name, _ in self._before:
            setattr(owner, name, pipeline)
        workers.restart_workers(runner)
        runner.logger.info("from epoch %d on with other transforms: %s", epoch + 1, pipeline)

    def cleanup(self, runner: Runner) -> None:
        workers.restore_loader(runner)
        for owner, name, value in self._before or ():
            setattr(owner, name, value)
        self._datasets, self._before = [], None


class InOrder:
    """Calls functions one after the other; it can be sent to a worker that is started afresh."""

    def __init__(self, functions: list[Callable[..., Any]]) -> None:
        self.functions = functions

    def __call__(self, sample: Any) -> Any:
        for function in self.functions:
            sample = function(sample)
            if sample is None:  # as it is where a sample cannot be used
                return None
        return sample

    def __repr__(self) -> str:
        return " -> ".join(getattr(function, "__name__", None) or repr(function) for function in self.functions)


def places_of(dataset: Any) -> list[tuple[Any, str]]:
    """Yield where a data set holds its transforms: the object and the name of the attribute.

    A data set of torchvision may hold a transform twice, the second time within its ``transforms``.
    """
    names = [name for name in PLACES if getattr(dataset, name, None) is not None]
    inner = getattr(dataset, "transforms", None)
    if "transform" in names and hasattr(inner, "transform"):
        return [(dataset, "transform"), (inner, "transform")]
    return [(dataset, names[0])]
