"""Evaluates on schedule, with the evaluator of the script or with one that the hook builds."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import Ge

from ignite_hooks.checkpoint.delivered import (
    check_file,
    has_best,
    is_file,
    problem_of_choice,
    weights_in_model,
)
from ignite_hooks.checkpoint.find import find_checkpoint
from ignite_hooks.checkpoint.rng_state import preserve_rng
from ignite_hooks.distributed.collectives import (
    all_gather,
    broadcast_object,
    broadcast_tensors,
    rank,
    world_size,
)
from ignite_hooks.distributed.metric_merging import SharedEvaluation
from ignite_hooks.distributed.watchdog import fail_together
from ignite_hooks.errors import ConfigError, MetricError, Problem, SettingError
from ignite_hooks.hooks.base_hook import BaseHook, PriorityLike, Situation, settings
from ignite_hooks.model.parts import each
from ignite_hooks.model.wrapping import is_sharded, unwrapped
from ignite_hooks.plan.priority import AtEnd, Priority
from ignite_hooks.plan.schedule import scheduled
from ignite_hooks.results.better import rule_for
from ignite_hooks.run.ignite_metrics import make_metric, problem_of_metric
from ignite_hooks.run.ranking import fresh_score, is_training_name, main_evaluator
from ignite_hooks.run.services import KNOWN_SERVICES
from ignite_hooks.text import did_you_mean, shown

if TYPE_CHECKING:
    from ignite_hooks.distributed.batch_sharing import SharedLoader
    from ignite_hooks.plan.simulate import PlanSimulation
    from ignite_hooks.run.runner import Runner


@dataclass
class EvalState:
    """The state of this hook: the iteration of the last evaluation, -1 for none."""

    evaluated_at: int = -1


@settings
class EvalHook(BaseHook):
    """Evaluate the model every few epochs or iterations, and at the end.

    In a distributed run each rank evaluates a part of the data, and all ranks have the metrics of the whole: every
    batch is evaluated once and none is padded, so the ranks may have different numbers of batches.

    Args:
        dataloader: Data to evaluate on, or the name of its service; ``<name>_loader`` by default.
        interval: Number of epochs, or iterations, between two evaluations.
        by_epoch: Whether the interval counts epochs.
        start: First epoch or iteration to evaluate.
        save_best: Whether to keep the best score in ``runner.best``.
        metric: Metric whose best score is kept.
        rule: Whether greater (greater, max) or smaller (less, min) is better; auto decides by the name of the metric.
        efficient_test: Whether to free batch and output at the end of an evaluation.
        test_fn: Function of the model and the data that returns a mapping of metrics, instead of an evaluator.
        metrics: Metrics to build if the script has no evaluator, as {name: Accuracy} or {name: {type: Loss, ...}}; or
            objects with ``update(predictions, truth)``, ``compute()`` and ``reset()``, as torchmetrics has them.
        evaluate_at_start: Whether a new run evaluates before its first iteration.
        checkpoint: Which weights are evaluated: those that the run delivers, the best, the last ones, or those of a
            file. By default those in the model; for the name ``test`` those that are delivered, after the end.
        weights: ``raw`` for the raw weights, ``ema`` for the averages of an EMAHook, or the name of one of its further
            averages; by default as that hook says.

    Reads: model, val_loader, criterion.
    Writes: <name>_<metric>, <metric>, best.
    """

    dataloader: Any = None
    interval: Annotated[int, Ge(1)] = 1
    by_epoch: bool = True
    start: Annotated[int, Ge(0)] = 0
    save_best: bool = True
    metric: str = "accuracy"
    rule: Literal["greater", "less", "max", "min", "auto"] = "auto"
    efficient_test: bool = False
    test_fn: Callable[..., Mapping[str, Any]] | None = None
    metrics: Mapping[str, Any] | None = None
    evaluate_at_start: bool = False
    checkpoint: str | None = None
    weights: str | None = None  # type: ignore[assignment]  # it holds none itself
    priority: PriorityLike = Priority.LOW
    state: EvalState = field(init=False, default_factory=EvalState)

    collective: ClassVar[bool] = True
    shard: ClassVar[bool] = True
    broadcast_buffers: ClassVar[bool] = True
    gather: ClassVar[str] = "average"

    def __post_init__(self) -> None:
        self._sharded: SharedLoader | None = None
        self._has_noted_sharing = False
        self._told = ""
        if self.name is not None and not str(self.name).isidentifier():
            raise SettingError("name", f"{self.name!r} begins the names of metrics: use letters, digits and _")

    @property
    def point_priority(self) -> Mapping[str, int]:  # type: ignore[override]  # follows from the settings
        """The place at the end of a run: what is delivered is evaluated after it is there."""
        return {"after_train": AtEnd.TEST if self.tests_delivered else AtEnd.EVALUATE}

    @property
    def tests_delivered(self) -> bool:
        """Whether it evaluates what the run leaves behind, so that it has to wait for the end."""
        return self.checkpoint is not None or self.evaluates == "test"

    @property
    def evaluates(self) -> str:  # type: ignore[override]  # follows from the name
        """The name of the evaluator, which begins the names of its metrics."""
        return self.name or "val"

    def check(self, situation: Situation) -> Iterator[tuple[str, str]]:
        if self.save_best:
            try:
                rule_for(self.metric, self.rule, setting="rule")
            except ValueError as error:
                yield "rule", str(error)
        others = [hook for hook in situation.hooks.values() if hook is not self]
        if any(getattr(hook, "evaluates", None) == self.evaluates for hook in others):
            yield "name", f"another hook evaluates as {self.evaluates!r} too: give one of them another name"
        for name, wanted in (self.metrics or {}).items():
            if problem := problem_of_metric(wanted, situation.services if situation.complete else KNOWN_SERVICES):
                yield f"metrics.{name}", problem
        if not situation.complete:
            return
        if problem_here := problem_of_choice(self.checkpoint, self.weights, situation.hooks):
            yield problem_here
        if self.evaluates in situation.evaluators:
            evaluator = f"the evaluator {self.evaluates!r} passed to attach_hooks()"
            for setting in ("test_fn", "metrics"):
                if getattr(self, setting) is not None:
                    yield setting, f"has no effect on {evaluator}: remove one of the two"
        loader = self._loader_name
        if loader is not None and loader not in situation.services:
            known = [name for name in situation.services if name.endswith("loader")]
            hint = did_you_mean(loader, known) or f": pass {loader}=... to attach_hooks()"
            yield "dataloader", f"there is no service {loader!r}{hint}"
        if loader is None and not isinstance(self.dataloader, Iterable):
            yield "dataloader", f"must be data or the name of a service, not {shown(self.dataloader)}"
        if "model" not in situation.services and self.evaluates not in situation.evaluators:
            yield "", "needs the model, which was not found in the trainer: pass model=... to attach_hooks()"
        if "model" in situation.several and self.test_fn is None and self.evaluates not in situation.evaluators:
            yield (
                "",
                (
                    "cannot tell which of several models to evaluate: pass evaluators={'"
                    + self.evaluates
                    + "': ...} to "
                    "attach_hooks(), or set test_fn to a function of the models and the data"
                ),
            )

    def monitors(self) -> Mapping[str, str]:
        return {self.metric: self.rule} if self.save_best else {}

    def attached(self) -> None:
        runner = self.runner
        if is_file(self.checkpoint):
            check_file(runner, str(self.checkpoint), self.weights, f"{self.name or type(self).__name__}.checkpoint")
        if self.evaluates not in runner.evaluators:
            runner.installation.add_evaluator(self.evaluates, self._make_evaluator(runner))

    @property
    def loader(self) -> Any:
        """The data to evaluate on; None if its service does not exist."""
        return self.dataloader if self._loader_name is None else self.get_service(self._loader_name)

    def before_run(self, runner: Runner) -> None:
        if runner.global_step == 0:
            self.state = EvalState()
        self._told = ""
        if problem := problem_of_choice(self.checkpoint, self.weights, runner.hooks):
            # A hook that was registered later has not been checked.
            raise ConfigError([Problem(f"{self.evaluates}.{problem[0]}", problem[1])])
        if is_file(self.checkpoint):
            # A new run moves the checkpoints of an earlier one aside.
            find_checkpoint(runner, str(self.checkpoint))

    def before_train(self, runner: Runner) -> None:
        """Run the evaluation that a signal prevented before the run was resumed."""
        if self.evaluate_at_start and runner.global_step == 0:
            self._evaluate_when_due(runner)
            return
        step, length, unit = runner.global_step, runner.trainer_state.epoch_length, self.when.unit
        done = runner.trainer_state.epoch if unit == "epoch" else step
        between_epochs = length is not None and (step - runner.state.length_offset) % length == 0
        if self._is_left_to_end(runner):
            return
        possible = step > 0 and (unit == "iter" or (unit == "epoch" and between_epochs))
        if possible and self.when.due(done) and self.state.evaluated_at != step:
            self._evaluate_when_due(runner)

    @scheduled
    def after_train_iter(self, runner: Runner) -> None:
        if not self._is_left_to_end(runner):
            self._evaluate_when_due(runner)

    @scheduled
    def after_train_epoch(self, runner: Runner) -> None:
        if runner.state.epoch_complete and not runner.state.aborting and not self._is_left_to_end(runner):
            self._evaluate_when_due(runner)

    def after_val_epoch(self, runner: Runner) -> None:
        if runner.state.evaluating != self.evaluates or not self.save_best:
            return
        if is_training_name(self.evaluates) and self.given.isdisjoint(("metric", "save_best")):
            # Nothing is ranked by training data unless it was asked for.
            return
        metric = self._published_metric(runner)
        try:
            ranked = fresh_score(runner, metric)
        except MetricError:
            if "metric" in self.given or "save_best" in self.given:
                raise
            return
        if ranked is not None:
            epoch, rule = int(runner.trainer_state.epoch), rule_for(self.metric, self.rule)
            runner.best.offer(ranked.name, ranked.score, step=runner.global_step, epoch=epoch, rule=rule)

    def after_train(self, runner: Runner) -> None:
        done = runner.trainer_state.epoch if self.when.unit == "epoch" else runner.global_step
        has_evaluated = self.state.evaluated_at == runner.global_step
        has_changed = self.tests_delivered and runner.state.delivered is not None
        if (not has_evaluated or has_changed) and done >= self.when.start and not runner.state.aborting:
            self._evaluate_when_due(runner)

    def notes_for_plan(self) -> Mapping[str, str]:
        # Those of a configuration are named, and of Ignite: to explain a file takes no torch.
        objects = {name: one for name, one in (self.metrics or {}).items() if not isinstance(one, str | Mapping)}
        if not objects:
            return {}
        from ignite_hooks.measure.foreign_metrics import notes_on

        words = notes_on(objects)
        return {"writes": words} if words else {}

    def leads_to(self, method: str, simulation: PlanSimulation) -> tuple[str, ...]:
        """Return what a call of this method leads to in a simulated run."""
        kind = "test" if self.evaluates == "test" else "val"
        if method in ("after_train_iter", "after_train_epoch"):
            at_end = simulation.iteration >= simulation.epochs * simulation.iterations
            return () if at_end and self.tests_delivered else (kind,)
        done = simulation.epoch if self.when.unit == "epoch" else simulation.iteration
        at_end = method == "after_train" and not simulation.has_just_evaluated(self) and done >= self.when.start
        return (kind,) if at_end else ()

    def evaluate(self, runner: Runner) -> dict[str, Any]:
        """Run the evaluation now; leave modules in their modes and random generators in their states."""
        import torch

        # Set first: a checkpoint of this step may be saved at the end of the evaluation.
        self.state.evaluated_at = runner.global_step
        engine, loader = runner.evaluators[self.evaluates], self.loader
        if loader is None:
            raise ConfigError([Problem("dataloader", f"there is no service {self._loader_name!r}")])
        modules = [part for one in each(runner.model) if isinstance(one, torch.nn.Module) for part in one.modules()]
        modes = [module.training for module in modules]
        try:
            # FSDP2 needs version counters of gathered tensors, which tensors in inference mode lack.
            without_gradients = torch.no_grad() if is_sharded(runner.model) else torch.inference_mode()
            with preserve_rng(loader), without_gradients, self._shared(runner, engine, loader) as data:
                engine.run([data] if self.test_fn else data)
        finally:
            for module, mode in zip(modules, modes, strict=True):
                module.training = mode
        if self.efficient_test:
            engine.state.batch = engine.state.output = None
        return dict(engine.state.metrics)

    def _evaluate_when_due(self, runner: Runner) -> None:
        """Run an evaluation that a signal may cut short: a resumed run repeats it, with the same random numbers."""
        if self.checkpoint == "best" and not has_best(runner):
            runner.note_once(f"{self.evaluates}: not evaluated, as this run has no best weights yet", logging.WARNING)
            return
        options = runner.evaluation_options
        before, options.repeated = options.repeated, runner.evaluators[self.evaluates]
        try:
            with weights_in_model(runner, self.checkpoint, self.weights) as chosen:
                words = str(chosen)
                if self.tests_delivered and words not in ("the last weights", self._told):
                    self._told = words
                    runner.logger.info("%s: evaluates %s", self.evaluates, words)
                self.evaluate(runner)
        finally:
            options.repeated = before
        if runner.state.aborting:
            self.state.evaluated_at = -1

    def _is_left_to_end(self, runner: Runner) -> bool:
        """Return whether the end of the run is near, at which it evaluates what is delivered."""
        if not self.tests_delivered:
            return False
        state, last = runner.trainer_state, runner.max_iters
        is_last = last is not None and runner.global_step >= last
        in_last_epoch = state.max_epochs is not None and runner.state.epoch_complete and state.epoch >= state.max_epochs
        return is_last or in_last_epoch or runner.stop_reason is not None

    @contextlib.contextmanager
    def _shared(self, runner: Runner, engine: Any, loader: Any) -> Iterator[Any]:
        """Yield the part of the data for this rank; within the context, results are merged over all ranks."""
        if world_size() == 1:
            yield loader
            return
        if self.broadcast_buffers and runner.model is not None:
            broadcast_tensors(list(unwrapped(runner.model).buffers()))
        sharded = self._shard_of(runner, loader)
        if sharded is None:
            yield loader
            return
        data, before = sharded.share_out(), runner.evaluation_options.shared
        from ignite_hooks.distributed.batch_sharing import without_syncs

        # If the weights are sharded, every forward pass needs all ranks.
        extra_step = sharded.extra_step(engine) if is_sharded(runner.model) else None
        shard = sharded.shard
        shared = SharedEvaluation(engine, shard.shortest, counts=bool(shard.mine), extra_step=extra_step)
        if shared.not_merged and not self._has_noted_sharing:
            self._has_noted_sharing = True
            runner.logger.info("metrics that synchronise themselves: %s", ", ".join(shared.not_merged))
        runner.evaluation_options.shared = shared
        try:
            with contextlib.ExitStack() as stack:
                for model in each(runner.model):
                    stack.enter_context(without_syncs(model))
                yield data
        finally:
            runner.evaluation_options.shared = before

    def _shard_of(self, runner: Runner, loader: Any) -> SharedLoader | None:
        if not self.shard or (self.test_fn is not None and self.gather == "first"):
            return None
        from ignite_hooks.distributed.batch_sharing import SharedLoader, why_not_shared

        if reason := why_not_shared(loader):
            if not self._has_noted_sharing:
                self._has_noted_sharing = True
                runner.logger.warning("%s: every rank evaluates all of its data, as %s", self.evaluates, reason)
            return None
        if self._sharded is None or self._sharded.whole is not loader:
            self._sharded = SharedLoader(loader, rank(), world_size())
        return self._sharded

    def _run_test_fn(self, model: Any, loader: Any) -> dict[str, Any]:
        """Return the metrics of ``test_fn``, gathered from all ranks; if it fails on one, raise on all."""
        test_fn, sharded = self.test_fn, self._sharded
        assert test_fn is not None
        if world_size() == 1:
            return dict(test_fn(model, loader))
        if self.gather == "first" or sharded is None or sharded.loader is not loader:
            # All ranks call it, as a sharded model needs all of them; the result of rank 0 counts.
            return dict(broadcast_object(fail_together(lambda: dict(test_fn(model, loader)))))
        samples = sharded.shard.samples
        found = fail_together(lambda: dict(test_fn(model, loader)) if samples else {})
        return weighted_means(all_gather([found, samples]))

    def _published_metric(self, runner: Runner) -> str:
        """Return the name under which this evaluation publishes the metric, such as ``val_hard_accuracy``."""
        own = f"{self.evaluates}_{self.metric}"
        is_main = self.evaluates == main_evaluator(runner.evaluators)
        return own if not is_main and own in runner.metrics else self.metric

    @property
    def _loader_name(self) -> str | None:
        if self.dataloader is None:
            return f"{self.evaluates}_loader"
        return self.dataloader.removeprefix("@") if isinstance(self.dataloader, str) else None

    def _make_evaluator(self, runner: Runner) -> Any:
        from ignite.engine import Engine, create_supervised_evaluator

        from ignite_hooks.model.mapped_batches import call, predicted, prepare_batch

        if self.test_fn is not None:

            def step(engine: Engine, loader: Any) -> None:
                for model in each(runner.model):
                    model.eval()
                engine.state.metrics = self._run_test_fn(runner.model, loader)

            return Engine(step)
        wanted = self.metrics if self.metrics is not None else self._usual_metrics(runner)
        place = f"{self.name or type(self).__name__}.metrics"
        made = {name: make_metric(f"{place}.{name}", metric, runner.services) for name, metric in wanted.items()}
        return create_supervised_evaluator(
            unwrapped(runner.model),
            made,
            device=runner.get_service("device") or _device(runner.model),
            prepare_batch=prepare_batch,
            model_fn=call,
            model_transform=predicted,
        )

    def _usual_metrics(self, runner: Runner) -> dict[str, Any]:
        usual: dict[str, Any] = {"accuracy": "Accuracy"} if self.metric in ("accuracy", "acc", "val_accuracy") else {}
        if runner.get_service("criterion") is not None:
            usual["loss"] = {"type": "Loss", "loss_fn": "criterion"}
        return usual


@settings
class DistEvalHook(EvalHook):
    """Evaluate on all ranks of a distributed run: an EvalHook with settings for the distribution.

    Args:
        dataloader: Data to evaluate on, or the name of its service; ``<name>_loader`` by default.
        interval: Number of epochs, or iterations, between two evaluations.
        by_epoch: Whether the interval counts epochs.
        start: First epoch or iteration to evaluate.
        save_best: Whether to keep the best score in ``runner.best``.
        metric: Metric whose best score is kept.
        rule: Whether greater (greater, max) or smaller (less, min) is better; auto decides by the name of the metric.
        efficient_test: Whether to free batch and output at the end of an evaluation.
        test_fn: Function of the model and the data that returns a mapping of metrics, instead of an evaluator.
        metrics: Metrics to build if the script has no evaluator, as {name: Accuracy} or {name: {type: Loss, ...}}; or
            objects with ``update(predictions, truth)``, ``compute()`` and ``reset()``, as torchmetrics has them.
        evaluate_at_start: Whether a new run evaluates before its first iteration.
        checkpoint: Which weights are evaluated: those that the run delivers, the best, the last ones, or those of a
            file. By default those in the model; for the name ``test`` those that are delivered, after the end.
        weights: ``raw`` for the raw weights, ``ema`` for the averages of an EMAHook, or the name of one of its further
            averages; by default as that hook says.
        shard: Whether to divide the data among the ranks; otherwise each rank uses the loader as it is.
        broadcast_buffers: Whether all ranks evaluate with the buffers of rank 0, such as running means.
        gather: Results of ``test_fn``: average over the ranks by number of samples, or the result of rank 0 (first),
            which then has all of the data.

    Reads: model, val_loader, criterion.
    Writes: <name>_<metric>, <metric>, best.
    """

    shard: bool = True  # type: ignore[misc]
    broadcast_buffers: bool = True  # type: ignore[misc]
    gather: Literal["average", "first"] = "average"  # type: ignore[misc]


def weighted_means(found: list[list[Any]]) -> dict[str, Any]:
    """Return the means of the metrics of all ranks, weighted by their numbers of samples.

    Example:
        >>> weighted_means([[{"accuracy": 1.0}, 3], [{}, 0], [{"accuracy": 0.0}, 1]])
        {'accuracy': 0.75}
    """
    parts = [(metrics, samples) for metrics, samples in found if samples]
    total = sum(samples for _, samples in parts)
    names = parts[0][0] if parts else {}
    return {name: sum(metrics[name] * samples for metrics, samples in parts) / total for name in names}


def _device(model: Any) -> Any:
    first = next(iter(model.parameters()), None)
    return None if first is None else first.device
