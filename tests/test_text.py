"""Numbers, times, sizes, tables and places as text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ignite_hooks.errors import CheckpointError, ConfigError
from ignite_hooks.text import (
    below,
    clock,
    columns,
    counted,
    did_you_mean,
    duration,
    escaped,
    html_table,
    indented_json,
    nearest,
    number,
    one_line,
    out_of,
    shortened,
    shown,
    size,
    table,
)
from tests.properties import ANY_TEXT, tried


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.4321, "0.4321"),
        (0.001, "0.0010"),
        (0.0, "0.0000"),
        (9.99996, "10.0000"),
        (-0.5, "-0.5000"),
        (12.3456, "12.346"),
        (99999.0, "99999"),
        (1e5, "1.00e+05"),
        (0.00012, "1.20e-04"),
        (7, "7"),
        (123456, "123456"),
        (float("inf"), "inf"),
    ],
)
def test_numbers_are_about_six_characters_wide(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(83, "0:01:23"), (0.4, "0:00:00"), (180000, "2 days, 2:00:00"), (59.7, "0:01:00")]
)
def test_a_time_as_a_clock_shows_it(seconds: float, text: str) -> None:
    assert clock(seconds) == text


@pytest.mark.parametrize(
    ("now", "last", "text"), [(3, 100, "  3/100"), (100, 100, "100/100"), (7, None, "7"), (12, 9, "12/9")]
)
def test_places(now: int, last: int | None, text: str) -> None:
    assert out_of(now, last) == text


@pytest.mark.parametrize(
    ("seconds", "text", "precise"),
    [
        (0.0, "0 µs", "0.0 µs"),
        (0.00099949, "999 µs", "999.5 µs"),
        (0.0009996, "1.0 ms", "1.0 ms"),
        (0.5, "500 ms", "500.0 ms"),
        (0.9996, "1.0 s", "1.00 s"),
        (59.9, "59.9 s", "59.90 s"),
        (59.96, "1 min 0 s", "1 min 0 s"),
        (3599.6, "1 h 0 min", "1 h 0 min"),
    ],
)
def test_a_time_with_the_unit_that_suits_it(seconds: float, text: str, precise: str) -> None:
    assert (duration(seconds), duration(seconds, precise=True)) == (text, precise)


@pytest.mark.parametrize(("count", "text"), [(0, "0 hooks"), (1, "1 hook"), (12000, "12000 hooks")])
def test_a_number_of_things(count: int, text: str) -> None:
    assert counted(count, "hook") == text


@pytest.mark.parametrize(("count", "text"), [(1023, "1023 B"), (1024, "1.0 KB"), (5 * 2**30, "5.0 GB")])
def test_a_number_of_bytes(count: int, text: str) -> None:
    assert size(count) == text


def test_a_table_has_aligned_columns_and_none_that_is_empty() -> None:
    rows = [{"point": "before_run", "next": "", "hook": "a"}, {"point": "", "next": "", "hook": "b"}]
    assert table(rows).splitlines() == ["point       hook", "before_run  a", "            b"]
    assert table([]) == ""


def test_numbers_are_right_aligned_and_lines_have_no_trailing_spaces() -> None:
    assert columns([("a", "1", "x"), ("bb", "100", "")], numbers=[1]) == ["a     1  x", "bb  100"]


def test_a_notebook_table_shows_hostile_texts_literally() -> None:
    found = html_table([{"<i>": "<script>", "b": "\u202e"}], wide=["b"])
    assert "<script>" not in found
    assert "<i>" not in found
    assert "&lt;script&gt;" in found
    assert "\u202e" not in found
    assert found.count("nowrap") == 2


def test_nothing_invisible_is_left_in_html() -> None:
    assert escaped("a\x00b\u202ec\ud800&") == "a\ufffdb\ufffdc\ufffd&amp;"


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("monitr", "monitor"),
        ("MONITOR", "monitor"),
        ("patiance", "patience"),
        ("xyz", None),
        ("", None),
        (3, None),
        (None, None),
        pytest.param("monitor" * 100_000, None, id="long"),
    ],
)
def test_nearest(word: object, found: str | None) -> None:
    assert nearest(word, ["monitor", "patience", 3]) == found
    assert did_you_mean(word, ["monitor", "patience", 3]) == (f", did you mean {found!r}?" if found else "")


DIFFERENT_LETTERS = st.permutations("abcdefghij").map("".join)


@tried(200)
@given(known=st.lists(DIFFERENT_LETTERS, min_size=1, max_size=6), at=st.integers(0, 9), data=st.data())
def test_a_slip_of_one_letter_finds_a_word(known: list[str], at: int, data: st.DataObject) -> None:
    meant = data.draw(st.sampled_from(known))
    slips = [meant, meant.upper(), meant[:at] + meant[at + 1 :], f"{meant[:at]}X{meant[at:]}"]
    found = [nearest(slip, known) for slip in slips]
    assert found[:2] == [meant, meant]
    assert set(found) <= set(known)


@tried(200)
@given(word=ANY_TEXT, known=st.lists(ANY_TEXT, max_size=4))
def test_a_suggestion_is_always_a_word_that_is_known(word: str, known: list[str]) -> None:
    found = nearest(word, known)
    assert found is None or found in known
    if word and word in known:
        assert found is not None
        assert found.lower() == word.lower()


class Rude:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\nb", "'a\\nb'"),
        pytest.param(10**5000, "<int>", id="huge"),
        (Rude(), "<Rude>"),
        (None, "None"),
        ("x" * 100, "'" + "x" * 56 + "..."),
    ],
)
def test_a_value_is_shown_on_one_short_line(value: object, text: str) -> None:
    assert shown(value) == text


@pytest.mark.parametrize(
    ("key", "place"),
    [
        ("interval", "hooks[0].interval"),
        ("work-dir", "hooks[0].work-dir"),
        ("", "hooks[0]['']"),
        ("a.b", "hooks[0]['a.b']"),
        ("a\nb", "hooks[0]['a\\nb']"),
        (3, "hooks[0][3]"),
        (None, "hooks[0][None]"),
        pytest.param("k" * 1000, "hooks[0]['" + "k" * 56 + "...]", id="long"),
    ],
)
def test_a_place_names_any_key(key: object, place: str) -> None:
    assert below("hooks[0]", key) == place


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("bad\n  value"), "bad value"),
        (KeyError("model"), "KeyError: model"),
        (AttributeError("no"), "AttributeError: no"),
        (ValueError(), "ValueError"),
        pytest.param(ValueError("x" * 500), "x" * 197 + "...", id="long"),
        (ConfigError("two problems"), "two problems"),
        (CheckpointError("no"), "CheckpointError: no"),
        (ModuleNotFoundError("No module named 'tqdm'"), "No module named 'tqdm'"),
    ],
)
def test_the_error_of_someone_else_is_one_line(error: Exception, text: str) -> None:
    assert one_line(error) == text


@tried(200)
@given(ANY_TEXT, st.integers(3, 30))
def test_any_text_is_cut_to_one_line(text: str, longest: int) -> None:
    found = shortened(text, longest)
    assert len(found) <= longest
    assert len(found.splitlines()) <= 1
    assert found == text or found.endswith("...") or found == " ".join(text.split())


@tried(200)
@given(st.floats(-1e300, 1e300) | st.sampled_from([float("inf"), float("nan")]))
def test_any_number_is_read_again_to_four_digits(value: float) -> None:
    found = number(value)
    assert len(found) <= 10
    assert float(found) == pytest.approx(value, rel=5e-3, abs=5e-5, nan_ok=True)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(), inner),
)


@tried(200)
@given(JSON, st.booleans())
def test_indented_json_is_that_of_python(value: Any, ensure_ascii: bool) -> None:
    expected = json.dumps(value, ensure_ascii=ensure_ascii, indent=1)
    assert indented_json(value, ensure_ascii=ensure_ascii) == expected


def test_numbers_that_json_has_not_can_be_refused() -> None:
    assert indented_json([float("inf"), [float("nan")]]) == "[\n Infinity,\n [\n  NaN\n ]\n]"
    with pytest.raises(ValueError, match="Out of range float values"):
        indented_json({"deep": [float("nan")]}, allow_nan=False)
