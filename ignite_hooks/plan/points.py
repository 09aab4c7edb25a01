"""The points a hook can answer, and the engine events that reach them."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from ignite_hooks.text import nearest

EngineKind = Literal["train", "val", "test"]


@dataclass(frozen=True)
class Point:
    """A place in a run where hooks are called.

    ``event`` names the Ignite event of the engine ``kind``; points without an event are called by us.
    """

    name: str
    kind: EngineKind | None = None
    event: str | None = None
    payload: tuple[str, ...] = ()

    @property
    def ascending(self) -> bool:
        """Whether the smaller priority comes first."""
        return not (self.name.startswith("after_") or self.name in ("on_exception", "cleanup"))


ITERATION = ("batch_idx", "data_batch")
OUTPUT = (*ITERATION, "outputs")


def _evaluation(kind: Literal["val", "test"]) -> tuple[Point, ...]:
    return (
        Point(f"before_{kind}", kind, "STARTED"),
        Point(f"before_{kind}_epoch", kind, "EPOCH_STARTED"),
        Point(f"before_{kind}_iter", kind, "ITERATION_STARTED", ITERATION),
        Point(f"after_{kind}_iter", kind, "ITERATION_COMPLETED", OUTPUT),
        Point(f"after_{kind}_epoch", kind, "EPOCH_COMPLETED"),
        Point(f"after_{kind}", kind, "COMPLETED"),
    )


_ALL = (
    Point("before_run", "train", "STARTED"),
    Point("before_train", "train", "STARTED"),
    Point("before_epoch", "train", "EPOCH_STARTED"),
    Point("before_train_epoch", "train", "EPOCH_STARTED"),
    Point("before_train_iter", "train", "ITERATION_STARTED", ITERATION),
    Point("after_train_iter", "train", "ITERATION_COMPLETED", OUTPUT),
    Point("after_train_epoch", "train", "EPOCH_COMPLETED"),
    *_evaluation("val"),
    *_evaluation("test"),
    Point("after_epoch", "train", "EPOCH_COMPLETED"),
    Point("before_save_checkpoint", payload=("checkpoint",)),
    Point("after_save_checkpoint", payload=("checkpoint", "path")),
    Point("after_load_checkpoint", payload=("checkpoint", "path")),
    Point("after_train", "train", "COMPLETED"),
    Point("after_run", "train", "COMPLETED"),
    Point("on_exception", payload=("exception",)),
    Point("cleanup"),
)

POINTS: dict[str, Point] = {point.name: point for point in _ALL}
"""Every point by name, in the order in which a run meets them."""

ALIASES = {
    "before_training": "before_train",
    "after_training": "after_train",
    "before_step": "before_train_iter",
    "after_step": "after_train_iter",
    "before_train_step": "before_train_iter",
    "after_train_step": "after_train_iter",
}
"""Other names of the same points."""

ITERATION_POINTS = frozenset({"before_train_iter", "after_train_iter"})
EPOCH_POINTS = frozenset({"before_epoch", "before_train_epoch", "after_train_epoch", "after_epoch"})
CHECKPOINT_POINTS = ("before_save_checkpoint", "after_save_checkpoint", "after_load_checkpoint")


def point_named(name: str) -> Point:
    """The point of this name or alias; any other name is a custom point.

    Example:
        >>> point_named("after_step").name, point_named("my_point").ascending
        ('after_train_iter', True)
    """
    name = ALIASES.get(name, name)
    return POINTS.get(name) or Point(name)


def misspelt_points(methods: Iterable[str]) -> dict[str, str]:
    """Methods that look like a point but are none, with the point that was probably meant.

    A name that adds a word to a point (``before_my_epoch``) is a custom point, not a slip.

    Example:
        >>> misspelt_points(["after_train_itr", "after_train_iter", "after_lunch", "reset"])
        {'after_train_itr': 'after_train_iter'}
    """
    return {method: meant for method in methods if (meant := _meant_point(method))}


@functools.cache  # every hook has the methods of BaseHook
def _meant_point(method: str) -> str | None:
    if method.startswith("_") or method in POINTS or method in ALIASES:
        return None
    near = nearest(method, [*POINTS, *ALIASES], cutoff=0.85)
    return near if near and not set(near.split("_")) < set(method.split("_")) else None
