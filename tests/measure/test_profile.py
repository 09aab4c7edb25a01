from __future__ import annotations

import pytest

from ignite_hooks.measure.findings import profile_findings
from ignite_hooks.measure.profile import Cycles, Operator, Profile, as_markdown, sections


@pytest.mark.parametrize(
    ("cycles", "stages"),
    [
        (Cycles(2, 1, 3, 2), "..wAAA..wAAA####"),
        (Cycles(0, 0, 2, 2), "AAAA####"),
        (Cycles(0, 1, 1, 3), "wAwAwA##"),
        (Cycles(1, 0, 1, 1), ".A######"),
    ],
)
def test_iterations_are_waited_warmed_up_and_recorded(cycles: Cycles, stages: str) -> None:
    letters = {"wait": ".", "warmup": "w", "active": "A", "done": "#"}
    found = "".join(letters[cycles.at(n)[1]] for n in range(1, len(stages) + 1))
    assert found == stages
    for n in range(len(stages) - 1):
        later = [m for m in range(n + 1, len(stages) + 1) if cycles.at(m)[1] in ("warmup", "active")]
        assert cycles.next_begin(n) == (later[0] if later else None)


def seen(**operators: Operator) -> Profile:
    profile = Profile()
    profile.add(10, {"data": 0.1, "forward": 0.3, "backward": 0.5, "other": 0.1}, operators.values())
    return profile


def test_cycles_are_added_up() -> None:
    profile = seen(a=Operator("a", 1, 0.1, 0.2, 0.0, 5, 7))
    profile.add(10, {"data": 0.1}, [Operator("a", 2, 0.1, 0.2, 0.0, 5, 7), Operator("b", 1)])
    assert profile.iterations == 20
    assert profile.seconds["data"] == 0.2
    assert profile.operators["a"] == Operator("a", 3, 0.2, 0.4, 0.0, 10, 14)
    assert profile.flops == 14


def test_an_empty_profile_has_no_findings() -> None:
    assert profile_findings(Profile()) == []
    assert "Nothing stands out" in as_markdown("t", sections(Profile(), []))


def test_names_that_look_like_markup_are_shown_as_they_are() -> None:
    profile = seen(one=Operator("a<b>|c", 1, 0.9))
    parts = sections(profile, profile_findings(profile))
    assert "a<b>\\|c" in as_markdown("t", parts)


def test_one_iteration_that_others_delay_is_no_finding() -> None:
    """Another program had the processor: twice while data was loaded, once in a backward pass."""
    usual = {"data": 0.001, "forward": 0.010, "backward": 0.020, "optimizer": 0.003}
    iterations = [usual | {"data": 0.2}, usual, usual | {"backward": 0.4}, usual, usual | {"data": 0.1}, usual]
    together = {name: sum(one[name] for one in iterations) for name in usual}
    blamed, profile = Profile(workers=0), Profile(workers=0)
    blamed.add(6, together, [])
    profile.add(6, together, [], each=iterations)
    assert [text.partition(" takes")[0] for text in profile_findings(blamed)] == ["data loading", "the backward pass"]
    assert profile_findings(profile) == []
    assert profile.seconds == together, "the table shows what was measured"


def test_slow_loading_in_most_iterations_is_a_finding() -> None:
    slow, quick = {"data": 0.02, "forward": 0.01}, {"data": 0.0, "forward": 0.01}
    profile = Profile(workers=0)
    profile.add(3, {"data": 0.04, "forward": 0.03}, [], each=[slow, quick, slow])
    assert [text.partition(" takes")[0] for text in profile_findings(profile)] == ["data loading"]
