"""Check a site that has been built: ``python -m docs.generate.links [FOLDER]`` follows every link and anchor in it.

Nothing outside is asked; an address with a host only has to be well formed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from docs.generate.pages import ROOT

LOADED = {"img": "src", "script": "src", "iframe": "src", "source": "src", "video": "src", "audio": "src"}
SCHEMES = ("http", "https", "mailto", "data")


@dataclass
class Page:
    """What a page links to, and where in it one can link to."""

    links: list[str] = field(default_factory=list)
    anchors: list[str] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self, page: Page) -> None:
        super().__init__()
        self._page = page

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        name = LOADED.get(tag, "href" if tag in ("a", "link") else "")
        if given.get(name):
            self._page.links.append(given[name] or "")
        anchors = [given.get("id"), given.get("name") if tag == "a" else None]
        self._page.anchors += {anchor for anchor in anchors if anchor}


def read(path: Path) -> Page:
    """Return the links and the anchors of a page."""
    page = Page()
    _Reader(page).feed(path.read_text(encoding="utf-8"))
    return page


def problems(site: Path) -> list[str]:
    """Return every link that leads nowhere, and every anchor that is on a page twice."""
    pages = {path.relative_to(site).as_posix(): read(path) for path in sorted(site.rglob("*.html"))}
    return [f"{name}: {problem}" for name, page in pages.items() for problem in _of_page(site, pages, name, page)]


def _of_page(site: Path, pages: Mapping[str, Page], name: str, page: Page) -> Iterator[str]:
    yield from (f"two anchors #{anchor}" for anchor in sorted({*page.anchors}) if page.anchors.count(anchor) > 1)
    for link in dict.fromkeys(page.links):
        found = urlsplit(link)
        if found.scheme or found.netloc:
            if found.scheme not in SCHEMES or (found.scheme.startswith("http") and not found.netloc):
                yield f"{link} is no address"
            continue
        path = unquote(found.path)
        # An absolute path is found by a server alone, on pages for which it does not know the folder.
        target = site / path.lstrip("/") if path.startswith("/") else (site / name).parent / path
        target = target if path else site / name
        if not target.resolve().is_relative_to(site.resolve()) or not target.is_file():
            yield f"{link} leads nowhere"
            continue
        other = target.resolve().relative_to(site.resolve()).as_posix()
        anchor = unquote(found.fragment)
        if anchor and other in pages and anchor not in pages[other].anchors:
            yield f"{link}: {other} has no anchor #{anchor}"


def main(arguments: list[str]) -> int:
    """Print what is wrong; return 1 if anything is."""
    site = Path(arguments[0]) if arguments else ROOT / "site"
    found = problems(site)
    print("\n".join(found) or f"every link in {len(list(site.rglob('*.html')))} pages leads somewhere")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
