"""A configuration file becomes plain data, strictly."""

from __future__ import annotations

import ast
import importlib
import json
import operator
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import yaml

from ignite_hooks.errors import ConfigError, Problem
from ignite_hooks.text import below, did_you_mean

MAX_BYTES = 1_000_000
MAX_DEPTH = 64
MAX_NODES = 100_000
MAX_ALIASES = 100
MAX_DIGITS = 100
MAX_PROBLEMS = 50
MAX_JOINED_TEXT = 1_000

_TOO_DEEP = f"nested too deeply: at most {MAX_DEPTH} levels"
_TOO_MUCH = f"too much data: at most {MAX_NODES:,} values, repeated ones counted"
_TOO_LONG = f"an integer of more than {MAX_DIGITS} digits: write a smaller one, or a float such as 1e300"
_TOO_BIG = f"larger than {MAX_BYTES:,} bytes: a configuration holds settings, not data"
_SHAPE = "write a mapping such as 'hooks: [...]', or a list of hooks"
_NO_INHERITANCE = "inheritance is not supported: write the settings of the base file here"
_READ_ONLY = "a .py file is read, not run: write literals, lists, dict(a=1), arithmetic, names set above"


def load_config(path: str | Path) -> dict[str, Any]:
    """Read a configuration file into plain dicts, lists, text, numbers, booleans and None.

    Args:
        path: A `.yaml`, `.yml`, `.json`, `.toml` or `.py` file; a list at the top level is the list of hooks.
            A `.py` file is read, never run.
    """
    source, path = str(path), Path(path)
    parse = _PARSERS.get(path.suffix.lower())
    if parse is None:
        raise _error(source, f"suffix {path.suffix!r} is not supported: use {', '.join(_PARSERS)}")
    value = parse(_read(path, source), source)
    if isinstance(value, list):
        return {"hooks": value}
    if not isinstance(value, dict):
        found = "empty" if value is None else f"{value!r:.40}"
        raise _error(source, f"the top level is {found}: {_SHAPE}")
    if "_base_" in value:
        raise _error(f"{source}: _base_", _NO_INHERITANCE)
    return value


def plain(value: Any) -> Any:
    """Copy a caller's mapping or list into plain dicts and lists; every other object stays the very same.

    Example:
        >>> plain({"hooks": ({"type": "EMAHook"},)})
        {'hooks': [{'type': 'EMAHook'}]}
    """
    return _Copier("", strict=False).copy(value, "")


def parse_yaml(text: str, source: str) -> Any:
    """YAML 1.2 scalars, unique text keys, no tags beyond the standard ones, bounded aliases."""
    with _reading(text, source, "YAML"):
        try:
            loader = StrictLoader(text, source)
            node = loader.get_single_node()
        except yaml.reader.ReaderError as error:
            place = _place(source, text.count("\n", 0, error.position) + 1)
            raise _error(place, f"character {error.character!r} is not allowed in YAML: remove it") from None
        except yaml.MarkedYAMLError as error:
            raise _error(_place_of_mark(source, error.problem_mark), _yaml_message(error)) from None
        return None if node is None else _checked(loader.data(node), source)


def parse_json(text: str, source: str) -> Any:
    """Standard JSON: unique keys, no NaN or Infinity."""
    with _reading(text, source, "JSON"):
        try:
            value = json.loads(text, object_pairs_hook=_json_object, parse_constant=_json_constant, parse_int=_integer)
            return _checked(value, source)
        except json.JSONDecodeError as error:
            hint = "text and keys in double quotes, no comma after the last item, no comments"
            place = _place(source, error.lineno, error.colno)
            raise _error(place, f"not valid JSON: {error.msg} ({hint})") from None


def parse_toml(text: str, source: str) -> Any:
    """TOML without dates and times."""
    with _reading(text, source, "TOML"):
        if long_key := _LONG_TOML_KEY.search(text):
            place = _place(source, text.count("\n", 0, long_key.start()) + 1)
            raise _error(place, f"a key of too many parts: at most {MAX_DEPTH} levels")
        try:
            return _checked(tomllib.loads(text), source)
        except tomllib.TOMLDecodeError as error:
            position = re.search(r" \(at line (\d+), column (\d+)\)$", str(error))
            line, column = (int(position[1]), int(position[2])) if position else (text.count("\n") + 1, None)
            message = _one_line(str(error)[: position.start()] if position else error)
            hint = "text in quotes, true and false in lower case, each key once"
            raise _error(_place(source, line, column), f"not valid TOML: {message} ({hint})") from None


def parse_python(text: str, source: str) -> dict[str, Any]:
    """The names that a Python file sets to literals; nothing in it is run."""
    with _reading(text, source, "Python"):
        try:
            module = ast.parse(text, filename=source)
        except SyntaxError as error:
            place = _place(source, error.lineno or 1, error.offset or 1)
            raise _error(place, f"not valid Python: {error.msg} (look at the line before too)") from None
        names = _checked(_PythonReader(text, source).read(module), source)
        return {name: value for name, value in names.items() if not name.startswith("_")}


_PARSERS: dict[str, Callable[[str, str], Any]] = {
    ".yaml": parse_yaml,
    ".yml": parse_yaml,
    ".json": parse_json,
    ".toml": parse_toml,
    ".py": parse_python,
}


def _read(path: Path, source: str) -> str:
    content, problem = b"", ""
    try:
        if path.is_file():
            with path.open("rb") as file:
                content = file.read(MAX_BYTES + 1)
        elif path.exists():
            problem = "not a regular file: give the path of a configuration file"
        else:
            folder = path.absolute().parent
            names = [name for pattern in _PARSERS for name in folder.glob(f"*{pattern}")]
            missing = "file in" if folder.is_dir() else "folder:"
            problem = f"no such {missing} {folder}{did_you_mean(path.name, [name.name for name in names])}"
    except (OSError, ValueError) as error:
        problem = f"cannot be read: {getattr(error, 'strerror', None) or error}"
    if not problem and len(content) > MAX_BYTES:
        problem = _TOO_BIG
    if problem:
        raise _error(source, problem)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _error(_place(source, line), "not UTF-8 text: save the file as UTF-8") from None


@contextmanager
def _reading(text: str, source: str, language: str) -> Iterator[None]:
    if len(text) > MAX_BYTES:
        raise _error(source, _TOO_BIG)
    if not text.strip():
        raise _error(source, f"the file is empty: {_SHAPE}")
    try:
        yield
    except ConfigError:
        raise
    except (RecursionError, MemoryError):
        raise _error(source, _TOO_DEEP) from None
    except (ValueError, OverflowError) as error:
        raise _error(source, f"not valid {language}: a number or a character code is out of range") from error


class _Copier:
    """Copies mappings and lists; when strict, every key and value must be plain data.

    A parser leaves a `Problem` where a value cannot be accepted; without a place it gets its path.
    """

    def __init__(self, source: str, *, strict: bool) -> None:
        self.source, self.strict = source, strict
        self.problems: dict[Problem, None] = {}
        self.nodes = 0
        self.parents: set[int] = set()

    def copy(self, value: Any, place: str, depth: int = 0) -> Any:
        value = _without_omegaconf(value, self._place(place))
        is_mapping = isinstance(value, Mapping)
        is_list = isinstance(value, list | tuple) and not hasattr(value, "_fields")
        if self.strict or is_mapping or is_list:
            self._count(value, place, depth)
        if not is_mapping and not is_list:
            return self._leaf(value, place)
        self.parents.add(id(value))
        items: Iterable[tuple[Any, Any]] = value.items() if is_mapping else enumerate(value)
        copied = {}
        for key, item in items:
            copied[self._leaf(key, place)] = self.copy(item, below(place, key), depth + 1)
        self.parents.remove(id(value))
        return copied if is_mapping else list(copied.values())

    def _count(self, value: Any, place: str, depth: int) -> None:
        self.nodes += 1 + (len(value) // 100 if isinstance(value, str) else 0)
        if id(value) in self.parents:
            raise _error(self._place(place), "contains itself: a configuration is a tree")
        if depth > MAX_DEPTH or self.nodes > MAX_NODES:
            raise _error(self._place(place), _TOO_DEEP if depth > MAX_DEPTH else _TOO_MUCH)

    def _leaf(self, value: Any, place: str) -> Any:
        if self.strict and len(self.problems) < MAX_PROBLEMS and (problem := _objection(value)):
            self.problems[Problem(problem.place or self._place(place), problem.message)] = None
        return value

    def _place(self, place: str) -> str:
        short = place if len(place) <= 80 else f"{place[:77]}..."
        return ": ".join(part for part in (self.source, short) if part)


def _checked(value: Any, source: str) -> Any:
    copier = _Copier(source, strict=True)
    copied = copier.copy(value, "")
    if copier.problems:
        raise ConfigError(list(copier.problems))
    return copied


def _objection(value: Any) -> Problem | None:
    if isinstance(value, Problem):
        return value
    if isinstance(value, int) and abs(value) >= 10**MAX_DIGITS:
        return Problem("", _TOO_LONG)
    if isinstance(value, str) and re.search("[\ud800-\udfff]", value):
        return Problem("", "half of a surrogate pair is not text: write the character itself")
    if value is None or isinstance(value, bool | int | float | str):
        return None
    return Problem("", f"a value of type {type(value).__name__} is not supported: write text or a number")


def _integer(text: str) -> int | Problem:
    if len(text) > MAX_DIGITS + 1:
        return Problem("", _TOO_LONG)
    return int(text, 0) if text[:2] in ("0x", "0o") else int(text)


def _without_omegaconf(value: Any, place: str) -> Any:
    if not str(type(value).__module__).startswith("omegaconf"):
        return value
    omegaconf = importlib.import_module("omegaconf")
    if not omegaconf.OmegaConf.is_config(value):
        return value
    try:
        return omegaconf.OmegaConf.to_container(value, resolve=True, throw_on_missing=True)
    except omegaconf.errors.OmegaConfBaseException as error:
        raise _error(place, f"OmegaConf cannot resolve this configuration: {_one_line(error)}") from error


def _error(place: str, message: str) -> ConfigError:
    return ConfigError([Problem(place, message)])


def _place(source: str, line: int, column: int | None = None) -> str:
    return f"{source}:{line}:{column}" if column else f"{source}:{line}"


def _one_line(message: object) -> str:
    return " ".join(str(message).split())[:200]


_TAG = "tag:yaml.org,2002:"
_SCALARS: dict[str, tuple[re.Pattern[str], Callable[[str], Any]]] = {
    "null": (re.compile(r"(?:~|null|Null|NULL|)\Z"), lambda _: None),
    "bool": (re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"), lambda text: text.lower() == "true"),
    "int": (re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z"), _integer),
    "float": (
        re.compile(
            r"(?:[-+]?(?:\.[0-9]+|[0-9]+\.?[0-9]*)(?:[eE][-+]?[0-9]+)?"
            r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"
        ),
        lambda text: float(re.sub(r"\.(?=[iInN])", "", text)),
    ),
}
_YAML_HINTS = {
    "'\\t'": "indent with spaces, not tabs",
    "mapping values are not allowed": "put text that contains ': ' in quotes, or correct the indentation",
    "expected <block end>": "items of one level begin in the same column",
    "could not find expected ':'": "a setting is 'name: value'",
    "another document": "keep one document, without '---' in between",
    "second occurrence": "give each '&name' once",
    "undefined alias": "put text that begins with '*' in quotes, or define the anchor with '&' above",
    "cannot start any token": "put text that begins with this character in quotes",
    "end of stream": "a quote or bracket is opened and not closed",
    "unknown escape character": "write a backslash twice, or use single quotes",
}


class StrictLoader(yaml.SafeLoader):
    """Composes nodes within limits, resolves scalars as YAML 1.2 does, and turns nodes into plain data."""

    # A table of our own: PyYAML's is that of YAML 1.1, where `no` is False and `1e-4` is text.
    yaml_implicit_resolvers: dict[str | None, list[tuple[str, re.Pattern[str]]]] = {
        None: [(_TAG + name, pattern) for name, (pattern, _) in _SCALARS.items()]
    }

    def __init__(self, text: str, source: str) -> None:
        super().__init__(text)
        self.source = source
        self.depth = self.nodes = self.aliases = 0
        self.known: dict[yaml.Node, Any] = {}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        is_alias = isinstance(event, yaml.AliasEvent)
        self.nodes += 1
        self.aliases += is_alias
        if self.nodes > MAX_NODES:
            self._stop(event, _TOO_MUCH)
        if self.depth > MAX_DEPTH:
            self._stop(event, _TOO_DEEP)
        if self.aliases > MAX_ALIASES:
            self._stop(event, f"more than {MAX_ALIASES} aliases: write the values out")
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        # The composer knows the end of a list or mapping only once it is complete.
        if is_alias and node is not None and node.end_mark is None:
            self._stop(event, f"'*{event.anchor}' is inside what it repeats: repeat something that ends above")
        return node

    def data(self, node: yaml.Node) -> Any:
        """The value of a node, the same object for each alias, with a `Problem` where there is none."""
        if node not in self.known:
            self.known[node] = self._data(node)
        return self.known[node]

    def _data(self, node: yaml.Node) -> Any:
        tag = node.tag.removeprefix(_TAG)
        match node:
            case yaml.MappingNode() if tag == "map":
                return self._mapping(node)
            case yaml.SequenceNode() if tag == "seq":
                return [self.data(item) for item in node.value]
            case yaml.ScalarNode() if tag == "str":
                return node.value
            case yaml.ScalarNode() if tag in _SCALARS:
                pattern, convert = _SCALARS[tag]
                if not pattern.match(node.value):
                    return self._problem(node, f"{node.value!r:.40} cannot be read as {tag}: leave the tag out")
                value = convert(node.value)
                problem = _objection(value)
                return self._problem(node, problem.message) if problem else value
        written = f"!!{tag}" if node.tag.startswith(_TAG) else tag
        return self._problem(node, f"tag {written!r:.60} is not supported: write the plain value")

    def _mapping(self, node: yaml.MappingNode) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        own: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            key = key_node.value
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag != f"{_TAG}str":
                found = f"key {key!r:.40}" if isinstance(key, str) else "this key"
                problem = self._problem(key_node, f"{found} is not text: put it in quotes")
                own[problem.place] = problem
            elif key in lines:
                found = f"key {key!r:.60} is already set in line {lines[key]}"
                problem = self._problem(key_node, f"{found}: keep one of them")
                own[problem.place] = problem
            elif key == "<<" and key_node.style is None:
                merged = self._merged(value_node)
            else:
                own[key] = self.data(value_node)
            if isinstance(key, str):
                lines.setdefault(key, key_node.start_mark.line + 1)
        return merged | own

    def _merged(self, node: yaml.Node) -> dict[str, Any]:
        value = self.data(node)
        mappings = value if isinstance(value, list) else [value]
        if all(isinstance(mapping, dict) for mapping in mappings):
            return {key: item for mapping in reversed(mappings) for key, item in mapping.items()}
        return {"<<": self._problem(node, "'<<' takes a mapping or a list of them, as in '<<: *defaults'")}

    def _problem(self, node: yaml.Node, message: str) -> Problem:
        return Problem(_place_of_mark(self.source, node.start_mark), message)

    def _stop(self, event: Any, message: str) -> NoReturn:
        raise _error(_place_of_mark(self.source, event.start_mark), message)


def _place_of_mark(source: str, mark: Any) -> str:
    return _place(source, mark.line + 1, mark.column + 1) if mark else source


def _yaml_message(error: yaml.MarkedYAMLError) -> str:
    problem = _one_line(error.problem or error.context)
    began = f", in what begins in line {error.context_mark.line + 1}" if error.context_mark else ""
    hints = [hint for part, hint in _YAML_HINTS.items() if part in problem]
    return f"not valid YAML: {problem}{began} ({[*hints, 'check quotes and indentation'][0]})"


def _json_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        result[key] = Problem("", "this key is set twice: keep one of them") if key in result else value
    return result


def _json_constant(name: str) -> Problem:
    return Problem("", f"{name} is not JSON: write a number, or null")


# tomllib needs memory in the square of the parts of a dotted key, so a long one must not reach it.
_LONG_TOML_KEY = re.compile(
    rf"""(?<![\w-])(?:(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){{{MAX_DEPTH}}}""", re.ASCII
)
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}


class _PythonReader:
    def __init__(self, text: str, source: str) -> None:
        self.lines, self.source = re.split(r"\r\n|\r|\n", text), source
        self.names: dict[str, Any] = {}
        self.first: dict[str, int] = {}
        self.problems: list[Problem] = []

    def read(self, module: ast.Module) -> dict[str, Any]:
        for statement in module.body:
            match statement:
                case ast.Assign(targets=[ast.Name(id="_base_")]):
                    self._refuse(statement, _NO_INHERITANCE)
                case ast.Assign(targets=[ast.Name(id=name)]) if name in self.first:
                    self._refuse(statement, f"{name!r:.60} is set in line {self.first[name]} already: keep one")
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self.first[name] = statement.lineno
                    self.names[name] = self._value(value)
                case ast.Expr(value=ast.Constant(value=str())):
                    continue
                case _:
                    self._refuse(statement, f"{self._written(statement)} is not supported, {_READ_ONLY}")
        if self.problems:
            raise ConfigError(self.problems)
        return self.names

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
                return self._refuse(node, f"{name!r:.60} is not set above{guess}")
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
                factor = -1 if isinstance(sign, ast.USub) else 1
                return self._arithmetic(node, ast.Mult, factor, self._value(operand))
            case ast.BinOp(left=left, op=symbol, right=right) if type(symbol) in _OPERATORS:
                return self._arithmetic(node, type(symbol), self._value(left), self._value(right))
        return self._refuse(node, f"{self._written(node)} is not supported, {_READ_ONLY}")

    def _dict(self, keys: list[Any], values: list[ast.expr]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value in zip(keys, values, strict=True):
            if not isinstance(key, str):
                self._refuse(value, "its key must be text in quotes, or a keyword of dict(...); '**' is not supported")
            elif key in result:
                self._refuse(value, f"key {key!r:.60} is set twice: keep one of them")
            else:
                result[key] = self._value(value)
        return result

    def _arithmetic(self, node: ast.expr, symbol: type[ast.operator], left: Any, right: Any) -> Any:
        if isinstance(left, Problem) or isinstance(right, Problem):
            return left if isinstance(left, Problem) else right
        texts = symbol is ast.Add and isinstance(left, str) and isinstance(right, str)
        if not texts and not {type(left), type(right)} <= {int, float}:
            return self._refuse(node, f"{self._written(node)}: arithmetic is for numbers, '+' also for text")
        if (texts and len(left + right) > MAX_JOINED_TEXT) or (symbol is ast.Pow and abs(right) > MAX_DIGITS):
            return self._refuse(node, f"{self._written(node)} is too large: write the value out")
        try:
            return self._accepted(node, _OPERATORS[symbol](left, right))
        except ArithmeticError as error:
            return self._refuse(node, f"{self._written(node)} has no value: {error}")

    def _accepted(self, node: ast.expr, value: Any) -> Any:
        problem = _objection(value)
        return self._refuse(node, problem.message) if problem else value

    def _refuse(self, node: ast.stmt | ast.expr, message: str) -> Problem:
        before = self.lines[node.lineno - 1].encode()[: node.col_offset].decode()
        self.problems.append(Problem(_place(self.source, node.lineno, len(before) + 1), message))
        if len(self.problems) >= MAX_PROBLEMS:
            raise ConfigError(self.problems)
        return self.problems[-1]

    def _written(self, node: ast.stmt | ast.expr) -> str:
        end = node.end_col_offset if node.end_lineno == node.lineno else None
        written = self.lines[node.lineno - 1].encode()[node.col_offset : end].decode()
        return f"`{written}`" if len(written) <= 40 else f"`{written[:37]}...`"
