"""A run whose trackers are compared with ``metrics.jsonl``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
from PIL import Image

from ignite_hooks import BaseHook, attach_hooks
from ignite_hooks.hooks.trackers.tracker_hook import TrackerHook
from ignite_hooks.run.runner import Runner
from ignite_hooks.testing import tiny_run
from ignite_hooks.writers.interface import full_name
from ignite_hooks.writers.jsonl import read_jsonl
from ignite_hooks.writers.trackers.tracker_writer import TrackerWriter

PICTURE = numpy.random.default_rng(0).integers(0, 256, (9, 12, 3), dtype=numpy.uint8)
CANARY = "canary-77aa01bc43"
Series = dict[str, list[tuple[int, float]]]


class Draws(BaseHook):
    """Draws the same picture after every epoch."""

    def after_epoch(self, runner: Any) -> None:
        runner.writer.write_image("predictions/cat", PICTURE, runner.global_step)


class Patient(BaseHook):
    """Lets the end of the run wait for a tracker on a slow machine until it has everything."""

    def before_train(self, runner: Any) -> None:
        for hook in runner.hooks.values():
            if isinstance(hook, TrackerHook) and isinstance(hook._writer, TrackerWriter):
                hook._writer.deadline = 240.0


def train(
    folder: Path, hook: dict[str, Any], *, epochs: int = 3, fail: bool = False, hooks: Sequence[Any] = (), **more: Any
) -> Runner:
    """Train for real, 4 iterations an epoch; the hook and LoggerHook write every second one."""
    run = tiny_run(batches=4)

    class Fails(BaseHook):
        def after_epoch(self, epoch: int) -> None:
            if fail and epoch == epochs - 1:
                raise RuntimeError("boom")

    cfg = {
        "default_hooks": {
            "logger": {"interval": 2},
            "timer": None,
            "checkpoint": {"best_metric": "accuracy", "max_keep_ckpts": 1},
        },
        "custom_hooks": [{"interval": 2, "image_interval": 8, **hook}, Draws(), Fails(), Patient(), *hooks],
        "tracker": {"api_key": CANARY},
    }
    runner = attach_hooks(run.trainer, cfg, work_dir=folder, **run.services, **more)
    try:
        run.trainer.run(run.data, max_epochs=epochs)
    except Exception:
        assert fail
    assert runner.report().failures.keys() <= {"Fails"}
    assert runner.writer.failures() == {}
    return runner


def as_written(folder: Path) -> Series:
    """Return the numbers of ``metrics.jsonl`` by the names that trackers use."""
    found: Series = {}
    for line in read_jsonl(folder / "metrics.jsonl"):
        for name, value in line.get("scalars", {}).items():  # a line may have results instead
            value = math.nan if value is None else value
            found.setdefault(full_name(name, line["kind"]), []).append((line["step"], value))
    return found


def clearml_name(title: str, variant: str) -> str:
    """Return the name in ``metrics.jsonl`` of a number of ClearML."""
    if variant == "train":
        return title
    return f"{variant}/{title}" if variant in ("val", "test") else f"{title}/{variant}"


def size_of(path: Path) -> tuple[int, int]:
    """Return the width and height of a picture."""
    with Image.open(path) as picture:
        return picture.size


def holding_the_canary(folder: Path) -> list[Path]:
    """Return the files that contain the secret of the configuration."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    assert files
    return [path for path in files if CANARY.encode() in path.read_bytes()]


TESTED_OFFLINE = """
import sys
from pathlib import Path
import torch
from ignite_hooks.run.late_test import LateTest
from ignite_hooks.writers.trackers.MODULE import WRITER as Writer
from tests.hooks.trackers.tracked import train

folder = Path(sys.argv[1])
if sys.argv[2] == "train":
    train(folder, {"type": "HOOK", "mode": "offline"})
else:
    writer = Writer(work_dir=folder, deadline=240.0)
    assert writer.go_on("finished", 1.8e9)
    assert writer.follows_later == (sys.argv[2] == "before")
    LateTest("test", "best.pth", sys.argv[2], True, 16, {"accuracy": 0.25}).write(writer)
    writer.close()
"""


def later_test_script(hook: str, writer: str) -> str:
    """Return a script that trains offline in a folder, or gives its run a later test before or after it is sent.

    Args:
        hook: The class of the hook.
        writer: Its writer, as ``clearml.ClearMLWriter``.
    """
    module, name = writer.split(".")
    return TESTED_OFFLINE.replace("MODULE", module).replace("WRITER", name).replace("HOOK", hook)
