"""A method receives what its parameters name."""

from __future__ import annotations

from typing import Any

import pytest

from ignite_hooks.engine.dispatch import ArgumentSets
from ignite_hooks.plan.arguments import Available, CannotSupply, Source, match_arguments

HERE = Available(
    runner="RUNNER",
    services={"model": "MODEL", "trainer": "ENGINE", "mlflow": "MLFLOW", "runner": "RUNNER"},
    live={"epoch", "metrics", "step"},
    payload=("batch_idx", "data_batch"),
    withheld=("optimizer",),
)
LIVE = {"epoch": 3, "metrics": {"loss": 1.0}, "step": 7, "batch_idx": 2, "data_batch": "BATCH"}


def called(method: Any) -> Any:
    function, sources = match_arguments(method, HERE, "Hook.point")
    sets = ArgumentSets(LIVE.__getitem__)
    arguments = sets.of(sources)
    sets.gather()
    return function(*arguments)


class Hooks:
    def nothing(self) -> Any:
        return ()

    def by_first(self, trainer_: Any) -> Any:
        return trainer_

    def by_name(self, epoch: int, model: Any, metrics: Any) -> Any:
        return epoch, model, metrics

    def mmengine(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> Any:
        return runner, batch_idx, data_batch, outputs

    def engine(self, trainer: Any) -> Any:
        return trainer

    def keyword_only(self, runner: Any, *, step: int, flag: bool = True) -> Any:
        return runner, step, flag

    def everything(self, runner: Any, *rest: Any, **payload: Any) -> Any:
        return runner, rest, payload

    def defaults(self, runner: Any, size: int = 3, mlflow: Any = None) -> Any:
        return runner, size, mlflow

    def first_with_default(self, size: int = 3) -> Any:
        return size

    def positional_only(self, runner: Any, epoch: int, /) -> Any:
        return runner, epoch

    @staticmethod
    def static(runner: Any, epoch: int) -> Any:
        return runner, epoch

    @classmethod
    def of_class(cls, runner: Any) -> Any:
        return cls, runner


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("nothing", ()),
        ("by_first", "RUNNER"),
        ("by_name", (3, "MODEL", {"loss": 1.0})),
        ("mmengine", ("RUNNER", 2, "BATCH", None)),
        ("engine", "ENGINE"),
        ("keyword_only", ("RUNNER", 7, True)),
        ("everything", ("RUNNER", (), {"batch_idx": 2, "data_batch": "BATCH"})),
        ("defaults", ("RUNNER", 3, "MLFLOW")),
        ("first_with_default", 3),
        ("positional_only", ("RUNNER", 3)),
        ("static", ("RUNNER", 3)),
        ("of_class", (Hooks, "RUNNER")),
    ],
)
def test_methods_of_every_style_get_their_arguments(name: str, result: Any) -> None:
    assert called(getattr(Hooks(), name)) == result


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (lambda runner, nobody: None, "Hook.point has a parameter 'nobody' that nobody can supply"),
        (
            lambda runner, metric: None,
            "Hook.point has a parameter 'metric' that nobody can supply, did you mean 'metrics'?",
        ),
        (lambda mdoel: None, "Hook.point has a parameter 'mdoel' that nobody can supply, did you mean 'model'?"),
        (lambda loss: None, "Hook.point has a parameter 'loss' that nobody can supply"),
        (lambda batch: None, "Hook.point has a parameter 'batch' that nobody can supply, did you mean 'data_batch'?"),
        (lambda optimizer: None, "Hook.point needs the service 'optimizer': pass optimizer=... to attach_hooks()"),
    ],
)
def test_parameters_without_supplier_are_named(method: Any, message: str) -> None:
    with pytest.raises(CannotSupply) as caught:
        match_arguments(method, HERE, "Hook.point")
    assert str(caught.value) == message


def test_methods_with_equal_parameters_share_one_list_emptied_between_events() -> None:
    asked: list[str] = []

    def look_up(name: str) -> Any:
        asked.append(name)
        return LIVE[name]

    sets = ArgumentSets(look_up)
    first = sets.of(match_arguments(lambda runner, data_batch: None, HERE, "")[1])
    second = sets.of(match_arguments(lambda runner, data_batch: None, HERE, "")[1])
    fixed = sets.of(match_arguments(lambda runner, model: None, HERE, "")[1])
    assert first is second
    assert sets.live
    sets.gather()
    assert asked == ["data_batch"]
    assert first == ["RUNNER", "BATCH"]
    sets.release()
    assert first == []
    assert fixed == ["RUNNER", "MODEL"]


@pytest.mark.parametrize("name", ["trainer_", "runnr", "self_", "r", "_model_of_mine", "engine", "run"])
def test_a_first_parameter_of_another_name_gets_the_runner(name: str) -> None:
    method = eval(f"lambda {name}: None")
    assert match_arguments(method, HERE, "Hook.point")[1] == (Source(None, HERE.runner),)
