from __future__ import annotations

import pytest

from ignite_hooks import BaseHook, build_hook
from ignite_hooks.engine.same_plan import differences
from ignite_hooks.engine.stopping import StopVote, agreed_reason, may_end_a_run, place_in_words
from ignite_hooks.plan.plan import Plan


@pytest.mark.parametrize(
    ("wishes", "reason"),
    [
        (["enough", "enough"], "enough"),
        ([None, "SIGTERM received"], "SIGTERM received on rank 1"),
        (["a", "b"], "a on rank 0"),
    ],
)
def test_the_first_rank_with_a_reason_gives_it(wishes: list[str | None], reason: str) -> None:
    assert agreed_reason(wishes) == reason


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ((0, 0, 0), "at the start of the run"),
        ((1, 2, 10), "at the start of epoch 2, iteration 10"),
        ((4, 3, 30), "in an evaluation in epoch 3, iteration 30"),
    ],
)
def test_places_have_words(place: tuple[int, int, int], words: str) -> None:
    assert place_in_words(*place) == words


def test_alone_there_is_nothing_to_agree_about() -> None:
    agreement = StopVote()
    agreement.begin(Plan({"hook": BaseHook()}))
    assert not agreement.needed
    assert not agreement.is_due(1)


def test_observing_hooks_do_not_count_for_the_vote() -> None:
    names = ("RuntimeInfoHook", "IterTimerHook", "LoggerHook", "DistSamplerSeedHook", "SyncBuffersHook", "EMAHook")
    assert [may_end_a_run(build_hook({"type": name})) for name in names] == [False] * len(names)
    others = (BaseHook(), build_hook({"type": "CheckpointHook"}), build_hook({"type": "EarlyStoppingHook"}))
    assert all(map(may_end_a_run, others))


PLAN = {"names": ["a", "b"], "settings": {"a": {"x": 1}, "b": {}}, "lines": [["a", "one"], ["b", "two"]]}


@pytest.mark.parametrize(
    ("other", "wanted"),
    [
        ({"names": ["a"], "lines": [["a", "one"]]}, "rank 3 has no 'b', which rank 0 has"),
        ({"names": ["a", "b", "c"]}, "rank 3 has 'c', which rank 0 does not have"),
        ({"names": ["b", "a"]}, "their order differs on rank 3"),
        ({"settings": {"a": {"x": 2}, "b": {}}}, "a.x is 1 on rank 0 and 2 on rank 3"),
        ({"lines": [["a", "one"], ["b", "three"]]}, "'b' differs on rank 3: three, two"),
    ],
)
def test_what_differs_is_named(other: dict[str, object], wanted: str) -> None:
    assert list(differences(PLAN, {**PLAN, **other}, 3)) == [wanted]
