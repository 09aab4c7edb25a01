"""Evaluates on schedule, with the script's evaluator or one of its own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge

from ignite_hooks.checkpoint import is_sharded
from ignite_hooks.errors import ConfigError, MetricError, Problem, did_you_mean, shown
from ignite_hooks.hooks.base_hook import BaseHook, PriorityLike, Situation, settings
from ignite_hooks.improvement import rule_for
from ignite_hooks.points import Priority
from ignite_hooks.runner import KNOWN_SERVICES
from ignite_hooks.schedule import scheduled
from ignite_hooks.store.snapshot import random_state, set_random_state

if TYPE_CHECKING:
    from ignite_hooks.plan import Foreseen
    from ignite_hooks.runner import Runner


@dataclass
class Progress:
    """What this hook remembers."""

    evaluated_at: int = -1


@settings
class EvalHook(BaseHook):
    """Evaluate the model every few epochs or iterations, and at the end.

    Args:
        dataloader: The data, or the name of the service that has it; ``<name>_loader`` by default.
        interval: How many epochs, or iterations, lie between two evaluations.
        by_epoch: Whether the interval counts epochs.
        start: The first epoch or iteration that is evaluated.
        save_best: Whether the best score is kept in ``runner.best``.
        metric: The metric that decides which is best.
        rule: Whether more (greater, max) or less (less, min) is better; auto goes by the name of the metric.
        efficient_test: Whether batch and output are let go at the end of an evaluation.
        test_fn: A function of the model and the data that returns a mapping of metrics, instead of an evaluator.
        metrics: What to measure where the script has no evaluator, as {name: Accuracy} or {name: {type: Loss, ...}}.

    Reads: model, val_loader, criterion.
    Writes: <name>_<metric>, <metric>, best.
    """

    dataloader: Any = None
    interval: Annotated[int, Ge(1)] = 1
    by_epoch: bool = True
    start: Annotated[int, Ge(0)] = 0
    save_best: bool = True
    metric: str = "accuracy"
    rule: Literal["greater", "less", "max", "min", "auto"] = "greater"
    efficient_test: bool = False
    test_fn: Callable[..., Mapping[str, Any]] | None = None
    metrics: Mapping[str, Any] | None = None
    priority: PriorityLike = Priority.LOW
    state: Progress = field(init=False, default_factory=Progress)

    def __post_init__(self) -> None:
        if "rule" not in self.given and "metric" in self.given:
            self.rule = "auto"
        if self.name is not None and not str(self.name).isidentifier():
            raise ValueError(f"name: {self.name!r} begins the names of metrics: use letters, digits and _")

    @property
    def evaluates(self) -> str:
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
            if problem := wrong_metric(wanted, situation.services if situation.complete else KNOWN_SERVICES):
                yield f"metrics.{name}", problem
        if not situation.complete:
            return
        if self.evaluates in situation.evaluators:
            for setting in ("test_fn", "metrics"):
                if getattr(self, setting) is not None:
                    yield setting, f"attach_hooks was given the evaluator {self.evaluates!r}, which decides this itself"
        loader = self._loader_name
        if loader is not None and loader not in situation.services:
            known = [name for name in situation.services if name.endswith("loader")]
            hint = did_you_mean(loader, known) or f": give attach_hooks {loader}=..."
            yield "dataloader", f"there is no service {loader!r}{hint}"
        if loader is None and not isinstance(self.dataloader, Iterable):
            yield "dataloader", f"data or the name of a service is needed, not {shown(self.dataloader)}"
        if "model" not in situation.services and self.evaluates not in situation.evaluators:
            yield "", "needs the model, which could not be found in the trainer: give attach_hooks model=..."

    def monitors(self) -> Mapping[str, str]:
        return {self.metric: self.rule} if self.save_best else {}

    def attached(self) -> None:
        runner = self.runner
        if self.evaluates not in runner.evaluators:
            runner.add_evaluator(self.evaluates, self._make_evaluator(runner))

    @property
    def loader(self) -> Any:
        """The data; None where the service it is to come from does not exist."""
        return self.dataloader if self._loader_name is None else self.get_service(self._loader_name)

    def before_run(self, runner: Runner) -> None:
        if runner.global_step == 0:
            self.state = Progress()

    def before_train(self, runner: Runner) -> None:
        """Make up for the evaluation that a signal prevented before the run was resumed."""
        step, length, unit = runner.global_step, runner.epoch_length, self.when.unit
        done = runner.trainer.state.epoch if unit == "epoch" else step
        between_epochs = length is not None and step % length == 0
        possible = step > 0 and (unit == "iter" or (unit == "epoch" and between_epochs))
        if possible and self.when.due(done) and self.state.evaluated_at != step:
            self.evaluate(runner)

    @scheduled
    def after_train_iter(self, runner: Runner) -> None:
        self.evaluate(runner)

    @scheduled
    def after_train_epoch(self, runner: Runner) -> None:
        if runner.epoch_complete and not runner.aborting:
            self.evaluate(runner)

    def after_val_epoch(self, runner: Runner) -> None:
        if runner.evaluating != self.evaluates or not self.save_best:
            return
        metric = self._published_metric(runner)
        try:
            score = runner.fresh(metric)
        except MetricError:
            if "metric" in self.given or "save_best" in self.given:
                raise
            return
        if score is not None:
            epoch, rule = int(runner.trainer.state.epoch), rule_for(self.metric, self.rule)
            runner.best.offer(metric, score, step=runner.global_step, epoch=epoch, rule=rule)

    def after_train(self, runner: Runner) -> None:
        done = runner.trainer.state.epoch if self.when.unit == "epoch" else runner.global_step
        if self.state.evaluated_at != runner.global_step and done >= self.when.start and not runner.aborting:
            self.evaluate(runner)

    def foreseen(self, method: str, run: Foreseen) -> tuple[str, ...]:
        """The points that a call will lead to."""
        kind = "test" if self.evaluates == "test" else "val"
        if method in ("after_train_iter", "after_train_epoch"):
            return (kind,)
        done = run.epoch if self.when.unit == "epoch" else run.iteration
        at_end = method == "after_train" and not run.has_just_evaluated(self) and done >= self.when.start
        return (kind,) if at_end else ()

    def evaluate(self, runner: Runner) -> dict[str, Any]:
        """Run the evaluation now; modes of the model's modules are as before afterwards."""
        import torch

        # Set first: a checkpoint of this very step is saved while the evaluation ends.
        self.state.evaluated_at = runner.global_step
        engine, loader = runner.evaluators[self.evaluates], self.loader
        if loader is None:
            raise ConfigError([Problem("dataloader", f"there is no service {self._loader_name!r}")])
        modules = list(runner.model.modules()) if isinstance(runner.model, torch.nn.Module) else []
        modes = [module.training for module in modules]
        random_before = random_state()
        try:
            # FSDP2 counts the versions of what it gathers, which tensors of inference mode do not have.
            with torch.no_grad() if is_sharded(runner.model) else torch.inference_mode():
                engine.run([loader] if self.test_fn else loader)
        finally:
            for module, mode in zip(modules, modes, strict=True):
                module.training = mode
        if runner.aborting:
            # Perhaps cut short: it is done again, with the same random numbers, when the run is resumed.
            self.state.evaluated_at = -1
            set_random_state(random_before)
        if self.efficient_test:
            engine.state.batch = engine.state.output = None
        return dict(engine.state.metrics)

    def _published_metric(self, runner: Runner) -> str:
        """The name that this evaluation gave the metric: ``accuracy`` of ``val_hard`` is ``val_hard_accuracy``."""
        first = next(name for name in runner.evaluators if name != "test")
        own = f"{self.evaluates}_{self.metric}"
        return own if self.evaluates != first and own in runner.metrics else self.metric

    @property
    def _loader_name(self) -> str | None:
        if self.dataloader is None:
            return f"{self.evaluates}_loader"
        return self.dataloader.removeprefix("@") if isinstance(self.dataloader, str) else None

    def _make_evaluator(self, runner: Runner) -> Any:
        from ignite.engine import Engine, create_supervised_evaluator

        if self.test_fn is not None:
            test_fn = self.test_fn

            def step(engine: Engine, loader: Any) -> None:
                runner.model.eval()
                engine.state.metrics = dict(test_fn(runner.model, loader))

            return Engine(step)
        wanted = self.metrics if self.metrics is not None else self._usual_metrics(runner)
        place = f"{self.name or type(self).__name__}.metrics"
        made = {name: make_metric(f"{place}.{name}", metric, runner.services) for name, metric in wanted.items()}
        return create_supervised_evaluator(
            runner.model, made, device=runner.get_service("device") or _device(runner.model)
        )

    def _usual_metrics(self, runner: Runner) -> dict[str, Any]:
        usual: dict[str, Any] = {"accuracy": "Accuracy"} if self.metric in ("accuracy", "acc", "val_accuracy") else {}
        if runner.get_service("criterion") is not None:
            usual["loss"] = {"type": "Loss", "loss_fn": "criterion"}
        return usual


def wrong_metric(wanted: Any, services: Collection[str]) -> str | None:
    """Why nothing can be measured with this entry of ``metrics``, or None."""
    import ignite.metrics

    if isinstance(wanted, ignite.metrics.Metric):
        return None
    type_, arguments = _type_and_arguments(wanted)
    known = _known_metrics()
    if not isinstance(type_, str):
        return f"the name of a metric is needed, or a mapping with 'type', not {shown(wanted)}"
    if type_ not in known:
        return f"ignite.metrics has no {type_!r}{did_you_mean(type_, known)}"
    for name, value in arguments.items():
        if isinstance(value, str) and value in KNOWN_SERVICES and value not in services:
            return f"{name}: there is no service {value!r}: give attach_hooks {value}=..."
    return None


def make_metric(name: str, wanted: Any, services: Mapping[str, Any]) -> Any:
    """An Ignite metric from its name, from ``{type: Name, ...}``, or as it is."""
    import ignite.metrics

    if isinstance(wanted, ignite.metrics.Metric):
        return wanted
    type_, given = _type_and_arguments(wanted)
    arguments = {key: services.get(v, v) if isinstance(v, str) else v for key, v in given.items()}
    try:
        return _known_metrics()[type_](**arguments)
    except (TypeError, ValueError) as error:
        raise ConfigError([Problem(name, f"{type_} refuses these settings: {error}")]) from error


def _type_and_arguments(wanted: Any) -> tuple[Any, dict[str, Any]]:
    given = dict(wanted) if isinstance(wanted, Mapping) else {"type": wanted}
    return given.pop("type", None), given


def _known_metrics() -> dict[str, type]:
    import ignite.metrics

    everything = vars(ignite.metrics).items()
    return {n: cls for n, cls in everything if isinstance(cls, type) and issubclass(cls, ignite.metrics.Metric)}


def _device(model: Any) -> Any:
    first = next(iter(model.parameters()), None)
    return None if first is None else first.device
