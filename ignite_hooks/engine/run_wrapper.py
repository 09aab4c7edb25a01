"""Stands in for ``engine.run`` while hooks are attached."""

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

Opened = Callable[["Engine", object, Callable[[], object]], AbstractContextManager[None]]


class Guard:
    """Every way in which a run can begin or end passes through here, so nothing of it is missed.

    Listening to events alone would not do: an exception listener makes Ignite swallow exceptions,
    ``terminate(skip_completed=True)`` fires no last event, and handlers are to be seated before the first.

    Args:
        engine: The engine whose ``run`` is wrapped; it is held weakly.
        opened: Gives the context in which a run happens, from the engine, its data, and a function that runs
            it once more as it is.
    """

    def __init__(self, engine: Engine, opened: Opened) -> None:
        self._engine = weakref.ref(engine)
        self._opened = opened
        # Never through vars(engine): once Python 3.11 has made the dictionary of an object, each look-up of one of its
        # attributes is slower for good, and an iteration of an engine costs a quarter more.
        own = MethodType(type(engine).run, engine)
        self._shadowed = None if engine.run == own else engine.run
        self.__wrapped__ = type(engine).run
        self.__doc__ = type(engine).run.__doc__

    @classmethod
    def put(cls, engine: Engine, opened: Opened, role: str) -> Callable[[], None]:
        """Guard an engine, which must not be guarded yet; returns what takes the guard away again."""
        if isinstance(engine.run, Guard):
            raise ConfigError(
                f"the {role} already has hooks attached: "
                "call runner.detach() first, or runner.register_hook(...) to add one"
            )
        engine.run = cls(engine, opened)  # type: ignore[method-assign]
        reference = weakref.ref(engine)

        # It must not hold the guard: the guard of a trainer holds what will call this.
        def take_away() -> None:
            guard = getattr(reference(), "run", None)
            if isinstance(guard, Guard):
                guard.remove()

        return take_away

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        engine = self._engine()
        if engine is None:
            raise ReferenceError("this engine is gone")
        data = args[0] if args else kwargs.get("data")
        own = self._shadowed or functools.partial(type(engine).run, engine)
        run = functools.partial(own, *args, **kwargs)
        with self._opened(engine, data, run):
            return run()

    def remove(self) -> None:
        """Give the engine its own ``run`` back."""
        engine = self._engine()
        if engine is not None and engine.run is self:
            del engine.run
            if self._shadowed is not None:
                engine.run = self._shadowed  # type: ignore[method-assign]

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        # A copy of an engine is a plain engine: this guard would run the original.
        copy = memo.get(id(self._engine()))
        return self if copy is None else type(copy).run.__get__(copy)
