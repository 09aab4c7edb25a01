from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from ignite_hooks.measure import score_metrics
from ignite_hooks.measure.score_metrics import Calibration, ClassAP, PrecisionRecall, Roc, ScoreMetric, scores_and_truth

sklearn: Any = pytest.importorskip("sklearn.metrics")


def scored(count: int, classes: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    true = torch.randint(classes, (count,), generator=generator)
    # Of one decimal, so that scores are equal now and then.
    logits = (torch.randn(count, classes, generator=generator) + 1.5 * torch.eye(classes)[true]).mul(2).round() / 2
    return logits, true


def measured(metric: Any, *batches: tuple[torch.Tensor, torch.Tensor]) -> Any:
    metric.reset()
    for batch in batches:
        metric.update(batch)
    return metric.compute()


@pytest.mark.parametrize("seed", range(5))
def test_average_precision_and_areas_are_those_of_scikit_learn(seed: int) -> None:
    logits, true = scored(200, 4, seed)
    batches = [(logits[:70], true[:70]), (logits[70:], true[70:])]
    scores = logits.softmax(1).numpy()
    precision = measured(ClassAP(), *batches).content["values"]
    areas = measured(Roc(), *batches)
    for place in range(4):
        truth = (true == place).numpy()
        assert precision[place] == pytest.approx(sklearn.average_precision_score(truth, scores[:, place]), abs=1e-12)
        area = sklearn.roc_auc_score(truth, scores[:, place])
        assert areas.numbers[f"auc/{place}"] == pytest.approx(area, abs=1e-12)
        x, y, _ = sklearn.roc_curve(truth, scores[:, place], drop_intermediate=False)
        assert areas.content["lines"][str(place)] == [pytest.approx(x.tolist()), pytest.approx(y.tolist())]


def test_a_class_that_does_not_occur_has_no_value() -> None:
    logits, true = torch.randn(6, 3), torch.tensor([0, 1, 0, 1, 0, 1])
    assert math.isnan(measured(ClassAP(), (logits, true)).content["values"][2])
    found = measured(Roc(), (logits, true))
    assert math.isnan(found.numbers["auc/2"]) or "auc/2" not in found.numbers
    assert math.isfinite(found.numbers["auc"])


@pytest.mark.parametrize("kind", [ClassAP, Roc, PrecisionRecall])
def test_above_the_limit_scores_are_counted_in_bins_which_is_told(
    kind: type[ScoreMetric], monkeypatch: pytest.MonkeyPatch
) -> None:
    logits, true = scored(300, 3, 1)
    exact = measured(kind(), (logits, true)).entries()
    monkeypatch.setattr(score_metrics, "MOST_SCORES", 500)
    whole = measured(kind(), (logits, true))
    parts = measured(kind(), *((logits[i : i + 50], true[i : i + 50]) for i in range(0, 300, 50)))
    assert whole.to_json() == parts.to_json()
    assert whole.entries() == pytest.approx(exact, abs=0.01)
    if kind is not ClassAP:
        assert "1000 bins" in whole.content["note"]


def test_one_score_a_sample_is_that_of_the_second_class() -> None:
    scores, truth = scores_and_truth(torch.tensor([[0.0], [9.0]]), torch.tensor([0, 1]), probabilities=False)
    assert scores[:, 0].tolist() == [0.5, pytest.approx(1, abs=1e-3)]
    assert truth[:, 0].tolist() == [False, True]
    pixels = scores_and_truth(torch.randn(2, 3, 4, 4), torch.zeros(2, 4, 4, dtype=torch.long), probabilities=False)
    assert pixels[0].shape == pixels[1].shape == (32, 3)
    with pytest.raises(ValueError, match="do not fit"):
        scores_and_truth(torch.randn(2, 3), torch.zeros(5), probabilities=False)


def test_calibration_compares_certainty_with_right_answers() -> None:
    probabilities = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.6, 0.4], [0.4, 0.6]])
    found = measured(Calibration(bins=10, probabilities=True), (probabilities, torch.tensor([0, 1, 0, 1])))
    assert found.content["lines"]["the model"] == [pytest.approx([0.6, 0.9]), pytest.approx([1.0, 0.5])]
    assert found.numbers["ece"] == pytest.approx(0.5 * 0.4 + 0.5 * 0.4)
    one = measured(Calibration(bins=10, probabilities=True), (torch.tensor([0.9, 0.1]), torch.tensor([1.0, 1.0])))
    assert one.content["lines"]["the model"][1] == [0.5]


def test_without_samples_there_is_an_error() -> None:
    for metric in (ClassAP(), Calibration()):
        metric.reset()
        with pytest.raises(Exception, match="has seen no sample"):
            metric.compute()
