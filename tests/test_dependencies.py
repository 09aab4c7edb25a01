"""What setup.cfg asks for is what is imported, and constraints.txt has one version of it."""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import yaml

from ignite_hooks.version import __version__

ROOT = Path(__file__).parents[1]

DISTRIBUTIONS = {
    "IPython": "ipython",
    "PIL": "pillow",
    "griffe": "griffelib",
    "ignite": "pytorch-ignite",
    "mlflow": "mlflow-skinny",
    "pynvml": "nvidia-ml-py",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
"""Modules that are called otherwise than what one installs."""


def setup() -> ConfigParser:
    found = ConfigParser(comment_prefixes=("#",))
    found.read(ROOT / "setup.cfg", encoding="utf-8")
    return found


def recipe() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text("utf-8"))
    return found


def plain(requirement: str) -> str:
    """Return the name of a requirement, as indexes compare it."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=!~; ]", requirement.strip())[0]).lower()


def asked_for(text: str) -> set[str]:
    return {plain(line) for line in text.splitlines() if line.strip()} - {"ignite-hooks"}


def required() -> set[str]:
    return asked_for(setup()["options"]["install_requires"])


def optional() -> set[str]:
    return set().union(*map(asked_for, setup()["options.extras_require"].values()))


def distribution(module: str) -> str:
    return DISTRIBUTIONS.get(module, plain(module))


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield the distributions that a file imports from, and whether it does so as soon as it is imported itself."""

    def below(node: ast.AST, at_once: bool) -> Iterator[tuple[str, bool]]:
        for child in ast.iter_child_nodes(node):
            modules: list[str] = []
            if isinstance(child, ast.Import):
                modules = [alias.name for alias in child.names]
            elif isinstance(child, ast.ImportFrom) and not child.level:
                modules = [child.module or ""]
            tops = {module.split(".")[0] for module in modules} - sys.stdlib_module_names - {"ignite_hooks"}
            yield from ((distribution(top), at_once) for top in tops)
            later = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Try))
            yield from below(child, at_once and not later)

    yield from below(ast.parse(path.read_text("utf-8")), True)


@functools.cache
def imported() -> set[tuple[str, bool]]:
    return {found for path in (ROOT / "ignite_hooks").rglob("*.py") for found in imports(path)}


def test_what_a_module_imports_at_once_is_required() -> None:
    # The modules of trackers are loaded when their writer is named.
    trackers = {name for path in (ROOT / "ignite_hooks/writers/trackers").glob("*.py") for name, _ in imports(path)}
    # pytest loads the module that is for pytest.
    assert {name for name, at_once in imported() if at_once} - trackers - {"pytest"} <= required()


def test_what_a_function_imports_is_required_or_an_extra() -> None:
    assert {name for name, _ in imported()} <= required() | optional()


def test_what_is_required_is_imported() -> None:
    assert required() <= {name for name, _ in imported()}


def test_what_the_documentation_imports_is_an_extra() -> None:
    docs = asked_for(setup()["options.extras_require"]["docs"])
    assert {name for name, _ in imports(ROOT / "docs" / "generate" / "docstrings.py")} <= docs


def test_each_requirement_has_one_version_in_the_constraints() -> None:
    text = (ROOT / "constraints.txt").read_text("utf-8")
    pins = [plain(line) for line in text.splitlines() if line and not line.startswith("#")]
    assert len(pins) == len(set(pins))
    assert required() | optional() <= set(pins)
    assert all(re.fullmatch(r"#.*|[\w.-]+==[\w.!+]+|", line) for line in text.splitlines())


def test_the_lowest_versions_are_those_of_setup() -> None:
    text = (ROOT / ".github" / "lowest.txt").read_text("utf-8")
    lowest = dict(line.split("==") for line in text.splitlines() if not line.startswith("#"))
    bounds = re.findall(r"^([\w.-]+)>=([\d.]+)", setup()["options"]["install_requires"], re.MULTILINE)
    short = {name: re.sub(r"(\.0)+$", "", version) for name, version in lowest.items()}
    assert {plain(name): bound for name, bound in bounds} == short


def test_citation_and_conda_recipe_have_the_version_of_the_package() -> None:
    version = re.findall(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text("utf-8"), re.MULTILINE)
    assert setup()["metadata"]["version"] == "attr: ignite_hooks.version.__version__"
    assert version == [recipe()["context"]["version"]] == [__version__]


def test_the_conda_recipe_requires_what_setup_requires() -> None:
    renamed = {"torch": "pytorch", "matplotlib": "matplotlib-base"}
    renamed |= {name: f"python-{name}" for name in ("xxhash", "zlib-ng")}
    lines = [line for line in setup()["options"]["install_requires"].splitlines() if line.strip()]
    asked = {plain(line): line[len(plain(line)) :].strip() for line in lines}
    run = [line.partition(" ") for line in recipe()["requirements"]["run"]]
    assert {name: bound for name, _, bound in run if name != "python"} == {
        renamed.get(name, name): bound for name, bound in asked.items()
    }
    assert recipe()["about"]["summary"] == setup()["metadata"]["description"]
