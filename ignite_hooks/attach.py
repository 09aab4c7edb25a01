"""attach_hooks: start here. A configuration becomes hooks, a plan, and handlers on an engine."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import ignite.distributed as idist
import torch
from ignite.engine import Engine

from ignite_hooks.config import Settings, default_set, read_config
from ignite_hooks.discovery import discover
from ignite_hooks.errors import ConfigError, Problem
from ignite_hooks.hooks.base_hook import Situation
from ignite_hooks.hooks.builder import build_all
from ignite_hooks.install import Installation
from ignite_hooks.registry import WRITERS
from ignite_hooks.runner import ALWAYS_THERE, LOGGER_NAME, Runner
from ignite_hooks.settings import check_settings
from ignite_hooks.store.folder import FolderStore
from ignite_hooks.writers.jsonl import JsonlWriter
from ignite_hooks.writers.many import ManyWriters


def attach_hooks(
    trainer: Engine,
    cfg: str | Path | Mapping[str, Any] | Sequence[Any] | None = None,
    *,
    evaluators: Engine | Mapping[str, Engine] | None = None,
    work_dir: str | Path | None = None,
    resume: bool | Literal["auto"] | str | Path | None = None,
    **services: Any,
) -> Runner:
    """Attach configured hooks to an Ignite engine.

    Args:
        trainer: The engine that trains; nothing about it has to be special.
        cfg: A ``.yaml``, ``.json``, ``.toml`` or ``.py`` file, a mapping, a list of hooks, or None for the default hooks.
        evaluators: The engines that evaluate, by name; one engine alone is called ``val``.
        work_dir: Where files go; the configuration's ``work_dir`` otherwise, else a new folder under ``work_dirs``.
        resume: ``True`` or ``"auto"`` goes on from the newest whole checkpoint, a path from that one.
        **services: Objects that hooks may ask for by name: ``model``, ``optimizer``, ``val_loader`` and any of yours.

    Returns:
        The runner: ``print(runner.plan)`` shows what will run.

    Raises:
        ConfigError: With every problem of the configuration, before anything is attached.

    Example:
        >>> import tempfile
        >>> from ignite_hooks.testing import tiny_trainer
        >>> trainer, data = tiny_trainer()
        >>> runner = attach_hooks(
        ...     trainer, [{"type": "CheckpointHook", "save_best": False}], work_dir=tempfile.mkdtemp()
        ... )
        >>> state = trainer.run(data, max_epochs=2)
        >>> sorted(path.name for path in runner.work_dir.glob("*.pth"))
        ['epoch_1.pth', 'epoch_2.pth', 'last.pth']
    """
    if not isinstance(trainer, Engine):
        raise TypeError(f"attach_hooks needs an Ignite Engine to attach to, not {type(trainer).__name__}")
    # The first call into ignite.distributed is a collective where the process group was made outside of it.
    idist.sync()
    engines = {"val": evaluators} if isinstance(evaluators, Engine) else dict(evaluators or {})
    services = discover(trainer, services)
    evaluates = services.get("val_loader") is not None
    settings = read_config(cfg, defaults=default_set(evaluates=evaluates, distributed=idist.get_world_size() > 1))
    problems = [*_wrong_services(services), *_wrong_evaluators(engines, trainer)]
    writers = _writers(settings, problems)
    situation = Situation(frozenset(engines), frozenset(n for n, thing in services.items() if thing is not None))
    hooks, wrong = build_all(settings.entries, {**services, "trainer": trainer}, situation)
    problems += wrong
    if problems:
        raise ConfigError(problems, settings.source)

    _warn_of_old_torch()
    folder = Path(work_dir or settings.work_dir or _new_folder(settings, resume)).absolute()
    if settings.seed is not None:
        from ignite.utils import manual_seed

        manual_seed(settings.seed)
    writer = ManyWriters([JsonlWriter(folder / "metrics.jsonl"), *writers] if idist.get_rank() == 0 else [])
    services.setdefault("config", dict(settings.everything))
    runner = Runner(trainer, work_dir=folder, writer=writer, services=services, store=FolderStore)
    installation = Installation(runner, trainer)
    try:
        for name, engine in engines.items():
            installation.add_evaluator(name, engine)
        for name, hook in hooks.items():
            installation.register(hook, name=name)
    except BaseException:
        installation.detach()
        raise
    installation.resume_from = settings.resume if resume is None else resume
    return runner


def _wrong_services(services: Mapping[str, Any]) -> list[Problem]:
    return [Problem(name, "is a service of every run and cannot be given") for name in ALWAYS_THERE if name in services]


def _wrong_evaluators(engines: Mapping[str, Any], trainer: Engine) -> list[Problem]:
    problems = []
    for name, engine in engines.items():
        if not isinstance(engine, Engine):
            problems.append(Problem(f"evaluators.{name}", f"an Ignite Engine is needed, not {type(engine).__name__}"))
        elif engine is trainer:
            problems.append(Problem(f"evaluators.{name}", "is the trainer: an evaluator is an engine of its own"))
        elif sum(engine is other for other in engines.values()) > 1:
            problems.append(Problem(f"evaluators.{name}", "is the engine of another name too: give each its own"))
    return problems


def _writers(settings: Settings, problems: list[Problem]) -> list[Any]:
    writers = []
    for i, wanted in enumerate(settings.writers):
        if not isinstance(wanted, Mapping):
            writers.append(wanted)
            continue
        given = dict(wanted)
        try:
            cls = WRITERS.get(given.pop("type"))
        except LookupError as error:
            problems.append(Problem(f"writers[{i}].type", str(error.args[0])))
            continue
        wrong = check_settings(cls, given, f"writers[{i}]")
        problems += wrong
        if not wrong:
            writers.append(cls(**given))
    return writers


def _new_folder(settings: Settings, resume: object) -> Path:
    """A folder no run has used; to resume, the one the newest run has used."""
    stem = Path(settings.source).stem if settings.source else "run"
    root = Path("work_dirs")
    used = [1] if (root / stem).exists() else []
    used += [int(n) for path in root.glob(f"{stem}-*") if (n := path.name.removeprefix(f"{stem}-")).isdigit()]
    wants_to_resume = settings.resume if resume is None else resume
    number = max(used, default=0) + (not wants_to_resume or not used)
    return root / (stem if number == 1 else f"{stem}-{number}")


def _warn_of_old_torch() -> None:
    major, minor = (int(part) for part in torch.__version__.split(".")[:2])
    if (major, minor) < (2, 10):
        warnings.warn(
            f"torch {torch.__version__} has known holes in torch.load(weights_only=True): "
            "load only checkpoints you made yourself, or upgrade to 2.10",
            stacklevel=3,
        )


logging.getLogger(LOGGER_NAME).addHandler(logging.NullHandler())
