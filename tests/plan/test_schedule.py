"""How often: one grammar, read once."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ignite_hooks.errors import SettingError
from ignite_hooks.plan.schedule import NEVER, Clock, When, is_scheduled, parse_every, read_when, scheduled
from tests.properties import ANY_TEXT, tried


@pytest.mark.parametrize(
    ("interval", "start", "fires"),
    [
        (1, 0, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
        (2, 0, [2, 4, 6, 8, 10]),
        (2, 1, [1, 3, 5, 7, 9, 11]),
        (2, 5, [5, 7, 9, 11]),
        (3, 2, [2, 5, 8, 11]),
        (50, 0, []),
        (4, 11, [11]),
        (1, 12, []),
    ],
)
def test_it_fires_from_start_on_in_steps_of_the_interval(interval: int, start: int, fires: list[int]) -> None:
    when = When(interval, "epoch", start)
    assert [n for n in range(1, 12) if when.due(n)] == fires


@tried(300)
@given(interval=st.integers(1, 60), start=st.integers(0, 80), n=st.integers(0, 200))
def test_following_is_the_next_number_that_is_due(interval: int, start: int, n: int) -> None:
    when = When(interval, "iter", start)
    assert when.following(n) == next(m for m in range(n + 1, n + 400) if when.due(m))


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("50 iter", (50, "iter")),
        ("50 iters", (50, "iter")),
        ("1 iteration", (1, "iter")),
        ("7 steps", (7, "iter")),
        ("2 epoch", (2, "epoch")),
        (" 2  Epochs ", (2, "epoch")),
        ("10 min", (600, "second")),
        ("10 minutes", (600, "second")),
        ("90 s", (90, "second")),
        ("1.5 h", (5400, "second")),
        ("0.5 seconds", (0.5, "second")),
        ("2hours", (7200, "second")),
    ],
)
def test_every_reads_iterations_epochs_and_time(text: str, meaning: tuple[float, str]) -> None:
    assert parse_every(text) == meaning


@pytest.mark.parametrize(
    "text", ["", "50", "iter", "0 iter", "-1 epoch", "1.5 epoch", "10 parsecs", "0 s", "1e3 iter", 50, None]
)
def test_every_refuses_the_rest_and_shows_how(text: object) -> None:
    with pytest.raises(ValueError, match="write '50 iter', '2 epoch' or '10 min'"):
        parse_every(text)  # type: ignore[arg-type]


UNITS = {"iter": 1, "epochs": 1, "s": 1, "Seconds": 1, "min": 60, "hours": 3600, "d": 86400}


@tried(150)
@given(
    number=st.integers(1, 10**6),
    word=st.sampled_from([*UNITS]),
    spaces=st.lists(st.sampled_from(["", " ", "  "]), min_size=3, max_size=3),
)
def test_every_number_with_a_unit_is_read(number: int, word: str, spaces: list[str]) -> None:
    before, between, after = spaces
    amount, unit = parse_every(f"{before}{number}{between}{word}{after}")
    assert (amount, type(amount)) == (number * UNITS[word], int)
    assert unit == {"iter": "iter", "epochs": "epoch"}.get(word, "second")


@tried(300)
@given(ANY_TEXT | st.builds("{}{} {}".format, st.integers(), ANY_TEXT, st.sampled_from(["iter", "h", "ss"])))
@example("9" * 400 + " h")
@example("9" * 400 + " iter")
def test_any_text_is_how_often_or_a_value_error(text: str) -> None:
    try:
        number, unit = parse_every(text)
    except ValueError:
        return
    assert number > 0
    assert unit in ("iter", "epoch", "second")


@pytest.mark.parametrize(
    ("settings", "meaning"),
    [
        ({}, When(1, "iter", 0)),
        ({"epochs_by_default": True}, When(1, "epoch", 0)),
        ({"interval": 3, "by_epoch": True, "start": 2}, When(3, "epoch", 2)),
        ({"interval": 3, "by_epoch": False, "epochs_by_default": True}, When(3, "iter", 0)),
        ({"every": "2 epoch", "interval": 50, "start": 4}, When(2, "epoch", 4)),
        ({"every": "10 min"}, When(600, "second", 0)),
    ],
)
def test_the_settings_of_a_hook_become_one_value(settings: dict[str, object], meaning: When) -> None:
    assert read_when(**settings) == meaning  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"interval": 0}, "interval is a whole number of at least 1, not 0"),
        ({"interval": True}, "interval is a whole number of at least 1, not True"),
        ({"interval": 1.5}, "interval is a whole number of at least 1, not 1.5"),
        ({"start": -1}, "start is a whole number of at least 0, not -1"),
        ({"by_epoch": "yes"}, "by_epoch is true or false, not 'yes'"),
    ],
)
def test_settings_out_of_range_are_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        read_when(**settings)  # type: ignore[arg-type]
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("setting", "value"),
    [("interval", 0), ("start", -1), ("by_epoch", "yes"), ("every", "often"), ("every", "5 moons")],
)
def test_a_schedule_that_cannot_be_says_which_setting_is_wrong(setting: str, value: object) -> None:
    with pytest.raises(SettingError) as caught:
        read_when(**{setting: value})  # type: ignore[arg-type]
    assert caught.value.setting == setting
    assert caught.value.message == str(caught.value)


def test_a_mark_is_seen_only_where_it_is() -> None:
    @scheduled
    def marked() -> None: ...

    assert is_scheduled(marked)
    assert not is_scheduled(test_a_mark_is_seen_only_where_it_is)


@pytest.mark.parametrize(
    ("when", "words"),
    [
        (When(), "every iter"),
        (When(50), "every 50 iters"),
        (When(2, "epoch", 5), "every 2 epochs from 5"),
        (When(600, "second"), "every 600 s"),
    ],
)
def test_a_schedule_says_itself_in_words(when: When, words: str) -> None:
    assert str(when) == words


def test_clock_reads_time_once_a_second_and_fires_in_time() -> None:
    hand, looks = [0.0], []

    def now() -> float:
        looks.append(hand[0])
        return hand[0]

    clock = Clock(now, lambda mask, pause: (mask, pause))
    clock.start({"a": When(10, "second"), "b": When(25, "second")}, 0)
    fired = []
    for n in range(1, 100_001):
        hand[0] = n * 0.001
        fired += [(key, hand[0]) for key in clock.due(n)]
    assert len(looks) < 150
    a, b = [t for key, t in fired if key == "a"], [t for key, t in fired if key == "b"]
    assert len(a) in (9, 10)
    assert len(b) == 3 or len(b) == 4
    assert all(10 <= later - earlier <= 11.1 for earlier, later in zip([0.0, *a], a, strict=False))


def test_every_rank_does_what_the_first_decides() -> None:
    said: list[tuple[int, int]] = []

    def first(mask: int, pause: int) -> tuple[int, int]:
        said.append((mask, pause))
        return mask, pause

    slots = {"a": When(10, "second"), "b": When(3, "second")}
    hands = [0.0, 0.0]
    rank0 = Clock(lambda: hands[0], first)
    rank1 = Clock(lambda: hands[1], lambda mask, pause: said[-1])
    rank0.start(dict(slots), 0)
    rank1.start(dict(slots), 0)
    for n in range(1, 200):
        hands[0], hands[1] = n * 0.5, n * 0.37 + 5
        assert rank0.due(n) == rank1.due(n)
        assert rank0.next_reading == rank1.next_reading


def test_without_schedules_in_seconds_the_clock_is_never_read() -> None:
    clock = Clock(lambda: 0.0, lambda mask, pause: (mask, pause))
    clock.start({}, 5)
    assert clock.next_reading == NEVER
