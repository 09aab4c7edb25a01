"""The pages of the site: one for each hook, with an example that runs; built without a warning, every link followed."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.generate import builders, hook_pages, links, releases
from docs.generate.__main__ import guides_of, write
from docs.generate.example_runs import EXAMPLES, TRACKERS, Shown, configuration, run_example
from docs.generate.pages import PAGES, for_the_site, notebook_page, to_hooks
from docs.generate.scenes import scene_of
from docs.generate.sections import sections
from ignite_hooks.config.describe import describe
from ignite_hooks.config.validate import validate_settings
from ignite_hooks.registry import HOOKS
from ignite_hooks.trainer.registries import CRITERIA, DATASETS, METRICS, MODELS, OPTIMIZERS, SCHEDULERS
from ignite_hooks.trainer.sections import Evaluation, Training
from tests import warm

pytestmark = pytest.mark.usefixtures("few_objects")

ROOT = Path(__file__).parent.parent
NAMES = hook_pages.names()
LONG = os.environ.get("IGNITE_HOOKS_LONG") == "1"
PRINTS = {
    "CheckpointHook": "a save takes",
    "EarlyStoppingHook": "val_loss has not improved for 1 evaluation",
    "FreezeHook": "epoch 3: what was frozen is trained from now on",
    "LRFinderHook": "suggested learning rate",
    "LambdaHook": "epoch 1 is done",
    "OOMObserverHook": "out of memory in iteration 8: see work_dirs/example/oom/rank0.txt",
    "ParamSchedulerHook": "lr 2.50e-02",
    "ProgressBarHook": "100 %",
    "PruningHook": "pruned by the search",
    "SWAHook": "the mean of the weights of 2 epochs",
    "YOLOXModeSwitchHook": "without Mosaic, MixUp",
}
"""What some examples have to print."""
DRAWN = (
    "DetVisualizationHook", "FeatureMapHook", "GradientFlowHook", "HistoryPlotHook", "LRFinderHook",
    "SegVisualizationHook", "VisualizationHook",
)  # fmt: skip
"""The hooks whose pages have a picture."""


# -- a page for each hook ----------------------------------------------------------------------------------------


def test_every_hook_has_an_example() -> None:
    assert sorted(EXAMPLES) == sorted(NAMES)
    assert {*PRINTS, *DRAWN, *TRACKERS} <= {*NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_an_example_names_its_hook_with_settings_that_it_has(name: str) -> None:
    entries = yaml.safe_load(configuration(name))["hooks"]
    entries = [{"type": entry} if isinstance(entry, str) else dict(entry) for entry in entries]
    assert name in [entry["type"] for entry in entries]
    problems = [validate_settings(HOOKS.get(entry.pop("type")), entry, name) for entry in entries]
    assert [*problems] == [[]] * len(entries)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in TRACKERS])
def test_an_example_runs_and_shows_what_its_hook_does(name: str) -> None:
    shown = run_example(name)
    assert shown.plan, "it acts nowhere"
    assert "failed" not in shown.printed or name == "OOMObserverHook"
    assert PRINTS.get(name, "") in shown.printed
    assert (name in DRAWN) == any(picture.startswith(b"\x89PNG") for picture in shown.pictures.values())
    assert set(shown.texts) <= set(shown.files)
    assert not EXAMPLES[name].get("numbers") or shown.numbers


@pytest.mark.slow
@pytest.mark.skipif(not LONG, reason="imports each tracker; make docs runs these examples, too")
@pytest.mark.parametrize("name", TRACKERS)
def test_the_example_of_a_tracker_runs_without_a_server(name: str) -> None:
    pytest.importorskip(name.removesuffix("Hook").lower(), reason="the tracker is not installed")
    code = f"from docs.generate.example_runs import run_example; print(run_example({name!r}).calls)"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout.split()[-1]) > 0


def test_an_example_leaves_the_process_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = dict(os.environ)
    run_example("LoggerHook")
    assert dict(os.environ) == before
    assert Path.cwd() == tmp_path
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_page_has_every_setting_and_the_example(name: str) -> None:
    text = hook_pages.page(name, None, {})
    assert text.startswith(f"# {name}\n")
    common = ("name", "priority", "on_error")
    missing = [one.name for one in describe(HOOKS.get(name)).settings if f"`{one.name}`" not in text]
    assert [one for one in missing if one not in common] == []
    assert configuration(name) in text
    assert "## With all settings" in text
    assert [f"{word}=" for word in scene_of(name).names if f"{word}={word}" not in text] == []


def test_a_page_says_what_its_example_has_shown() -> None:
    row = {"point": "after_val_epoch", "priority": "90", "how often": "always"}
    shown = Shown(
        printed="one\n" * 30,
        pictures={"visualization/a.png": b""},
        files=("logs/20261120_111506.log", "tensorboard/events.out.tfevents.1.host.2.0"),
        texts={"a.txt": "inside"},
        numbers={"val_loss": 0.25},
        plan=(row,),
        calls=3,
        typical=0.00001,
        longest=0.02,
    )
    text = hook_pages.page("EarlyStoppingHook", shown, {"averages.md": "Averages and early stopping"})
    assert "| `after_val_epoch` | 90 | always |" in text
    assert f"```text\n{'one' + chr(10)}" in text
    assert text.count("one\n") == hook_pages.MOST_LINES
    assert "\n...\n" in text
    assert "![a.png of the example](pictures/EarlyStoppingHook_a.png)" in text
    assert "`logs/<time>.log`, `tensorboard/events.out.tfevents.*`" in text
    assert "| `val_loss` | 0.2500 |" in text
    assert "```text\ninside\n```" in text
    assert "called it 3 times: the middle call took 10 µs, and the\nlongest one 20 ms" in text
    assert "[Averages and early stopping](../averages.md)" in text


def test_names_in_a_table_are_not_set_in_italics() -> None:
    text = hook_pages.page("CheckpointHook", None, {})
    assert r"best\_&lt;metric>\_epoch\_&lt;N>.pth" in text


def test_the_list_of_hooks_is_current() -> None:
    text = (ROOT / "docs" / "hooks.md").read_text(encoding="utf-8")
    assert text.endswith(f"-->\n\n{hook_pages.index()}"), "run: python -m docs.generate --index"


def test_a_hook_leads_to_the_guides_that_speak_of_it() -> None:
    assert guides_of("EarlyStoppingHook")["averages.md"] == "Averages of the weights, and early stopping"


# -- the pages of the repository ---------------------------------------------------------------------------------


def test_the_site_has_every_section_with_every_setting() -> None:
    text = sections()
    for registry in (MODELS, DATASETS, OPTIMIZERS, SCHEDULERS, CRITERIA, METRICS):
        for name in registry:
            assert f"### {name}\n" in text or f"`{name}`" in text, name
    for cls in (Training, Evaluation, *map(MODELS.get, MODELS), *map(DATASETS.get, DATASETS)):
        for setting in describe(cls).settings:
            assert f"| `{setting.name}` |" in text, (cls, setting.name)
    assert "### CNN" in text
    assert "Also: `cnn`." in text
    assert "| `lr` |" in text
    assert "`params`" not in text


@pytest.mark.parametrize(
    ("source", "text", "shown"),
    [
        ("README.md", "[a](docs/points.md#order)", "[a](points.md#order)"),
        ("README.md", "[b](benchmarks/README.md) [`c`](setup.cfg)", "`benchmarks/README.md` `c`"),
        ("README.md", "![d](docs/gallery/curves.png)\n```\n[e](f)\n```", "![d](gallery/curves.png)\n```\n[e](f)\n```"),
        ("README.md", "[`EMAHook`](ignite_hooks/hooks/ema_hook.py)", "[`EMAHook`](hooks/EMAHook.md)"),
        ("docs/decisions/0002-a.md", "[`AHook`](../../ignite_hooks/hooks/a.py)", "[`AHook`](../hooks/AHook.md)"),
        ("docs/pictures.md", "[g](gallery/README.md) [b](benchmarks/)", "[g](gallery.md) `docs/benchmarks`"),
        ("docs/limits.md", "[`f`](../ignite_hooks/text.py#table) [c](../configs/README.md)", "`f` `configs/README.md`"),
        ("docs/decisions/0006-exact-resume.md", "[a](../points.md) [b](README.md)", "[a](../points.md) [b](README.md)"),
    ],
)  # fmt: skip
def test_links_out_of_the_site_become_plain_names(source: str, text: str, shown: str) -> None:
    assert for_the_site(text, source) == shown


def test_the_first_mention_of_a_hook_leads_to_its_page() -> None:
    text = (
        "# `EMAHook`\n`EMAHook` and `EMAHook`, [`EvalHook`](a.md), `XHook`\n```\n`EvalHook`\n```\n`EvalHook` `evaluate`"
    )
    assert to_hooks(text, ["EMAHook", "EvalHook"]) == (
        "# `EMAHook`\n[`EMAHook`](hooks/EMAHook.md) and `EMAHook`, [`EvalHook`](a.md), `XHook`\n```\n`EvalHook`\n```\n"
        "[`EvalHook`](hooks/EvalHook.md) `evaluate`"
    )


def test_an_executed_notebook_becomes_a_page() -> None:
    panel = '<div>run <a href="./work/report.html">report</a> <a href="https://tracker">page</a></div>'
    outputs = [
        {"output_type": "stream", "text": ["one\n"]},
        {"output_type": "stream", "text": ["\x1b[31mtwo\x1b[0m\n"]},
        {"output_type": "display_data", "data": {"text/html": [panel], "text/plain": ["run"]}},
        {"output_type": "execute_result", "data": {"image/png": "QUJD\n", "text/plain": ["<Figure>"]}},
    ]
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "text"]},
        {"cell_type": "code", "source": ["train()"], "outputs": outputs},
    ]
    assert notebook_page({"cells": cells}).split("\n\n") == [
        "# Title\ntext",
        "```python\ntrain()\n```",
        "```text\none\ntwo\n```",
        '<div class="output"><div>run report <a href="https://tracker">page</a></div></div>',
        '<img src="data:image/png;base64,QUJD" alt="output">\n',
    ]


def listed(nav: Any) -> list[str]:
    """Return the pages of a navigation."""
    if isinstance(nav, str):
        return [nav]
    return [page for part in (nav.values() if isinstance(nav, dict) else nav) for page in listed(part)]


def test_the_navigation_has_every_page_once() -> None:
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    pages = {page for page in PAGES.values() if not page.startswith("decisions/0")}
    pages |= {f"hooks/{name}.md" for name in NAMES}
    pages |= {f"api/{path.name}" for path in (ROOT / "docs" / "api").glob("*.md")}
    assert sorted(listed(nav)) == sorted(pages)
    (hooks,) = (part["Hooks"] for part in nav if "Hooks" in part)
    assert {title: listed(found) for part in hooks[1:] for title, found in part.items()} == {
        title: [f"hooks/{name}.md" for name in names] for title, names in hook_pages.groups().items()
    }


# -- links, and a folder for each release ------------------------------------------------------------------------

SITE = {
    "index.html": '<a href="a.html#here">1</a> <a href="sub/b.html">2</a> <img src="sub/c.png"> <a href="https://x.org">',
    "a.html": '<h1 id="here">A</h1> <a href="#here">1</a> <a name="old"></a> <a href="mailto:a@b.c">m</a>',
    "sub/b.html": '<a href="../a.html#old">1</a> <a href="/a.html">2</a>',
    "sub/c.png": "",
}


def made(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_links_that_lead_somewhere_are_no_problem(tmp_path: Path) -> None:
    assert links.problems(made(tmp_path, SITE)) == []


@pytest.mark.parametrize(
    ("link", "problem"),
    [
        ('<a href="none.html">', "none.html leads nowhere"),
        ('<a href="sub/">', "sub/ leads nowhere"),
        ('<img src="sub/d.png">', "sub/d.png leads nowhere"),
        ('<link href="style.css">', "style.css leads nowhere"),
        ('<a href="../a.html">', "../a.html leads nowhere"),
        ('<a href="a.html#there">', "a.html#there: a.html has no anchor #there"),
        ('<a href="#there">', "#there: new.html has no anchor #there"),
        ('<a href="https:a.html">', "https:a.html is no address"),
        ('<a href="htp://a.org/">', "htp://a.org/ is no address"),
        ('<p id="a"></p><p id="a"></p>', "two anchors #a"),
    ],
)
def test_a_link_that_leads_nowhere_is_told(link: str, problem: str, tmp_path: Path) -> None:
    made(tmp_path, {**SITE, "new.html": link})
    assert links.problems(tmp_path) == [f"new.html: {problem}"]


def test_a_site_has_a_folder_for_each_release_and_leads_to_the_newest(tmp_path: Path) -> None:
    made(tmp_path, {f"{version}/{name}": text for version in ("0.9.0", "0.10.0", "dev") for name, text in SITE.items()})
    made(tmp_path, {"latest/gone.html": "", "0.10.0/404.html": '<a href="/a.html">'})
    assert releases.arrange(tmp_path) == ["0.10.0", "0.9.0", "dev"]
    found = json.loads((tmp_path / "versions.json").read_text())
    assert [(one["version"], one["aliases"]) for one in found] == [("0.10.0", ["latest"]), ("0.9.0", []), ("dev", [])]
    assert 'url=../../0.10.0/sub/b.html"' in (tmp_path / "latest/sub/b.html").read_text()
    assert 'url=latest/index.html"' in (tmp_path / "index.html").read_text()
    assert not (tmp_path / "latest/gone.html").exists()
    assert [one for one in links.problems(tmp_path) if "/sub/b.html: /a.html" not in one] == []


def test_without_a_folder_of_a_release_nothing_is_arranged(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="run make docs"):
        releases.arrange(tmp_path)


# -- the whole of it -----------------------------------------------------------------------------------------------


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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with all pages, two of them with the run of an example, and with the settings of the builders."""
    found = tmp_path_factory.mktemp("site")
    write(found / "docs", lambda name: run_example(name) if name in ("CheckpointHook", "VisualizationHook") else None)
    builders.settings_in(found)
    return found


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_needs_no_network(folder: Path) -> None:
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    pytest.importorskip("material")
    command = [sys.executable, "-W", "ignore", "-m", "mkdocs", "build", "--strict"]
    done = warm.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr[-3000:]
    site = folder / "site"
    names = builders.pages_of(site)
    assert {"index.html", "hooks.html", "coming-from.html", "points.html", "hooks/EMAHook.html"} <= names
    assert links.problems(site) == []
    pages = sorted(site.rglob("*.html"))
    loaded = {url for page in pages for url in Loaded(page.read_text("utf-8")).found if not url.startswith("data:")}
    outside = {url for url in loaded if "//" in url}
    assert outside == set()
    assert "attach_hooks" in (site / "api" / "attaching.html").read_text("utf-8")
    found = json.loads((site / "search" / "search_index.json").read_text("utf-8"))["docs"]
    assert [one["location"] for one in found if re.search("Number of evaluations without improvement", one["text"])]


@pytest.mark.slow
def test_zensical_makes_the_same_pages(folder: Path, tmp_path: Path) -> None:
    if importlib.util.find_spec("zensical") is None:
        pytest.skip("Zensical is not installed: pip install zensical")
    shutil.copytree(folder / "docs", tmp_path / "docs")
    site = builders.built_by_zensical(tmp_path)
    pages = [path.relative_to(folder / "docs").with_suffix(".html") for path in folder.rglob("docs/**/*.md")]
    made_of = {path.with_stem(path.stem.replace("README", "index")).as_posix() for path in pages}
    assert builders.pages_of(site) == made_of
    assert links.problems(site) == []
