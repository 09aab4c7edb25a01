"""Static facts about the package beside their goals: ``python tests/house.py`` exits 1 where one falls short.

What is counted: modules at the root, files in a folder, lines of code in a file, methods of more than one statement in
a class, rings of imports, docstrings that do not say what a function does, lines of the README.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

PACKAGE = "ignite_hooks"
MOST_AT_ROOT, MOST_IN_FOLDER, MOST_LINES, MOST_METHODS, MOST_README = 8, 24, 350, 25, 170
MOST_QUESTIONS = 0.03
"""The share of function docstrings that may begin with a question word in place of a verb."""
QUESTIONS = frozenset(["what", "whether", "how", "why", "who", "where", "when", "which"])
_FIRST_WORD = re.compile(r"[\W_]*([A-Za-z']+)")

Graph = Mapping[str, set[str]]


@dataclass
class House:
    """What was counted."""

    root_modules: list[str]
    folders: dict[str, int]
    lines: dict[str, int] = field(default_factory=dict)
    methods: dict[str, int] = field(default_factory=dict)
    functions: int = 0
    questions: list[str] = field(default_factory=list)
    imports: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    typed_imports: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))


def count(root: Path) -> House:
    """Count the package below a folder."""
    package = root / PACKAGE
    files = sorted(package.rglob("*.py"))
    names = {_module(path, root): path for path in files}
    flat = [path.stem for path in package.glob("*.py") if path.stem not in ("__init__", "__main__")]
    folders: dict[str, int] = defaultdict(int)
    for path in files:
        folders[path.parent.relative_to(root).as_posix()] += path.stem != "__init__"
    house = House(flat, folders)
    for name, path in names.items():
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
        place = path.relative_to(package).as_posix()
        house.lines[place] = _code_lines(source, tree)
        _count_docstrings(tree, place, house)
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                house.methods[f"{place}:{node.name}"] = sum(_is_long(child) for child in node.body)
        for target, typed in _imports(tree, set(names)):
            if target != name:
                (house.typed_imports if typed else house.imports)[name].add(target)
    return house


def _module(path: Path, root: Path) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def _code_lines(source: str, tree: ast.Module) -> int:
    """Count the lines that are no blank, comment or docstring."""
    lines = {n for n, line in enumerate(source.splitlines(), 1) if line.strip() and not line.strip().startswith("#")}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            for child in node.body:
                text = child.value if isinstance(child, ast.Expr) else None
                if isinstance(text, ast.Constant) and isinstance(text.value, str):
                    lines -= set(range(child.lineno, (child.end_lineno or child.lineno) + 1))
    return len(lines)


def _count_docstrings(tree: ast.Module, place: str, house: House) -> None:
    for node in ast.walk(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        text = ast.get_docstring(node)
        # A property is described by a noun.
        if text is None or any("property" in ast.unparse(decorator) for decorator in node.decorator_list):
            continue
        house.functions += 1
        first = _FIRST_WORD.match(text)
        if first is not None and first.group(1).lower() in QUESTIONS:
            house.questions.append(f"{place}:{node.lineno} {node.name}")


def _is_long(node: ast.stmt) -> bool:
    """Return whether a method has more than one statement; empty points and one-line delegations do not count."""
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    statements = len(node.body) - (ast.get_docstring(node) is not None)
    return statements > 1 or hasattr(node.body[-1], "body")


def _imports(tree: ast.Module, names: set[str]) -> Iterator[tuple[str, bool]]:
    """Yield the modules of the package that a module imports, and whether it does so for types only."""

    def below(node: ast.AST, typed: bool) -> Iterator[tuple[str, bool]]:
        for child in ast.iter_child_nodes(node):
            inside = typed or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
            targets: list[str] = []
            if isinstance(child, ast.Import):
                targets = [alias.name for alias in child.names]
            elif isinstance(child, ast.ImportFrom) and child.module and not child.level:
                whole = [f"{child.module}.{alias.name}" for alias in child.names]
                targets = [name if name in names else child.module for name in whole]
            yield from ((target, inside) for target in targets if target in names)
            yield from below(child, inside)

    yield from below(tree, False)


def rings(graph: Graph, names: Iterator[str] | list[str]) -> list[list[str]]:
    """Return the rings of a graph: strongly connected components of more than one node (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            ring = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(ring) > 1:
                found.append(sorted(ring))

    for name in names:
        if name not in index:
            visit(name)
    return found


def goals(house: House, root: Path) -> list[tuple[bool, str]]:
    """Return every goal in words, and whether it is reached."""
    names = sorted({*house.imports, *house.typed_imports})
    # An annotation may name what a hook sees.
    typed = {
        name: house.imports[name] | {other for other in house.typed_imports[name] if not _is_of_run(other)}
        for name in names
    }
    widest = max(house.folders, key=lambda folder: house.folders[folder])
    long = {place: lines for place, lines in house.lines.items() if lines > MOST_LINES}
    richest = max(house.methods, key=lambda name: house.methods[name])
    share = len(house.questions) / max(house.functions, 1)
    readme = len((root / "README.md").read_text(encoding="utf-8").splitlines())
    at_run_time, with_types = rings(house.imports, names), rings(typed, names)
    upwards = sorted(
        f"{name} -> {other}"
        for name in names
        for other in house.imports[name]
        if _is_of_run(other) and name.split(".")[1] in BELOW_RUN
    )
    return [
        (len(house.root_modules) <= MOST_AT_ROOT, f"{len(house.root_modules)} modules at the root"),
        (house.folders[widest] <= MOST_IN_FOLDER, f"{house.folders[widest]} files in the widest folder, {widest}"),
        (not long, f"files above {MOST_LINES} lines of code: {long or 'none'}"),
        (house.methods[richest] <= MOST_METHODS, f"{house.methods[richest]} methods in the richest class, {richest}"),
        (share < MOST_QUESTIONS, f"{share:.1%} of docstrings begin with a question word: {house.questions[:5]}"),
        (not at_run_time, f"rings of imports: {at_run_time or 'none'}"),
        (not with_types, f"rings of imports with those for types: {with_types or 'none'}"),
        (not upwards, f"imports of what a hook sees from below, at run time: {upwards or 'none'}"),
        (readme <= MOST_README, f"{readme} lines in the README"),
    ]


BELOW_RUN = frozenset(
    ("measure", "drawing", "writers", "store", "plan", "model", "distributed", "errors", "text", "secrets", "version")
)
"""The rooms below `run`, which may import it for annotations only."""


def _is_of_run(name: str) -> bool:
    return name.startswith(f"{PACKAGE}.run")


def main(root: Path) -> int:
    """Print every goal; return 1 where one is missed."""
    found = goals(count(root), root)
    for reached, words in found:
        print("ok  " if reached else "FALL", words)
    return int(not all(reached for reached, _ in found))


if __name__ == "__main__":
    sys.exit(main(Path(__file__).parents[1]))
