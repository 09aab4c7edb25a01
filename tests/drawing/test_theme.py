from __future__ import annotations

import itertools
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ignite_hooks.drawing import theme
from ignite_hooks.drawing.figures import classification
from ignite_hooks.drawing.theme import PALETTE, as_colour, colour_of, font_file, ink_on, own_font, readable


@pytest.fixture
def fonts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder in which the test can install fonts; only the default font is found besides."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_DIRS", str(tmp_path / "nothing"))
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    (tmp_path / "fonts").mkdir()
    _forget_fonts()
    yield tmp_path / "fonts"
    _forget_fonts()


def _forget_fonts() -> None:
    for cached in (theme._font, theme._font_with, theme._installed, theme._letters):
        cached.cache_clear()


def chinese_font(path: Path, letters: str) -> None:
    """Write a real font file in which each of these letters is a square."""
    from fontTools.fontBuilder import FontBuilder
    from fontTools.pens.ttGlyphPen import TTGlyphPen

    pen = TTGlyphPen(None)
    pen.moveTo((50, 0))
    for point in ((50, 800), (950, 800), (950, 0)):
        pen.lineTo(point)
    pen.closePath()
    square = pen.glyph()
    builder = FontBuilder(1000, isTTF=True)
    names = [".notdef", *(f"uni{ord(letter):04X}" for letter in letters)]
    builder.setupGlyphOrder(names)
    builder.setupCharacterMap({ord(letter): f"uni{ord(letter):04X}" for letter in letters})
    builder.setupGlyf(dict.fromkeys(names, square))
    builder.setupHorizontalMetrics(dict.fromkeys(names, (1000, 50)))
    builder.setupHorizontalHeader(ascent=900, descent=-100)
    builder.setupNameTable({"familyName": "Squares", "styleName": "Regular"})
    builder.setupOS2()
    builder.setupPost()
    builder.save(path)


def test_the_palette_is_distinguishable_with_any_colour_vision() -> None:
    """Distances are at least 20 of 441 for every kind of colour vision (matrices of Vienot, Brettel and Mollon)."""
    kinds = {
        "usual": np.eye(3),
        "no red": np.array([[0.11238, 0.88762, 0.0], [0.11238, 0.88762, 0.0], [0.00401, -0.00401, 1.0]]),
        "no green": np.array([[0.29275, 0.70725, 0.0], [0.29275, 0.70725, 0.0], [-0.02234, 0.02234, 1.0]]),
    }
    for matrix in kinds.values():
        seen = [matrix @ (np.array(colour) / 255) ** 2.2 for colour in (*PALETTE[:8],)]
        shown = [np.clip(colour, 0, 1) ** (1 / 2.2) * 255 for colour in seen]
        assert min(np.linalg.norm(one - other) for one, other in itertools.combinations(shown, 2)) > 20


@pytest.mark.parametrize("colour", [*PALETTE, (0, 0, 0), (255, 255, 255), (128, 128, 128)])
def test_text_is_legible_on_every_colour(colour: theme.Colour) -> None:
    def luminance(of: theme.Colour) -> float:
        parts = [(v / 255 / 12.92 if v <= 10 else ((v / 255 + 0.055) / 1.055) ** 2.4) for v in of]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    light, dark = sorted((luminance(colour), luminance(ink_on(colour))), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 4.5, "the contrast that WCAG asks for"


@pytest.mark.parametrize("wrong", ["blurple", [1, 2], [0, 0, 256], 7, None])
def test_invalid_colours_raise_an_error_with_valid_forms(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"is not a colour: write 'red', '#d55e00' or \[213, 94, 0\]"):
        as_colour(wrong)


def test_a_palette_that_is_too_short_repeats() -> None:
    assert colour_of(len(PALETTE)) == PALETTE[0]
    assert colour_of(5, ["red", "blue"]) == (0, 0, 255)


def test_an_installed_font_is_found_by_the_letters_it_has(fonts: Path) -> None:
    chinese_font(fonts / "a.ttf", "狗")
    chinese_font(fonts / "b.ttf", "猫鱼")
    assert font_file("猫") == fonts / "b.ttf"
    assert font_file("狗") == fonts / "a.ttf"
    assert font_file("cat") == own_font()
    assert readable("猫") == "猫"


def test_fonts_without_digits_are_not_used_beside_numbers(fonts: Path) -> None:
    chinese_font(fonts / "DroidSansFallback.ttf", "猫鱼")
    assert font_file("猫 鱼") == fonts / "DroidSansFallback.ttf"
    assert readable("猫", "class 3") == readable("猫 0.9", "class 3") == "class 3"
    assert font_file("猫 0.9") == own_font()
    _forget_fonts()
    chinese_font(fonts / "wqy.ttf", "猫0.9")
    assert font_file("猫 0.9") == fonts / "wqy.ttf"


def test_names_without_a_font_are_shown_as_numbers(fonts: Path) -> None:
    (fonts / "broken.ttf").write_bytes(b"not a font")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert readable("猫", "class 3") == "class 3"
        assert readable("大猫 x") == "[5927][732B] x"
        classification([np.zeros((8, 8, 3), np.uint8)], [1], [[0.1, 0.9]], class_names=["狗", "猫"])


def test_names_in_chinese_are_drawn_where_a_font_has_them(fonts: Path) -> None:
    picture = np.zeros((8, 8, 3), np.uint8)
    without = classification([picture], [1], [[0.1, 0.9]], class_names=["狗", "猫"])
    chinese_font(fonts / "squares.ttf", "狗猫0123456789.:()abcdefghijklmnopqrstuvwxyz")
    _forget_fonts()
    drawn = classification([picture], [1], [[0.1, 0.9]], class_names=["狗", "猫"])
    assert drawn.shape == without.shape
    assert not np.array_equal(drawn, without)


def test_importing_hooks_and_drawing_grids_loads_no_matplotlib() -> None:
    import subprocess

    code = (
        "import sys, numpy\n"
        "import ignite_hooks, ignite_hooks.hooks, ignite_hooks.drawing as drawing\n"
        "assert 'numpy' in sys.modules and 'matplotlib' not in sys.modules\n"
        "drawing.classification([numpy.zeros((8, 8, 3), 'uint8')], [1], [[0.1, 0.9]])\n"
        "print(sorted(name for name in sys.modules if name.startswith('matplotlib')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
