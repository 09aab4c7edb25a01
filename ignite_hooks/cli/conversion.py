"""Convert the hooks of an MMEngine configuration, with what changed beside every line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ignite_hooks.cli.mmengine_reader import MMEngineReader, Unread, parse_module
from ignite_hooks.config.describe import describe
from ignite_hooks.config.mmengine import NO_COUNTERPART, OF_ITSELF, ORDER, RULES, Drop, HookConversion
from ignite_hooks.config.read import default_set
from ignite_hooks.config.validate import validate_value
from ignite_hooks.errors import ConfigError, Problem
from ignite_hooks.registry import HOOKS
from ignite_hooks.text import shown


@dataclass
class Line:
    """A line of the result with its remark; without text the remark stands on a separate line."""

    indent: int
    text: str
    remark: str = ""


def converted(path: str) -> str:
    """Convert the hooks of an MMEngine configuration to YAML of ours; the file is read, not run.

    Raises:
        ConfigError: Where the file cannot be read, or says nothing about hooks.
    """
    module = parse_module(path)
    try:
        reader = MMEngineReader(module)
        lines = [*_head(path, reader), *_defaults(reader), *_customs(reader)]
    except RecursionError:
        raise ConfigError([Problem(path, "nested too deeply")]) from None
    if any(line.text for line in lines):
        return _set(lines)
    if why := "; ".join(line.remark for line in lines if line.indent):
        raise ConfigError([Problem(path, f"none of its hooks can be converted: {why}")])
    inherits = "_base_" in reader.nodes or reader.bases
    hint = ": convert the files that _base_ names" if inherits else ": default_hooks or custom_hooks are needed"
    raise ConfigError([Problem(path, f"it says nothing about hooks{hint}")])


def _head(path: str, reader: MMEngineReader) -> Iterator[Line]:
    yield Line(0, "", f"From {Path(path).name}. Have a look: ignite-hooks validate FILE, ignite-hooks explain FILE")
    if "_base_" in reader.values:
        base = reader.values["_base_"]
        names = base if isinstance(base, list) else [base]
        yield Line(
            0, "", f"Not read: {', '.join(map(_plainly, names))} (_base_): convert these too and join the results"
        )
    if reader.bases:
        yield Line(0, "", f"Not read: {', '.join(reader.bases)} (read_base): convert these too and join the results")
    for line, name in reader.changed:
        if name in ("default_hooks", "custom_hooks"):
            yield Line(0, "", f"Not followed: line {line} changes {name} once more")


def _defaults(reader: MMEngineReader) -> Iterator[Line]:
    lines = list(_default_entries(reader)) if "default_hooks" in reader.nodes else []
    lines += _evaluation(reader)
    if any(line.text for line in lines):
        yield Line(0, "default_hooks:")
    yield from lines


def _default_entries(reader: MMEngineReader) -> Iterator[Line]:
    known = default_set(evaluates=True, distributed=True)
    node = reader.nodes["default_hooks"]
    if not isinstance(reader.value(node), dict):
        yield Line(1, "", f"not read: default_hooks = {_plainly(reader.value(node))}")
        return
    for name, value in reader.pairs(node):
        entry, given = reader.entry(value), reader.value(value)
        type_ = entry.settings.get("type") if entry is not None else None
        if given is None:
            text = f"{name}: null" if name in known else ""
            yield Line(1, text, "" if text else f"{name}: it is not in our default set anyway")
        elif type_ in OF_ITSELF:
            yield Line(1, "", f"{name}: {OF_ITSELF[type_]}")
        elif entry is None:
            yield Line(1, "", f"{name}: not read: {_plainly(given)}")
        else:
            usual = known[name]["type"] if name in known else None
            lines = list(_hook({"type": usual, **entry.settings}, 2, usual))
            if lines and lines[0].text == "{}":
                yield Line(1, f"{name}: {{}}", lines[0].remark)
                yield from lines[1:]
            elif lines and lines[0].text:
                yield Line(1, f"{name}:")
                yield from lines
            else:
                yield from (Line(1, "", f"{name}: {line.remark}") for line in lines)


def _evaluation(reader: MMEngineReader) -> Iterator[Line]:
    """Convert the evaluations of the training loop to a hook."""
    loop = reader.values.get("train_cfg")
    if isinstance(loop, dict) and isinstance(loop.get("val_interval"), int):
        by_iteration = "Iter" in str(loop.get("type")) or loop.get("by_epoch") is False
        yield Line(1, "eval:", "the loop evaluates there (train_cfg), here it is a hook")
        yield Line(2, f"interval: {loop['val_interval']}")
        if by_iteration:
            yield Line(2, "by_epoch: false")


def _customs(reader: MMEngineReader) -> Iterator[Line]:
    node = reader.nodes.get("custom_hooks")
    if node is None:
        return
    found: list[Line] = []
    for item in reader.items(node):
        entry = reader.entry(item)
        if entry is None:
            found.append(Line(1, "", f"line {item.lineno}: not read: {_plainly(reader.value(item))}"))
            continue
        lines = list(_hook(entry.settings, 2, None))
        if lines and lines[0].text:
            found.append(Line(1, f"- {lines[0].text}", lines[0].remark))
            found += lines[1:]
        else:
            found += [Line(1, "", f"line {entry.line}: {line.remark}") for line in lines]
    if any(line.text for line in found):
        yield Line(0, "custom_hooks:")
    yield from found


def _hook(given: Mapping[str, Any], indent: int, usual: str | None) -> Iterator[Line]:
    """Yield the lines of one hook; the first has its type, or says why there is nothing else."""
    settings = dict(given)
    type_ = settings.pop("type", None)
    if not isinstance(type_, str):
        yield Line(indent, "", f"no type that can be read: {_plainly(type_)}")
        return
    short = type_.rpartition(".")[2]
    rule = RULES.get(short, HookConversion())
    name = rule.type or short
    if rule.switch and settings.pop(rule.switch, False) is False:
        yield Line(indent, "", f"{short} draws nothing there, as {rule.switch} is not true: left out")
        return
    if short in NO_COUNTERPART:
        yield Line(indent, "", f"{short} is left out: {NO_COUNTERPART[short]}")
        return
    if name not in HOOKS:
        remark = "not one of ours: register your class with @HOOKS.register_module()"
        yield Line(indent, f"type: {name}", remark)
        yield from (_setting(indent, key, value) for key, value in settings.items())
        return
    lines = list(_settings_of_ours(name, rule, settings, indent))
    written = {line.text.partition(":")[0] for line in lines}
    if lost := [each.name for each in describe(HOOKS.get(name)).settings if each.required and each.name not in written]:
        yield Line(indent, "", f"{short} is left out: it needs {', '.join(lost)}")
        yield from (line for line in lines if not line.text)
        return
    is_usual = name == usual
    head = "{}" if is_usual and not any(line.text for line in lines) else f"type: {name}"
    remark = f"{short} there" if name != short else ""
    # A default hook needs no type beside its name; a blank takes the place of the first line.
    yield Line(indent, " " if is_usual and head != "{}" else head, remark)
    yield from lines


def _settings_of_ours(name: str, rule: HookConversion, given: Mapping[str, Any], indent: int) -> Iterator[Line]:
    known = describe(HOOKS.get(name))
    ours = {setting.name: setting for setting in (*known.common, *known.settings)}
    for key, default in rule.defaults.items():
        if key not in given:
            value, why = rule.values[key](default) if key in rule.values else (default, "")
            yield _setting(
                indent, rule.renamed.get(key, key), value, "; ".join(w for w in ("the default there", why) if w)
            )
    for key, value in given.items():
        if key == "priority":
            yield Line(indent, "", f"priority {_plainly(value)}: {ORDER}")
            continue
        if key in rule.gone:
            yield Line(
                indent,
                "",
                f"no counterpart: {key}={_plainly(value)}" + (f" ({rule.gone[key]})" if rule.gone[key] else ""),
            )
            continue
        new, why = rule.values[key](value) if key in rule.values else (value, "")
        word = rule.renamed.get(key, key)
        if new is Drop:
            if why:
                yield Line(indent, "", f"left out: {key}={_plainly(value)}: {why}")
            continue
        if word != key and not why:
            why = f"{key} there"
        if word not in ours and (known.closed or known.style == "settings"):
            yield Line(indent, "", f"no counterpart: {key}={_plainly(value)}")
        elif isinstance(new, Unread):
            yield Line(indent, "", f"not read: {word}: {new.text}")
        elif word in ours and (problem := validate_value(new, ours[word])):
            yield Line(indent, "", f"does not fit here: {word}={_plainly(new)}: {problem}")
        else:
            yield _setting(indent, word, new, why)


def _setting(indent: int, name: str, value: Any, remark: str = "") -> Line:
    if _has_unread(value):
        return Line(indent, "", f"not read: {name}: {_plainly(value)}")
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True)
    return Line(indent, f"{name}: {text.removesuffix(chr(10)).removesuffix(chr(10) + '...')}", remark)


def _has_unread(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_unread, value.values()))
    return any(map(_has_unread, value)) if isinstance(value, list) else isinstance(value, Unread)


def _plainly(value: Any) -> str:
    return value.text if isinstance(value, Unread) else shown(value)


def _set(lines: list[Line]) -> str:
    """Return the lines as text, with remarks aligned where there is room."""
    kept = [line for line in lines if line.text.strip() or line.remark]
    wide = max((2 * line.indent + len(line.text) for line in kept if line.remark and line.text), default=0)
    wide = min(wide, 46)
    result = []
    for line in kept:
        text = "  " * line.indent + line.text
        if not line.text.strip():
            result.append(f"{'  ' * line.indent}# {' '.join(line.remark.split())}")
        elif line.remark:
            result.append(f"{text:<{wide}}  # {' '.join(line.remark.split())}")
        else:
            result.append(text)
    return "\n".join(result) + "\n"
