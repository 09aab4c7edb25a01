"""Write into a checkout where it is published: ``python -m docs.generate.published ADDRESS REF``.

No file of the repository knows its address, which a fork or a move would make wrong. An index of packages needs it:
relative links of the README lead nowhere there. The workflow `release` knows it, and runs this before it builds. It
changes ``README.md``, ``setup.cfg`` and ``CITATION.cff``, and needs no package.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[2]
BADGES = {"tests": "tests.yml", "documentation": "docs.yml"}
"""What the badges say, and the workflows that they are of."""
_FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"""(?P<before>(?P<mark>!?)\[[^\]]*\]\(|(?P<shown>src|href)=")(?!\w+:|#|/)(?P<path>[^)"#\s]+)""")


def absolute(markdown: str, address: str, ref: str, folder: Path = ROOT) -> str:
    """Return Markdown whose links lead to the files of a repository, and whose pictures are shown elsewhere too.

    Example:
        >>> absolute("![a](b.png) [c](d.md#e) [f](#g)", "https://host/me/it", "v1")
        '![a](https://host/me/it/raw/v1/b.png) [c](https://host/me/it/blob/v1/d.md#e) [f](#g)'
    """

    def leading(found: re.Match[str]) -> str:
        path = posixpath.normpath(found["path"])
        is_picture = found["mark"] or found["shown"] == "src"
        kind = "raw" if is_picture else "tree" if (folder / path).is_dir() else "blob"
        return f"{found['before']}{address}/{kind}/{ref}/{path}"

    parts = _FENCE.split(markdown)
    return "".join(part if part.startswith("```") else _LINK.sub(leading, part) for part in parts)


def badges(address: str) -> str:
    """Return a line with a badge of each workflow."""
    of = f"{address}/actions/workflows"
    return " ".join(f"[![{words}]({of}/{file}/badge.svg)]({of}/{file})" for words, file in BADGES.items())


def urls(address: str, ref: str) -> dict[str, str]:
    """Return the addresses that the metadata of the package names.

    Example:
        >>> urls("https://github.com/me/it", "v1")["Documentation"]
        'https://me.github.io/it/'
    """
    host, (owner, name) = urlsplit(address).netloc, urlsplit(address).path.strip("/").split("/")
    return {
        "Source": address,
        "Documentation": f"https://{owner}.{host.replace('github.com', 'github.io')}/{name}/",
        "Changelog": f"{address}/blob/{ref}/CHANGELOG.md",
        "Issues": f"{address}/issues",
    }


def publish(folder: Path, address: str, ref: str) -> None:
    """Write into the files of a checkout where it is published.

    Args:
        folder: The checkout.
        address: The page of the repository.
        ref: The tag or branch that links lead to.
    """
    address = address.removesuffix("/")
    found = urls(address, ref)
    setup = folder / "setup.cfg"
    metadata = setup.read_text(encoding="utf-8")
    if "project_urls" in metadata:
        raise SystemExit(f"{setup}: it says already where it is published")
    readme = folder / "README.md"
    title, _, text = readme.read_text(encoding="utf-8").partition("\n")
    readme.write_text(f"{title}\n\n{badges(address)}\n{absolute(text, address, ref, folder)}", encoding="utf-8")
    lines = "".join(f"    {name} = {url}\n" for name, url in found.items())
    named = metadata.replace("license = ", f"project_urls =\n{lines}license = ", 1)
    setup.write_text(named, encoding="utf-8")
    citation = folder / "CITATION.cff"
    citation.write_text(
        f"{citation.read_text(encoding='utf-8')}repository-code: {address}\nurl: {found['Documentation']}\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    publish(ROOT, *sys.argv[1:3])
