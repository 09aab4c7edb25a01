from __future__ import annotations

import os
from pathlib import Path

import pytest

from ignite_hooks.report import media as of_report
from ignite_hooks.report.data import RunPage
from ignite_hooks.report.media import PageMedia, media, newest_media
from ignite_hooks.report.page import render
from ignite_hooks.writers.jsonl import JsonlWriter
from ignite_hooks.writers.media import Media
from tests.browser import photographed

EVIL = "<script>alert(1)</script>"


def written(folder: Path, name: str, suffix: str, step: int, at: float = 1000.0) -> None:
    kind = "audio" if suffix == "wav" else "video"
    JsonlWriter(folder / "metrics.jsonl").write_media(name, Media(kind, suffix, b"x" * 30), step)  # type: ignore[arg-type]
    os.utime(folder / "media" / f"{name}_{step:06}.{suffix}", (at, at))


def test_the_newest_of_each_name_is_on_the_page(tmp_path: Path) -> None:
    for step in (10, 20):
        written(tmp_path, "val/tone", "wav", step, 1000.0 + step)
    written(tmp_path, "film", "gif", 5)
    written(tmp_path, "episode", "mp4", 5)
    written(tmp_path, "old", "wav", 5, 10.0)
    (tmp_path / "media" / "notes.txt").write_text("no sound")
    (tmp_path / "media" / "link_000001.wav").symlink_to("/etc/hostname")
    found = newest_media(tmp_path, since=100.0)
    assert [(one.name, one.step, one.kind) for one in found] == [
        ("episode", 5, "video"),
        ("film", 5, "image"),
        ("val/tone", 20, "audio"),
    ]
    assert found[2].file == "media/val/tone_000020.wav"
    page = render(RunPage("run", media=found))
    assert page.count("<audio") == page.count("<video") == 1
    assert 'src="data:audio/wav;base64,' in page
    assert 'src="data:image/gif;base64,' in page
    assert "media-src data:;" in page
    assert "Sounds and videos" not in render(RunPage("run"))


def test_what_has_no_room_is_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_report, "MAX_BYTES", 80)
    written(tmp_path, "a", "wav", 1, 1000.0)
    written(tmp_path, "b", "wav", 1, 1001.0)
    found = newest_media(tmp_path)
    assert [(one.name, bool(one.data)) for one in found] == [("a", False), ("b", True)]
    assert "file, which is too large for this page" in media(found)
    assert media(found).count("<audio") == 1
    assert newest_media(tmp_path / "nowhere") == []


@pytest.mark.slow
def test_a_browser_plays_the_sounds_of_a_page(tmp_path: Path) -> None:
    writer = JsonlWriter(tmp_path / "metrics.jsonl")
    writer.write_audio("tone", [0.0, 0.5] * 4000, 3, rate=8000)
    page = render(RunPage("run", media=newest_media(tmp_path)))
    (tmp_path / "page.html").write_text(page)
    played = photographed((tmp_path / "page.html").as_uri(), tmp_path / "with.png", size=(700, 1400))
    # The same page, whose policy refuses sounds: the player is grey.
    (tmp_path / "page.html").write_text(page.replace("media-src data:;", ""))
    refused = photographed((tmp_path / "page.html").as_uri(), tmp_path / "without.png", size=(700, 1400))
    assert (played != refused).any()


def test_hostile_names_stay_text() -> None:
    shown = media([PageMedia(EVIL, 3, "audio", EVIL, "data:audio/wav;base64,AAAA")])
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
