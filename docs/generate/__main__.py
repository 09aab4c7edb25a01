"""Write the folder of Markdown that MkDocs and Zensical build: ``python -m docs.generate [FOLDER]``."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from docs.generate.example_runs import Shown, run_example
from docs.generate.hook_pages import index, names, page, picture_of
from docs.generate.pages import EXECUTED, PAGES, ROOT, for_the_site, notebook_page, to_hooks
from docs.generate.sections import sections

FOLDER = ROOT / ".cache" / "docs"
GUIDES = ROOT / "docs"
BOOST = "---\nsearch:\n  boost: {}\n---\n\n"
"""What makes a search find a page earlier or later than others."""
NO_GUIDES = ("hooks.md", "benchmarks.md", "clients.md", "versions.md", "machines.md", "scale.md", "costs.md")
"""Pages that name many hooks and explain none."""


def write(folder: Path, run: Callable[[str], Shown | None]) -> None:
    """Write every page, and the pictures and styles they show, into an empty folder.

    Args:
        folder: Where they are written; what was there is replaced.
        run: Runs the example of a hook.
    """
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(GUIDES, folder, ignore=shutil.ignore_patterns("*.py", "*.md", "*.json", "generate", "__pycache__"))
    for source, target in PAGES.items():
        _put(folder / target, found_less(target, _page_of(source)))
    for path in sorted((GUIDES / "api").glob("*.md")):
        _put(folder / "api" / path.name, path.read_text(encoding="utf-8"))
    for name in names():
        shown = run(name)
        _put(folder / "hooks" / f"{name}.md", BOOST.format(2) + page(name, shown, guides_of(name)))
        for path, picture in (shown.pictures if shown else {}).items():
            target = folder / "hooks" / picture_of(name, path)
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(picture)


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def found_less(target: str, text: str) -> str:
    """Let a search find guides and hooks before the history: decisions and the changelog name everything."""
    return (BOOST.format(0.3) if target.startswith(("decisions/", "changelog")) else "") + text


def _page_of(source: str) -> str:
    """Return a file of the repository as a page."""
    text = (ROOT / source).read_text(encoding="utf-8")
    if source.endswith(".ipynb"):
        executed = EXECUTED / Path(source).name
        text = notebook_page(json.loads(executed.read_text(encoding="utf-8") if executed.exists() else text))
    if source == "docs/sections.md":
        text = text.replace("<!-- sections -->", sections())
    text = for_the_site(text, source)
    return to_hooks(text, names()) if source.startswith("docs/") and source.count("/") == 1 else text


def guides_of(name: str) -> dict[str, str]:
    """Return the titles of the guides that speak of a hook, by their files."""
    found = {}
    for path in sorted(GUIDES.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        if path.name not in NO_GUIDES and re.search(rf"\b{name}\b", text):
            found[path.name] = text.partition("\n")[0].removeprefix("# ")
    return found


def shown_or_none(name: str) -> Shown | None:
    """Run the example of a hook; None where the package of its service is missing."""
    print(f"running the example of {name}", file=sys.stderr, flush=True)
    try:
        return run_example(name)
    except Exception as error:
        if "is not installed" in str(error):
            print(f"notice: {name} is not run: {error}", file=sys.stderr)
            return None
        raise


def main(arguments: list[str]) -> None:
    """Write the pages, or with ``--index`` the list of hooks in ``docs/hooks.md``."""
    if arguments == ["--index"]:
        path = GUIDES / "hooks.md"
        head, mark, _ = path.read_text(encoding="utf-8").partition(
            "<!-- hooks: written by python -m docs.generate --index -->"
        )
        path.write_text(f"{head}{mark}\n\n{index()}", encoding="utf-8")
        return
    write(Path(arguments[0]) if arguments else FOLDER, shown_or_none)


if __name__ == "__main__":
    main(sys.argv[1:])
