"""What a hook may see and do: a narrow view of the run."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ignite_hooks.checkpoint import capture as checkpoints
from ignite_hooks.checkpoint.data_position import Position
from ignite_hooks.checkpoint.save import Order, Saves
from ignite_hooks.distributed.collectives import broadcast_object, world_size
from ignite_hooks.errors import ConfigError, MetricError
from ignite_hooks.measure.losses import losses_of
from ignite_hooks.run.best import Best
from ignite_hooks.run.metrics import Metrics
from ignite_hooks.secrets import MASKING, Masks
from ignite_hooks.text import did_you_mean

if TYPE_CHECKING:
    from ignite.engine import Engine

    from ignite_hooks.distributed.metric_merging import SharedEvaluation
    from ignite_hooks.plan.plan import Plan
    from ignite_hooks.store.interface import Store
    from ignite_hooks.writers.many import ManyWriters

KNOWN_SERVICES = (
    "model",
    "optimizer",
    "scheduler",
    "train_loader",
    "val_loader",
    "test_loader",
    "criterion",
    "device",
    "logger",
    "visualizer",
    "config",
)
"""The services a script may give under a name of ours."""

ALWAYS_THERE = ("trainer", "runner", "experiment_dir", "checkpoints_dir", "logs_dir", "visualization_dir")
"""The services every run has."""

LIVE = ("epoch", "iter", "step", "global_step", "metrics", "outputs", "data_batch", "batch_idx", "loss_dict")
"""What changes while a run goes on and can be the parameter of any method, besides the services."""

LOGGER_NAME = "ignite_hooks"


class Host(Protocol):
    """What seats hooks on the engines; the runner passes on to it what is about more than looking."""

    @property
    def running(self) -> bool: ...
    def register(self, hook: object, priority: object = None) -> None: ...
    def remove(self, name: str) -> None: ...
    def refresh(self) -> None: ...
    def call(self, point: str, payload: Mapping[str, Any]) -> None: ...
    def add_evaluator(self, name: str, engine: Engine) -> None: ...
    def stop(self, reason: str) -> None: ...
    def wake(self) -> None: ...
    def report(self) -> Any: ...
    def detach(self) -> None: ...
    def close(self) -> None: ...


class Hooks(Mapping[str, Any]):
    """The hooks by name; a hook alone of its class is also found by the name of the class."""

    def __init__(self) -> None:
        self.by_name: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name in self.by_name:
            return self.by_name[name]
        same = [hook for hook in self.by_name.values() if type(hook).__name__ == name]
        if len(same) == 1:
            return same[0]
        raise KeyError(f"no hook is called {name!r}{did_you_mean(name, self)}")

    def __contains__(self, name: object) -> bool:
        return name in self.by_name or [type(hook).__name__ for hook in self.values()].count(str(name)) == 1

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_name)

    def __len__(self) -> int:
        return len(self.by_name)

    def __repr__(self) -> str:
        return f"Hooks({', '.join(self.by_name)})"


class RunLogger(logging.Logger):
    """A standard logger that also carries the methods of the run's writer."""

    def __init__(self, parent: logging.Logger, writer: ManyWriters) -> None:
        super().__init__(f"{parent.name}.run")
        self.parent = parent
        self.writer = writer
        self.addFilter(MASKING)

    def isEnabledFor(self, level: int) -> bool:
        """Never from the cache: nobody clears that of a logger outside of the standard table when a level changes."""
        self._cache.clear()
        return super().isEnabledFor(level)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("write_"):
            return getattr(self.writer, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class Runner:
    """The run as a hook sees it. ``attach_hooks`` returns it.

    ``epoch`` and ``iter`` count from 0 what has finished; ``global_step`` is the iteration counted from 1.
    """

    def __init__(
        self,
        trainer: Engine,
        *,
        work_dir: Path,
        writer: ManyWriters,
        services: Mapping[str, Any],
        store: Callable[[Path], Store],
    ) -> None:
        self._trainer = weakref.ref(trainer)
        self.work_dir = work_dir
        self.writer = writer
        self.hooks = Hooks()
        self.evaluators: dict[str, Engine] = {}
        self.evaluating: str | None = None
        self.best = Best()
        self.checkpoint: dict[str, Any] | None = None
        self.masks = Masks()
        """The secrets of the configuration, which no sink may show."""
        self._services = dict(services)
        base = self._services.get("logger") or logging.getLogger(LOGGER_NAME)
        self.logger: Any = RunLogger(base, writer) if isinstance(base, logging.Logger) else base
        self._metrics = Metrics()
        self._seen: dict[str, Any] = {}
        self._loss_of = -1
        self._make_store = store
        self._stores: dict[Path, Store] = {}
        self._host_ref: Callable[[], Host | None] = lambda: None
        # Kept by whoever seats the hooks, and read at every iteration.
        self.plan: Plan
        """Which hook runs where, in which order and how often; print it."""
        self.stop_reason: str | None = None
        """Why the run was stopped before its end."""
        self.aborting = False
        """Whether the run ends because of a signal and has no time for anything but saving."""
        self.last_report: Any = None
        self.resume_from: str | Path | bool | None = None
        self.resumed_from: Path | None = None
        self.waited_for_ranks = 0.0
        """The seconds after iterations in which the ranks agreed whether the run goes on, until the slowest came by."""
        self.in_iteration = False
        self.in_epoch = False
        self.epoch_complete = True
        """Whether the last epoch came to its end: False within one, and where a run was stopped within one."""
        self.epoch_began_at = 0
        self.rehearsals: dict[str, Callable[[], AbstractContextManager[Any]]] = {}
        """What each evaluation is done with once before: the end of its name, and the context to do it in."""
        self.rank_timeout: float = 30.0
        """After so many seconds without a sign of life a rank counts as hanging; 0 where nobody watches."""
        self.shared_evaluation: SharedEvaluation | None = None
        """How the evaluation that begins is shared out among the ranks; None where each does all of it."""
        self.position = Position()
        self.left_out: set[str] = set()
        """The services whose state cannot be in a checkpoint, told once each."""
        self._saves = Saves()
        self.wait_for_copy = self._saves.wait_for_copy
        """Return once the state may change: a checkpoint may be on its way to the store."""

    @property
    def _host(self) -> Host:
        host = self._host_ref()
        if host is None:
            raise ReferenceError("this runner is not attached to a trainer that still exists")
        return host

    # -- where the run is -------------------------------------------------------------------------------------

    @property
    def trainer(self) -> Engine:
        """The Ignite engine that trains; its state keeps Ignite's own 1-based counters."""
        trainer = self._trainer()
        if trainer is None:
            raise ReferenceError("the trainer this runner was attached to is gone")
        return trainer

    @property
    def engine(self) -> Engine:
        """The engine that is running now: an evaluator during an evaluation, else the trainer."""
        return self.trainer if self.evaluating is None else self.evaluators[self.evaluating]

    @property
    def epoch(self) -> int:
        """How many epochs have finished; the index of the running one."""
        return max(0, self.trainer.state.epoch - (self.in_epoch or not self.epoch_complete))

    @property
    def iter(self) -> int:
        """How many iterations have finished; the index of the running one."""
        trainer = self.trainer
        running = self.in_iteration or str(getattr(trainer.last_event_name, "name", "")) in _IN_ITERATION
        return max(0, trainer.state.iteration - running)

    @property
    def step(self) -> int:
        """The 0-based step, as ``should_trigger`` counts."""
        return self.iter

    @property
    def global_step(self) -> int:
        """The iteration, counted from 1."""
        return int(self.trainer.state.iteration)

    def progress(self) -> tuple[int, int]:
        """The iterations and epochs that have been begun, counted from 1."""
        state = self.trainer.state
        return int(state.iteration), int(state.epoch)

    @property
    def max_epochs(self) -> int | None:
        """How many epochs were asked for."""
        return self.trainer.state.max_epochs

    @property
    def max_iters(self) -> int | None:
        """How many iterations were asked for, where that is known."""
        state = self.trainer.state
        if state.max_iters is not None:
            return int(state.max_iters)
        return state.max_epochs * state.epoch_length if state.max_epochs and state.epoch_length else None

    @property
    def epoch_length(self) -> int | None:
        """How many iterations an epoch has, where that is known."""
        return self.trainer.state.epoch_length

    @property
    def in_step(self) -> bool:
        """Whether the trainer is between the beginning of an iteration and its end."""
        return str(getattr(self.trainer.last_event_name, "name", "")) == "ITERATION_STARTED"

    @property
    def at_last_batch(self) -> bool:
        """Whether the running epoch has had all the iterations it is known to have."""
        length = self.epoch_length
        return length is not None and self.global_step - self.epoch_began_at >= length

    @property
    def batch_idx(self) -> int:
        """The 0-based index of the batch in the running epoch or evaluation."""
        if self.evaluating is not None:
            return int(self.engine.state.iteration) - 1
        return int(self.trainer.state.iteration) - self.epoch_began_at - 1

    @property
    def data_batch(self) -> Any:
        """The batch of the running engine."""
        return self.engine.state.batch

    @property
    def outputs(self) -> Any:
        """What the step of the running engine returned."""
        return self.engine.state.output

    @property
    def loss_dict(self) -> dict[str, Any]:
        """The losses of the last training step by name, as they are, on their device."""
        return losses_of(self.trainer.state.output)

    # -- metrics ----------------------------------------------------------------------------------------------

    @property
    def metrics(self) -> Metrics:
        """The latest value of every metric with the step it belongs to."""
        state = self.trainer.state
        iteration = int(state.iteration)
        if self._loss_of != iteration and state.output is not None:
            self._loss_of = iteration
            self._metrics.publish(losses_of(state.output, "loss"), iteration)
        # A value that is the same object as before was not computed again and keeps its step.
        current = state.metrics or {}
        new = {name: value for name, value in current.items() if self._seen.get(name, self) is not value}
        if new:
            self._seen.update(new)
            self._metrics.publish(new, iteration)
        return self._metrics

    def fresh(self, metric: str) -> float | None:
        """The number of a metric, if it was published at this step of a run; a missing metric is an error.

        No error while the evaluator it belongs to has not had its turn: ``val_hard`` may run before ``val``.
        """
        if not self._host.running:
            return None
        try:
            score = self.metrics.fresh(metric, self.global_step)
        except MetricError:
            if self.evaluating is None or self.evaluating == self._evaluator_of(metric):
                raise
            return None
        # What each rank has measured by itself differs, and what follows from it is not to.
        return broadcast_object(score) if world_size() > 1 else score

    def _evaluator_of(self, metric: str) -> str | None:
        """The evaluator whose name begins the name of a metric, else the first."""
        own = [name for name in self.evaluators if metric.replace("/", "_").startswith(f"{name}_")]
        return max(own, key=len, default=next((name for name in self.evaluators if name != "test"), None))

    def publish_epoch(self) -> None:
        """Take the trainer's metrics of the epoch that ends as new, even where they did not change."""
        self._seen.clear()
        self._loss_of = -1

    def publish_evaluation(self, name: str, engine: Engine) -> None:
        """Take up the metrics of an evaluation under its name and, of the first evaluator, plainly too."""
        evaluators = [other for other in self.evaluators if other != "test"] or [name]
        taken = set(self.trainer.state.metrics or {}) | {"loss"}
        self._metrics.publish_evaluation(
            name, dict(engine.state.metrics), self.global_step, first=name == evaluators[0], taken=taken
        )

    # -- named objects ----------------------------------------------------------------------------------------

    @property
    def services(self) -> dict[str, Any]:
        """Every named object of the run."""
        directories = dict.fromkeys(("experiment_dir", "checkpoints_dir"), self.work_dir)
        directories |= {
            "logs_dir": self.work_dir / "logs",
            "visualization_dir": self.work_dir / "visualization",
        }
        given = {name: thing for name, thing in self._services.items() if thing is not None}
        return {**directories, **given, "logger": self.logger, "trainer": self.trainer, "runner": self}

    def get_service(self, name: str, default: Any = None) -> Any:
        """The named object, or the default where there is none."""
        return self.services.get(name, default)

    def register_service(self, name: str, thing: Any) -> None:
        """Give hooks a named object."""
        if name in ALWAYS_THERE:
            raise ValueError(f"{name!r} is a service of every run and cannot be replaced")
        if not name.isidentifier():
            raise ValueError(f"a service is asked for by parameter name, and {name!r} cannot be one")
        self._services[name] = thing
        if name == "logger" and isinstance(thing, logging.Logger):
            self.logger = RunLogger(thing, self.writer)
        self._host.refresh()

    @property
    def model(self) -> Any:
        """The service ``model``."""
        return self._services.get("model")

    @property
    def optimizer(self) -> Any:
        """The service ``optimizer``."""
        return self._services.get("optimizer")

    @property
    def scheduler(self) -> Any:
        """The service ``scheduler``."""
        return self._services.get("scheduler")

    def folder(self, path: str | Path | None) -> Path:
        """A path from a setting: relative ones lie in the work directory, which is also the default."""
        return self.work_dir if path is None else self.work_dir / path

    def store(self, folder: Path | None = None) -> Store:
        """The store of checkpoints in a folder, by default the work directory."""
        folder = folder or self.work_dir
        if folder not in self._stores:
            self._stores[folder] = self._make_store(folder)
        return self._stores[folder]

    # -- what a hook may do -----------------------------------------------------------------------------------

    def register_hook(self, hook: object, priority: object = None) -> None:
        """Add a hook; during a run it is called from the next point on."""
        self._host.register(hook, priority)

    def remove_hook(self, name: str) -> None:
        """Take a hook away; during a run it is not called from the next point on."""
        self._host.remove(name)

    def call_hook(self, point: str, **payload: Any) -> None:
        """Call every hook that has a method of this name, in order."""
        self._host.call(point, payload)

    def add_evaluator(self, name: str, engine: Engine) -> None:
        """Let an engine's runs be evaluations of this name."""
        self._host.add_evaluator(name, engine)

    def stop(self, reason: str) -> None:
        """End the run after the iteration that is running; the first reason is kept."""
        self._host.stop(reason)

    def report(self) -> Any:
        """Calls, time and failures of every hook and point; print it."""
        host = self._host_ref()
        return self.last_report if host is None else host.report()

    def detach(self) -> None:
        """Take every hook off the engines and leave them as they were."""
        self._host.detach()

    def close(self) -> None:
        """End a run that was interrupted and will not go on: hooks are cleaned up."""
        self._host.close()

    def validate(self, name: str = "val") -> dict[str, Any]:
        """Run an evaluation now, in a run or outside of one, and return its metrics."""
        for hook in self.hooks.values():
            if getattr(hook, "evaluates", None) == name:
                return dict(hook.evaluate(self))
        engine, loader = self.evaluators.get(name), self._services.get(f"{name}_loader")
        if engine is None or loader is None:
            missing = f"an evaluator called {name!r}" if engine is None else f"the service '{name}_loader'"
            raise ConfigError(f"cannot evaluate {name!r}: give attach_hooks {missing}, or add an EvalHook of this name")
        engine.run(loader)
        return dict(engine.state.metrics)

    def test(self) -> dict[str, Any]:
        """Run the test now and return its metrics."""
        return self.validate("test")

    def save_checkpoint(self, name: str | None = None) -> Path:
        """Write a checkpoint now, and return when it is there."""
        try:
            return self.save(Order(name or f"iter_{self.global_step}.pth", "manual"))
        finally:
            if not self._host.running:
                self.close_outputs()

    def save(self, order: Order) -> Path:
        """Save a checkpoint as ordered."""
        return self._saves.save(self, order)

    def settle_saves(self, *, wait: bool, alone: bool = False) -> None:
        """Hear of the saves that have ended; ``wait`` for all of them, ``alone`` where other ranks may be gone."""
        self._saves.settle(self, wait=wait, alone=alone)

    def watch_steps(self) -> bool:
        """Let the optimizer wait for a copy before each step, and note the step; False where it cannot."""
        return self._saves.watch(self)

    @property
    def step_has_begun(self) -> bool:
        """Whether the optimizer may have changed the weights since the last iteration ended."""
        return self.in_step and self._saves.stepped_at in (self.global_step, None)

    @property
    def accumulating(self) -> bool:
        """Whether the last iteration has left gradients that the optimizer has yet to use."""
        return not self.in_step and self._saves.stepped_at not in (self.global_step, None)

    def wake(self) -> None:
        """Have a look at what has ended after the iteration that is running; any thread may call it."""
        host = self._host_ref()
        if host is not None:
            host.wake()

    def load_checkpoint(self, path: str | Path) -> None:
        """Load weights, optimizer and progress from a file."""
        checkpoints.load(self, Path(path))

    def resume(self, path: str | Path = "auto") -> None:
        """Go on from a checkpoint when the run starts; ``"auto"`` takes the newest that is whole."""
        self.resume_from = path

    def close_outputs(self) -> None:
        """Flush and close what the run wrote to; a later write opens it again."""
        self.writer.close()
        self._saves.close()
        for store in self._stores.values():
            store.close()
        self._stores.clear()

    def __repr__(self) -> str:
        return f"Runner({len(self.hooks)} hooks: {', '.join(self.hooks)})"

    def _repr_html_(self) -> str:
        return self.plan._repr_html_()


_IN_ITERATION = ("ITERATION_STARTED", "ITERATION_COMPLETED")
