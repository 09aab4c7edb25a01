"""BaseHook, the base class of all hooks, and ``@settings``, which turns typed fields into settings."""

from __future__ import annotations

import copy
import dataclasses
import functools
import importlib
import os
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, cast, dataclass_transform

from ignite_hooks.plan.hook_settings import give, refuse_unread, schedule_of
from ignite_hooks.plan.methods import answers_of, class_answers, mark_defaults
from ignite_hooks.plan.points import POINTS
from ignite_hooks.plan.priority import Priority
from ignite_hooks.plan.schedule import SCHEDULE_WORDS, When
from ignite_hooks.plan.settings_digest import hide_fields, show_fields
from ignite_hooks.system.python import annotations_of
from ignite_hooks.text import plain_number

if TYPE_CHECKING:
    from ignite.engine import Engine
    from torch import Tensor

    from ignite_hooks.plan.simulate import PlanSimulation
    from ignite_hooks.run.runner import Runner

OnError = Literal["raise", "warn", "disable"]
PriorityLike = int | str | Mapping[str, int | str]
Made = TypeVar("Made", bound="BaseHook")

COMMON_SETTINGS = ("name", "priority", "on_error", *SCHEDULE_WORDS)
"""The settings that every hook accepts in a configuration."""

OPTIONAL = ("evaluates", "evaluate", "loader", "out_dir")
"""Attributes of BaseHook that are settings only if a hook declares them as fields."""


@dataclasses.dataclass(frozen=True)
class Situation:
    """The context in which the settings of a hook are checked, before anything is attached."""

    evaluators: frozenset[str] = frozenset()
    services: frozenset[str] = frozenset()
    hooks: Mapping[str, object] = dataclasses.field(default_factory=dict)
    complete: bool = True
    """False if only a file is known, so that a script may still supply what is missing."""
    several: frozenset[str] = frozenset()
    """The services that are a list or a mapping of objects."""
    writers: frozenset[Any] = frozenset()
    """The classes of the writers that a configuration asks for."""
    alone: bool = False
    """Whether the configuration alone decides: no script can add anything to the run."""

    @property
    def evaluates(self) -> bool:
        """Whether anything publishes evaluation metrics."""
        return bool(self.evaluators) or any(getattr(hook, "evaluates", None) for hook in self.hooks.values())

    @property
    def is_known(self) -> bool:
        """Whether all hooks and writers are ours, so that it is certain what they do."""
        built = all(isinstance(hook, BaseHook) for hook in self.hooks.values())
        package = __name__.partition(".")[0]
        return built and all(kind.__module__.partition(".")[0] == package for kind in self._kinds())

    @property
    def has_tensorboard(self) -> bool:
        """Whether a hook or a writer is for TensorBoard, judged by its name."""
        return any("tensorboard" in kind.__name__.lower() for kind in self._kinds())

    @property
    def draws(self) -> bool:
        """Whether a hook gives pictures to the writers."""
        return any(getattr(hook, "draws", False) for hook in self.hooks.values())

    def _kinds(self) -> Iterator[Any]:
        yield from map(type, self.hooks.values())
        yield from self.writers


if TYPE_CHECKING:

    @dataclasses.dataclass(kw_only=True, eq=False)
    class _CommonSettings:
        """For type checkers and editors: what the constructor of every hook takes besides its own settings."""

        _settings: Mapping[str, Any] | None = dataclasses.field(default=None, kw_only=False)
        name: str | None = None
        priority: PriorityLike = Priority.NORMAL
        on_error: OnError = "raise"
        # Hooks declare these in their own ways, as attributes, properties and methods too.
        frequency: Any = None
        interval: Any = None
        by_epoch: Any = None
        start: Any = None
        begin: Any = None
        every: Any = None
else:
    _CommonSettings = object


@mark_defaults
class BaseHook(_CommonSettings):
    """The parent of all hooks: override the points you need, each with the parameters you need.

    A method receives what its parameters name: ``runner``, ``epoch``, ``step``, ``metrics``, ``batch_idx``,
    ``data_batch``, ``outputs``, or any service such as ``model``. Methods that are not overridden are never called.

    Args:
        config: The settings as one mapping, for hooks that are written with a ``config`` parameter.
        **settings: The settings by name.

    Example:
        >>> class Greeter(BaseHook):
        ...     def after_epoch(self, epoch, metrics):
        ...         print(f"epoch {epoch + 1}: {metrics['loss']}")
        >>> Greeter(frequency=2).get_triggered_stages()
        ['after_epoch']
    """

    name: str | None = None
    default_name: str | None = None
    """The default name; the name of the class if empty."""
    priority: PriorityLike = Priority.NORMAL
    on_error: OnError = "raise"
    point_priority: ClassVar[Mapping[str, int]] = {}
    """Priorities at single points, if they differ from ``priority``."""

    custom_points: ClassVar[Sequence[str]] = ()
    """Methods that ``runner.call_hook`` calls, where their names look like a misspelt point or another framework's."""

    may_end_a_run: ClassVar[bool | None] = None
    """Whether the hook may end a run, or acts when one ends early, so that the ranks of a run vote on its end.
    By default true of all hooks except those that only observe (``on_error`` is ``warn``)."""
    also_paced_by: ClassVar[tuple[str, ...]] = ()
    """The words of the schedule, besides its own settings, that a hook with its own ``when`` reads there."""
    collective: ClassVar[bool] = False
    """Whether its methods use collectives, so that it must run on every rank."""
    one_model: ClassVar[str] = ""
    """Where several models cannot be used: the remedy, in words."""
    saves_checkpoints: ClassVar[bool] = False
    """Whether its ``out_dir`` is the service ``checkpoints_dir``."""

    draws: ClassVar[bool] = False
    """Whether it gives pictures to the writers of a run."""

    begins_with_run: ClassVar[bool] = False
    """Whether the hook has no effect unless it is there from the beginning of a run, so that it cannot come later."""

    derived_settings: ClassVar[Sequence[str]] = ()
    """Settings that follow from something else: a resumed run does not tell that they have changed."""

    changes_training: ClassVar[bool] = False
    """Whether the hook changes the weights that a run ends with; ``check_hook`` expects the same weights otherwise."""

    reads_schedule: ClassVar[bool] = False
    """Whether the hook reads its schedule in a way of its own, so that it may have one that no method obeys."""

    evaluates: str | None = None
    """The name under which the hook evaluates, such as ``val``; None if it does not evaluate."""
    evaluate: Any = None
    """The method that evaluates now, given the runner, if ``evaluates`` is set; other hooks may use the name freely."""
    loader: Any = None
    """The data to evaluate on, if its settings name any."""
    out_dir: str | Path | None = None
    """The folder of its files, if its settings name one."""

    given: frozenset[str] = frozenset()
    """The names of the settings that were given rather than left at their defaults."""

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        show_fields(cls)

    def __init__(self, config: Mapping[str, Any] | None = None, **settings: Any) -> None:
        refuse_unread(type(self), settings, COMMON_SETTINGS)
        self.config: dict[str, Any] = {
            name: plain_number(value) for name, value in {**(config or {}), **settings}.items()
        }
        for word in COMMON_SETTINGS:
            if word in self.config:
                give(self, word, self.config[word])

    # -- the points, in the order of a run --------------------------------------------------------------------

    def before_run(self, *args: Any, **kwargs: Any) -> None:
        """Called before anything else in a run."""

    def before_train(self, *args: Any, **kwargs: Any) -> None:
        """Called before the first epoch, after a checkpoint has been loaded."""

    def before_epoch(self, *args: Any, **kwargs: Any) -> None:
        """Called before an epoch."""

    def before_train_epoch(self, *args: Any, **kwargs: Any) -> None:
        """Called before the training part of an epoch."""

    def before_train_iter(self, *args: Any, **kwargs: Any) -> None:
        """Called before the step; the batch is loaded."""

    def after_train_iter(self, *args: Any, **kwargs: Any) -> None:
        """Called after the step."""

    def after_train_epoch(self, *args: Any, **kwargs: Any) -> None:
        """Called after the training part of an epoch, before the script's own evaluation."""

    def before_val(self, *args: Any, **kwargs: Any) -> None:
        """Called before an evaluation."""

    def before_val_epoch(self, *args: Any, **kwargs: Any) -> None:
        """Called before the first batch of an evaluation."""

    def before_val_iter(self, *args: Any, **kwargs: Any) -> None:
        """Called before a step of an evaluation."""

    def after_val_iter(self, *args: Any, **kwargs: Any) -> None:
        """Called after a step of an evaluation."""

    def after_val_epoch(self, *args: Any, **kwargs: Any) -> None:
        """Called after an evaluation has published its metrics."""

    def after_val(self, *args: Any, **kwargs: Any) -> None:
        """Called at the end of an evaluation, however it ended."""

    def before_test(self, *args: Any, **kwargs: Any) -> None:
        """Called before a test."""

    def before_test_epoch(self, *args: Any, **kwargs: Any) -> None:
        """Called before the first batch of a test."""

    def before_test_iter(self, *args: Any, **kwargs: Any) -> None:
        """Called before a step of a test."""

    def after_test_iter(self, *args: Any, **kwargs: Any) -> None:
        """Called after a step of a test."""

    def after_test_epoch(self, *args: Any, **kwargs: Any) -> None:
        """Called after a test has published its metrics."""

    def after_test(self, *args: Any, **kwargs: Any) -> None:
        """Called at the end of a test, however it ended."""

    def after_epoch(self, *args: Any, **kwargs: Any) -> None:
        """Called after an epoch and its evaluation."""

    def before_save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        """Called before a checkpoint is written; ``checkpoint`` may be edited."""

    def after_save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        """Called after a checkpoint has been written to ``path``."""

    def after_load_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        """Called after a checkpoint has been loaded."""

    def after_train(self, *args: Any, **kwargs: Any) -> None:
        """Called after the last epoch."""

    def after_run(self, *args: Any, **kwargs: Any) -> None:
        """Called after everything else in a run that did not fail."""

    def on_exception(self, *args: Any, **kwargs: Any) -> None:
        """Called when an exception ends the run."""

    def cleanup(self, *args: Any, **kwargs: Any) -> None:
        """Called exactly once at the end of a run, whatever ended it."""

    # -- the run ----------------------------------------------------------------------------------------------

    @property
    def quiet_calls(self) -> Mapping[Callable[..., Any], Callable[..., object]]:
        """What is called in place of methods of this class where nothing is due: it does the same in less time."""
        return {}

    @property
    def runner(self) -> Runner:
        """The runner this hook is attached to."""
        reference = getattr(self, "_runner", None)
        runner = None if reference is None else reference()
        if runner is None:
            raise RuntimeError(f"{type(self).__name__} is not attached to a run")
        return cast("Runner", runner)

    @runner.setter
    def runner(self, runner: Runner | None) -> None:
        # Weak, because engine -> hook -> runner -> engine would keep each other alive.
        # Not by assignment, because a hook may be a frozen dataclass.
        object.__setattr__(self, "_runner", None if runner is None else weakref.ref(runner))

    def attach(self, engine: Engine, **services: Any) -> Runner:
        """Attach this hook alone, as any handler of Ignite is: no default hooks and no files but its own.

        Args:
            engine: The engine that trains; the hook joins the runner that is already on it.
            **services: What ``attach_hooks`` takes by name: ``model``, ``optimizer``, ``val_loader`` and any of yours.

        Returns:
            The runner.
        """
        # Loaded on demand, because a hook must not depend on what attaches it, which is in a higher layer.
        return cast("Runner", importlib.import_module("ignite_hooks.attach").attach_hook(engine, self, services))

    # -- the protocol between a run and its hooks -------------------------------------------------------------

    def attached(self) -> None:
        """Prepare for runs; called once, when the hook is added to a runner."""

    def switched_off(self) -> None:
        """Take out what the hook has put into the model; called when ``on_error`` switches it off in a run."""

    def check(self, situation: Situation) -> Iterator[tuple[str, str]]:
        """Yield the problems of the settings in this situation, as (setting, message)."""
        yield from ()

    def answers(self) -> Mapping[str, Callable[..., Any]]:
        """Return the methods that answer points, by name."""
        return {answer.method: getattr(self, answer.method) for answer in class_answers(type(self))}

    def acts_by_itself(self) -> str:
        """Return in words for the plan when a hook acts that answers no point, because it is attached in other ways."""
        return ""

    def how_often(self, method: str) -> str | None:
        """Return the frequency, in words for the plan, of a method without ``@scheduled`` that does not always act."""
        return None

    def notes_for_plan(self) -> Mapping[str, str]:
        """Return what this hook reads, writes or saves because of its settings, in words for the plan."""
        return {}

    def leads_to(self, method: str, simulation: PlanSimulation) -> Sequence[str]:
        """Return what a call of a method triggers in a simulated run: points, ``val`` or ``test``."""
        return ()

    def monitors(self) -> Mapping[str, str]:
        """Return the metrics this hook ranks, with their rules."""
        return {}

    def weights(self) -> Mapping[str, Any]:
        """Return the weights that the hook holds beside the model, by their key in a checkpoint, without copies."""
        return {}

    def load_weights(self, found: Mapping[str, Any]) -> None:
        """Load weights that ``weights`` returned."""

    def steady_tensors(self) -> Sequence[Tensor]:
        """Return the tensors in checkpoints that change only in optimizer steps."""
        return ()

    def findings(self) -> list[str]:
        """Return what stands out in this run so far, as sentences for the report."""
        return []

    # -- helpers ----------------------------------------------------------------------------------------------

    def get_service(self, name: str, default: Any = None) -> Any:
        """Return the service of this name, or the default."""
        return self.runner.get_service(name, default)

    @property
    def when(self) -> When:
        """The schedule of the governed methods of this hook."""
        return schedule_of(self)

    def should_trigger(self, step: int) -> bool:
        """Return whether the hook fires at this 0-based step; an override replaces the schedule."""
        return self.when.due(step + 1)

    def every_n_epochs(self, runner: Runner, n: int, start: int = 0) -> bool:
        """Return whether the hook is due at the end of this epoch, when it acts every n epochs."""
        return n > 0 and When(n, "epoch", start).due(runner.epoch + 1)

    def every_n_iters(self, runner: Runner, n: int, start: int = 0) -> bool:
        """Return whether the hook is due at the end of this iteration, when it acts every n iterations."""
        return n > 0 and When(n, "iter", start).due(runner.iter + 1)

    every_n_train_iters = every_n_iters

    def every_n_inner_iters(self, batch_idx: int, n: int) -> bool:
        """Return whether the hook is due at this batch of the epoch, when it acts every n batches."""
        return n > 0 and (batch_idx + 1) % n == 0

    def is_last_epoch(self, runner: Runner) -> bool:
        """Return whether this epoch is the last of the run."""
        return runner.max_epochs is not None and runner.epoch + 1 >= runner.max_epochs

    def is_last_iter(self, runner: Runner) -> bool:
        """Return whether this iteration is the last of the run."""
        return runner.max_iters is not None and runner.iter + 1 >= runner.max_iters

    is_last_train_epoch = is_last_epoch
    is_last_train_iter = is_last_iter

    def get_triggered_stages(self) -> list[str]:
        """Return the points this hook answers, in the order of a run."""
        answered = {answer.point.name for answer in answers_of(self)}
        return [point for point in POINTS if point in answered]

    def state_dict(self) -> dict[str, Any]:
        """Return the progress of this hook: the fields of its ``state``, if it has one."""
        state = getattr(self, "state", None)
        if dataclasses.is_dataclass(state) and not isinstance(state, type):
            return {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load progress that ``state_dict`` returned; unknown names are ignored."""
        mine = getattr(self, "state", None)
        if dataclasses.is_dataclass(mine) and not isinstance(mine, type):
            known = {field.name for field in dataclasses.fields(mine)}
            for name in known & set(state):
                setattr(mine, name, _as_before(copy.deepcopy(state[name]), getattr(mine, name, None)))


def _as_before(saved: Any, now: Any) -> Any:
    """Return a value of a checkpoint as the collection that it was, of which a file holds only the content."""
    if isinstance(now, deque) and isinstance(saved, list):
        return deque(saved, now.maxlen)
    return OrderedDict(saved) if isinstance(now, OrderedDict) and isinstance(saved, dict) else saved


Hook = BaseHook
"""The name of BaseHook in MMEngine and in the third seed's trainer."""


@dataclass_transform(kw_only_default=True, field_specifiers=(dataclasses.field,))
def settings(cls: type[Made]) -> type[Made]:
    """Make a hook of typed fields: a keyword-only dataclass that also takes its settings as one mapping.

    Example:
        >>> @settings
        ... class Beep(BaseHook):
        ...     interval: int = 10
        ...     loud: bool = False
        >>> Beep({"interval": 5}).interval, Beep(loud=True).given
        (5, frozenset({'loud'}))
    """
    for name in annotations_of(cls):
        inherited = next((base for base in cls.__mro__ if name in vars(base)), None)
        if inherited is BaseHook and (name in OPTIONAL or callable(vars(BaseHook)[name])):
            # A setting without a default: the dataclass would use the attribute of BaseHook as its default.
            setattr(cls, name, dataclasses.field())
    made: Any = dataclasses.dataclass(kw_only=True, eq=False)(cls)
    fields = {field.name for field in dataclasses.fields(made) if field.init}
    paths = {field.name for field in dataclasses.fields(made) if field.init and "Path" in str(field.type)}
    hide_fields(made)
    construct: Callable[..., None] = made.__init__

    @functools.wraps(construct)
    def __init__(self: BaseHook, config: Mapping[str, Any] | None = None, /, **given: Any) -> None:
        values = {name: plain_number(value) for name, value in {**(config or {}), **given}.items()}
        for word, other in SPELLINGS.items():
            if word in values and word not in fields and other in fields:
                values.setdefault(other, values.pop(word))
        for name in paths & values.keys():
            values[name] = _expanded(values[name])
        own = {key: value for key, value in values.items() if key in fields or key not in COMMON_SETTINGS}
        self.given = frozenset(values)
        for word in values.keys() - own.keys():
            give(self, word, values[word])
        construct(self, **own)

    made.__init__ = __init__
    return cls


def _expanded(path: Any) -> Any:
    """Return a path with the home directory in place of ``~``; anything else as it is."""
    return type(path)(os.path.expanduser(path)) if isinstance(path, (str, Path)) else path


SPELLINGS = {"frequency": "interval", "interval": "frequency", "begin": "start", "start": "begin"}
"""Two names for one setting; a hook with a field of one name also accepts the other."""
