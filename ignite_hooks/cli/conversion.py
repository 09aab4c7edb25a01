"""Convert the hooks of an MMEngine configuration, with what changed beside every line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ignite_hooks.cli.mmengine_reader import MMEngineReader, parse_module, plainly
from ignite_hooks.cli.mmengine_rules import (
    MMENGINE_DEFAULTS,
    NO_COUNTERPART,
    OF_ITSELF,
    ORDER,
    Drop,
    HookConversion,
    rule_of,
)
from ignite_hooks.cli.mmengine_values import Section, Unread
from ignite_hooks.config.describe import describe
from ignite_hooks.config.read import default_set
from ignite_hooks.config.validate import validate_value
from ignite_hooks.errors import ConfigError, Problem
from ignite_hooks.registry import HOOKS


@dataclass
class Line:
    """A line of the result with its remark; without text the remark stands on a separate line."""

    indent: int
    text: str
    remark: str = ""


def converted(path: str) -> str:
    """Convert the hooks of an MMEngine configuration and its base files to YAML of ours; the files are read, not run.

    What cannot be converted is left out in a line that says why.

    Raises:
        ConfigError: Where the file cannot be read.
    """
    module = parse_module(path)
    try:
        reader = MMEngineReader(module, Path(path))
        lines = [*_defaults(reader), *_customs(reader)]
    except RecursionError:
        raise ConfigError([Problem(path, "nested too deeply")]) from None
    except ConfigError as error:
        raise ConfigError([Problem(each.place or path, each.message) for each in error.problems]) from None
    if not any(line.text for line in lines):
        lines = [*_nothing_left(lines), *lines]
    return _set([*_head(path, reader), *lines])


def _nothing_left(lines: list[Line]) -> Iterator[Line]:
    said = "nothing is left of its hooks" if lines else "it says nothing about hooks"
    yield Line(0, "default_hooks: {}", f"{said}: the default set acts")


def _head(path: str, reader: MMEngineReader) -> Iterator[Line]:
    yield Line(0, "", f"From {Path(path).name}. Have a look: ignite-hooks validate FILE, ignite-hooks explain FILE")
    for what in reader.not_read:
        yield Line(0, "", f"Not read: {what}")
    for what in reader.not_followed:
        yield Line(0, "", f"Not followed: {what}")


def _defaults(reader: MMEngineReader) -> Iterator[Line]:
    given = reader.values.get("default_hooks", {})
    lines = list(_default_entries(given)) + list(_evaluation(reader.values.get("train_cfg")))
    if any(line.text for line in lines):
        yield Line(0, "default_hooks:")
    yield from lines


def _default_entries(given: Any) -> Iterator[Line]:
    known = default_set(evaluates=True, distributed=True)
    if not isinstance(given, dict):
        if given is not None:
            yield Line(1, "", f"left out: default_hooks = {plainly(given)}: it cannot be read")
        return
    for name, value in given.items():
        type_ = _type_of(value)
        usual = known[name]["type"] if name in known else None
        if value is None:
            text = f"{name}: null" if name in known else ""
            yield Line(1, text, "" if text else f"left out: {name}: it is not in our default set anyway")
        elif type_ in OF_ITSELF:
            yield Line(1, "", f"left out: {name}: {plainly(value)}: {OF_ITSELF[type_]}")
        elif not isinstance(value, dict):
            yield Line(1, "", f"left out: {name}: {plainly(value)}: it cannot be read")
        else:
            lines = list(_hook({"type": usual or MMENGINE_DEFAULTS.get(name), **value}, 2, usual))
            if lines[0].text == "{}":
                yield Line(1, f"{name}: {{}}", lines[0].remark)
                yield from lines[1:]
            elif lines[0].text:
                yield Line(1, f"{name}:")
                yield from lines
            else:
                yield from (Line(1, "", f"{name}: {line.remark}") for line in lines)


def _evaluation(loop: Any) -> Iterator[Line]:
    """Convert the evaluations of the training loop to a hook."""
    if not isinstance(loop, dict):
        return
    by_iteration = "Iter" in _type_of(loop) or loop.get("by_epoch") is False
    interval, begin = (_whole(loop.get(name, 1)) for name in ("val_interval", "val_begin"))
    if not isinstance(interval, int) and "val_interval" in loop:
        yield Line(1, "", f"left out: val_interval={plainly(interval)}: it cannot be read")
    if "val_interval" in loop or "val_begin" in loop or "dynamic_intervals" in loop:
        yield Line(1, "eval:", "the loop evaluates there (train_cfg), here it is a hook")
        if "val_interval" not in loop or not isinstance(interval, int) or interval < 1:
            interval = 1000 if by_iteration else 1
        yield Line(2, f"interval: {interval}", "" if "val_interval" in loop else "the default there")
        if by_iteration:
            yield Line(2, "by_epoch: false")
        if isinstance(begin, int) and begin > 1:
            first = -(-begin // interval) * interval
            why = "" if first == begin else f": the first multiple of {interval} from there on"
            yield Line(2, f"start: {first}", f"val_begin={begin} there{why}")
        elif "val_begin" in loop and begin != 1:
            yield Line(2, "", f"left out: val_begin={plainly(begin)}: it cannot be read")
    if loop.get("dynamic_intervals") is not None:
        what = plainly(loop["dynamic_intervals"])
        yield Line(1, "", f"left out: dynamic_intervals={what}: one interval holds for the whole run")


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _customs(reader: MMEngineReader) -> Iterator[Line]:
    given = reader.values.get("custom_hooks")
    found: list[Line] = []
    for entry in given if isinstance(given, list) else [] if given is None else [given]:
        if not isinstance(entry, dict):
            place = f"{entry.place}: " if isinstance(entry, Unread) else ""
            found.append(Line(1, "", f"left out: {place}{plainly(entry)}: it cannot be read"))
            continue
        lines = list(_hook(entry, 2, None))
        if lines[0].text:
            found.append(Line(1, f"- {lines[0].text}", lines[0].remark))
            found += lines[1:]
        else:
            place = f"{entry.place}: " if isinstance(entry, Section) and entry.place else ""
            found += [Line(1, "", f"{place}{line.remark}") for line in lines]
    if any(line.text for line in found):
        yield Line(0, "custom_hooks:")
    yield from found


def _hook(given: Mapping[str, Any], indent: int, usual: str | None) -> Iterator[Line]:
    """Yield the lines of one hook; the first has its type, or says why there is nothing else."""
    settings = {str(key): value for key, value in given.items()}
    type_ = _type_of(settings)
    settings.pop("type", None)
    short = type_.rpartition(".")[2]
    if not short.isidentifier():
        yield Line(indent, "", f"left out: {plainly(given)}: it has no type that can be read")
        return
    rule = rule_of(short, settings)
    name = rule.type or short
    if short in NO_COUNTERPART:
        yield Line(indent, "", f"{_left_out(short, settings)}: {NO_COUNTERPART[short]}")
        return
    if rule.switch and settings.get(rule.switch, False) is False:
        yield Line(indent, "", f"{_left_out(short, settings)}: it draws nothing there, as {rule.switch} is not true")
        return
    switched = {key: settings.pop(key) for key in (rule.switch,) if key in settings}
    if name not in HOOKS:
        why = "not one of ours: register your class with @HOOKS.register_module() and add it"
        yield Line(indent, "", f"{_left_out(short, settings)}: {why}")
        return
    lines = list(_settings_of_ours(name, rule, settings, indent))
    lines += [Line(indent, "", f"left out: {key}={plainly(on)}: a hook acts here") for key, on in switched.items()]
    written = {line.text.partition(":")[0] for line in lines}
    if lost := [each.name for each in describe(HOOKS.get(name)).settings if each.required and each.name not in written]:
        whys = [line for line in lines if not line.text]
        rest = {key: value for key, value in settings.items() if not any(f"{key}=" in each.remark for each in whys)}
        yield Line(indent, "", f"{_left_out(short, rest)}: it needs {', '.join(lost)}")
        yield from whys
        return
    is_usual = name == usual
    head = "{}" if is_usual and not any(line.text for line in lines) else f"type: {name}"
    remark = f"{short} there" if name != short else ""
    # A default hook needs no type beside its name; a blank takes the place of the first line.
    yield Line(indent, " " if is_usual and head != "{}" else head, remark)
    yield from lines


def _type_of(settings: Any) -> str:
    type_ = settings.get("type") if isinstance(settings, dict) else None
    return type_ if isinstance(type_, str) else type_.text if isinstance(type_, Unread) else ""


def _left_out(name: str, settings: Mapping[str, Any]) -> str:
    inner = ", ".join(f"{key}={plainly(value)}" for key, value in settings.items())
    return f"left out: {name}({inner})" if inner else f"left out: {name}"


def _settings_of_ours(name: str, rule: HookConversion, given: Mapping[str, Any], indent: int) -> Iterator[Line]:
    known = describe(HOOKS.get(name))
    ours = {setting.name: setting for setting in (*known.common, *known.settings)}
    for key, (value, why) in rule.added.items():
        if key not in given:
            yield _setting(indent, key, value, why)
    for key, default in rule.defaults.items():
        if key not in given:
            value, why = rule.values[key](default) if key in rule.values else (default, "")
            yield _setting(
                indent, rule.renamed.get(key, key), value, "; ".join(w for w in ("the default there", why) if w)
            )
    for key, value in given.items():
        if key == "priority":
            yield Line(indent, "", f"left out: priority={plainly(value)}: {ORDER}")
            continue
        if key in rule.gone:
            why = f" ({rule.gone[key]})" if rule.gone[key] else ""
            yield Line(indent, "", f"left out: {key}={plainly(value)}: it has no counterpart{why}")
            continue
        new, why = rule.values[key](value) if key in rule.values else (value, "")
        word = rule.renamed.get(key, key)
        if new is Drop:
            yield Line(indent, "", f"left out: {key}={plainly(value)}: {why}")
            continue
        if word != key and not why:
            why = f"{key} there"
        if word not in ours and (known.closed or known.style == "settings"):
            yield Line(indent, "", f"left out: {key}={plainly(value)}: it has no counterpart")
        elif _has_unread(new):
            yield Line(indent, "", f"left out: {key}={plainly(value)}: it cannot be read")
        elif word in ours and (problem := validate_value(new, ours[word])):
            yield Line(indent, "", f"left out: {key}={plainly(value)}: it does not fit here: {problem}")
        else:
            yield _setting(indent, word, new, why)


def _setting(indent: int, name: str, value: Any, remark: str = "") -> Line:
    if _has_unread(value):
        return Line(indent, "", f"left out: {name}={plainly(value)}: it cannot be read")
    text = yaml.safe_dump(_plain(value), default_flow_style=True, width=10_000, allow_unicode=True)
    return Line(indent, f"{name}: {text.removesuffix(chr(10)).removesuffix(chr(10) + '...')}", remark)


def _plain(value: Any) -> Any:
    """Return plain lists and mappings, which YAML writes without anchors."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


def _has_unread(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_unread, value.values()))
    return any(map(_has_unread, value)) if isinstance(value, list) else isinstance(value, Unread)


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
