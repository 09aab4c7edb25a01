"""The content of a mirror: a manifest and the checkpoints it lists, changed in steps of which any may be the last."""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path

from ignite_hooks.store.files import open_regular
from ignite_hooks.store.interface import Retire
from ignite_hooks.store.manifest import (
    FILE_NAME,
    LARGEST_MANIFEST,
    NOT_FOR_RESUMING,
    DamagedManifestError,
    Entry,
    Manifest,
    resuming_order,
)
from ignite_hooks.store.mirror.remote import MirrorError, Remote
from ignite_hooks.store.verify import why_unusable
from ignite_hooks.system.host import path_of_open

logger = logging.getLogger(__name__)


class Replica:
    """The checkpoints of one run in a mirror.

    Each step is announced in its manifest before it is taken, as in the folder of the run: whoever reads it finds
    for every entry a checksum, and takes nothing that differs.

    Args:
        remote: Where it is.
    """

    def __init__(self, remote: Remote) -> None:
        self.remote = remote
        self.manifest: Manifest | None = None
        """What is there, as far as it was read."""

    def read(self) -> Manifest:
        """Return what is there, read once; what an interrupted copy has left is listed until it is found wrong."""
        if self.manifest is None:
            content = self.remote.read(FILE_NAME, most=LARGEST_MANIFEST)
            self.manifest = Manifest() if content is None else Manifest.decode(content, self._place(FILE_NAME))
        return self.manifest

    def candidates(self) -> list[Entry]:
        """Return what may be resumed from, best first; a copy that was under way counts once it has arrived."""
        manifest = self.read()
        found = list(manifest.entries)
        if manifest.pending is not None:
            if all(self.remote.holds(name) for name in _names(manifest.pending)):
                found.append(manifest.pending)
            else:
                name, place = manifest.pending.name, self.remote.shown
                logger.warning("%s was on its way to %s when its run ended, and has not arrived", name, place)
        return sorted((entry for entry in found[::-1] if entry.kind not in NOT_FOR_RESUMING), key=resuming_order)

    def fetch(self, entry: Entry, path: Path) -> str | None:
        """Copy a checkpoint from there; return why it cannot be used, or None."""
        if not entry.files:
            self.remote.fetch(entry.name, str(path), entry.size)
        else:
            path.mkdir(exist_ok=True)
            for part in entry.files:
                self.remote.fetch(f"{entry.name}/{part.name}", str(path / part.name), part.size)
        # What is not there is missing here, too.
        return why_unusable(path, entry)

    def begin(self, run: str) -> str | None:
        """Prepare for a run: what others saved here moves away. Return its new place, or None if there was nothing."""
        try:
            manifest = self.read()
        except DamagedManifestError as error:
            target = self._unused("damaged")
            self.remote.move(FILE_NAME, f"{target}/{FILE_NAME}", 0)
            logger.warning("%s; it is now in %s, and an empty one begins", error, target)
            manifest = self.manifest = Manifest()
        everything = (*manifest.entries, *([manifest.pending] if manifest.pending else ()), *manifest.deleting)
        if not everything or any(entry.run == run for entry in everything) or not any(e.run for e in everything):
            return None
        target = self._unused("earlier")
        # Listed there before anything moves.
        self.remote.write(f"{target}/{FILE_NAME}", manifest.encode())
        for entry in everything:
            for name in _names(entry):
                self.remote.move(name, f"{target}/{name}", entry.size)
        self._list(Manifest())
        return target

    def copy(self, entry: Entry, folder: Path) -> bool:
        """Copy a checkpoint there; return False if it is not in the folder any more."""
        manifest = self.read()
        listed = manifest.find(entry.name)
        if manifest.pending is None and listed is not None and listed.checksum == entry.checksum:
            return True
        paths = [folder / name for name in _names(entry)]
        if why_unusable(folder / entry.name, entry) is not None:
            return False
        self._list(manifest.announce(entry))
        for name, path in zip(_names(entry), paths, strict=True):
            try:
                # Opened: a retention rule may delete it, or another checkpoint take its name.
                with open_regular(path) as file:
                    size = os.fstat(file.fileno()).st_size
                    self.remote.put(name, path_of_open(file.fileno(), path), size)
            except FileNotFoundError as error:
                if path.exists():
                    raise MirrorError(f"{self._place(name)}: {error}") from error
                return False
        self._list(self.read().settle(happened=True))
        return True

    def retire(self, rule: Retire, saved: str | None) -> None:
        """Delete what a rule chooses, but never what was saved last."""
        manifest = self.read()
        going = [entry for entry in rule(list(manifest.entries)) if entry.name != saved]
        if not going and not manifest.deleting:
            return
        self._list(manifest.without(going))
        for entry in self.read().deleting:
            for name in _names(entry):
                self.remote.remove(name)
        self._list(Manifest(self.read().entries, self.read().pending))

    def _list(self, manifest: Manifest) -> None:
        self.remote.write(FILE_NAME, manifest.encode())
        self.manifest = manifest

    def _place(self, name: str) -> str:
        return f"{self.remote.shown}/{name}"

    def _unused(self, word: str) -> str:
        found = [re.fullmatch(rf"{word}-([0-9]+)", name) for name in self.remote.names()]
        return f"{word}-{max((int(match[1]) for match in found if match), default=0) + 1}"


def _names(entry: Entry) -> list[str]:
    """Return the names of the objects of a checkpoint."""
    return [f"{entry.name}/{part.name}" for part in entry.files] if entry.files else [entry.name]
