"""Changes the size of the images during the training, on all ranks alike."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from annotated_types import Ge

from ignite_hooks.distributed.collectives import broadcast_object
from ignite_hooks.errors import SettingError
from ignite_hooks.hooks.base_hook import BaseHook, settings
from ignite_hooks.model import loader_workers as workers
from ignite_hooks.plan.methods import at
from ignite_hooks.plan.schedule import scheduled

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner

STRIDE = 32
"""The sides are multiples of it."""


@dataclass
class RandomSizeState:
    """The state of this hook, which checkpoints hold."""

    seed: int | None = None
    """From which all ranks draw the same sizes."""
    draws: int = 0
    size: list[int] | None = None


@settings
class SyncRandomSizeHook(BaseHook):
    """Draw a size for the images every epoch, the same on all ranks, and give it to the data set or the batches.

    The first side is 32 times a number within ``ratio_range``; the second follows from ``img_scale``. Rank 0 chooses
    the seed for all, so a size is known everywhere without a message, and again after a resume.

    A data set with a method ``update_dynamic_scale(size)`` receives the size; worker processes are then restarted.
    Otherwise each batch is resized before the step, by ``resize``, or where it is images with classes or masks.

    Args:
        ratio_range: The least and the largest first side, in units of 32.
        img_scale: The usual size, height and width, whose proportions are kept.
        interval: How many epochs, or with ``by_epoch: false`` iterations, have the same size.
        by_epoch: Whether the interval counts epochs.
        resize: Called with a batch and (height, width); returns the batch for the step.

    Reads: the loader the trainer runs on.
    Saves: the seed, and the size.
    """

    ratio_range: tuple[int, int] = (14, 26)
    img_scale: tuple[int, int] = (640, 640)
    interval: Annotated[int, Ge(1)] = 1
    by_epoch: bool = True
    resize: Callable[..., Any] | None = None
    state: RandomSizeState = field(init=False, default_factory=RandomSizeState)

    may_end_a_run: ClassVar[bool] = False
    collective: ClassVar[bool] = True

    # After the samplers know the epoch: restarted data asks them at once.
    point_priority: ClassVar[Mapping[str, int]] = {"before_train_epoch": 95}

    def __post_init__(self) -> None:
        least, largest = self.ratio_range
        if not 1 <= least <= largest:
            raise SettingError(
                "ratio_range", f"two numbers from 1, the smaller first, are needed, not {least}, {largest}"
            )
        if min(self.img_scale) < 1:
            raise SettingError("img_scale", f"two sides of at least one pixel are needed, not {list(self.img_scale)}")
        self._datasets: list[Any] = []
        self._resizes = False

    def before_run(self, runner: Runner) -> None:
        if runner.global_step == 0:
            self.state = RandomSizeState()
        loader = runner.trainer.state.dataloader
        self._datasets = [] if self.resize else list(workers.datasets_with(loader, "update_dynamic_scale"))
        self._resizes = not self._datasets
        if self._datasets:
            if self.when.unit != "epoch" and workers.has_workers(loader):
                raise SettingError(
                    "by_epoch",
                    "workers load batches in advance, so a size reaches them with an epoch only: "
                    "write by_epoch: true, or give 'resize'",
                )
            workers.use_own_loader(runner)

    def before_train(self, runner: Runner) -> None:
        """Restore the size, after a checkpoint has been loaded."""
        import torch

        if self.state.seed is None:
            self.state.seed = int(broadcast_object(torch.initial_seed()))
        self._pass_on(self.state.size)

    @scheduled
    def before_train_epoch(self, runner: Runner) -> None:
        # An epoch that is resumed in its middle has its size already.
        if runner.global_step == runner.state.epoch_began_at:
            self._draw(runner)

    @scheduled
    def before_train_iter(self, runner: Runner) -> None:
        self._draw(runner)

    @at("before_train_iter")
    def resize_batch(self, runner: Runner) -> None:
        """Resize the batch to the current size."""
        if not self._resizes or self.state.size is None:
            return
        size, state = (self.state.size[0], self.state.size[1]), runner.trainer.state
        batch = resized_batch(state.batch, size) if self.resize is None else self.resize(state.batch, size)
        if batch is None and self.resize is None:
            self._resizes = False
            runner.logger.warning(
                "sizes are drawn for nothing: the data set has no update_dynamic_scale(size), and batches (%s) are not "
                "images with classes or masks: give 'resize'",
                type(state.batch).__name__,
            )
            return
        state.batch = batch

    def cleanup(self, runner: Runner) -> None:
        workers.restore_loader(runner)
        self._pass_on(list(self.img_scale) if self.state.size is not None else None)
        self._datasets = []

    def _draw(self, runner: Runner) -> None:
        assert self.state.seed is not None
        self.state.draws += 1
        self.state.size = list(drawn_size(self.state.seed, self.state.draws, self.ratio_range, self.img_scale))
        self._pass_on(self.state.size)
        if self._datasets:
            workers.restart_workers(runner)

    def _pass_on(self, size: Sequence[int] | None) -> None:
        for dataset in self._datasets if size is not None else ():
            dataset.update_dynamic_scale(tuple(size or ()))


def drawn_size(seed: int, draw: int, ratio_range: Sequence[int], img_scale: Sequence[int]) -> tuple[int, int]:
    """Return the size of a draw; it depends on nothing else.

    Example:
        >>> drawn_size(0, 1, (14, 26), (640, 640)) == drawn_size(0, 1, (14, 26), (640, 640))
        True
        >>> drawn_size(0, 1, (10, 10), (640, 960))
        (320, 480)
    """
    ratio = random.Random(f"{seed}:{draw}").randint(*ratio_range)
    return STRIDE * ratio, STRIDE * max(1, ratio * img_scale[1] // img_scale[0])


def resized_batch(batch: Any, size: tuple[int, int]) -> Any:
    """Return a batch of images in this size, with its masks if it has any; None if it is something else.

    Example:
        >>> import torch
        >>> images, masks = resized_batch((torch.zeros(2, 3, 8, 8), torch.ones(2, 8, 8).long()), (16, 24))
        >>> tuple(images.shape), tuple(masks.shape), masks.dtype
        ((2, 3, 16, 24), (2, 16, 24), torch.int64)
        >>> resized_batch(
        ...     (torch.zeros(2, 3, 8, 8), torch.zeros(2, 4)), (16, 16)
        ... ) is None  # boxes would have to move too
        True
    """
    import torch
    from torch.nn.functional import interpolate

    images, *targets = batch if isinstance(batch, (list, tuple)) and batch else (batch,)
    if not isinstance(images, torch.Tensor) or images.dim() != 4:
        return None
    found = []
    for target in targets:
        if not isinstance(target, torch.Tensor) or target.is_floating_point():
            return None
        if target.dim() <= 1:
            found.append(target)
        elif target.shape[-2:] == images.shape[-2:] and target.dim() in (3, 4):
            masks = target.reshape(target.shape[0], -1, *target.shape[-2:])
            masks = interpolate(masks.float(), size=size, mode="nearest").to(target.dtype)
            found.append(masks.reshape(*target.shape[:-2], *size))
        else:
            return None
    if tuple(images.shape[-2:]) != size:
        images = interpolate(images.float(), size=size, mode="bilinear", antialias=False).to(images.dtype)
    return [images, *found] if isinstance(batch, list) else (images, *found) if isinstance(batch, tuple) else images
