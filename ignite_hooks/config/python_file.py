"""Read ``.py`` configurations without running them."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from typing import Any

from ignite_hooks.config.tree import MAX_DIGITS, MAX_PROBLEMS, Foreign, Judges, line_of, objection_to
from ignite_hooks.errors import ConfigError, Problem
from ignite_hooks.text import did_you_mean

MAX_JOINED_TEXT = 1_000

_READ_ONLY = "a .py file is read, not run: write literals, lists, dict(a=1), arithmetic, names set above"


_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}


class PythonReader:
    """Collects the names that a module sets to literals, and what is wrong with its other statements.

    A value that cannot be read is left as a `Foreign`, with its source as the value for a script: it is a problem only
    where it, or what is made of it, is ours.

    Args:
        text: The source.
        source: The name of the file.
        judges: Which names are ours; all by default. The imports, functions and classes of a script do no harm.
    """

    def __init__(self, text: str, source: str, judges: Judges | None = None) -> None:
        self.judges = judges or (lambda _: True)
        self.tolerant = judges is not None
        self.lines, self.source = re.split(r"\r\n|\r|\n", text), source
        self.names: dict[str, Any] = {}
        self.first: dict[str, int] = {}
        self.problems: list[Problem] = []

    def read(self, module: ast.Module) -> dict[str, Any]:
        """Return the names of a module with their values; what is wrong with statements is in ``problems``."""
        for statement in module.body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)]) if name in self.first and self.judges(name):
                    self._refuse(statement, f"{name!r:.60} is set in line {self.first[name]} already: keep one")
                case (
                    ast.Assign(targets=[ast.Name(id=name)], value=value)
                    | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                ):
                    self.first[name] = statement.lineno
                    self.names[name] = self._value(value)
                case ast.Expr(value=ast.Constant(value=str())):
                    continue
                case _ if self.tolerant and self._is_harmless(statement):
                    continue
                case _:
                    self._refuse(statement, f"{self._written(statement)} is not supported, {_READ_ONLY}")
        return self.names

    def _is_harmless(self, statement: ast.stmt) -> bool:
        """Return whether a statement, which is not run, could only have set names that are the script's."""
        match statement:
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                return all(each.name != "*" and not self.judges(each.asname or each.name) for each in names)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                return not self.judges(name)
        return False

    def _value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=constant):
                return self._accepted(node, constant)
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return [self._value(item) for item in items]
            case ast.Dict(keys=keys, values=values):
                return self._dict([getattr(key, "value", None) for key in keys], values)
            case ast.Call(func=ast.Name(id="dict"), args=[], keywords=keywords):
                return self._dict([each.arg for each in keywords], [each.value for each in keywords])
            case ast.Name(id=name) if name in self.names:
                return self.names[name]
            case ast.Name(id=name):
                guess = did_you_mean(name, [*self.names, "True", "False", "None"]) or ": text goes in quotes"
                return self._foreign(node, f"{name!r:.60} is not set above{guess}")
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
                factor = -1 if isinstance(sign, ast.USub) else 1
                return self._arithmetic(node, ast.Mult, factor, self._value(operand))
            case ast.BinOp(left=left, op=symbol, right=right) if type(symbol) in _OPERATORS:
                return self._arithmetic(node, type(symbol), self._value(left), self._value(right))
        return self._foreign(node, f"{self._written(node)} is not supported, {_READ_ONLY}")

    def _dict(self, keys: list[Any], values: list[ast.expr]) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        for key, value in zip(keys, values, strict=True):
            found = self._value(value)
            if not isinstance(key, str):
                message = "its key must be text in quotes, or a keyword of dict(...); '**' is not supported"
                found = Foreign(self._problem(value, message), found)
            elif key in result:
                found = Foreign(self._problem(value, f"key {key!r:.60} is set twice: keep one of them"), found)
            result[key] = found
        return result

    def _arithmetic(self, node: ast.expr, symbol: type[ast.operator], left: Any, right: Any) -> Any:
        if isinstance(left, Foreign) or isinstance(right, Foreign):
            return left if isinstance(left, Foreign) else right
        texts = symbol is ast.Add and isinstance(left, str) and isinstance(right, str)
        if not texts and not {type(left), type(right)} <= {int, float}:
            return self._foreign(node, f"{self._written(node)}: arithmetic is for numbers, '+' also for text")
        if (texts and len(left + right) > MAX_JOINED_TEXT) or (symbol is ast.Pow and abs(right) > MAX_DIGITS):
            return self._foreign(node, f"{self._written(node)} is too large: write the value out")
        try:
            return self._accepted(node, _OPERATORS[symbol](left, right))
        except ArithmeticError as error:
            return self._foreign(node, f"{self._written(node)} has no value: {error}")

    def _accepted(self, node: ast.expr, value: Any) -> Any:
        problem = objection_to(value)
        return self._foreign(node, problem.message) if problem else value

    def _foreign(self, node: ast.expr, message: str) -> Foreign:
        lines = [line.encode() for line in self.lines[node.lineno - 1 : node.end_lineno]]
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = lines[0][node.col_offset :]
        return Foreign(self._problem(node, message), b"\n".join(lines).decode())

    def _problem(self, node: ast.stmt | ast.expr, message: str) -> Problem:
        before = self.lines[node.lineno - 1].encode()[: node.col_offset].decode()
        return Problem(line_of(self.source, node.lineno, len(before) + 1), message)

    def _refuse(self, node: ast.stmt, message: str) -> None:
        self.problems.append(self._problem(node, message))
        if len(self.problems) >= MAX_PROBLEMS:
            raise ConfigError(self.problems)

    def _written(self, node: ast.stmt | ast.expr) -> str:
        end = node.end_col_offset if node.end_lineno == node.lineno else None
        written = self.lines[node.lineno - 1].encode()[node.col_offset : end].decode()
        return f"`{written}`" if len(written) <= 40 else f"`{written[:37]}...`"
