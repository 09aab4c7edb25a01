"""`better.py`: a name says which of two scores is better, or the user does."""

from __future__ import annotations

import collections
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ignite_hooks.results.better import (
    GREATER,
    LESS,
    UNDECIDED,
    WEAKLY_GREATER,
    Rule,
    among_best,
    is_better,
    rule_for,
)
from tests.properties import tried

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    "metric",
    [
        *sorted(GREATER | WEAKLY_GREATER),
        *[
            "val_accuracy",
            "val/acc",
            "Accuracy",
            "accuracy_val",
            "valAcc",
            "test.f1",
            "macro-f1",
            "macro F1",
            "F1Score",
        ],
        *[
            "mAP",
            "mAP50",
            "map50",
            "mAP50-95",
            "bbox_mAP_50",
            "coco/bbox_mAP",
            "AP@50",
            "AR@100",
            "recall@10",
        ],
        *[
            "mIoU",
            "meanIoU",
            "IoU",
            "aAcc",
            "mDice",
            "top1",
            "top-5",
            "accuracy/top1",
            "top1_acc",
            "psnr",
            "ssims",
        ],
        *["rouge1", "rougeL", "r2", "R2Score", "val_r2", "silhouette_score", "error_accuracy", "mse_psnr"],
    ],
)
def test_more_is_better(metric: str) -> None:
    assert rule_for(metric) == "greater"


@pytest.mark.parametrize(
    "metric",
    [
        *sorted(LESS),
        *[
            "val_loss",
            "loss_val",
            "valLoss",
            "val/loss",
            "LOSS",
            "loss0",
            "loss_cls",
            "MSELoss",
            "BCEWithLogits",
        ],
        *[
            "top1_error",
            "top5_err",
            "stop_loss",
            "map_loss",
            "acc_loss",
            "dice_loss",
            "GIoULoss",
            "iou_error_rate",
        ],
        *[
            "accumulated_cost",
            "cross_entropy",
            "cross-entropy",
            "crossEntropy",
            "RMSE",
            "val.mae",
            "word WER",
        ],
        *["fid_score", "brier_score", "1error", "loss_iou_loss"],
    ],
)
def test_less_is_better(metric: str) -> None:
    assert rule_for(metric) == "less"


@pytest.mark.parametrize(
    "metric",
    [
        *["", " ", "_", "@50", "foo", "lr", "epoch", "准确率", "50", "entropy", "cross"],
        # Whole words only, also where a letter is not English.
        *[
            "stop",
            "lossy",
            "floss",
            "gloss",
            "macchiato",
            "heatmaps",
            "tap",
            "erroneous",
            "scoreboard",
            "éacc",
            "accé",
        ],
        # mmdet's losses begin with the word: more of them is not better.
        *["loss_iou", "loss_dice", "train/loss_giou", "losses_map"],
        *["neg_mean_squared_error", "neg_log_loss", "accuracy_drop", "loss_std", "gap_accuracy"],
    ],
)
def test_what_cannot_be_told_asks_the_user(metric: str) -> None:
    with pytest.raises(ValueError, match="cannot tell whether a higher or lower") as caught:
        rule_for(metric)
    assert str(caught.value).endswith(f"{metric!r} is better: set mode to 'max' or 'min'")


@pytest.mark.parametrize("word", sorted(GREATER | LESS | WEAKLY_GREATER))
def test_a_part_of_a_word_never_decides(word: str) -> None:
    # A digit ends a word: `f1q` is f1 and q.
    endings = ("", "q", "zz") if word.isalpha() else ("",)
    for name in [f"q{word}{ending}" for ending in endings]:
        with pytest.raises(ValueError, match="cannot tell"):
            rule_for(name)


def test_no_word_is_in_two_tables() -> None:
    tables = [GREATER, LESS, WEAKLY_GREATER, UNDECIDED]
    assert sum(map(len, tables)) == len(frozenset().union(*tables))


@pytest.mark.parametrize(
    ("rule", "expected"), [("greater", "greater"), ("max", "greater"), ("less", "less"), ("min", "less")]
)
def test_a_given_rule_wins_over_the_name(rule: str, expected: Rule) -> None:
    assert rule_for("loss", rule) == rule_for("accuracy", rule) == rule_for("foo", rule) == expected


@pytest.mark.parametrize("rule", ["MAX", "Auto", "", "lower", "max "])
def test_a_rule_is_spelt_exactly(rule: str) -> None:
    with pytest.raises(ValueError, match=r"rule: .* is not one of 'greater', 'max', 'less', 'min', 'auto'"):
        rule_for("loss", rule, setting="rule")


def test_the_message_names_the_setting_of_the_hook() -> None:
    with pytest.raises(ValueError, match=r"^cannot tell .* 'foo' is better: set rule to 'greater' or 'less'$"):
        rule_for("foo", setting="rule")


NAME_PARTS = st.one_of(
    st.sampled_from([*sorted(GREATER | LESS | UNDECIDED | WEAKLY_GREATER), "val", "IoU", "50", "mAP"]).flatmap(
        lambda word: st.sampled_from([word, word.upper(), word.title()])
    ),
    st.sampled_from(["", "_", "/", "-", ".", " ", "@", "\n", "\0", "(", "\uff11", "\ud800", "é", "²", "准"]),
    st.characters(),
)


def answer(name: str) -> str:
    try:
        return rule_for(name)
    except ValueError as error:
        return str(error)[: len("cannot tell")]


@pytest.mark.hypothesis
def test_no_name_raises_anything_but_a_value_error() -> None:
    found: collections.Counter[str] = collections.Counter()

    @tried(300)
    @given(st.lists(NAME_PARTS, max_size=9).map("".join))
    def check(name: str) -> None:
        found[answer(name)] += 1

    check()
    assert set(found) == {"greater", "less", "cannot tell"}
    assert min(found.values()) > 20, found


FINITE = st.floats(allow_nan=False, allow_infinity=False)


@tried(200)
@given(score=FINITE, best=FINITE, min_delta=st.just(0.0) | st.floats(0, 1e300))
def test_of_two_scores_at_most_one_is_better(score: float, best: float, min_delta: float) -> None:
    rules: list[Rule] = ["greater", "less"]
    found = [is_better(score, best, rule, min_delta) for rule in rules]
    assert sum(found) <= (abs(score - best) > min_delta)
    assert found == [is_better(-score, -best, rule, min_delta) for rule in reversed(rules)]
    assert found == [is_better(best, score, rule, min_delta) for rule in reversed(rules)]
    if min_delta == 0:
        assert found == [score > best, score < best]


@tried(200)
@given(score=FINITE | st.sampled_from([NAN, INF]), others=st.lists(FINITE, max_size=6), keep=st.integers(1, 5))
def test_a_score_is_among_the_best_if_fewer_others_are_as_good(score: float, others: list[float], keep: int) -> None:
    as_good = sum(other >= score for other in others)
    assert among_best(score, others, keep, "greater") == (math.isfinite(score) and as_good < keep)
    less = [-other for other in others]
    assert among_best(-score, less, keep, "less") == among_best(score, others, keep, "greater")


@pytest.mark.parametrize(
    ("score", "best", "rule", "min_delta", "expected"),
    [
        (0.6, 0.5, "greater", 0.0, True),
        (0.5, 0.6, "greater", 0.0, False),
        (0.5, 0.6, "less", 0.0, True),
        (0.6, 0.5, "less", 0.0, False),
        (0.5, 0.5, "greater", 0.0, False),
        (0.5, 0.5, "less", 0.0, False),
        (0.0, None, "greater", 0.0, True),
        (0.0, 0.5, "less", 0.0, True),
        (0.5, 0.0, "greater", 0.0, True),
        (0.1, 0.0, "less", 0.0, False),
        (0.0, -0.0, "greater", 0.0, False),
        (-1.0, -2.0, "greater", 0.0, True),
        (math.nextafter(1.0, 2.0), 1.0, "greater", 0.0, True),
        (5e-324, 0.0, "greater", 0.0, True),
        (NAN, None, "greater", 0.0, False),
        (NAN, 0.5, "less", 0.0, False),
        (INF, 0.5, "greater", 0.0, False),
        (-INF, 0.5, "less", 0.0, False),
        (INF, None, "less", 0.0, False),
        (0.5, NAN, "greater", 0.0, True),
        (0.5, INF, "greater", 0.0, True),
        (0.5, -INF, "less", 0.0, True),
        (1e308, -1e308, "greater", 1.0, True),
        (0.61, 0.5, "greater", 0.1, True),
        (0.55, 0.5, "greater", 0.1, False),
        (1.0, 0.5, "greater", 0.5, False),
        (0.8, 0.7, "greater", 0.1, False),
        (0.7, 0.8, "less", 0.1, False),
        (0.3, 0.2, "greater", 0.1, False),
        (0.69, 0.8, "less", 0.1, True),
        (100.2, 100.1, "greater", 0.1, False),
        (0.01, None, "greater", 0.1, True),
    ],
)
def test_better_means_finite_and_beyond_min_delta(
    score: float, best: float | None, rule: Rule, min_delta: float, expected: bool
) -> None:
    assert is_better(score, best, rule, min_delta) is expected
