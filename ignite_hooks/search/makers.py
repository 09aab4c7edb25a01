"""What makes each engine that a search can name, and what an engine needs of the configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ignite_hooks.config.connected.connect import connects
from ignite_hooks.errors import Problem
from ignite_hooks.search.engines import Engine, LocalProcesses
from ignite_hooks.trainer.search_section import SearchSection


def problems_of_engine(section: SearchSection, content: Mapping[str, Any]) -> list[Problem]:
    """Return what keeps a configuration from being tried by the engine that it names."""
    if section.engine_name != "clearml":
        return []
    found = []
    if not connects(content):
        needed = "clearml needs a ClearMLHook that is connected: add {type: ClearMLHook, project: NAME}"
        found.append(Problem("search.engine", needed))
    if section.gpus is not None:
        found.append(Problem("search.gpus", "an agent says which GPUs its trials see: clearml-agent daemon --gpus"))
    return found


def _clearml_tasks(section: SearchSection) -> Engine:
    from ignite_hooks.search.clearml_tasks import ClearMLTasks

    return ClearMLTasks(section)


def _ray_tasks(section: SearchSection) -> Engine:
    from ignite_hooks.search.ray_tasks import RayTasks

    return RayTasks(section)


MAKERS: Final[Mapping[str, Callable[[SearchSection], Engine]]] = {
    "local": LocalProcesses,
    "clearml": _clearml_tasks,
    "ray": _ray_tasks,
}
"""What makes each engine of `trainer/search_section.py`."""
