"""Classes of every style that can be a hook."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Ge

from ignite_hooks import BaseHook, scheduled
from ignite_hooks.hooks import settings


@settings
class Fields(BaseHook):
    """Does things
    in two lines.

    Args:
        interval: How often.
        mode: Which way
            it goes.

    Reads: model.
    Writes: things.
    """

    interval: Annotated[int, Ge(1)] = 10
    mode: Literal["min", "max"] = "min"
    size: tuple[int, int] | None = None
    must: str

    @scheduled
    def after_train_iter(self) -> None: ...


class Config(BaseHook):
    def __init__(self, config: dict[str, Any] | None = None) -> None:
        super().__init__(config)

    def after_epoch(self) -> None: ...


class Own:
    def __init__(self, interval: int = 50, *, mode: str) -> None:
        self.interval = interval

    def after_train_iter(self, runner: Any) -> None: ...


class None_(BaseHook):
    def after_epoch(self) -> None: ...


class Plain:
    def after_epoch(self) -> None: ...


@dataclass
class Data(BaseHook):
    count: int = 1

    def after_epoch(self) -> None: ...


class WithMore(Fields):
    def __init__(self, more: int = 1) -> None:
        super().__init__(must="a")
