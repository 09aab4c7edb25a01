"""Opens every run of an engine while hooks are attached, whichever way the script reaches ``Engine.run``."""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import MethodType
from typing import TYPE_CHECKING, Any

from ignite_hooks.errors import ConfigError

if TYPE_CHECKING:
    from ignite.engine import Engine

    from ignite_hooks.run.runner import Runner

OpenRun = Callable[["Engine", object, Callable[[], object]], AbstractContextManager[None]]
Skips = Callable[[dict[str, Any]], bool]

ARGUMENTS = ("data", "max_epochs", "max_iters", "epoch_length")
"""The arguments of Ignite's ``run``, in order."""


class RunWrapper:
    """Replaces the ``run`` of an engine, so that no start or end of a run is missed.

    Listening to events is not enough: an exception listener makes Ignite swallow exceptions,
    ``terminate(skip_completed=True)`` fires no last event, and handlers must be added before the first.

    Args:
        engine: The engine whose ``run`` is wrapped; it is held weakly.
        open_run: Returns the context of a run, given the engine, its data and a function that calls the original
            ``run`` once more.
        runner: Refers to the runner that attached the hooks.
        skips: Returns whether a call with these arguments, by name, has nothing to do.
    """

    def __init__(
        self, engine: Engine, open_run: OpenRun, runner: Callable[[], Runner | None], skips: Skips | None = None
    ) -> None:
        self.runner = runner
        self._engine = weakref.ref(engine)
        self._open_run, self._skips = open_run, skips
        # Never use vars(engine): once Python 3.11 has made the dictionary of an object, every look-up of its attributes
        # stays slower, and an iteration of an engine costs a quarter more.
        own = MethodType(type(engine).run, engine)
        self._shadowed = None if engine.run == own else engine.run
        self._inner = InnerRun(self._engine, open_run)
        self.__wrapped__ = type(engine).run
        self.__doc__ = type(engine).run.__doc__

    @classmethod
    def wrap(
        cls, engine: Engine, open_run: OpenRun, role: str, runner: Runner, skips: Skips | None = None
    ) -> Callable[[], None]:
        """Wrap the ``run`` of an engine that is not wrapped yet; return the function that unwraps it."""
        if isinstance(engine.run, RunWrapper):
            if engine.run.runner() is not None:
                raise ConfigError(already_attached(role))
            # Nobody holds the runner that evaluated with this engine: its trainer is gone too.
            engine.run.remove()
        engine.run = wrapper = cls(engine, open_run, weakref.ref(runner), skips)  # type: ignore[method-assign]
        wrapper._inner.put_on(engine)
        reference = weakref.ref(engine)

        # This function must not hold the wrapper, which holds the runner, which holds this function.
        def unwrap() -> None:
            wrapper = getattr(reference(), "run", None)
            if isinstance(wrapper, RunWrapper):
                wrapper.remove()

        return unwrap

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        engine = self._engine()
        if engine is None:
            raise ReferenceError("this engine no longer exists")
        data = args[0] if args else kwargs.get("data")
        if self._skips is not None and self._skips(dict(zip(ARGUMENTS, args, strict=False)) | kwargs):
            return engine.state
        own = self._shadowed or functools.partial(type(engine).run, engine)
        run = functools.partial(own, *args, **kwargs)
        with self._inner.left_alone(), self._open_run(engine, data, run):
            return run()

    def remove(self) -> None:
        """Restore the engine's own ``run``."""
        engine = self._engine()
        if engine is None:
            return
        self._inner.remove_from(engine)
        if engine.run is self:
            del engine.run
            if self._shadowed is not None:
                engine.run = self._shadowed  # type: ignore[method-assign]

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        # A copied engine gets its plain `run`, because this wrapper would run the original engine.
        copy = memo.get(id(self._engine()))
        return self if copy is None else type(copy).run.__get__(copy)


def already_attached(roles: str) -> str:
    """Return the message that these engines have hooks already, with what to do."""
    return (
        f"the {roles} already has hooks attached: pass replace=True to attach_hooks() to replace them, call "
        "runner.detach() of the earlier runner first, or runner.register_hook(...) to add one"
    )


class InnerRun:
    """Opens a run that does not come through the ``run`` of its engine.

    A subclass may call ``super().run()``, a script ``Engine.run(trainer)``, or a ``trainer.run`` that it took before
    hooks were attached. Each of them comes to one of these methods, after the run is prepared, before its first event.

    Args:
        engine: The engine.
        open_run: As for `RunWrapper`.
    """

    METHODS = ("_internal_run", "_internal_run_legacy")

    def __init__(self, engine: weakref.ref[Engine], open_run: OpenRun) -> None:
        self._engine, self._open_run = engine, open_run
        self._is_open = False

    def put_on(self, engine: Engine) -> None:
        """Stand before the methods of the engine."""
        for name in self.METHODS:
            setattr(engine, name, _Entrance(self, name))

    def remove_from(self, engine: Engine) -> None:
        """Restore the engine's own methods."""
        for name in self.METHODS:
            if getattr(getattr(engine, name), "inner", None) is self:
                delattr(engine, name)

    @contextlib.contextmanager
    def left_alone(self) -> Iterator[None]:
        """Let runs pass: the run is open already."""
        outer, self._is_open = self._is_open, True
        try:
            yield
        finally:
            self._is_open = outer

    def run(self, name: str) -> Any:
        """Open the run, unless it is open already."""
        engine = self._engine()
        if engine is None:
            raise ReferenceError("this engine no longer exists")
        own = functools.partial(getattr(type(engine), name), engine)
        if self._is_open:
            return own()
        again = functools.partial(_once_more, engine, own)
        with self.left_alone(), self._open_run(engine, engine.state.dataloader, again):
            return own()


class _Entrance:
    """One of the methods that `InnerRun` stands before."""

    def __init__(self, inner: InnerRun, name: str) -> None:
        self.inner, self._name = inner, name

    def __call__(self) -> Any:
        return self.inner.run(self._name)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        copy = memo.get(id(self.inner._engine()))
        return self if copy is None else getattr(type(copy), self._name).__get__(copy)


def _once_more(engine: Engine, run: Callable[[], object]) -> None:
    """Run an engine that is prepared, and prepare it again."""
    before = engine.state.iteration, engine.state.epoch
    run()
    engine.state.iteration, engine.state.epoch = before
