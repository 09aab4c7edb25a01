"""The hooks of an MMEngine configuration as ours, with what changed beside every line."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ignite_hooks.config.describe import describe
from ignite_hooks.config.read import default_set
from ignite_hooks.config.tree import MAX_BYTES
from ignite_hooks.config.validate import validate_value
from ignite_hooks.errors import ConfigError, Problem
from ignite_hooks.registry import HOOKS
from ignite_hooks.text import shown

# -- what changes ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rule:
    """How the settings of one of MMEngine's hooks become those of ours.

    Args:
        type: What it is called here, if not the same.
        renamed: Settings that have another name here.
        values: Settings whose value changes: a function that returns the new value and why.
        gone: Settings without a counterpart, with what is to be known about it.
        defaults: What MMEngine takes where nothing is said and we would take something else.
        switch: The setting without which the hook does nothing there; here it is left out then.
    """

    type: str | None = None
    renamed: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Callable[[Any], tuple[Any, str]]] = field(default_factory=dict)
    gone: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    switch: str = ""


class Drop:
    """Stands for a value where the setting is to be left out."""


def _momentum(value: Any) -> tuple[Any, str]:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return value, "in MMEngine the share that is new, here the share that is kept: 1 minus it"
    return round(1 - value, 12), f"1 - {value}: there the share that is new, here the share that is kept"


def _best(value: Any) -> tuple[Any, str]:
    if value == "auto":
        return True, "'auto' is the first metric there, here that of best_metric"
    return value, ""


def _rules(value: Any) -> tuple[Any, str]:
    if isinstance(value, list) and value and all(each == value[0] for each in value):
        return value[0], "one rule for all metrics"
    return (Drop, "here the name of each metric decides") if isinstance(value, list) else (value, "")


def _periodic(value: Any) -> tuple[Any, str]:
    if isinstance(value, int) and value < 1:
        return Drop, f"{value} means no periodic checkpoints there: here say max_keep_ckpts: 1 and a large interval"
    return value, ""


def _mode(value: Any) -> tuple[Any, str]:
    return {"greater": "max", "less": "min"}.get(value, value), f"rule {value!r} there"


_STORAGE = "checkpoints and logs are written to the work directory"
_PICTURES = Rule(
    renamed={"test_out_dir": "out_dir"},
    switch="draw",
    gone={"wait_time": "no window waits here", "backend_args": "images are taken from the batch, not from files"},
    defaults={"interval": 50},
)

RULES: Mapping[str, Rule] = {
    "CheckpointHook": Rule(
        renamed={"save_begin": "start", "save_param_scheduler": "save_scheduler"},
        values={"save_best": _best, "rule": _rules, "interval": _periodic},
        gone={
            "file_client_args": _STORAGE,
            "backend_args": _STORAGE,
            "greater_keys": "say rule: greater",
            "less_keys": "say rule: less",
        },
        defaults={"max_keep_ckpts": -1},
    ),
    "LoggerHook": Rule(
        gone={
            "interval_exp_name": "the name of the run is that of its work directory",
            "out_dir": _STORAGE,
            "out_suffix": _STORAGE,
            "keep_local": _STORAGE,
            "file_client_args": _STORAGE,
            "backend_args": _STORAGE,
        },
        defaults={"interval": 10},
    ),
    "EMAHook": Rule(
        values={
            "momentum": _momentum,
            "ema_type": lambda value: (
                Drop,
                "" if value == "ExponentialMovingAverage" else "there is one kind of average here, with a warm_up",
            ),
        },
        gone={
            "strict_load": "names of checkpoints are always compared",
            "gamma": "warm_up lets the average begin with a smaller momentum",
        },
        defaults={"momentum": 0.0002},
    ),
    "EarlyStoppingHook": Rule(
        renamed={"rule": "mode"},
        values={"rule": _mode},
        gone={"strict": "a metric that does not exist is always an error"},
        defaults={"min_delta": 0.1, "patience": 5, "restore_best_weights": False},
    ),
    "ProfilerHook": Rule(
        renamed={"profile_times": "profile_iters"},
        gone={
            "activity_with_cpu": "always",
            "activity_with_cuda": "always, where there is a GPU",
            "on_trace_ready": "export_chrome_trace and export_tensorboard say where it goes",
            "json_trace_path": "export_chrome_trace writes profile/trace_1.json.gz",
        },
    ),
    "DetVisualizationHook": _PICTURES,
    "SegVisualizationHook": _PICTURES,
    "VisualizationHook": Rule(
        switch="enable",
        gone={"wait_time": "no window waits here", "rescale_factor": "", "resize": ""},
    ),
    "NaiveVisualizationHook": Rule(type="VisualizationHook"),
}

NO_COUNTERPART: Mapping[str, str] = {
    "ParamSchedulerHook": "BaseTrainer steps what training.scheduler names; where nobody does, add it",
    "NPUProfilerHook": "ProfilerHook knows CPUs and GPUs of NVIDIA",
    "TrackVisualizationHook": "DetVisualizationHook draws single images",
    "GroundingVisualizationHook": "DetVisualizationHook draws boxes",
}
"""What is done instead of some of MMEngine's own hooks."""

OF_ITSELF = {"DistSamplerSeedHook": "in the default set where the run is distributed"}
"""What need not be said here."""
ORDER = "there the smaller acts first everywhere, here after_* begin with the larger: left to the hook"


# -- reading -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Unread:
    """An expression that is not a literal: its text."""

    text: str


@dataclass(frozen=True)
class Entry:
    """One hook as it is written there."""

    line: int
    settings: dict[str, Any]


_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}
LARGEST = 10**12


class _Reader:
    """Read literals, lists, dictionaries, ``dict(...)``, arithmetic, and names that are set above; run nothing.

    What is imported is not looked for: only its name counts, where it is the type of a hook.
    """

    def __init__(self, module: ast.Module) -> None:
        self.nodes: dict[str, ast.expr] = {}
        self.values: dict[str, Any] = {}
        self.changed: list[tuple[int, str]] = []
        self.imported: dict[str, str] = {}
        self.bases: list[str] = []
        """The files whose names this one takes over, as in ``with read_base(): from .base import *``."""
        for statement in module.body:
            match statement:
                case (
                    ast.Assign(targets=[ast.Name(id=name)], value=value)
                    | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                ):
                    self.nodes[name] = value
                    self.values[name] = self.value(value)
                case ast.ImportFrom(names=names):
                    self.imported.update({each.asname or each.name: each.name for each in names})
                case ast.With(body=body):
                    inner = [each for each in body if isinstance(each, ast.ImportFrom)]
                    self.bases += ["." * each.level + (each.module or "") for each in inner]
                case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))):
                    self.changed.append((statement.lineno, name))
                case ast.AugAssign(target=ast.Name(id=name)):
                    self.changed.append((statement.lineno, name))
                case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=name))]):
                    self.changed.append((statement.lineno, name))

    def value(self, node: ast.expr) -> Any:
        """Return the value of an expression, or an ``Unread``."""
        match node:
            case ast.Constant(value=value) if value is None or isinstance(value, (bool, int, float, str)):
                return value
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return [self.value(item) for item in items]
            case ast.Dict() | ast.Call(func=ast.Name(id="dict"), args=[]):
                pairs = dict(self.pairs(node))
                return {key: self.value(item) for key, item in pairs.items()}
            case ast.Name(id=name) if name in self.values:
                return self.values[name]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inner = self.value(operand)
                return -inner if type(inner) in (int, float) else Unread(ast.unparse(node))
            case ast.BinOp(left=left, op=symbol, right=right) if type(symbol) in _OPERATORS:
                one, other = self.value(left), self.value(right)
                if isinstance(symbol, ast.Add) and isinstance(one, list) and isinstance(other, list):
                    return one + other
                numbers = {type(one), type(other)} <= {int, float} and max(abs(one), abs(other)) < LARGEST
                divides = isinstance(symbol, (ast.Div, ast.FloorDiv))
                if numbers and not (divides and other == 0):
                    return _OPERATORS[type(symbol)](one, other)
        return Unread(ast.unparse(node))

    def pairs(self, node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
        """Yield the keys of a dictionary with the expressions of their values; skip keys that are not text."""
        if isinstance(node, ast.Name) and node.id in self.nodes:
            node = self.nodes[node.id]
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield key.value, value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
            for keyword in node.keywords:
                if keyword.arg is not None:
                    yield keyword.arg, keyword.value

    def entry(self, node: ast.expr) -> Entry | None:
        """Read a hook; return None if the expression is no dictionary."""
        value = self.value(node)
        if not isinstance(value, dict):
            return None
        type_ = value.get("type")
        if isinstance(type_, Unread) and all(part.isidentifier() for part in type_.text.split(".")):
            value = {**value, "type": self.imported.get(type_.text, type_.text)}
        return Entry(node.lineno, value)

    def items(self, node: ast.expr) -> Iterator[ast.expr]:
        """Yield the expressions of a list, or of several joined by ``+``; anything else is yielded itself."""
        match node:
            case ast.Name(id=name) if name in self.nodes:
                yield from self.items(self.nodes[name])
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                yield from (*self.items(left), *self.items(right))
            case ast.List(elts=items) | ast.Tuple(elts=items):
                for item in items:
                    yield from self.items(item.value) if isinstance(item, ast.Starred) else [item]
            case _:
                yield node


def _module(path: str) -> ast.Module:
    file = Path(path)
    try:
        content = file.read_bytes()
        if len(content) > MAX_BYTES:
            raise ConfigError([Problem(path, f"larger than {MAX_BYTES:,} bytes: no configuration is as large as that")])
        return ast.parse(content, filename=path)
    except OSError as error:
        raise ConfigError([Problem(path, f"cannot be read: {error.strerror or error}")]) from None
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f":{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise ConfigError([Problem(f"{path}{line}", f"not valid Python: {error}")]) from None


# -- converting --------------------------------------------------------------------------------------------------


@dataclass
class Line:
    """A line of the result, with what is said beside it; without text the remark has a line of its own."""

    indent: int
    text: str
    remark: str = ""


def converted(path: str) -> str:
    """Convert the hooks of an MMEngine configuration to YAML of ours; the file is read, not run.

    Raises:
        ConfigError: Where the file cannot be read, or says nothing about hooks.
    """
    module = _module(path)
    try:
        reader = _Reader(module)
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


def _head(path: str, reader: _Reader) -> Iterator[Line]:
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


def _defaults(reader: _Reader) -> Iterator[Line]:
    lines = list(_default_entries(reader)) if "default_hooks" in reader.nodes else []
    lines += _evaluation(reader)
    if any(line.text for line in lines):
        yield Line(0, "default_hooks:")
    yield from lines


def _default_entries(reader: _Reader) -> Iterator[Line]:
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


def _evaluation(reader: _Reader) -> Iterator[Line]:
    """Convert the evaluations of the training loop to a hook."""
    loop = reader.values.get("train_cfg")
    if isinstance(loop, dict) and isinstance(loop.get("val_interval"), int):
        by_iteration = "Iter" in str(loop.get("type")) or loop.get("by_epoch") is False
        yield Line(1, "eval:", "the loop evaluates there (train_cfg), here it is a hook")
        yield Line(2, f"interval: {loop['val_interval']}")
        if by_iteration:
            yield Line(2, "by_epoch: false")


def _customs(reader: _Reader) -> Iterator[Line]:
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
    rule = RULES.get(short, Rule())
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
    # Beside the name of a default hook its type need not be said; a blank holds the place of the first line.
    yield Line(indent, " " if is_usual and head != "{}" else head, remark)
    yield from lines


def _settings_of_ours(name: str, rule: Rule, given: Mapping[str, Any], indent: int) -> Iterator[Line]:
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
