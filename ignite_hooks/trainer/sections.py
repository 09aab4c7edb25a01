"""Read the sections of a trainer's configuration: find and check the components of a run."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from annotated_types import Ge, Gt

from ignite_hooks.config.keys import OURS
from ignite_hooks.config.validate import validate_settings
from ignite_hooks.errors import Problem
from ignite_hooks.hooks.eval_hook import EvalHook
from ignite_hooks.text import nearest, shown
from ignite_hooks.trainer.components import Component, ComponentReader
from ignite_hooks.trainer.registries import CRITERIA, DATASETS, METRICS, MODELS, OPTIMIZERS, SCHEDULERS
from ignite_hooks.trainer.search_section import read_search

SECTIONS = ("model", "dataset", "training", "evaluation", "imports", "search")
"""The keys at top level that are the trainer's; the others are those of ``attach_hooks``."""


def is_read(key: object) -> bool:
    """Return whether a key at top level is the trainer's or that of ``attach_hooks``, which check what is below it."""
    return key in SECTIONS or key in OURS


NOTHING_SAID = {"model": {"type": "cnn"}, "dataset": {"type": "digits"}}
"""What a configuration of hooks alone is tried out on."""


@dataclass(frozen=True)
class Training:
    """How the model is trained.

    Args:
        epochs: Number of passes over the training data.
        batch_size: Number of samples in one step, over all processes together.
        optimizer: The name of an optimizer, or a mapping with type and its settings.
        scheduler: The name of a scheduler of learning rates, or a mapping with type and its settings.
        criterion: The loss; by default the usual one of the task.
        amp: Whether the model computes in half precision where that is safe: float16 on a GPU, bfloat16 elsewhere.
        grad_accumulation: Number of batches in one optimizer step.
        clip_grad: Largest norm of the gradients of a step, or a mapping of max_norm and norm_type.
        device: Where to train; by default a GPU if there is one.
        seed: Seed of everything that is random.
        deterministic: Whether to use only algorithms that give the same result every time.
        num_workers: Number of processes that load data, besides the one that trains.
        epoch_length: Number of batches in an epoch; by default all of the data.
        load_from: A file of weights to start from as far as they fit, or a mapping of path, strict, weights and rename.
    """

    epochs: Annotated[int, Ge(1)] = 10
    batch_size: Annotated[int, Ge(1)] = 64
    optimizer: Any = field(default_factory=lambda: {"type": "Adam", "lr": 0.001})
    scheduler: Any = None
    criterion: Any = None
    amp: bool = False
    grad_accumulation: Annotated[int, Ge(1)] = 1
    clip_grad: Annotated[float, Gt(0)] | Mapping[str, float] | None = None
    device: str | None = None
    seed: Annotated[int, Ge(0)] | None = None
    deterministic: bool = False
    num_workers: Annotated[int, Ge(0)] = 0
    epoch_length: Annotated[int, Ge(1)] | None = None
    load_from: str | Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Evaluation:
    """How the model is evaluated.

    Args:
        metrics: Names, or a mapping of names to metrics; by default those usual for the task.
        test: Settings of the EvalHook that tests at the end, such as checkpoint, weights or interval.
    """

    metrics: Any = None
    test: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Sections:
    """The components of a run; None stands for one that is wrong, or left to the data."""

    training: Training
    model: Component | None
    dataset: Component | None
    optimizer: Component | None
    scheduler: Component | None
    criterion: Component | None
    metrics: Mapping[str, Any] | None
    test: Mapping[str, Any] | None
    """The settings of the hook that tests at the end; None if nothing is said of it."""
    effective: dict[str, Any]
    """The whole configuration with every default of the training in it."""
    notes: list[str]
    own_classes: dict[str, Any]
    """The lists of hooks and writers in which classes of the user's own are named, with the classes themselves."""


SUPPLIED = ("num_classes", "class_names", "in_channels", "in_features", "image_size")
"""What the data says of itself."""

OWN_OF_SCHEDULER = ("by_epoch", "monitor")
LENGTHS = ("T_max", "total_steps")
"""The settings of schedulers that are the length of the run, in the steps they count."""
PER_ITERATION = ("CyclicLR", "OneCycleLR")
"""The schedulers that count optimizer steps where a configuration does not say what they count."""


def read_sections(
    content: Mapping[str, Any], problems: list[Problem], reader: ComponentReader | None = None
) -> Sections:
    """Read the sections of a trainer; the hooks are left to ``attach_hooks``.

    Args:
        content: The configuration.
        problems: The list to which everything that is wrong is added.
        reader: Finds the components; by default it imports them.
    """
    content = dict(content)
    notes = _check_keys(content, problems)
    if not {"model", "dataset"} & set(content):
        content |= copy.deepcopy(NOTHING_SAID)
        notes.append("the configuration names neither model nor dataset: a cnn learns the digits")
    reader = ComponentReader(content.get("imports"), problems) if reader is None else reader
    training = _section(Training, content, "training", problems)
    training = _with_seed(training, content, problems)
    evaluation = _section(Evaluation, content, "evaluation", problems)
    if content.get("search") is not None:
        read_search(content["search"], problems)
    test = _test(evaluation.test, content, problems)
    for name in ("model", "dataset"):
        if content.get(name) is None:
            problems.append(Problem(name, f"missing: a trainer needs it, as {name}: {NOTHING_SAID[name]['type']}"))
    model = content.get("model") and reader.read(MODELS, content["model"], "model", SUPPLIED)
    dataset = content.get("dataset") and reader.read(DATASETS, content["dataset"], "dataset")
    optimizer = reader.read(OPTIMIZERS, training.optimizer, "training.optimizer", ("params",))
    scheduler = criterion = None
    if training.scheduler is not None:
        supplied = ("optimizer", *LENGTHS)
        place = "training.scheduler"
        scheduler = reader.read(SCHEDULERS, training.scheduler, place, supplied, OWN_OF_SCHEDULER)
        problems += _wrong_of_scheduler(training.scheduler)
    if training.criterion is not None:
        criterion = reader.read(CRITERIA, training.criterion, "training.criterion", SUPPLIED)
    problems += _wrong_clip(training.clip_grad)
    if training.load_from is not None and content.get("load_from") is not None:
        problems.append(Problem("load_from", "training.load_from says it too: give one of them"))
    effective = {**content, "training": asdict(training)}
    effective = {name: value for name, value in effective.items() if value is not None and name != "seed"}
    metrics = _metrics(evaluation.metrics, reader, problems)
    own = _own_classes(content, reader)
    return Sections(training, model, dataset, optimizer, scheduler, criterion, metrics, test, effective, notes, own)


def _test(given: Mapping[str, Any] | None, content: Mapping[str, Any], problems: list[Problem]) -> Any:
    """Check the settings of the hook that tests at the end; return those that are right."""
    if given is None:
        return None
    place = "evaluation.test"
    wrong = validate_settings(EvalHook, given, place)
    if "name" in given:
        wrong = [*wrong, Problem(f"{place}.name", "it is 'test': leave it out")]
    defaults = content.get("default_hooks")
    entries = [*(content.get("hooks") or ()), *(content.get("custom_hooks") or ())]
    entries += list(defaults.values()) if isinstance(defaults, Mapping) else []
    if any(isinstance(entry, Mapping) and entry.get("name") == "test" for entry in entries):
        wrong = [*wrong, Problem(place, "a hook of the configuration is named 'test': give it these settings")]
    problems += wrong
    return None if wrong else given


def _own_classes(content: Mapping[str, Any], reader: ComponentReader) -> dict[str, Any]:
    """Return the entries of hooks and writers with the class in place of ``package.module:Name``."""
    found: dict[str, Any] = {}
    for section in ("hooks", "default_hooks", "custom_hooks", "writers", "writer"):
        entries = content.get(section)
        if isinstance(entries, Mapping) and section == "default_hooks":
            found[section] = {n: _own_class(e, f"{section}.{n}", reader) for n, e in entries.items()}
        elif isinstance(entries, list):
            found[section] = [_own_class(entry, f"{section}[{i}]", reader) for i, entry in enumerate(entries)]
    return {section: entries for section, entries in found.items() if entries != content[section]}


def _own_class(entry: Any, place: str, reader: ComponentReader) -> Any:
    type_ = entry.get("type") if isinstance(entry, Mapping) else entry
    if not isinstance(type_, str) or ":" not in type_:
        return entry
    cls = reader.own(type_, f"{place}.type")
    return entry if cls is None else {**(entry if isinstance(entry, Mapping) else {}), "type": cls}


def _check_keys(content: Mapping[str, Any], problems: list[Problem]) -> list[str]:
    """Report keys that are nearly the name of a section; return notes on the other unknown keys."""
    notes = []
    for key in content:
        if key in OURS or key in SECTIONS:
            continue
        if meant := nearest(key, SECTIONS, cutoff=0.7):
            problems.append(Problem(str(key), f"not a section of a trainer, did you mean {meant!r}?"))
        elif meant := nearest(key, OURS, cutoff=0.8):
            problems.append(Problem(str(key), f"not a key of ours, did you mean {meant!r}?"))
        else:
            notes.append(f"{key}: nothing of ours reads it")
    return notes


def _section(cls: Any, content: Mapping[str, Any], place: str, problems: list[Problem]) -> Any:
    given = content.get(place)
    if given is None:
        return cls()
    if not isinstance(given, Mapping):
        problems.append(Problem(place, f"a mapping is needed, not {shown(given)}"))
        return cls()
    wrong = validate_settings(cls, given, place, hook=False)
    problems += wrong
    fields = cls.__dataclass_fields__
    bad = {problem.place for problem in wrong}
    return cls(**{name: value for name, value in given.items() if name in fields and f"{place}.{name}" not in bad})


def _with_seed(training: Training, content: Mapping[str, Any], problems: list[Problem]) -> Training:
    """Take ``seed`` from top level too, as ``attach_hooks`` does, which also checks it."""
    seed = content.get("seed")
    if not isinstance(seed, int) or isinstance(seed, bool):
        return training
    if training.seed not in (None, seed):
        problems.append(Problem("seed", f"training.seed says {training.seed}: give one of them"))
    return Training(**{**vars(training), "seed": seed})


def _wrong_of_scheduler(wanted: Any) -> Iterator[Problem]:
    if not isinstance(wanted, Mapping):
        return
    if not isinstance(wanted.get("by_epoch", True), bool):
        yield Problem("training.scheduler.by_epoch", f"true or false is needed, not {shown(wanted['by_epoch'])}")
    if not isinstance(wanted.get("monitor", ""), str):
        yield Problem("training.scheduler.monitor", f"the name of a metric is needed, not {shown(wanted['monitor'])}")


def _wrong_clip(clip: Any) -> Iterator[Problem]:
    for name in clip if isinstance(clip, Mapping) else ():
        if name not in ("max_norm", "norm_type"):
            yield Problem(f"training.clip_grad.{name}", "not a setting of it; there are max_norm, norm_type")
    if isinstance(clip, Mapping) and "max_norm" not in clip:
        yield Problem("training.clip_grad.max_norm", "missing: the largest norm that is allowed")


def _measures(thing: Any) -> bool:
    from ignite_hooks.measure.foreign_metrics import is_metric

    return callable(getattr(thing, "attach", None)) or is_metric(thing)


def _metrics(wanted: Any, reader: ComponentReader, problems: list[Problem]) -> dict[str, Any] | None:
    """Read metrics by the names under which they are published: components, or ready objects."""
    if wanted is None:
        return None
    if isinstance(wanted, str):
        wanted = [wanted]
    if isinstance(wanted, list):
        named: dict[str, tuple[str, Any]] = {}
        for i, each in enumerate(wanted):
            place = f"evaluation.metrics[{i}]"
            type_ = each.get("type") if isinstance(each, Mapping) else each
            name = type_ if isinstance(type_, str) else type(each).__name__
            if name in named:
                problems.append(Problem(place, f"{name!r} is there twice: write a mapping of names to metrics"))
            named[name] = (place, each)
    elif isinstance(wanted, Mapping):
        named = {str(name): (f"evaluation.metrics.{name}", each) for name, each in wanted.items()}
    else:
        problems.append(Problem("evaluation.metrics", f"a list or a mapping of metrics is needed, not {shown(wanted)}"))
        return None
    found = {}
    for name, (place, each) in named.items():
        if not isinstance(each, (str, Mapping, type)) and _measures(each):
            found[name] = each
        elif (component := reader.read(METRICS, reader.of_ignite(each), place, (*SUPPLIED, "criterion"))) is not None:
            found[name] = component
    return found
