"""Sections become data, model, optimizer, scheduler, loss and metrics; all problems are reported at once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from ignite.engine import Engine
from torch.utils.data import TensorDataset

from ignite_hooks.errors import Problem
from ignite_hooks.trainer.build import Built, build, steps_of_scheduler
from ignite_hooks.trainer.datasets import Data
from ignite_hooks.trainer.sections import Sections, read_sections
from tests.measure.foreign import Mergeable
from tests.trainer.tools import blobs, config


def sections_of(**sections: Any) -> Sections:
    problems: list[Problem] = []
    sections = read_sections(config(**sections), problems)
    assert problems == []
    return sections


def built(**sections: Any) -> tuple[Built, list[Problem]]:
    problems: list[Problem] = []
    return build(sections_of(**sections), torch.device("cpu"), problems), problems


def test_the_data_says_what_the_model_has_to_know() -> None:
    found, problems = built()
    assert problems == []
    layers = [layer for layer in found.model.modules() if isinstance(layer, torch.nn.Linear)]
    assert (layers[0].in_features, layers[-1].out_features) == (16, 4)
    assert isinstance(found.criterion, torch.nn.CrossEntropyLoss)


def test_the_optimizer_has_exactly_the_trainable_weights() -> None:
    class Half(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.frozen = torch.nn.Linear(16, 8).requires_grad_(False)
            self.head = torch.nn.Linear(8, 4)

    found, problems = built(model={"type": Half})
    assert problems == []
    [group] = found.optimizer.param_groups
    assert {id(weight) for weight in group["params"]} == {id(weight) for weight in found.model.head.parameters()}


@pytest.mark.parametrize(
    ("scheduler", "training", "steps"),
    [
        ({"type": "CosineAnnealingLR"}, {"epochs": 5}, 5),
        ({"type": "CosineAnnealingLR", "by_epoch": False}, {"epochs": 5}, 15),
        ({"type": "OneCycleLR", "max_lr": 0.1}, {"epochs": 5}, 15),
        ({"type": "OneCycleLR", "max_lr": 0.1}, {"epochs": 5, "grad_accumulation": 2}, 7),
        ({"type": "OneCycleLR", "max_lr": 0.1}, {"epochs": 2, "epoch_length": 10}, 20),
        ({"type": "OneCycleLR", "max_lr": 0.1}, {"epochs": 1, "epoch_length": 1, "grad_accumulation": 4}, 1),
    ],
)
def test_a_scheduler_learns_how_long_the_run_is(
    scheduler: dict[str, Any], training: dict[str, Any], steps: int
) -> None:
    sections = {"training": {**training, "scheduler": scheduler, "optimizer": {"type": "SGD", "lr": 0.1}}}
    assert steps_of_scheduler(sections_of(**sections), blobs()) == steps
    found, problems = built(**sections)
    assert problems == []
    assert getattr(found.scheduler, "T_max", None) == steps or found.scheduler.total_steps == steps


def data(count: int, features: torch.Tensor | None = None) -> Data:
    images = torch.zeros(count, 1, 4, 4) if features is None else features
    whole = TensorDataset(images, torch.zeros(len(images), dtype=torch.int64))
    return Data(whole, whole, None, num_classes=4, shape=(1, 4, 4))


@pytest.mark.parametrize(
    ("sections", "place", "message"),
    [
        ({"dataset": {"type": lambda: data(0)}}, "dataset", "its part 'train' is empty"),
        ({"dataset": {"type": lambda: [1, 2, 3]}}, "dataset", "items are pairs of an input and a target"),
        ({"model": {"type": "detector"}, "dataset": {"type": "digits"}}, "model.type", "CNN, MLP or ViT is needed"),
        ({"model": {"type": lambda: 3}}, "model.type", "makes no torch.nn.Module but 3"),
        ({"training": {"optimizer": {"type": "SGD", "lr": -1.0}}}, "training.optimizer", "Invalid learning rate: -1.0"),
    ],
)
def test_what_cannot_be_built_is_reported_with_its_place(sections: dict[str, Any], place: str, message: str) -> None:
    if sections.get("dataset") == {"type": "digits"}:
        pytest.importorskip("sklearn")
    _, problems = built(**sections)
    assert any(problem.place.startswith(place) and message in problem.message for problem in problems), problems


def test_each_evaluation_gets_separate_metrics() -> None:
    found, _ = built(evaluation={"metrics": ["accuracy", "loss"]})
    one, other = found.metrics(), found.metrics()
    assert set(one) == {"accuracy", "loss"}
    assert all(one[name] is not other[name] for name in one)


OWN = {"imports": ["tests.measure.foreign"]}


@pytest.mark.parametrize("metrics", [{"total": {"type": "tests.measure.foreign:Mergeable"}}, {"total": Mergeable()}])
def test_metrics_of_other_libraries_are_named_or_given(metrics: Any) -> None:
    found, problems = built(evaluation={"metrics": {**metrics, "loss": "loss"}}, **OWN)
    assert problems == []
    evaluator = Engine(lambda _, batch: batch)
    for name, metric in found.metrics().items():
        metric.attach(evaluator, name)
    results = evaluator.run([(torch.randn(8, 4), torch.randint(4, (8,)))]).metrics
    assert results["total"] == pytest.approx(results["loss"])


def test_a_class_that_measures_nothing_is_no_metric() -> None:
    _, problems = built(
        evaluation={"metrics": {"mean": {"type": "tests.trainer.tools:blobs"}}}, imports=["tests.trainer.tools"]
    )
    [problem] = problems
    assert problem.place == "evaluation.metrics.mean"
    assert problem.message == "Data is no metric: it has no attach, nor update, compute and reset"
