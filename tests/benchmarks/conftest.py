"""The scripts of benchmarks, which are outside of the package."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Yield a function that imports a script by its name; what it has imported is forgotten after the test."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module
    for path in BENCHMARKS.glob("*.py"):
        sys.modules.pop(path.stem, None)


@pytest.fixture
def measure(script: Callable[[str], Any]) -> Any:
    """Return the module that all of them measure with."""
    return script("measure")


@pytest.fixture
def run(script: Callable[[str], Any]) -> Any:
    """Return the script that runs the others and writes the page."""
    return script("run")


@pytest.fixture
def growth(script: Callable[[str], Any]) -> Any:
    """Return the script that counts calls."""
    return script("growth")


@pytest.fixture
def scale(script: Callable[[str], Any]) -> Any:
    """Return the script that measures growth."""
    return script("scale")
