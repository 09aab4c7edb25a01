"""YAML that is written, and texts in which single values are replaced."""

from __future__ import annotations

from typing import Any

import pytest

from ignite_hooks.config.connected.yaml_text import as_yaml, read_text, text_of

TEXT = """# what we train
training: {epochs: 3, optimizer: {type: Adam, lr: 1e-4}}   # short
hooks:
  - type: CheckpointHook
    max_keep_ckpts: 3  # no more
  - LoggerHook
tracker:
  api_key: "k-1234567890"
"""


def wanted(**training: Any) -> dict[str, Any]:
    content: dict[str, Any] = read_text(TEXT, "")
    content["training"] |= training
    return content


@pytest.mark.parametrize(
    "value", ["1e-4", "yes", "0o7", "true", "null", 1e-5, float("inf"), "a: b", None, [1, ["x"]], {}]
)
def test_what_is_written_is_read_back(value: object) -> None:
    assert read_text(as_yaml({"a": value}), "") == {"a": value}


def test_a_text_that_says_the_same_stays_as_it_is() -> None:
    assert text_of(wanted(), TEXT) == TEXT


def test_a_value_is_replaced_and_comments_stay() -> None:
    changed = wanted(epochs=5)
    changed["tracker"]["api_key"] = "***"
    changed["hooks"][0]["max_keep_ckpts"] = None
    expected = TEXT.replace("epochs: 3", "epochs: 5").replace('"k-1234567890"', "***")
    assert read_text(text_of(changed, TEXT), "") == changed
    assert text_of(changed, TEXT) == expected.replace("max_keep_ckpts: 3", "max_keep_ckpts: null").replace(
        "api_key: ***", 'api_key: "***"'
    )


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("a: &x {b: 1}\nc: *x", {"a": {"b": 1}, "c": {"b": 2}}),
        ("a: 1", {"a": 1, "b": 2}),
        ("a:", {"a": 2}),
        ("a: |\n  x\nb: 1", {"a": "y", "b": 1}),
        ("[", {"a": 1}),
        ("- EMAHook  # one", {"hooks": ["EvalHook"]}),
    ],
)
def test_a_text_always_says_what_is_wanted(text: str, content: dict[str, Any]) -> None:
    assert read_text(text_of(content, text), "") == content
