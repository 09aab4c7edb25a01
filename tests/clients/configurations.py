"""Every configuration of MMEngine's libraries converts, names each setting of each hook, and validates."""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ignite_hooks.cli.app import main as ignite_hooks

LIBRARIES = ("mmdetection", "mmpretrain", "mmsegmentation", "mmpose")


def configurations(source: Path) -> Iterator[Path]:
    """Yield the configurations of the libraries that are there."""
    for library in LIBRARIES:
        for path in sorted((source / library).rglob("*.py")):
            folders = path.relative_to(source).parts[:-1]
            if "tests" not in folders and any("config" in folder for folder in folders) and path.name != "__init__.py":
                yield path


def settings_of_hooks(path: Path) -> Iterator[str]:
    """Yield the settings that a file itself writes for hooks: the keys of every ``dict(...)`` with a type in them."""
    for statement in ast.parse(path.read_bytes()).body:
        names = [node.id for node in ast.walk(statement) if isinstance(node, ast.Name)]
        is_assignment = isinstance(statement, ast.Assign) and names[:1] in (["default_hooks"], ["custom_hooks"])
        if is_assignment:
            for node in ast.walk(statement.value):  # type: ignore[attr-defined]
                keys = [each.arg for each in node.keywords] if isinstance(node, ast.Call) else []
                if "type" in keys and _is_a_hook(node):
                    yield from (key for key in keys if key not in (None, "type", "_delete_"))


def _is_a_hook(node: ast.AST) -> bool:
    types = [each.value for each in node.keywords if each.arg == "type"]  # type: ignore[attr-defined]
    return ast.unparse(types[0]).strip("'\"").endswith("Hook")


def problems_of(path: Path, output: Path) -> Iterator[str]:
    """Convert a file and yield what is wrong with the result."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        code = ignite_hooks(["convert", str(path), "-o", str(output)])
    if code:
        yield f"exit {code}: {said.getvalue().strip()}"
        return
    text = output.read_text(encoding="utf-8")
    for key in settings_of_hooks(path):
        if not re.search(rf"\b{re.escape(key)}\b", text):
            yield f"says nothing about {key}"
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        if code := ignite_hooks(["validate", str(output)]):
            yield f"validates with {code}: {said.getvalue().strip()}"


def main(source: Path) -> int:
    """Convert all of them; return how many have a problem."""
    bad = count = 0
    with tempfile.TemporaryDirectory() as folder:
        for count, path in enumerate(configurations(source), 1):  # noqa: B007
            found = list(problems_of(path, Path(folder) / "ours.yaml"))
            bad += bool(found)
            for each in found:
                print(f"{path.relative_to(source)}: {each}", flush=True)
    print(f"{count} configurations of {', '.join(LIBRARIES)}: {bad} with a problem", flush=True)
    return bad if count else 1


if __name__ == "__main__":
    sys.exit(bool(main(Path(os.environ["CLIENTS_SOURCES"]))))
