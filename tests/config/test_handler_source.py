"""`handler_source.py`: handlers of Ignite are checked without Ignite."""

from __future__ import annotations

from typing import Any

import pytest

from ignite_hooks.config import handler_source
from ignite_hooks.config.handler_source import check_handler
from ignite_hooks.config.read import HookEntry


def problems(entry: dict[str, Any]) -> list[str]:
    return [str(problem) for problem in check_handler(HookEntry("hooks[0]", entry))[0]]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"type": "ignite.handlers.TimeLimit", "limit_sec": 3}, []),
        ({"type": "ignite.handlers.TimeLimit", "limit_sec": "x"}, ["hooks[0].limit_sec: a whole number"]),
        ({"type": "ignite.handlers.TimeLimt"}, ["hooks[0].type: ignite.handlers has no handler 'TimeLimt', did you"]),
        ({"type": "ignite.handlers.Events"}, ["hooks[0].type: ignite.handlers has no handler 'Events'"]),
        (
            {"type": "ignite.handlers.EarlyStopping"},
            [f"hooks[0].{name}: missing" for name in ("patience", "score_function")],
        ),
        (
            {"type": "ignite.handlers.EMAHandler", "model": "@model", "interval": 3},
            ["hooks[0].interval: no effect: EMAHandler chooses its events itself"],
        ),
        (
            {"type": "ignite.handlers.TerminateOnNan", "event": 3, "prioriti": 1},
            ["hooks[0].prioriti: not a setting of TerminateOnNan"],
        ),
    ],
)
def test_every_problem_of_a_handler_is_found_in_its_source(entry: dict[str, Any], said: list[str]) -> None:
    found = problems(entry)
    assert len(found) >= len(said)
    assert [line[: len(start)] for line, start in zip(found, said, strict=False)] == said
    assert bool(found) == bool(said)


def test_where_the_source_cannot_be_read_a_note_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler_source, "outline", lambda *_: None)
    found, notes = check_handler(HookEntry("hooks[0]", {"type": "ignite.handlers.TimeLimit", "limit_sek": 3}))
    assert found == []
    message = "hooks[0]: the settings of ignite.handlers.TimeLimit could not be read, and were not checked"
    assert notes == [message]
