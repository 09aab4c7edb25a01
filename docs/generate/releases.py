"""Folders of a site, one for each release: ``python -m docs.generate.releases [FOLDER]``.

`make docs` builds ``site/<version>/``, `make docs DOCS=dev` ``site/dev/``. This writes what is around them:
``versions.json``, by which every page offers the other releases, ``latest/``, whose pages lead to those of the newest
release, and ``index.html``, which leads there too. Folders of earlier releases stay as they are. It needs no package.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LATEST, NEXT = "latest", "dev"
"""The folder that leads to the newest release, and that of what comes after it."""
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_LEADS_ON = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>ignite_hooks</title>
<link rel="canonical" href="{target}">
<meta http-equiv="refresh" content="0; url={target}">
<script>location.replace("{target}" + location.hash)</script>
<p><a href="{target}">{target}</a></p>
</html>
"""


def releases(site: Path) -> list[str]:
    """Return the releases that a site has a folder of, the newest first, and last what comes after them.

    Numbers are compared as numbers: 0.10.0 is newer than 0.9.0.
    """
    folders = [path.name for path in site.iterdir() if path.is_dir()]
    found = [name for name in folders if _VERSION.fullmatch(name)]
    found.sort(key=lambda name: [int(part) for part in name.split(".")], reverse=True)
    return found + [name for name in folders if name == NEXT]


def arrange(site: Path) -> list[str]:
    """Write what is around the folders of releases; return their names, the newest first."""
    found = releases(site)
    if not found:
        raise FileNotFoundError(f"{site}: no folder of a release, such as 0.2.0: run make docs")
    newest = found[0]
    for name in found:
        # Its addresses are those of a site that is no folder of another.
        (site / name / "404.html").unlink(missing_ok=True)
    listed = [{"version": name, "title": name, "aliases": [LATEST] if name == newest else []} for name in found]
    (site / "versions.json").write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")
    shutil.rmtree(site / LATEST, ignore_errors=True)
    for page in sorted((site / newest).rglob("*.html")):
        path = page.relative_to(site / newest)
        up = "../" * len(path.parts)
        target = site / LATEST / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_LEADS_ON.format(target=f"{up}{newest}/{path.as_posix()}"), encoding="utf-8")
    (site / "index.html").write_text(_LEADS_ON.format(target=f"{LATEST}/index.html"), encoding="utf-8")
    return found


def main(arguments: list[str]) -> None:
    """Arrange a site, by default that of ``make docs``."""
    site = Path(arguments[0]) if arguments else ROOT / "site"
    print(f"{site}: {', '.join(arrange(site))}, and {LATEST}")


if __name__ == "__main__":
    main(sys.argv[1:])
