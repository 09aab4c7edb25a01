"""attach_hooks: start here. It turns a configuration into hooks, a plan, and handlers on an engine."""

from __future__ import annotations

import inspect
import logging
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any, Literal

import ignite.distributed as idist
import torch
from ignite.engine import Engine

from ignite_hooks.checkpoint.save import Checkpoints
from ignite_hooks.config.arguments import argument_problems, misspelt_services, resume_problems
from ignite_hooks.config.build import accept, build_all
from ignite_hooks.config.build_writers import build_writers, classes_of_writers, with_metrics_file
from ignite_hooks.config.connected.again import place_of_task
from ignite_hooks.config.connected.connect import already_connected, connected_with_task
from ignite_hooks.config.keys import OURS, is_ours
from ignite_hooks.config.outer_form import say_unread
from ignite_hooks.config.read import (
    Settings,
    checked_folder,
    checked_resume,
    default_set,
    read_config,
    with_schedule_free,
)
from ignite_hooks.config.signals import unsaved_signals
from ignite_hooks.config.starting_weights import LoadFrom, read_load_from
from ignite_hooks.distributed.collectives import broadcast_object, fail_on_all_ranks, is_main_process, world_size
from ignite_hooks.engine.attachments import EarlierRunners, runner_of
from ignite_hooks.engine.installation import Installation
from ignite_hooks.errors import CheckpointError, ConfigError, Problem
from ignite_hooks.hooks.base_hook import Situation
from ignite_hooks.model.parts import is_several
from ignite_hooks.model.wrapping import signature_of
from ignite_hooks.run.logger import LOGGER_NAME, warnings_on_screen
from ignite_hooks.run.runner import Runner
from ignite_hooks.run.services import discover
from ignite_hooks.secrets import MASKING, Masks
from ignite_hooks.store.claim import NewFolder, RunFolder
from ignite_hooks.store.folder import FolderStore
from ignite_hooks.terminal import in_notebook
from ignite_hooks.text import shown
from ignite_hooks.writers.interface import Writer
from ignite_hooks.writers.jsonl import JsonlWriter
from ignite_hooks.writers.many import ManyWriters
from ignite_hooks.writers.trackers.clearml_task import failing_task, under_agent


@failing_task()
@warnings_on_screen()
def attach_hooks(
    trainer: Engine,
    cfg: str | Path | Mapping[str, Any] | Sequence[Any] | None = None,
    *,
    evaluators: Engine | Mapping[str, Engine] | None = None,
    work_dir: str | Path | None = None,
    resume: bool | Literal["auto", "required"] | str | Path | None = None,
    replace: bool | None = None,
    loss: int | str | Callable[[Any], Any] | None = None,
    overrides: Sequence[str] = (),
    load_from: str | Path | Mapping[str, Any] | None = None,
    **services: Any,
) -> Runner:
    """Attach configured hooks to an Ignite engine.

    Args:
        trainer: Any Ignite engine that trains.
        cfg: A ``.yaml``, ``.json``, ``.toml`` or ``.py`` file, a mapping, a list of hooks, or None: the default hooks.
        evaluators: The engines that evaluate, by name; a single engine gets the name ``val``.
        work_dir: The folder for files; by default the configuration's ``work_dir``, else a new one in ``work_dirs``.
        resume: ``True`` or ``"auto"`` continues from the newest intact checkpoint, if there is one; ``"required"``
            fails if there is none; a path continues from that checkpoint.
        replace: Whether to detach the runner that these engines have already, if it is not running; by default only in
            a notebook or another IPython shell, where cells are run again.
        loss: Where the loss is in what a training step returns: an index, a key, or a function of it; by default it is
            what is returned, or ``loss`` in a mapping.
        overrides: Values that replace those of the configuration, as in ``["hooks.0.interval=5"]``.
        load_from: A file of weights to start from as far as they fit, of ours or of another library, or a mapping of
            path, strict, weights (raw or ema) and rename. A checkpoint that the run resumes from replaces them.
        **services: Objects that hooks may ask for by name: ``model``, ``optimizer``, ``val_loader`` and any of yours.
            Several models, optimizers, schedulers or scalers are a mapping, as in ``{"g": ..., "d": ...}``, or a list.

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
    defaults = default_set(evaluates=evaluates, distributed=world_size() > 1, notebook=in_notebook())
    connected = already_connected(cfg)
    given_cfg = cfg if connected is None else connected

    def read(content: Any, values: Sequence[str]) -> Settings:
        return fail_on_all_ranks(lambda: read_config(content, defaults=defaults, problems=problems, overrides=values))

    settings = read(given_cfg, overrides)
    if connected is None:
        connected = connected_with_task(dict(settings.everything), problems, keys=OURS, is_checked=is_ours)
        if connected.of_task:
            settings = replaced(read(connected, ()), source=settings.source)
    settings = replaced(settings, entries=with_schedule_free(settings.entries, services.get("optimizer")))
    resume = checked_resume(resume, problems)
    resume = settings.resume if resume is None else resume
    problems += argument_problems(services, engines, trainer, loss)
    weights = settings.load_from if load_from is None else read_load_from(load_from, problems)
    if weights is not None and services.get("model") is None:
        problems.append(Problem("load_from", "there is no model to load into: pass model=... to attach_hooks()"))
    starts_from = ""
    wanted: Any = work_dir  # a trainer of ours passes the new folder that it has chosen
    anew = wanted if isinstance(wanted, NewFolder) else NewFolder(settings.source)
    named_folder: Any = checked_folder(None if wanted is anew else wanted or None, problems) or settings.work_dir
    if connected.views is not None and under_agent():
        named_folder, resume = place_of_task(named_folder, anew.stem, resume)
    place = RunFolder(
        named_folder or anew,
        resume,
        signature_of(services.get("model")),
        weakref.ref(trainer),
    )
    earlier = EarlierRunners(trainer, engines, replace)
    given = frozenset(n for n, thing in services.items() if thing is not None)
    situation = Situation(
        frozenset(engines),
        given,
        several=frozenset(filter(lambda n: is_several(services[n]), given)),
        writers=classes_of_writers(settings),
        alone=connected.alone,
    )
    problems += resume_problems(resume, place.path, is_named=place.is_named) if is_main_process() else []
    masks = Masks(settings.everything, services.get("config"))
    logging.getLogger(LOGGER_NAME).addFilter(MASKING)

    def build() -> tuple[dict[str, Any], list[Writer]]:
        hooks, wrong = build_all(settings.entries, {**services, "trainer": trainer}, situation)
        named = misspelt_services(services, hooks, (*settings.entries, *settings.writers))
        wrong = [*wrong, *named, *unsaved_signals(settings.signals, hooks.values()), *earlier.problems(hooks)]
        if is_main_process() and not problems and not wrong:
            earlier.hand_on()
            place.take()
        writers = build_writers(settings, place.path, problems, connected.views) if is_main_process() else []
        problems.extend(wrong)
        if problems:
            hidden = [Problem(problem.place, masks.text(problem.message)) for problem in problems]
            raise ConfigError(hidden, settings.source)
        if weights is not None:
            nonlocal starts_from
            starts_from = _load(services["model"], weights, settings.source)
        return hooks, writers

    with place.given_back_on_error():
        hooks, writers = fail_on_all_ranks(build)
    earlier.detach()
    say_unread(settings.everything)
    folder = place.path if place.is_named else Path(broadcast_object(str(place.path)))

    _warn_of_old_torch()
    if settings.seed is not None:
        from ignite.utils import manual_seed

        manual_seed(settings.seed)
    writer = ManyWriters(with_metrics_file(writers, folder) if is_main_process() else [], masks)
    services.setdefault("config", dict(settings.everything))
    runner = Runner(trainer, work_dir=folder, writer=writer, services=services)
    runner.checkpoints = Checkpoints(runner, FolderStore, settings.resume_settings)
    runner.masks, runner.claim, runner.connected = masks, place.claim, connected.views
    runner.loss_source.choose(loss)
    installation = Installation(
        runner,
        trainer,
        accept,
        overhead_budget=settings.overhead_budget,
        rank_timeout=settings.rank_timeout,
        signals=settings.signals,
        requeue=settings.requeue,
    )
    installation.starts_from, installation.starts_from_file = starts_from, None if weights is None else weights.file
    try:
        for name, engine in engines.items():
            installation.add_evaluator(name, engine)
        installation.register_all(hooks.items(), are_checked=True)
    except BaseException:
        installation.detach()
        raise
    runner.checkpoints.resume_at_start(resume)
    return runner


def _load(model: Any, weights: LoadFrom, source: str) -> str:
    """Load the weights that the training starts from, all that fit or none, and return in words which they are."""
    from ignite_hooks.checkpoint.load_from import load_from

    if is_several(model):
        raise ConfigError(
            [Problem("load_from", "there are several models: load the weights of each in the script")], source
        )
    try:
        return load_from(model, weights.file, **weights.how)
    except CheckpointError as error:
        raise ConfigError([Problem("load_from", str(error))], source) from error


def attach_hook(engine: Engine, hook: object, services: Mapping[str, Any]) -> Runner:
    """Attach one hook: to the runner that is on this engine, else to a new one with this hook alone.

    Args:
        engine: The engine.
        hook: The hook.
        services: What `attach_hooks` takes by name; a runner that is there already takes objects that it lacks.
    """
    runner = runner_of(engine)
    if runner is None:
        runner = attach_hooks(engine, [hook], **services)
        if services.get("work_dir") is None:
            # Numbers go to a file where a whole run is configured, or its folder is named.
            runner.writer.leave_out(JsonlWriter)
        return runner
    settled = sorted(inspect.signature(attach_hooks).parameters.keys() & services.keys())
    settled += [name for name, thing in services.items() if runner.get_service(name, thing) is not thing]
    if settled:
        raise ConfigError(
            f"these engines have a runner already, with another {settled[0]}: leave it out to join that runner"
        )
    known = runner.services
    for name in services.keys() - known.keys():
        runner.register_service(name, services[name])
    runner.register_hook(hook)
    return runner


def _warn_of_old_torch() -> None:
    major, minor = (int(part) for part in torch.__version__.split(".")[:2])
    if (major, minor) < (2, 10):
        warnings.warn(
            f"torch {torch.__version__} has known vulnerabilities in torch.load(weights_only=True): "
            "load only checkpoints you made yourself, or upgrade torch to 2.10",
            stacklevel=3,
        )
