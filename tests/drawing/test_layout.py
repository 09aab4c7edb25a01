"""Text that fits, sheets of any number of pictures, and complete files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ignite_hooks import drawing
from ignite_hooks.drawing.layout import MARGIN, Tile, fitted, sheet, wrapped
from ignite_hooks.drawing.theme import PAPER, font

PICTURE = np.full((20, 30, 3), 90, np.uint8)


@pytest.mark.parametrize("width", [0, 5, 30, 100, 1000])
def test_text_is_cut_to_fit(width: int) -> None:
    text = fitted("a caption of some length", width)
    assert font(text).getlength(text) <= width


def test_sheets_of_narrow_pictures_have_room_for_text() -> None:
    narrow = np.full((200, 20, 3), 90, np.uint8)
    plain, captioned = sheet([Tile(narrow)]), sheet([Tile(narrow, ["automobile (0.93)"])])
    assert captioned.shape[1] >= plain.shape[1] + font().getlength("automobile (0.93)") - 20
    assert sheet([Tile(narrow, ["a word " * 99])]).shape[1] <= 300
    one_line = sheet([Tile(narrow)], title="val, iteration 3, epoch 1")
    assert one_line.shape[0] == sheet([Tile(narrow)], title="val").shape[0]
    assert sheet([Tile(narrow)], note="a word " * 99).shape[1] <= 300


def test_text_stays_within_the_margins() -> None:
    word = "backbone.layer4.0.bottleneck.conv2.depthwise"
    for whole in (
        sheet([Tile(PICTURE)], title=word),
        sheet([Tile(PICTURE)], note=word),
        sheet([Tile(PICTURE)], legend=[(word * 3, (0, 0, 0)), ("b", (0, 0, 0))]),
        sheet([Tile(PICTURE, [word])]),
    ):
        assert (whole[:, -MARGIN:] == PAPER).all()


def test_a_word_that_is_too_long_is_broken() -> None:
    word = "backbone.layer4.0.bottleneck.conv2.depthwise"
    assert "".join(wrapped(word, 100, 13)) == word
    assert wrapped(f"layer {word}:", 100, 13)[0].startswith("layer")
    assert "".join(wrapped("abc", 1, 13)) == "abc"


def test_a_file_is_complete_or_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture = PICTURE
    drawing.save(picture, tmp_path / "new" / "a.png")
    assert np.array_equal(np.asarray(Image.open(tmp_path / "new" / "a.png")), picture)
    with pytest.raises(TypeError):
        drawing.save(picture.astype(complex), tmp_path / "new" / "a.png")
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["a.png"]
    assert np.array_equal(np.asarray(Image.open(tmp_path / "new" / "a.png")), picture)


@pytest.mark.parametrize(
    ("count", "columns", "across"), [(0, None, 1), (1, None, 1), (5, None, 3), (5, 2, 2), (3, 7, 3)]
)
def test_a_sheet_is_as_large_as_its_pictures_need(count: int, columns: int | None, across: int) -> None:
    one = sheet([Tile(PICTURE)]).shape
    whole = sheet([Tile(PICTURE)] * count, columns=columns).shape
    gap = sheet([Tile(PICTURE)] * 2, columns=2).shape[1] - one[1]
    if count:
        assert whole[1] == one[1] + (across - 1) * gap
        assert np.count_nonzero((sheet([Tile(PICTURE)] * count, columns=columns) == 90).all(-1)) == count * 600
    else:
        assert whole[1] > one[1], "it says that there is nothing to show"
