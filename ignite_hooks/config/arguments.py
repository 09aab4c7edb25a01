"""Check what was passed to ``attach_hooks`` beside the configuration: services, evaluators, the checkpoint."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ignite_hooks.config.read import HookEntry
from ignite_hooks.errors import Problem
from ignite_hooks.measure.loss_source import problem_of_loss
from ignite_hooks.model.parts import parts_of, problem_of_names
from ignite_hooks.run.services import ALWAYS_THERE, KNOWN_SERVICES
from ignite_hooks.text import below, did_you_mean, nearest, shown

ARGUMENTS = ("evaluators", "work_dir", "resume", "replace", "loss", "overrides", "load_from")
"""The other keywords of ``attach_hooks``."""

SYNONYMS = {
    **dict.fromkeys(("net", "network", "module"), "model"),
    **dict.fromkeys(("optim", "opt"), "optimizer"),
    **dict.fromkeys(("lr_scheduler", "lr_sched", "sched"), "scheduler"),
    **dict.fromkeys(("train_dataloader", "train_data_loader", "train_dl", "training_loader"), "train_loader"),
    **dict.fromkeys(("val_dataloader", "val_data_loader", "val_dl", "validation_loader", "eval_loader"), "val_loader"),
    **dict.fromkeys(("valid_dataloader", "validation_dataloader", "eval_dataloader", "dev_loader"), "val_loader"),
    **dict.fromkeys(("test_dataloader", "test_data_loader", "test_dl"), "test_loader"),
    **dict.fromkeys(("loss_fn", "loss_function", "loss_func"), "criterion"),
    **dict.fromkeys(("val_evaluator", "eval_engine"), "evaluators"),
    **dict.fromkeys(("output_dir", "out_dir", "save_dir", "log_dir", "logdir"), "work_dir"),
    **dict.fromkeys(("resume_from", "resume_path", "checkpoint"), "resume"),
}
"""Names that other libraries give to what has a known name here."""

LOADER = "_loader"

NEEDED = {
    "model": ("a torch.nn.Module", ("state_dict",)),
    "optimizer": ("an optimizer of torch", ("param_groups",)),
    "scheduler": ("a scheduler of torch or Ignite", ("step", "get_param", "state_dict", "__call__")),
}
"""What services with known names are, and attributes of which they have at least one."""


def argument_problems(
    services: Mapping[str, Any], engines: Mapping[Any, Any], trainer: object, loss: object = None
) -> list[Problem]:
    """Return what is wrong with the services, evaluators and place of the loss that ``attach_hooks`` was given."""
    from ignite.engine import Engine

    problems = [
        Problem(name, "is a service of every run: choose another name") for name in ALWAYS_THERE if name in services
    ]
    several = {name: problem_of_names(services.get(name)) for name in ("model", "optimizer", "scheduler", "scaler")}
    problems += [Problem(name, problem) for name, problem in several.items() if problem is not None]
    problems += service_problems({name: thing for name, thing in services.items() if several.get(name) is None})
    for name, engine in engines.items():
        place = below("evaluators", name)
        if not isinstance(name, str) or not name.isidentifier():
            problems.append(Problem(place, f"a name of letters, digits and _ is needed, not {shown(name)}"))
        if not isinstance(engine, Engine):
            problems.append(Problem(place, f"an Ignite Engine is needed, not {type(engine).__name__}"))
        elif engine is trainer:
            problems.append(Problem(place, "is the trainer: pass a separate engine to evaluate with"))
        elif sum(engine is other for other in engines.values()) > 1:
            problems.append(Problem(place, "is the engine of another name too: pass a separate engine for each name"))
    if loss is not None and (problem := problem_of_loss(loss)):
        problems.append(Problem("loss", problem))
    return problems


def service_problems(services: Mapping[str, Any]) -> list[Problem]:
    """Return a problem for each model, optimizer and scheduler, or part of several, that is something else.

    Example:
        >>> [str(problem) for problem in service_problems({"model": "resnet"})]
        ["model: a torch.nn.Module is needed, not 'resnet'"]
    """
    problems = []
    for name, (needed, methods) in NEEDED.items():
        given = services.get(name)
        for part, thing in parts_of(given).items():
            place = (below(name, part) if isinstance(given, Mapping) else f"{name}[{part}]") if part else name
            if isinstance(thing, type):
                problems.append(Problem(place, f"{needed} is needed, not the class {thing.__name__}: make one of it"))
            elif not any(hasattr(thing, method) for method in methods):
                problems.append(Problem(place, f"{needed} is needed, not {shown(thing)}"))
    return problems


def misspelt_services(
    services: Mapping[str, Any], hooks: Mapping[str, object], entries: Iterable[HookEntry]
) -> list[Problem]:
    """Return a problem for every service whose name is nearly a known one, unless a hook asks for just this name."""
    meant = {name: known for name in services if (known := known_name(name))}
    if not meant:
        return []
    asked = {word for hook in hooks.values() for word in words_of_hook(hook)}
    asked |= {word for entry in entries for word in _texts(entry.wanted)}
    return [
        Problem(name, f"nothing asks for it, did you mean {known!r}?")
        for name, known in meant.items()
        if name not in asked
    ]


def known_name(name: str) -> str | None:
    """Return the known name that a service was meant to have, or None where it may be the script's own.

    Example:
        >>> known_name("modle"), known_name("val_dataloader"), known_name("evaluator"), known_name("model2")
        ('model', 'val_loader', 'evaluators', None)
    """
    known = (*KNOWN_SERVICES, *ARGUMENTS)
    if name in known:
        return None
    # The common ending makes all names of loaders similar.
    stem = nearest(name.removesuffix(LOADER), ("train", "val", "test"), cutoff=0.75) if name.endswith(LOADER) else None
    near = SYNONYMS.get(name) or (stem and stem + LOADER)
    near = near or (None if name.endswith(LOADER) else nearest(name, known, cutoff=0.8))
    # One of several: `model_g`, `optimizer2`, `val_loader_hard`.
    several = near is not None and name.startswith(near) and not name.removeprefix(near).isalpha()
    one_of = near is not None and name.endswith(f"_{near}") and name not in SYNONYMS
    return None if several or one_of else near


def words_of_hook(hook: object) -> Iterator[str]:
    """Yield every word by which a hook could ask for a service: in its settings, its methods and its functions."""
    yield f"{getattr(hook, 'evaluates', None)}_loader"
    for value in list(getattr(hook, "__dict__", {}).values()):
        yield from _texts(value)
    for cls in type(hook).__mro__:
        # Ours ask only for known names.
        if not cls.__module__.startswith("ignite_hooks."):
            for value in list(vars(cls).values()):
                yield from _texts(value)


def _texts(value: object, depth: int = 4) -> Iterator[str]:
    """Yield the texts in a value; of a function its names and the texts in it."""
    function = getattr(value, "__func__", value)
    if isinstance(value, str):
        yield value.removeprefix("@")
    elif isinstance(function, types.FunctionType):
        yield from _names(function.__code__)
    elif depth and isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item, depth - 1)
    elif depth and isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item, depth - 1)


def _names(code: types.CodeType) -> Iterator[str]:
    yield from (*code.co_varnames, *code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, types.CodeType):
            yield from _names(constant)


WORDS_OF_RESUME = ("auto", "required")


def resume_problems(resume: object, folder: Path, *, is_named: bool = True) -> list[Problem]:
    """Return a problem if a checkpoint that is named does not exist, neither here nor in the work directory.

    Args:
        resume: As for ``attach_hooks``.
        folder: The work directory.
        is_named: Whether the script has named it; else it may be any beside it.
    """
    if not isinstance(resume, (str, Path)) or resume in WORDS_OF_RESUME:
        return []
    if Path(resume).exists() or (folder / resume).exists():
        return []
    if len(Path(resume).parts) == 1 and any((inner / resume).exists() for inner in folder.glob("*/")):
        # A hook may save in a folder of its own there.
        return []
    if not is_named and any((other / resume).exists() for other in folder.parent.glob("*/")):
        return []
    wanted = folder / resume
    there = [path.name for path in wanted.parent.iterdir()] if wanted.parent.is_dir() else []
    hint = did_you_mean(wanted.name, [*there, *WORDS_OF_RESUME]) or ": give the path of a checkpoint, or 'auto'"
    where = "" if Path(resume).is_absolute() else f", neither in {Path.cwd()} nor in {folder}"
    return [Problem("resume", f"there is no checkpoint {shown(str(resume))}{where}{hint}")]
