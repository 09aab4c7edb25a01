"""`signals.py`: which signal does what, and every problem at its place."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from ignite_hooks import ConfigError, attach_hooks
from ignite_hooks.config.read import read_config
from tests.tools import echo_trainer

WHOLE = {"hooks": [], "signals": {"TERM": "save and stop", "sigusr1": "save", "INT": "stop"}, "requeue": True}


def test_signals_are_read_by_name() -> None:
    settings = read_config(WHOLE, defaults={})
    assert settings.signals == {
        signal.SIGTERM: "save and stop",
        signal.SIGUSR1: "save",
        signal.SIGINT: "stop",
    }
    assert settings.requeue is True


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"signals": "USR1"}, "signals: a mapping of signals to actions is needed, as in {USR1: save}, not 'USR1'"),
        ({"signals": {"USR3": "save"}}, "signals.USR3: no signal that can be handled, did you mean 'USR2'?"),
        ({"signals": {"KILL": "stop"}}, "signals.KILL: no signal that can be handled; there are TERM, INT, USR1"),
        ({"signals": {"USR1": "safe"}}, "signals.USR1: 'save', 'stop' or 'save and stop' is needed, not 'safe'"),
        ({"signals": {"USR1": "save", "SIGUSR1": "stop"}}, "signals.SIGUSR1: is named twice: give one of them"),
        ({"signals": {10: "save"}}, "no signal that can be handled"),
        ({"requeue": "yes"}, "requeue: true or false is needed, not 'yes'"),
        ({"requeue": True}, "requeue: no signal leads to it, as TERM and INT end a job for good: name the signal"),
        ({"requeue": True, "signals": {"TERM": "save and stop"}}, "requeue: no signal leads to it"),
        ({"signal": {"USR1": "save"}}, "did you mean 'signals'?"),
    ],
)
def test_problems_of_signals(keys: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_config({"hooks": [], **keys}, defaults={})
    assert problem in str(caught.value)


def test_a_save_needs_a_hook_that_saves() -> None:
    with pytest.raises(ConfigError, match=r"signals.USR1: no hook saves: add \{type: CheckpointHook\}"):
        attach_hooks(echo_trainer(), {"hooks": [], "signals": {"USR1": "save"}})


def test_editors_know_signals() -> None:
    known = json.loads((Path(__file__).parents[2] / "configs/schema.json").read_text())["properties"]
    schema = {"properties": {name: known[name] for name in ("signals", "requeue")}}
    jsonschema.validate({"signals": {"TERM": "save and stop", "SIGUSR1": "save"}, "requeue": True}, schema)
    for wrong in ({"signals": {"KILL": "save"}}, {"signals": {"TERM": "safe"}}, {"requeue": "yes"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)
