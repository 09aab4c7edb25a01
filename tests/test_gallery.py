"""The script behind `make gallery` draws every kind of picture, and the gallery shows what it draws."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests import warm

ROOT = Path(__file__).parent.parent
GALLERY = ROOT / "docs" / "gallery"


def shown() -> list[Path]:
    return [file for file in GALLERY.iterdir() if file.suffix in (".png", ".gif")]


@pytest.mark.slow
def test_every_picture_of_the_gallery_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("skimage")
    command = [sys.executable, "examples/gallery.py", str(tmp_path), "--effort", "0.05"]
    done = warm.run(command, also=warm.LEARNS, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(file.name for file in shown())


@pytest.mark.parametrize("page", ["README.md", "docs/pictures.md", "docs/gallery/README.md"])
def test_pictures_that_are_shown_are_there(page: str) -> None:
    text = (ROOT / page).read_text()
    shown = re.findall(r'src="([^"]+\.png)"|\]\(([^)]+\.png)\)', text)
    assert shown
    for source in (one or other for one, other in shown):
        assert ((ROOT / page).parent / source).is_file(), source


def test_the_gallery_shows_every_picture() -> None:
    text = (GALLERY / "README.md").read_text()
    assert [file.name for file in shown() if file.name not in text] == []
