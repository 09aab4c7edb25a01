"""What the name of a metric means where it is ranked: the value of an evaluation, not one of the training data."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ignite_hooks.distributed.collectives import broadcast_object, world_size
from ignite_hooks.errors import MetricError

if TYPE_CHECKING:
    from ignite.engine import Engine

    from ignite_hooks.run.best import Record
    from ignite_hooks.run.runner import Runner


class Ranked(NamedTuple):
    """A score, and the name under which it is recorded."""

    name: str
    score: float


def is_training_name(name: str) -> bool:
    """Return whether a name is that of training data, or of a metric of it.

    >>> is_training_name("train_loss"), is_training_name("training"), is_training_name("val")
    (True, True, False)
    """
    return name.startswith("train")


def ranking_methods(methods: Mapping[str, Callable[..., Any]], name: str) -> dict[str, Callable[..., Any]]:
    """Return the methods that rank a metric: at the end of an epoch, only the trainer has measured something.

    >>> sorted(ranking_methods({"after_epoch": print, "after_val_epoch": print}, "val_loss"))
    ['after_val_epoch']
    """
    return {point: method for point, method in methods.items() if point != "after_epoch" or is_training_name(name)}


def main_evaluator(names: Iterable[str]) -> str | None:
    """Return the evaluator that also publishes plain names: ``val``, else the first of validation data.

    >>> main_evaluator(["train", "valid", "val"]), main_evaluator(["train", "hard"]), main_evaluator(["test", "train"])
    ('val', 'hard', None)
    """
    known = list(names)
    if "val" in known:
        return "val"
    return next((name for name in known if name != "test" and not is_training_name(name)), None)


def canonical(metric: str, evaluators: Iterable[str]) -> str:
    """Return the name under which a metric is ranked, as far as it is known before a run: a plain loss is validation's.

    >>> canonical("loss", ["val"]), canonical("loss", ["hard"]), canonical("accuracy", ["val"])
    ('val_loss', 'hard_loss', 'accuracy')
    """
    return f"{main_evaluator(evaluators) or 'val'}_loss" if metric == "loss" else metric


def owner_of(metric: str, evaluators: Collection[str]) -> str | None:
    """Return the evaluator whose name begins the name of a metric, else the main one.

    >>> owner_of("val/hard_accuracy", ["val", "val_hard"]), owner_of("accuracy", ["train", "val"])
    ('val_hard', 'val')
    """
    own = [name for name in evaluators if metric.replace("/", "_").startswith(f"{name}_")]
    return max(own, key=len, default=main_evaluator(evaluators))


def ranked_name(runner: Runner, metric: str) -> tuple[str, str]:
    """Return the name under which a metric is recorded, and the published name of its value.

    A plain name that the trainer has too, such as ``loss``, means the evaluation's. Only ``train_<name>`` means the
    trainer's.
    """
    metrics, evaluators = runner.metrics, runner.evaluators
    if is_training_name(metric):
        bare = metric[len("train_") :]
        if metric.startswith(("train_", "train/")) and metric not in metrics and bare in of_trainer(runner):
            return metric, bare
    elif metric in of_trainer(runner) and not _has_prefix(metric, evaluators):
        own = f"{main_evaluator(evaluators) or 'val'}_{metric}"
        if own not in metrics:
            raise MetricError(
                f"no metric {own!r}, which {metric!r} means here: {metrics.what_exists('')}; "
                f"that of the training is 'train_{metric}'"
            )
        return own, own
    return metric, metrics.find(metric)


def ranks_training(runner: Runner, metric: str) -> bool:
    """Return whether the name of a metric means what the trainer itself measures, so that it exists at each step."""
    if not is_training_name(metric):
        return False
    by_evaluator = any(metric.replace("/", "_").startswith(f"{name}_") for name in runner.evaluators)
    # Without an evaluator nobody else may bring it: that it is missing is an error.
    return not runner.evaluators or (not by_evaluator and follows_training(runner, metric))


def follows_training(runner: Runner, metric: str) -> bool:
    """Return whether only the trainer measures a metric; while an evaluation may still bring it, it does not."""
    if is_training_name(metric):
        return metric not in runner.metrics and metric[len("train_") :] in of_trainer(runner)
    main = main_evaluator(runner.evaluators)
    if metric not in of_trainer(runner) or _has_prefix(metric, runner.evaluators):
        return False
    if main is None:
        return True
    evaluates = any(getattr(hook, "evaluates", None) == main for hook in runner.hooks.registered.values())
    has_evaluated = any(name.startswith(f"{main}_") for name in runner.metrics)
    # A run that is stopped before its first evaluation has no other word for it.
    known = has_evaluated or not evaluates or runner.trainer.should_terminate
    return bool(known) and f"{main}_{metric}" not in runner.metrics and metric not in _attached(runner.evaluators[main])


def fresh_score(runner: Runner, metric: str) -> Ranked | None:
    """Return the number of a metric if it was published at this step of the run, the same on every rank.

    A missing metric is an error only once the evaluator it belongs to has run: ``val_hard`` may run before ``val``.
    """
    if not runner.state.running or runner.evaluation_options.of_others or runner.state.delivered is not None:
        # Other weights than those of this step were measured.
        return None
    try:
        name, published = ranked_name(runner, metric)
        score = runner.metrics.fresh(published, runner.global_step)
    except MetricError:
        evaluating, owner = runner.state.evaluating, owner_of(metric, runner.evaluators)
        if evaluating is None or owner is None or evaluating == owner:
            raise
        return None
    if name != metric and not is_training_name(metric):
        runner.note_once(
            f"{metric!r} is ranked as {name!r}, which the evaluation measures; that of the training is train_{metric}"
        )
    # Each rank may have measured another value, but all must decide alike.
    score = broadcast_object(score) if world_size() > 1 else score
    return None if score is None else Ranked(name, score)


def best_record(runner: Runner, metric: str) -> Record | None:
    """Return the record of best of a metric, under the name by which it is ranked."""
    return runner.best.get(recorded_name(runner, metric))


def recorded_name(runner: Runner, metric: str) -> str:
    """Return the name under which the best of a metric is recorded."""
    try:
        return ranked_name(runner, metric)[0]
    except MetricError:
        return canonical(metric, runner.evaluators)


def of_trainer(runner: Runner) -> set[str]:
    """Return the names of what the trainer measures."""
    return {"loss", *(runner.trainer_state.metrics or {})}


def _attached(evaluator: Engine) -> set[str]:
    """Return the names under which metrics are attached to an evaluator."""
    from ignite.metrics import Metric

    entries = [entry for entries in evaluator._event_handlers.values() for entry in entries]
    return {
        args[0]
        for handler, args, _ in entries
        if isinstance(getattr(handler, "__self__", None), Metric) and args and isinstance(args[0], str)
    }


def _has_prefix(metric: str, evaluators: Collection[str]) -> bool:
    name = metric.replace("/", "_")
    return any(name.startswith(f"{evaluator}_") for evaluator in {*evaluators, "val", "test"})
