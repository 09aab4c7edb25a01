"""The texts of a batch that a model gets most wrong, as rows of a table: classes of texts, or tags of their tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from ignite_hooks.drawing.samples import outputs_of
from ignite_hooks.text import shown

LONGEST: Final = 300
"""The number of letters of a text that a table has room for."""
TEXTS: Final = ("texts", "text", "sentences", "sentence", "tokens", "words", "raw_text")


class Texts(NamedTuple):
    """The texts of a batch, or their lists of tokens, with the truth and the prediction of a model."""

    texts: Sequence[Any]
    truth: Any = None
    prediction: Any = None


def texts_of(batch: Any, outputs: Any, extract: Callable[..., Any] | None = None) -> Texts | None:
    """Return the texts of a batch with what is known of them; None where there are none.

    Args:
        batch: A batch: a mapping or a sequence with a list of texts, or of lists of tokens, in it.
        outputs: Predictions, as ``(y_pred, y)`` or in a mapping.
        extract: A function of both that returns a mapping of texts, target and prediction.
    """
    if extract is not None:
        given = extract(batch, outputs)
        if not isinstance(given, Mapping) or "texts" not in given:
            raise ValueError(f"extract must return a mapping of texts, target and prediction, not {shown(given)}")
        return Texts(given["texts"], given.get("target"), given.get("prediction"))
    texts = next((column for column in _columns(batch) if _holds_texts(column)), None)
    if texts is None:
        return None
    prediction, truth = outputs_of(outputs, len(texts))
    return Texts(texts, truth, prediction)


def _columns(batch: Any) -> Iterator[Any]:
    if isinstance(batch, Mapping):
        yield from (batch[name] for name in TEXTS if name in batch)
        yield from batch.values()
    elif isinstance(batch, (list, tuple)):
        for one in batch:
            yield from _columns(one) if isinstance(one, Mapping) else (one,)


def _holds_texts(column: Any) -> bool:
    if not isinstance(column, (list, tuple)) or not column:
        return False
    if all(isinstance(text, str) for text in column):
        return True
    lists = all(isinstance(text, (list, tuple)) for text in column)
    return lists and any(column) and all(isinstance(token, str) for text in column for token in text)


def worst_texts(found: Texts, most: int, labels: Sequence[str] = ()) -> tuple[list[str], list[list[Any]]]:
    """Return the columns and the rows of a table of the texts with the greatest loss, the worst first.

    Args:
        found: Texts with scores of classes: a row for each text, or for each token of each text.
        most: The greatest number of rows.
        labels: The names of the classes or tags. Tags below 0 are left out, as padding is.

    Example:
        >>> scores = torch.tensor([[2.0, 0.0], [0.0, 3.0]])
        >>> columns, rows = worst_texts(Texts(["fine", "awful"], torch.tensor([0, 0]), scores), 1, ["good", "bad"])
        >>> rows
        [['awful', 3.0486, 'good', 'bad', 0.9526]]
    """
    scores, truth = (torch.as_tensor(one).detach().float().cpu() for one in (found.prediction, found.truth))
    if scores.ndim == truth.ndim + 1 and truth.ndim in (1, 2) and scores.shape[:-1] == truth.shape:
        return (_classes if truth.ndim == 1 else _tags)(found.texts, scores, truth.long(), most, labels)
    shapes = f"scores of {tuple(scores.shape)} and targets of {tuple(truth.shape)}"
    raise ValueError(f"{shapes} are no classes of texts, and no tags of tokens")


def _classes(
    texts: Sequence[Any], scores: Tensor, truth: Tensor, most: int, labels: Sequence[str]
) -> tuple[list[str], list[list[Any]]]:
    sure, best = scores.softmax(-1).max(-1)
    losses = _losses(scores, truth)
    rows = []
    for place in losses.argsort(descending=True, stable=True)[:most].tolist():
        text = texts[place] if isinstance(texts[place], str) else " ".join(texts[place])
        names = _name(int(truth[place]), labels), _name(int(best[place]), labels)
        rows.append([text[:LONGEST], round(float(losses[place]), 4), *names, round(float(sure[place]), 4)])
    return ["text", "loss", "true", "predicted", "certainty"], rows


def _tags(
    texts: Sequence[Any], scores: Tensor, truth: Tensor, most: int, labels: Sequence[str]
) -> tuple[list[str], list[list[Any]]]:
    counts, best = truth >= 0, scores.argmax(-1)
    losses = (_losses(scores, truth) * counts).sum(1) / counts.sum(1).clamp(min=1)
    rows = []
    for place in losses.argsort(descending=True, stable=True)[:most].tolist():
        tokens = texts[place].split() if isinstance(texts[place], str) else texts[place]
        wrong = ((best[place] != truth[place]) & counts[place]).tolist()
        marked = [
            _marked(token, truth[place, i], best[place, i], labels) if is_wrong else token
            for i, (token, is_wrong) in enumerate(zip(tokens, wrong, strict=False))
        ]
        said = f"{sum(wrong)} of {int(counts[place].sum())}"
        rows.append([" ".join(marked)[:LONGEST], round(float(losses[place]), 4), said])
    return ["text", "loss", "wrong tags"], rows


def _marked(token: str, true: Any, predicted: Any, labels: Sequence[str]) -> str:
    return f"{token} [{_name(int(true), labels)} → {_name(int(predicted), labels)}]"


def _losses(scores: Tensor, truth: Tensor) -> Tensor:
    right = scores.log_softmax(-1).gather(-1, truth.clamp(min=0)[..., None])[..., 0]
    # NaN is worse than everything.
    return (-right).nan_to_num(nan=torch.finfo(torch.float32).max)


def _name(number: int, labels: Sequence[str]) -> str:
    return str(labels[number]) if 0 <= number < len(labels) else str(number)
