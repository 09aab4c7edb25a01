"""Recipe -> data, model, optimizer, scheduler, loss and metrics; no engine yet, and no other process is asked."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import ignite.distributed as idist
import ignite.metrics
import torch

from ignite_hooks.checkpoint.load_from import load_from
from ignite_hooks.config.describe import describe
from ignite_hooks.config.starting_weights import read_load_from
from ignite_hooks.distributed.collectives import world_size
from ignite_hooks.errors import CheckpointError, ConfigError, Problem
from ignite_hooks.measure.foreign_metrics import is_metric
from ignite_hooks.registry import Registry
from ignite_hooks.run.ignite_metrics import make_metric
from ignite_hooks.system.devices import unavailable
from ignite_hooks.text import shown
from ignite_hooks.trainer.components import Component
from ignite_hooks.trainer.datasets import Data, as_data
from ignite_hooks.trainer.metrics import METRICS_OF_TASK
from ignite_hooks.trainer.registries import CRITERIA, DATASETS, METRICS, MODELS
from ignite_hooks.trainer.sections import LENGTHS, PER_ITERATION, SUPPLIED, Sections
from ignite_hooks.trainer.tasks import tell_task

CRITERION_OF_TASK = {"detection": "DetectionLoss", "multilabel": "BCEWithLogitsLoss", "regression": "MSELoss"}
"""The usual loss, where it is not that of classes."""

_OF_VECTORS = ("CNN", "MLP", "ViT")
MODELS_OF_TASK = {
    "classification": _OF_VECTORS,
    "multilabel": _OF_VECTORS,
    "regression": _OF_VECTORS,
    "detection": ("Detector",),
    "segmentation": ("Segmenter",),
}
"""The models of ours by what they learn."""


@dataclass
class Built:
    """The objects a run is made of; None stands for one that could not be built."""

    data: Any = None
    model: Any = None
    optimizer: Any = None
    scheduler: Any = None
    criterion: Any = None
    loaded: str = ""
    """The weights that the model begins with, in words."""
    loaded_file: Path | None = None
    """The file of these weights."""
    metrics: Callable[[], dict[str, Any]] = dict
    """Makes the metrics of one evaluator."""


def build(sections: Sections, device: torch.device, problems: list[Problem]) -> Built:
    """Build everything that can be built, and add what is wrong to the problems."""
    built = Built()
    given = None if sections.dataset is None else sections.dataset.build(problems=problems)
    if sections.dataset is None or given is None:
        return built
    try:
        built.data = data = as_data(given)
        empty = [name for name in ("train", "val", "test") if _is_empty(getattr(data, name))]
        if empty:
            hint = ": leave it out" if "train" not in empty else ""
            problems.append(Problem("dataset", f"{sections.dataset.name}: its part {empty[0]!r} is empty{hint}"))
            return built
        # What fails here would fail in the first iteration.
        first = data.train[0] if hasattr(data.train, "__getitem__") else None
    except Exception as error:  # a user's data set may fail in any way
        problems.append(Problem("dataset", f"{sections.dataset.name}: {type(error).__name__}: {error}"))
        return built
    problems += tell_task(data, first, sections)
    problems += _wrong_task(sections, data)
    facts = data.facts()
    built.criterion = _criterion(sections, data, problems)
    built.model = _model(sections.model, facts, problems)
    if built.model is not None:
        built.model.to(device)
        built.criterion = getattr(built.criterion, "to", lambda _: built.criterion)(device)
        built.loaded, built.loaded_file = _load_weights(sections, built.model, problems)
        _optimizer_and_scheduler(built, sections, problems)
    built.metrics = _metrics(sections, data, built.criterion, problems)
    return built


def _load_weights(sections: Sections, model: Any, problems: list[Problem]) -> tuple[str, Path | None]:
    """Load the weights that the run is to start from, and return in words which they are, and their file."""
    place = "training.load_from"
    chosen = read_load_from(sections.training.load_from, problems, place)
    if chosen is None:
        return "", None
    try:
        return load_from(model, chosen.file, **chosen.how), chosen.file
    except CheckpointError as error:
        problems.append(Problem(place, str(error)))
        return "", None


def device_of(wanted: str | None, problems: list[Problem]) -> torch.device:
    """Return the device to train on, and add a problem where it is not here."""
    usual = torch.device(idist.device())
    if wanted is None:
        return usual
    try:
        device = torch.device(wanted)
    except RuntimeError:
        problems.append(Problem("training.device", f"cpu, cuda, cuda:0 or mps is needed, not {shown(wanted)}"))
        return usual
    if reason := unavailable(device):
        problems.append(Problem("training.device", f"{wanted}: {reason}: leave it out, or say cpu"))
        return usual
    if world_size() > 1 and device.type != usual.type:
        message = f"each of the {world_size()} processes has its own device, here {usual}: leave it out"
        problems.append(Problem("training.device", message))
    return usual if world_size() > 1 else device


def _is_empty(data: Any) -> bool:
    return hasattr(data, "__len__") and len(data) == 0


def _wrong_task(sections: Sections, data: Data) -> list[Problem]:
    """Return a problem if model and data are ours and for different tasks; a user's own may fit all the same."""
    model, dataset = sections.model, sections.dataset
    if model is None or dataset is None or not (_is_ours(model, MODELS) and _is_ours(dataset, DATASETS)):
        return []
    wanted = data.task or "classification"
    task = next((task for task, names in MODELS_OF_TASK.items() if model.name in names), wanted)
    if MODELS_OF_TASK[task] == MODELS_OF_TASK[wanted]:
        return []
    *others, last = MODELS_OF_TASK[wanted]
    fitting = f"{', '.join(others)} or {last}" if others else last
    message = f"{model.name} is for {task}, and {dataset.name} are for {wanted}: {fitting} is needed"
    return [Problem("model.type", message)]


def _is_ours(component: Component, registry: Registry) -> bool:
    return component.make.__module__.startswith("ignite_hooks.") and component.name in registry


def _criterion(sections: Sections, data: Data, problems: list[Problem]) -> Any:
    if sections.training.criterion is None:
        return CRITERIA.get(CRITERION_OF_TASK.get(data.task or "", "CrossEntropyLoss"))()
    return None if sections.criterion is None else sections.criterion.build(problems=problems, **data.facts())


def _model(component: Component | None, facts: Mapping[str, Any], problems: list[Problem]) -> Any:
    if component is None:
        return None
    needed = [setting.name for setting in describe(component.make).settings if setting.required]
    unknown = [name for name in needed if name in SUPPLIED and name not in facts and name not in component.given]
    for name in unknown:
        problems.append(Problem(f"model.{name}", f"missing: {component.name} needs it, and the data does not say it"))
    model = None if unknown else component.build(problems=problems, **facts)
    if model is not None and not isinstance(model, torch.nn.Module):
        problems.append(Problem("model.type", f"{component.name} makes no torch.nn.Module but {shown(model)}"))
        return None
    return model


def _optimizer_and_scheduler(built: Built, sections: Sections, problems: list[Problem]) -> None:
    weights = [weight for weight in built.model.parameters() if weight.requires_grad]
    if sections.optimizer is not None:
        built.optimizer = sections.optimizer.build(weights, problems=problems)
    if sections.scheduler is not None and built.optimizer is not None:
        length = steps_of_scheduler(sections, built.data)
        lengths = {} if length is None else dict.fromkeys(LENGTHS, length)
        built.scheduler = sections.scheduler.build(built.optimizer, problems=problems, **lengths)


def counts_epochs(sections: Sections) -> bool:
    """Return whether the scheduler takes a step after each epoch, not after each optimizer step."""
    assert sections.scheduler is not None
    wanted = sections.training.scheduler
    said = wanted.get("by_epoch") if isinstance(wanted, Mapping) else None
    return sections.scheduler.name not in PER_ITERATION if said is None else bool(said)


def steps_of_scheduler(sections: Sections, data: Data) -> int | None:
    """Return the number of steps the scheduler takes in the whole run, or None if it is unknown."""
    training = sections.training
    if counts_epochs(sections):
        return training.epochs
    batches = training.epoch_length
    if batches is None and hasattr(data.train, "__len__"):
        batches = -(-len(data.train) // training.batch_size)
    return None if batches is None else max(1, training.epochs * batches // training.grad_accumulation)


def _metric_named(name: str) -> Callable[..., Any]:
    return METRICS.get(name) if name in METRICS else getattr(ignite.metrics, name)


def _compares_classes(metric: Any) -> bool:
    return isinstance(metric, Component) and metric.name in METRICS and metric.name != "loss"


def _metrics(sections: Sections, data: Data, criterion: Any, problems: list[Problem]) -> Callable[[], dict[str, Any]]:
    wanted: Mapping[str, Any]
    if sections.metrics is None:
        usual = METRICS_OF_TASK.get(data.task or "", ("loss",))
        wanted = {name: Component(f"evaluation.metrics.{name}", _metric_named(name)) for name in usual}
    else:
        wanted = sections.metrics
    if data.task == "detection" and "loss" in wanted and sections.metrics is not None:
        message = "a detector returns boxes when it is evaluated, and no loss can be made of them: leave it out"
        problems.append(Problem("evaluation.metrics", message))
        return dict
    if data.task == "regression":
        of_classes = [name for name, each in wanted.items() if _compares_classes(each)]
        for name in of_classes:
            message = "compares classes, and the targets are numbers: MeanAbsoluteError, R2Score ... or loss is needed"
            problems.append(Problem(f"evaluation.metrics.{name}", message))
        wanted = {name: each for name, each in wanted.items() if name not in of_classes}
    if criterion is None:
        # Its problem is reported already, and the loss cannot be measured without it.
        wanted = {name: each for name, each in wanted.items() if name != "loss"}
    known = {**data.facts(), "criterion": criterion}

    def make(problems: list[Problem]) -> dict[str, Any]:
        found = {}
        for name, each in wanted.items():
            made = each.build(problems=problems, **known) if isinstance(each, Component) else copy.deepcopy(each)
            if is_metric(made):
                try:
                    made = make_metric(f"evaluation.metrics.{name}", made, {})
                except ConfigError as error:
                    problems += error.problems
            elif made is not None and not callable(getattr(made, "attach", None)):
                message = f"{type(made).__name__} is no metric: it has no attach, nor update, compute and reset"
                problems.append(Problem(f"evaluation.metrics.{name}", message))
            found[name] = made
        return found

    # Tried once, so that what a metric refuses is reported with everything else.
    make(problems)
    return partial(make, [])
