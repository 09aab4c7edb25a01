"""What drawing costs: how long a picture that is due stops the loop, and how long one core draws it.

The picture is a sheet of 16 images of 224 x 224 x 3, as it comes from a training; with it their scores or boxes. The
stall is held against the bare copy of the same tensors to the CPU, and drawing against what matplotlib takes alone.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from ignite.engine import Engine
from measure import Chart, Figure, Lane, Result, interleaved, script

from ignite_hooks import DetVisualizationHook, VisualizationHook, attach_hooks, drawing

MOST_OF_A_COPY = 1.3
MOST_SECONDS = 0.25
WHY = "where other processes want the cores, the clock counts their turns too: go by the processor time of the loop"
COUNT, SIDE, BOXES = 16, 224, 5


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Return image-like tensors and their classes."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(COUNT, 3, 14, 14, generator=generator)
    images = torch.nn.functional.interpolate(coarse, (SIDE, SIDE), mode="bicubic")
    return images, torch.arange(COUNT) % 10


def boxes(scores: bool) -> list[dict[str, torch.Tensor]]:
    """Return five boxes for each image."""
    generator = torch.Generator().manual_seed(1)
    found = []
    for _ in range(COUNT):
        low = torch.rand(BOXES, 2, generator=generator) * 120
        made = {"boxes": torch.cat([low, low + 80], 1), "labels": torch.arange(BOXES)}
        found.append({**made, "scores": torch.linspace(0.4, 0.95, BOXES)} if scores else made)
    return found


class Stalled:
    """A loop whose hook is due when it is asked to be: seconds that one call of it takes, with the queue empty."""

    def __init__(self, hook: Any, data: Any, output: Any, folder: Path) -> None:
        self.hook, self.data, self.output = hook, data, output
        trainer = Engine(lambda *_: output)
        self.runner = attach_hooks(trainer, [hook], work_dir=folder)
        self._trainer = trainer
        self.by(time.perf_counter)()

    def by(self, clock: Callable[[], float]) -> Callable[[], float]:
        """Return a measurement: the milliseconds of one sample, without the drawing that is awaited afterwards."""

        def run() -> float:
            start = clock()
            self.hook.after_train_iter(self.runner, self.data, self.output)
            seconds = clock() - start
            self.hook._thread.wait()
            return seconds * 1e3

        return run

    def end(self) -> None:
        """End the thread."""
        self.hook.cleanup(self.runner)


def copying(clock: Callable[[], float], *tensors: Any) -> Callable[[], float]:
    """Return a measurement: the milliseconds of copying tensors to new memory of the CPU."""

    def run() -> float:
        start = clock()
        kept = [tensor.detach().to("cpu", copy=True) for tensor in tensors]
        seconds = clock() - start
        del kept
        return seconds * 1e3

    return run


def timed(call: Callable[[], Any]) -> Callable[[], float]:
    """Return a measurement: the milliseconds of this thread's processor that one call takes."""

    def run() -> float:
        start = time.thread_time()
        call()
        return (time.thread_time() - start) * 1e3

    return run


def by_matplotlib(images: torch.Tensor, with_boxes: bool, path: Path) -> None:
    """Draw the same sheet with matplotlib alone."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Sheet
    from matplotlib.patches import Rectangle

    figure = Sheet(figsize=(9.6, 9.6), dpi=100)
    found = boxes(True)
    for index, image in enumerate(images):
        axes = figure.add_subplot(4, 4, index + 1)
        axes.imshow(image.permute(1, 2, 0).clamp(0, 1).numpy())
        axes.set_axis_off()
        axes.set_title(f"class {index % 10} 0.93", fontsize=8)
        for (left, top, right, bottom), score in zip(
            found[index]["boxes"].tolist(), found[index]["scores"].tolist(), strict=True
        ):
            if with_boxes:
                axes.add_patch(Rectangle((left, top), right - left, bottom - top, fill=False, edgecolor="tab:blue"))
                axes.text(left, top, f"{score:.2f}", fontsize=6, backgroundcolor="tab:blue")
    FigureCanvasAgg(figure).print_png(path)


def painted(images: torch.Tensor, with_boxes: bool, path: Path) -> None:
    """Draw the sheet as a hook does, and save it as PNG."""
    pictures = drawing.as_images(images)
    if with_boxes:
        picture = drawing.detections(pictures, None, boxes(True), title="train, iteration 500")
    else:
        scores = torch.eye(10)[torch.arange(COUNT) % 10] * 5
        picture = drawing.classification(pictures, torch.arange(COUNT) % 10, scores, title="train, iteration 500")
    drawing.save(picture, path)


def both_sides(images: torch.Tensor, path: Path) -> None:
    """Truth beside prediction: 32 images with boxes."""
    picture = drawing.detections(drawing.as_images(images), boxes(False), boxes(True), title="train")
    drawing.save(picture, path)


def idle(folder: Path, with_hook: bool) -> Engine:
    """Return an engine that does nothing, with or without a hook that is never due."""
    trainer = Engine(lambda *_: None)
    attach_hooks(trainer, [VisualizationHook(interval=10**9)] if with_hook else [], work_dir=folder)
    return trainer


def measure(quick: bool) -> Result:
    """Measure stalls, drawings, and iterations in which nothing is due."""
    torch.set_num_threads(1)
    images, labels = batch()
    scores = torch.randn(COUNT, 10)
    found, truth = boxes(True), boxes(False)
    parts = [part for boxed in (*found, *truth) for part in boxed.values()]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        look = Stalled(VisualizationHook(interval=1), (images, labels), (scores, labels), folder / "a")
        boxed = Stalled(DetVisualizationHook(interval=1), (images, truth), found, folder / "b")
        cases: dict[str, Callable[[], float]] = {
            "copy: images and scores": copying(time.perf_counter, images, labels, scores),
            "stall: VisualizationHook": look.by(time.perf_counter),
            "copy: images and boxes": copying(time.perf_counter, images, *parts),
            "stall: DetVisualizationHook": boxed.by(time.perf_counter),
            "copy: images and scores, processor": copying(time.thread_time, images, labels, scores),
            "stall: VisualizationHook, processor": look.by(time.thread_time),
            "copy: images and boxes, processor": copying(time.thread_time, images, *parts),
            "stall: DetVisualizationHook, processor": boxed.by(time.thread_time),
            "draw: plain": timed(lambda: painted(images, False, folder / "plain.png")),
            "draw: boxes": timed(lambda: painted(images, True, folder / "boxes.png")),
            "draw: truth beside prediction": timed(lambda: both_sides(images, folder / "both.png")),
            "matplotlib: plain": timed(lambda: by_matplotlib(images, False, folder / "m.png")),
            "matplotlib: boxes": timed(lambda: by_matplotlib(images, True, folder / "n.png")),
        }
        rounds = interleaved(cases, 3 if quick else 10)
        for stalled in (look, boxed):
            stalled.end()
        lanes = {key: Lane(idle(folder / key, key == "idle"), 200) for key in ("bare", "idle")}
        between = interleaved({key: lane.advance for key, lane in lanes.items()}, 5 if quick else 60)
        for lane in lanes.values():
            lane.end()

    def ratio(one: str, other: str) -> Any:
        return rounds.combined(lambda a, b: a / b, one, other)

    def of_processor(hook: str, what: str) -> Any:
        # What other processes on this machine do in between does not count in it.
        return ratio(f"stall: {hook}, processor", f"copy: images and {what}, processor")

    def seconds(case: str) -> Any:
        return rounds.combined(lambda a: a / 1e3, case)

    figures = [
        Figure(
            "due: stall / copy", ratio("stall: VisualizationHook", "copy: images and scores"), "×", MOST_OF_A_COPY, WHY
        ),
        Figure(
            "... with boxes", ratio("stall: DetVisualizationHook", "copy: images and boxes"), "×", MOST_OF_A_COPY, WHY
        ),
        Figure("... by processor time of the loop", of_processor("VisualizationHook", "scores"), "×", MOST_OF_A_COPY),
        Figure("... with boxes", of_processor("DetVisualizationHook", "boxes"), "×", MOST_OF_A_COPY),
        Figure("not due: iteration / without the hook", between.combined(lambda a, b: a / b, "idle", "bare"), "×"),
        Figure("16 images with boxes, one core", seconds("draw: boxes"), "s", MOST_SECONDS),
        Figure("... truth beside prediction (32 images)", seconds("draw: truth beside prediction"), "s"),
        Figure("... plain", seconds("draw: plain"), "s", MOST_SECONDS),
        Figure("boxes: ours / matplotlib alone", ratio("draw: boxes", "matplotlib: boxes"), "×"),
        Figure("plain: ours / matplotlib alone", ratio("draw: plain", "matplotlib: plain"), "×"),
    ]
    drawn = {"ours, boxes": "draw: boxes", "matplotlib, boxes": "matplotlib: boxes"}
    drawn |= {"ours, plain": "draw: plain", "matplotlib, plain": "matplotlib: plain"}
    bars = {who: rounds.spread(case) for who, case in drawn.items()}
    chart = Chart("drawing", "Drawing and saving a sheet of 16 images", "ms of one core", bars)
    about = "milliseconds: of the loop (stall, copy), of one core (draw, matplotlib)"
    return Result(about, "ms", rounds.values, figures, [chart], ".3f")


if __name__ == "__main__":
    script(measure, __doc__)
