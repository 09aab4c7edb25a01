"""What is wrong with a folder that was named as the work directory of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ignite_hooks.text import did_you_mean

MARKS: Final = (
    "config.yaml",
    "metrics.jsonl",
    "result.json",
    "manifest.json",
    "weights_digests.jsonl",
    ".lock",
    ".claim",
)
"""A run has written where one of these is."""


def not_a_run(folder: Path) -> str:
    """Return why this cannot be the work directory of a run and what to name instead, or nothing.

    Example:
        >>> not_a_run(Path("/nowhere/at/all"))
        'there is no such folder'
    """
    if not folder.exists():
        near = [child.name for child in _folders_in(folder.parent)]
        return f"there is no such folder{did_you_mean(folder.name, near)}"
    if not folder.is_dir():
        return "this is a file: name the work directory of a run"
    if any((folder / mark).exists() for mark in MARKS):
        return ""
    runs = [child for child in _folders_in(folder) if any((child / mark).exists() for mark in MARKS)]
    if runs:
        return f"this is no run, but holds runs: name one of them, such as {runs[0]}"
    if not any(folder.iterdir()):
        return "the folder is empty: name the work directory of a run"
    return "no run has written here: name the work directory of a run"


def _folders_in(folder: Path) -> list[Path]:
    try:
        return [child for child in sorted(folder.iterdir()) if child.is_dir()]
    except OSError:
        return []
