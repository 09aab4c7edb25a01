"""Read the settings of a class or function from its source, without importing the package that it is in."""

from __future__ import annotations

import ast
import functools
import importlib.util
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union

import annotated_types

DEEPEST = 12
"""How many imports and parents are followed."""


class _Unread:
    """Stands for a default that only running the code could tell."""

    def __repr__(self) -> str:
        return "..."


UNREAD = _Unread()


@functools.cache
def outline(module: str, name: str) -> Callable[..., Any] | None:
    """Return a stand-in for a class or function, which `describe` reads like the real one; None if it cannot be made.

    Example:
        >>> from ignite_hooks.config.describe import describe
        >>> [setting.name for setting in describe(outline("torch.optim", "Adagrad")).settings][:3]
        ['params', 'lr', 'lr_decay']
        >>> outline("torch.optim", "AdamWW") is None
        True
    """
    found = _definition(module, name)
    if found is None:
        return None
    arguments = _method(found, "__init__", DEEPEST) if isinstance(found.node, ast.ClassDef) else found
    if arguments is None or not isinstance(arguments.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return None
    doc = ast.get_docstring(found.node) if isinstance(found.node, _NAMED) else None
    return _stand_in(module, name, doc, arguments, bound=isinstance(found.node, ast.ClassDef))


@functools.cache
def method_outline(module: str, name: str, method: str) -> Callable[..., Any] | None:
    """Return a stand-in for a method of a class; None where the class has none, or cannot be read."""
    found = _definition(module, name)
    arguments = None if found is None else _method(found, method, DEEPEST)
    return None if arguments is None else _stand_in(module, method, None, arguments, bound=True)


def class_module(module: str, name: str) -> str | None:
    """Return the module that defines a class which a package offers.

    Example:
        >>> class_module("ignite.handlers", "TimeLimit"), class_module("ignite.handlers", "Events")
        ('ignite.handlers.time_limit', 'ignite.engine.events')
    """
    found = _definition(module, name)
    return found.module if found is not None and isinstance(found.node, ast.ClassDef) else None


def _stand_in(module: str, name: str, doc: str | None, arguments: _Found, *, bound: bool) -> Callable[..., Any]:
    assert isinstance(arguments.node, (ast.FunctionDef, ast.AsyncFunctionDef))
    parameters = list(_parameters(arguments.node.args, arguments.module))[1 if bound else 0 :]

    def stand_in(*_: Any, **__: Any) -> Any:
        raise TypeError(f"{name} is only known from its source")

    stand_in.__name__ = stand_in.__qualname__ = name
    stand_in.__module__ = module
    stand_in.__doc__ = doc
    stand_in.__annotations__ = {p.name: p.annotation for p in parameters if p.annotation is not p.empty}
    stand_in.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return stand_in


def names_in(module: str) -> list[str]:
    """Return the public classes and functions that a package offers by name, without importing it.

    Example:
        >>> "EarlyStopping" in names_in("ignite.handlers"), names_in("no_such_package")
        (True, [])
    """
    tree = _tree(module)
    found = [] if tree is None else [*_offered(tree)]
    return sorted({name for name in found if not name.startswith("_")})


def _offered(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, _NAMED):
            yield node.name
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)


@dataclass(frozen=True)
class _Found:
    node: ast.AST
    module: str


_NAMED = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@functools.cache
def _file(module: str) -> Path | None:
    """Return the file of a module. Only the outermost package is asked for: looking for others would import it."""
    top, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    if not rest:
        return Path(spec.origin) if spec.origin and spec.origin.endswith(".py") else None
    for folder in spec.submodule_search_locations or ():
        path = Path(folder, *rest)
        for file in (path / "__init__.py", path.with_suffix(".py")):
            if file.is_file():
                return file
    return None


@functools.cache
def _tree(module: str) -> ast.Module | None:
    file = _file(module)
    try:
        return None if file is None else ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return None


def _definition(module: str, name: str, deepest: int = DEEPEST) -> _Found | None:
    """Return what defines a name in a module, or in one that it imports the name from."""
    tree = _tree(module)
    if tree is None or deepest == 0:
        return None
    stars = []
    for node in tree.body:
        if isinstance(node, _NAMED) and node.name == name:
            return _Found(node, module)
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            return _Found(node.value, module)
        if isinstance(node, ast.ImportFrom):
            source = _imported_from(node, module)
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return _definition(source, alias.name, deepest - 1)
            stars += [source] if node.names[0].name == "*" else []
    found = (_definition(source, name, deepest - 1) for source in stars)
    return next((each for each in found if each is not None), None)


def _imported_from(node: ast.ImportFrom, module: str) -> str:
    if not node.level:
        return node.module or ""
    file = _file(module)
    package = module if file is not None and file.name == "__init__.py" else module.rpartition(".")[0]
    for _ in range(node.level - 1):
        package = package.rpartition(".")[0]
    return f"{package}.{node.module}" if node.module else package


def _method(found: _Found, name: str, deepest: int) -> _Found | None:
    """Return the method that a class has or inherits."""
    node = found.node
    if not isinstance(node, ast.ClassDef) or deepest == 0 or node.decorator_list:
        return None
    own = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == name]
    if own:
        return _Found(own[-1], found.module)
    for base in node.bases:
        parent = _definition(found.module, base.id) if isinstance(base, ast.Name) else None
        inherited = None if parent is None else _method(parent, name, deepest - 1)
        if inherited is not None:
            return inherited
    return None


def _parameters(arguments: ast.arguments, module: str) -> Iterator[inspect.Parameter]:
    kinds = inspect.Parameter
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    for each, default in zip(positional, defaults, strict=True):
        yield _parameter(each, default, kinds.POSITIONAL_OR_KEYWORD, module)
    if arguments.vararg is not None:
        yield kinds(arguments.vararg.arg, kinds.VAR_POSITIONAL)
    for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield _parameter(each, default, kinds.KEYWORD_ONLY, module)
    if arguments.kwarg is not None:
        yield kinds(arguments.kwarg.arg, kinds.VAR_KEYWORD)


def _parameter(each: ast.arg, default: ast.expr | None, kind: Any, module: str) -> inspect.Parameter:
    said = Any if each.annotation is None else _type(each.annotation, module)
    return inspect.Parameter(
        each.arg, kind, default=inspect.Parameter.empty if default is None else _value(default), annotation=said
    )


def _value(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        return UNREAD


_PLAIN: Mapping[str, Any] = {
    "int": int,
    "float": float,
    "str": str,
    "bool": bool,
    "dict": dict,
    "Dict": dict,
    "list": list,
    "List": list,
    "Mapping": Mapping,
    "Path": Path,
    "Callable": Callable,
}
_BOUNDS = ("Ge", "Gt", "Le", "Lt")


def _type(node: ast.expr, module: str, deepest: int = DEEPEST) -> Any:
    """Return an annotation as far as it is made of plain types; the rest is Any. Nothing of it is evaluated."""
    if deepest == 0:
        return Any
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            try:
                return _type(ast.parse(node.value, mode="eval").body, module, deepest - 1)
            except SyntaxError:
                return Any
        return type(None) if node.value is None else Any
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _union([_type(side, module, deepest - 1) for side in (node.left, node.right)])
    word = _last_word(node)
    if word in _PLAIN:
        return _PLAIN[word]
    if isinstance(node, ast.Name):
        alias = _definition(module, node.id)
        known = alias is not None and isinstance(alias.node, (ast.Subscript, ast.BinOp, ast.Name))
        return _type(alias.node, alias.module, deepest - 1) if alias is not None and known else Any  # type: ignore[arg-type]
    return _of_parts(node, module, deepest) if isinstance(node, ast.Subscript) else Any


def _of_parts(node: ast.Subscript, module: str, deepest: int) -> Any:
    word = _last_word(node.value)
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if word == "Literal":
        values = [_value(part) for part in parts]
        return Any if UNREAD in values else Literal[tuple(values)]
    if word == "Annotated":
        said = [part for part in parts[1:] if isinstance(part, ast.Call) and len(part.args) == 1]
        limits = [(_last_word(part.func), _number(part.args[0], module)) for part in said]
        bounds = [getattr(annotated_types, word)(n) for word, n in limits if word in _BOUNDS and n is not None]
        return Annotated[(_type(parts[0], module, deepest - 1), *bounds)] if bounds else _type(parts[0], module)
    if word == "Callable":
        return Callable
    types_ = [... if _value(part) is ... else _type(part, module, deepest - 1) for part in parts]
    if word == "Optional":
        return _union([*types_, type(None)])
    if word == "Union":
        return _union(types_)
    if word in ("list", "List", "Sequence", "Iterable") and len(types_) == 1:
        return Sequence[types_[0]]  # type: ignore[valid-type]
    if word in ("tuple", "Tuple"):
        return tuple[tuple(types_)]  # type: ignore[misc]
    return Mapping if word in ("dict", "Dict", "Mapping") else Any


def _number(node: ast.expr, module: str) -> float | None:
    """Return a number, or the one that a name of the module stands for."""
    named = _definition(module, node.id) if isinstance(node, ast.Name) else None
    value = _value(node if named is None else named.node)  # type: ignore[arg-type]
    return value if isinstance(value, (int, float)) else None


def _union(parts: Sequence[Any]) -> Any:
    return Any if Any in parts else Union[tuple(parts)]  # noqa: UP007 - built at run time


def _last_word(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
