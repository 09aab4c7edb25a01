"""The table of metrics against the installed Ignite, metric by metric."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import ignite.metrics
import pytest
import torch
from ignite.metrics import Metric

from ignite_hooks.distributed.metric_merging import merged_states
from ignite_hooks.distributed.metric_table import (
    MERGES,
    SYNC_THEMSELVES,
    compute_without_sync,
    known_metrics,
    merge_of,
    register,
    sums,
)

PACKAGES = ("", "clustering", "fairness", "gan", "nlp", "rec_sys", "regression", "vision")
CLASSES = 3


def public_metrics() -> dict[str, type[Metric]]:
    """Return all metric classes of Ignite that users can import, by their name below ``ignite.metrics``."""
    found: dict[type[Metric], str] = {}
    for package in PACKAGES:
        module = importlib.import_module(f"ignite.metrics.{package}".rstrip("."))
        for name, cls in sorted(vars(module).items()):
            if inspect.isclass(cls) and issubclass(cls, Metric) and not name.startswith("_"):
                found.setdefault(cls, f"{package}.{name}".lstrip("."))
    return {name: cls for cls, name in found.items()}


def reduced_by_ignite(cls: type[Metric]) -> dict[str, str]:
    """Return the arguments of Ignite's decorator for the ``compute`` of a class."""
    attributes = inspect.getclosurevars(cls.compute).nonlocals.get("attrs", ())
    parts = [attribute.partition(":") for attribute in attributes]
    return {name: how or "SUM" for name, _, how in parts}


BESIDE = {
    # Ignite reduces the weights within `compute`.
    "Precision": {"_weight": "SUM", "_updated": "ANY"},
    "Recall": {"_weight": "SUM", "_updated": "ANY"},
    "CharacterErrorRate": {"_num_examples": "SUM"},
}
"""What is merged beside what the decorator was given: a rank without data could not compute otherwise."""


def test_every_public_metric_is_merged_or_has_a_reason() -> None:
    public = set(public_metrics())
    assert {name for name in MERGES if "._" not in name} | set(SYNC_THEMSELVES) >= public
    assert not MERGES.keys() & SYNC_THEMSELVES.keys()
    assert {cls.__name__ for cls in known_metrics()} >= {name.rpartition(".")[2] for name in MERGES}


@pytest.mark.parametrize("name", [name for name in MERGES if "JOIN" not in MERGES[name].operations.values()])
def test_the_table_reduces_what_ignite_reduces(name: str) -> None:
    wanted = reduced_by_ignite(public_metrics()[name])
    assert wanted
    assert MERGES[name].operations == wanted | BESIDE.get(name, {})


@pytest.mark.parametrize("name", [name for name in MERGES if "JOIN" in MERGES[name].operations.values()])
def test_what_is_joined_is_all_that_an_epoch_metric_keeps(name: str) -> None:
    package, _, cls = name.rpartition(".")
    metric = getattr(importlib.import_module(f"ignite.metrics.{package}".rstrip(".")), cls)
    assert issubclass(metric, ignite.metrics.EpochMetric)
    assert tuple(MERGES[name].operations) == metric._state_dict_all_req_keys
    assert reduced_by_ignite(metric) == {}


RANDOM = torch.Generator().manual_seed(0)


def numbers(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=RANDOM)


def labels(*shape: int, classes: int = CLASSES) -> torch.Tensor:
    return torch.randint(classes, shape, generator=RANDOM)


def one_hot(*shape: int) -> torch.Tensor:
    return torch.nn.functional.one_hot(labels(*shape), CLASSES).float()


def chances(*shape: int) -> torch.Tensor:
    return numbers(*shape).softmax(dim=1)


def of_classes(size: int) -> Any:
    return chances(size, CLASSES), labels(size)


def of_two(size: int) -> Any:
    return numbers(size), labels(size, classes=2)


def of_numbers(size: int) -> Any:
    return numbers(size), numbers(size) + 0.1


def of_vectors(size: int) -> Any:
    return numbers(size, 4), numbers(size, 4)


def of_images(size: int) -> Any:
    return numbers(size, 3, 16, 16), numbers(size, 3, 16, 16)


def of_texts(size: int) -> Any:
    words = ["a cat sat", "the dog ran far", "birds sing"]
    found = [words[int(at)] for at in labels(size)]
    return found, [words[int(at)] for at in labels(size)]


def of_tokens(size: int) -> Any:
    found, wanted = of_texts(size)
    return [text.split() for text in found], [[text.split()] for text in wanted]


def identity(**settings: Any) -> dict[str, Any]:
    return {"num_features": 4, "feature_extractor": torch.nn.Identity(), **settings}


Make = Callable[[int], Any]

CASES: dict[str, tuple[dict[str, Any], Make]] = {
    "Accuracy": ({}, of_classes),
    "Average": ({}, lambda size: numbers(size, 2)),
    "AveragePrecision": ({}, of_two),
    "CharacterErrorRate": ({}, of_texts),
    "ConfusionMatrix": ({"num_classes": CLASSES}, of_classes),
    "CosineSimilarity": ({}, of_vectors),
    "Entropy": ({}, of_classes),
    "EpochMetric": ({"compute_fn": lambda y_pred, y: float((y_pred * y).median())}, of_numbers),
    "FID": (identity(), of_vectors),
    "GeometricAverage": ({}, lambda size: numbers(size, 2)),
    "HSIC": ({}, of_vectors),
    "HitRate": ({"top_k": [1, 2]}, lambda size: (numbers(size, 5), labels(size, 5, classes=2).float())),
    "InceptionScore": (identity(), lambda size: numbers(size, 4)),
    "JSDivergence": ({}, lambda size: (numbers(size, CLASSES), numbers(size, CLASSES))),
    "KLDivergence": ({}, lambda size: (numbers(size, CLASSES), numbers(size, CLASSES))),
    "Loss": ({"loss_fn": torch.nn.functional.mse_loss}, of_numbers),
    "MatthewsCorrCoef": ({}, lambda size: (labels(size, classes=2), labels(size, classes=2))),
    "MaximumMeanDiscrepancy": ({}, of_vectors),
    "MeanAbsoluteError": ({}, of_numbers),
    "MeanPairwiseDistance": ({}, of_vectors),
    "MeanSquaredError": ({}, of_numbers),
    "MultiLabelConfusionMatrix": (
        {"num_classes": CLASSES},
        lambda size: (labels(size, CLASSES, classes=2), labels(size, CLASSES, classes=2)),
    ),
    "MutualInformation": ({}, of_classes),
    "NDCG": ({"top_k": [1, 2]}, lambda size: (numbers(size, 5), labels(size, 5, classes=2).float())),
    "PSNR": ({"data_range": 1.0}, of_images),
    "Perplexity": ({}, lambda size: (numbers(size, CLASSES, 5), labels(size, 5))),
    "Precision": ({"average": "weighted"}, of_classes),
    "PrecisionRecallCurve": ({}, of_two),
    "ROC_AUC": ({}, of_two),
    "Recall": ({"average": "macro"}, of_classes),
    "RocCurve": ({}, of_two),
    "RougeL": ({}, of_tokens),
    "RougeN": ({}, of_tokens),
    "TopKCategoricalAccuracy": ({"k": 2}, of_classes),
    "VariableAccumulation": ({"op": lambda total, value: total + value.sum(dim=0)}, lambda size: numbers(size, 2)),
    "clustering.CalinskiHarabaszScore": ({}, lambda size: (numbers(size, 4), labels(size))),
    "clustering.DaviesBouldinScore": ({}, lambda size: (numbers(size, 4), labels(size))),
    "clustering.SilhouetteScore": ({}, lambda size: (numbers(size, 4), labels(size))),
    "cohen_kappa._CohenKappaEpochMetric": (
        {
            "weights": None,
            "output_transform": lambda x: x,
            "device": "cpu",
            "skip_unrolling": False,
            "check_compute_fn": False,
        },
        lambda size: (labels(size), labels(size)),
    ),
    "fairness.SelectionRate": ({}, of_classes),
}


def built(name: str) -> Any:
    package, _, cls = name.rpartition(".")
    settings = CASES.get(name, ({}, of_numbers))[0]
    try:
        return getattr(importlib.import_module(f"ignite.metrics.{package}".rstrip(".")), cls)(**settings)
    except ModuleNotFoundError as error:
        pytest.skip(f"{cls}: {error}")


def as_one(name: str, shards: Sequence[Sequence[Any]]) -> Any:
    """Return the value that ranks with these batches compute from their merged state."""
    ranks = []
    for batches in shards:
        metric = built(name)
        metric.reset()
        for batch in batches:
            metric.update(batch)
        ranks.append(metric)
    merge = merge_of(ranks[0])
    assert merge is MERGES[name]
    vars(ranks[-1]).update(merged_states([vars(metric) for metric in ranks], merge.operations))
    return merge.compute(ranks[-1])


def flat(value: Any) -> list[float]:
    """Return all numbers of a value, with the shape of every tensor."""
    if isinstance(value, torch.Tensor):
        return [*value.shape, *value.reshape(-1).tolist()]
    if isinstance(value, dict):
        return flat([item for _, item in sorted(value.items())])
    return [number for item in value for number in flat(item)] if isinstance(value, (list, tuple)) else [float(value)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MERGES)
def test_three_shards_have_the_value_of_all_data(name: str) -> None:
    RANDOM.manual_seed(0)
    make = CASES.get(name, ({}, of_numbers))[1]
    batches = [make(size) for size in (8, 8, 5)]
    metric = built(name)
    metric.reset()
    for batch in batches:
        metric.update(batch)
    found = as_one(name, [batches[:2], batches[2:], []])
    assert flat(found) == pytest.approx(flat(metric.compute()), rel=1e-5, abs=1e-7)


def test_counters_are_known_and_other_metrics_are_not() -> None:
    known = {
        "Accuracy": ignite.metrics.Accuracy(),
        "Loss": ignite.metrics.Loss(torch.nn.functional.mse_loss),
        "Precision": ignite.metrics.Precision(average="weighted"),
        "TopK": ignite.metrics.TopKCategoricalAccuracy(),
        "MeanSquaredError": ignite.metrics.MeanSquaredError(),
        "ConfusionMatrix": ignite.metrics.ConfusionMatrix(3),
        "EpochMetric": ignite.metrics.EpochMetric(lambda y_pred, y: 0.0),
        "Average": ignite.metrics.Average(),
    }
    assert [name for name, metric in known.items() if merge_of(metric) is None] == []
    by_itself = [ignite.metrics.RunningAverage(output_transform=float), ignite.metrics.Frequency()]
    assert [merge_of(metric) for metric in by_itself] == [None, None]


class Own(ignite.metrics.Accuracy):
    """A metric of a script."""

    def compute(self) -> float:
        return 1 - super().compute()


class WithState(ignite.metrics.Accuracy):
    """A metric of a script that keeps more than its parent."""

    _state_dict_all_req_keys = ("_num_correct", "_num_examples", "_more")


class Named(ignite.metrics.EpochMetric):
    """A metric of a script that is Ignite's by another name."""

    def __init__(self) -> None:
        super().__init__(lambda y_pred, y: 0.0, check_compute_fn=False)


def test_a_subclass_with_its_own_compute_or_state_synchronises_itself() -> None:
    assert merge_of(Own()) is None
    assert merge_of(WithState()) is None
    assert merge_of(Named()) is MERGES["EpochMetric"]


def test_a_metric_can_be_registered() -> None:
    class Registered(Own):
        pass

    assert merge_of(Registered()) is None
    register(Registered, sums("_num_correct", "_num_examples"))
    assert merge_of(Registered()) == sums("_num_correct", "_num_examples")


def test_another_version_with_other_attributes_synchronises_itself() -> None:
    metric = ignite.metrics.Accuracy()
    del metric._num_examples
    assert merge_of(metric) is None


def test_computing_without_sync_is_not_a_part_of_a_reduction() -> None:
    metric = ignite.metrics.Accuracy()
    metric.update((torch.eye(3), torch.arange(3)))
    assert compute_without_sync(metric) == 1.0
