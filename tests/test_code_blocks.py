"""Blocks of code in the guides: configurations fit the schema, Python names what is there, commands are parsed."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from ignite_hooks.cli.app import whole_parser

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/*.md"))]
OF_THE_SHELL = re.compile(r"^(?:\$ )?((?:ignite-hooks|make) .*?)(?: +#.*)?$", re.MULTILINE)
LANGUAGES = {"", "python", "yaml", "toml"}


def blocks() -> Iterator[tuple[str, str, str]]:
    """Yield the page, the language and the text of every block."""
    for page in PAGES:
        for language, text in re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S):
            yield page.name, language, text


def of(*languages: str) -> list[Any]:
    found = [(page, text) for page, language, text in blocks() if language in languages]
    return [pytest.param(text, id=f"{page}-{number}") for number, (page, text) in enumerate(found)]


def configurations(text: str) -> list[Any]:
    """Return the mapping of a block, or several where it shows alternatives: lines that begin with the same key."""
    keys = re.findall(r"^(\w+):", text, re.MULTILINE)
    parts = [text] if len({*keys}) == len(keys) else re.split(r"^(?=\w)", text, flags=re.MULTILINE)[1:]
    return [yaml.safe_load(part) for part in parts]


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads((ROOT / "configs" / "schema.json").read_text(encoding="utf-8")))


def test_there_are_blocks_of_each_kind_and_of_no_other() -> None:
    assert {language for _, language, _ in blocks()} == LANGUAGES


@pytest.mark.parametrize("text", of("yaml"))
def test_a_configuration_fits_the_schema(text: str, validator: jsonschema.Draft202012Validator) -> None:
    for one in configurations(text):
        assert isinstance(one, dict)
        assert [f"{list(error.path)}: {error.message}" for error in validator.iter_errors(one)] == []


def test_alternatives_are_told_apart() -> None:
    assert configurations("a: 1\nb: {c: 2}\n") == [{"a": 1, "b": {"c": 2}}]
    assert configurations("a: 1  # or\na: 2\n") == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize("text", of("python"))
def test_python_names_what_is_there_and_passes_what_is_taken(text: str) -> None:
    wrong = [problem for node in ast.walk(ast.parse(text)) for problem in problems(node, names_of_ours(text))]
    assert wrong == []


def names_of_ours(text: str) -> dict[str, Any]:
    """Return what a block may call by name: what it imports from us, and the functions that pages do not import."""
    package = importlib.import_module("ignite_hooks")
    found = {"ignite_hooks": package, "attach_hooks": package.attach_hooks, "load_config": package.load_config}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ignite_hooks"):
            module = importlib.import_module(node.module or "")
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                is_module = importlib.util.find_spec(whole) is not None if hasattr(module, "__path__") else False
                thing = importlib.import_module(whole) if is_module else getattr(module, alias.name)
                found[alias.asname or alias.name] = thing
    return found


def problems(node: ast.AST, names: dict[str, Any]) -> Iterator[str]:
    """Yield what a node names of ours that is not there."""
    if (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and inspect.ismodule(names.get(node.value.id))
    ):
        if not hasattr(names[node.value.id], node.attr):
            yield f"{node.value.id}.{node.attr}"
    elif isinstance(node, ast.Call):
        function = called(node.func, names)
        if inspect.isfunction(function):
            taken = inspect.signature(function).parameters
            if not any(one.kind is one.VAR_KEYWORD for one in taken.values()):
                yield from (f"{keyword.arg}=" for keyword in node.keywords if keyword.arg and keyword.arg not in taken)


def called(function: ast.expr, names: dict[str, Any]) -> Any:
    """Return the function of ours that is called, or None."""
    if isinstance(function, ast.Name):
        return names.get(function.id)
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        return getattr(names.get(function.value.id), function.attr, None)
    return None


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("from ignite_hooks import drawing\ndrawing.draw()", ["drawing.draw"]),
        ("from ignite_hooks.search import search\nsearch(build, {}, trails=3)", ["trails="]),
        ("load_config('a.yaml', conect=True)", ["conect="]),
        ("attach_hooks(trainer, model=model)", []),
    ],
)
def test_a_wrong_name_in_python_is_found(text: str, wrong: list[str]) -> None:
    found = [problem for node in ast.walk(ast.parse(text)) for problem in problems(node, names_of_ours(text))]
    assert found == wrong


COMMANDS = [
    pytest.param(command, id=f"{page}-{command[:40]}")
    for page, language, text in blocks()
    if not language
    for command in OF_THE_SHELL.findall(text)
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_parsed(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    program, *arguments = shlex.split(command, comments=True)
    if program == "make":
        targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        assert {one for one in arguments if "=" not in one} <= {*targets}
        return
    try:
        _, rest = whole_parser().parse_known_args(arguments)
    except SystemExit:
        pytest.fail(f"{command}: {capsys.readouterr().err}")
    assert [one for one in rest if "." not in one.partition("=")[0]] == [], "no setting by its dotted place"


def test_there_are_commands() -> None:
    assert len(COMMANDS) > 20
