"""The documentation names what exists: links, functions, settings, figures."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import ignite.handlers
import pytest
import yaml
from ignite.engine import Events

from ignite_hooks import build_hook
from ignite_hooks.config.validate import validate_settings
from ignite_hooks.plan.plan import Plan
from ignite_hooks.plan.points import POINTS, point_named
from ignite_hooks.registry import HOOKS
from ignite_hooks.trainer.registries import DATASETS, MODELS, OPTIMIZERS, SCHEDULERS

ROOT = Path(__file__).parent.parent
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted(ROOT.glob("docs/*.md")),
    *sorted(ROOT.glob("docs/decisions/*.md")),
    *sorted(
        path
        for folder in ("notebooks", "tests", "benchmarks", "examples", "configs")
        for path in ROOT.glob(f"{folder}/*.md")
    ),
]
ENTRY = re.compile(r"\{type: [^{}`]*(?:\{[^{}]*\}[^{}`]*)*\}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", text) + re.findall(r'src="([^"]+)"', text)
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_entries_that_are_shown_can_be_written(page: Path) -> None:
    wrong = []
    for text in ENTRY.findall(page.read_text(encoding="utf-8")):
        entry = yaml.safe_load(text)
        if (
            not isinstance(entry, dict)
            or entry["type"].startswith("My")
            or ":" in entry["type"]
            or "wait, warmup" in text
        ):
            continue
        name, handler = entry.pop("type"), "ignite.handlers."
        if name.startswith(handler):
            assert hasattr(ignite.handlers, name.removeprefix(handler)), name
        elif any(name in others for others in (MODELS, DATASETS, OPTIMIZERS, SCHEDULERS)):
            continue
        elif name in HOOKS:
            wrong += [f"{text}: {problem}" for problem in validate_settings(HOOKS.get(name), entry, name)]
        else:
            wrong.append(f"{text}: no such hook")
    assert wrong == []


def names_in(path: Path) -> set[str]:
    """Return the functions, classes, methods and constants that a module defines."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{child.name}" for child in node.body if isinstance(child, ast.FunctionDef)}
        if isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_to_code_name_what_is_there(page: Path) -> None:
    links = re.findall(r"\[`?([^\]`]+)`?\]\(([^)#:]+\.py)#([^)]+)\)", page.read_text(encoding="utf-8"))
    assert [name for words, _, name in links if words != name] == []
    assert [(path, name) for _, path, name in links if name not in names_in(page.parent / path)] == []
    assert page.name != "architecture.md" or len(links) > 60


def test_the_architecture_shows_the_layers_that_are_checked() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    assert "```\n" + "\n".join(layers) + "\n```" in (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_contributing_says_where_every_package_and_module_is() -> None:
    table = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Where things go")[2]
    named = set(re.findall(r"`([\w/.]+)`", "".join(re.findall(r"^\| (`.+?) \|", table, re.MULTILINE))))
    package = ROOT / "ignite_hooks"
    folders = {f"{path.parent.name}/" for path in package.glob("*/__init__.py")}
    modules = {path.name for path in package.glob("*.py") if not path.name.startswith("__")} - {"version.py"}
    assert named == folders | modules


def test_every_package_says_what_belongs_there() -> None:
    packages = {path.parent for path in (ROOT / "ignite_hooks").rglob("__init__.py")} - {ROOT / "ignite_hooks"}
    assert [str(folder) for folder in sorted(packages) if not (folder / "README.md").exists()] == []


def test_the_changelog_says_where_modules_have_moved() -> None:
    table = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").partition("have moved:")[2].partition("\n### ")[0]
    rows = re.findall(r"^\| (`.+) \| (.+) \|$", table, re.MULTILINE)
    assert len(rows) > 40
    for before, now in rows:
        new = re.findall(r"`([\w.*]+)`", now)
        assert [name for name in new if not list((ROOT / "ignite_hooks").glob(f"{name.replace('.', '/')}.py"))] == []
        old = re.findall(r"`([\w.]+)`", before)
        assert [name for name in old if (ROOT / "ignite_hooks" / f"{name.replace('.', '/')}.py").exists()] == []


def test_every_decision_is_listed_once_in_the_order_of_numbers() -> None:
    pages = sorted(path.name for path in ROOT.glob("docs/decisions/[0-9]*.md"))
    numbers = [page[:4] for page in pages]
    assert len({*numbers}) == len(numbers), "two pages have one number: take the next one for the newer"
    text = (ROOT / "docs/decisions/README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^- \[(\d{4}) [^\]]+\]\(([^)]+)\)", text, re.MULTILINE)
    assert listed == [(page[:4], page) for page in pages]


def test_the_readme_has_at_most_170_lines() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 170


def test_the_readme_names_every_hook_and_links_to_its_file() -> None:
    rows = dict(re.findall(r"\[`(\w+)`\]\((ignite_hooks/[\w/.]+)\)", (ROOT / "README.md").read_text(encoding="utf-8")))
    classes = {cls.__name__: cls for cls in map(HOOKS.get, HOOKS) if cls.__module__.startswith("ignite_hooks.")}
    assert rows == {name: cls.__module__.replace(".", "/") + ".py" for name, cls in classes.items()}


def test_figures_of_promises_stand_in_the_pages_that_prove_them() -> None:
    promises = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Five promises")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| .+\. \| (.+\*\*.+)\]\((.+)\) \|$", promises, re.MULTILINE)
    assert len(rows) == 5
    for proof, page in rows:
        figures = re.findall(r"\*\*([^*]+)\*\*", proof)
        text = (ROOT / page).read_text(encoding="utf-8")
        assert figures
        assert [figure for figure in figures if not re.search(rf"(?<![\d.]){re.escape(figure)}(?!\d)", text)] == []


def test_the_migration_page_names_only_hooks_that_exist() -> None:
    rows = re.findall(
        r"^\|[^|]+\|([^|]+)\|", (ROOT / "docs" / "coming-from.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    named = {name for row in rows for name in re.findall(r"\b([A-Z]\w+Hook)\b", row)}
    assert len(named) > 12
    assert sorted(named - set(HOOKS)) == []


def test_points_have_the_names_of_the_table() -> None:
    text = (ROOT / "docs" / "points.md").read_text(encoding="utf-8").partition("## Names from elsewhere")[2]
    for ours, alias, event, *_ in re.findall(r"^\| `(\w+)` \|([^|]*)\|([^|]*)\|", text, re.MULTILINE):
        assert ours in POINTS
        found = re.findall(r"`(\w+)`", alias)
        assert not found or point_named(found[0]).name == (found[1] if len(found) > 1 else ours)
        assert all(hasattr(Events, name) for name in re.findall(r"`([A-Z_]+)`", event))


def test_the_diagram_has_all_points_in_plan_order() -> None:
    root = ElementTree.fromstring((ROOT / "docs" / "points.svg").read_text(encoding="utf-8"))
    texts = ["".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert [p for p in POINTS if "test" not in p and not any(re.search(rf"\b{p}\b", text) for text in texts)] == []
    needed = {"EarlyStoppingHook": {"monitor": "val_loss"}}
    lists: list[list[tuple[str, int]]] = [[]]
    for text, following in zip(texts, [*texts[1:], ""], strict=True):
        if text in HOOKS:
            lists[-1].append((text, int(following)))
        elif lists[-1] and not text.isdecimal():
            lists.append([])
    shown = [found for found in lists if found]
    for point, found in zip(("before_run", "after_train_iter", "after_val_epoch"), shown, strict=True):
        settings = {"by_epoch": False} if point == "after_train_iter" else {}
        hooks: dict[str, Any] = {}
        for name, _ in found:
            given = {**needed.get(name, {}), **(settings if name in ("CheckpointHook", "EvalHook") else {})}
            hooks[name] = build_hook({"type": name, **given})
        slots = Plan(hooks).at(point)
        order = list(dict.fromkeys((slot.hook, slot.priority) for slot in slots))
        assert order == found, point


def test_the_reference_names_members_that_are_there() -> None:
    griffe = pytest.importorskip("griffe")
    package = griffe.load("ignite_hooks", search_paths=[ROOT], allow_inspection=False)
    listed = 0
    for page in ROOT.glob("docs/api/*.md"):
        for path, members in re.findall(
            r"^::: ([\w.]+)\n    options:\n      members: \[([^]]+)\]", page.read_text("utf-8"), re.M
        ):
            thing = package[path.removeprefix("ignite_hooks.")]
            known = (thing.final_target if thing.is_alias else thing).members
            names = [name.strip() for name in members.split(",") if name.strip()]
            assert [name for name in names if name not in known] == []
            listed += len(names)
    assert listed > 40
