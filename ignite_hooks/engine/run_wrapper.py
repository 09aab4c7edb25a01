"""Wraps ``engine.run`` while hooks are attached."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import MethodType
from typing import TYPE_CHECKING, Any

from ignite_hooks.errors import ConfigError

if TYPE_CHECKING:
    from ignite.engine import Engine

OpenRun = Callable[["Engine", object, Callable[[], object]], AbstractContextManager[None]]


class RunWrapper:
    """Replaces the ``run`` of an engine, so that no start or end of a run is missed.

    Listening to events is not enough: an exception listener makes Ignite swallow exceptions,
    ``terminate(skip_completed=True)`` fires no last event, and handlers must be added before the first.

    Args:
        engine: The engine whose ``run`` is wrapped; it is held weakly.
        open_run: Returns the context of a run, given the engine, its data and a function that calls the original
            ``run`` once more.
    """

    def __init__(self, engine: Engine, open_run: OpenRun) -> None:
        self._engine = weakref.ref(engine)
        self._open_run = open_run
        # Never use vars(engine): once Python 3.11 has made the dictionary of an object, every look-up of its attributes
        # stays slower, and an iteration of an engine costs a quarter more.
        own = MethodType(type(engine).run, engine)
        self._shadowed = None if engine.run == own else engine.run
        self.__wrapped__ = type(engine).run
        self.__doc__ = type(engine).run.__doc__

    @classmethod
    def wrap(cls, engine: Engine, open_run: OpenRun, role: str) -> Callable[[], None]:
        """Wrap the ``run`` of an engine that is not wrapped yet; return the function that unwraps it."""
        if isinstance(engine.run, RunWrapper):
            raise ConfigError(
                f"the {role} already has hooks attached: "
                "call runner.detach() first, or runner.register_hook(...) to add one"
            )
        engine.run = cls(engine, open_run)  # type: ignore[method-assign]
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
        own = self._shadowed or functools.partial(type(engine).run, engine)
        run = functools.partial(own, *args, **kwargs)
        with self._open_run(engine, data, run):
            return run()

    def remove(self) -> None:
        """Restore the engine's own ``run``."""
        engine = self._engine()
        if engine is not None and engine.run is self:
            del engine.run
            if self._shadowed is not None:
                engine.run = self._shadowed  # type: ignore[method-assign]

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        # A copied engine gets its plain `run`, because this wrapper would run the original engine.
        copy = memo.get(id(self._engine()))
        return self if copy is None else type(copy).run.__get__(copy)
