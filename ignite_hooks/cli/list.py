"""The command ``list``: show every hook and writer, or the settings of one."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ignite_hooks.cli.text import inline_yaml, one_line_width, wrap_paragraph
from ignite_hooks.text import did_you_mean, shown

if TYPE_CHECKING:
    from ignite_hooks.config.describe import Description, Setting
    from ignite_hooks.registry import Registry


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    listed = commands.add_parser("list", help="list every hook and writer, or the settings of one")
    listed.add_argument("hook", metavar="HOOK", nargs="?", help="a hook or writer")
    listed.set_defaults(command=_list)


def _list(options: argparse.Namespace) -> int:
    from ignite_hooks.config.describe import describe
    from ignite_hooks.registry import HOOKS, WRITERS

    if options.hook is None:
        _print_purposes("hooks", HOOKS)
        print()
        _print_purposes("writers", WRITERS)
        print()
        _print_components()
        print("\nignite-hooks list NAME shows the settings of one.")
        return 0
    for registry in (HOOKS, WRITERS):
        if options.hook in registry:
            _print_one(options.hook, registry)
            return 0
    if (made := _component(options.hook)) is not None:
        known = describe(made)
        print(options.hook)
        if known.purpose:
            print(wrap_paragraph(known.purpose, "  "))
        print()
        _print_settings(known.settings, known.closed)
        return 0
    hint = did_you_mean(options.hook, [*HOOKS, *WRITERS, *_names_of_components()]) or ": ignite-hooks list shows all"
    print(f"no hook, writer or component is called {shown(options.hook)}{hint}", file=sys.stderr)
    return 2


def _components() -> dict[str, Registry]:
    """Return what the sections of a trainer may name, by what it is called in the list."""
    from ignite_hooks.trainer import registries

    return {
        "models": registries.MODELS,
        "data sets": registries.DATASETS,
        "optimizers": registries.OPTIMIZERS,
        "schedulers": registries.SCHEDULERS,
        "criteria": registries.CRITERIA,
        "metrics": registries.METRICS,
    }


def _sections() -> dict[str, Any]:
    from ignite_hooks.trainer.sections import Evaluation, Training

    return {"training": Training, "evaluation": Evaluation}


def _names_of_components() -> list[str]:
    return [*_sections(), *(name for registry in _components().values() for name in registry)]


def _component(name: str) -> Any:
    """Return what a section of a trainer names, or the section; it is read from its source, and torch is not loaded."""
    from ignite_hooks.config.outline import outline

    registry = next((registry for registry in _components().values() if name in registry), None)
    if registry is None:
        return _sections().get(name)
    where = registry.source_of(name)
    return registry.get(name) if where is None else outline(*where)


def _print_components() -> None:
    print("sections of a trainer")
    rows = {"training": "how the model is trained", "evaluation": "how it is evaluated"}
    rows |= {kind: ", ".join(registry) for kind, registry in _components().items()}
    for kind, names in rows.items():
        print(wrap_paragraph(f"{kind:<10}  {names}", "", 12, one_line_width()))


def _print_purposes(heading: str, registry: Registry) -> None:
    from ignite_hooks.config.describe import describe

    print(heading)
    wide = max(len(name) for name in registry)
    width = one_line_width()
    for name in registry:
        known = describe(registry.get(name))
        is_other_name = known.name != name and known.name in registry
        purpose = f"Another name of {known.name}." if is_other_name else known.purpose
        print(wrap_paragraph(f"{name:<{wide}}  {purpose}", "  ", wide + 2, width))


RESTATED = ("name", "priority", "on_error")
"""Settings of every hook that a hook may state itself, only to give them another default."""


def _print_one(name: str, registry: Registry) -> None:
    from ignite_hooks.config.describe import describe
    from ignite_hooks.registry import HOOKS

    cls = registry.get(name)
    known = describe(cls)
    is_hook = registry is HOOKS
    print(name if known.name == name else f"{name}, another name of {known.name}")
    print(wrap_paragraph(known.purpose, "  ") + "\n")
    _print_settings([s for s in known.settings if not (is_hook and s.name in RESTATED)], known.closed)
    facts: list[tuple[str, str]] = []
    if is_hook:
        words = [*(word for word in RESTATED if _has(known, word)), *(setting.name for setting in known.common)]
        facts += [("common", ", ".join(sorted(words, key=lambda word: (*RESTATED, *words).index(word))))]
        facts += [("priority", _priority(cls)), ("on error", str(getattr(cls, "on_error", "raise")))]
    facts += [("reads", known.reads), ("writes", known.writes), ("saves", known.saves)]
    for word, text in facts:
        if text:
            print(wrap_paragraph(f"{word:<8}  {text}", "", 10))
    for i, line in enumerate(_points(cls, known)):
        print(f"{'' if i else 'points':<8}  {line}")
    print(("\n" if is_hook else "") + f"example\n{textwrap.indent(_example(name, known, is_hook), '  ')}")


def _has(known: Description, name: str) -> bool:
    return any(setting.name == name for setting in known.settings)


def _print_settings(settings: Sequence[Setting], closed: bool) -> None:
    if not settings:
        print("no settings of its own\n" if closed else "settings of any name\n")
        return

    from ignite_hooks.config.describe import type_in_words

    rows = [(s.name, "(needed)" if s.required else inline_yaml(s.default), s) for s in settings]
    first = max(len("setting"), *(len(name) for name, _, _ in rows))
    second = min(24, max(len("default"), *(len(default) for _, default, _ in rows)))
    indent = first + second + 4
    print(f"{'setting':<{first}}  {'default':<{second}}  what it is")
    for name, default, setting in rows:
        left = f"{name:<{first}}  {default:<{second}}"
        if len(default) > second:
            print(left)
            left = ""
        print(wrap_paragraph(f"{left:<{indent - 2}}  {type_in_words(setting.annotation)}", "", indent))
        if setting.help:
            print(wrap_paragraph(setting.help.replace("``", ""), " " * indent))
    print()


def _priority(cls: Any) -> str:
    from ignite_hooks.plan.priority import Priority

    priority = getattr(cls, "priority", Priority.NORMAL)
    if isinstance(priority, Mapping):
        return ", ".join(f"{value} at {point}" for point, value in priority.items())
    value = Priority.value_of(priority)
    names = [name for name, number in Priority.__members__.items() if number == value]
    return f"{value} ({names[0]})" if names else str(value)


def _points(cls: Any, known: Description) -> Iterator[str]:
    """Yield the points a hook answers, with what is special about each."""
    from ignite_hooks.plan.methods import class_answers
    from ignite_hooks.plan.priority import hook_priority, priorities_at_points

    scheduled: dict[str, list[bool]] = {}
    orders: dict[str, int | None] = {}
    for method, at, order, by_interval in class_answers(cls) if isinstance(cls, type) else ():
        scheduled.setdefault(at.name, []).append(by_interval)
        if method == at.name:
            orders[method] = order
    wide = max((len(point) for point in known.points), default=0)
    for point in known.points:
        remarks = ["by its interval" if all(scheduled[point]) else "always, and by its interval"]
        remarks = remarks if any(scheduled[point]) else []
        order = orders.get(point)
        if order is not None or point in priorities_at_points(cls):
            remarks.append(f"priority {hook_priority(cls, point, order=order)}")
        yield f"{point:<{wide}}  {', '.join(remarks)}".rstrip()


def _example(name: str, known: Description, is_hook: bool) -> str:
    """Return a small entry of a configuration: required settings, and a few at their defaults."""
    from ignite_hooks.config.json_schema import NO_DATA, as_json_data

    entry: dict[str, Any] = {"type": name}
    entry |= {setting.name: _something(setting) for setting in known.settings if setting.required}
    defaults = {s.name: as_json_data(s.default) for s in known.settings if not s.required and s.name not in RESTATED}
    plain = {key: value for key, value in defaults.items() if value is not None and value is not NO_DATA}
    entry |= {key: value for key, value in plain.items() if value != [] and value != {}}
    entry = dict(list(entry.items())[:4])
    lines = [f"{key}: {inline_yaml(value)}" for key, value in entry.items()]
    return "\n".join(["hooks:" if is_hook else "writers:", f"  - {lines[0]}", *(f"    {line}" for line in lines[1:])])


def _something(setting: Setting) -> Any:
    """Return some value that fits a setting."""
    from ignite_hooks.config.validate import validate_value

    candidates: tuple[Any, ...] = (1, 0.5, f"my_{setting.name}", True, [], [f"my_{setting.name}"], {})
    return next((value for value in candidates if not validate_value(value, setting)), f"@my_{setting.name}")
