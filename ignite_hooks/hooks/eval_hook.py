"""Evaluates on schedule, with the script's evaluator or one of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge

from ignite_hooks.errors import ConfigError, MetricError, Problem, did_you_mean
from ignite_hooks.hooks.base_hook import BaseHook, PriorityLike, Situation, settings
from ignite_hooks.improvement import rule_for
from ignite_hooks.points import Priority
from ignite_hooks.schedule import scheduled

if TYPE_CHECKING:
    from ignite_hooks.plan import Foreseen
    from ignite_hooks.runner import Runner


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

    def __post_init__(self) -> None:
        if "rule" not in self.given and "metric" in self.given:
            self.rule = "auto"
        if self.name is not None and not str(self.name).isidentifier():
            raise ValueError(f"name: {self.name!r} begins the names of metrics: use letters, digits and _")
        self._evaluated_at = -1

    @property
    def evaluates(self) -> str:
        """The name of the evaluator, which begins the names of its metrics."""
        return self.name or "val"

    def check(self, situation: Situation) -> Iterator[tuple[str, str]]:
        if self.save_best:
            try:
                rule_for(self.metric, self.rule)
            except ValueError as error:
                yield "rule", str(error).replace("mode", "rule")
        if not situation.complete:
            return
        loader = self._loader_name
        if loader is not None and loader not in situation.services:
            known = [name for name in situation.services if name.endswith("loader")]
            yield (
                "dataloader",
                f"there is no service {loader!r}{did_you_mean(loader, known)}: give attach_hooks {loader}=...",
            )
        if "model" not in situation.services and (self.evaluates not in situation.evaluators or self.test_fn):
            yield "", "needs the model, which could not be found in the trainer: give attach_hooks model=..."

    def monitors(self) -> Mapping[str, str]:
        return {self.metric: self.rule} if self.save_best else {}

    def attached(self) -> None:
        runner = self.runner
        if self.evaluates not in runner.evaluators:
            runner.add_evaluator(self.evaluates, self._make_evaluator(runner))

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
        try:
            score = runner.metrics.fresh(self.metric, runner.global_step)
        except MetricError:
            if "metric" in self.given or "save_best" in self.given:
                raise
            return
        if score is not None:
            epoch, rule = int(runner.trainer.state.epoch), rule_for(self.metric, self.rule)
            runner.best.offer(self.metric, score, step=runner.global_step, epoch=epoch, rule=rule)

    def after_train(self, runner: Runner) -> None:
        done = runner.trainer.state.epoch if self.when.unit == "epoch" else runner.global_step
        if self._evaluated_at != runner.global_step and done >= self.when.start and not runner.aborting:
            self.evaluate(runner)

    def foreseen(self, method: str, run: Foreseen) -> tuple[str, ...]:
        """The points that a call will lead to."""
        kind = "test" if self.evaluates == "test" else "val"
        if method in ("after_train_iter", "after_train_epoch"):
            return (kind,)
        return (kind,) if method == "after_train" and run.evaluated_at != run.iteration else ()

    def evaluate(self, runner: Runner) -> dict[str, Any]:
        """Run the evaluation now; modes of the model's modules are as before afterwards."""
        import torch

        self._evaluated_at = runner.global_step
        engine = runner.evaluators[self.evaluates]
        loader = self.dataloader if self._loader_name is None else runner.get_service(self._loader_name)
        if loader is None:
            raise ConfigError([Problem("dataloader", f"there is no service {self._loader_name!r}")])
        modules = list(runner.model.modules()) if isinstance(runner.model, torch.nn.Module) else []
        modes = [module.training for module in modules]
        try:
            with torch.inference_mode():
                engine.run([loader] if self.test_fn else loader)
        finally:
            for module, mode in zip(modules, modes, strict=True):
                module.training = mode
        if self.efficient_test:
            engine.state.batch = engine.state.output = None
        return dict(engine.state.metrics)

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
        made = {name: make_metric(name, metric, runner.services) for name, metric in wanted.items()}
        return create_supervised_evaluator(
            runner.model, made, device=runner.get_service("device") or _device(runner.model)
        )

    def _usual_metrics(self, runner: Runner) -> dict[str, Any]:
        usual: dict[str, Any] = {"accuracy": "Accuracy"} if self.metric in ("accuracy", "acc", "val_accuracy") else {}
        if runner.get_service("criterion") is not None:
            usual["loss"] = {"type": "Loss", "loss_fn": "criterion"}
        return usual


def make_metric(name: str, wanted: Any, services: Mapping[str, Any]) -> Any:
    """An Ignite metric from its name, from ``{type: Name, ...}``, or as it is."""
    import ignite.metrics

    place = f"metrics.{name}"
    if isinstance(wanted, ignite.metrics.Metric):
        return wanted
    given = dict(wanted) if isinstance(wanted, Mapping) else {"type": wanted}
    type_ = given.pop("type", None)
    known = {n: thing for n, thing in vars(ignite.metrics).items() if isinstance(thing, type)}
    if not isinstance(type_, str) or type_ not in known:
        message = f"ignite.metrics has no {type_!r}{did_you_mean(str(type_), known)}"
        raise ConfigError([Problem(place, message)])
    arguments = {key: services.get(v, v) if isinstance(v, str) else v for key, v in given.items()}
    try:
        return known[type_](**arguments)
    except (TypeError, ValueError) as error:
        raise ConfigError([Problem(place, f"{type_} refuses these settings: {error}")]) from error


def _device(model: Any) -> Any:
    first = next(iter(model.parameters()), None)
    return None if first is None else first.device
