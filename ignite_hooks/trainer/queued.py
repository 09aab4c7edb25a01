"""``ignite-hooks train FILE --queue NAME``: a task of ClearML that an agent begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ignite_hooks.config.connected.connect import CONNECTING, connected_with_task, text_in
from ignite_hooks.config.files import load_config
from ignite_hooks.config.overrides import with_overrides
from ignite_hooks.errors import ConfigError, Problem
from ignite_hooks.secrets import Masks
from ignite_hooks.trainer.base_trainer import problems_of_hooks
from ignite_hooks.trainer.sections import is_read, read_sections
from ignite_hooks.writers.trackers.clearml_script import queued_task


def enqueue(config: str, overrides: Sequence[str], queue: str) -> str:
    """Make a task of a configuration, and let an agent run it; return what to tell.

    Args:
        config: The file.
        overrides: Values that replace those of the file, in the task as well.
        queue: The name of the queue.

    Raises:
        ConfigError: With every problem that can be found without the data.
    """
    problems: list[Problem] = []
    content = with_overrides(load_config(config), overrides, problems)
    sections = read_sections(content, problems)
    problems += problems_of_hooks({**content, **sections.own_classes}, problems, alone=True)
    connected = connected_with_task(content, problems, text=text_in(config), is_checked=is_read)
    if connected.views is None:
        needed = "--queue needs a ClearMLHook that is connected: add {type: ClearMLHook, project: NAME}"
        problems.append(Problem("hooks", needed))
    if problems or connected.views is None:
        masks = Masks(content)
        raise ConfigError([Problem(problem.place, masks.text(problem.message)) for problem in problems], config)
    task, page = queued_task(connected.views, config, queue, **task_settings(content))
    return f"task {task} waits in the queue {queue}: {page}"


def task_settings(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the configuration says of the task."""
    for key in ("hooks", "custom_hooks", "writers", "default_hooks"):
        listed = content.get(key)
        for entry in listed.values() if isinstance(listed, Mapping) else listed or ():
            if isinstance(entry, Mapping) and entry.get("type") in CONNECTING:
                return {name: entry[name] for name in ("project", "task_name", "tags") if entry.get(name)}
    return {}
