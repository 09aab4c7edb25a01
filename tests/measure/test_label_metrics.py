"""Metrics of classes also take several labels for each sample."""

from __future__ import annotations

from typing import Any

import ignite.metrics
import pytest
import torch

from ignite_hooks.distributed.metric_table import merge_of
from ignite_hooks.measure.label_metrics import OF_LABELS

NAMES = sorted(OF_LABELS)


def computed(metric: Any, *batches: Any) -> Any:
    metric.reset()
    for batch in batches:
        metric.update(batch)
    return metric.compute()


@pytest.mark.parametrize("name", NAMES)
def test_scores_of_labels_count_as_zeros_and_ones(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    scores, true = torch.randn(2, 6, 3, generator=generator), torch.randint(0, 2, (2, 6, 3), generator=generator)
    theirs = getattr(ignite.metrics, name)(is_multilabel=True)
    expected = computed(theirs, *zip((scores > 0).long(), true, strict=True))
    ours = computed(OF_LABELS[name](), *zip(scores, true.float(), strict=True))
    assert torch.equal(torch.as_tensor(ours), torch.as_tensor(expected))
    of_probabilities = computed(OF_LABELS[name](threshold=0.5), *zip(scores.sigmoid(), true.float(), strict=True))
    assert torch.equal(torch.as_tensor(of_probabilities), torch.as_tensor(expected))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(8,), (8, 1)])
def test_one_label_is_a_binary_choice(name: str, shape: tuple[int, ...]) -> None:
    scores, true = torch.linspace(-1, 1, 8).view(shape), torch.tensor([0.0, 0, 0, 1, 0, 1, 1, 1]).view(shape)
    found = computed(OF_LABELS[name](), (scores, true))
    assert found == pytest.approx(0.75)


@pytest.mark.parametrize("name", NAMES)
def test_classes_are_counted_as_ignite_does(name: str) -> None:
    scores, true = torch.eye(3)[[0, 1, 2, 0]], torch.tensor([0, 1, 2, 1])
    theirs = computed(getattr(ignite.metrics, name)(), (scores, true))
    assert torch.equal(torch.as_tensor(computed(OF_LABELS[name](), (scores, true))), torch.as_tensor(theirs))


@pytest.mark.parametrize("name", NAMES)
def test_numbers_to_predict_are_no_classes(name: str) -> None:
    for scores in (torch.zeros(2, 1), torch.zeros(2, dtype=torch.long)[:, None]):
        with pytest.raises(
            ValueError, match=rf"^{name} compares classes, and these targets are numbers such as 0\.37:"
        ):
            computed(OF_LABELS[name](), (scores, torch.tensor([[1.0], [0.37]])))


@pytest.mark.parametrize("name", NAMES)
def test_ranks_merge_them_as_they_do_those_of_ignite(name: str) -> None:
    assert merge_of(OF_LABELS[name]()) == merge_of(getattr(ignite.metrics, name)()) is not None
