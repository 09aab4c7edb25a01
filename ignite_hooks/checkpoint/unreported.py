"""Files that hooks have yet to be told of: they stay until then, also where newer ones are there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ignite_hooks.store.interface import Retire
    from ignite_hooks.store.manifest import Entry


class File(Protocol):
    """What is saved."""

    path: Path


class Unreported:
    """The files of a run that are saved or on their way, and not reported.

    On a disk that is slow for a while two saves can end within an iteration: the newer one must not delete the other
    before hooks have copied or sent it.
    """

    def __init__(self) -> None:
        self.files: list[File] = []
        self._spared: dict[Path, Retire] = {}

    def spare(self, retire: Retire, folder: Path) -> Retire:
        """Return a rule for the files of a folder without these; the saving thread calls it."""

        def of_reported(entries: list[Entry]) -> list[Entry]:
            unreported = {file.path.name for file in tuple(self.files) if file.path.parent == folder}
            going = list(retire(entries))
            if any(entry.name in unreported for entry in going):
                self._spared[folder] = retire
            return [entry for entry in going if entry.name not in unreported]

        return of_reported

    def spared(self) -> list[tuple[Path, Retire]]:
        """Return folders, each with the rule that deletes what has stayed, once everything is reported."""
        if self.files:
            return []
        found, self._spared = list(self._spared.items()), {}
        return found
