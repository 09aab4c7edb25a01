"""The samples that a model gets most wrong, as a table with a picture or a text of each."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch
from ignite.engine import Engine
from ignite.metrics import Metric
from ignite.metrics.metric import reinit__is_reduced
from torch import Tensor

from ignite_hooks.distributed.metric_table import Merge, register
from ignite_hooks.measure.results import Result, rows_of

THUMBNAIL: Final = 64
"""The longest side of a picture in pixels."""
LONGEST_TEXT: Final = 300
PICTURE: Final = "data:image/png;base64,"


class Worst(Metric):
    """The samples with the greatest loss: true and predicted class, how sure the model was, and what it saw.

    Args:
        k: Number of samples.
        probabilities: Whether the model returns probabilities, not logits.
    """

    _state_dict_all_req_keys = ("_rows",)
    required_output_keys = ("y_pred", "y")

    def __init__(self, k: int = 12, probabilities: bool = False, **of_metric: Any) -> None:
        if k < 1:
            raise ValueError(f"k: a number of samples is needed, not {k}")
        self.k, self.probabilities = k, probabilities
        self._batch: Any = None
        super().__init__(**of_metric)

    @reinit__is_reduced
    def reset(self) -> None:
        """Start with no samples."""
        self._rows: list[list[Any]] = []

    def iteration_completed(self, engine: Engine) -> None:
        """Look at the batch too, of which a metric otherwise sees the targets alone."""
        self._batch = engine.state.batch
        try:
            super().iteration_completed(engine)
        finally:
            self._batch = None

    @reinit__is_reduced
    def update(self, output: Any) -> None:
        """Keep the worst samples so far."""
        losses, true, predicted, sure = judged(output[0].detach(), output[1].detach(), self.probabilities)
        least = self._rows[-1][0] if len(self._rows) >= self.k else float("-inf")
        chosen = losses.topk(min(self.k, len(losses))).indices.tolist()
        for place in chosen:
            loss = float(losses[place])
            if loss > least:
                row = [loss, true[place].item(), predicted[place].item(), float(sure[place])]
                self._rows.append([*row, seen(self._batch, place)])
        self._rows = worst_of(self._rows, self.k)

    def compute(self) -> Result:
        """Return the table, the worst first."""
        rows = [[what, *row] for *row, what in worst_of(self._rows, self.k)]
        columns = ["sample", "loss", "true", "predicted", "certainty"]
        return rows_of(columns, rows, of_classes=("true", "predicted"))


register(Worst, Merge({"_rows": "JOIN"}))


def worst_of(rows: list[list[Any]], k: int) -> list[list[Any]]:
    """Return the rows with the greatest loss; of equal ones the order does not depend on the rank that saw them.

    Example:
        >>> worst_of([[0.5, 1, 0, 1.0, ""], [2.0, 1, 0, 1.0, ""], [1.0, 1, 0, 1.0, ""]], 2)
        [[2.0, 1, 0, 1.0, ''], [1.0, 1, 0, 1.0, '']]
    """
    return sorted(rows, key=lambda row: (-row[0], str(row[1:])))[:k]


def judged(predicted: Tensor, true: Tensor, probabilities: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return loss, true class, predicted class and certainty of every sample; of pixels the means."""
    if predicted.ndim != true.ndim + 1 or predicted.shape[1] < 2:
        raise ValueError(
            f"the worst samples are those of classes, and scores of the shape {tuple(predicted.shape)} and targets of "
            f"{tuple(true.shape)} are none"
        )
    scores = predicted.float() if probabilities else predicted.float().softmax(1)
    true = true.long()
    right = scores.gather(1, true[:, None])[:, 0].clamp(min=1e-12)
    losses, (sure, best) = -right.log(), scores.max(1)
    if true.ndim > 1:
        losses, sure = losses.flatten(1).mean(1), sure.flatten(1).mean(1)
        true, best = (each.flatten(1).mode(1).values for each in (true, best))
    # NaN is worse than everything.
    losses = losses.nan_to_num(nan=torch.finfo(torch.float32).max)
    return losses.cpu(), true.cpu(), best.cpu(), sure.cpu()


def seen(batch: Any, place: int) -> str:
    """Return what the model saw of a sample: a picture as a data URI, a text, or nothing."""
    for values in _columns(batch):
        if isinstance(values, (list, tuple)) and len(values) > place and isinstance(values[place], str):
            return str(values[place])[:LONGEST_TEXT]
        if isinstance(values, Tensor) and values.ndim == 4 and values.shape[1] in (1, 3) and len(values) > place:
            return thumbnail(values[place])
    return ""


def _columns(batch: Any) -> Iterator[Any]:
    if isinstance(batch, Mapping):
        # Texts first: of tokens nobody can see anything.
        yield from sorted(batch.values(), key=lambda one: isinstance(one, Tensor))
    elif isinstance(batch, (list, tuple)):
        for one in batch:
            yield from _columns(one) if isinstance(one, Mapping) else (one,)


def thumbnail(image: Tensor) -> str:
    """Return a small picture of channels x height x width as a data URI, its values spread from black to white."""
    from PIL import Image

    values = image.detach().float().cpu().nan_to_num()
    low, high = values.min(), values.max()
    pixels = ((values - low) / (high - low).clamp(min=1e-12) * 255).round().byte().movedim(0, -1)
    picture = Image.fromarray(pixels[..., 0].numpy() if pixels.shape[-1] == 1 else pixels.numpy())
    picture.thumbnail((THUMBNAIL, THUMBNAIL))
    written = io.BytesIO()
    picture.save(written, "PNG")
    return PICTURE + base64.b64encode(written.getvalue()).decode()
