from __future__ import annotations

import sys

import pytest
import torch

from ignite_hooks.measure.environment import command, environment_facts


def test_it_lists_what_a_run_runs_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", "--token", "k-123", "two words"])
    found = environment_facts(torch.nn.Linear(2, 3), "cpu")
    assert found["model"] == "Linear, 9 of 9 parameters trainable"
    assert found["device"] == "cpu"
    assert found["processes"] == "one"
    assert found["command"] == "train.py --token '***' 'two words'"
    assert f"torch {torch.__version__}" in found["versions"]


def test_what_there_is_none_of_is_left_out() -> None:
    assert "model" not in environment_facts()


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["a", "--password=x", "b"], "a '--password=***' b"),
        (["a", "--api-key", "x", "--key", "--verbose"], "a --api-key '***' --key --verbose"),
        (["a", "--keep", "x", "--tokens=3"], "a --keep x --tokens=3"),
        (["token", "x"], "token x"),
    ],
    ids=str,
)
def test_secrets_of_a_command_line_are_masked_by_their_names(words: list[str], shown: str) -> None:
    assert command(words) == shown
