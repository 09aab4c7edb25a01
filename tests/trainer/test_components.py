"""Names of a configuration become classes, checked before anything is built."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from ignite_hooks.errors import Problem, SettingError
from ignite_hooks.trainer.components import Component, ComponentReader
from ignite_hooks.trainer.registries import MODELS, OPTIMIZERS
from ignite_hooks.trainer.sections import SUPPLIED

OWN = """
class Net:
    def __init__(self, width: int = 4) -> None:
        self.width = width

_hidden = number = 3
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ComponentReader]:
    """Yield parts of a configuration that lists a module of the user."""
    (tmp_path / "own_parts.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    problems: list[Problem] = []
    reader = ComponentReader(["own_parts"], problems)
    assert problems == []
    yield reader
    del sys.modules["own_parts"]


@pytest.mark.parametrize("wanted", ["mlp", "MLP", {"type": "mlp"}, {"type": "MLP", "hidden": [8]}])
def test_a_name_or_a_mapping_names_a_part(wanted: Any) -> None:
    problems: list[Problem] = []
    component = ComponentReader(None, problems).read(MODELS, wanted, "model", supplied=SUPPLIED)
    assert problems == []
    assert component is not None
    assert component.name == "MLP"


@pytest.mark.parametrize(
    ("wanted", "place", "message"),
    [
        (3, "model", "a mapping with 'type' is needed, the name of a model, not 3"),
        ({"hidden": [8]}, "model", "needs 'type', the name of a model: "),
        (
            [{"type": "mlp"}, {"type": "mlp"}],
            "model",
            "several are given, and a run from a configuration has one model",
        ),
        (
            {"g": {"type": "mlp"}},
            "model",
            "several are given, and a run from a configuration has one model: train them",
        ),
        ({"tpye": "mlp"}, "model", "; 'tpye' is not it"),
        ({"type": 3}, "model.type", "the name of a model is needed, not 3"),
        ("mlpp", "model.type", "did you mean"),
        ({"type": "mlp", "hiden": [8]}, "model.hiden", "did you mean 'hidden'?"),
        ({"type": "own_parts:Net", "width": "x"}, "model.width", "a whole number is needed"),
        ("own_parts:Nett", "model.type", "has no class or function 'Nett', did you mean 'Net'?"),
        ("own_parts:_hidden", "model.type", "has no class or function '_hidden'"),
        ("own_part:Net", "model.type", "the module 'own_part' is not listed under imports, did you mean 'own_parts'?"),
        ("json:dumps", "model.type", "write imports: [json]"),
    ],
)
def test_what_is_wrong_is_reported_with_its_place(wanted: Any, place: str, message: str, own: ComponentReader) -> None:
    assert own.read(MODELS, wanted, "model", supplied=SUPPLIED) is None
    [problem] = own.problems
    assert problem.place == place
    assert message in problem.message


@pytest.mark.parametrize(
    ("imports", "place", "message"),
    [
        ("os", "imports", "a list of modules is needed, not 'os'"),
        ([3], "imports", "a list of modules is needed"),
        (["os", "no_such_module"], "imports[1]", "it is looked for where Python's path leads"),
    ],
)
def test_modules_that_cannot_be_had_are_named(imports: Any, place: str, message: str) -> None:
    problems: list[Problem] = []
    ComponentReader(imports, problems)
    [problem] = problems
    assert problem.place == place
    assert message in problem.message


def test_settings_of_whoever_asks_are_not_the_parts(own: ComponentReader) -> None:
    component = own.read(
        OPTIMIZERS, {"type": "SGD", "lr": 0.1, "by_epoch": True}, "optimizer", ("params",), ("by_epoch",)
    )
    assert own.problems == []
    assert component is not None
    assert component.given == {"lr": 0.1}


def test_a_part_gets_what_is_known_unless_it_was_given(own: ComponentReader) -> None:
    for given, width in (({}, 7), ({"width": 5}, 5)):
        component = own.read(MODELS, {"type": "own_parts:Net", **given}, "model")
        assert component is not None
        assert component.build(problems=own.problems, width=7, depth=9).width == width
    assert own.problems == []


def test_what_a_constructor_refuses_is_a_problem_at_its_setting() -> None:
    def refuses(rate: float) -> None:
        raise ValueError(f"rate: too large: {rate}")

    def fails(rate: float) -> None:
        raise KeyError("x")

    def names_it(rate: float) -> None:
        raise SettingError("rate", f"too large: {rate}")

    problems: list[Problem] = []
    for make in (refuses, names_it, fails):
        assert Component("model", make, {"rate": 2.0}).build(problems=problems) is None
    assert [(problem.place, problem.message) for problem in problems] == [
        ("model.rate", "too large: 2.0"),
        ("model.rate", "too large: 2.0"),
        ("model", "fails cannot be made with {'rate': 2.0}: KeyError: x"),
    ]


def test_a_part_is_built_with_what_it_needs_first() -> None:
    weights = [torch.nn.Parameter(torch.zeros(1))]
    optimizer = Component("optimizer", torch.optim.SGD, {"lr": 0.5}).build(weights, problems=[])
    assert optimizer.param_groups[0]["lr"] == 0.5
