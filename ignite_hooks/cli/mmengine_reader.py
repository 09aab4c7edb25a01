"""Read an MMEngine configuration, with the files that it builds on, without running anything."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ignite_hooks.cli.mmengine_values import (
    DELETE,
    Budget,
    Section,
    Unread,
    changed_at,
    child_of,
    merged,
    substituted,
)
from ignite_hooks.config.tree import MAX_BYTES
from ignite_hooks.errors import ConfigError, Problem
from ignite_hooks.text import shortened

_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}
LARGEST = 10**12
HOOKS_KEYS = ("default_hooks", "custom_hooks")


class MMEngineReader:
    """Read literals, names, arithmetic, changes by methods or attributes, and base files; run nothing.

    What is imported is not looked for: only its name counts, where it is the type of a hook.

    Args:
        module: The parsed file.
        path: Where it is; base files are looked for from there, and not at all without it.
    """

    def __init__(self, module: ast.Module, path: Path | None = None) -> None:
        self._read(module, path, (), Budget())

    def _read(self, module: ast.Module, path: Path | None, above: tuple[Path, ...], budget: Budget) -> None:
        self.path = path
        self.imported: dict[str, str] = {}
        self.not_followed: list[str] = []
        """Changes of hooks that were not understood."""
        self.not_read: list[str] = []
        """Base files that are not there, or cannot be read."""
        self._above = (*above, path.resolve()) if path is not None else above
        self._budget = budget
        self._base = Section()
        self._own = Section()
        for statement in module.body:
            self._follow(statement)
        self.values: dict[str, Any] = merged(self._own, self._base)

    # -- statements -------------------------------------------------------------------------------------------

    def _follow(self, statement: ast.stmt) -> None:
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=node)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as node)
            ):
                self._own[name] = self.value(node)
                if name == "_base_":
                    self._follow_bases(self._own[name])
            case ast.ImportFrom(names=names):
                self.imported.update({each.asname or each.name: each.name for each in names})
            case ast.With(body=body):
                for each in body:
                    if isinstance(each, ast.ImportFrom):
                        self._import_base(each)
            case ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=node) if isinstance(
                self._own.get(name), list
            ):
                self._own[name] = _joined(self._own[name], self.value(node))
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript() as target], value=node):
                self._change(statement, target, "=", [self.value(node)], {})
            case ast.Delete(targets=[ast.Attribute() | ast.Subscript() | ast.Name() as target]):
                self._change(statement, target, "del", [], {})
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=target, attr=method), args=args, keywords=named)):
                given = {each.arg: self.value(each.value) for each in named if each.arg is not None}
                self._change(statement, target, method, [self.value(each) for each in args], given)
            case _:
                self._note(statement)

    def _change(
        self, statement: ast.stmt, target: ast.expr, method: str, args: list[Any], named: dict[str, Any]
    ) -> None:
        """Change what a path such as ``default_hooks.checkpoint`` names."""
        path = self._path(target)
        root: Any = self._own
        if path and path[0] == "_base_":
            root, path = self._base, path[1:]
        if path is None or not changed_at(root, path, method, args, named):
            self._note(statement)

    def _note(self, statement: ast.stmt) -> None:
        """Remember a statement that says something about hooks and was not followed."""
        for node in ast.walk(statement):
            name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
            if name in HOOKS_KEYS:
                self.not_followed.append(f"{self._place(statement.lineno)} changes {name} once more")
                return

    def _path(self, node: ast.expr) -> list[Any] | None:
        """Return the steps of ``a.b['c'][0]``, or None for any other expression."""
        match node:
            case ast.Name(id=name):
                return [name]
            case ast.Attribute(value=inner, attr=step):
                before = self._path(inner)
                return None if before is None else [*before, step]
            case ast.Subscript(value=inner, slice=index):
                before, where = self._path(inner), self.value(index)
                return None if before is None or not isinstance(where, (str, int)) else [*before, where]
        return None

    # -- base files -------------------------------------------------------------------------------------------

    def _follow_bases(self, given: Any) -> None:
        for name in given if isinstance(given, list) else [given]:
            found = self._base_file(name) if isinstance(name, str) else None
            if inner := self._reader_of(found, plainly(name), "_base_"):
                self._base = merged(inner.values, self._base)

    def _import_base(self, statement: ast.ImportFrom) -> None:
        name = "." * statement.level + (statement.module or "")
        if inner := self._reader_of(self._module_file(statement), name, "read_base"):
            for each in statement.names:
                if each.name == "*":
                    self._own.update(inner.values)
                elif each.name in inner.values:
                    self._own[each.asname or each.name] = inner.values[each.name]

    def _reader_of(self, file: Path | None, name: str, how: str) -> MMEngineReader | None:
        """Return the reader of a base file; note why there is none."""
        why = ""
        if file is None or self.path is None or not file.is_file():
            why = "it is not there: convert it too and join the results"
        elif file.resolve() in self._above:
            why = "it builds on itself"
        else:
            try:
                inner = MMEngineReader.__new__(MMEngineReader)
                inner._read(parse_module(str(file)), file, self._above, self._budget)
            except ConfigError as error:
                why = error.problems[0].message
            else:
                self.not_read += inner.not_read
                self.not_followed += inner.not_followed
                return inner
        self.not_read.append(f"{name} ({how}): {why}")
        return None

    def _base_file(self, name: str) -> Path | None:
        """Find ``'../base.py'`` or ``'mmdet::_base_/base.py'``; never what is no Python file, or an absolute path."""
        if self.path is None or Path(name).is_absolute() or not name.endswith(".py"):
            return None
        _, scoped, inner = name.partition("::")
        if scoped:
            return self._in_parents("configs", inner)
        return self.path.parent / name

    def _module_file(self, statement: ast.ImportFrom) -> Path | None:
        steps = (statement.module or "").split(".")
        if self.path is None or not all(step.isidentifier() for step in steps):
            return None
        if statement.level:
            folder = self.path.absolute().parents[statement.level - 1 : statement.level]
            return folder[0].joinpath(*steps).with_suffix(".py") if folder else None
        return self._in_parents(*steps[:-1], f"{steps[-1]}.py")

    def _in_parents(self, *steps: str) -> Path | None:
        assert self.path is not None
        found = (folder.joinpath(*steps) for folder in self.path.absolute().parents)
        return next((file for file in found if file.is_file()), None)

    # -- expressions ------------------------------------------------------------------------------------------

    def value(self, node: ast.expr) -> Any:
        """Return the value of an expression, or an ``Unread``."""
        match node:
            case ast.Constant(value=str(text)):
                return substituted(text, self._base)
            case ast.Constant(value=value) if value is None or isinstance(value, (bool, int, float)):
                return value
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return self._items(items)
            case ast.Dict() | ast.Call(func=ast.Name(id="dict")):
                return self._section(node)
            case ast.Set(elts=[ast.Set(elts=[inner])]):  # {{_base_.name}} without quotes
                return self.value(inner)
            case (
                ast.Call(func=ast.Attribute(attr="deepcopy" | "copy"), args=[inner])
                | ast.Call(func=ast.Attribute(value=inner, attr="copy"), args=[])
            ):
                return self.value(inner)
            case ast.Name(id=name) if name in self._own:
                return self._budget.copied(self._own[name])
            case ast.Name(id=name):
                return self._unread(node, self.imported.get(name, name))
            case ast.Attribute(value=ast.Name(id="_base_"), attr=step) if step in self._base:
                return self._budget.copied(self._base[step])
            case ast.Attribute(value=inner, attr=step):
                found = child_of(self.value(inner), step)
                return self._unread(node) if found is None else found[0]
            case ast.Subscript(value=inner, slice=index):
                found = child_of(self.value(inner), self._index(index))
                return self._unread(node) if found is None else found[0]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                number = self.value(operand)
                return -number if type(number) in (int, float) else self._unread(node)
            case ast.BinOp(left=left, op=symbol, right=right) if type(symbol) in _OPERATORS:
                return self._calculated(node, self.value(left), symbol, self.value(right))
        return self._unread(node)

    def _calculated(self, node: ast.expr, one: Any, symbol: ast.operator, other: Any) -> Any:
        if isinstance(symbol, ast.Add) and (isinstance(one, list) or isinstance(other, list)):
            return _joined(one if isinstance(one, list) else [one], other)
        numbers = {type(one), type(other)} <= {int, float} and max(abs(one), abs(other)) < LARGEST
        divides = isinstance(symbol, (ast.Div, ast.FloorDiv))
        if numbers and not (divides and other == 0):
            return _OPERATORS[type(symbol)](one, other)
        return self._unread(node)

    def _items(self, items: list[ast.expr]) -> list[Any]:
        found: list[Any] = []
        for item in items:
            inner = self.value(item.value if isinstance(item, ast.Starred) else item)
            if isinstance(item, ast.Starred) and isinstance(inner, list):
                found += inner
            else:
                found.append(inner)
        return found

    def _section(self, node: ast.Dict | ast.Call) -> Any:
        found = Section(place=self._place(node.lineno))
        for key, value in self._pairs(node):
            inner = self.value(value)
            if key is not None:
                found[key] = inner
            elif isinstance(inner, dict):
                found.update(inner)
            else:
                return self._unread(node)
        return found

    def _pairs(self, node: ast.Dict | ast.Call) -> Iterator[tuple[Any, ast.expr]]:
        """Yield keys and expressions; the key of what is unpacked is None."""
        if isinstance(node, ast.Call):
            yield from ((None, each) for each in node.args)
            yield from ((each.arg, each.value) for each in node.keywords)
            return
        for key, value in zip(node.keys, node.values, strict=True):
            name = None if key is None else self.value(key)
            yield (name if key is None or isinstance(name, (str, int, float)) else ast.unparse(key)), value

    def _index(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Slice):
            ends = [None if each is None else self.value(each) for each in (node.lower, node.upper, node.step)]
            return slice(*ends) if all(each is None or type(each) is int for each in ends) else None
        return self.value(node)

    def _unread(self, node: ast.expr, text: str = "") -> Unread:
        return Unread(text or ast.unparse(node), self._place(node.lineno))

    def _place(self, line: int) -> str:
        """Return the line, with the file where it is a base file."""
        return f"line {line} of {self.path.name}" if self.path is not None and len(self._above) > 1 else f"line {line}"


def _joined(one: list[Any], other: Any) -> list[Any]:
    return [*one, *other] if isinstance(other, list) else [*one, other]


def plainly(value: Any) -> str:
    """Write a value as the file has it, up to a length that a remark can have."""
    return shortened(_written(value), 100)


def _written(value: Any) -> str:
    if isinstance(value, Unread):
        return value.text
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {_written(inner)}" for key, inner in value.items() if key != DELETE) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_written, value)) + "]"
    return repr(value)


def parse_module(path: str) -> ast.Module:
    """Parse a file; a problem has its name and its line."""
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
