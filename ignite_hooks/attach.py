"""attach_hooks: start here. It turns a configuration into hooks, a plan, and handlers on an engine."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import ignite.distributed as idist
import torch
from ignite.engine import Engine

from ignite_hooks.checkpoint.save import Checkpoints
from ignite_hooks.config.build import build_all, build_writers, with_metrics_file
from ignite_hooks.config.read import checked_resume, default_set, new_folder, read_config
from ignite_hooks.config.validate import argument_problems
from ignite_hooks.distributed.collectives import broadcast_object, fail_on_all_ranks, is_main_process, world_size
from ignite_hooks.engine.installation import Installation
from ignite_hooks.errors import ConfigError, Problem
from ignite_hooks.hooks.base_hook import Situation
from ignite_hooks.run.logger import LOGGER_NAME
from ignite_hooks.run.runner import Runner
from ignite_hooks.run.services import discover
from ignite_hooks.secrets import MASKING, Masks
from ignite_hooks.store.folder import FolderStore
from ignite_hooks.text import shown
from ignite_hooks.writers.interface import Writer
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
        resume: ``True`` or ``"auto"`` continues from the newest intact checkpoint, a path from that checkpoint.
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
    # If the script created the process group itself, the first call into ignite.distributed is a collective.
    idist.sync()
    services = discover(trainer, services)
    evaluates = services.get("val_loader") is not None
    problems: list[Problem] = []
    defaults = default_set(evaluates=evaluates, distributed=world_size() > 1)
    settings = fail_on_all_ranks(lambda: read_config(cfg, defaults=defaults, problems=problems))
    resume = checked_resume(resume, problems)
    resume = settings.resume if resume is None else resume
    problems += argument_problems(services, engines, trainer)
    folder = Path(
        work_dir or settings.work_dir or broadcast_object(str(new_folder(settings.source, resume)))
    ).absolute()
    situation = Situation(frozenset(engines), frozenset(n for n, thing in services.items() if thing is not None))
    masks = Masks(settings.everything, services.get("config"))
    logging.getLogger(LOGGER_NAME).addFilter(MASKING)

    def build() -> tuple[dict[str, Any], list[Writer]]:
        writers = build_writers(settings, folder, problems) if is_main_process() else []
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
    writer = ManyWriters(with_metrics_file(writers, folder) if is_main_process() else [], masks)
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
    runner.checkpoints.resume_at_start(resume)
    return runner


def _warn_of_old_torch() -> None:
    major, minor = (int(part) for part in torch.__version__.split(".")[:2])
    if (major, minor) < (2, 10):
        warnings.warn(
            f"torch {torch.__version__} has known vulnerabilities in torch.load(weights_only=True): "
            "load only checkpoints you made yourself, or upgrade torch to 2.10",
            stacklevel=3,
        )
