"""The theme of all pictures: colours, fonts and sizes."""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ignite_hooks.text import shown

if TYPE_CHECKING:
    from PIL.ImageFont import FreeTypeFont

Colour = tuple[int, int, int]

PAPER: Colour = (255, 255, 255)
"""Opaque, so that a picture is legible on light and on dark pages."""
INK: Colour = (34, 34, 34)
FAINT: Colour = (118, 118, 118)
LINE: Colour = (216, 216, 216)

BLUE: Colour = (0, 114, 178)
AMBER: Colour = (230, 159, 0)
GREEN: Colour = (0, 158, 115)
PINK: Colour = (204, 121, 167)
SKY: Colour = (86, 180, 233)
VERMILION: Colour = (213, 94, 0)
YELLOW: Colour = (240, 228, 66)
VIOLET: Colour = (120, 94, 240)
GREY: Colour = (140, 140, 140)
BROWN: Colour = (93, 58, 26)

PALETTE: tuple[Colour, ...] = (BLUE, AMBER, GREEN, PINK, SKY, VERMILION, YELLOW, VIOLET, GREY, BROWN)
"""Distinguishable with any kind of colour vision: the colours of Okabe and Ito, and three more."""

ON_LIGHT: tuple[Colour, ...] = (BLUE, VERMILION, GREEN, (181, 80, 143), VIOLET, (185, 137, 0))
"""Thin lines on a light page: as in the palette, but pale colours are darker."""
ON_DARK: tuple[Colour, ...] = (SKY, (255, 143, 69), (47, 201, 155), (229, 156, 203), (167, 148, 255), (240, 194, 75))
"""The same lines on a dark page."""

PHASES: dict[str, Colour] = {
    "data": VERMILION,
    "forward": GREEN,
    "backward": VIOLET,
    "optimizer": AMBER,
    "hooks": PINK,
    "other": GREY,
}
"""The phases of an iteration."""

RIGHT = BLUE
WRONG = VERMILION
MISSED: Colour = (240, 190, 0)
NOT_A_NUMBER: Colour = (255, 0, 255)
"""Pixels without a value: photographs hardly have this colour."""

TEXT_SIZE = 13
TITLE_SIZE = 16
GAP = 8
LARGEST_SIDE = 512
"""Maximum size of an image; larger ones are reduced."""
SMALLEST_SIDE = 128
"""Smaller images are enlarged by a whole factor, so that their pixels are visible."""


def colour_of(index: int, palette: Sequence[Any] | None = None) -> Colour:
    """Return the colour of a class; a palette that is too short repeats.

    Example:
        >>> colour_of(1), colour_of(0, ["#ff0000", "blue"]), colour_of(3, [[255, 0, 0], "blue"])
        ((230, 159, 0), (255, 0, 0), (0, 0, 255))
    """
    colours = palette or PALETTE
    return as_colour(colours[index % len(colours)])


def as_colour(colour: Any) -> Colour:
    """Return a colour from its name, ``#rrggbb``, or three numbers from 0 to 255.

    Example:
        >>> as_colour("#0072b2"), as_colour([1, 2, 3])
        ((0, 114, 178), (1, 2, 3))
    """
    if isinstance(colour, str):
        from PIL import ImageColor

        try:
            return ImageColor.getrgb(colour)[:3]
        except ValueError as error:
            raise ValueError(f"{shown(colour)} is not a colour: write 'red', '#d55e00' or [213, 94, 0]") from error
    values = list(colour) if isinstance(colour, Iterable) else []
    if len(values) != 3 or not all(isinstance(v, int) and not isinstance(v, bool) and 0 <= v <= 255 for v in values):
        raise ValueError(f"{shown(colour)} is not a colour: write 'red', '#d55e00' or [213, 94, 0]")
    return (values[0], values[1], values[2])


def as_hex(colour: Colour) -> str:
    """Return a colour as style sheets and matplotlib write it.

    Example:
        >>> as_hex(BLUE)
        '#0072b2'
    """
    return f"#{bytes(colour).hex()}"


def ink_on(colour: Colour) -> Colour:
    """Return black or white, whichever is easier to read on a colour."""
    linear = [(v / 255 / 12.92 if v <= 10 else ((v / 255 + 0.055) / 1.055) ** 2.4) for v in colour]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return (0, 0, 0) if luminance > 0.179 else (255, 255, 255)


def name_of(index: int, class_names: Sequence[str] | None = None) -> str:
    """Return the name of a class, or its number if it has none.

    Example:
        >>> name_of(1, ["cat", "dog"]), name_of(7, ["cat", "dog"]), name_of(3)
        ('dog', '7', '3')
    """
    return str(class_names[index]) if class_names is not None and 0 <= index < len(class_names) else str(index)


# -- type ------------------------------------------------------------------------------------------------------

_LIKELY = ("notosanscjk", "notosanssc", "sourcehansans", "wqy", "droidsansfallback", "simhei", "msyh", "pingfang")
"""Parts of file names of fonts with Chinese characters; these fonts are searched first."""


def font(text: str = "", size: int = TEXT_SIZE) -> FreeTypeFont:
    """Return the font for a text: the default, or an installed one if the default lacks characters of the text."""
    return _font(font_file(text), size)


@functools.lru_cache(maxsize=64)
def _font(file: Path | None, size: int) -> FreeTypeFont:
    from PIL import ImageFont

    # The fallback of Pillow is a similar font with fewer characters.
    return ImageFont.truetype(str(file), size) if file is not None else ImageFont.load_default(size)  # type: ignore[return-value]


def font_file(text: str) -> Path | None:
    """Return the file of the first font with every character of a text; that of the default if there is none."""
    own = own_font()
    needed = _needed(text)
    return (own if not needed else _font_with(needed, _font_folders())) or own


def _needed(text: str) -> frozenset[int]:
    """Return the characters a font needs for a text; none if the default font has them.

    That includes digits beside Chinese characters, as some Chinese fonts have no digits.
    """
    beyond = any(ord(letter) > _LATIN for letter in text)
    return frozenset(ord(letter) for letter in text if not letter.isspace()) if beyond else frozenset()


def readable(text: str, otherwise: str | None = None) -> str:
    """Return the text if an installed font can show it.

    Otherwise return the alternative if there is one, else the text with the code points of unknown characters.

    Example:
        >>> readable("cat 0.93")
        'cat 0.93'
    """
    needed = _needed(text)
    if needed and otherwise is not None:
        # A name, which is drawn beside scores and words.
        needed |= frozenset(map(ord, _BESIDE))
    if not needed or _font_with(needed, _font_folders()) is not None:
        return text
    if otherwise is not None:
        return otherwise
    known = _letters(own_font())
    return "".join(
        letter if ord(letter) <= _LATIN or ord(letter) in known else f"[{ord(letter):04X}]" for letter in text
    )


_BESIDE = "0123456789.:()" + "abcdefghijklmnopqrstuvwxyz"
_LATIN = 0x24F
"""The default font has every character up to this one."""


@functools.cache
def own_font() -> Path | None:
    """Return the file of DejaVu Sans, which is installed with matplotlib; this does not import matplotlib."""
    found = importlib.util.find_spec("matplotlib")
    for folder in (found.submodule_search_locations or ()) if found is not None else ():
        file = Path(folder) / "mpl-data" / "fonts" / "ttf" / "DejaVuSans.ttf"
        if file.exists():
            return file
    return None


def _font_folders() -> tuple[Path, ...]:
    home = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    shared = (os.environ.get("XDG_DATA_DIRS") or "/usr/local/share:/usr/share").split(":")
    system = [Path(folder) / "fonts" for folder in shared if folder]
    return (home / "fonts", Path.home() / ".fonts", *system, Path("/System/Library/Fonts"), Path("C:/Windows/Fonts"))


@functools.lru_cache(maxsize=256)
def _font_with(needed: frozenset[int], folders: tuple[Path, ...]) -> Path | None:
    own = own_font()
    candidates = [*([own] if own is not None else []), *_installed(folders)]
    return next((file for file in candidates if needed <= _letters(file)), None)


@functools.lru_cache(maxsize=8)
def _installed(folders: tuple[Path, ...]) -> tuple[Path, ...]:
    def found() -> Iterator[Path]:
        for folder in folders:
            if folder.is_dir():
                yield from (f for f in sorted(folder.rglob("*")) if f.suffix.lower() in (".ttf", ".ttc", ".otf"))

    def rank(file: Path) -> tuple[bool, bool]:
        name = file.name.lower()
        return not any(part in name for part in _LIKELY), "regular" not in name

    return tuple(sorted(found(), key=rank))


@functools.lru_cache(maxsize=256)
def _letters(file: Path | None) -> frozenset[int]:
    """Return the characters of a font."""
    from matplotlib.ft2font import FT2Font

    if file is None:
        return frozenset()
    try:
        return frozenset(FT2Font(str(file)).get_charmap())
    except (RuntimeError, OSError):  # not a font despite its name
        return frozenset()
