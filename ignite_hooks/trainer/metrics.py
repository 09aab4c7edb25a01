"""Metrics by short names, and one of our own for boxes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import torch
from annotated_types import Ge, Le
from ignite.metrics import ConfusionMatrix, IoU, Loss, Metric, MetricsLambda, TopKCategoricalAccuracy
from ignite.metrics import mIoU as mean_of_overlaps
from ignite.metrics.confusion_matrix import cmPrecision, cmRecall
from ignite.metrics.metric import reinit__is_reduced, sync_all_reduce
from torch import Tensor

from ignite_hooks.distributed.metric_table import register, sums
from ignite_hooks.drawing.boxes import Boxes, match
from ignite_hooks.measure.label_metrics import AccuracyOfLabels, PrecisionOfLabels, RecallOfLabels
from ignite_hooks.measure.score_metrics import Calibration, ClassAP, PrecisionRecall, Roc
from ignite_hooks.measure.worst import Worst


def accuracy(threshold: float = 0.0) -> Metric:
    """Measure the share of the samples, or pixels, whose class is right; of several labels, all must be right.

    Args:
        threshold: Score above which a label counts, where a sample has several: 0 for logits, 0.5 for probabilities.
    """
    return AccuracyOfLabels(threshold=threshold)


def loss(criterion: Callable[..., Any]) -> Metric:
    """Measure the mean loss, with the criterion of the training."""
    return Loss(criterion)


def precision(threshold: float = 0.0) -> Metric:
    """Measure the share of predictions of a class that are right, averaged over the classes.

    Args:
        threshold: Score above which a label counts, where a sample has several: 0 for logits, 0.5 for probabilities.
    """
    return PrecisionOfLabels(average="macro", threshold=threshold)


def recall(threshold: float = 0.0) -> Metric:
    """Measure the share of samples of a class that were found, averaged over the classes.

    Args:
        threshold: Score above which a label counts, where a sample has several: 0 for logits, 0.5 for probabilities.
    """
    return RecallOfLabels(average="macro", threshold=threshold)


def f1(threshold: float = 0.0) -> Metric:
    """Measure the harmonic mean of precision and recall of every class, averaged over the classes.

    Args:
        threshold: Score above which a label counts, where a sample has several: 0 for logits, 0.5 for probabilities.
    """
    one, other = PrecisionOfLabels(threshold=threshold), RecallOfLabels(threshold=threshold)
    return MetricsLambda(_harmonic, one, other)


def _harmonic(precision: Any, recall: Any) -> float:
    one, other = torch.as_tensor(precision), torch.as_tensor(recall)
    return float((2 * one * other / (one + other).clamp(min=1e-12)).mean())


def top5() -> Metric:
    """Measure the share of the samples whose class is among the best five."""
    return TopKCategoricalAccuracy(k=5)


def miou(num_classes: Annotated[int, Ge(1)]) -> Metric:
    """Measure the intersection over union of truth and prediction, averaged over the classes."""
    return mean_of_overlaps(ConfusionMatrix(num_classes))


Classes = Annotated[int, Ge(1)]


def confusion_matrix(num_classes: Classes) -> Metric:
    """Count how many samples of each class were taken for each class."""
    return ConfusionMatrix(num_classes)


def class_precision(num_classes: Classes) -> Metric:
    """Measure for each class the share of its predictions that are right."""
    return cmPrecision(ConfusionMatrix(num_classes), average=False)


def class_recall(num_classes: Classes) -> Metric:
    """Measure for each class the share of its samples that were found."""
    return cmRecall(ConfusionMatrix(num_classes), average=False)


def class_f1(num_classes: Classes) -> Metric:
    """Measure for each class the harmonic mean of precision and recall."""
    counts = ConfusionMatrix(num_classes)
    one, other = cmPrecision(counts, average=False), cmRecall(counts, average=False)
    return MetricsLambda(lambda p, r: 2 * p * r / (p + r).clamp(min=1e-12), one, other)


def class_iou(num_classes: Classes) -> Metric:
    """Measure for each class the intersection over union of truth and prediction."""
    return IoU(ConfusionMatrix(num_classes))


def class_ap(probabilities: bool = False) -> Metric:
    """Measure for each class the average precision over all thresholds.

    Args:
        probabilities: Whether the model returns probabilities, not logits.
    """
    return ClassAP(probabilities)


def roc(probabilities: bool = False) -> Metric:
    """Draw for each class the true over the false positive rate, and measure the area below.

    Args:
        probabilities: Whether the model returns probabilities, not logits.
    """
    return Roc(probabilities)


def precision_recall(probabilities: bool = False) -> Metric:
    """Draw for each class the precision over the recall, and measure the average precision.

    Args:
        probabilities: Whether the model returns probabilities, not logits.
    """
    return PrecisionRecall(probabilities)


def calibration(bins: Annotated[int, Ge(2)] = 15, probabilities: bool = False) -> Metric:
    """Draw how often the model is right over how sure it is, and measure the expected calibration error.

    Args:
        bins: Number of ranges of certainty.
        probabilities: Whether the model returns probabilities, not logits.
    """
    return Calibration(bins, probabilities)


def worst(k: Annotated[int, Ge(1)] = 12, probabilities: bool = False) -> Metric:
    """List the samples that the model gets most wrong, with a picture or the text of each.

    Args:
        k: Number of samples.
        probabilities: Whether the model returns probabilities, not logits.
    """
    return Worst(k, probabilities)


BINS = 1000


class map(Metric):
    """Average precision of boxes at one overlap, averaged over the classes.

    Scores are counted in a thousand steps, so that it needs as much memory for a million images as for one, and
    several processes put together what they have counted by adding it up.

    Args:
        num_classes: How many classes there are, of which 0 is the background; the data says so.
        iou_thr: The overlap from which a box counts as found.
    """

    required_output_keys = ("y_pred", "y")
    _state_dict_all_req_keys = ("_right", "_wrong", "_true")

    def __init__(
        self, num_classes: Annotated[int, Ge(2)], iou_thr: Annotated[float, Ge(0), Le(1)] = 0.5, **of_metric: Any
    ) -> None:
        self.num_classes, self.iou_thr = num_classes, iou_thr
        super().__init__(**of_metric, skip_unrolling=True)

    @reinit__is_reduced
    def reset(self) -> None:
        """Start counting from zero."""
        self._right, self._wrong = (torch.zeros(self.num_classes, BINS) for _ in range(2))
        self._true = torch.zeros(self.num_classes)

    @reinit__is_reduced
    def update(self, output: tuple[Sequence[Any], Sequence[Any]]) -> None:
        """Count the predicted and the true boxes of a batch."""
        for found, true in zip(*output, strict=True):
            boxes, truth = Boxes.read(found), Boxes.read(true)
            for label in truth.labels:
                self._true[int(label)] += 1
            matches = match(truth, boxes, self.iou_thr)
            scores = [1.0] * len(boxes) if boxes.scores is None else boxes.scores
            for label, score, which in zip(boxes.labels, scores, matches.prediction, strict=True):
                at = min(int(score * BINS), BINS - 1)
                (self._right if which >= 0 else self._wrong)[int(label), at] += 1

    @sync_all_reduce("_right", "_wrong", "_true")
    def compute(self) -> float:
        """Return the average precision, averaged over the classes that occur."""
        known = self._true > 0
        if not bool(known.any()):
            return 0.0
        return float(average_precision(self._right[known], self._wrong[known], self._true[known]).mean())


register(map, sums("_right", "_wrong", "_true"))


def average_precision(right: Tensor, wrong: Tensor, true: Tensor) -> Tensor:
    """Return the area below precision over recall, from hits and misses at each score, the lowest score first.

    Example:
        >>> average_precision(torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 0.0]]), torch.tensor([2.0]))
        tensor([0.5000])
    """
    right, wrong = (counts.double().flip(1).cumsum(1) for counts in (right, wrong))
    precision = right / (right + wrong).clamp(min=1)
    # At every recall, the best precision at this recall or a higher one.
    best = precision.flip(1).cummax(1).values.flip(1)
    gained = torch.diff(right / true[:, None], dim=1, prepend=torch.zeros(len(right), 1, dtype=right.dtype))
    return (best * gained).sum(1).float()


METRICS_OF_TASK = {
    "classification": ("accuracy", "loss"),
    "multilabel": ("accuracy", "f1", "loss"),
    "regression": ("MeanAbsoluteError", "loss"),
    "detection": ("map",),
    "segmentation": ("accuracy", "miou", "loss"),
}
"""What is measured where a configuration does not say it."""
