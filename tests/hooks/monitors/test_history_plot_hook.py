from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from ignite_hooks import attach_hooks
from ignite_hooks.hooks.monitors.history_plot_hook import MAX_POINTS, HistoryPlotHook, add_point, as_number
from ignite_hooks.testing import MemoryWriter, TinyRun, tiny_run


def trained(folder: Path, *hooks: Any, epochs: int = 3, **how: Any) -> tuple[TinyRun, Any, MemoryWriter]:
    run, sink = tiny_run(), MemoryWriter()
    cfg = {"hooks": list(hooks), "writers": [sink]}
    runner = attach_hooks(run.trainer, cfg, evaluators=run.evaluator, work_dir=folder, **run.services, **how)
    run.trainer.run(run.data, max_epochs=epochs)
    assert runner.report().failures == {}
    return run, runner, sink


def test_the_curves_are_drawn_after_evaluations_into_one_file(tmp_path: Path) -> None:
    _, _, sink = trained(tmp_path, {"type": "EvalHook"}, {"type": "HistoryPlotHook", "interval": 1})
    assert {name for name, _, _ in sink.images} == {"history"}
    assert sink.images[-1][2] == 9, "the last evaluation is drawn, whatever was skipped before"
    assert np.asarray(Image.open(tmp_path / "visualization" / "history.png")).shape[0] > 200


def test_losses_are_recorded_on_schedule_metrics_at_every_evaluation(tmp_path: Path) -> None:
    hook = HistoryPlotHook(interval=2)
    trained(tmp_path, {"type": "EvalHook"}, hook)
    points = {name: [step for step, _ in values] for name, values in hook.state.points.items()}
    assert points["loss"] == [2, 4, 6, 8]
    assert points["val_loss"] == points["val_accuracy"] == [3, 6, 9]


def test_metrics_choose_the_numbers(tmp_path: Path) -> None:
    hook = HistoryPlotHook(interval=1, metrics=["val_loss"])
    trained(tmp_path, {"type": "EvalHook"}, hook)
    assert list(hook.state.points) == ["val_loss"]


def test_a_run_without_evaluations_is_drawn_at_its_end(tmp_path: Path) -> None:
    _, _, sink = trained(tmp_path, HistoryPlotHook(interval=1))
    assert [(name, step) for name, _, step in sink.images] == [("history", 9)]


def test_a_resumed_run_continues_its_curve(tmp_path: Path) -> None:
    checkpoint = {"type": "CheckpointHook", "save_best": False}
    trained(tmp_path, checkpoint, HistoryPlotHook(interval=1), epochs=2)
    hook = HistoryPlotHook(interval=1)
    trained(tmp_path, checkpoint, hook, epochs=3, resume="auto")
    assert [step for step, _ in hook.state.points["loss"]] == list(range(1, 10))


def test_a_second_run_starts_with_empty_curves(tmp_path: Path) -> None:
    hook = HistoryPlotHook(interval=1)
    run, _, _ = trained(tmp_path, hook, epochs=2)
    run.trainer.state.max_epochs = None
    run.trainer.run(run.data, max_epochs=1)
    assert [step for step, _ in hook.state.points["loss"]] == [1, 2, 3]


def test_the_state_does_not_grow_with_the_run() -> None:
    points: list[tuple[int, float]] = []
    for step in range(10_000):
        points = add_point(points, (step, float(step)))
        assert len(points) <= MAX_POINTS
    assert points[0] == (0, 0.0)
    assert points[-1] == (9999, 9999.0)
    assert [step for step, _ in points] == sorted({step for step, _ in points})


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (1, 1.0),
        (0.5, 0.5),
        (torch.tensor(0.5, requires_grad=True), 0.5),
        (torch.zeros(3), None),
        (True, None),
        ("text", None),
        (None, None),
    ],
)
def test_only_single_numbers_are_drawn(value: Any, number: float | None) -> None:
    assert as_number(value) == number


def test_numbers_that_are_not_finite_are_drawn_as_gaps(tmp_path: Path) -> None:
    hook = HistoryPlotHook(interval=1)
    hook.state.points["loss"] = [(1, 0.5), (2, math.nan), (3, math.inf)]
    run, sink = tiny_run(), MemoryWriter()
    runner = attach_hooks(run.trainer, {"hooks": [hook], "writers": [sink]}, work_dir=tmp_path, **run.services)
    hook._draw(runner)
    hook.cleanup(runner)
    assert len(sink.images) == 1


def test_the_best_score_is_marked_in_its_curve(tmp_path: Path) -> None:
    from ignite_hooks.drawing import training_curves as learning

    seen: list[Any] = []
    real = learning.curves
    hook = HistoryPlotHook(interval=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learning, "curves", lambda *given, **named: seen.append(named["best"]) or real(*given, **named))
        trained(tmp_path, {"type": "EvalHook"}, hook)
    assert list(seen[-1]) == ["val_accuracy"]
