from __future__ import annotations

import os
import random
from typing import Any

import pytest

from ignite_hooks.report.curves import MAX_POINTS, CurveSet, Mark, Series, logged_shares


def line(step: int, kind: str = "train", **scalars: Any) -> dict[str, Any]:
    return {"step": step, "epoch": 1, "kind": kind, "time": 10.0, "scalars": scalars}


def test_a_bounded_series_keeps_exact_extremes_and_mean() -> None:
    seed = int(os.environ.get("IGNITE_HOOKS_SEED", "7"))
    print(f"IGNITE_HOOKS_SEED={seed}")
    chance, series = random.Random(seed), Series("loss")
    values = [chance.gauss(0, 1) for _ in range(50_000)]
    for step, value in enumerate(values, 1):
        series.add(value, step, None)
    assert MAX_POINTS / 2 <= len(series.points) <= MAX_POINTS
    assert series.lowest is not None
    assert series.highest is not None
    assert (series.lowest.value, series.highest.value) == (min(values), max(values))
    assert values[series.lowest.step - 1] == series.lowest.value
    assert sum(p.size for p in series.points) == len(values)
    mean = sum(p.value * p.size for p in series.points) / len(values)
    assert mean == pytest.approx(sum(values) / len(values))
    assert [p.step for p in series.points] == sorted(p.step for p in series.points)


def test_values_of_repeated_steps_replace_earlier_ones() -> None:
    series = Series("accuracy")
    for step, value in ((1, 0.1), (2, 0.9), (3, 0.3), (2, 0.2)):
        series.add(value, step, 1)
    assert [(p.step, p.value) for p in series.points] == [(1, 0.1), (2, 0.2)]
    assert series.best == Mark(0.2, 2, 1)


def test_values_that_are_not_finite_are_only_counted() -> None:
    history = CurveSet()
    history.add([line(1, loss=0.5), {**line(2, loss=None), "nonfinite": ["loss"]}, line(3, loss=0.25)])
    assert history.series["loss"].not_finite == 1
    assert [p.step for p in history.series["loss"].points] == [1, 3]


@pytest.mark.parametrize(
    "row", [{}, {"step": "1", "scalars": {"a": 1}}, {"step": 1, "scalars": 3}, line(1, a="text", b=True, c=[1], d=None)]
)
def test_invalid_lines_are_skipped(row: dict[str, Any]) -> None:
    history = CurveSet()
    history.add([row])
    assert history.series == {}


def test_lines_of_an_earlier_run_are_skipped() -> None:
    history = CurveSet(since=10.0)
    history.add([{**line(9, loss=1.0), "time": 9.0}, line(1, loss=2.0)])
    assert [p.value for p in history.series["loss"].points] == [2.0]


def test_related_numbers_share_a_chart() -> None:
    history = CurveSet()
    scalars = {"loss": 1.0, "lr": 0.1, "lr/head": 0.2, "time/iter": 0.3, "grad_norm/a": 1.0, "grad_norm/b": 2.0}
    history.add([line(1, **scalars, **{"share/data": 0.25}), line(1, "val", loss=2.0, accuracy=0.5)])
    history.add([line(1, "system", cpu_percent=3.0)])
    names = {group: [series.name for series in found] for group, found in history.learning().items()}
    assert names == {
        "loss": ["loss", "val/loss"],
        "grad_norm": ["grad_norm/a", "grad_norm/b"],
        "accuracy": ["val/accuracy"],
    }
    assert [series.name for series in history.rates()] == ["lr", "lr/head"]
    assert list(history.resources()) == ["time/iter", "share/data", "cpu_percent"]
    assert list(logged_shares(history)) == [("data", 0.25)]
    assert [series.name for series in history.evaluated()] == ["val/loss", "val/accuracy"]


def test_shares_are_those_of_the_whole_run() -> None:
    history = CurveSet()
    for step in range(1, 1001):
        long = step <= 500
        history.add([line(step, **{"time/iter": 0.3 if long else 0.1, "share/data": 0.8 if long else 0.0})])
        history.add([line(step, "train", **{"share/forward": 0.2 if long else 1.0, "share/hooks": 0.0})])
    assert dict(logged_shares(history)) == pytest.approx({"data": 0.6, "forward": 0.4}, abs=0.01)


def test_throughput_is_a_resource_not_a_metric() -> None:
    history = CurveSet()
    history.add([line(1, **{"throughput/samples_per_s": 900.0, "throughput/tflops": 0.1})])
    assert history.learning() == {}
    assert list(history.resources()) == ["throughput/samples_per_s", "throughput/tflops"]


def test_the_best_value_follows_the_name_or_is_unknown() -> None:
    history = CurveSet()
    for step, value in ((1, 1.0), (2, 3.0), (3, 2.0)):
        history.add([line(step, "val", loss=value, accuracy=value, thing=value)])
    best = {name: series.best and series.best.value for name, series in history.series.items()}
    assert best == {"val/loss": 1.0, "val/accuracy": 3.0, "val/thing": None}


def test_tests_come_after_evaluations() -> None:
    history = CurveSet()
    history.add([line(1, "test", accuracy=0.5), line(1, "val", f1=0.5, accuracy=0.5)])
    assert [series.name for series in history.evaluated()] == ["val/accuracy", "val/f1", "test/accuracy"]
