"""A real browser that renders pages, if one is installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy
import pytest
from PIL import Image

NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str:
    """Return the program; skip the test if there is none."""
    browser = next(filter(None, map(shutil.which, NAMES)), None)
    if browser is None:
        pytest.skip("no Chromium here, so the page is not rendered")
    return browser


def photographed(url: str, picture: Path, *options: str, size: tuple[int, int] = (1400, 1400)) -> Any:
    """Return a page as an array of pixels, once its scripts have had time to draw it."""
    _run(url, picture.parent, f"--window-size={size[0]},{size[1]}", f"--screenshot={picture}", *options)
    return numpy.asarray(Image.open(picture).convert("RGB")).astype(numpy.int16)


def as_shown(url: str, folder: Path, *options: str) -> str:
    """Return the document as the browser has parsed it, after its scripts."""
    return _run(url, folder, "--dump-dom", *options)


def _run(url: str, folder: Path, *options: str) -> str:
    command = [chromium(), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile"]
    command += ["--hide-scrollbars", "--virtual-time-budget=8000", *options, url]
    return subprocess.run(command, capture_output=True, timeout=120, check=True).stdout.decode()


def near(page: Any, colour: tuple[int, ...]) -> int:
    """Return the number of pixels that have about this colour."""
    red, green, blue = (abs(page[..., channel] - value) < 8 for channel, value in enumerate(colour))
    return int((red & green & blue).sum())
