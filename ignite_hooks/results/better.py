"""Rules that say which of two scores is better: from the name of the metric, or as the user says."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Sequence
from typing import Literal

from ignite_hooks.errors import SettingError

Rule = Literal["greater", "less"]

SPELLINGS: dict[str, Rule] = {"greater": "greater", "max": "greater", "less": "less", "min": "less"}
# The values to propose, by the name of the setting.
PROPOSALS = {"mode": "'max' or 'min'", "rule": "'greater' or 'less'"}


def _table(words: str) -> frozenset[str]:
    return frozenset(words.split())


LESS = _table(
    """
    loss losses error errors err cost regret penalty residual
    mae mse rmse msle rmsle mape smape
    perplexity ppl nll bce ce crossentropy cross_entropy xent kl kld divergence
    wer cer eer ece brier fid kid lpips
    distance hausdorff chamfer epe latency
    """
)
GREATER = _table(
    """
    accuracy accuracies acc f1 fbeta precision recall sensitivity specificity
    map ap ar iou miou giou dice jaccard auc auroc auprc top
    psnr ssim ssims bleu rouge meteor ndcg mrr
    r2 kappa mcc correlation pearson spearman similarity
    reward elbo throughput fps
    """
)
# Means greater only if no other word decides: an `fid_score` is still a distance.
WEAKLY_GREATER = _table("score scores")
# These words reverse or remove the meaning: `neg_mean_squared_error`, `accuracy_drop`, `loss_std`.
UNDECIDED = _table("neg negative negated minus inverse drop gap reduction std variance")

_PIECE = re.compile(r"IoU\d*|[A-Z]+(?![^\W\d_A-Z])\d*|[A-Z]?[^\W\d_A-Z]+\d*|\d+")


def rule_for(metric: str, rule: str = "auto", *, setting: Literal["mode", "rule"] = "mode") -> Rule:
    """Return whether greater or less is better for `metric`; messages name `setting` as the one to set.

    >>> rule_for("val_loss"), rule_for("val/mAP50"), rule_for("top1_error"), rule_for("reach", "max")
    ('less', 'greater', 'less', 'greater')
    """
    if rule in SPELLINGS:
        return SPELLINGS[rule]
    if rule != "auto":
        known = ", ".join(repr(spelling) for spelling in SPELLINGS)
        raise SettingError(setting, f"{rule!r} is not one of {known}, 'auto'")
    decided = _decide(_words(metric))
    if decided is None:
        raise ValueError(
            f"cannot tell whether a higher or lower {metric!r} is better: set {setting} to {PROPOSALS[setting]}"
        )
    return decided


def is_better(score: float, best: float | None, rule: Rule, min_delta: float = 0.0) -> bool:
    """Return whether `score` improves on `best` by more than `min_delta`; NaN and infinities never do.

    >>> is_better(0.0, None, "greater"), is_better(0.5, 0.5, "less"), is_better(0.8, 0.7, "greater", 0.1)
    (True, False, False)
    """
    if not math.isfinite(score):
        return False
    if best is None or not math.isfinite(best):
        return True
    gain = score - best if rule == "greater" else best - score
    if min_delta == 0.0:
        return gain > 0.0
    # In floating point 0.8 - 0.7 is slightly more than 0.1, and an improvement of exactly min_delta does not count.
    rounding = 2 * sys.float_info.epsilon * max(abs(score), abs(best))
    return gain > min_delta + rounding


def among_best(score: float, others: Sequence[float], keep: int, rule: Rule) -> bool:
    """Return whether `score` is among the best `keep` of these scores; one that only equals the last of them is not.

    >>> among_best(7.0, [9.0, 5.0, 3.0], 3, "greater"), among_best(3.0, [9.0, 5.0, 3.0], 3, "greater")
    (True, False)
    """
    if not math.isfinite(score):
        return False
    worst = sorted(others, reverse=rule == "greater")[keep - 1 : keep]
    return not worst or is_better(score, worst[0], rule)


def _words(metric: str) -> list[str]:
    """Split a name: `valLoss` -> val, loss; `bbox_mAP50` -> bbox, m, ap; the digit of `f1` is part of the word."""
    pieces = (piece.lower() for piece in _PIECE.findall(metric))
    words = (piece if piece in GREATER else piece.rstrip("0123456789") for piece in pieces)
    return [word for word in words if word]


def _decide(words: list[str]) -> Rule | None:
    if UNDECIDED.intersection(words):
        return None
    decision: Rule | None = None
    for before, word in zip(["", *words], words, strict=False):
        if word in LESS or f"{before}_{word}" in LESS:
            decision = "less"
        elif word in GREATER:
            # Names usually end in what they are (`map_loss`), but mmdet's losses begin with it (`loss_iou`): if a loss
            # ends in a word of the other side, the user decides.
            decision = None if {"loss", "losses"}.intersection(words) else "greater"
    if decision is None and WEAKLY_GREATER.intersection(words) and not LESS.intersection(words):
        return "greater"
    return decision
