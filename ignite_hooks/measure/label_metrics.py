"""Accuracy, precision and recall that also take several labels for each sample, as scores and zeros and ones."""

from __future__ import annotations

from typing import Any

from ignite.metrics import Accuracy, Precision, Recall
from torch import Tensor

from ignite_hooks.distributed.metric_table import MERGES, register
from ignite_hooks.text import plain_number


class _OfLabels:
    """Turns the scores of labels into zeros and ones before they are counted; classes are left as they are.

    Args:
        threshold: Score above which a label counts: 0 for logits, 0.5 for probabilities.
    """

    def __init__(self, *of_metric: Any, threshold: float = 0.0, **named: Any) -> None:
        self.threshold = threshold
        super().__init__(*of_metric, **named)

    def update(self, output: Any) -> None:
        """Count the predictions and targets of a batch."""
        predicted, true = output[0], output[1]
        if isinstance(predicted, Tensor) and isinstance(true, Tensor):
            if predicted.shape == true.shape and predicted.is_floating_point():
                self._check(true)
                self._is_multilabel = true.ndim > 1 and true.shape[1] > 1
                output = (predicted > self.threshold).long(), true.long()
            elif true.is_floating_point() and predicted.ndim != true.ndim + 1:
                self._check(true)
        super().update(output)  # type: ignore[misc]

    def _check(self, true: Tensor) -> None:
        other = true[(true != 0) & (true != 1)]
        if len(other):
            name = type(self).__name__.removesuffix("OfLabels")
            raise ValueError(
                f"{name} compares classes, and these targets are numbers such as {plain_number(other[0].item()):.4g}: "
                "measure MeanAbsoluteError, R2Score or the loss"
            )


class AccuracyOfLabels(_OfLabels, Accuracy):
    """The share of the samples whose class, or all of whose labels, are right."""


class PrecisionOfLabels(_OfLabels, Precision):
    """The share of the predictions of a class or label that are right."""


class RecallOfLabels(_OfLabels, Recall):
    """The share of the samples of a class or label that were found."""


OF_LABELS: dict[str, Any] = {"Accuracy": AccuracyOfLabels, "Precision": PrecisionOfLabels, "Recall": RecallOfLabels}
"""What takes the place of Ignite's metrics."""

for _name, _cls in OF_LABELS.items():
    # A metric that Ignite derives from another one is looked up by its exact class.
    register(_cls, MERGES[_name])
