"""Compare the pages that MkDocs and Zensical make of one folder: ``python -m docs.generate.builders``.

Zensical reads ``mkdocs.yml``. Where it is not installed, that is said and nothing is compared.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from docs.generate.pages import ROOT

OWN = ("404.html",)
"""Pages that are a builder's own."""


def pages_of(site: Path) -> set[str]:
    """Return the pages of a site that has been built."""
    return {path.relative_to(site).as_posix() for path in site.rglob("*.html")} - {*OWN}


def configuration() -> str:
    """Return ``mkdocs.yml`` for a folder of its own, where the pages are in ``docs``."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    text = re.sub("^docs_dir: .*$", "docs_dir: docs", text, flags=re.MULTILINE)
    return text.replace("[docs/generate/", f"[{ROOT}/docs/generate/")


def settings_in(folder: Path) -> None:
    """Write the settings of both builders into a folder that has the pages in ``docs``."""
    (folder / "mkdocs.yml").write_text(configuration(), encoding="utf-8")
    # The API is looked for beside the configuration.
    (folder / "ignite_hooks").symlink_to(ROOT / "ignite_hooks")


def built_by_zensical(folder: Path, python: str = sys.executable) -> Path:
    """Return the site that Zensical builds of the pages in a folder; it wants them below its configuration."""
    settings_in(folder)
    subprocess.run([python, "-m", "zensical", "build", "--strict"], cwd=folder, check=True)
    return folder / "site"


def main(arguments: list[str]) -> int:
    """Return 0 if both make the same pages, or one of them is not there."""
    site = ROOT / "site" if not arguments else Path(arguments[0])
    if importlib.util.find_spec("zensical") is None:
        print("Zensical is not installed, so its pages are not compared: pip install zensical")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / ".cache" / "docs", Path(folder) / "docs")
        theirs = pages_of(built_by_zensical(Path(folder)))
    ours = pages_of(site)
    for words, some in (("only by MkDocs", ours - theirs), ("only by Zensical", theirs - ours)):
        if some:
            print(f"{words}: {', '.join(sorted(some))}")
    print(f"MkDocs makes {len(ours)} pages, Zensical {len(theirs)}")
    return int(ours != theirs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
