"""Tells the data of the training from that of a validation, also where another loader draws it."""

from __future__ import annotations

from typing import Any, NamedTuple

WHOLE = (
    "SequentialSampler",
    "RandomSampler",
    "WeightedRandomSampler",
    "DistributedSampler",
    "_InfiniteConstantSampler",
)
"""The samplers that draw from the whole of a data set."""


class Drawn(NamedTuple):
    """The samples that a loader draws."""

    dataset: object
    """The data set, without the subsets around it; None if there is none."""
    within: list[int] | None
    """The samples that it draws from; None for all."""
    exact: bool
    """Whether it is known to draw from all of these."""


def is_training_data(data: object, train: object) -> bool:
    """Return whether everything in ``data`` is known to be among the training data.

    Parts of one data set may be divided by subsets or by samplers into training and validation.

    >>> batches = [1, 2]
    >>> is_training_data(batches, batches), is_training_data([1, 2], batches), is_training_data(None, None)
    (True, False, False)
    """
    if data is None or train is None:
        return False
    if data is train:
        return True
    mine, theirs = drawn_by(data), drawn_by(train)
    if mine.dataset is None or mine.dataset is not theirs.dataset:
        return False
    if not theirs.exact:
        # Its sampler may leave out what the other loader draws, but not if that takes everything.
        return mine.exact and mine.within == theirs.within
    if theirs.within is None:
        return True
    return bool(mine.within) and set(theirs.within).issuperset(mine.within or ())


def drawn_by(loader: object) -> Drawn:
    """Return the samples that a loader draws, as far as its samplers and subsets tell."""
    from torch.utils.data import BatchSampler, Subset, SubsetRandomSampler

    dataset, batches = getattr(loader, "dataset", None), getattr(loader, "batch_sampler", None)
    sampler = getattr(loader, "sampler", None)
    if batches is not None:
        # A batch sampler of the script's own may draw anything.
        sampler = batches.sampler if type(batches) is BatchSampler else batches
    within, exact = None, any(cls.__name__ in WHOLE for cls in type(sampler).__mro__)
    if isinstance(sampler, SubsetRandomSampler):
        within, exact = _numbers(sampler.indices), True
    while isinstance(dataset, Subset):
        part = _numbers(dataset.indices)
        within = part if within is None else [part[number] for number in within]
        dataset = dataset.dataset
    return Drawn(dataset, within, exact)


def _numbers(indices: Any) -> list[int]:
    return list(indices.tolist() if hasattr(indices, "tolist") else indices)
