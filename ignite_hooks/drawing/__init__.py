"""Arrays to pictures. Nothing here knows of runs; only figures and rare characters load matplotlib.

>>> from ignite_hooks import drawing
>>> sorted(drawing.__all__)[:4]
['BoxStyle', 'Boxes', 'Tile', 'as_images']
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ignite_hooks.drawing.boxes import Boxes, BoxStyle, draw_boxes
    from ignite_hooks.drawing.confusion_matrix import confusion
    from ignite_hooks.drawing.explain import attention_maps, feature_maps, grad_cam, layer_cam, rollout, saliency
    from ignite_hooks.drawing.figures import attentions, classification, detections, features, heats, segmentations
    from ignite_hooks.drawing.heatmaps import heat, heat_over
    from ignite_hooks.drawing.images import as_images
    from ignite_hooks.drawing.layout import Tile, save, sheet
    from ignite_hooks.drawing.masks import as_mask, overlay
    from ignite_hooks.drawing.training_curves import curves

_HOME = {
    "BoxStyle": "boxes",
    "Boxes": "boxes",
    "draw_boxes": "boxes",
    "curves": "training_curves",
    "attention_maps": "explain",
    "feature_maps": "explain",
    "grad_cam": "explain",
    "layer_cam": "explain",
    "rollout": "explain",
    "saliency": "explain",
    "heat": "heatmaps",
    "heat_over": "heatmaps",
    "as_images": "images",
    "as_mask": "masks",
    "overlay": "masks",
    "Tile": "layout",
    "save": "layout",
    "sheet": "layout",
    "attentions": "figures",
    "classification": "figures",
    "confusion": "confusion_matrix",
    "detections": "figures",
    "features": "figures",
    "heats": "figures",
    "segmentations": "figures",
}


def __getattr__(name: str) -> Any:
    # Loaded on first use: hooks import this package, and most runs draw nothing.
    if name in _HOME:
        return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "BoxStyle",
    "Boxes",
    "Tile",
    "as_images",
    "as_mask",
    "attention_maps",
    "attentions",
    "classification",
    "confusion",
    "curves",
    "detections",
    "draw_boxes",
    "feature_maps",
    "features",
    "grad_cam",
    "heat",
    "heat_over",
    "heats",
    "layer_cam",
    "overlay",
    "rollout",
    "saliency",
    "save",
    "segmentations",
    "sheet",
]
