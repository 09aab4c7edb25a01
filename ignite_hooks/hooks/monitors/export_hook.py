"""Exports the model that a run delivers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import Gt

from ignite_hooks.checkpoint.delivered import (
    check_file,
    has_best,
    is_file,
    problem_of_choice,
    weights_to_hand_on,
)
from ignite_hooks.checkpoint.rng_state import preserve_rng
from ignite_hooks.distributed.collectives import fail_on_all_ranks, is_main_process
from ignite_hooks.errors import ConfigError, ExportError, Problem, SettingError
from ignite_hooks.hooks.base_hook import BaseHook, OnError, Situation, settings
from ignite_hooks.model.parts import is_several, parts_of
from ignite_hooks.text import table

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner

LOADERS = ("val_loader", "test_loader", "train_loader")
"""The data from which the batch is taken that a model is traced and checked with."""


@settings
class ExportHook(BaseHook):
    """Export the model at the end of a run, in formats that others load, and check every file against the model.

    The files are ``model.safetensors``, ``model.pth`` with nothing but weights, ``model.pt2`` of ``torch.export`` and
    ``model.onnx``; ``README.md`` and ``config.json`` are beside them as hubs of models take them. A run that was
    stopped or has failed exports nothing; ``ignite-hooks export`` does it later.

    Args:
        formats: Any of safetensors, pth, pt2 and onnx; by default all that are possible, and the others are told.
        checkpoint: The weights to export: delivered, best, last, or the name of a checkpoint.
        weights: ``raw`` for the raw weights, ``ema`` for their averages, or the name of further averages; by default
            those that evaluations use.
        dtype: The type of floating point numbers; by default that of the model.
        batch: Whether the number of samples may differ in each call (dynamic), or stays that of the example (fixed).
        tolerance: Largest difference from an output of the model, relative to its largest value above 1; by default
            1e-4, with float16 1e-2 and with bfloat16 5e-2.
        model: Which of several models.
        inputs: Inputs of a batch, or the name of a service that holds them; by default of the first batch of the
            data for validation, test or training.
        preprocessing: Constants with which inputs are prepared, such as mean and std, which the files then tell.
        card: Whether to write ``README.md`` and ``config.json`` too.
        out_dir: Folder of the files, below the work directory.

    Reads: model, val_loader, test_loader, train_loader, class_names, config.
    Saves: model.* in export, README.md, config.json, export.json.
    """

    formats: Sequence[Literal["safetensors", "pth", "pt2", "onnx"]] | None = None
    checkpoint: str | Path = "delivered"
    weights: str | None = None  # type: ignore[assignment]  # it holds none itself
    dtype: Literal["float32", "float16", "bfloat16"] | None = None
    batch: Literal["dynamic", "fixed"] = "dynamic"
    tolerance: Annotated[float, Gt(0)] | None = None
    model: str | None = None
    inputs: Any = None
    preprocessing: Mapping[str, Any] = field(default_factory=dict)
    card: bool = True
    out_dir: Path = Path("export")
    on_error: OnError = "warn"

    collective: ClassVar[bool] = True
    may_end_a_run: ClassVar[bool] = False

    exported_to: Path | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        from ignite_hooks.export.write import problem_of_format

        if self.formats is not None and not self.formats:
            raise SettingError("formats", "is empty: name at least one, or leave it out")
        for name in self.formats or ():
            if problem := problem_of_format(name, self.dtype):
                raise SettingError("formats", f"{name}: {problem}")

    def check(self, situation: Situation) -> Iterator[tuple[str, str]]:
        if problem := problem_of_choice(self.checkpoint, self.weights, situation.hooks):
            yield problem
        if "model" in situation.several and self.model is None:
            yield "model", "missing: there are several models, and it says which of them"
        if situation.complete and "model" not in situation.services:
            yield "model", "needs the model: pass model=... to attach_hooks()"

    def attached(self) -> None:
        names, place = parts_of(self.runner.model), self.name or type(self).__name__
        if self.model is not None and self.model not in names:
            known = f"the models are {', '.join(names)}" if is_several(self.runner.model) else "this run has one model"
            raise ConfigError([Problem(f"{place}.model", f"there is no model {self.model!r}: {known}")])
        if is_file(self.checkpoint):
            check_file(self.runner, str(self.checkpoint), self.weights, f"{place}.checkpoint")

    def before_run(self) -> None:
        self.exported_to = None

    def after_run(self, runner: Runner) -> None:
        """Export what the run delivers, after its test."""
        if runner.stop_reason is not None and runner.state.stop_kind != "planned":
            runner.logger.info(
                "nothing is exported, as the run was stopped: `ignite-hooks export %s` does it later", runner.work_dir
            )
            return
        if self.checkpoint == "best" and not has_best(runner):
            raise ExportError("this run has no best weights")
        with weights_to_hand_on(runner, self.checkpoint, self.weights) as chosen:
            fail_on_all_ranks(lambda: self._export(runner, str(chosen)) if is_main_process() else None)

    def _export(self, runner: Runner, words: str) -> None:
        from ignite_hooks.export.run_facts import facts_of, figures_of
        from ignite_hooks.export.write import Wanted, export_model

        runner.writer.flush()
        usual = self.checkpoint == "delivered" and self.weights is None
        facts = facts_of(runner, words, metrics=figures_of(runner) if usual else {}, preprocessing=self.preprocessing)
        wanted = Wanted(self.formats, self.dtype, self.batch, self.tolerance, self.card)
        model = runner.model if self.model is None else parts_of(runner.model)[self.model]
        folder = runner.work_dir / self.out_dir
        with preserve_rng(None):
            exported = export_model(model, self._inputs(runner), folder, wanted, facts)
        self.exported_to = folder
        lines = "\n".join([table(exported.rows()), *exported.lines()])
        runner.logger.info("exported to %s, %s:\n%s", folder, words, lines)

    def _inputs(self, runner: Runner) -> Any:
        if isinstance(self.inputs, str):
            return runner.services[self.inputs.removeprefix("@")]
        if self.inputs is not None:
            return self.inputs
        from ignite_hooks.export.example import example_inputs

        loaders = [*(runner.get_service(name) for name in LOADERS), runner.trainer_state.dataloader]
        loader = next((found for found in loaders if found is not None), ())
        with preserve_rng(loader):
            return example_inputs(loader)
