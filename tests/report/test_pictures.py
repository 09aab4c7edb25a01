from __future__ import annotations

import os
from pathlib import Path

import numpy
import pytest
from PIL import Image

from ignite_hooks.report import pictures, sections
from ignite_hooks.report.data import RunPage
from ignite_hooks.report.pictures import PictureFinder, embedded, size_of


def drawn(path: Path, size: int = 8, at: float = 1000.0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = numpy.random.default_rng(0).integers(0, 255, (size, size, 3), numpy.uint8)
    Image.fromarray(noise).save(path)
    os.utime(path, (at, at))
    return path


def test_the_newest_of_each_name_is_shown(tmp_path: Path) -> None:
    for step in (100, 200, 300):
        drawn(tmp_path / "visualization" / "val" / f"predictions_{step:06d}.png", at=1000.0 + step)
    drawn(tmp_path / "visualization" / "gradient_flow.png")
    drawn(tmp_path / "visualization" / "history.png")
    drawn(tmp_path / "export" / "curves.png")
    shown, besides = PictureFinder().newest([tmp_path / "visualization", tmp_path / "export"], tmp_path, 5)
    assert [(picture.name, picture.step) for picture in shown] == [("val/predictions", 300), ("gradient_flow", None)]
    assert besides == 2
    assert shown[0].file == "visualization/val/predictions_000300.png"


@pytest.mark.parametrize(("width", "height", "is_broad"), [(1088, 679, True), (584, 796, False), (950, 940, False)])
def test_a_page_knows_the_size_of_a_picture(width: int, height: int, is_broad: bool, tmp_path: Path) -> None:
    """So the page keeps its place, and gives a broad one two columns."""
    Image.new("RGB", (width, height)).save(tmp_path / "one.png")
    [[shown], _] = PictureFinder().newest([tmp_path], tmp_path, 5)
    assert (shown.width, shown.height, shown.is_broad) == (width, height, is_broad)
    page = str(sections.pictures(RunPage("run", "finished", pictures=[shown])))
    assert f'width="{width}" height="{height}"' in page
    assert ('<figure class="broad">' in page) == is_broad
    assert "loading" not in page, "a page that is printed has all its pictures"


def test_a_file_that_is_no_picture_has_no_size(tmp_path: Path) -> None:
    (tmp_path / "one.png").write_bytes(b"short")
    assert size_of(tmp_path / "one.png") is None


def test_pictures_beyond_the_limit_or_of_earlier_runs_are_omitted(tmp_path: Path) -> None:
    for number in range(6):
        drawn(tmp_path / f"p{number}.png", at=1000.0 + number)
    shown, besides = PictureFinder().newest([tmp_path], tmp_path, 2, since=1002.0)
    assert [picture.name for picture in shown] == ["p4", "p5"]
    assert besides == 2


def test_pictures_together_stay_within_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "MAX_BYTES", 3000)
    for number in range(6):
        drawn(tmp_path / f"p{number}.png", size=20, at=1000.0 + number)
    shown, besides = PictureFinder().newest([tmp_path], tmp_path, 6)
    assert 0 < len(shown) < 6
    assert sum(len(picture.data) for picture in shown) <= 3000
    assert len(shown) + besides == 6


def test_large_files_are_reduced(tmp_path: Path) -> None:
    path = drawn(tmp_path / "large.png", size=1000)
    data = embedded(path)
    assert path.stat().st_size > pictures.LARGE
    assert data.startswith("data:image/jpeg;base64,")
    assert len(data) < path.stat().st_size / 2


def test_files_that_are_not_pictures_are_omitted(tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("<script>")
    (tmp_path / "link.png").symlink_to("/etc/hostname")
    assert PictureFinder().newest([tmp_path], tmp_path, 5)[0] == []


def test_incomplete_large_pictures_are_omitted(tmp_path: Path) -> None:
    path = drawn(tmp_path / "large.png", size=1000)
    path.write_bytes(path.read_bytes()[: pictures.LARGE + 1000])
    (tmp_path / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(pictures.LARGE))
    whole = drawn(tmp_path / "whole.png")
    shown, _ = PictureFinder().newest([tmp_path], tmp_path, 5)
    assert [one.file for one in shown] == [whole.name]


def test_an_unchanged_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []
    monkeypatch.setattr(pictures, "embedded", lambda path: read.append(path) or "data:image/png;base64,")
    finder = PictureFinder()
    path = drawn(tmp_path / "p.png")
    finder.newest([tmp_path], tmp_path, 5)
    finder.newest([tmp_path], tmp_path, 5)
    assert read == [path]
    drawn(path, at=2000.0)
    finder.newest([tmp_path], tmp_path, 5)
    assert read == [path, path]
