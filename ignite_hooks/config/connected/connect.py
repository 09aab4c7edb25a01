"""Connect a configuration with the task of a tracker, before anything is built."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from ignite_hooks.config import files
from ignite_hooks.config.composition import BASE
from ignite_hooks.config.connected.comparison import foreign_imports, merged, restored
from ignite_hooks.config.connected.parameters import as_text, parameters_of
from ignite_hooks.config.connected.yaml_text import as_written, as_yaml, read_text, text_of
from ignite_hooks.config.keys import is_ours
from ignite_hooks.distributed.collectives import broadcast_object, fail_on_all_ranks, is_main_process
from ignite_hooks.errors import ConfigError, Problem
from ignite_hooks.run.logger import LOGGER_NAME
from ignite_hooks.secrets import Masks
from ignite_hooks.text import shown
from ignite_hooks.writers.trackers.clearml_task import (
    Recorded,
    Views,
    failing_task,
    record_in,
    recorded_in,
    task_of_agent,
    under_agent,
)

CONNECTING = ("ClearMLHook", "ClearMLWriter")
MOST_TOLD = 20


class Connected(dict[str, Any]):
    """A configuration that has been connected already: ``attach_hooks`` takes it as it is.

    Args:
        content: The configuration.
        views: It, as a task shows it; None if no task does.
        of_task: Whether it says what a task says.
        alone: Whether it decides alone, as no script can add anything to the run.
    """

    def __init__(
        self, content: Mapping[str, Any], views: Views | None, *, of_task: bool = False, alone: bool = False
    ) -> None:
        super().__init__(content)
        self.views, self.of_task, self.alone = views, of_task, alone


_LOADED: dict[str, Connected] = {}
"""Files that a script has connected as a whole, so that ``attach_hooks`` does not do it again for a part."""


def load_config(path: str | Path, *, connect: bool = False) -> dict[str, Any]:
    """Read a configuration file into plain dicts, lists, text, numbers, booleans and None.

    Below keys that belong to the script, whatever the format can hold is accepted: dates, numbers as keys, NaN.

    Args:
        path: A `.yaml`, `.yml`, `.json`, `.toml` or `.py` file; a list at the top level is the list of hooks.
            A `.py` file is read, never run.
        connect: Whether to return what the task says that an agent of ClearML runs, and to show all of the file in the
            task that the run makes otherwise. Call it before the model is built.
    """
    if not connect:
        return files.load_config(path)
    content = read_or_of_task(path)
    problems: list[Problem] = []
    with failing_task():
        connected = connected_with_task(content, problems, text=text_in(path), is_checked=is_ours)
        if problems:
            raise ConfigError(problems, str(path))
    _LOADED[os.path.abspath(path)] = connected
    return connected


def read_or_of_task(path: str | Path) -> dict[str, Any]:
    """Return what a file says; where an agent lacks the file, what its task says, without imports."""
    if not under_agent() or Path(path).exists():
        return files.load_config(path)

    def read() -> Any:
        if not is_main_process():
            return None
        name = "the task's configuration 'ignite_hooks'"
        text = recorded_in(task_of_agent()).text
        if text is None:
            raise ConfigError([Problem(str(path), f"there is no such file, and the task has no {name}")])
        return text

    text = broadcast_object(fail_on_all_ranks(read))
    content = read_text(text, "the task's configuration 'ignite_hooks'")
    # Which code is loaded is not for a task to say.
    return {key: value for key, value in content.items() if key not in ("imports", BASE)}


def already_connected(cfg: Any) -> Connected | None:
    """Return what ``load_config`` or a trainer has connected."""
    if isinstance(cfg, (str, Path)):
        return _LOADED.get(os.path.abspath(cfg))
    return cfg if isinstance(cfg, Connected) else None


def connected_whole(
    cfg: Any, content: dict[Any, Any], problems: list[Problem], is_checked: Callable[[Any], bool]
) -> Connected:
    """Return the configuration that a trainer is to train, connected once.

    Args:
        cfg: What the trainer was given: a path or a mapping.
        content: What was read from it, with overrides.
        problems: Where problems of the task's values go.
        is_checked: Tells of a key at top level whether the names below it are checked later.
    """
    if (earlier := already_connected(cfg)) is not None:
        return earlier if earlier.of_task else Connected(content, earlier.views)
    text = text_in(cfg) if isinstance(cfg, (str, Path)) else None
    return connected_with_task(content, problems, text=text, is_checked=is_checked)


def text_in(path: str | Path) -> str | None:
    """Return the text of a file that is YAML, as it was written; None if it is not all that the configuration says."""
    path = Path(path)
    if path.suffix.lower() not in (".yaml", ".yml") or not path.is_file():
        return None
    text = path.read_text(encoding="utf-8-sig")
    return None if BASE in text and BASE in files.parse_yaml(text, str(path), is_ours) else text


def connected_with_task(
    content: dict[Any, Any],
    problems: list[Problem],
    *,
    text: str | None = None,
    keys: Collection[str] | None = None,
    is_checked: Callable[[Any], bool],
) -> Connected:
    """Return the configuration that is to be trained: by hand the one that is given, under an agent the task's.

    Args:
        content: The configuration of this machine.
        problems: Where problems of the task's values go.
        text: The text that it was read from, if that is YAML.
        keys: The keys at top level that are connected; all by default.
        is_checked: Tells of a key at top level whether the names below it are checked later.
    """
    if not connects(content, offline=not under_agent()):
        return Connected(content, None)
    own = {key: value for key, value in content.items() if keys is None or key in keys}
    if keys is not None:
        text = None
    if not under_agent():
        return Connected(content, views_of(Masks(own).tree(own), text))
    sent = fail_on_all_ranks(lambda: recorded_in(task_of_agent()) if is_main_process() else None)
    recorded = Recorded(*broadcast_object(tuple(sent) if sent is not None else None))
    found: list[Problem] = []
    result, views = taken_from(recorded, own, found, text=text, keys=keys, is_checked=is_checked)
    problems += found
    if not found:
        fail_on_all_ranks(lambda: record_in(task_of_agent(), views) if is_main_process() else None)
        _tell(own, result)
    rest = {key: value for key, value in content.items() if key not in own}
    return Connected({**rest, **result}, views, of_task=True)


def connects(content: Mapping[Any, Any], *, offline: bool = False) -> bool:
    """Return whether a configuration is shown in the task that a run with it makes.

    Args:
        content: The configuration.
        offline: Whether a task in a folder, without a server, is one.
    """
    modes = {_mode(entry) for entry in _entries(content)} - {"disabled"}
    return bool(modes if offline else modes - {"offline"})


def views_of(hidden: Mapping[Any, Any], text: str | None, stale: Collection[str] = ()) -> Views:
    """Return what a task shows of a configuration whose secrets are masked."""
    shown_parameters = {name: as_text(value) for name, (_, value) in parameters_of(as_written(hidden)).items()}
    written = Masks(hidden).text(text_of(hidden, text))
    return Views(written, as_yaml(hidden), shown_parameters, sorted(stale))


def taken_from(
    recorded: Recorded,
    own: dict[Any, Any],
    problems: list[Problem],
    *,
    text: str | None = None,
    keys: Collection[str] | None = None,
    is_checked: Callable[[Any], bool],
) -> tuple[dict[Any, Any], Views]:
    """Return the configuration that a task asks for, and what the task is to show of it.

    Args:
        recorded: What the task has.
        own: The configuration of this machine, which has the secrets and the objects of the script.
        problems: Where problems go.
        text: The text of the file, for a task that has none.
        keys: The keys at top level that are asked for; the others stay in the task as they are.
        is_checked: Tells of a key at top level whether the names below it are checked later.
    """
    hidden = as_written(Masks(own).tree(own))
    base_of_task = _read(recorded.base, "ignite_hooks.base", problems) if recorded.base else None
    text_of_task = _read(recorded.text, "ignite_hooks", problems) if recorded.text else None
    base = hidden if base_of_task is None else base_of_task
    now = base if text_of_task is None else text_of_task
    others = {key: value for key, value in now.items() if keys is not None and key not in keys}
    base, now = ({key: value for key, value in tree.items() if key not in others} for tree in (base, now))
    asked = merged(base, now, recorded.parameters, problems, is_checked=is_checked)
    problems += foreign_imports(asked, hidden)
    stale = {*parameters_of(base), *parameters_of(now)} - parameters_of(asked).keys()
    views = views_of({**others, **asked}, recorded.text or text, stale)
    return restored(asked, own, os.environ, problems), views


def _read(text: str, name: str, problems: list[Problem]) -> dict[Any, Any] | None:
    try:
        value = read_text(text, f"the task's configuration {name!r}")
    except ConfigError as error:
        problems += error.problems
        return None
    if not isinstance(value, dict):
        problems.append(Problem(f"the task's configuration {name!r}", f"a mapping is needed, not {shown(value)}"))
        return None
    return value


def _entries(content: Mapping[Any, Any]) -> Iterator[Any]:
    for key in ("hooks", "custom_hooks", "writers", "default_hooks"):
        listed = content.get(key)
        yield from listed if isinstance(listed, list) else listed.values() if isinstance(listed, Mapping) else ()


def _mode(entry: Any) -> str:
    """Return the mode in which an entry records in a task that shows the configuration; disabled if it does not."""
    given = entry if isinstance(entry, Mapping) else {"type": entry}
    type_ = given.get("type")
    if not isinstance(type_, str) or type_ not in CONNECTING or given.get("connect", True) is not True:
        return "disabled"
    return str(given.get("mode", "auto"))


def _tell(own: Mapping[Any, Any], result: Mapping[Any, Any]) -> None:
    """Log what a task has changed."""
    if not is_main_process():
        return
    here, there = (parameters_of(as_written(Masks(tree).tree(dict(tree)))) for tree in (own, result))
    names = [name for name in {**here, **there} if _shown(here, name) != _shown(there, name)]
    told = [f"{name}: {_shown(here, name)} -> {_shown(there, name)}" for name in names[:MOST_TOLD]]
    more = [f"{len(names) - MOST_TOLD} more"] if len(names) > MOST_TOLD else []
    words = "; ".join([*told, *more]) or "they are those of the file"
    logging.getLogger(LOGGER_NAME).warning("values of the ClearML task: %s", words)


def _shown(values: Mapping[str, Any], name: str) -> str:
    return as_text(values[name].value) if name in values else "(not there)"
