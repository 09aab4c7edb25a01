"""The documentation keeps to what is there: links, names, settings, order; and it builds without a warning."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from html.parser import HTMLParser
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
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "notebooks").glob("*.md"))]
ENTRY = re.compile(r"\{type: [^{}`]*(?:\{[^{}]*\}[^{}`]*)*\}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", text) + re.findall(r'src="([^"]+)"', text)
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_entries_that_are_shown_can_be_written(page: Path) -> None:
    wrong = []
    for text in ENTRY.findall(page.read_text(encoding="utf-8")):
        entry = yaml.safe_load(text)
        if not isinstance(entry, dict) or entry["type"].startswith("My") or "wait, warmup" in text:
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


def test_the_migration_page_names_only_hooks_that_exist() -> None:
    rows = re.findall(
        r"^\|[^|]+\|([^|]+)\|", (ROOT / "docs" / "coming-from.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    named = {name for row in rows for name in re.findall(r"\b([A-Z]\w+Hook)\b", row)}
    assert len(named) > 12
    assert sorted(named - set(HOOKS)) == []


def test_points_have_the_names_that_the_table_gives_them() -> None:
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


def site() -> Any:
    """The module that makes pages of what is kept elsewhere."""
    pytest.importorskip("griffe")
    spec = importlib.util.spec_from_file_location("ignite_hooks_site", ROOT / "docs" / "site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_site_has_every_hook_with_every_setting() -> None:
    text = site().hooks()
    names = [name for name in HOOKS if HOOKS.get(name).__module__.startswith("ignite_hooks.")]
    missing = [name for name in names if HOOKS.get(name).__name__ == name and f"\n## {name}\n" not in f"\n{text}"]
    assert missing == []
    assert "| `patience` | `10` |" in text
    assert r"best\_&lt;metric>\_epoch\_&lt;N>.pth" in text, "no word of it is set in italics"
    assert "`configs/early_stopping_hook.yaml`:\n\n```yaml\n" in text


def test_links_out_of_the_site_become_plain_names() -> None:
    text = (
        "[a](docs/points.md) [b](benchmarks/README.md) [`c`](setup.cfg) ![d](docs/gallery/curves.png)\n```\n[e](f)\n```"
    )
    assert site().for_the_site(text, "README.md") == (
        "[a](points.md) `benchmarks/README.md` `c` ![d](gallery/curves.png)\n```\n[e](f)\n```"
    )


class Loaded(HTMLParser):
    """What a page loads by itself."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        loads = given.get("src") if tag in ("script", "img", "iframe") else None
        if tag == "link" and given.get("rel") in ("stylesheet", "preload", "icon", "preconnect"):
            loads = given.get("href")
        self.found += [loads] if loads else []


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_needs_no_network(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--site-dir",
        str(tmp_path / "site"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    pages = sorted((tmp_path / "site").rglob("*.html"))
    assert {"index.html", "hooks.html", "coming-from.html", "points.html"} <= {page.name for page in pages}
    outside = {url for page in pages for url in Loaded(page.read_text("utf-8")).found if "//" in url}
    assert outside == set()
    assert "attach_hooks" in (tmp_path / "site" / "api" / "attaching.html").read_text("utf-8")
