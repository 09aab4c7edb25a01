from __future__ import annotations

import json
import math
import random
import time
from typing import Any

import pytest

from ignite_hooks.run.best import (
    GREATER,
    LESS,
    UNDECIDED,
    WEAKLY_GREATER,
    Best,
    Record,
    Rule,
    is_better,
    rule_for,
)

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


def test_no_name_raises_anything_but_a_value_error() -> None:
    seed = time.time_ns()
    print(f"seed {seed}")
    generator = random.Random(seed)
    words = [
        *GREATER,
        *LESS,
        *UNDECIDED,
        *WEAKLY_GREATER,
        "val",
        "IoU",
        "50",
        "mAP",
        "é",
        "²",
        "\ud800",
        "准",
    ]
    separators = ["", "_", "/", "-", ".", " ", "@", "\n", "\0", "(", "\uff11"]
    decided = 0
    for _ in range(20_000):
        parts = []
        for _ in range(generator.randrange(5)):
            word = generator.choice(words)
            parts += [generator.choice([word, word.upper(), word.title()]), generator.choice(separators)]
        parts.append("".join(chr(generator.randrange(0x11_0000)) for _ in range(generator.randrange(3))))
        try:
            assert rule_for("".join(parts)) in ("greater", "less")
            decided += 1
        except ValueError:
            continue
    assert 1_000 < decided < 19_000


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
