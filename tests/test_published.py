"""`docs.generate.published`: what an index of packages shows leads to the repository."""

from __future__ import annotations

import re
import shutil
from configparser import ConfigParser
from pathlib import Path

import pytest
import yaml

from docs.generate.published import BADGES, ROOT, absolute, publish

ADDRESS = "https://github.com/somebody/something"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a copy of what is changed, that is published."""
    for name in ("README.md", "setup.cfg", "CITATION.cff"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "configs").mkdir()
    publish(tmp_path, f"{ADDRESS}/", "v9.9.9")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a](docs/a.md)", f"[a]({ADDRESS}/blob/v1/docs/a.md)"),
        ("[a](docs/a.md#b)", f"[a]({ADDRESS}/blob/v1/docs/a.md#b)"),
        ("[a](./docs/a.md)", f"[a]({ADDRESS}/blob/v1/docs/a.md)"),
        ("[configs](configs/)", f"[configs]({ADDRESS}/tree/v1/configs)"),
        ("![a](docs/a.png)", f"![a]({ADDRESS}/raw/v1/docs/a.png)"),
        ('<img src="docs/a.png" alt="b">', f'<img src="{ADDRESS}/raw/v1/docs/a.png" alt="b">'),
        ('<a href="docs/a.md">', f'<a href="{ADDRESS}/blob/v1/docs/a.md">'),
        ("[a](#b) [c](https://host/d) [e](mailto:f)", "[a](#b) [c](https://host/d) [e](mailto:f)"),
        ("```\n[a](docs/a.md)\n```", "```\n[a](docs/a.md)\n```"),
    ],
)
def test_links_lead_to_the_repository(text: str, expected: str) -> None:
    assert absolute(text, ADDRESS, "v1") == expected


def test_no_link_of_the_published_readme_needs_the_repository_around_it(checkout: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", (checkout / "README.md").read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r'\]\(([^)#]+)|(?:src|href)="([^"]+)"', text)
    assert len(targets) > 20
    assert [target for pair in targets for target in pair if target and not target.startswith("https://")] == []


def test_links_of_the_published_readme_are_files_of_the_repository(checkout: Path) -> None:
    text = (checkout / "README.md").read_text("utf-8")
    paths = re.findall(rf"{ADDRESS}/(?:blob|tree|raw)/v9\.9\.9/([^)\"#\s]+)", text)
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert "docs/report.png" in paths


def test_badges_are_of_workflows_that_there_are(checkout: Path) -> None:
    line = (checkout / "README.md").read_text("utf-8").splitlines()[2]
    assert line.count("badge.svg") == len(BADGES)
    assert [file for file in BADGES.values() if not (ROOT / ".github" / "workflows" / file).exists()] == []


def test_the_metadata_names_the_addresses(checkout: Path) -> None:
    setup = ConfigParser(comment_prefixes=("#",))
    setup.read(checkout / "setup.cfg", encoding="utf-8")
    lines = setup["metadata"]["project_urls"].strip().splitlines()
    assert dict(line.split(" = ") for line in lines) == {
        "Source": ADDRESS,
        "Documentation": "https://somebody.github.io/something/",
        "Changelog": f"{ADDRESS}/blob/v9.9.9/CHANGELOG.md",
        "Issues": f"{ADDRESS}/issues",
    }
    assert setup["metadata"]["license"] == "Apache-2.0"
    assert yaml.safe_load((checkout / "CITATION.cff").read_text("utf-8"))["repository-code"] == ADDRESS


def test_what_is_published_is_not_published_again(checkout: Path) -> None:
    with pytest.raises(SystemExit, match="says already"):
        publish(checkout, ADDRESS, "v9.9.9")


def test_the_release_says_where_it_is() -> None:
    release = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8"))
    commands = [step.get("run", "") for step in release["jobs"]["build"]["steps"]]
    at = next(number for number, command in enumerate(commands) if "docs.generate.published" in command)
    assert at < commands.index("make dist")
