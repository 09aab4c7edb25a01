"""What a run knows of the model that it exports."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ignite_hooks.export.card import Facts
from ignite_hooks.measure.environment import environment_facts
from ignite_hooks.model.class_names import class_names_of
from ignite_hooks.results.recorded_run import RecordedRun, read_run
from ignite_hooks.text import counted

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner


def facts_of(
    runner: Runner,
    weights: str,
    *,
    folder: Path | None = None,
    task: str = "",
    metrics: Mapping[str, Mapping[str, float]] | None = None,
    preprocessing: Mapping[str, Any] | None = None,
) -> Facts:
    """Return what is known of a model and its run, without secrets.

    Args:
        runner: The run, or one that was built to export what another has trained.
        weights: Which weights are exported, in words.
        folder: The work directory of the run that has trained them.
        task: The task.
        metrics: The figures of the weights, by part of the data.
        preprocessing: Constants of the preparation of inputs.
    """
    folder = runner.work_dir if folder is None else folder
    mask = runner.masks.text
    recorded = _recorded(folder)
    result = None if recorded is None else recorded.result
    config = runner.get_service("config")
    config = runner.masks.tree(dict(config)) if isinstance(config, Mapping) else {}
    dataset = config.get("dataset")
    named = dataset.get("type") if isinstance(dataset, Mapping) else dataset
    epochs, iterations = (runner.epoch, runner.global_step) if result is None else (result.epochs, result.iterations)
    environment = result.environment if result is not None else None
    found = environment_facts(runner.model, runner.get_service("device")) if environment is None else environment
    return Facts(
        name=mask(folder.absolute().name),
        weights=mask(weights),
        task=task,
        data=mask(named) if isinstance(named, str) else "",
        class_names=class_names_of(runner),
        metrics=metrics or {},
        preprocessing=runner.masks.tree(dict(preprocessing or {})),
        configuration={name: value for name, value in config.items() if name not in ("work_dir", "experiment_dir")},
        environment={name: mask(found[name]) for name in _SHOWN if name in found},
        progress=f"{counted(epochs, 'epoch')}, {counted(iterations, 'iteration')}" if iterations else "",
        run=runner.state.run_id if result is None else result.run,
        curves=_curves(recorded),
    )


_SHOWN = ("versions", "device", "processes")
"""The machine, its folders and the command are nobody's business outside."""


def figures_of(runner: Runner) -> dict[str, dict[str, float]]:
    """Return the figures that belong to the weights which a run delivers, at its end."""
    delivered, found = runner.state.delivered, {}
    numbers = runner.metrics.numbers()
    for split in ("val", "test"):
        if split == "val" and delivered is not None:
            # The last validation was of other weights.
            name = (delivered.metric or "").removeprefix("val_")
            own = {name: delivered.score} if name and delivered.score is not None else {}
        else:
            start = f"{split}_"
            own = {
                name.removeprefix(start): float(value)
                for name, value in numbers.items()
                if name.startswith(start) and runner.metrics.step(name) == runner.global_step
            }
        if own:
            found[split] = own
    return found


def _recorded(folder: Path) -> RecordedRun | None:
    try:
        return read_run(folder)
    except FileNotFoundError:
        return None


def _curves(run: RecordedRun | None) -> bytes | None:
    """Return a picture of the learning curves; None where nothing was logged."""
    if run is None or not any(len(run.history.values(name)) > 1 for name in run.history.names()):
        return None
    written = io.BytesIO()
    run.plot().savefig(written, format="png")
    return written.getvalue()
