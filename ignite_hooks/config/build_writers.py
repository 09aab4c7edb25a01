"""Build the writers that a configuration asks for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from ignite_hooks.config.describe import describe
from ignite_hooks.config.read import HookEntry, Settings
from ignite_hooks.config.validate import validate_settings
from ignite_hooks.errors import Problem
from ignite_hooks.registry import WRITERS
from ignite_hooks.text import one_line
from ignite_hooks.writers.adapt import adapt
from ignite_hooks.writers.interface import Writer
from ignite_hooks.writers.jsonl import JsonlWriter

if TYPE_CHECKING:
    from ignite_hooks.writers.trackers.clearml_task import Views


def build_writers(
    settings: Settings, folder: Path, problems: list[Problem], views: Views | None = None
) -> list[Writer]:
    """Build the writers of a configuration; relative paths among their settings are relative to the work directory."""
    writers: list[Writer] = []
    for entry in settings.writers:
        try:
            wanted = entry.wanted
            if isinstance(wanted, Mapping):
                wanted = _writer(entry, folder, problems)
            if wanted is not None:
                writers.append(adapt(wanted))
                if hasattr(writers[-1], "views"):
                    writers[-1].views = views
        except Exception as error:  # whatever a constructor refuses is a mistake of the configuration
            problems.append(Problem(entry.place, one_line(error)))
    return writers


def classes_of_writers(settings: Settings) -> frozenset[Any]:
    """Return the classes of the writers of a configuration; `object` stands for one with an unknown name."""
    found = set()
    for entry in settings.writers:
        wanted = entry.wanted.get("type") if isinstance(entry.wanted, Mapping) else entry.wanted
        if isinstance(wanted, str):
            wanted = WRITERS.get(wanted) if wanted in WRITERS else object
        found.add(wanted if isinstance(wanted, type) else type(wanted))
    return frozenset(found)


def with_metrics_file(writers: list[Writer], folder: Path) -> list[Writer]:
    """Return the writers, preceded by the one that writes ``metrics.jsonl`` in every run."""
    record = JsonlWriter(folder / "metrics.jsonl")
    # A second writer of this file would write every line twice.
    path = record.path.resolve()
    return [record, *(w for w in writers if not (isinstance(w, JsonlWriter) and w.path.resolve() == path))]


def validate_writer(entry: HookEntry, problems: list[Problem]) -> Any:
    """Return the class of a writer; if its name or its settings are wrong, add that to the problems and return None."""
    given = dict(entry.wanted)
    type_ = given.pop("type")
    try:
        cls = WRITERS.get(type_) if isinstance(type_, str) else type_
    except LookupError as error:
        problems.append(Problem(f"{entry.place}.type", str(error.args[0])))
        return None
    wrong = validate_settings(cls, given, entry.place, hook=False)
    problems += wrong
    return None if wrong else cls


def _writer(entry: HookEntry, folder: Path, problems: list[Problem]) -> Any:
    cls = validate_writer(entry, problems)
    if cls is None:
        return None
    given = {name: value for name, value in entry.wanted.items() if name != "type"}
    settings = describe(cls).settings
    if any(setting.name == "work_dir" for setting in settings):
        given.setdefault("work_dir", folder)
    for setting in settings:
        takes_path = Path in (setting.annotation, *get_args(setting.annotation))
        if takes_path and isinstance(given.get(setting.name), (str, Path)):
            given[setting.name] = folder / given[setting.name]
    return cls(**given)
