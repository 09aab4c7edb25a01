"""attach_hooks: start here. It turns a configuration into hooks, a plan, and handlers on an engine."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import ignite.distributed as idist
import torch
from ignite.engine import Engine

from ignite_hooks.checkpoint.save import Checkpoints
from ignite_hooks.config.build import build_all
from ignite_hooks.config.describe import describe
from ignite_hooks.config.read import Settings, checked_resume, default_set, read_config
from ignite_hooks.config.validate import validate_settings
from ignite_hooks.distributed.collectives import broadcast_object, fail_on_all_ranks, is_main_process, world_size
from ignite_hooks.engine.installation import Installation
from ignite_hooks.errors import ConfigError, Problem
from ignite_hooks.hooks.base_hook import Situation
from ignite_hooks.registry import WRITERS
from ignite_hooks.run.logger import LOGGER_NAME
from ignite_hooks.run.runner import Runner
from ignite_hooks.run.services import ALWAYS_THERE, discover
from ignite_hooks.secrets import MASKING, Masks
from ignite_hooks.store.folder import FolderStore
from ignite_hooks.text import below, one_line, shown
from ignite_hooks.writers.adapt import adapt
from ignite_hooks.writers.interface import Writer
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
        trainer: Any Ignite engine that trains.
        cfg: A ``.yaml``, ``.json``, ``.toml`` or ``.py`` file, a mapping, a list of hooks, or None: the default hooks.
        evaluators: The engines that evaluate, by name; a single engine gets the name ``val``.
        work_dir: The folder for files; by default the configuration's ``work_dir``, else a new one in ``work_dirs``.
        resume: ``True`` or ``"auto"`` resumes from the newest whole checkpoint, a path from that checkpoint.
        **services: Objects that hooks may ask for by name: ``model``, ``optimizer``, ``val_loader`` and any of yours.

    Returns:
        The runner; ``print(runner.plan)`` shows what will run.

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
    if evaluators is not None and not isinstance(evaluators, (Engine, Mapping)):
        raise TypeError(f"evaluators is an Ignite Engine or a mapping of names to these, not {shown(evaluators)}")
    engines = {"val": evaluators} if isinstance(evaluators, Engine) else dict(evaluators or {})
    # The first call into ignite.distributed is a collective if the process group was made outside of it.
    idist.sync()
    services = discover(trainer, services)
    evaluates = services.get("val_loader") is not None
    problems: list[Problem] = []
    defaults = default_set(evaluates=evaluates, distributed=world_size() > 1)
    settings = fail_on_all_ranks(lambda: read_config(cfg, defaults=defaults, problems=problems))
    resume = checked_resume(resume, problems)
    resume = settings.resume if resume is None else resume
    problems += [*_wrong_services(services), *_wrong_evaluators(engines, trainer)]
    folder = Path(
        work_dir or settings.work_dir or broadcast_object(str(new_folder(settings.source, resume)))
    ).absolute()
    situation = Situation(frozenset(engines), frozenset(n for n, thing in services.items() if thing is not None))
    masks = Masks(settings.everything, services.get("config"))
    logging.getLogger(LOGGER_NAME).addFilter(MASKING)

    def build() -> tuple[dict[str, Any], list[Writer]]:
        writers = _writers(settings, folder, problems) if is_main_process() else []
        hooks, wrong = build_all(settings.entries, {**services, "trainer": trainer}, situation)
        problems.extend(wrong)
        if problems:
            hidden = [Problem(problem.place, masks.text(problem.message)) for problem in problems]
            raise ConfigError(hidden, settings.source)
        return hooks, writers

    hooks, writers = fail_on_all_ranks(build)

    _warn_of_old_torch()
    if settings.seed is not None:
        from ignite.utils import manual_seed

        manual_seed(settings.seed)
    record = JsonlWriter(folder / "metrics.jsonl")
    # This file is always written; a second writer to it would write every line twice.
    others = [
        other
        for other in writers
        if not (isinstance(other, JsonlWriter) and other.path.resolve() == record.path.resolve())
    ]
    writer = ManyWriters([record, *others] if is_main_process() else [], masks)
    services.setdefault("config", dict(settings.everything))
    runner = Runner(trainer, work_dir=folder, writer=writer, services=services)
    runner.checkpoints = Checkpoints(runner, FolderStore)
    runner.masks = masks
    installation = Installation(
        runner, trainer, overhead_budget=settings.overhead_budget, rank_timeout=settings.rank_timeout
    )
    try:
        for name, engine in engines.items():
            installation.add_evaluator(name, engine)
        installation.register_all(hooks.items())
    except BaseException:
        installation.detach()
        raise
    runner.state.resume_from = resume
    return runner


def _wrong_services(services: Mapping[str, Any]) -> list[Problem]:
    return [
        Problem(name, "is a service of every run: choose another name") for name in ALWAYS_THERE if name in services
    ]


def _wrong_evaluators(engines: Mapping[Any, Any], trainer: Engine) -> list[Problem]:
    problems = []
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
    return problems


def _writers(settings: Settings, folder: Path, problems: list[Problem]) -> list[Writer]:
    writers: list[Writer] = []
    for entry in settings.writers:
        try:
            wanted = entry.wanted
            if isinstance(wanted, Mapping):
                wanted = _made_writer(dict(wanted), entry.place, folder, problems)
            if wanted is not None:
                writers.append(adapt(wanted))
        except Exception as error:  # anything that a constructor refuses is a mistake in the configuration
            problems.append(Problem(entry.place, one_line(error)))
    return writers


def _made_writer(given: dict[str, Any], place: str, folder: Path, problems: list[Problem]) -> Any:
    type_ = given.pop("type")
    try:
        cls: Any = WRITERS.get(type_) if isinstance(type_, str) else type_
    except LookupError as error:
        problems.append(Problem(f"{place}.type", str(error.args[0])))
        return None
    if wrong := validate_settings(cls, given, place, hook=False):
        problems += wrong
        return None
    settings = describe(cls).settings
    if any(setting.name == "work_dir" for setting in settings):
        given.setdefault("work_dir", folder)
    for setting in settings:
        takes_path = Path in (setting.annotation, *get_args(setting.annotation))
        if takes_path and isinstance(given.get(setting.name), (str, Path)):
            given[setting.name] = folder / given[setting.name]
    return cls(**given)


def new_folder(source: str, resume: object) -> Path:
    """Return a folder that no run of this configuration has used; to resume, return that of the newest run."""
    stem = Path(source).stem if source else "run"
    root = Path("work_dirs")
    names = [path.name for path in root.iterdir()] if root.is_dir() else []
    used = [1] if stem in names else []
    used += [int(name[len(stem) + 1 :]) for name in names if re.fullmatch(rf"{re.escape(stem)}-[1-9][0-9]*", name)]
    number = max(used, default=0) + (not resume or not used)
    return root / (stem if number == 1 else f"{stem}-{number}")


def _warn_of_old_torch() -> None:
    major, minor = (int(part) for part in torch.__version__.split(".")[:2])
    if (major, minor) < (2, 10):
        warnings.warn(
            f"torch {torch.__version__} has known holes in torch.load(weights_only=True): "
            "load only checkpoints you made yourself, or upgrade torch to 2.10",
            stacklevel=3,
        )
