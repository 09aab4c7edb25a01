"""Results of every kind, as an evaluation hands them to writers."""

from __future__ import annotations

from typing import Any

import numpy

from ignite_hooks.measure.worst import thumbnail

CURVE = [[0.5, 1.0], [1.0, 0.5]]


def every_kind() -> dict[str, dict[str, Any]]:
    """Return a result of each kind by its name."""
    import torch

    picture = thumbnail(torch.eye(8)[None])
    return {
        "confusion": {"kind": "matrix", "values": [[3, 1], [0, 2]], "labels": ["cat", "dog"]},
        "iou": {"kind": "vector", "values": [0.5, float("nan")], "labels": ["cat", "dog"]},
        "pr": {"kind": "curves", "lines": {"cat": CURVE}, "axes": ["recall", "precision"], "totals": {"cat": [2, 4]}},
        "worst": {"kind": "table", "columns": ["sample", "loss"], "rows": [[picture, 0.5], ["a text", 0.25]]},
    }


def write_media(writer: Any, step: int = 4) -> None:
    """Write a sound of a tenth of a second and a video of three frames."""
    writer.write_audio("val/tone", numpy.sin(numpy.arange(800) / 10), step, rate=8000)
    writer.write_video("val/film", [numpy.full((16, 24, 3), shade, numpy.uint8) for shade in (0, 120, 250)], step)


def write_all(writer: Any, step: int = 4) -> None:
    """Write them, with a picture that can be drawn of each."""
    for name, result in every_kind().items():
        writer.write_result(name, result, step, kind="val", epoch=1, draw=lambda: numpy.zeros((4, 6, 3), numpy.uint8))
