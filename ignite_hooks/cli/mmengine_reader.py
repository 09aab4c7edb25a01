"""Read the hooks of an MMEngine configuration without running it."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ignite_hooks.config.tree import MAX_BYTES
from ignite_hooks.errors import ConfigError, Problem


@dataclass(frozen=True)
class Unread:
    """An expression that is not a literal: its text."""

    text: str


@dataclass(frozen=True)
class ParsedHook:
    """One hook as it is written in an MMEngine configuration."""

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


class MMEngineReader:
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

    def entry(self, node: ast.expr) -> ParsedHook | None:
        """Read a hook; return None if the expression is no dictionary."""
        value = self.value(node)
        if not isinstance(value, dict):
            return None
        type_ = value.get("type")
        if isinstance(type_, Unread) and all(part.isidentifier() for part in type_.text.split(".")):
            value = {**value, "type": self.imported.get(type_.text, type_.text)}
        return ParsedHook(node.lineno, value)

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


def parse_module(path: str) -> ast.Module:
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
