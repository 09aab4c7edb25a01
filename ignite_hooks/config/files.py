"""Read configuration files, strictly, into plain data."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import yaml

from ignite_hooks.config.composition import BASE, composed
from ignite_hooks.config.keys import is_ours
from ignite_hooks.config.python_file import PythonReader
from ignite_hooks.config.tree import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_NODES,
    TOO_BIG,
    TOO_DEEP,
    TOO_MUCH,
    Foreign,
    Judges,
    checked_tree,
    error_at,
    line_of,
    objection_to,
    parse_integer,
    single_line,
)
from ignite_hooks.errors import ConfigError, Problem
from ignite_hooks.text import did_you_mean

MAX_ALIASES = 100

_SHAPE = "write a mapping such as 'hooks: [...]', or a list of hooks"


def load_config(path: str | Path) -> dict[str, Any]:
    """Read a configuration file into plain dicts, lists, text, numbers, booleans and None.

    Below keys that belong to the script, whatever the format can hold is accepted: dates, numbers as keys, NaN.

    Args:
        path: A `.yaml`, `.yml`, `.json`, `.toml` or `.py` file; a list at the top level is the list of hooks.
            A `.py` file is read, never run. Files that its `_base_` names come first, and it says what differs.
    """
    return composed(Path(path), str(path), _load_one)


def _load_one(path: Path, source: str) -> dict[str, Any]:
    """Read one file, without those that its `_base_` names."""
    parse = PARSERS.get(path.suffix.lower())
    if parse is None:
        raise error_at(source, f"suffix {path.suffix!r} is not supported: use {', '.join(PARSERS)}")
    value = parse(_read(path, source), source, is_ours)
    if isinstance(value, list):
        return {"hooks": value}
    if not isinstance(value, dict):
        found = "empty" if value is None else f"{value!r:.40}"
        raise error_at(source, f"the top level is {found}: {_SHAPE}")
    return value


def parse_yaml(text: str, source: str, judges: Judges | None = None) -> Any:
    """Parse YAML: scalars of YAML 1.2, unique text keys, only standard tags, few aliases."""
    with _reading(text, source, "YAML"):
        try:
            loader = StrictLoader(text, source)
            node = loader.get_single_node()
        except yaml.reader.ReaderError as error:
            place = line_of(source, text.count("\n", 0, error.position) + 1)
            raise error_at(place, f"character {error.character!r} is not allowed in YAML: remove it") from None
        except yaml.MarkedYAMLError as error:
            raise error_at(_place_of_mark(source, error.problem_mark), _yaml_message(error)) from None
        return None if node is None else checked_tree(loader.data(node), source, judges)


def parse_json(text: str, source: str, judges: Judges | None = None) -> Any:
    """Parse standard JSON: unique keys, no NaN or Infinity."""
    with _reading(text, source, "JSON"):
        try:
            value = json.loads(
                text, object_pairs_hook=_json_object, parse_constant=_json_constant, parse_int=parse_integer
            )
            return checked_tree(value, source, judges)
        except json.JSONDecodeError as error:
            hint = "text and keys in double quotes, no comma after the last item, no comments"
            place = line_of(source, error.lineno, error.colno)
            raise error_at(place, f"not valid JSON: {error.msg} ({hint})") from None


def parse_toml(text: str, source: str, judges: Judges | None = None) -> Any:
    """Parse TOML without dates and times."""
    with _reading(text, source, "TOML"):
        if long_key := _LONG_TOML_KEY.search(text):
            place = line_of(source, text.count("\n", 0, long_key.start()) + 1)
            raise error_at(place, f"a key of too many parts: at most {MAX_DEPTH} levels")
        try:
            return checked_tree(tomllib.loads(text), source, judges)
        except tomllib.TOMLDecodeError as error:
            position = re.search(r" \(at line (\d+), column (\d+)\)$", str(error))
            line, column = (int(position[1]), int(position[2])) if position else (text.count("\n") + 1, None)
            message = single_line(str(error)[: position.start()] if position else error)
            hint = "text in quotes, true and false in lower case, each key once"
            raise error_at(line_of(source, line, column), f"not valid TOML: {message} ({hint})") from None


def parse_python(text: str, source: str, judges: Judges | None = None) -> dict[str, Any]:
    """Return the names that a Python file sets to literals; nothing in it is run."""
    with _reading(text, source, "Python"):
        try:
            module = ast.parse(text, filename=source)
        except SyntaxError as error:
            place = line_of(source, error.lineno or 1, error.offset or 1)
            raise error_at(place, f"not valid Python: {error.msg} (look at the line before too)") from None
        reader = PythonReader(text, source, judges)
        try:
            names = checked_tree(reader.read(module), source, judges)
        except ConfigError as error:
            raise ConfigError([*reader.problems, *(p for p in error.problems if p not in reader.problems)]) from None
        if reader.problems:
            raise ConfigError(reader.problems)
        return {name: value for name, value in names.items() if name == BASE or not name.startswith("_")}


PARSERS: dict[str, Callable[[str, str, Judges | None], Any]] = {
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
            names = [name for pattern in PARSERS for name in folder.glob(f"*{pattern}")]
            missing = "file in" if folder.is_dir() else "folder:"
            problem = f"no such {missing} {folder}{did_you_mean(path.name, [name.name for name in names])}"
    except (OSError, ValueError) as error:
        problem = f"cannot be read: {getattr(error, 'strerror', None) or error}"
    if not problem and len(content) > MAX_BYTES:
        problem = TOO_BIG
    if problem:
        raise error_at(source, problem)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise error_at(line_of(source, line), "not UTF-8 text: save the file as UTF-8") from None


@contextmanager
def _reading(text: str, source: str, language: str) -> Iterator[None]:
    if len(text) > MAX_BYTES:
        raise error_at(source, TOO_BIG)
    if not text.strip():
        raise error_at(source, f"the file is empty: {_SHAPE}")
    try:
        yield
    except ConfigError:
        raise
    except (RecursionError, MemoryError):
        raise error_at(source, TOO_DEEP) from None
    except (ValueError, OverflowError) as error:
        raise error_at(source, f"not valid {language}: a number or a character code is out of range") from error


_TAG = "tag:yaml.org,2002:"
_SCALARS: dict[str, tuple[re.Pattern[str], Callable[[str], Any]]] = {
    "null": (re.compile(r"(?:~|null|Null|NULL|)\Z"), lambda _: None),
    "bool": (re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"), lambda text: text.lower() == "true"),
    "int": (re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z"), parse_integer),
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

    # PyYAML's table is that of YAML 1.1, where `no` is False and `1e-4` is text.
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
            self._stop(event, TOO_MUCH)
        if self.depth > MAX_DEPTH:
            self._stop(event, TOO_DEEP)
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
        """Return the value of a node, the same object for each alias; a `Problem` stands for what has no value."""
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
                meant = _WORDS_OF_YAML_1_1.get(node.value.lower()) if node.style is None else None
                return self._foreign(node, _both_readings(node.value, meant), node.value) if meant else node.value
            case yaml.ScalarNode() if tag in _SCALARS:
                pattern, convert = _SCALARS[tag]
                if not pattern.match(node.value):
                    message = f"{node.value!r:.40} cannot be read as {tag}: leave the tag out"
                    return self._foreign(node, message, node.value)
                value = convert(node.value)
                problem = objection_to(value)
                return self._problem(node, problem.message) if problem else value
        written = f"!!{tag}" if node.tag.startswith(_TAG) else tag
        plain: Any = node.value
        if isinstance(node, yaml.MappingNode):
            plain = self._mapping(node)
        elif isinstance(node, yaml.SequenceNode):
            plain = [self.data(item) for item in node.value]
        return self._foreign(node, f"tag {written!r:.60} is not supported: write the plain value", plain)

    def _mapping(self, node: yaml.MappingNode) -> dict[Any, Any]:
        merged: dict[Any, Any] = {}
        own: dict[Any, Any] = {}
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            key = key_node.value
            if not isinstance(key_node, yaml.ScalarNode):
                problem = self._problem(key_node, "this key is not text: put it in quotes")
                own[problem.place] = problem
            elif key_node.tag != f"{_TAG}str":
                # A table of class names by number is common in the part of a script.
                message = f"key {key!r:.40} is not text: put it in quotes"
                value = self.data(key_node)
                value = value.value if isinstance(value, Foreign) else value
                name = self._problem(key_node, message).place if isinstance(value, Problem) else value
                own[name] = self._foreign(key_node, message, self.data(value_node))
            elif key in lines:
                found = f"key {key!r:.60} is already set in line {lines[key]}"
                again = self._foreign(key_node, f"{found}: keep one of them", self.data(value_node))
                before = own.get(key)
                own[key] = Foreign(before.problem, again) if isinstance(before, Foreign) else again
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

    def _foreign(self, node: yaml.Node, message: str, value: Any) -> Foreign:
        return Foreign(self._problem(node, message), value)

    def _problem(self, node: yaml.Node, message: str) -> Problem:
        return Problem(_place_of_mark(self.source, node.start_mark), message)

    def _stop(self, event: Any, message: str) -> NoReturn:
        raise error_at(_place_of_mark(self.source, event.start_mark), message)


def _place_of_mark(source: str, mark: Any) -> str:
    return line_of(source, mark.line + 1, mark.column + 1) if mark else source


def _yaml_message(error: yaml.MarkedYAMLError) -> str:
    problem = single_line(error.problem or error.context)
    began = f", in what begins in line {error.context_mark.line + 1}" if error.context_mark else ""
    hints = [hint for part, hint in _YAML_HINTS.items() if part in problem]
    return f"not valid YAML: {problem}{began} ({[*hints, 'check quotes and indentation'][0]})"


_WORDS_OF_YAML_1_1 = {"yes": "true", "on": "true", "no": "false", "off": "false"}
"""Words that many readers of YAML still take for booleans; quoted, they are text for all."""


def _both_readings(word: str, meant: str) -> str:
    return f"{word} is {meant} in YAML 1.1 and text in YAML 1.2: write {meant}, or '{word}' in quotes for the text"


def _json_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        twice = Problem("", "this key is set twice: keep one of them")
        result[key] = Foreign(twice, value) if key in result else value
    return result


def _json_constant(name: str) -> Foreign:
    return Foreign(Problem("", f"{name} is not JSON: write a number, or null"), float(name))


# tomllib needs memory quadratic in the parts of a dotted key, so a long one must not reach it.
_LONG_TOML_KEY = re.compile(
    rf"""(?<![\w-])(?:(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){{{MAX_DEPTH}}}""", re.ASCII
)
