"""Every number of the demo, in a small form, has one name and one value wherever it is shown."""

from __future__ import annotations

import logging
import os
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ignite_hooks.config.files import load_config
from ignite_hooks.hooks.monitors.report_hook import ReportHook
from ignite_hooks.report.cards import cards
from ignite_hooks.report.sections import hook_costs, resources
from ignite_hooks.trainer.base_trainer import BaseTrainer
from ignite_hooks.trainer.commands import DEMO
from tests.hooks.trackers.tracked import Patient, Series, as_written
from tests.tools import trackers_at
from tests.writers.test_tensorboard import scalars

for module in ("clearml", "mlflow", "sklearn", "wandb"):
    pytest.importorskip(module)

from tests.hooks.trackers.test_clearml_hook import series  # noqa: E402 - it needs what may be missing

EVERY = 3
"""Iterations from one line of the log to the next, as in every tracker."""
LEFT_OUT = ("VisualizationHook", "FeatureMapHook", "ProfilerHook", "ProgressBarHook", "ExportHook")
"""They write no numbers."""


def small_demo() -> dict[str, Any]:
    demo: dict[str, Any] = load_config(DEMO)
    demo["training"] |= {"epochs": 2, "epoch_length": 6, "deterministic": False}
    demo["default_hooks"]["logger"]["interval"] = EVERY
    demo["default_hooks"]["timer"] = {"type": "IterTimerHook", "interval": EVERY}
    hooks = [one for one in demo["custom_hooks"] if one["type"] not in LEFT_OUT]
    for one in hooks:
        if "interval" in one or one["type"] in ("TensorBoardHook", "HistoryPlotHook"):
            one["interval"] = EVERY
    trackers = [
        {"type": "MLflowHook", "experiment": "digits", "interval": EVERY, "log_images": False},
        {"type": "ClearMLHook", "project": "digits", "interval": EVERY, "mode": "offline", "log_images": False},
    ]
    return {**demo, "custom_hooks": [*hooks, *trackers, Patient()]}


def mlflow_series() -> Series:
    import mlflow

    client = mlflow.MlflowClient(os.environ["MLFLOW_TRACKING_URI"])
    found = client.get_experiment_by_name("digits")
    [run] = client.search_runs([found.experiment_id])
    names = {name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
    return {name: sorted((metric.step, metric.value) for metric in rows) for name, rows in names.items()}


def same(found: Series, written: Series) -> None:
    assert found.keys() == written.keys()
    for name, rows in written.items():
        assert sorted(found[name]) == [(step, pytest.approx(value, rel=1e-6)) for step, value in sorted(rows)], name


def shown_in_log(messages: list[str]) -> dict[str, list[str]]:
    """Return the numbers of the lines of training and evaluations, as they are printed."""
    found: dict[str, list[str]] = {}
    for line in messages:
        if line.startswith("Epoch "):
            for name, value in re.findall(r"  (loss|lr) (\S+)", line):
                found.setdefault(name, []).append(value)
        elif match := re.match(r"(val|test) +epoch +\d+  (.*?)(?:  \(best|$)", line):
            for name, value in re.findall(r"([\w/]+) ([\d.]+)", match[2]):
                found.setdefault(f"{match[1]}/{name}", []).append(value)
    return found


@pytest.mark.slow
def test_a_number_has_one_name_and_one_value_everywhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("mlflow"), pytest.importorskip("clearml")
    work_dir = tmp_path / "run"
    with trackers_at(tmp_path), caplog.at_level(logging.INFO):
        trainer = BaseTrainer(small_demo(), work_dir=work_dir)
        result = trainer.train()
        written = as_written(work_dir)
        in_mlflow = mlflow_series()
    runner = trainer.runner
    assert runner.writer.failures() == {}
    assert {"loss", "lr", "val/accuracy", "val/loss", "test/loss", "memory/process_mb"} <= written.keys()
    # Trackers and files.
    same(scalars(work_dir / "tensorboard"), written)
    same(in_mlflow, written)
    with zipfile.ZipFile(next(work_dir.glob("clearml-offline-*.zip"))) as session:
        same(series(session), written)
    # The log prints four digits of the same numbers.
    printed = shown_in_log(caplog.messages)
    assert {"loss", "lr", "val/accuracy", "val/loss", "test/loss"} <= printed.keys()
    for name, values in printed.items():
        exact = [value for _, value in written[name]]
        assert [float(value) for value in values] == [pytest.approx(value, rel=6e-3) for value in exact], name
    # The curves of the picture.
    points: Mapping[str, Any] = runner.hooks["HistoryPlotHook"].state.points
    assert points["loss"] == [(step, pytest.approx(value)) for step, value in written["loss"]]
    for name in ("val_accuracy", "val_loss"):
        assert points[name] == [(step, pytest.approx(v)) for step, v in written[name.replace("_", "/", 1)]]
    # The report.
    hook: ReportHook = runner.hooks["ReportHook"]
    page = hook._page(runner)
    for name, rows in written.items():
        last = page.history.series[name].last
        assert last is not None
        assert (last.step, last.value) == rows[-1], name
    for metric, record in runner.best.items():
        assert (record.step, pytest.approx(record.score)) in written[f"val/{metric.removeprefix('val_')}"]
    # What the run returns is what its delivered weights have reached.
    assert result["test_loss"] == written["test/loss"][-1][1]
    # What the hooks cost, in the last lines of the log and in the report.
    _, _, told = next(line for line in caplog.messages if line.startswith("what the hooks cost:")).partition("hook ")
    rows = [line.split() for line in told.partition("timer:")[0].splitlines()[1:] if len(line.split()) == 7]
    seconds = runner.report().seconds
    costs = {
        one.name: [f"{one.calls}", f"{one.total * 1e3:.2f}", f"{one.mean * 1e6:.1f}", f"{one.total / seconds:.2%}"]
        for one in page.costs
    }
    assert {name: [calls, total, mean, share] for name, calls, total, mean, _, _, share in rows} == costs
    assert page.seconds == seconds
    # The share of hooks in an iteration: the timer's, in card, finding, bar and table.
    share = f"{page.shares['hooks']:.0%}"
    phases = {name: f"{value:.0%}" for name, value in page.shares.items()}
    assert f"of an iteration hooks take {share.replace('%', ' %')}" in str(hook_costs(page))
    assert f"hooks <b>{share}</b>" in str(resources(page))
    card = re.search(r"(\w+) takes? (\d+) % of an iteration", str(cards(page)))
    assert card is not None
    assert phases[card[1]] == f"{card[2]}%"
    said = [re.search(r"(hooks|data loading) takes? (\d+) % of the iteration", line) for line in page.findings]
    for found in filter(None, said):
        assert phases[{"data loading": "data"}.get(found[1], found[1])] == f"{found[2]}%"
