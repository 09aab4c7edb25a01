"""Events with filters are read alike as objects and as text, and say what to write where they cannot be read."""

from __future__ import annotations

from typing import Any

import pytest
from ignite.engine import Engine, Events

from ignite_hooks.errors import SettingError
from ignite_hooks.plan.ignite_events import read_event


@pytest.mark.parametrize(
    ("given", "words", "passed"),
    [
        ("ITERATION_COMPLETED(every=2)", "every=2", [2, 4, 6]),
        ("Events.ITERATION_COMPLETED( every = 2 )", "every=2", [2, 4, 6]),
        (Events.ITERATION_COMPLETED(every=2), "every=2", [2, 4, 6]),
        ("ITERATION_COMPLETED(once=3)", "once=3", [3]),
        (Events.ITERATION_COMPLETED(once=3), "once=3", [3]),
        ("ITERATION_COMPLETED(after=2, before=5)", "before=5, after=2", [3, 4]),
        (
            Events.ITERATION_COMPLETED(event_filter=lambda engine, n: n == 4),
            "where event_filter says so",
            [4],
        ),
    ],
    # An event with a filter is written with the address of a function.
    ids=lambda value: str(value).partition("(filter=")[0],
)
def test_a_filter_passes_what_ignite_would_call(given: Any, words: str, passed: list[int]) -> None:
    read = read_event(given)
    assert read.name == "ITERATION_COMPLETED"
    assert read.only is not None
    assert read.only.words == words
    assert read.every == (2 if words == "every=2" else None)
    trainer, seen = Engine(lambda engine, batch: None), list[int]()

    @trainer.on(Events.ITERATION_COMPLETED)
    def note() -> None:
        assert read.only is not None
        seen.extend([trainer.state.iteration] if read.only.passes(trainer) else [])

    trainer.run([0] * 6, max_epochs=1)
    assert seen == passed


@pytest.mark.parametrize("given", ["STARTED", "Events.STARTED", Events.STARTED])
def test_an_event_without_a_filter_is_its_name(given: Any) -> None:
    assert read_event(given)[:1] == ("STARTED",)
    assert read_event(given).only is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("EPOCH_COMPLETED(evry=2)", "did you mean 'every'"),
        ("EPOCH_COMPLETED(2)", r"write one as EPOCH_COMPLETED\(every=2\), with every, once, before or after"),
        ("EPOCH_COMPLETED(every=x)", "write one as"),
        ("EPOCH_COMPLETED(every=", "write one as"),
        ("EPOCH_COMPLETED(every=0)", "every"),
        ("EPOCH_COMPLETED()", "write one as"),
        ("EPOCH_COMPLETD(every=2)", "did you mean 'EPOCH_COMPLETED'"),
        ("EPOCH_COMPLETED | STARTED", "an entry for each"),
        (Events.EPOCH_COMPLETED | Events.STARTED, "an entry for each"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_remedy(given: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message) as caught:
        read_event(given)
    assert caught.value.setting == "event"
