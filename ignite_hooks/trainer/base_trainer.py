"""A configuration alone becomes a run. Ignite does the work; what is here is how its parts come together."""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import ignite.distributed as idist
import torch
from ignite.engine import Engine, create_supervised_evaluator, create_supervised_trainer
from ignite.utils import convert_tensor, manual_seed
from torch.utils.data import DataLoader, IterableDataset

from ignite_hooks.attach import attach_hooks
from ignite_hooks.checkpoint.delivered import ChosenWeights, problem_of_choice
from ignite_hooks.config.build import build_all, build_hook
from ignite_hooks.config.build_writers import classes_of_writers
from ignite_hooks.config.connected.connect import Connected, connected_whole, read_or_of_task
from ignite_hooks.config.connected.yaml_text import as_yaml
from ignite_hooks.config.keys import OURS, is_ours
from ignite_hooks.config.outer_form import as_mapping
from ignite_hooks.config.overrides import with_overrides
from ignite_hooks.config.read import default_set, read_config
from ignite_hooks.config.tree import copy_tree
from ignite_hooks.distributed.collectives import fail_on_all_ranks, is_main_process, rank, world_size
from ignite_hooks.errors import ConfigError, Problem
from ignite_hooks.hooks.base_hook import Situation
from ignite_hooks.hooks.training.lambda_hook import LambdaHook
from ignite_hooks.measure.losses import is_number
from ignite_hooks.model.mapped_batches import call, predicted, prepare_batch
from ignite_hooks.model.wrapping import unwrapped
from ignite_hooks.run.logger import SHARED
from ignite_hooks.run.ranking import fresh_score
from ignite_hooks.run.runner import Runner
from ignite_hooks.secrets import Masks
from ignite_hooks.store.claim import NewFolder
from ignite_hooks.text import shown
from ignite_hooks.trainer.build import Built, build, counts_epochs, device_of
from ignite_hooks.trainer.sections import LENGTHS, Sections, is_read, read_sections
from ignite_hooks.writers.trackers.clearml_task import failing_task

CONFIG_FILE = "config.yaml"
"""The configuration that a run was made of, in its work directory."""

SCHEDULER_PRIORITY = 20
"""After losses have been logged with their learning rate, before a checkpoint takes that of the next step."""


class BaseTrainer:
    """Train, validate and test what a configuration describes.

    Args:
        config: A path, or what ``load_config`` has read from it.
        work_dir: Where files go, instead of where the configuration says.
        resume: ``True`` or ``"auto"`` continues from the newest intact checkpoint, if there is one; ``"required"``
            fails if there is none; a path continues from that one.
        overrides: Values that replace those of the configuration, as in ``"hooks.0.interval=10"``.

    Raises:
        ConfigError: With every problem of the configuration, before anything is trained.

    Example:
        >>> import tempfile
        >>> config = {"model": "mlp", "dataset": "digits", "training": {"epochs": 1, "seed": 0}, "hooks": []}
        >>> trainer = BaseTrainer(config, work_dir=tempfile.mkdtemp())
        >>> sorted(trainer.train())
        ['accuracy', 'loss', 'test_accuracy', 'test_loss', 'val_accuracy', 'val_loss']
    """

    is_alone: ClassVar[bool] = False
    """Whether no script holds this trainer, which could add to the run what its configuration lacks."""

    @failing_task()
    def __init__(
        self,
        config: str | Path | Mapping[str, Any],
        *,
        work_dir: str | Path | None = None,
        resume: bool | Literal["auto", "required"] | str | Path | None = None,
        overrides: Sequence[str] = (),
    ) -> None:
        self._source = str(config) if isinstance(config, (str, Path)) else ""
        content = read_or_of_task(self._source) if self._source else copy_tree(as_mapping(config), is_ours)
        if not isinstance(content, dict):
            raise ConfigError([Problem("config", f"a path or a mapping is needed, not {shown(config)}")])
        problems: list[Problem] = []
        content = with_overrides(content, overrides, problems)
        # If the process group was made outside of ignite.distributed, the first call into it is a collective.
        idist.sync()
        content = connected_whole(config, content, problems, is_read)
        self._views = content.views
        self.sections, built = fail_on_all_ranks(lambda: self._read_and_build(content, problems))
        self.config: dict[str, Any] = self.sections.effective
        """The whole configuration, with the defaults that apply."""
        self._loaded = built.loaded
        self.data, self.criterion, self.scheduler = built.data, built.criterion, built.scheduler
        with _quietly():
            self.model: Any = idist.auto_model(built.model) if world_size() > 1 else built.model
            self.optimizer: Any = idist.auto_optim(built.optimizer)
        self.train_loader = self._loader(built.data.train, training=True)
        self.val_loader, self.test_loader = self._loader(built.data.val), self._loader(built.data.test)
        self._predicts_columns = type(unwrapped(self.model)).__module__.startswith("ignite_hooks.")
        self.trainer = self._make_trainer()
        self.evaluators = self._make_evaluators(built)
        self.runner: Runner = self._attach(content, work_dir, resume)
        self.runner.installation.starts_from_file = built.loaded_file
        for hook in self._own_hooks():
            # It follows from the sections of the trainer: a resumed run with another length has nothing to tell.
            hook.derived_settings = ("interval",)
            self.runner.register_hook(hook)
        if (test := self.runner.hooks.get("test")) is not None and self.sections.test is not None:
            problem = problem_of_choice(test.checkpoint, test.weights, self.runner.hooks)
            if problem is not None:
                raise ConfigError([Problem(f"evaluation.test.{problem[0]}", problem[1])], self._source)

    # -- what users call -------------------------------------------------------------------------------------

    def train(self) -> dict[str, float]:
        """Train to the end, and return the last value of every metric that is a number."""
        training = self.sections.training
        # Also where no hook opens a log: what hooks say of the run must reach somebody.
        with self._deterministic(), SHARED.heard() if is_main_process() else contextlib.nullcontext():
            if self._loaded:
                self.runner.note_once(f"starts from {self._loaded}")
            self.trainer.run(self.train_loader, max_epochs=training.epochs, epoch_length=training.epoch_length)
        return {name: float(value) for name, value in self.runner.metrics.items() if is_number(value)}

    def validate(self, name: str = "val") -> dict[str, Any]:
        """Evaluate now, and return what was measured."""
        self._must_evaluate(name)
        with self._deterministic():
            return self.runner.validate(name)

    def test(self, checkpoint: str | Path = "delivered", weights: str | None = None) -> dict[str, Any]:
        """Evaluate the data for the test now, and return what was measured; see `Runner.test`."""
        return self.evaluate_weights("test", checkpoint, weights)[0]

    def evaluate_weights(
        self, name: str, checkpoint: str | Path, weights: str | None
    ) -> tuple[dict[str, Any], ChosenWeights]:
        """Evaluate weights of a run now; return what was measured, and of which weights it is."""
        self._must_evaluate(name)
        with self._deterministic():
            return self.runner.installation.evaluate_weights(name, checkpoint, weights)

    def resume(self, path: str | Path = "auto") -> None:
        """Let ``train`` continue from a checkpoint; ``"auto"`` takes the newest that is whole."""
        self.runner.resume(path)

    def register_hook(self, hook: object, priority: object = None) -> None:
        """Add a hook to those of the configuration."""
        self.runner.register_hook(hook, priority)

    def register_service(self, name: str, thing: Any) -> None:
        """Give hooks a named object."""
        self.runner.register_service(name, thing)

    def __repr__(self) -> str:
        return f"BaseTrainer({type(unwrapped(self.model)).__name__}, {len(self.runner.hooks)} hooks)"

    # -- making the components ----------------------------------------------------------------------------------

    def _read_and_build(self, content: dict[str, Any], problems: list[Problem]) -> tuple[Sections, Built]:
        """Read and build everything that needs no other process; problems of hooks are reported with all others."""
        sections = read_sections(content, problems)
        self.device = device_of(sections.training.device, problems)
        if sections.training.seed is not None:
            # Each process has another seed, so that they do not draw the same random numbers.
            manual_seed(sections.training.seed + rank())
        built = build(sections, self.device, problems)
        if sections.test is not None and built.data is not None and built.data.test is None:
            problems.append(Problem("evaluation.test", "the data set has no part 'test'"))
        if problems:
            masks = Masks(content)
            found = [*problems, *problems_of_hooks({**content, **sections.own_classes}, problems, self.is_alone)]
            raise ConfigError([Problem(place, masks.text(message)) for place, message in found], self._source)
        return sections, built

    def _loader(self, dataset: Any, training: bool = False) -> Any:
        if dataset is None:
            return None
        settings = self.sections.training
        given: dict[str, Any] = {
            "batch_size": settings.batch_size,
            "num_workers": settings.num_workers,
            "persistent_workers": settings.num_workers > 0,
            "collate_fn": self.data.collate,
            "pin_memory": self.device.type == "cuda",
        }
        if not training:
            # Every rank gets all of it: the hook that evaluates shares it out, without padding. A separate generator
            # keeps an additional evaluation from changing the training.
            return DataLoader(dataset, generator=torch.Generator().manual_seed(0), **given)
        if not isinstance(dataset, IterableDataset):
            given["shuffle"] = True
        if world_size() == 1:
            return DataLoader(dataset, **given)
        with _quietly():
            return idist.auto_dataloader(dataset, **given)

    def _make_trainer(self) -> Engine:
        training = self.sections.training
        on_gpu = self.device.type == "cuda"
        if training.clip_grad is not None:
            _clip(self.optimizer, training.clip_grad)
        return create_supervised_trainer(
            self.model,
            self.optimizer,
            self.criterion,
            device=self.device,
            non_blocking=on_gpu,
            prepare_batch=self._prepare,
            model_transform=predicted,
            # A tensor, not a number, which would wait for the device in every iteration.
            output_transform=lambda *reader: reader[-1].detach(),
            amp_mode="amp" if training.amp and on_gpu else None,
            scaler=training.amp and on_gpu,
            gradient_accumulation_steps=training.grad_accumulation,
            model_fn=_call(self.device.type if training.amp and not on_gpu else None),
        )

    def _prepare(self, batch: Any, device: Any, non_blocking: bool) -> tuple[Any, Any]:
        inputs, targets = prepare_batch(batch, device, non_blocking)
        if self.data.task in ("multilabel", "regression") and isinstance(targets, torch.Tensor):
            # Numbers of Python become 64-bit tensors, and a column if there is one for each sample, as predictions are.
            targets = targets.to(torch.get_default_dtype())
            if targets.ndim == 1 and self._predicts_columns:
                targets = targets[:, None]
        return inputs, targets

    def _make_evaluators(self, built: Built) -> dict[str, Engine]:
        training, model = self.sections.training, unwrapped(self.model)
        on_gpu = self.device.type == "cuda"
        return {
            name: create_supervised_evaluator(
                model,
                built.metrics(),
                device=self.device,
                non_blocking=on_gpu,
                prepare_batch=self._prepare,
                model_transform=predicted,
                amp_mode="amp" if training.amp and on_gpu else None,
                model_fn=_call(self.device.type if training.amp and not on_gpu else None),
            )
            for name, loader in (("val", self.val_loader), ("test", self.test_loader))
            if loader is not None and name not in _decided_by_hooks(self.config)
        }

    def _services(self) -> dict[str, Any]:
        seed = self.sections.training.seed
        services = {
            "model": self.model,
            "optimizer": self.optimizer,
            "scheduler": self.scheduler,
            "criterion": self.criterion,
            "train_loader": self.train_loader,
            "val_loader": self.val_loader,
            "test_loader": self.test_loader,
            "device": self.device,
            "class_names": self.data.class_names,
            "config": self.config if seed is None else {**self.config, "seed": seed},
        }
        return {name: thing for name, thing in services.items() if thing is not None}

    def _attach(self, content: dict[str, Any], work_dir: Any, resume: Any) -> Runner:
        ours = {name: value for name, value in content.items() if name in OURS and name != "seed"}
        ours |= self.sections.own_classes
        if not (work_dir or ours.get("work_dir") or ours.get("experiment_dir")):
            work_dir = NewFolder(self._source)
        try:
            return attach_hooks(
                self.trainer,
                Connected(ours, self._views, alone=self.is_alone),
                evaluators=self.evaluators,
                work_dir=work_dir,
                resume=resume,
                **self._services(),
            )
        except ConfigError as error:
            raise ConfigError(error.problems, self._source) from None

    # -- hooks that a trainer adds ------------------------------------------------------------------------------

    def _own_hooks(self) -> Iterator[Any]:
        """Yield hooks that step the scheduler, evaluate and keep the configuration: the plan shows them."""
        evaluated = self._evaluated()
        named = "hooks" in self.config
        if named and self.val_loader is not None and "val" not in evaluated:
            yield build_hook({"type": "EvalHook", "name": "val", "save_best": False})
        if self.test_loader is not None and "test" not in evaluated:
            # At the end but within the run, so that its logs and its report have the results.
            at_end = {"interval": self.sections.training.epochs}
            given = self.sections.test or {}
            at_end = {} if {"interval", "every", "frequency", "by_epoch"} & given.keys() else at_end
            yield build_hook({"type": "EvalHook", "name": "test", "save_best": False, **at_end, **given})
        if self.scheduler is not None:
            yield self._scheduling()
        yield LambdaHook(name="config", before_train=self._keep_config, on_error="warn")

    def _must_evaluate(self, name: str) -> None:
        if name in ("val", "test") and getattr(self.data, name) is None and name not in self._evaluated():
            message = f"the data set has no part {name!r}, and no hook evaluates one of this name"
            raise ConfigError([Problem(name, message)], self._source)

    def _evaluated(self) -> set[str | None]:
        """Return the names of the evaluations that hooks run."""
        return {getattr(hook, "evaluates", None) for hook in self.runner.hooks.values()}

    def _scheduling(self) -> LambdaHook:
        scheduler, wanted = self.scheduler, self.sections.training.scheduler
        common = {
            "name": "scheduler",
            "priority": SCHEDULER_PRIORITY,
            "after_load_checkpoint": _length_updater(scheduler),
        }
        if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
            monitor = wanted.get("monitor", "val_loss") if isinstance(wanted, Mapping) else "val_loss"

            def by_metric(runner: Runner) -> None:
                ranked = fresh_score(runner, monitor) if runner.state.epoch_complete else None
                if ranked is not None:
                    scheduler.step(ranked.score)

            return LambdaHook(after_epoch=by_metric, **common)
        if counts_epochs(self.sections):

            def by_epoch(runner: Runner) -> None:
                if runner.state.epoch_complete:
                    scheduler.step()

            return LambdaHook(after_epoch=by_epoch, **common)
        accumulated = self.sections.training.grad_accumulation

        def by_iteration() -> None:
            scheduler.step()

        return LambdaHook(after_train_iter=by_iteration, interval=accumulated, **common)

    def _keep_config(self, runner: Runner) -> None:
        if is_main_process():
            kept = {**self.config, "work_dir": str(runner.work_dir)}
            kept.pop("experiment_dir", None)
            path = runner.work_dir / CONFIG_FILE
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(as_yaml(runner.masks.tree(kept)), encoding="utf-8")

    @contextlib.contextmanager
    def _deterministic(self) -> Iterator[None]:
        """Use only deterministic algorithms, for as long as the context lasts."""
        if not self.sections.training.deterministic:
            yield
            return
        before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
        benchmark, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, False
        # cuBLAS reads it when it is first used.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
        # It would fill every new tensor, a fifth of an iteration with a small model; no operator of torch reads them.
        memory: Any = torch.utils.deterministic
        fills, memory.fill_uninitialized_memory = memory.fill_uninitialized_memory, False
        try:
            yield
        finally:
            memory.fill_uninitialized_memory = fills
            torch.use_deterministic_algorithms(before[0], warn_only=before[1])
            torch.backends.cudnn.benchmark = benchmark


class CommandTrainer(BaseTrainer):
    """A trainer that only a command holds."""

    is_alone = True


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Silence the lines in which Ignite logs what it was given, for as long as the context lasts."""
    before = logging.root.manager.disable
    logging.disable(max(before, logging.INFO))
    try:
        yield
    finally:
        logging.disable(before)


def problems_of_hooks(content: Mapping[str, Any], known: list[Problem], alone: bool) -> list[Problem]:
    """Return the problems of the hooks, as far as they can be found without a model and data."""
    problems: list[Problem] = []
    ours = {name: value for name, value in content.items() if name in OURS}
    settings = read_config(ours, defaults=default_set(evaluates=True), problems=problems)
    situation = Situation(complete=False, writers=classes_of_writers(settings), alone=alone)
    problems += build_all(settings.entries, {}, situation)[1]
    return [problem for problem in problems if problem not in known]


def _decided_by_hooks(config: Mapping[str, Any]) -> set[str]:
    """Return the evaluations whose metrics are chosen by a hook."""
    defaults = config.get("default_hooks")
    entries = [*(config.get("hooks") or ()), *(config.get("custom_hooks") or ())]
    entries += list(defaults.values()) if isinstance(defaults, Mapping) else []
    named = [entry for entry in entries if isinstance(entry, Mapping)]
    own = [entry for entry in named if entry.get("metrics") is not None or entry.get("test_fn") is not None]
    evaluating = [entry for entry in own if entry.get("type", "EvalHook") in ("EvalHook", "DistEvalHook")]
    return {str(entry.get("name") or "val") for entry in evaluating}


def _clip(optimizer: Any, wanted: float | Mapping[str, float]) -> None:
    """Clip the gradients before every optimizer step: they have been accumulated by then, and unscaled after AMP."""
    how: dict[str, Any] = dict(wanted) if isinstance(wanted, Mapping) else {"max_norm": wanted}

    def clip(optimizer: Any, *_: Any) -> None:
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        torch.nn.utils.clip_grad_norm_(weights, **how)

    optimizer.register_step_pre_hook(clip)


def _length_updater(scheduler: Any) -> Callable[[Runner], None]:
    """Return a function that gives a resumed scheduler the length of this run, not of the one that saved it."""
    known = isinstance(scheduler, torch.optim.lr_scheduler.LRScheduler)
    names = (*LENGTHS, "_schedule_phases") if known else ()
    length = {name: vars(scheduler)[name] for name in names if name in vars(scheduler)}

    def lengthen(runner: Runner) -> None:
        changed = next((name for name in LENGTHS if name in length and length[name] != vars(scheduler)[name]), None)
        if runner.checkpoints.resume_settings == "checkpoint" or changed is None:
            return
        if scheduler.last_epoch > length[changed]:
            return
        before = vars(scheduler)[changed]
        vars(scheduler).update(length)
        # Computed from the initial rate: the last rate may have reached zero.
        one_cycle = isinstance(scheduler, torch.optim.lr_scheduler.OneCycleLR)
        rates_now = scheduler.get_lr if one_cycle else getattr(scheduler, "_get_closed_form_lr", None)
        if rates_now is not None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # about a call outside of `step`
                scheduler._last_lr = rates_now()
            for group, rate in zip(scheduler.optimizer.param_groups, scheduler._last_lr, strict=True):
                group["lr"] = rate
        runner.logger.info("%s of the scheduler: %d -> %d, and its rates with it", changed, before, length[changed])

    return lengthen


def _call(in_bfloat16: str | None) -> Callable[[Any, Any], Any]:
    """Return how to call the model: Ignite offers half precision only with CUDA.

    Args:
        in_bfloat16: The type of the device, if the model is to compute in half precision there.
    """
    if in_bfloat16 is None:
        return call

    def call_in_bfloat16(model: Any, inputs: Any) -> Any:
        with torch.autocast(in_bfloat16, dtype=torch.bfloat16):
            found = predicted(call(model, inputs))
        return convert_tensor(found, device=in_bfloat16) if not isinstance(found, torch.Tensor) else found.float()

    return call_in_bfloat16
