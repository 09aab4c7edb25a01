"""`benchmarks/drawing.py`: the loop whose pictures are measured."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ignite_hooks import VisualizationHook


def test_a_picture_that_is_due_is_drawn_and_its_thread_ends(script: Callable[[str], Any], tmp_path: Path) -> None:
    images, labels = torch.rand(2, 3, 8, 8), torch.arange(2)
    stalled = script("drawing").Stalled(
        VisualizationHook(interval=1), (images, labels), (torch.rand(2, 10), labels), tmp_path
    )
    assert stalled.by(time.perf_counter)() > 0
    assert list(tmp_path.rglob("*.png")) or list(tmp_path.rglob("*.jpg"))
    stalled.end()
