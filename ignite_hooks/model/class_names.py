"""The names of the classes of the data: of a service of the script, or of a data set."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ignite_hooks.errors import MetricError
from ignite_hooks.model.loader_workers import datasets_with
from ignite_hooks.text import shown

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner

PLACES = ("metainfo", "CLASSES", "classes")
"""The attributes of a data set that may hold the names of its classes."""


def class_names(loader: Any) -> tuple[Sequence[Any] | None, str]:
    """Return the class names of the data set behind a loader, if it has any, and the name of the data set."""
    kind = type(getattr(loader, "dataset", loader)).__name__
    for dataset in datasets_with(loader, *PLACES):
        for place in PLACES:
            found = getattr(dataset, place, None)
            if isinstance(found, Mapping):
                # In a mapping {name: number} the names are the keys.
                found = found.get("classes", found.get("CLASSES")) if place == "metainfo" else list(found)
            if isinstance(found, str):
                raise ValueError(
                    f"the class names of {type(dataset).__name__} are the text {shown(found)}, each letter of which "
                    f"would be a class: write ({found!r},)"
                )
            if isinstance(found, Iterable):
                return list(found), kind
    return None, kind


def class_names_of(runner: Runner) -> list[str] | None:
    """Return the names of the classes of a run: the service ``class_names``, or those of the data in use."""
    given = runner.get_service("class_names")
    if given is not None:
        return [str(name) for name in given]
    for engine in (runner.trainer, *runner.evaluators.values()):
        loader = engine.state.dataloader
        found = None if loader is None else class_names(loader)[0]
        if found is not None:
            return [str(name) for name in found]
    return None


def labels_of(runner: Runner) -> list[str]:
    """Return the names of the classes as those of the entries of results; none if they are not known.

    Raises:
        MetricError: If two classes have one name, so that their numbers would meet.
    """
    try:
        found = class_names_of(runner) or []
    except ValueError as error:
        runner.note_once(f"the classes are numbers: {error}", logging.WARNING)
        return []
    places: dict[str, list[int]] = {}
    for place, label in enumerate(found):
        places.setdefault(label, []).append(place)
    for label, same in places.items():
        if len(same) > 1:
            numbers = ", ".join(map(str, same))
            raise MetricError(f"class_names: the classes {numbers} are all called {label!r}: give each its own name")
    return found
