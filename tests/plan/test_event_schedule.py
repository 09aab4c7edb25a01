"""A schedule that is spelled as an event of Ignite is due exactly where Ignite calls a handler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ignite.engine import Engine, Events

from ignite_hooks import BaseHook, ConfigError, attach_hooks, scheduled
from ignite_hooks.errors import SettingError
from ignite_hooks.plan.event_schedule import is_event, schedule_given, when_of_event
from ignite_hooks.plan.schedule import NEVER, When
from tests.tools import echo_trainer

FILTERS: list[dict[str, Any]] = [
    {"every": 1},
    {"every": 3},
    {"once": 2},
    {"once": [2, 5, 4]},
    {"after": 4},
    {"before": 4},
    {"after": 2, "before": 6},
    {"every": 2, "after": 3},
    {"every": 3, "before": 8},
    {"every": 2, "after": 1, "before": 7},
    {"after": 6, "before": 3},
    {"event_filter": lambda engine, n: n in (1, 5)},
    {"event_filter": lambda engine, n: engine.state.epoch == 2},
]
WORDS = [str(given).partition("<")[0] for given in FILTERS]


class Acting(BaseHook):
    """Notes when it is called."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.iterations: list[int] = []
        self.epochs: list[int] = []

    @scheduled
    def after_train_iter(self, runner: Any) -> None:
        self.iterations.append(runner.trainer.state.iteration)

    @scheduled
    def after_train_epoch(self, runner: Any) -> None:
        self.epochs.append(runner.trainer.state.epoch)


class Plain:
    """A hook without our parent."""

    def __init__(self, every: Any) -> None:
        self.every = every
        self.iterations: list[int] = []

    def after_train_iter(self, runner: Any) -> None:
        self.iterations.append(runner.trainer.state.iteration)


def called_by_ignite(event: Any, trainer: Engine) -> list[int]:
    """Return a list of the iterations, or epochs, in which Ignite calls a handler of an event."""
    found: list[int] = []
    word = "iteration" if event.name.startswith("ITERATION") else "epoch"
    trainer.add_event_handler(event, lambda engine: found.append(getattr(engine.state, word)))
    return found


@pytest.mark.parametrize("given", FILTERS, ids=WORDS)
@pytest.mark.parametrize("cls", [Acting, Plain])
def test_a_hook_acts_in_the_iterations_of_the_event(cls: type, given: dict[str, Any], tmp_path: Path) -> None:
    trainer, event = echo_trainer(), Events.ITERATION_COMPLETED(**given)
    hook, expected = cls(every=event), called_by_ignite(event, trainer)
    attach_hooks(trainer, [hook], work_dir=tmp_path)
    trainer.run([0, 0, 0], max_epochs=3)
    assert hook.iterations == expected
    assert not getattr(hook, "epochs", ())


@pytest.mark.parametrize("given", FILTERS, ids=WORDS)
@pytest.mark.parametrize("name", ["EPOCH_COMPLETED", "EPOCH_STARTED"])
def test_a_hook_acts_in_the_epochs_of_the_event(name: str, given: dict[str, Any], tmp_path: Path) -> None:
    trainer, event = echo_trainer(), getattr(Events, name)(**given)
    hook, expected = Acting(every=event), called_by_ignite(event, trainer)
    attach_hooks(trainer, [hook], work_dir=tmp_path)
    trainer.run([0, 0], max_epochs=8)
    assert hook.epochs == expected
    assert hook.iterations == []


@pytest.mark.parametrize("given", FILTERS[:-2], ids=WORDS[:-2])
def test_the_next_number_is_the_next_that_is_due(given: dict[str, Any]) -> None:
    when = when_of_event(Events.ITERATION_COMPLETED(**given), None, lambda: None)
    due = [n for n in range(1, 40) if when.due(n)]
    for n in range(30):
        following = next((one for one in due if one > n), None)
        assert when.following(n) == following if following is not None else when.following(n) >= NEVER
    assert when.always == (due == list(range(1, 40)))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("EPOCH_COMPLETED(every=2)", "every 2 epochs"),
        ("Events.ITERATION_COMPLETED", "always"),
        ("ITERATION_STARTED(after=4)", "every iter from 5"),
        ("ITERATION_COMPLETED(after=1, before=9)", "every iter from 2 before 9"),
        ("EPOCH_COMPLETED(once=3)", "once, at epoch 3"),
        (Events.ITERATION_COMPLETED(once=[7, 3]), "at iters 3, 7"),
        (
            Events.EPOCH_COMPLETED(event_filter=lambda engine, n: True),
            "event_filter decides each time: one call of it in every epoch",
        ),
    ],
    ids=lambda value: str(value).partition("(filter=")[0],
)
def test_the_plan_says_when_and_what_a_filter_costs(given: Any, words: str, tmp_path: Path) -> None:
    runner = attach_hooks(echo_trainer(), [{"type": Acting, "every": given}], work_dir=tmp_path)
    (slot,) = [slot for slot in runner.plan if slot.hook == "Acting"]
    assert slot.how_often == words
    assert words in str(runner.plan).replace("\n", " ") or len(words) > 40


def test_a_start_is_added_where_the_event_has_none() -> None:
    assert schedule_given(every=Events.EPOCH_COMPLETED(every=2), start=5) == When(2, "epoch", 5)


def test_a_filter_that_fails_is_a_failure_of_the_hook(tmp_path: Path) -> None:
    asked: list[int] = []

    def fails(engine: Engine, n: int) -> bool:
        asked.append(n)
        raise ValueError("no")

    trainer = echo_trainer()
    hook = Acting(every=Events.ITERATION_COMPLETED(event_filter=fails), on_error="disable")
    runner = attach_hooks(trainer, [hook], work_dir=tmp_path)
    trainer.run([0, 0, 0], max_epochs=1)
    assert asked == [1]
    assert runner.report().failures["Acting"].count == 1


def test_a_filter_is_asked_once_in_each_iteration(tmp_path: Path) -> None:
    asked: list[int] = []
    event = Events.ITERATION_COMPLETED(event_filter=lambda engine, n: bool(asked.append(n)))  # type: ignore[func-returns-value]
    trainer = echo_trainer()
    attach_hooks(trainer, [Acting(every=event)], work_dir=tmp_path)
    trainer.run([0] * 250, max_epochs=1)
    assert asked == list(range(1, 251))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (Events.STARTED, "counts neither iterations nor epochs: write ITERATION_COMPLETED"),
        ("EPOCH_COMPLETD(every=2)", "did you mean 'EPOCH_COMPLETED'"),
        ("EPOCH_COMPLETED(evry=2)", "did you mean 'every'"),
        ("EPOCH_COMPLETD", "counts neither"),
        ("EPOCH_COMPLETED(every=0)", "greater than zero"),
        (Events.EPOCH_COMPLETED | Events.STARTED, "several events"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_an_event_that_is_no_schedule_is_refused_at_its_place(given: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=message):
        schedule_given(every=given)
    with pytest.raises(ConfigError, match=rf"hooks\[0\].every: .*{message}"):
        attach_hooks(echo_trainer(), {"hooks": [{"type": Acting, "every": given}]}, work_dir=tmp_path)
    with pytest.raises(ConfigError, match=message):
        attach_hooks(echo_trainer(), [Acting(every=given)], work_dir=tmp_path)


def test_an_event_that_says_when_it_begins_takes_no_start(tmp_path: Path) -> None:
    event = Events.EPOCH_COMPLETED(after=3)
    with pytest.raises(ConfigError, match=r"start: the event has a filter that says when it begins"):
        attach_hooks(echo_trainer(), {"hooks": [{"type": Acting, "every": event, "start": 2}]}, work_dir=tmp_path)


@pytest.mark.parametrize(
    ("every", "expected"),
    [("50 iter", False), ("10 min", False), (50, False), (None, False), ("EPOCH", False), ("EPOCH_COMPLETED", True)],
)
def test_events_are_told_from_other_schedules(every: object, expected: bool) -> None:
    assert is_event(every) is expected


def test_a_hook_that_decides_itself_goes_first(tmp_path: Path) -> None:
    class Decides(Acting):
        def should_trigger(self, step: int) -> bool:
            return step == 1

    trainer = echo_trainer()
    hook = Decides(every=Events.ITERATION_COMPLETED(event_filter=lambda engine, n: n == 3))
    runner = attach_hooks(trainer, [hook], work_dir=tmp_path)
    trainer.run([0] * 4, max_epochs=1)
    assert hook.iterations == [2]
    assert [slot.how_often for slot in runner.plan if slot.hook == "Decides"] == ["as should_trigger decides"]
