"""What is learned, as the first items of a data set tell it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from ignite_hooks.errors import Problem
from ignite_hooks.model.mapped_batches import target_name
from ignite_hooks.text import shown
from ignite_hooks.trainer.datasets import Data, Task
from ignite_hooks.trainer.sections import Sections

OF_CLASSES = ("CrossEntropyLoss", "NLLLoss", "MultiMarginLoss", "DetectionLoss")
LOOKED_AT = 16
"""How many targets of zeros and ones are looked at before they are taken for labels."""


def tell_task(data: Data, first: Any, sections: Sections) -> Iterator[Problem]:
    """Set task and number of classes if the data set leaves them to its items; yield what is wrong with the first."""
    name = "" if sections.dataset is None else sections.dataset.name
    if first is None:
        data.task = data.task or "classification"
        return
    try:
        target = target_of(first)
    except ValueError as error:
        yield Problem("dataset", f"{name}: {error}")
        return
    if data.task is None:
        criterion = sections.criterion.name if sections.criterion is not None else ""
        later = (target_of(data.train[i]) for i in range(1, min(len(data.train), LOOKED_AT)))
        data.task = task_of(itertools.chain([target], later), criterion)
    if data.num_classes is None and data.task in ("multilabel", "regression"):
        data.num_classes = torch.as_tensor(target).numel()


def target_of(item: Any) -> Any:
    """Return the target of an item, a pair or a mapping."""
    if isinstance(item, Mapping):
        return item[target_name(item)]
    if not (isinstance(item, (tuple, list)) and len(item) == 2):
        raise ValueError(f"gives {shown(type(item).__name__)}: items are pairs of an input and a target, or mappings")
    return item[1]


def task_of(targets: Iterator[Any], criterion: str) -> Task:
    """Return what is learned: of whole numbers a class, of zeros and ones labels, of other numbers numbers.

    Example:
        >>> task_of(iter([3]), ""), task_of(iter([torch.tensor([0.0, 1.0])]), ""), task_of(iter([0.5]), "")
        ('classification', 'multilabel', 'regression')
    """
    for target in targets:
        floating = target.is_floating_point() if isinstance(target, torch.Tensor) else isinstance(target, float)
        if not floating or criterion in OF_CLASSES:
            return "classification"
        if criterion == "BCEWithLogitsLoss":
            return "multilabel"
        values = torch.as_tensor(target)
        if criterion or values.numel() == 1 or not bool(((values == 0) | (values == 1)).all()):
            return "regression"
    return "multilabel"
