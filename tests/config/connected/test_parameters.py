"""Names and texts of hyper-parameters."""

from __future__ import annotations

from typing import Any

import pytest

from ignite_hooks.config.connected.parameters import as_text, entry_name, parameters_of, parsed, sections_of
from ignite_hooks.errors import ConfigError

CONTENT: dict[str, Any] = {
    "hooks": [{"type": "EMAHook", "decay": 0.9}, "LoggerHook", {"type": "EvalHook", "name": "val"}],
    "default_hooks": {"timer": None, "logger": {"interval": 5}},
    "writers": [{"type": "JsonlWriter", "path": "a"}],
    "training": {"optimizer": {"type": "Adam", "betas": [0.9, 0.99]}, "scheduler": {}},
    "dataset": {"transforms": [{"size": 3}, {"size": 4}]},
    "seed": 3,
}


def test_every_value_has_a_name_with_its_section() -> None:
    assert {name: value for name, (_, value) in parameters_of(CONTENT).items()} == {
        "Hooks/EMAHook/type": "EMAHook",
        "Hooks/EMAHook/decay": 0.9,
        "Hooks/LoggerHook/type": "LoggerHook",
        "Hooks/val/type": "EvalHook",
        "Hooks/val/name": "val",
        "Hooks/timer": None,
        "Hooks/logger/interval": 5,
        "Writers/JsonlWriter/type": "JsonlWriter",
        "Writers/JsonlWriter/path": "a",
        "Training/optimizer/type": "Adam",
        "Training/optimizer/betas": [0.9, 0.99],
        "Training/scheduler": {},
        "Dataset/transforms/0/size": 3,
        "Dataset/transforms/1/size": 4,
        "Run/seed": 3,
    }


def test_a_path_leads_to_its_value() -> None:
    for path, value in parameters_of(CONTENT).values():
        at: Any = CONTENT
        for key in path if path[:2] != ("hooks", 1) else path[:2]:
            at = at[key]
        assert at == value


def test_no_two_values_share_a_name() -> None:
    content = {"a": {"b": {"c": 1}, "b/c": 2}, "hooks": ["EMAHook", "EMAHook"], "Hooks": {"x": 1}, "run": {"x": 1}}
    assert [value for _, value in parameters_of(content).values()] == [1, 2, "EMAHook", "EMAHook", 1, 1]
    assert sections_of(content) == {"a": "A", "hooks": "Hooks", "Hooks": "Hooks_", "run": "Run_"}


@pytest.mark.parametrize(
    "value",
    [
        *(1, 0.1, 1e-5, True, None, "", "auto", "true", "1", "a: b", "[", "yes", "#x", " x", "a\nb", [1, "1"], [], {}),
        *(float("inf"), -float("inf"), "*x", "1e3", "null", "é"),
    ],
)
def test_a_text_is_read_back_as_what_it_was(value: object) -> None:
    assert parsed(as_text(value), value) == value
    assert repr(parsed(as_text(value), "something else")) == repr(value)


@pytest.mark.parametrize(
    ("text", "recorded", "value"),
    [
        ("0.5", 1, 0.5),
        ("True", False, True),
        ("2", "x", 2),
        ("yes", "x", "yes"),
        ("[1, 2]", [1], [1, 2]),
        ("", 1, None),
    ],
)
def test_an_edited_text_is_read_as_in_yaml(text: str, recorded: object, value: object) -> None:
    assert parsed(text, recorded) == value


@pytest.mark.parametrize("text", ["yes", "[1", "'x"])
def test_what_is_no_value_is_refused_where_no_text_was(text: str) -> None:
    with pytest.raises(ConfigError):
        parsed(text, 3)


def test_an_object_is_named_by_its_class() -> None:
    assert entry_name(object()) == "object"
    assert entry_name({"type": "ignite.handlers.TimeLimit"}) == "TimeLimit"
