"""The runner: a narrow view of the run, with everything that a hook may see and do."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ignite_hooks.measure.loss_source import LossSource
from ignite_hooks.results.history import History
from ignite_hooks.results.recorded_run import RecordedRun
from ignite_hooks.run.best import Best
from ignite_hooks.run.logger import LOGGER_NAME, RunLogger
from ignite_hooks.run.memory import free_memory
from ignite_hooks.run.metrics import Metrics, TrainerMetrics
from ignite_hooks.run.services import NamedObjects, Services
from ignite_hooks.run.state import EvaluationOptions, RunState
from ignite_hooks.secrets import Masks
from ignite_hooks.text import did_you_mean, html_table

if TYPE_CHECKING:
    from ignite.engine import Engine, State
    from matplotlib.figure import Figure

    from ignite_hooks.checkpoint.save import Checkpoints
    from ignite_hooks.engine.installation import Installation
    from ignite_hooks.plan.plan import Plan
    from ignite_hooks.results.outcome import StopKind
    from ignite_hooks.run.report import Report
    from ignite_hooks.store.claim import Claim
    from ignite_hooks.store.interface import Store
    from ignite_hooks.writers.many import ManyWriters
    from ignite_hooks.writers.trackers.clearml_task import Views


class Hooks(Mapping[str, Any]):
    """The hooks by name; the only hook of its class is also found by the name of the class."""

    def __init__(self) -> None:
        self.registered: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name in self.registered:
            return self.registered[name]
        same = [hook for hook in self.registered.values() if type(hook).__name__ == name]
        if len(same) == 1:
            return same[0]
        raise KeyError(f"no hook is called {name!r}{did_you_mean(name, self)}")

    def __contains__(self, name: object) -> bool:
        return name in self.registered or [type(hook).__name__ for hook in self.values()].count(str(name)) == 1

    def __iter__(self) -> Iterator[str]:
        return iter(self.registered)

    def __len__(self) -> int:
        return len(self.registered)

    def __repr__(self) -> str:
        return f"Hooks({', '.join(self.registered)})"

    def _repr_html_(self) -> str:
        rows = [
            {"name": name, "hook": type(hook).__name__, "what it does": _purpose(hook)}
            for name, hook in self.registered.items()
        ]
        return html_table(rows, wide=["what it does"]) if rows else "no hooks"


class Runner:
    """The run as a hook sees it. ``attach_hooks`` returns it.

    ``epoch`` and ``iter`` count finished ones, from 0; ``global_step`` is the iteration, from 1. It outlives its
    trainer: plan, report, metrics and best values can still be read.
    """

    installation: Installation
    """Attaches the hooks to the engines; it sets itself here."""
    checkpoints: Checkpoints
    """Saves, loads and resumes; ``attach_hooks`` sets it."""

    def __init__(
        self,
        trainer: Engine,
        *,
        work_dir: Path,
        writer: ManyWriters,
        services: Mapping[str, Any],
    ) -> None:
        self._trainer = weakref.ref(trainer)
        self._last_state = trainer.state
        self.work_dir = work_dir
        self.writer = writer
        self.state = RunState()
        self.hooks = Hooks()
        self.evaluators: dict[str, Engine] = {}
        self.evaluation_options = EvaluationOptions()
        self.best = Best()
        self.checkpoint: dict[str, Any] | None = None
        """The checkpoint that is being written or was just read."""
        self.claim: Claim | None = None
        """The promise of the work directory to this run, on the rank that writes."""
        self.connected: Views | None = None
        """The configuration as a tracker shows it and gives it back."""
        self.masks = Masks()
        """The secrets of the configuration, which no log, file or tracker may show."""
        self.plan: Plan
        """The plan: which hook runs at which point, in which order and how often; print it."""
        self._services = Services(services, work_dir)
        base = services.get("logger") or logging.getLogger(LOGGER_NAME)
        self.logger: Any = RunLogger(base, writer) if isinstance(base, logging.Logger) else base
        self.loss_source = LossSource()
        """Where the loss is in the output of a training step."""
        self.trainer_metrics = TrainerMetrics(self.loss_source)
        self.noted: set[str] = set()
        """The lines that `note_once` has logged in this run."""

    # -- where the run is -------------------------------------------------------------------------------------

    @property
    def trainer(self) -> Engine:
        """The Ignite engine that trains; its state keeps Ignite's own 1-based counters."""
        trainer = self._trainer()
        if trainer is None:
            raise ReferenceError("the trainer of this runner no longer exists: keep it, or attach hooks to a new one")
        return trainer

    @property
    def has_trainer(self) -> bool:
        """Whether the trainer still exists."""
        return self._trainer() is not None

    @property
    def trainer_state(self) -> State:
        """The trainer's state; the last known one if the trainer no longer exists."""
        trainer = self._trainer()
        if trainer is not None:
            self._last_state = trainer.state
        return self._last_state

    @property
    def engine(self) -> Engine:
        """The engine that is running now: an evaluator during an evaluation, else the trainer."""
        evaluating = self.state.evaluating
        return self.trainer if evaluating is None else self.evaluators[evaluating]

    @property
    def _engine_state(self) -> State:
        return self.trainer_state if self.state.evaluating is None else self.engine.state

    @property
    def epoch(self) -> int:
        """The number of finished epochs, which is the index of the current one."""
        state = self.state
        return max(0, self.trainer_state.epoch - (state.in_epoch or not state.epoch_complete))

    @property
    def iter(self) -> int:
        """The number of finished iterations, which is the index of the current one."""
        trainer = self._trainer()
        last_event = "" if trainer is None else str(getattr(trainer.last_event_name, "name", ""))
        running = self.state.in_iteration or last_event in _IN_ITERATION
        return max(0, self.trainer_state.iteration - running)

    @property
    def step(self) -> int:
        """The 0-based step that ``should_trigger`` receives."""
        return self.iter

    @property
    def global_step(self) -> int:
        """The iteration, counted from 1."""
        return int(self.trainer_state.iteration)

    @property
    def max_epochs(self) -> int | None:
        """The requested number of epochs."""
        return self.trainer_state.max_epochs

    @property
    def max_iters(self) -> int | None:
        """The requested number of iterations, if known."""
        state = self.trainer_state
        if state.max_iters is not None:
            return int(state.max_iters)
        if not state.max_epochs or not state.epoch_length:
            return None
        return int(state.max_epochs * state.epoch_length) + self.state.length_offset

    @property
    def batch_idx(self) -> int:
        """The 0-based index of the batch in the current epoch or evaluation."""
        if self.state.evaluating is not None:
            return int(self.engine.state.iteration) - 1
        return int(self.trainer_state.iteration) - self.state.epoch_began_at - 1

    @property
    def data_batch(self) -> Any:
        """The batch of the running engine."""
        return self._engine_state.batch

    @property
    def outputs(self) -> Any:
        """The return value of the running engine's last step."""
        return self._engine_state.output

    @property
    def loss_dict(self) -> dict[str, Any]:
        """The losses of the last training step by name, unchanged and on their device."""
        return self.loss_source.of(self.trainer_state.output)

    @property
    def stop_reason(self) -> str | None:
        """The reason why the run was stopped before its end."""
        return self.state.stop_reason

    @property
    def resumed_from(self) -> Path | None:
        """The checkpoint this run was resumed from."""
        return self.state.resumed_from

    @property
    def metrics(self) -> Metrics:
        """The latest value of every metric with the step it belongs to."""
        return self.trainer_metrics.read(self.trainer_state)

    @property
    def history(self) -> History:
        """The numbers of the run so far: a row for each moment, with step, epoch, split and metrics."""
        return History.read(self.work_dir)

    # -- named objects ----------------------------------------------------------------------------------------

    @property
    def services(self) -> NamedObjects:
        """Every named object of the run."""
        savers = [hook for hook in self.hooks.values() if getattr(type(hook), "saves_checkpoints", False)]
        folder = self.work_dir / (savers[0].out_dir or "") if savers else self.work_dir
        return self._services.all(logger=self.logger, trainer=self._trainer(), runner=self, checkpoints_dir=folder)

    def get_service(self, name: str, default: Any = None) -> Any:
        """Return the named object, or the default if there is none."""
        return self.services.get(name, default)

    def register_service(self, name: str, thing: Any) -> None:
        """Register a named object for hooks."""
        self._services.register(name, thing)
        if name == "logger" and isinstance(thing, logging.Logger):
            self.logger = RunLogger(thing, self.writer)
        self.installation.service_added()

    @property
    def model(self) -> Any:
        """The service ``model``."""
        return self._services.given.get("model")

    @property
    def optimizer(self) -> Any:
        """The service ``optimizer``."""
        return self._services.given.get("optimizer")

    @property
    def scheduler(self) -> Any:
        """The service ``scheduler``."""
        return self._services.given.get("scheduler")

    # -- what a hook may do -----------------------------------------------------------------------------------

    def register_hook(self, hook: object, priority: object = None) -> None:
        """Add a hook; during a run it is called from the next point on."""
        self.installation.register(hook, priority)

    def remove_hook(self, name: str) -> None:
        """Remove a hook; during a run it is not called from the next point on."""
        self.installation.remove(name)

    def call_hook(self, point: str, **payload: Any) -> None:
        """Call every hook that has a method of this name, in order."""
        self.installation.call(point, payload)

    def stop(self, reason: str, kind: StopKind = "", leave_with: BaseException | None = None) -> None:
        """End the run after the current iteration; the first reason is kept.

        Args:
            reason: Why, in a few words.
            kind: ``"pruned"`` where a search stops it, ``"planned"`` where a condition is met, as early stopping has;
                ``result.json`` says it, and trackers show the latter as finished.
            leave_with: An exception that ``trainer.run`` raises once everything is saved and cleaned up.
        """
        self.installation.stop(reason, kind, leave_with)

    def report(self) -> Report:
        """Return calls, time and failures of every hook and point; print it."""
        return self.installation.report()

    def plot(self, names: Sequence[str] | None = None) -> Figure:
        """Draw learning curves of the run so far, by default without those of the machine, of classes and of layers."""
        return RecordedRun(self.work_dir).plot(names)

    def show_report(self, height: int = 700) -> Any:
        """Return the page of `ReportHook` for a notebook, in a frame of its own."""
        return RecordedRun(self.work_dir).show_report(height)

    def detach(self) -> None:
        """Remove every hook from the engines, which are then as they were before."""
        self.installation.detach()

    def free(self) -> None:
        """Let go of the last batch and output, and of what the traceback of the last exception keeps alive."""
        if not self.state.running:
            free_memory(self.trainer_state, *(engine.state for engine in self.evaluators.values()))

    def close(self) -> None:
        """End a run that was interrupted and will not continue, and clean up the hooks."""
        self.installation.close()

    def validate(self, name: str = "val") -> dict[str, Any]:
        """Run an evaluation now, in a run or outside of one, and return its metrics."""
        return self.installation.evaluate(name)

    def test(self, checkpoint: str | Path = "delivered", weights: str | None = None) -> dict[str, Any]:
        """Run the test now and return its metrics; the model has afterwards what it had before.

        Args:
            checkpoint: The weights to test: ``"delivered"`` for those that the run delivers, ``"best"``, ``"last"``, or
                the name of a file.
            weights: ``"raw"`` for the raw weights, ``"ema"`` for their averages, or the name of further averages
                (`EMAHook(also=...)`); by default as evaluations do.
        """
        return self.installation.evaluate("test", checkpoint, weights)

    def note_once(self, line: str, level: int = logging.INFO) -> None:
        """Log a line, unless this run has logged it before."""
        if line not in self.noted:
            self.noted.add(line)
            self.logger.log(level, "%s", line)

    # -- checkpoints ------------------------------------------------------------------------------------------

    def store(self, folder: Path | None = None) -> Store:
        """Return the store of checkpoints in a folder, by default of the work directory."""
        return self.checkpoints.store(folder)

    def save_checkpoint(self, name: str | None = None) -> Path:
        """Write a checkpoint now, wait for it and return its path."""
        return self.installation.save_checkpoint(name)

    def load_checkpoint(self, path: str | Path) -> None:
        """Load weights, optimizer and progress from a file."""
        self.checkpoints.load(path)

    def resume(self, path: str | Path = "auto") -> None:
        """Resume from a checkpoint when the run starts; ``"auto"`` takes the newest intact one."""
        _ = self.trainer  # raises if there is none any longer
        self.checkpoints.resume_at_start(path)

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint of the run holds now; its tensors are those of the run, not copies.

        With it Ignite's own ``Checkpoint({"hooks": runner}, ...)`` saves a run that can be resumed exactly. With
        several ranks all of them call it, as that handler does.
        """
        return self.installation.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from what `state_dict` has returned when the run starts."""
        _ = self.trainer
        self.installation.load_state_dict(state)

    def __repr__(self) -> str:
        return f"Runner({len(self.hooks)} hooks: {', '.join(self.hooks)})"

    def _repr_html_(self) -> str:
        return self.plan._repr_html_()


def _purpose(hook: object) -> str:
    """Return the first sentence of what a hook says of itself."""
    return " ".join((type(hook).__doc__ or "").strip().partition("\n\n")[0].split())


_IN_ITERATION = ("ITERATION_STARTED", "ITERATION_COMPLETED")
