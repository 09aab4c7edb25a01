"""Text that fits, sheets of any number of pictures, and files that are whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ignite_hooks import drawing
from ignite_hooks.drawing.layout import Tile, fitted, sheet

PICTURE = np.full((20, 30, 3), 90, np.uint8)


@pytest.mark.parametrize("width", [0, 5, 30, 100, 1000])
def test_text_is_cut_to_fit(width: int) -> None:
    from ignite_hooks.drawing.look import font

    text = fitted("a caption of some length", width)
    assert font(text).getlength(text) <= width


def test_a_file_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_a_sheet_has_room_for_every_picture_and_no_more(count: int, columns: int | None, across: int) -> None:
    one = sheet([Tile(PICTURE)]).shape
    whole = sheet([Tile(PICTURE)] * count, columns=columns).shape
    gap = sheet([Tile(PICTURE)] * 2, columns=2).shape[1] - one[1]
    if count:
        assert whole[1] == one[1] + (across - 1) * gap
        assert np.count_nonzero((sheet([Tile(PICTURE)] * count, columns=columns) == 90).all(-1)) == count * 600
    else:
        assert whole[1] > one[1], "it says that there is nothing to show"
