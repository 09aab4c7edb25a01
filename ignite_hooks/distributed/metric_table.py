"""The metrics of Ignite 0.5 by class: how the states of several processes become one, and what cannot be merged."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from ignite.metrics import Metric

Operation = Literal["SUM", "MAX", "ANY", "JOIN"]
"""How the values that an attribute has on several ranks become one; JOIN puts lists together."""


def compute_without_sync(metric: Metric) -> Any:
    """Compute a metric from its state, without the decorator that reduces the state over the ranks."""
    return inspect.unwrap(type(metric).compute)(metric)


def compute_weighted(metric: Any) -> Any:
    """Compute a precision or recall; Ignite's ``compute`` reduces the weights of the classes itself."""
    if metric._average != "weighted" or not metric._updated:
        return compute_without_sync(metric)
    fraction = metric._numerator / (metric._denominator + metric.eps)
    return ((fraction @ metric._weight) / (metric._weight.sum() + metric.eps)).item()


def compute_from_all(metric: Any) -> Any:
    """Compute a metric of all predictions; Ignite's ``compute`` returns the result that it finds."""
    if metric._predictions:
        metric._result = metric.compute_fn(*_predictions_and_targets(metric))
    return type(metric).compute(metric)


def compute_curve(metric: Any) -> Any:
    """Compute the three tensors of a curve, of the type and on the device that Ignite gives them."""
    import numpy
    import torch

    if not metric._predictions:
        return type(metric).compute(metric)
    predictions, targets = _predictions_and_targets(metric)
    return tuple(
        torch.tensor(numpy.array(part), dtype=metric._double_dtype, device=predictions.device)
        for part in metric.compute_fn(predictions, targets)
    )


def _predictions_and_targets(metric: Any) -> tuple[Any, Any]:
    import torch

    return torch.cat(metric._predictions), torch.cat(metric._targets)


@dataclass(frozen=True)
class Merge:
    """How a metric is merged.

    Args:
        operations: By attribute, how the values of all ranks become one.
        compute: Computes the metric from the merged attributes, without talking to other ranks.
        state_of: Returns the attributes of this rank, which the metric has as they are by default.
    """

    operations: Mapping[str, Operation]
    compute: Callable[[Metric], Any] = compute_without_sync
    state_of: Callable[[Metric], Mapping[str, Any]] = vars


def sums(*attributes: str) -> Merge:
    """Return a merge that adds up attributes."""
    return Merge(dict.fromkeys(attributes, "SUM"))


_OF_EXAMPLES = sums("_sum_of_errors", "_num_examples")
_OF_ERRORS = sums("_sum_of_errors")
_AVERAGE = sums("accumulator", "num_examples")
_PRECISION = Merge(
    {"_numerator": "SUM", "_denominator": "SUM", "_weight": "SUM", "_updated": "ANY"}, compute=compute_weighted
)
_ALL = Merge({"_predictions": "JOIN", "_targets": "JOIN"}, compute=compute_from_all)
_CURVE = Merge({"_predictions": "JOIN", "_targets": "JOIN"}, compute=compute_curve)

MERGES: Mapping[str, Merge] = {
    "Accuracy": sums("_num_correct", "_num_examples"),
    "Average": _AVERAGE,
    "AveragePrecision": _ALL,
    "CharacterErrorRate": sums("_num_errors", "_num_refs", "_num_examples"),
    "ConfusionMatrix": sums("confusion_matrix", "_num_examples"),
    "CosineSimilarity": sums("_sum_of_cos_similarities", "_num_examples"),
    "Entropy": sums("_sum_of_entropies", "_num_examples"),
    "EpochMetric": _ALL,
    "FID": sums("_num_examples", "_train_total", "_test_total", "_train_sigma", "_test_sigma"),
    "GeometricAverage": _AVERAGE,
    "HSIC": sums("_sum_of_hsic", "_num_batches"),
    "HitRate": sums("_hits_per_k", "_num_examples"),
    "InceptionScore": sums("_num_examples", "_prob_total", "_total_kl_d"),
    "JSDivergence": sums("_sum_of_kl", "_num_examples"),
    "KLDivergence": sums("_sum_of_kl", "_num_examples"),
    "Loss": sums("_sum", "_num_examples"),
    "MatthewsCorrCoef": _ALL,
    "MaximumMeanDiscrepancy": sums("_xx_sum", "_yy_sum", "_xy_sum", "_num_batches"),
    "MeanAbsoluteError": sums("_sum_of_absolute_errors", "_num_examples"),
    "MeanPairwiseDistance": sums("_sum_of_distances", "_num_examples"),
    "MeanSquaredError": sums("_sum_of_squared_errors", "_num_examples"),
    "MultiLabelConfusionMatrix": sums("confusion_matrix", "_num_examples"),
    "MutualInformation": sums("_sum_of_probabilities", "_sum_of_entropies", "_num_examples"),
    "NDCG": sums("_sum_ndcg_per_k", "_num_examples"),
    "PSNR": sums("_sum_of_batchwise_psnr", "_num_examples"),
    "Perplexity": sums("_sum_of_nll", "_num_tokens"),
    "Precision": _PRECISION,
    "PrecisionRecallCurve": _CURVE,
    "ROC_AUC": _ALL,
    "Recall": _PRECISION,
    "RocCurve": _CURVE,
    "RougeL": sums("_recall", "_precision", "_fmeasure", "_num_examples"),
    "RougeN": sums("_recall", "_precision", "_fmeasure", "_num_examples"),
    "TopKCategoricalAccuracy": sums("_num_correct", "_num_examples"),
    "VariableAccumulation": _AVERAGE,
    "clustering.CalinskiHarabaszScore": _ALL,
    "clustering.DaviesBouldinScore": _ALL,
    "clustering.SilhouetteScore": _ALL,
    "cohen_kappa._CohenKappaEpochMetric": _ALL,
    "fairness.SelectionRate": sums("_num_positives", "_num_examples"),
    "regression.CanberraMetric": _OF_ERRORS,
    "regression.FractionalAbsoluteError": _OF_EXAMPLES,
    "regression.FractionalBias": _OF_EXAMPLES,
    "regression.GeometricMeanAbsoluteError": _OF_EXAMPLES,
    "regression.KendallRankCorrelation": _ALL,
    "regression.ManhattanDistance": _OF_ERRORS,
    "regression.MaximumAbsoluteError": Merge({"_max_of_absolute_errors": "MAX"}),
    "regression.MeanAbsoluteRelativeError": sums("_sum_of_absolute_relative_errors", "_num_samples"),
    "regression.MeanError": _OF_EXAMPLES,
    "regression.MeanNormalizedBias": _OF_EXAMPLES,
    "regression.MedianAbsoluteError": _ALL,
    "regression.MedianAbsolutePercentageError": _ALL,
    "regression.MedianRelativeAbsoluteError": _ALL,
    "regression.PearsonCorrelation": sums(
        "_sum_of_y_preds",
        "_sum_of_ys",
        "_sum_of_y_pred_squares",
        "_sum_of_y_squares",
        "_sum_of_products",
        "_num_examples",
    ),
    "regression.R2Score": sums("_num_examples", "_sum_of_errors", "_y_sq_sum", "_y_sum"),
    "regression.SpearmanRankCorrelation": _ALL,
    "regression.WaveHedgesDistance": _OF_ERRORS,
}
"""The metrics that are merged, by their name below ``ignite.metrics``."""

OF_PARTS = "it is made of other metrics, which are merged"
BY_ITSELF = "its compute gathers and reduces by itself"

SYNC_THEMSELVES: Mapping[str, str] = {
    "Bleu": "what it keeps depends on its settings",
    "CohenKappa": OF_PARTS,
    "CommonObjectDetectionMetrics": OF_PARTS,
    "Frequency": "it counts the events of an engine and the time between them",
    "GpuInfo": "it describes this process's GPU",
    "MeanAveragePrecision": BY_ITSELF,
    "Metric": "it is abstract",
    "MetricGroup": OF_PARTS,
    "MetricsLambda": OF_PARTS,
    "ObjectDetectionAvgPrecisionRecall": BY_ITSELF,
    "RootMeanSquaredError": "its compute calls another one that reduces",
    "Rouge": OF_PARTS,
    "RunningAverage": "it follows one process through its iterations",
    "SSIM": "it keeps a kernel beside its sums, which a rank without data lacks",
    "fairness.DemographicParityDifference": OF_PARTS,
    "fairness.SubgroupAccuracyDifference": OF_PARTS,
    "fairness.SubgroupDifference": OF_PARTS,
    "fairness.SubgroupMetric": OF_PARTS,
    "regression.GeometricMeanRelativeAbsoluteError": BY_ITSELF,
}
"""The other metrics of Ignite, and why they are not merged themselves."""


def merge_of(metric: Metric) -> Merge | None:
    """Return how a metric is merged, or None where it has to synchronise itself.

    Metrics are looked up by their exact class. A subclass synchronises itself if it has a different ``compute``, which
    is what reduces a state over the ranks, or keeps a different state; else it is merged as its parent.
    """
    known: dict[Any, Merge] = {**known_metrics(), **_registered}
    author: Any = next(cls for cls in type(metric).__mro__ if "compute" in vars(cls))
    cls = type(metric) if type(metric) in known else author
    merge = known.get(cls)
    if merge is None or type(metric)._state_dict_all_req_keys != cls._state_dict_all_req_keys:
        return None
    # Another version of Ignite may keep other attributes.
    return merge if merge.operations.keys() <= vars(metric).keys() else None


_registered: dict[type, Merge] = {}


def register(cls: type[Metric], merge: Merge) -> None:
    """Say how a metric that is not Ignite's is merged."""
    _registered[cls] = merge


@functools.cache
def known_metrics() -> dict[type, Merge]:
    """Return the merges by class, of the metrics that the installed Ignite has."""
    found = {}
    for name, merge in MERGES.items():
        package, _, class_name = name.rpartition(".")
        try:
            module = importlib.import_module(f"ignite.metrics.{package}".rstrip("."))
        except ModuleNotFoundError:
            continue
        if hasattr(module, class_name):
            found[getattr(module, class_name)] = merge
    return found
