"""A run whose model is exported after its end."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ignite_hooks.checkpoint.delivered import ChosenWeights, weights_to_hand_on
from ignite_hooks.distributed.collectives import fail_on_all_ranks, is_main_process
from ignite_hooks.errors import ExportError
from ignite_hooks.export.example import example_inputs
from ignite_hooks.export.run_facts import facts_of
from ignite_hooks.export.write import Exported, Wanted, export_model
from ignite_hooks.results.recorded_run import read_run
from ignite_hooks.trainer.tested_run import FoundRun

if TYPE_CHECKING:
    from ignite_hooks.trainer.base_trainer import BaseTrainer

FOLDER = "export"
"""Where the files go, below the work directory."""


def export_run(
    trainer: BaseTrainer, found: FoundRun, weights: str | None, folder: Path | None, wanted: Wanted
) -> Exported | None:
    """Export weights of a run with a trainer that was built from its configuration; return what the first rank wrote.

    Args:
        trainer: The trainer, whose model has afterwards what it had before.
        found: The run, and which of its checkpoints.
        weights: ``raw``, ``ema``, or the name of further averages; None for those that evaluations of the run use.
        folder: Where the files go.
        wanted: The formats, and how.
    """
    loader = next(each for each in (trainer.val_loader, trainer.test_loader, trainer.train_loader) if each is not None)
    if wanted.tolerance is not None and not wanted.tolerance > 0:
        raise ExportError(f"--tolerance: a number above 0 is needed, not {wanted.tolerance:g}")
    with weights_to_hand_on(trainer.runner, found.checkpoint, weights) as chosen:

        def export() -> Exported | None:
            if not is_main_process():
                return None
            words = f"{found.checkpoint.name}, {found.what}" + ("" if chosen.weights == "raw" else f", {chosen.kind}")
            facts = facts_of(
                trainer.runner,
                words,
                folder=found.folder,
                task=trainer.data.task or "classification",
                metrics=figures_of(found, chosen),
            )
            inputs = example_inputs(loader)
            return export_model(trainer.model, inputs, folder or found.folder / FOLDER, wanted, facts)

        return fail_on_all_ranks(export)


def figures_of(found: FoundRun, chosen: ChosenWeights) -> Mapping[str, Mapping[str, float]]:
    """Return what was measured of exactly these weights: by ``ignite-hooks test``, or by the run at its end."""
    try:
        result = read_run(found.folder).result
    except FileNotFoundError:
        return {}
    if result is None:
        return {}
    file = found.checkpoint.absolute()
    measured: dict[str, Mapping[str, float]] = {}
    for metric, one in result.best.items():
        if one.file is not None and (found.folder / one.file).absolute() == file:
            measured["val"] = {**measured.get("val", {}), metric.removeprefix("val_"): one.value}
    for name, tested in result.tests.items():
        if tested.weights == chosen.weights and (found.folder / tested.checkpoint).absolute() == file:
            measured[name.partition("/")[0]] = tested.metrics
    return measured
