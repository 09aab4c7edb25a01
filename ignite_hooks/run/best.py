"""Rules for comparing scores, and the record of the best score of each metric."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

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


@dataclass(frozen=True, slots=True)
class Record:
    """The best score of one metric, when it was reached, and the checkpoint that holds it."""

    score: float
    step: int
    epoch: int
    file: str | None = None


class Best(Mapping[str, Record]):
    """The one record of best: metric -> `Record`, shared by evaluation, checkpoint and early stopping.

    >>> best = Best()
    >>> best.offer("accuracy", 0.971, step=700, epoch=7, rule="greater")
    True
    >>> best
    best(accuracy=0.971 at epoch 7)
    """

    def __init__(self) -> None:
        self._records: dict[str, Record] = {}
        self._rules: dict[str, Rule] = {}

    def watch(self, metric: str, rule: Rule) -> None:
        """Declare the rule of a metric; raise an error if the opposite has been declared."""
        declared = self._rules.setdefault(metric, rule)
        if declared != rule:
            raise ValueError(f"metric {metric!r} is ranked by {declared!r} and {rule!r}: choose one")

    def offer(self, metric: str, score: float, *, step: int, epoch: int, rule: Rule) -> bool:
        """Rank a score; return whether the record of this metric now belongs to this step, whoever offered it."""
        self.watch(metric, rule)
        record = self._records.get(metric)
        if is_better(float(score), record.score if record else None, rule):
            record = self._records[metric] = Record(float(score), step, epoch)
        return record is not None and record.step == step

    def name_file(self, metric: str, file: str | None) -> None:
        """Record the checkpoint that holds the best of `metric`."""
        self._records[metric] = replace(self._records[metric], file=file)

    def rule(self, metric: str) -> Rule:
        return self._rules[metric]

    def state_dict(self) -> dict[str, Any]:
        records = {metric: asdict(record) for metric, record in self._records.items()}
        return {metric: {"rule": rule, "record": records.get(metric)} for metric, rule in self._rules.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the records; leave out those that were ranked by the opposite of a rule declared here."""
        self._records = {}
        for metric, entry in state.items():
            if self._rules.setdefault(metric, entry["rule"]) == entry["rule"] and entry["record"]:
                self._records[metric] = Record(**entry["record"])

    def __getitem__(self, metric: str) -> Record:
        return self._records[metric]

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def __repr__(self) -> str:
        parts = (f"{metric}={record.score:.6g} at epoch {record.epoch}" for metric, record in self.items())
        return f"best({', '.join(parts)})"


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
