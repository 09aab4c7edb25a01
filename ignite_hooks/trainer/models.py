"""Small models to begin with: each trains in a minute on a CPU, and none is meant to win anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import torch
from annotated_types import Ge, Le
from torch import Tensor, nn
from torch.nn import functional

from ignite_hooks.errors import SettingError

Count = Annotated[int, Ge(1)]
Share = Annotated[float, Ge(0), Le(1)]


class CNN(nn.Module):
    """Convolutions with batch norm, a pooling after each but the first, and one linear layer: classes of images.

    Args:
        num_classes: How many classes there are; the data says so.
        in_channels: How many channels the images have; the data says so.
        channels: How many channels each convolution puts out.
        dropout: The share of features that is left out in training.

    Example:
        >>> CNN(num_classes=10, in_channels=1)(torch.zeros(2, 1, 8, 8)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        num_classes: Count,
        in_channels: Count = 3,
        channels: Sequence[int] = (32, 64, 128),
        dropout: Share = 0.25,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for i, (before, after) in enumerate(zip([in_channels, *channels], channels, strict=False)):
            layers += [nn.MaxPool2d(2, ceil_mode=True)] if i else []
            layers += _convolution(before, after)
        self.features = nn.Sequential(*layers)
        self.head = nn.Sequential(nn.Flatten(), nn.Dropout(dropout), nn.Linear(channels[-1], num_classes))

    def forward(self, images: Tensor) -> Tensor:
        """Return the scores of the classes."""
        # Not AdaptiveAvgPool2d, whose backward pass on CUDA is not deterministic.
        scores: Tensor = self.head(self.features(images).mean(dim=(2, 3)))
        return scores


class MLP(nn.Module):
    """Linear layers over all pixels: classes of small images, or of vectors.

    Args:
        num_classes: How many classes there are; the data says so.
        in_features: How many numbers an input has; the data says so.
        hidden: How many features each hidden layer has.
        dropout: The share of features that is left out in training.

    Example:
        >>> MLP(num_classes=10, in_features=64)(torch.zeros(2, 1, 8, 8)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self, num_classes: Count, in_features: Count, hidden: Sequence[int] = (128, 128), dropout: Share = 0.1
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Flatten()]
        for before, after in zip([in_features, *hidden], hidden, strict=False):
            layers += [nn.Linear(before, after), nn.ReLU(), nn.Dropout(dropout)]
        self.layers = nn.Sequential(*layers, nn.Linear([in_features, *hidden][-1], num_classes))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the scores of the classes."""
        scores: Tensor = self.layers(inputs)
        return scores


class ViT(nn.Module):
    """A small vision transformer: patches, positions, attention; classes of images of one size.

    Args:
        num_classes: How many classes there are; the data says so.
        in_channels: How many channels the images have; the data says so.
        image_size: Height and width of the images; the data says so.
        patch_size: The side of a patch in pixels; the images are a multiple of it.
        width: How many features a patch has.
        depth: How many layers there are.
        heads: How many heads each attention has; the width is a multiple of it.
        dropout: The share of features that is left out in training.

    Example:
        >>> ViT(num_classes=10, in_channels=1, image_size=[8, 8], patch_size=2)(torch.zeros(2, 1, 8, 8)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        num_classes: Count,
        image_size: Sequence[int],
        in_channels: Count = 3,
        patch_size: Count = 4,
        width: Count = 64,
        depth: Count = 4,
        heads: Count = 4,
        dropout: Share = 0.1,
    ) -> None:
        super().__init__()
        height, breadth = image_size
        if height % patch_size or breadth % patch_size:
            raise SettingError(
                "patch_size", f"images of {height} x {breadth} cannot be cut into patches of {patch_size}"
            )
        if width % heads:
            raise SettingError("heads", f"a width of {width} cannot be shared out among {heads}")
        patches = (height // patch_size) * (breadth // patch_size)
        self.patches = nn.Conv2d(in_channels, width, patch_size, stride=patch_size)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, patches + 1, width) * 0.02)
        self.layers = nn.Sequential(*(_Attentive(width, heads, dropout) for _ in range(depth)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, num_classes))

    def forward(self, images: Tensor) -> Tensor:
        """Return the scores of the classes."""
        patches = self.patches(images).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.first.expand(len(patches), -1, -1), patches], dim=1) + self.places
        scores: Tensor = self.head(self.layers(tokens)[:, 0])
        return scores


class _Attentive(nn.Module):
    """One layer of a transformer, normalised before attention and before the linear layers."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, dropout=dropout, batch_first=True)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(2 * width, width),
            nn.Dropout(dropout),
        )

    def forward(self, tokens: Tensor) -> Tensor:
        normal = self.before_attention(tokens)
        tokens = tokens + self.attention(normal, normal, normal, need_weights=False)[0]
        found: Tensor = tokens + self.mlp(self.before_mlp(tokens))
        return found


class Segmenter(nn.Module):
    """A small U-Net: a class for every pixel.

    Args:
        num_classes: How many classes there are, the background included; the data says so.
        in_channels: How many channels the images have; the data says so.
        channels: How many channels each level has; every level halves the size.

    Example:
        >>> Segmenter(num_classes=11, in_channels=1)(torch.zeros(2, 1, 40, 40)).shape
        torch.Size([2, 11, 40, 40])
    """

    def __init__(self, num_classes: Count, in_channels: Count = 3, channels: Sequence[int] = (16, 32, 64)) -> None:
        super().__init__()
        self.down = nn.ModuleList(
            nn.Sequential(*_convolution(before, after), *_convolution(after, after))
            for before, after in zip([in_channels, *channels], channels, strict=False)
        )
        self.up = nn.ModuleList(
            nn.Sequential(*_convolution(below + beside, beside))
            for below, beside in zip(channels[:0:-1], channels[-2::-1], strict=True)
        )
        self.head = nn.Conv2d(channels[0], num_classes, 1)

    def forward(self, images: Tensor) -> Tensor:
        """Return the scores of the classes of every pixel."""
        levels: list[Tensor] = []
        found = images
        for i, level in enumerate(self.down):
            found = level(functional.max_pool2d(found, 2, ceil_mode=True) if i else found)
            levels.append(found)
        for level, beside in zip(self.up, reversed(levels[:-1]), strict=True):
            larger = functional.interpolate(found, beside.shape[2:], mode="nearest")
            found = level(torch.cat([larger, beside], dim=1))
        scores: Tensor = self.head(found)
        return scores


STRIDE = 4
"""The distance in pixels between two places that may be the centre of a box."""


class Detector(nn.Module):
    """A small detector without anchors: every fourth pixel may be the centre of one box.

    In training it returns a map of scores and boxes for ``DetectionLoss``; otherwise what the detectors of torchvision
    do: for every image ``boxes``, ``labels`` and ``scores``, the best first.

    Args:
        num_classes: How many classes there are, of which 0 is the background; the data says so.
        in_channels: How many channels the images have; the data says so.
        channels: How many channels the convolutions have; the second and third halve the size.
        score_threshold: Boxes with a lower score are left out.
        max_boxes: How many boxes an image has at most.

    Example:
        >>> detector = Detector(num_classes=11, in_channels=1)
        >>> detector(torch.zeros(2, 1, 40, 40)).shape, sorted(detector.eval()(torch.zeros(2, 1, 40, 40))[0])
        (torch.Size([2, 14, 10, 10]), ['boxes', 'labels', 'scores'])
    """

    def __init__(
        self,
        num_classes: Count,
        in_channels: Count = 3,
        channels: Sequence[int] = (16, 32, 64, 64),
        score_threshold: Share = 0.05,
        max_boxes: Count = 20,
    ) -> None:
        super().__init__()
        self.score_threshold, self.max_boxes = score_threshold, max_boxes
        layers: list[nn.Module] = []
        for i, (before, after) in enumerate(zip([in_channels, *channels], channels, strict=False)):
            layers += _convolution(before, after, stride=2 if i in (1, 2) else 1)
        self.features = nn.Sequential(*layers)
        self.head = nn.Conv2d(channels[-1], num_classes - 1 + 4, 1)
        # Most places hold nothing: start with this prediction instead of learning it first.
        nn.init.constant_(self.head.bias[: num_classes - 1], -4.0)  # type: ignore[index]

    def forward(self, images: Tensor) -> Any:
        """Return the map in training, else boxes with labels and scores."""
        found: Tensor = self.head(self.features(images))
        return found if self.training else self._boxes(found)

    def _boxes(self, found: Tensor) -> list[dict[str, Tensor]]:
        scores = found[:, :-4].sigmoid()
        # A centre is where no neighbour of the same class has a higher score.
        scores = scores * (scores == functional.max_pool2d(scores, 3, stride=1, padding=1))
        boxes = boxes_of(found[:, -4:])
        places = scores.shape[2] * scores.shape[3]
        best, at = scores.flatten(1).topk(min(self.max_boxes, scores[0].numel()), dim=1)
        results = []
        for i in range(len(found)):
            keep = best[i] >= self.score_threshold
            results.append(
                {
                    "boxes": boxes[i].flatten(1).T[at[i][keep] % places],
                    "labels": at[i][keep] // places + 1,
                    "scores": best[i][keep],
                }
            )
        return results


def boxes_of(distances: Tensor) -> Tensor:
    """Convert the output of a detector, log distances to the sides, to corners in pixels, N x 4 x H x W."""
    height, width = distances.shape[2:]
    down = (torch.arange(height, device=distances.device) + 0.5) * STRIDE
    right = (torch.arange(width, device=distances.device) + 0.5) * STRIDE
    y, x = torch.meshgrid(down, right, indexing="ij")
    left, above, beyond, below = (STRIDE * distances.float().clamp(max=6).exp()).unbind(1)
    return torch.stack([x - left, y - above, x + beyond, y + below], dim=1)


class DetectionLoss(nn.Module):
    """The loss of ``Detector``: focal loss of the classes, and 1 - IoU of the boxes at true centres.

    Args:
        box_weight: How much the boxes count beside the classes.
    """

    def __init__(self, box_weight: Annotated[float, Ge(0)] = 1.0) -> None:
        super().__init__()
        self.box_weight = box_weight

    def forward(self, found: Tensor, targets: Sequence[dict[str, Tensor]]) -> Tensor:
        """Return one number for a batch."""
        scores, corners = found[:, :-4].float(), boxes_of(found[:, -4:])
        height, width = scores.shape[2:]
        image = torch.cat([torch.full_like(t["labels"], i) for i, t in enumerate(targets)])
        boxes, labels = torch.cat([t["boxes"] for t in targets]), torch.cat([t["labels"] for t in targets])
        centre = ((boxes[:, :2] + boxes[:, 2:]) / 2 / STRIDE).long()
        row, column = centre[:, 1].clamp(0, height - 1), centre[:, 0].clamp(0, width - 1)
        truth = torch.zeros_like(scores)
        truth[image, labels - 1, row, column] = 1
        sure = scores.sigmoid()
        wrong = torch.where(truth > 0, 1 - sure, sure)
        focal = wrong**2 * functional.binary_cross_entropy_with_logits(scores, truth, reduction="none")
        count = max(len(boxes), 1)
        loss = focal.sum() / count
        if len(boxes):
            loss = loss + self.box_weight * (1 - _overlap(corners[image, :, row, column], boxes)).mean()
        return loss


def _overlap(one: Tensor, other: Tensor) -> Tensor:
    """Return the intersection over union of boxes, pair by pair."""
    low, high = torch.maximum(one[:, :2], other[:, :2]), torch.minimum(one[:, 2:], other[:, 2:])
    common = (high - low).clamp(min=0).prod(dim=1)
    areas = (one[:, 2:] - one[:, :2]).prod(dim=1) + (other[:, 2:] - other[:, :2]).prod(dim=1)
    return common / (areas - common).clamp(min=1e-6)


def _convolution(before: int, after: int, stride: int = 1) -> list[nn.Module]:
    return [
        nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(after),
        nn.ReLU(inplace=True),
    ]
