"""BaseHook: what every hook is, and ``@settings``, which makes a hook of typed fields."""

from __future__ import annotations

import copy
import dataclasses
import functools
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, cast, dataclass_transform

from ignite_hooks.plan.points import ALIASES, EPOCH_POINTS, ITERATION_POINTS, POINTS, Priority, point_named
from ignite_hooks.plan.schedule import SCHEDULE_WORDS, When, read_when

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner

OnError = Literal["raise", "warn", "disable"]
PriorityLike = int | str | Mapping[str, int | str]
Made = TypeVar("Made", bound="BaseHook")

COMMON_SETTINGS = ("name", "priority", "on_error", *SCHEDULE_WORDS)
"""What any entry of a configuration may say, whatever its hook."""


@dataclasses.dataclass(frozen=True)
class Situation:
    """What a hook may know of its surroundings when its settings are checked, before anything is attached."""

    evaluators: frozenset[str] = frozenset()
    services: frozenset[str] = frozenset()
    hooks: Mapping[str, object] = dataclasses.field(default_factory=dict)
    complete: bool = True
    """False where only a file is seen, so that a script could still supply what is missing."""

    @property
    def evaluates(self) -> bool:
        """Whether anything publishes evaluation metrics."""
        return bool(self.evaluators) or any(getattr(hook, "evaluates", None) for hook in self.hooks.values())


class BaseHook:
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
    priority: PriorityLike = Priority.NORMAL
    on_error: OnError = "raise"
    point_priority: ClassVar[Mapping[str, int]] = {}
    """Priorities at single points, where they differ from ``priority``."""

    may_end_a_run: ClassVar[bool | None] = None
    """Whether it may end a run, or has something to do when one ends early: the ranks of a run then agree about it.
    Where nothing is said, a hook that only observes (``on_error`` is ``warn``) does not."""
    collective: ClassVar[bool] = False
    """Whether its methods talk to those of the same hook on other ranks, so that it cannot be left out on one alone."""

    given: frozenset[str] = frozenset()
    """The names of the settings that were mentioned, as opposed to left at their defaults."""

    def __init__(self, config: Mapping[str, Any] | None = None, **settings: Any) -> None:
        self.config = {**(config or {}), **settings}
        for word in COMMON_SETTINGS:
            if word in self.config:
                setattr(self, word, self.config[word])

    # -- the points, in the order in which a run meets them ---------------------------------------------------

    def before_run(self, *args: Any, **kwargs: Any) -> None:
        """Before anything else of the run."""

    def before_train(self, *args: Any, **kwargs: Any) -> None:
        """Before the first epoch, after a checkpoint has been loaded."""

    def before_epoch(self, *args: Any, **kwargs: Any) -> None:
        """Before an epoch."""

    def before_train_epoch(self, *args: Any, **kwargs: Any) -> None:
        """Before the training part of an epoch."""

    def before_train_iter(self, *args: Any, **kwargs: Any) -> None:
        """Before the step; the batch is loaded."""

    def after_train_iter(self, *args: Any, **kwargs: Any) -> None:
        """After the step."""

    def after_train_epoch(self, *args: Any, **kwargs: Any) -> None:
        """After the training part of an epoch, before the script's own evaluation."""

    def before_val(self, *args: Any, **kwargs: Any) -> None:
        """Before an evaluation."""

    def before_val_epoch(self, *args: Any, **kwargs: Any) -> None:
        """Before the data of an evaluation is gone through."""

    def before_val_iter(self, *args: Any, **kwargs: Any) -> None:
        """Before a step of an evaluation."""

    def after_val_iter(self, *args: Any, **kwargs: Any) -> None:
        """After a step of an evaluation."""

    def after_val_epoch(self, *args: Any, **kwargs: Any) -> None:
        """After an evaluation has published its metrics."""

    def after_val(self, *args: Any, **kwargs: Any) -> None:
        """At the end of an evaluation, however it ended."""

    def before_test(self, *args: Any, **kwargs: Any) -> None:
        """Before a test."""

    def before_test_epoch(self, *args: Any, **kwargs: Any) -> None:
        """Before the data of a test is gone through."""

    def before_test_iter(self, *args: Any, **kwargs: Any) -> None:
        """Before a step of a test."""

    def after_test_iter(self, *args: Any, **kwargs: Any) -> None:
        """After a step of a test."""

    def after_test_epoch(self, *args: Any, **kwargs: Any) -> None:
        """After a test has published its metrics."""

    def after_test(self, *args: Any, **kwargs: Any) -> None:
        """At the end of a test, however it ended."""

    def after_epoch(self, *args: Any, **kwargs: Any) -> None:
        """After an epoch and its evaluation."""

    def before_save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        """Before a checkpoint is written; ``checkpoint`` may be edited."""

    def after_save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        """After a checkpoint has been written to ``path``."""

    def after_load_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        """After a checkpoint has been loaded."""

    def after_train(self, *args: Any, **kwargs: Any) -> None:
        """After the last epoch."""

    def after_run(self, *args: Any, **kwargs: Any) -> None:
        """After everything else of a run that ended well."""

    def on_exception(self, *args: Any, **kwargs: Any) -> None:
        """When an exception ends the run, or would have."""

    def cleanup(self, *args: Any, **kwargs: Any) -> None:
        """Exactly once at the end of a run, whatever ended it."""

    # -- helpers ----------------------------------------------------------------------------------------------

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
        # Weak, or engine -> hook -> runner -> engine would keep each other alive.
        self._runner = None if runner is None else weakref.ref(runner)

    def attached(self) -> None:
        """Called once when the hook joins a runner, before any run."""

    def check(self, situation: Situation) -> Iterator[tuple[str, str]]:
        """What is wrong with the settings in this situation, as (setting, message)."""
        yield from ()

    def how_often(self, method: str) -> str | None:
        """What the plan says of a method that is not marked ``@scheduled`` and still does not act always."""
        return None

    def monitors(self) -> Mapping[str, str]:
        """The metrics this hook ranks, with their rules."""
        return {}

    def findings(self) -> list[str]:
        """What stands out in this run so far, in words; the report tells it."""
        return []

    def get_service(self, name: str, default: Any = None) -> Any:
        """The service of this name, or the default."""
        return self.runner.get_service(name, default)

    @property
    def when(self) -> When:
        """How often the governed methods of this hook fire."""
        return schedule_of(self)

    def should_trigger(self, step: int) -> bool:
        """Whether the hook fires at this 0-based step; override it and it decides alone."""
        return self.when.due(step + 1)

    def every_n_epochs(self, runner: Runner, n: int, start: int = 0) -> bool:
        """Whether the epoch that ends is one of every n."""
        return n > 0 and When(n, "epoch", start).due(runner.epoch + 1)

    def every_n_iters(self, runner: Runner, n: int, start: int = 0) -> bool:
        """Whether the iteration that ends is one of every n."""
        return n > 0 and When(n, "iter", start).due(runner.iter + 1)

    every_n_train_iters = every_n_iters

    def every_n_inner_iters(self, batch_idx: int, n: int) -> bool:
        """Whether this batch of the epoch is one of every n."""
        return n > 0 and (batch_idx + 1) % n == 0

    def is_last_epoch(self, runner: Runner) -> bool:
        """Whether this epoch is the last that was asked for."""
        return runner.max_epochs is not None and runner.epoch + 1 >= runner.max_epochs

    def is_last_iter(self, runner: Runner) -> bool:
        """Whether this iteration is the last that was asked for."""
        return runner.max_iters is not None and runner.iter + 1 >= runner.max_iters

    is_last_train_epoch = is_last_epoch
    is_last_train_iter = is_last_iter

    def get_triggered_stages(self) -> list[str]:
        """The points this hook answers, in the order in which a run meets them."""
        cls: Any = type(self)
        answered = {point_named(method).name for method in answered_methods(cls)}
        return [point for point in POINTS if point in answered]

    def state_dict(self) -> dict[str, Any]:
        """The progress of this hook: the fields of its ``state``, where it has one."""
        state = getattr(self, "state", None)
        if dataclasses.is_dataclass(state) and not isinstance(state, type):
            return {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up progress that ``state_dict`` gave; names it does not know are left alone."""
        mine = getattr(self, "state", None)
        if dataclasses.is_dataclass(mine) and not isinstance(mine, type):
            known = {field.name for field in dataclasses.fields(mine)}
            for name in known & set(state):
                setattr(mine, name, copy.deepcopy(state[name]))


Hook = BaseHook
"""The name of BaseHook in MMEngine and in the third seed's trainer."""


@dataclass_transform(kw_only_default=True)
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
    made: Any = dataclasses.dataclass(kw_only=True, eq=False)(cls)
    fields = {field.name for field in dataclasses.fields(made) if field.init}
    construct: Callable[..., None] = made.__init__

    @functools.wraps(construct)
    def __init__(self: BaseHook, config: Mapping[str, Any] | None = None, /, **given: Any) -> None:
        values = {**(config or {}), **given}
        for word, other in SPELLINGS.items():
            if word in values and word not in fields and other in fields:
                values.setdefault(other, values.pop(word))
        own = {key: value for key, value in values.items() if key in fields or key not in COMMON_SETTINGS}
        self.given = frozenset(values)
        for word in values.keys() - own.keys():
            setattr(self, word, values[word])
        construct(self, **own)

    made.__init__ = __init__
    return cls


SPELLINGS = {"frequency": "interval", "interval": "frequency", "begin": "start", "start": "begin"}
"""The two names of one setting; a hook with a field for one takes the other for it."""


def schedule_of(hook: object) -> When:
    """The schedule that the settings of a hook spell."""
    word: Callable[..., Any] = functools.partial(getattr, hook)
    frequency, start = word("frequency", None), word("start", None)
    return read_when(
        interval=word("interval", None) if frequency is None else frequency,
        by_epoch=word("by_epoch", None),
        start=word("begin", None) if start is None else start,
        every=word("every", None),
        epochs_by_default=answers_only_epochs(type(hook)),
    )


_ANSWERED: weakref.WeakKeyDictionary[type, tuple[str, ...]] = weakref.WeakKeyDictionary()


def answered_methods(cls: type) -> tuple[str, ...]:
    """The methods of a class that answer a known point: those that are not BaseHook's own."""
    # Weak: a class made from functions would keep alive whatever these have seen.
    if cls not in _ANSWERED:
        _ANSWERED[cls] = tuple(name for name in (*POINTS, *ALIASES) if own_method(cls, name) is not None)
    return _ANSWERED[cls]


def own_method(cls: type, name: str) -> Callable[..., Any] | None:
    """The method a class gives this name itself, not the one it has from BaseHook."""
    method = next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)
    return method if callable(method) and method is not vars(BaseHook).get(name) else None


def answers_only_epochs(cls: Any) -> bool:
    """Whether, of the train iteration and epoch points, a class answers epoch points alone."""
    answered = {point_named(name).name for name in answered_methods(cls)}
    return bool(answered & EPOCH_POINTS) and not answered & ITERATION_POINTS
