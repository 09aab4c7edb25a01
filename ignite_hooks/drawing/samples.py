"""The samples in a batch and outputs of a script: images, truth, prediction; and copies of a few of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from ignite_hooks.text import shown

IMAGES = ("images", "image", "imgs", "img", "inputs", "input", "pixel_values", "x", "data")
TARGETS = ("target", "targets", "labels", "label", "y", "y_true", "masks", "mask", "annotations", "data_samples", "gt")
PREDICTIONS = ("y_pred", "predictions", "prediction", "preds", "pred", "logits", "outputs", "output", "out", "scores")


@dataclass
class Samples:
    """The samples of a batch; None for unknown parts.

    Args:
        images: Images to show.
        truth: Their true classes, boxes or masks.
        prediction: The predictions of the model.
        inputs: Inputs of the model if they are not the images.
    """

    images: Any
    truth: Any = None
    prediction: Any = None
    inputs: Any = None

    def __len__(self) -> int:
        return len(self.images)

    @property
    def problem(self) -> str:
        """The reason why there is nothing to draw, or an empty text; a batch of vectors is not an error."""
        shape = tuple(getattr(self.images, "shape", ()))
        return "" if not _is_array(self.images) or len(shape) in (3, 4) else f"a batch of {shape} holds no images"

    def first(self, count: int) -> Samples:
        """Return the first samples, which share the memory of the batch."""
        parts = (self.images, self.truth, self.prediction, self.inputs)
        return Samples(*(None if part is None else part[:count] for part in parts))

    def copied(self, chosen: Sequence[int] | Tensor | int) -> Samples:
        """Return independent copies on the CPU of the chosen samples, or of the first ones if a number is given."""
        return Samples(*(copy_of(part, chosen) for part in (self.images, self.truth, self.prediction)))


def read(batch: Any, outputs: Any = None) -> Samples:
    """Return the samples of a batch: ``(images, target)``, a mapping or a list of pairs; of outputs: ``(y_pred, y)``.

    Example:
        >>> samples = read((torch.rand(2, 3, 8, 8), torch.tensor([1, 0])), (torch.rand(2, 10), torch.tensor([1, 0])))
        >>> len(samples), tuple(samples.prediction.shape)
        (2, (2, 10))
        >>> read((torch.rand(2, 3, 8, 8), torch.tensor([1, 0])), 0.5).prediction is None
        True
    """
    images, target = _of_batch(batch)
    count = len(images)
    prediction, truth = _of_outputs(outputs, count)
    return Samples(images, truth if truth is not None else target if _fits(target, count) else None, prediction)


def samples_of(batch: Any, outputs: Any, extract: Callable[..., Any] | None) -> Samples:
    """Return the samples that the function of the script extracts, or without one those in the usual places."""
    return read(batch, outputs) if extract is None else as_samples(extract(batch, outputs))


def as_samples(given: Any) -> Samples:
    """Return the samples in the mapping that a function of the script returned."""
    if isinstance(given, Samples):
        return given
    known = {"images", "target", "prediction", "inputs"}
    if not isinstance(given, Mapping) or "images" not in given or not known >= set(given):
        raise ValueError(f"extract must return a mapping of images, target, prediction, inputs, not {shown(given)}")
    return Samples(given["images"], given.get("target"), given.get("prediction"), given.get("inputs"))


def _of_batch(batch: Any) -> tuple[Any, Any]:
    if isinstance(batch, Mapping):
        images, target = _named(batch, IMAGES), _named(batch, TARGETS)
        if target is None and _named(batch, ("boxes", "bboxes")) is not None:
            target = [{k: batch[k][i] for k in batch if batch[k] is not images} for i in range(len(images))]
    elif _is_array(batch):
        images, target = batch, None
    elif isinstance(batch, (list, tuple)) and batch:
        first = batch[0]
        if isinstance(first, (list, tuple)) and len(first) == 2 and _is_array(first[0]) and not _is_array(first[1]):
            images, target = [pair[0] for pair in batch], [pair[1] for pair in batch]
        elif all(_is_array(part) and len(part.shape) == 3 for part in batch):
            images, target = list(batch), None
        else:
            images, target = first, batch[1] if len(batch) > 1 else None
    else:
        images = target = None
    if not _is_array(images) and not isinstance(images, (list, tuple)):
        raise ValueError(
            f"no images in a batch of {_kinds(batch)}: set extract to a function of the batch and "
            "the outputs that returns {'images': ..., 'target': ..., 'prediction': ...}"
        )
    return images, target


def _of_outputs(outputs: Any, count: int) -> tuple[Any, Any]:
    if isinstance(outputs, Mapping):
        prediction, truth = _named(outputs, PREDICTIONS), _named(outputs, TARGETS)
    elif isinstance(outputs, (list, tuple)) and len(outputs) == 2 and not isinstance(outputs[0], Mapping):
        prediction, truth = outputs
        if count == 2 and not _fits(prediction, count) and _of_each_image(outputs):
            prediction, truth = outputs, None
    else:
        prediction, truth = outputs, None
        if isinstance(outputs, (list, tuple)) and not _of_each_image(outputs):
            prediction = None
    return (prediction if _fits(prediction, count) else None), (truth if _fits(truth, count) else None)


def outputs_of(outputs: Any, count: int) -> tuple[Any, Any]:
    """Return the predictions and the truth for this number of samples in the outputs of a step; None where unknown."""
    return (None, None) if outputs is None else _of_outputs(outputs, count)


def prediction_of(output: Any, count: int) -> Any:
    """Return the prediction for this number of images in the output of a model."""
    found = _of_outputs(output, count)[0]
    if found is None and isinstance(output, (list, tuple)):
        found = next((part for part in output if _fits(part, count)), None)
    if found is None and _fits(getattr(output, "logits", None), count):
        found = output.logits
    if found is None:
        raise ValueError(f"no prediction for {count} images in the output of the model: {_kinds(output)}")
    return found


def _named(thing: Mapping[Any, Any], names: Sequence[str]) -> Any:
    return next((thing[name] for name in names if thing.get(name) is not None), None)


def _fits(value: Any, count: int) -> bool:
    if _is_array(value):
        return len(value.shape) > 0 and value.shape[0] == count
    return isinstance(value, (list, tuple)) and len(value) == count


def _is_scalar(value: Any) -> bool:
    return isinstance(value, (int, float)) or (_is_array(value) and len(value.shape) == 0)


def _of_each_image(parts: Sequence[Any]) -> bool:
    """Return whether these are one part for each image; the scores, classes and loss of a batch of three are not."""
    if isinstance(parts, tuple) and any(map(_is_scalar, parts)):
        return False
    held = [part for part in parts if not (_is_array(part) and 0 in part.shape)]
    return len({len(part.shape) if _is_array(part) else type(part) for part in held}) <= 1


def _is_array(value: Any) -> bool:
    return isinstance(value, (Tensor, np.ndarray))


def _kinds(value: Any) -> str:
    if _is_array(value):
        return f"an array of {tuple(value.shape)}"
    if isinstance(value, Mapping):
        return f"a mapping of {', '.join(map(str, value))}"
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__} of {', '.join(type(part).__name__ for part in value[:4]) or 'nothing'}"
    return type(value).__name__


def copy_of(value: Any, chosen: Sequence[int] | Tensor | int) -> Any:
    """Return independent copies on the CPU of the chosen entries of a tensor, an array or a list."""
    if value is None:
        return None
    if isinstance(value, Tensor):
        if isinstance(chosen, int):
            return value.detach()[:chosen].to("cpu", copy=True)
        index = torch.as_tensor(chosen, device=value.device)
        return value.detach().index_select(0, index).cpu()
    which = range(min(chosen, len(value))) if isinstance(chosen, int) else [int(index) for index in chosen]
    if isinstance(value, np.ndarray):
        return value[list(which)].copy()
    return [cpu_copy(value[index]) for index in which]


def cpu_copy(value: Any) -> Any:
    """Return a value with copies on the CPU of its tensors and arrays, within lists and mappings too."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, Mapping):
        return {key: cpu_copy(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [cpu_copy(part) for part in value]
    return value


def are_labels(truth: Any) -> bool:
    """Return whether rows of zeros and ones are labels, of which a sample has several or none; not one-hot classes.

    Example:
        >>> are_labels(np.array([[1, 0], [1, 1]])), are_labels(np.array([[1, 0], [0, 1]])), are_labels(np.array([1, 0]))
        (True, False, False)
    """
    if truth.ndim != 2 or truth.shape[1] < 2 or not len(truth):
        return False
    return bool(((truth == 0) | (truth == 1)).all()) and bool((truth.sum(1) != 1).any())


def ranked(prediction: Any, truth: Any, by: str, count: int) -> Sequence[int] | Tensor | int:
    """Return the indices of the samples to draw, or ``count`` itself for the first ones.

    The ``worst`` samples have the lowest probability of the truth, the most ``uncertain`` ones the smallest distance
    between the two best classes. If that is unknown, the first samples are drawn. A truth that is not a class of the
    model, such as an ignored one, comes last.

    Example:
        >>> scores = torch.tensor([[0.0, 9.0], [0.0, 1.0], [9.0, 0.0]])
        >>> ranked(scores, torch.tensor([1, 1, 1]), "worst", 2).tolist(), ranked(scores, None, "uncertain", 1).tolist()
        ([2, 1], [1])
    """
    scores = torch.as_tensor(prediction) if _is_array(prediction) else None
    if by == "first" or scores is None or scores.ndim not in (1, 2) or not scores.is_floating_point():
        return count
    shares = _log_shares(scores.detach().float().nan_to_num())
    if by == "uncertain":
        best = shares.exp().topk(2, 1).values
        return (best[:, 0] - best[:, 1]).argsort(stable=True)[:count]
    if not _is_array(truth):
        return count
    true = torch.as_tensor(truth).detach().to(scores.device)
    if true.shape == scores.shape and are_labels(true):
        wrong = functional.binary_cross_entropy_with_logits(scores.float(), true.float(), reduction="none").sum(1)
        return wrong.nan_to_num(nan=math.inf).argsort(descending=True, stable=True)[:count]
    true = true.argmax(1) if true.ndim == 2 and true.shape[1] > 1 else true.reshape(-1)
    if len(true) != len(shares) or (true.is_floating_point() and bool((true != true.round()).any())):
        return count
    true = true.long()
    known = (true >= 0) & (true < shares.shape[1])
    of_truth = shares.gather(1, true.clamp(0, shares.shape[1] - 1)[:, None])[:, 0]
    return of_truth.masked_fill(~known, math.inf).argsort(stable=True)[:count]


def _log_shares(scores: Tensor) -> Tensor:
    """Return the log probability of each class, N x C, for logits or probabilities, also of a single class."""
    probable = bool(((scores >= -1e-4) & (scores <= 1 + 1e-4)).all())
    if scores.ndim == 1 or scores.shape[1] == 1:
        one = scores.reshape(-1)
        if probable and bool(((one > 0) & (one < 1)).any()):
            return torch.stack([1 - one, one], 1).clamp_min(0).log()
        return functional.logsigmoid(torch.stack([-one, one], 1))
    if probable and torch.allclose(scores.sum(1), torch.ones_like(scores[:, 0]), atol=1e-2):
        return scores.clamp_min(0).log()
    return scores.log_softmax(1)
