from __future__ import annotations

import json
import math
from typing import Any

import pytest

from ignite_hooks.results.better import Rule
from ignite_hooks.run.best import Best, Record

NAN, INF = math.nan, math.inf


def offers(best: Best, scores: list[float], rule: Rule = "greater") -> list[bool]:
    return [best.offer("m", score, step=n, epoch=n, rule=rule) for n, score in enumerate(scores, start=1)]


@pytest.mark.parametrize(
    ("scores", "rule", "expected"),
    [
        ([0.1, 0.5, 0.5, 0.4, 0.6], "greater", [True, True, False, False, True]),
        ([0.9, 0.5, 0.5, 0.0, 0.1], "less", [True, True, False, True, False]),
        ([NAN, 0.1, NAN, INF, 0.2], "greater", [False, True, False, False, True]),
    ],
)
def test_the_record_follows_the_improvements(scores: list[float], rule: Rule, expected: list[bool]) -> None:
    best = Best()
    assert offers(best, scores, rule) == expected
    last = max(n for n, improved in enumerate(expected, start=1) if improved)
    assert best["m"] == Record(scores[last - 1], step=last, epoch=last, file=None)


@pytest.mark.parametrize("score", [0.6, 0.4, NAN])
def test_two_hooks_that_offer_the_same_score_hear_the_same(score: float) -> None:
    best = Best()
    best.offer("accuracy", 0.5, step=10, epoch=1, rule="greater")
    answers = [best.offer("accuracy", score, step=20, epoch=2, rule="greater") for _ in range(3)]
    assert answers == [score == 0.6] * 3


@pytest.mark.parametrize("first", [0.6, 0.4, NAN])
def test_of_two_evaluations_in_one_step_the_better_counts(first: float) -> None:
    best = Best()
    best.offer("accuracy", 0.5, step=10, epoch=1, rule="greater")
    best.offer("accuracy", first, step=20, epoch=2, rule="greater")
    assert best.offer("accuracy", 0.7, step=20, epoch=2, rule="greater")
    assert best["accuracy"] == Record(0.7, step=20, epoch=2)


def test_opposite_rules_for_one_metric_are_refused() -> None:
    best = Best()
    best.watch("accuracy", "greater")
    with pytest.raises(ValueError, match="'accuracy' is ranked by 'greater' and 'less'"):
        best.offer("accuracy", 0.5, step=1, epoch=1, rule="less")
    assert best.rule("accuracy") == "greater"
    assert len(best) == 0


def test_metrics_are_ranked_apart() -> None:
    best = Best()
    assert best.offer("accuracy", 0.5, step=1, epoch=1, rule="greater")
    assert best.offer("loss", 0.5, step=1, epoch=1, rule="less")
    assert not best.offer("accuracy", 0.4, step=2, epoch=2, rule="greater")
    assert best.offer("loss", 0.4, step=2, epoch=2, rule="less")
    assert {metric: record.step for metric, record in best.items()} == {"accuracy": 1, "loss": 2}


def test_a_new_record_has_no_file_until_it_is_named() -> None:
    best = Best()
    best.offer("accuracy", 0.5, step=1, epoch=1, rule="greater")
    best.name_file("accuracy", "best_accuracy_epoch_1.pth")
    assert best["accuracy"] == Record(0.5, 1, 1, "best_accuracy_epoch_1.pth")
    best.offer("accuracy", 0.6, step=2, epoch=2, rule="greater")
    assert best["accuracy"].file is None


def test_a_file_needs_a_record() -> None:
    with pytest.raises(KeyError, match="accuracy"):
        Best().name_file("accuracy", "best.pth")


def filled() -> Best:
    best = Best()
    best.offer("accuracy", 0.1 + 0.2, step=1, epoch=1, rule="greater")
    best.name_file("accuracy", "best.pth")
    best.offer("loss", 0.0, step=2, epoch=1, rule="less")
    best.watch("f1", "greater")
    return best


def test_state_survives_json_to_the_bit() -> None:
    state = filled().state_dict()
    loaded = Best()
    loaded.load_state_dict(json.loads(json.dumps(state, allow_nan=False)))
    assert loaded.state_dict() == state
    assert dict(loaded) == dict(filled())
    assert loaded.rule("f1") == "greater"


def test_state_passes_through_a_safe_checkpoint(tmp_path: Any) -> None:
    import torch

    torch.save({"best": filled().state_dict()}, tmp_path / "best.pth")
    assert torch.load(tmp_path / "best.pth", weights_only=True)["best"] == filled().state_dict()


def test_resuming_ranks_as_if_never_stopped() -> None:
    scores = [0.3, 0.5, NAN, 0.4, 0.5, 0.6, 0.1]
    straight = Best()
    expected = offers(straight, scores)
    for stop in range(len(scores) + 1):
        first, second = Best(), Best()
        answers = offers(first, scores[:stop])
        second.load_state_dict(first.state_dict())
        answers += [
            second.offer("m", score, step=n, epoch=n, rule="greater")
            for n, score in enumerate(scores[stop:], start=stop + 1)
        ]
        assert answers == expected
        assert second.state_dict() == straight.state_dict()


def test_loading_replaces_records_and_keeps_declared_rules() -> None:
    best = filled()
    best.load_state_dict({})
    assert len(best) == 0
    with pytest.raises(ValueError, match="ranked by 'greater' and 'less'"):
        best.offer("accuracy", 0.1, step=1, epoch=1, rule="less")


def test_records_ranked_by_the_opposite_rule_are_not_loaded() -> None:
    best = Best()
    best.watch("accuracy", "less")
    best.load_state_dict(filled().state_dict())
    assert "accuracy" not in best


def test_the_state_is_a_copy() -> None:
    best = filled()
    best.state_dict()["accuracy"]["record"]["score"] = 99.0
    assert best["accuracy"].score == 0.1 + 0.2


def test_it_prints_what_a_person_wants_to_know() -> None:
    best = Best()
    assert repr(best) == "best()"
    best.offer("accuracy", 0.971, step=700, epoch=7, rule="greater")
    best.offer("loss", 0.0123456789, step=800, epoch=8, rule="less")
    assert repr(best) == "best(accuracy=0.971 at epoch 7, loss=0.0123457 at epoch 8)"
