"""Single values said on the command line."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ignite_hooks.config.overrides import with_overrides
from ignite_hooks.errors import Problem
from tests.properties import ANY_TEXT, tried

CONTENT: dict[str, Any] = {
    "model": "cnn",
    "training": {"epochs": 3},
    "hooks": [{"type": "LoggerHook"}],
    "empty": [],
    "custom_hooks": ["EvalHook"],
}


@pytest.mark.parametrize(
    ("override", "where", "value"),
    [
        ("training.epochs=5", ("training", "epochs"), 5),
        ("training.optimizer.lr=1e-3", ("training", "optimizer", "lr"), 0.001),
        ("hooks.0.interval=10", ("hooks", 0, "interval"), 10),
        ("custom_hooks.0.interval=5", ("custom_hooks", 0), {"type": "EvalHook", "interval": 5}),
        ("hooks.0={type: EvalHook}", ("hooks", 0), {"type": "EvalHook"}),
        ("model.channels=[8, 16]", ("model",), {"type": "cnn", "channels": [8, 16]}),
        ("training.device=", ("training", "device"), None),
        ("training.amp=true", ("training", "amp"), True),
        ("name=a=b", ("name",), "a=b"),
    ],
)
def test_a_value_is_put_where_its_path_leads(override: str, where: tuple[Any, ...], value: Any) -> None:
    problems: list[Problem] = []
    found: Any = with_overrides(CONTENT, [override], problems)
    for key in where:
        found = found[key]
    assert (found, problems) == (value, [])
    assert CONTENT["training"] == {"epochs": 3}, "the original is not changed"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training", "KEY=VALUE is needed, as in --set training.epochs=3"),
        (".epochs=1", "KEY=VALUE is needed"),
        ("hooks.1.interval=1", "hooks has no entry 1: it has 0 LoggerHook"),
        ("hooks.x.interval=1", "hooks has no entry x"),
        ("hooks.\n.interval=1", "hooks has no entry '\\n'"),
        ("a\nb", "'a\\nb': KEY=VALUE is needed"),
        ("empty.0=1", "empty is empty"),
        ("training.epochs.more=1", "training.epochs is 3, which has nothing called 'more'"),
        ("trainig.epochs=1", "there is no 'trainig' here, did you mean 'training'?"),
        ("training.epochs=[1", "'[1' is no value"),
        ("writers.0.path=1", "there is no list 'writers' here, and so no entry 0 of it"),
    ],
)
def test_impossible_overrides_are_reported(override: str, message: str) -> None:
    problems: list[Problem] = []
    assert with_overrides(CONTENT, [override], problems) == CONTENT
    assert message in str(problems[0])
    assert len(problems) == 1


STEPS = st.sampled_from(
    ["model", "training", "hooks", "empty", "custom_hooks", "writers", "type", "0", "1", "00", "-1", "²"]
)
ANY_PATH = st.lists(STEPS | ANY_TEXT, min_size=1, max_size=4).map(".".join)


@tried(300)
@given(path=ANY_PATH, value=st.sampled_from(["3", "a", "", "{a: [1]}", "[1", "&a [*a]", "null"]) | ANY_TEXT)
def test_any_override_is_put_in_or_reported(path: str, value: str) -> None:
    problems: list[Problem] = []
    before = repr(CONTENT)
    found = with_overrides(CONTENT, [f"{path}={value}"], problems)
    assert repr(CONTENT) == before
    assert len(problems) <= 1
    assert (found == CONTENT) >= bool(problems), "what is reported changes nothing"
    assert all("\n" not in str(problem) for problem in problems)
