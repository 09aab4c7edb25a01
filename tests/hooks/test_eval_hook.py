from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from ignite.engine import Engine, Events, create_supervised_evaluator, create_supervised_trainer
from ignite.metrics import Accuracy, Loss
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler

from ignite_hooks import BaseHook, ConfigError, HookError, attach_hooks
from ignite_hooks.hooks.eval_hook import EvalHook
from ignite_hooks.plan.simulate import PlanSimulation

GENERATOR = torch.Generator().manual_seed(0)


def batches(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(torch.randn(4, 3, generator=GENERATOR), torch.randint(2, (4,), generator=GENERATOR)) for _ in range(count)]


DATA, VAL, HARD, TEST = batches(3), batches(2), batches(4), batches(5)
"""Three iterations an epoch."""


class Log(BaseHook):
    """A hook that records every evaluation with its iteration."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []
        self.points: list[str] = []

    def before_val(self) -> None:
        self.points.append("before_val")

    def after_val_epoch(self, runner: Any) -> None:
        self.seen.append((runner.state.evaluating, runner.global_step))

    def after_val(self) -> None:
        self.points.append("after_val")

    @property
    def steps(self) -> list[int]:
        return [step for _, step in self.seen]


def attached(folder: Path, *hooks: Any, criterion: bool = True, **options: Any) -> tuple[Any, Engine, nn.Module]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2))
    optimizer, loss = torch.optim.SGD(model.parameters(), lr=0.5), nn.CrossEntropyLoss()
    trainer = create_supervised_trainer(model, optimizer, loss)
    options = {"val_loader": VAL, "criterion": loss if criterion else None, **options}
    return attach_hooks(trainer, list(hooks), work_dir=folder, **options), trainer, model


def measured(model: nn.Module, data: Any) -> dict[str, float]:
    metrics = {"accuracy": Accuracy(), "loss": Loss(nn.CrossEntropyLoss())}
    return dict(create_supervised_evaluator(model, metrics).run(data).metrics)


# -- when --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "epochs", "steps"),
    [
        ({}, 3, [3, 6, 9]),
        ({"interval": 2}, 4, [6, 12]),
        ({"interval": 2}, 5, [6, 12, 15]),
        ({"interval": 9}, 2, [6]),
        ({"start": 3}, 4, [9, 12]),
        ({"begin": 3, "frequency": 2}, 4, [9, 12]),
        ({"interval": 2, "start": 2}, 5, [6, 12, 15]),
        ({"start": 5}, 3, []),
        ({"every": "2 epoch"}, 3, [6, 9]),
        ({"by_epoch": False, "interval": 2}, 2, [2, 4, 6]),
        ({"by_epoch": False, "interval": 4}, 2, [4, 6]),
        ({"by_epoch": False, "interval": 2, "start": 3}, 2, [3, 5, 6]),
        ({"by_epoch": False, "start": 7}, 2, []),
        ({"every": "5 iter"}, 2, [5, 6]),
    ],
)
def test_it_evaluates_at_its_interval_and_at_the_end(
    settings: dict[str, Any], epochs: int, steps: list[int], tmp_path: Path
) -> None:
    log = Log()
    _, trainer, _ = attached(tmp_path, {"type": "EvalHook", **settings}, log)
    trainer.run(DATA, max_epochs=epochs)
    assert log.steps == steps


@pytest.mark.parametrize("settings", [{}, {"interval": 2}, {"start": 9}, {"by_epoch": False, "interval": 2}])
def test_the_plan_shows_future_evaluations(settings: dict[str, Any], tmp_path: Path) -> None:
    log = Log()
    runner, trainer, _ = attached(tmp_path, {"type": "EvalHook", **settings}, log)
    trainer.run(DATA, max_epochs=5)
    steps = PlanSimulation(runner.plan.at, epochs=5, iterations=3, evaluation_iterations=2).run()
    foreseen = [step.iteration for step in steps if (step.point, step.hook) == ("after_val_epoch", "Log")]
    assert foreseen == log.steps


def test_a_run_stopped_within_an_epoch_is_evaluated(tmp_path: Path) -> None:
    log = Log()
    runner, trainer, _ = attached(tmp_path, "EvalHook", log)
    trainer.add_event_handler(Events.ITERATION_COMPLETED(once=5), lambda: runner.stop("enough"))
    trainer.run(DATA, max_epochs=3)
    assert log.steps == [3, 5]


def test_a_run_ended_by_sigterm_is_not_evaluated(tmp_path: Path) -> None:
    log = Log()
    _, trainer, _ = attached(tmp_path, "EvalHook", log)
    trainer.add_event_handler(Events.ITERATION_COMPLETED(once=5), lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(SystemExit):
        trainer.run(DATA, max_epochs=3)
    assert log.steps == [3]


def test_an_interrupted_evaluation_is_repeated_after_the_resume(tmp_path: Path) -> None:
    log = Log()
    runner, trainer, _ = attached(tmp_path, "EvalHook", log)
    ctrl_c = iter([signal.SIGINT])
    runner.evaluators["val"].add_event_handler(
        Events.ITERATION_COMPLETED(once=1), lambda: [os.kill(os.getpid(), number) for number in ctrl_c]
    )
    with pytest.raises(KeyboardInterrupt):
        trainer.run(DATA, max_epochs=2)
    assert log.steps == []
    trainer.run(DATA, max_epochs=2)
    assert log.steps == [3, 6]


def test_a_second_run_starts_clean(tmp_path: Path) -> None:
    log = Log()
    _, trainer, _ = attached(tmp_path, {"type": "EvalHook", "interval": 5}, log)
    trainer.run(DATA, max_epochs=2)
    trainer.run(DATA, max_epochs=2)
    assert log.steps == [6, 6]


# -- with what ---------------------------------------------------------------------------------------------------


def test_its_own_evaluator_measures_as_ignite_does(tmp_path: Path) -> None:
    runner, trainer, model = attached(tmp_path, "EvalHook")
    trainer.run(DATA, max_epochs=2)
    expected = measured(model, VAL)
    assert {name: runner.metrics[f"val_{name}"] for name in expected} == expected
    assert runner.metrics["accuracy"] == expected["accuracy"]
    assert runner.metrics["loss"] == trainer.state.output


class Named(nn.Module):
    """A model that takes its inputs by name, and returns a mapping."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 2)

    def forward(self, features: torch.Tensor, labels: Any = None) -> Any:
        return {"logits": self.head(features)}


@pytest.mark.parametrize(
    ("target", "criterion"),
    [(torch.tensor([0, 1]), nn.CrossEntropyLoss()), (torch.eye(2), nn.BCEWithLogitsLoss())],
    ids=["classes", "labels"],
)
def test_its_own_evaluator_takes_mappings_and_labels(target: torch.Tensor, criterion: Any, tmp_path: Path) -> None:
    model = Named()
    batch = {"features": torch.tensor([[1.0, 0, 0], [0, 1, 0]]), "labels": target}
    with torch.no_grad():
        model.head.weight[:] = torch.tensor([[5.0, -5, 0], [-5, 5, 0]])
        model.head.bias[:] = 0
    services = {"model": model, "val_loader": [batch], "criterion": criterion}
    runner = attach_hooks(Engine(lambda *_: None), [{"type": "EvalHook"}], work_dir=tmp_path, **services)
    assert runner.validate() == {"accuracy": 1.0, "loss": pytest.approx(0, abs=0.01)}


def test_probabilities_of_labels_count_from_a_half(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Sigmoid())
    batch = (torch.eye(2) * 9, torch.eye(2))
    with torch.no_grad():
        model[0].weight[:], model[0].bias[:] = torch.eye(2), -1  # type: ignore[index,operator]
    services = {"model": model, "val_loader": [batch], "criterion": nn.BCELoss()}
    runner = attach_hooks(Engine(lambda *_: None), [{"type": "EvalHook"}], work_dir=tmp_path, **services)
    assert runner.validate()["accuracy"] == 1.0


def test_the_scripts_evaluator_is_used_as_it_is(tmp_path: Path) -> None:
    evaluator = Engine(lambda engine, batch: engine.state.metrics.update(seen=engine.state.iteration))
    runner, trainer, _ = attached(tmp_path, {"type": "EvalHook", "save_best": False}, evaluators=evaluator)
    trainer.run(DATA, max_epochs=1)
    assert runner.evaluators == {"val": evaluator}
    assert runner.metrics["val_seen"] == len(VAL)


def test_without_a_criterion_there_is_no_loss(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    trainer = Engine(lambda engine, batch: 0.5)
    runner = attach_hooks(trainer, ["EvalHook"], work_dir=tmp_path, model=model, val_loader=VAL)
    trainer.run([0])
    assert {name for name in runner.metrics if name.startswith("val_")} == {"val_accuracy"}


@pytest.mark.parametrize(
    "metrics",
    [
        {"accuracy": "Accuracy", "loss": {"type": "Loss", "loss_fn": "criterion"}},
        {"accuracy": {"type": "Accuracy"}, "loss": {"type": "Loss", "loss_fn": "@criterion"}},
        {"accuracy": Accuracy(), "loss": Loss(nn.CrossEntropyLoss())},
    ],
    ids=["names", "mappings", "objects"],
)
def test_metrics_are_names_mappings_or_objects(metrics: dict[str, Any], tmp_path: Path) -> None:
    runner, trainer, model = attached(tmp_path, {"type": "EvalHook", "metrics": metrics})
    trainer.run(DATA)
    expected = measured(model, VAL)
    assert {name: runner.metrics[f"val_{name}"] for name in expected} == pytest.approx(expected)


def test_metrics_take_settings(tmp_path: Path) -> None:
    metrics = {"top1": {"type": "TopKCategoricalAccuracy", "k": 1}, "top2": {"type": "TopKCategoricalAccuracy", "k": 2}}
    runner, trainer, model = attached(tmp_path, {"type": "EvalHook", "metrics": metrics, "metric": "top1"})
    trainer.run(DATA)
    assert runner.metrics["val_top1"] == measured(model, VAL)["accuracy"]
    assert runner.metrics["val_top2"] == 1.0
    assert runner.best["top1"].score == runner.metrics["top1"]


@pytest.mark.parametrize("where", ["object", "loader object", "service", "reference", "service of its name"])
def test_dataloader_is_an_object_or_names_a_service(where: str, tmp_path: Path) -> None:
    seen: list[Any] = []
    loader = DataLoader([1, 2, 3], batch_size=None)
    settings: dict[str, Any] = {
        "object": {"dataloader": [1, 2, 3]},
        "loader object": {"dataloader": loader},
        "service": {"dataloader": "mine"},
        "reference": {"dataloader": "@mine"},
        "service of its name": {"name": "extra"},
    }[where]
    evaluator = Engine(lambda engine, batch: seen.append(int(batch)))
    _, trainer, _ = attached(
        tmp_path,
        {"type": "EvalHook", "save_best": False, **settings},
        evaluators={settings.get("name", "val"): evaluator},
        mine=[1, 2, 3],
        extra_loader=[1, 2, 3],
    )
    trainer.run(DATA)
    assert seen == [1, 2, 3]


@pytest.mark.parametrize("known", [False, True])
def test_training_data_can_be_evaluated(known: bool, tmp_path: Path) -> None:
    log = Log()
    services: dict[str, Any] = {"train_loader": DATA} if known else {}
    hook = {"type": "EvalHook", "dataloader": "train_loader" if known else DATA}
    runner, trainer, model = attached(tmp_path, hook, log, **services)
    trainer.run(DATA)
    assert log.steps == [3]
    assert runner.metrics["val_accuracy"] == measured(model, DATA)["accuracy"]


def test_test_fn_gets_model_and_data_and_replaces_the_evaluator(tmp_path: Path) -> None:
    log, modes = Log(), []

    def test_fn(model: nn.Module, dataloader: Any) -> dict[str, float]:
        modes.append((model.training, torch.is_inference_mode_enabled()))
        return {"accuracy": len(dataloader) / 10, "mAP": 0.5}

    runner, trainer, model = attached(tmp_path, {"type": "EvalHook", "test_fn": test_fn}, log)
    trainer.run(DATA, max_epochs=2)
    assert modes == [(False, True)] * 2
    assert (runner.metrics["val_accuracy"], runner.metrics["mAP"]) == (0.2, 0.5)
    assert log.steps == [3, 6]
    assert model.training


def test_several_hooks_publish_under_their_own_names(tmp_path: Path) -> None:
    log = Log()
    hooks = [
        {"type": "EvalHook", "name": "val"},
        {"type": "EvalHook", "name": "val_hard", "interval": 2, "dataloader": HARD},
    ]
    runner, trainer, model = attached(tmp_path, *hooks, log)
    trainer.run(DATA, max_epochs=2)
    assert log.seen == [("val", 3), ("val", 6), ("val_hard", 6)]
    easy, hard = measured(model, VAL), measured(model, HARD)
    assert easy != hard
    assert runner.metrics["val_loss"] == easy["loss"]
    assert runner.metrics["val_hard_loss"] == hard["loss"]
    assert runner.metrics["accuracy"] == easy["accuracy"]
    # Each keeps its own best.
    assert runner.best["val_hard_accuracy"].score == hard["accuracy"]
    assert runner.best["accuracy"].score >= easy["accuracy"]


def test_each_evaluator_keeps_its_own_best_in_any_order(tmp_path: Path) -> None:
    values = {"val": iter([0.5]), "val_hard": iter([0.9, 0.8])}
    engines = {
        name: Engine(lambda e, batch, turns=turns: e.state.metrics.update(accuracy=next(turns)))
        for name, turns in values.items()
    }
    hooks = [
        {"type": "EvalHook", "name": "val", "interval": 2, "metric": "accuracy", "dataloader": [0]},
        {"type": "EvalHook", "name": "val_hard", "metric": "accuracy", "dataloader": [0]},
    ]
    runner, trainer, _ = attached(tmp_path, *hooks, evaluators=engines)
    trainer.run(DATA, max_epochs=2)
    assert {metric: record.score for metric, record in runner.best.items()} == {
        "accuracy": 0.5,
        "val_hard_accuracy": 0.9,
    }


# -- the best ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "best"),
    [({}, 3), ({"rule": "less"}, 1), ({"metric": "val_accuracy"}, 3), ({"metric": "error", "rule": "auto"}, 2)],
)
def test_runner_best_holds_the_best_score_and_its_epoch(settings: dict[str, Any], best: int, tmp_path: Path) -> None:
    scores = iter([1, 2, 5, 3])
    errors = iter([9, 1, 2, 3])
    test_fn = lambda model, loader: {"accuracy": next(scores), "error": next(errors)}  # noqa: E731
    runner, trainer, _ = attached(tmp_path, {"type": "EvalHook", "test_fn": test_fn, **settings})
    trainer.run(DATA, max_epochs=4)
    record = runner.best[settings.get("metric", "accuracy")]
    assert (record.epoch, record.step) == (best, best * 3)


def test_without_save_best_nothing_is_ranked(tmp_path: Path) -> None:
    runner, trainer, _ = attached(tmp_path, {"type": "EvalHook", "save_best": False})
    trainer.run(DATA)
    assert not runner.best


def test_an_unknown_metric_is_an_error_that_lists_metrics(tmp_path: Path) -> None:
    hook = {"type": "EvalHook", "metric": "acuracy", "rule": "max"}
    _, trainer, _ = attached(tmp_path, hook)
    with pytest.raises(HookError, match=r"no metric 'acuracy': there are val_loss, loss"):
        trainer.run(DATA)


# -- side effects ------------------------------------------------------------------------------------------------


def test_in_mid_epoch_every_module_gets_its_own_mode_back(tmp_path: Path) -> None:
    _, trainer, model = attached(tmp_path, {"type": "EvalHook", "by_epoch": False, "interval": 1})
    dropout: Any = model[1]
    trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda: dropout.eval())
    seen = []

    @trainer.on(Events.STARTED)
    def look_after_the_hooks() -> None:
        trainer.add_event_handler(
            Events.ITERATION_COMPLETED, lambda: seen.append([module.training for module in model.modules()])
        )

    trainer.run(DATA, max_epochs=1)
    assert seen == [[True, True, False, True]] * 3


def test_evaluating_does_not_change_what_is_trained(tmp_path: Path) -> None:
    weights = []
    for hooks in ([], ["EvalHook"], [{"type": "EvalHook", "by_epoch": False}]):
        _, trainer, model = attached(tmp_path / str(len(weights)), *hooks)
        trainer.run(DATA, max_epochs=2)
        weights.append(model.state_dict())
    assert all(torch.equal(weights[0][name], other[name]) for other in weights[1:] for name in other)


class Noisy:
    """Data that draws from every global generator."""

    def __init__(self, pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        self.pairs = [(x, y) for xs, ys in pairs for x, y in zip(xs, ys, strict=True)]

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> Any:
        x, y = self.pairs[index]
        return x + random.random() + float(numpy.random.rand()) + torch.rand(3), y


def noisy(generator: torch.Generator | None = None, **options: Any) -> DataLoader[Any]:
    data: Any = Noisy(VAL)
    return DataLoader(data, 4, shuffle=True, generator=generator, **options)


def own_batches(generator: torch.Generator) -> DataLoader[Any]:
    data: Any = Noisy(VAL)
    return DataLoader(data, batch_sampler=BatchSampler(RandomSampler(data, generator=generator), 4, False))


LOADERS: dict[str, Callable[[torch.Generator], Any]] = {
    "in order": lambda generator: DataLoader(Noisy(VAL), 4),  # type: ignore[arg-type]
    "shuffled": lambda generator: noisy(),
    "workers": lambda generator: noisy(num_workers=1),
    "the generator of training": noisy,
    "a batch sampler with the generator of training": own_batches,
}


def weights_with(folder: Path, hooks: Any, make: Callable[[torch.Generator], Any], ours: bool) -> dict[str, Any]:
    """Return what a script trains that evaluates on a loader with our hooks, or does not."""
    random.seed(0), numpy.random.seed(0), torch.manual_seed(0)
    generator, data = torch.Generator().manual_seed(1), Noisy(DATA)
    train: Any = DataLoader(data, 4, shuffle=True, generator=generator)  # type: ignore[arg-type]
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2))
    loss = nn.CrossEntropyLoss()
    trainer = create_supervised_trainer(model, torch.optim.SGD(model.parameters(), lr=0.5), loss)
    evaluator = create_supervised_evaluator(model, {"accuracy": Accuracy(), "loss": Loss(loss)})
    loader = make(generator)
    if ours:
        attach_hooks(trainer, hooks, model=model, evaluators=evaluator, val_loader=loader, work_dir=folder)
    trainer.run(train, max_epochs=3)
    return dict(model.state_dict())


class Validates(BaseHook):
    """A hook of a user that evaluates by hand."""

    def after_train_iter(self, runner: Any) -> None:
        runner.validate()


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize(
    "make_hooks",
    [lambda: None, lambda: [{"type": "EvalHook", "every": "2 iter", "evaluate_at_start": True}], lambda: [Validates()]],
    ids=["default hooks", "at the start and in mid-epoch", "validate in a hook"],
)
def test_with_our_evaluations_and_without_weights_are_equal(make_hooks: Any, loader: str, tmp_path: Path) -> None:
    alone = weights_with(tmp_path, make_hooks(), LOADERS[loader], ours=False)
    evaluated = weights_with(tmp_path, make_hooks(), LOADERS[loader], ours=True)
    assert all(torch.equal(alone[name], evaluated[name]) for name in alone)


def drawn_beside_an_evaluation_of_the_script(folder: Path, ours: bool) -> list[float]:
    torch.manual_seed(0)
    model, loader, drawn = nn.Linear(3, 2), noisy(), []
    trainer = create_supervised_trainer(model, torch.optim.SGD(model.parameters(), lr=0.5), nn.CrossEntropyLoss())
    evaluator = create_supervised_evaluator(model, {"accuracy": Accuracy()})
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run(loader))
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: drawn.append(float(torch.rand(()))))
    if ours:
        attach_hooks(trainer, [Log()], model=model, evaluators=evaluator, val_loader=loader, work_dir=folder)
    trainer.run(DATA, max_epochs=2)
    return drawn


def test_an_evaluation_of_the_script_draws_as_without_us(tmp_path: Path) -> None:
    alone, watched = (drawn_beside_an_evaluation_of_the_script(tmp_path, ours) for ours in (False, True))
    assert alone == watched


def test_evaluations_use_inference_and_evaluation_mode(tmp_path: Path) -> None:
    seen: list[Any] = []
    runner, trainer, model = attached(tmp_path, "EvalHook")
    runner.evaluators["val"].add_event_handler(
        Events.ITERATION_COMPLETED,
        lambda: seen.append((torch.is_inference_mode_enabled(), model.training, model[1].training)),  # type: ignore[index]
    )
    trainer.run(DATA)
    assert seen == [(True, False, False)] * len(VAL)
    assert not torch.is_inference_mode_enabled()


@pytest.mark.parametrize("efficient", [False, True])
def test_efficient_test_frees_batch_and_output(efficient: bool, tmp_path: Path) -> None:
    runner, trainer, _ = attached(tmp_path, {"type": "EvalHook", "efficient_test": efficient})
    outputs = []
    trainer.add_event_handler(Events.COMPLETED, lambda: outputs.append(runner.evaluators["val"].state.output is None))
    trainer.run(DATA)
    assert outputs == [efficient]
    assert runner.metrics["val_accuracy"] >= 0


def test_a_failing_evaluator_reaches_the_caller_after_after_val(tmp_path: Path) -> None:
    log = Log()
    broken = True

    def step(engine: Engine, batch: Any) -> None:
        if broken:
            raise ZeroDivisionError("in the evaluation")
        engine.state.metrics["accuracy"] = 1.0

    runner, trainer, model = attached(tmp_path, "EvalHook", log, evaluators=Engine(step))
    with pytest.raises(HookError, match=r"EvalHook\.after_train_epoch failed at epoch 1, iteration 3: Zero") as caught:
        trainer.run(DATA)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert log.points == ["before_val", "after_val"]
    assert model.training
    assert runner.state.evaluating is None
    broken = False
    trainer.run(DATA, max_epochs=2)
    assert log.points[-1] == "after_val"
    assert runner.metrics["accuracy"] == 1.0


# -- manually ---------------------------------------------------------------------------------------------------


def test_validate_works_before_during_and_after_a_run(tmp_path: Path) -> None:
    runner, trainer, model = attached(tmp_path, {"type": "EvalHook", "interval": 9})
    assert runner.validate() == measured(model, VAL)
    during = []

    @trainer.on(Events.ITERATION_COMPLETED(once=2))
    def validate() -> None:
        during.append((runner.validate(), measured(model, VAL), runner.metrics.step("val_loss")))

    trainer.run(DATA)
    assert during[0][:2] == (during[0][1], during[0][1])
    assert during[0][2] == 2
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert runner.validate() == measured(model, VAL)


def test_validate_at_the_last_iteration_replaces_the_final_evaluation(tmp_path: Path) -> None:
    log = Log()
    runner, trainer, _ = attached(tmp_path, {"type": "EvalHook", "interval": 9}, log)
    trainer.add_event_handler(Events.EPOCH_COMPLETED(once=2), lambda: runner.validate())
    trainer.run(DATA, max_epochs=2)
    assert log.steps == [6]


@pytest.mark.parametrize("by_hook", [False, True])
def test_test_uses_the_evaluator_named_test(by_hook: bool, tmp_path: Path) -> None:
    evaluator = Engine(lambda engine, batch: engine.state.metrics.update(accuracy=engine.state.iteration))
    log = Log()
    hooks: list[Any] = [{"type": "EvalHook", "name": "test", "start": 99}] if by_hook else []
    runner, trainer, _ = attached(tmp_path, *hooks, log, evaluators={"test": evaluator}, test_loader=TEST)
    trainer.run(DATA)
    assert runner.test() == {"accuracy": len(TEST)}
    assert runner.metrics["test_accuracy"] == len(TEST)
    assert log.seen == []


def test_validate_errors_name_what_is_missing(tmp_path: Path) -> None:
    runner, _, _ = attached(tmp_path)
    with pytest.raises(
        ConfigError, match=r"cannot evaluate 'val': pass evaluators=\{'val': \.\.\.\} to attach_hooks\(\), or"
    ):
        runner.validate()


# -- invalid settings --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "options", "message"),
    [
        (
            {},
            {"val_loader": None},
            ".dataloader: there is no service 'val_loader': pass val_loader=... to attach_hooks()",
        ),
        (
            {"dataloader": "vall_loader"},
            {},
            ".dataloader: there is no service 'vall_loader', did you mean 'val_loader'?",
        ),
        ({"dataloader": 3}, {}, ".dataloader: must be data or the name of a service, not 3"),
        ({"name": "hard-val"}, {}, ".name: 'hard-val' begins the names of metrics: use letters, digits and _"),
        (
            {"metrics": {"acc": "Acuracy"}},
            {},
            ".metrics.acc: ignite.metrics has no 'Acuracy', did you mean 'Accuracy'?",
        ),
        (
            {"metrics": {"acc": 3}},
            {},
            ".metrics.acc: must be the name of a metric, or a mapping with 'type', not 3",
        ),
        (
            {"metrics": {"acc": {"k": 3}}},
            {},
            ".metrics.acc: must be the name of a metric, or a mapping with 'type', not {'k': 3}",
        ),
        (
            {"metrics": {"loss": {"type": "Loss", "loss_fn": "criterion"}}},
            {"criterion": None},
            ".metrics.loss: loss_fn: there is no service 'criterion': pass criterion=... to attach_hooks()",
        ),
        (
            {"metrics": {"acc": "Accuracy"}},
            {"evaluators": Engine(lambda engine, batch: None)},
            ".metrics: has no effect on the evaluator 'val' passed to attach_hooks(): remove one of the two",
        ),
        (
            {"test_fn": lambda model, loader: {}},
            {"evaluators": Engine(lambda engine, batch: None)},
            ".test_fn: has no effect on the evaluator 'val' passed to attach_hooks(): remove one of the two",
        ),
        (
            {"metric": "mode_quality"},
            {},
            ".rule: cannot tell whether a higher or lower 'mode_quality' is better: set rule to 'greater' or 'less'",
        ),
        ({"interval": 0}, {}, ".interval: a whole number of at least 1 is needed, not 0"),
        ({"start": -1}, {}, ".start: a whole number of at least 0 is needed, not -1"),
    ],
)
def test_invalid_settings_are_rejected_before_attaching(
    settings: dict[str, Any], options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        attached(tmp_path, {"type": "EvalHook", **settings}, **options)
    assert str(caught.value) == f"hooks[0]{message}"


def test_an_engine_with_unknown_model_needs_it_passed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"needs the model, which was not found in the trainer: pass model="):
        attach_hooks(Engine(lambda engine, batch: None), ["EvalHook"], work_dir=tmp_path, val_loader=VAL)


def test_rejected_settings_of_a_metric_name_it(tmp_path: Path) -> None:
    metrics = {"precision": {"type": "Precision", "avrage": True}}
    with pytest.raises(ConfigError, match=r"EvalHook\.metrics\.precision: Precision rejects these settings: .*avrage"):
        attached(tmp_path, {"type": "EvalHook", "metrics": metrics})


def test_two_hooks_cannot_evaluate_under_one_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"hooks\[1\]\.name: another hook evaluates as 'val' too"):
        attached(tmp_path, "EvalHook", {"type": "EvalHook", "name": "val"})


def test_its_configuration_file_has_all_defaults_and_runs(tmp_path: Path) -> None:
    from ignite_hooks import load_config
    from ignite_hooks.plan.settings_digest import fields_of

    path = Path(__file__).parents[2] / "configs/eval_hook.yaml"
    assert path.read_text().startswith("# yaml-language-server: $schema=schema.json\n")
    entry: Any = load_config(path)["hooks"][0]
    fields = {f.name: f.default for f in fields_of(EvalHook) or () if f.init and f.name != "priority"}
    assert {"type": "EvalHook", **fields, "dataloader": "val_loader"} == dict(entry)
    model = nn.Linear(3, 2)
    trainer = create_supervised_trainer(model, torch.optim.SGD(model.parameters(), lr=0.1), nn.CrossEntropyLoss())
    runner = attach_hooks(trainer, path, model=model, val_loader=VAL, work_dir=tmp_path)
    trainer.run(DATA)
    assert runner.best["accuracy"].epoch == 1
