"""Check the sections of a trainer from a file alone: components are read from their sources, and nothing is loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ignite_hooks.config.outline import outline
from ignite_hooks.errors import Problem
from ignite_hooks.registry import Registry
from ignite_hooks.text import nearest, shown
from ignite_hooks.trainer.components import ComponentReader
from ignite_hooks.trainer.registries import DATASETS, IGNITE_METRICS, METRICS, MODELS
from ignite_hooks.trainer.sections import read_sections


class SourceReader(ComponentReader):
    """Find and check the components of a configuration without loading torch, or anything that is not ours.

    Args:
        imports: Modules whose classes and functions may be named as ``package.module:Name``; they are not imported.
        problems: The list to which everything that is wrong is added.
    """

    def __init__(self, imports: Any, problems: list[Problem]) -> None:
        self.notes: list[str] = []
        super().__init__(imports, problems)

    def load(self, name: str, place: str) -> Any:
        """Import nothing: the name stands for the module."""
        return name

    def found(self, registry: Registry, type_: str, place: str) -> Callable[..., Any] | None:
        """Return a stand-in for what a registry knows under a name."""
        where = registry.source_of(type_)
        made = registry.get(type_) if where is None else outline(*where)
        if made is None:
            self.notes.append(f"{place}: the settings of {shown(type_)} could not be read, and were not checked")
        return made

    def own(self, path: str, place: str) -> Callable[..., Any] | None:
        """Check that the module is listed; what is in it is not checked."""
        if self.is_listed(path.partition(":")[0], place):
            self.notes.append(f"{place}: the settings of {path} were not checked: its module is not imported")
        return None

    def of_ignite(self, wanted: Any) -> Any:
        """Replace the name of one of Ignite's metrics by a stand-in."""
        type_ = wanted.get("type") if isinstance(wanted, Mapping) else wanted
        if not isinstance(type_, str) or type_ in METRICS:
            return wanted
        made = next((each for each in (outline(module, type_) for module in IGNITE_METRICS) if each is not None), None)
        return wanted if made is None else {**(wanted if isinstance(wanted, Mapping) else {}), "type": made}


def belongs_to_trainer(content: Mapping[str, Any]) -> bool:
    """Return whether model and data are named as a trainer reads them; else a script has sections of these names.

    Example:
        >>> belongs_to_trainer({"model": {"type": "cnnn"}, "dataset": "digits"})
        True
        >>> belongs_to_trainer({"model": {"layers": 3}, "dataset": {"root": "data"}})
        False
    """
    return any(_is_named(content.get(name), registry) for name, registry in (("model", MODELS), ("dataset", DATASETS)))


def _is_named(wanted: Any, registry: Registry) -> bool:
    type_ = wanted.get("type") if isinstance(wanted, Mapping) else wanted
    return isinstance(type_, str) and (":" in type_ or nearest(type_, registry, cutoff=0.75) is not None)


def check_sections(content: Mapping[str, Any]) -> tuple[list[Problem], list[str]]:
    """Return the problems of a trainer's sections as far as a file can tell, and notes on what was not checked."""
    problems: list[Problem] = []
    reader = SourceReader(content.get("imports"), problems)
    sections = read_sections(content, problems, reader)
    return problems, [*sections.notes, *reader.notes]
