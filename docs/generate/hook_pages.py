"""The page of each hook, from its class, its example and the run of that."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from docs.generate.example_runs import Shown, configuration
from docs.generate.scenes import scene_of
from docs.generate.tables import cell, outside, prose, settings_table
from ignite_hooks.config.describe import Description, Setting, describe
from ignite_hooks.hooks.base_hook import COMMON_SETTINGS
from ignite_hooks.plan.schedule import SCHEDULE_WORDS
from ignite_hooks.registry import HOOKS
from ignite_hooks.text import counted, duration
from ignite_hooks.text import number as in_digits

ROOT = Path(__file__).parents[2]
GROUPS = {"hooks": "Common", "trackers": "Trackers", "monitors": "Monitors", "training": "Training"}
"""The groups of hooks, by the folder of their modules."""
FAILURES = {"raise": "ends the run", "warn": "is logged, and the run goes on", "disable": "switches the hook off"}
MOST_LINES, MOST_FILES, MOST_NUMBERS = 24, 8, 12


def names() -> list[str]:
    """Return the names of our hooks, without other names of the same, the common ones first."""
    found = []
    for name in HOOKS:
        cls: Any = HOOKS.get(name)
        if describe(cls).name == name and cls.__module__.startswith("ignite_hooks."):
            found.append(name)
    return sorted(found, key=lambda name: (list(GROUPS).index(_folder(name)), name))


def groups() -> dict[str, list[str]]:
    """Return the names of hooks by their group."""
    found: dict[str, list[str]] = {title: [] for title in GROUPS.values()}
    for name in names():
        found[GROUPS[_folder(name)]].append(name)
    return found


def _folder(name: str) -> str:
    return str(HOOKS.get(name).__module__.split(".")[-2])


def index() -> str:
    """Return the list of all hooks, which ``docs/hooks.md`` holds: on a code host its links lead to their files."""
    parts = []
    for group, hooks in groups().items():
        parts += [f"## {group}", "", "| hook | what it does |", "|---|---|"]
        for name in hooks:
            module = HOOKS.get(name).__module__.replace(".", "/")
            parts.append(f"| [`{name}`](../{module}.py) | {cell(describe(HOOKS.get(name)).purpose)} |")
        parts.append("")
    return "\n".join(parts).rstrip() + "\n"


def page(name: str, shown: Shown | None, guides: Mapping[str, str]) -> str:
    """Return the page of a hook.

    Args:
        name: Its name.
        shown: What its example has shown; None if it cannot run here.
        guides: The titles of pages that speak of it, by their files.
    """
    cls: Any = HOOKS.get(name)
    known = describe(cls)
    parts = [f"# {name}", "", *prose(cls), "", "## Example", "", *_example(name), *_seen(name, shown)]
    parts += [*_when(cls, known, shown), *_settings(known), *_cost(shown), *_all_settings(name)]
    if guides:
        links = ", ".join(f"[{title}](../{path})" for path, title in guides.items())
        parts += ["## See also", "", links + ".", ""]
    return "\n".join(parts)


def _when(cls: Any, known: Description, shown: Shown | None) -> Iterator[str]:
    yield from ("## When it acts", "")
    rows = shown.plan if shown else ()
    if rows:
        yield "In the [example](#example), from the first to the last [point](../points.md) of a run:"
        yield from ("", "| point | priority | how often |", "|---|---|---|")
        yield from (f"| `{row['point']}` | {row['priority']} | {row['how often']} |" for row in rows)
    elif known.points:
        yield "At the [points](../points.md) " + ", ".join(f"`{point}`" for point in known.points) + "."
    else:
        yield "At the [points](../points.md) that its settings name."
    yield ""
    if cls.on_error in FAILURES:
        yield f"A failure of it {FAILURES[cls.on_error]}; `on_error` decides otherwise."
        yield ""
    facts = {"Reads": known.reads, "Writes": known.writes, "Saves": known.saves}
    yield from (f"- **{word}**: {outside(text)}" for word, text in facts.items() if text)
    yield ""


def _settings(known: Description) -> Iterator[str]:
    own = [setting for setting in known.settings if setting.name not in COMMON_SETTINGS or _says_more(setting)]
    yield from ("## Settings", "")
    yield from settings_table(own) if own else ["It has no settings of its own."]
    common = [setting.name for setting in (*known.settings, *known.common)]
    taken = [f"`{word}`" for word in ("name", "priority", "on_error") if word in common]
    schedule = [f"`{word}`" for word in SCHEDULE_WORDS if word in common and word not in {one.name for one in own}]
    yield ""
    yield f"As every hook it takes {', '.join(taken)}" + (
        f", and for how often it acts {', '.join(schedule)}." if "`every`" in schedule else "."
    )
    yield ""


def _says_more(setting: Setting) -> bool:
    """Return whether a common setting has a help of its own here."""
    return bool(setting.help) and setting.name not in ("name", "priority", "on_error")


def _example(name: str) -> Iterator[str]:
    given = ", ".join(f"{word}={word}" for word in scene_of(name).names)
    opened = "\n    " if given else ""
    more = f",\n    {given},\n" if given else ""
    yield from ("`example.yaml`:", "", "```yaml", configuration(name).rstrip(), "```", "")
    yield from ("```python", f'runner = attach_hooks({opened}trainer, "example.yaml"{more})', "```", "")


def _seen(name: str, shown: Shown | None) -> Iterator[str]:
    yield from ("## What it shows", "")
    if shown is None:
        yield "The example could not be run where this page was made: the package of its service is missing there."
        yield ""
        return
    if shown.printed:
        yield from ("A run of a small model with it prints:", "", *_block(shown.printed))
    else:
        yield "A run of a small model with it prints nothing of its own."
        yield ""
    for path in shown.pictures:
        yield from (f"![{Path(path).name} of the example]({picture_of(name, path)})", "")
    if shown.numbers:
        yield from ("The last values that it records:", "", "| name | value |", "|---|--:|")
        numbers = [*shown.numbers.items()][:MOST_NUMBERS]
        yield from (f"| `{key}` | {in_digits(value)} |" for key, value in numbers)
        yield ""
    for path, text in shown.texts.items():
        yield from (f"`{path}`:", "", *_block(text))
    if shown.files:
        files = [f"`{_without_times(path)}`" for path in shown.files]
        more = f" and {counted(len(files) - MOST_FILES, 'other')}" if len(files) > MOST_FILES else ""
        yield from (f"Files in the folder of the run: {', '.join(files[:MOST_FILES])}{more}.", "")


def _cost(shown: Shown | None) -> Iterator[str]:
    yield from ("## Cost", "")
    if shown is None:
        yield from ("[What hooks cost](../costs.md) says how it is measured.", "")
        return
    if shown.calls > 1:
        yield f"The example has called it {shown.calls} times: the middle call took {duration(shown.typical)}, and the"
        yield f"longest one {duration(shown.longest)}, including what it imports and prepares."
    elif shown.calls:
        yield f"The example has called it once, for {duration(shown.longest)}."
    else:
        yield "In the example, which is one process, it was never called."
    yield "[What hooks cost](../costs.md) measures more; `print(runner.report())` says it of your run."
    yield ""


def _block(text: str) -> list[str]:
    lines = text.strip("\n").splitlines()
    cut = lines[:MOST_LINES] + (["..."] if len(lines) > MOST_LINES else [])
    return ["```text", *(line[:240] for line in cut), "```", ""]


def _without_times(path: str) -> str:
    """Return a path without what differs from run to run.

    Example:
        >>> _without_times("logs/20261120_111506.log")
        'logs/<time>.log'
    """
    return re.sub(r"\d{8}_\d{6}", "<time>", re.sub(r"(tfevents)\..*", r"\1.*", path))


def picture_of(name: str, path: str) -> str:
    """Return where the page of a hook has a picture of its example."""
    return f"pictures/{name}_{Path(path).stem}.png"


def _all_settings(name: str) -> Iterator[str]:
    """Yield the configuration with every setting that is worth a comment."""
    for path in sorted((ROOT / "configs").glob("**/*.yaml")):
        if path.stem.replace("_", "") == name.lower():
            text = re.sub(r"^# yaml-language-server:.*\n+", "", path.read_text(encoding="utf-8"))
            yield from ("## With all settings", "", f"`{path.relative_to(ROOT).as_posix()}`:", "")
            yield from ("```yaml", text.strip(), "```", "")
