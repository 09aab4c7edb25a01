"""Metrics of the scores of classes: ROC and precision-recall curves, average precision, calibration."""

from __future__ import annotations

from typing import Any, Final

import torch
from ignite.exceptions import NotComputableError
from ignite.metrics import Metric
from ignite.metrics.metric import reinit__is_reduced
from torch import Tensor

from ignite_hooks.distributed.metric_table import Merge, register
from ignite_hooks.measure.results import LINES_SHOWN, MOST_POINTS, Result, curves, vector

MOST_SCORES: Final = 1_000_000
"""Up to so many scores every one counts; with more they are counted in bins."""
BINS: Final = 1000


class ScoreMetric(Metric):
    """Collects the scores of every class with whether they are of the true class; the parent of those below.

    Up to a million scores nothing is rounded; more are counted in a thousand bins, whatever the number of ranks.

    Args:
        probabilities: Whether the model returns probabilities, not logits.
    """

    _state_dict_all_req_keys = ("_scores", "_truth", "_bins")
    required_output_keys = ("y_pred", "y")

    def __init__(self, probabilities: bool = False, **of_metric: Any) -> None:
        self.probabilities = probabilities
        super().__init__(**of_metric)

    @reinit__is_reduced
    def reset(self) -> None:
        """Start from nothing."""
        self._scores: list[Tensor] = []
        self._truth: list[Tensor] = []
        self._bins: Any = 0
        self._kept = 0

    @reinit__is_reduced
    def update(self, output: Any) -> None:
        """Take the scores and the classes of a batch."""
        scores, truth = scores_and_truth(output[0].detach(), output[1].detach(), self.probabilities)
        self._scores.append(scores.cpu())
        self._truth.append(truth.cpu())
        self._kept += scores.numel()
        if self._kept > MOST_SCORES:
            self._put_into_bins()

    def _put_into_bins(self) -> None:
        self._bins = self._bins + binned(torch.cat(self._scores), torch.cat(self._truth))
        self._scores, self._truth, self._kept = [], [], 0

    def compute(self) -> Any:
        """Return what the scores so far amount to."""
        if not self._scores and not torch.is_tensor(self._bins):
            raise NotComputableError(f"{type(self).__name__} has seen no sample")
        kept = sum(scores.numel() for scores in self._scores)
        if torch.is_tensor(self._bins) or kept > MOST_SCORES:
            counts = self._bins + (binned(torch.cat(self._scores), torch.cat(self._truth)) if self._scores else 0)
            return self.result([_of_bins(one) for one in counts], f"in {BINS} bins, as there are over a million scores")
        scores, truth = torch.cat(self._scores), torch.cat(self._truth)
        return self.result([hits(scores[:, i], truth[:, i]) for i in range(scores.shape[1])], "")

    def result(self, found: list[tuple[Tensor, Tensor]], note: str) -> Any:
        """Return the value of the metric.

        Args:
            found: By class, the true and false positives at each threshold, the highest threshold first.
            note: How the scores were counted, where that matters.
        """
        raise NotImplementedError


class ClassAP(ScoreMetric):
    """The average precision of every class; NaN for a class that does not occur."""

    def result(self, found: list[tuple[Tensor, Tensor]], note: str) -> Result:
        """Return a number for each class."""
        return vector([average_precision(*one) for one in found])


class Roc(ScoreMetric):
    """The ROC curve of every class against all others, and the area below it."""

    def result(self, found: list[tuple[Tensor, Tensor]], note: str) -> Result:
        """Return a curve for each class, of many classes those with the least area."""
        areas = [area_below_roc(*one) for one in found]
        lines = {str(i): _thinned(*roc(*found[i])) for i in _lowest(areas)}
        return curves(lines, ("false positive rate", "true positive rate"), numbers=_named("auc", areas), note=note)


class PrecisionRecall(ScoreMetric):
    """The curve of precision over recall of every class, and the average precision."""

    def result(self, found: list[tuple[Tensor, Tensor]], note: str) -> Result:
        """Return a curve for each class, of many classes those with the least average precision."""
        areas = [average_precision(*one) for one in found]
        lines = {str(i): _thinned(*precision_over_recall(*found[i])) for i in _lowest(areas)}
        totals = {str(i): (int(found[i][0][-1]), int(found[i][0][-1] + found[i][1][-1])) for i in _lowest(areas)}
        return curves(lines, ("recall", "precision"), numbers=_named("ap", areas), note=note, totals=totals)


MERGE: Final = Merge({"_scores": "JOIN", "_truth": "JOIN", "_bins": "SUM"})
for _cls in (ClassAP, Roc, PrecisionRecall):
    register(_cls, MERGE)


class Calibration(Metric):
    """How often the model is right where it is as sure as it says: a curve, and the expected calibration error.

    Args:
        bins: Number of ranges of certainty.
        probabilities: Whether the model returns probabilities, not logits.
    """

    _state_dict_all_req_keys = ("_count", "_sure", "_right")
    required_output_keys = ("y_pred", "y")

    def __init__(self, bins: int = 15, probabilities: bool = False, **of_metric: Any) -> None:
        self.bins, self.probabilities = bins, probabilities
        super().__init__(**of_metric)

    @reinit__is_reduced
    def reset(self) -> None:
        """Start counting from zero."""
        self._count, self._sure, self._right = (torch.zeros(self.bins, dtype=torch.float64) for _ in range(3))

    @reinit__is_reduced
    def update(self, output: Any) -> None:
        """Count a batch."""
        scores, truth = scores_and_truth(output[0].detach(), output[1].detach(), self.probabilities)
        if scores.shape[1] == 1:
            scores, truth = torch.cat([1 - scores, scores], 1), torch.cat([~truth, truth], 1)
        sure, best = scores.cpu().double().max(1)
        right = truth.cpu().gather(1, best[:, None])[:, 0].double()
        places = (sure * self.bins).long().clamp(0, self.bins - 1)
        for state, weights in ((self._count, torch.ones_like(sure)), (self._sure, sure), (self._right, right)):
            state += torch.bincount(places, weights, self.bins)

    def compute(self) -> Result:
        """Return the curve of right answers over certainty, and how far it is from the diagonal."""
        seen = self._count > 0
        if not bool(seen.any()):
            raise NotComputableError("Calibration has seen no sample")
        sure, right = self._sure[seen] / self._count[seen], self._right[seen] / self._count[seen]
        error = float(((sure - right).abs() * self._count[seen]).sum() / self._count.sum())
        lines = {"the model": (sure, right), "perfect": ([0.0, 1.0], [0.0, 1.0])}
        return curves(lines, ("certainty", "share that is right"), numbers={"ece": error})


register(Calibration, Merge(dict.fromkeys(("_count", "_sure", "_right"), "SUM")))


def scores_and_truth(predicted: Tensor, true: Tensor, probabilities: bool) -> tuple[Tensor, Tensor]:
    """Return a score from 0 to 1 for every sample and class, and whether it is the true one.

    Of pixels, every one is a sample. One score for each sample is that of the class 1; with several labels for each
    sample every label is a class of its own.
    """
    if predicted.ndim == true.ndim + 1 and predicted.shape[1] > 1 and predicted[:, 0].shape == true.shape:
        scores = predicted.float() if probabilities else predicted.float().softmax(1)
        count = scores.shape[1]
        scores = scores.movedim(1, -1).reshape(-1, count)
        return scores, torch.nn.functional.one_hot(true.long().reshape(-1), count).bool()
    if predicted.shape != true.shape and predicted.numel() != true.numel():
        raise ValueError(f"scores of the shape {tuple(predicted.shape)} do not fit classes of {tuple(true.shape)}")
    scores = predicted.float() if probabilities else predicted.float().sigmoid()
    columns = scores.shape[1] if scores.ndim == 2 else 1
    return scores.reshape(-1, columns), true.reshape(-1, columns) > 0.5


def binned(scores: Tensor, truth: Tensor) -> Tensor:
    """Return how many scores of each class are in each bin: those of others, and those of the class itself."""
    places = (scores.double() * BINS).long().clamp(0, BINS - 1)
    classes = torch.arange(scores.shape[1])
    flat = (classes * 2 + truth.long()) * BINS + places
    return torch.bincount(flat.reshape(-1), minlength=2 * BINS * len(classes)).reshape(len(classes), 2, BINS)


def _of_bins(counts: Tensor) -> tuple[Tensor, Tensor]:
    """Return true and false positives at each threshold, the highest first."""
    wrong, right = counts.flip(1).cumsum(1)
    return right, wrong


def hits(scores: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """Return the number of true and of false positives at each threshold that occurs, the highest first.

    Example:
        >>> hits(torch.tensor([0.9, 0.5, 0.5]), torch.tensor([True, True, False]))
        (tensor([1, 2]), tensor([0, 1]))
    """
    ordered, order = scores.sort(descending=True)
    right = truth[order].long().cumsum(0)
    last = torch.cat([ordered[1:] != ordered[:-1], torch.ones(1, dtype=torch.bool)])
    places = last.nonzero()[:, 0]
    return right[places], places + 1 - right[places]


def average_precision(right: Tensor, wrong: Tensor) -> float:
    """Return the mean of the precision over the recall that each threshold adds; NaN where nothing is to be found."""
    total = int(right[-1])
    if not total:
        return float("nan")
    precision = right.double() / (right + wrong).clamp(min=1)
    gained = torch.diff(right.double(), prepend=torch.zeros(1, dtype=torch.float64)) / total
    # A sum of shares may exceed one by a rounding.
    return min(1.0, float((precision * gained).sum()))


def roc(right: Tensor, wrong: Tensor) -> tuple[Tensor, Tensor]:
    """Return false and true positive rates, from nothing to everything."""
    none = torch.zeros(1, dtype=torch.float64)
    return torch.cat([none, wrong / wrong[-1].clamp(min=1)]), torch.cat([none, right / right[-1].clamp(min=1)])


def area_below_roc(right: Tensor, wrong: Tensor) -> float:
    """Return the area below the ROC curve; NaN where there is no sample of the class, or none of the others."""
    if not int(right[-1]) or not int(wrong[-1]):
        return float("nan")
    x, y = roc(right.double(), wrong.double())
    return float(torch.trapezoid(y, x))


def precision_over_recall(right: Tensor, wrong: Tensor) -> tuple[Tensor, Tensor]:
    """Return recall and precision at each threshold."""
    return right.double() / right[-1].clamp(min=1), right.double() / (right + wrong).clamp(min=1)


def _thinned(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return at most as many points as can be seen, the ends among them."""
    if len(x) <= MOST_POINTS:
        return x, y
    places = torch.linspace(0, len(x) - 1, MOST_POINTS).round().long()
    return x[places], y[places]


def _lowest(values: list[float]) -> list[int]:
    """Return the classes whose curves are drawn: all, or those with the lowest values, in their order."""
    if len(values) <= LINES_SHOWN:
        return list(range(len(values)))
    known = [place for place, value in enumerate(values) if value == value]
    return sorted(sorted(known, key=lambda place: values[place])[:LINES_SHOWN])


def _named(word: str, values: list[float]) -> dict[str, float]:
    """Return the numbers of the classes and their mean, of many classes only the mean and the lowest."""
    known = [value for value in values if value == value]
    mean = {word: sum(known) / len(known) if known else float("nan")}
    return mean if len(values) == 1 else {**mean, **{f"{word}/{place}": values[place] for place in _lowest(values)}}
