"""Pages of the site that are files of the repository, with links that lead to pages."""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
EXECUTED = ROOT / ".cache" / "notebooks"
"""Where `executed.py` leaves copies with outputs."""
TAKEN = {"index.md": "README.md", "changelog.md": "CHANGELOG.md", "gallery.md": "docs/gallery/README.md"}
TAKEN |= {f"notebooks/{path.stem}.md": f"notebooks/{path.name}" for path in NOTEBOOKS}
"""Pages that are files of the repository."""
PAGES = {source: page for page, source in TAKEN.items()} | {
    path.relative_to(ROOT).as_posix(): path.relative_to(ROOT / "docs").as_posix()
    for path in (*ROOT.glob("docs/*.md"), *ROOT.glob("docs/decisions/*.md"))
}
"""The pages of the site, by their files in the repository."""
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:|#)([^)#]+)(#[^)]*)?\)")
_MENTION = re.compile(r"^```.*?^```$|^#.*?$|\[[^\]]*\]\([^)]*\)|`(?P<name>\w+Hook)`", re.MULTILINE | re.DOTALL)
_FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def notebook_page(notebook: Mapping[str, Any]) -> str:
    """Return a notebook as a page: its texts, its code, and what that shows."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        # A kernel sends what is printed in pieces.
        shown = [_output(output) for output in cell.get("outputs", [])]
        for is_text, group in itertools.groupby(shown, key=lambda one: isinstance(one, list)):
            pieces = [*group]
            text = "".join(itertools.chain.from_iterable(pieces)).strip()
            parts += [f"```text\n{text}\n```"] if is_text else pieces
    return "\n\n".join(parts) + "\n"


def _output(output: Mapping[str, Any]) -> Any:
    """Return an output as markup, or as a list with a text."""
    data = output.get("data", {})
    if "image/png" in data:
        return f'<img src="data:image/png;base64,{"".join(data["image/png"]).strip()}" alt="output">'
    if "text/html" in data:
        # The files that a panel links to are not on the site.
        plain = re.sub(r'<a href="\./[^"]*">(.*?)</a>', r"\1", "".join(data["text/html"]))
        return f'<div class="output">{" ".join(plain.split(chr(10)))}</div>'
    text = "".join(output.get("text", data.get("text/plain", output.get("traceback", ""))))
    return [re.sub(r"\x1b\[[0-9;]*m", "", text)]


def for_the_site(markdown: str, source: str) -> str:
    """Return a file of the repository as a page of the site.

    Links to pages stay links, hooks lead to the page of all hooks, and other files are named, as the site does not
    have them. Code is left alone.
    """
    parts = _FENCE.split(markdown)
    return "".join(part if part.startswith("```") else _relinked(part, source) for part in parts)


def _relinked(text: str, source: str) -> str:
    folder = posixpath.dirname(source)
    page_folder = posixpath.dirname(next((page for page, file in TAKEN.items() if file == source), source[5:]))

    def link(found: re.Match[str]) -> str:
        words, target, anchor = found.groups()
        path = posixpath.normpath(posixpath.join(folder, target))
        if path in PAGES:
            return f"[{words}]({posixpath.relpath(PAGES[path], page_folder or '.')}{anchor or ''})"
        if path.startswith("ignite_hooks/hooks/") and words.endswith("Hook`"):
            page = f"hooks/{words.strip('`')}.md"
            return f"[{words}]({posixpath.relpath(page, page_folder or '.')})"
        if path.startswith("docs/") and not (ROOT / path).is_dir():
            return found.group()
        return words if "`" in words else f"`{path}`"

    text = _LINK.sub(link, text)
    if source.startswith("docs/gallery"):
        return text.replace("](", "](gallery/")
    return text if folder else text.replace('src="docs/', 'src="').replace("](docs/", "](")


def to_hooks(markdown: str, names: Collection[str]) -> str:
    """Let the first mention of each hook in a guide lead to its page; headings, links and code are left alone."""
    seen: set[str] = set()

    def link(found: re.Match[str]) -> str:
        name = found.group("name")
        if name is None or name not in names or name in seen:
            return found.group()
        seen.add(name)
        return f"[`{name}`](hooks/{name}.md)"

    return _MENTION.sub(link, markdown)
