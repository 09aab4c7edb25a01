"""The files of a folder and the manifest that lists them, always changed together."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from ignite_hooks.store.files import (
    discard,
    keep_beside,
    make_folder,
    publish,
    remove_folder,
    set_aside,
    temporary_path,
)
from ignite_hooks.store.manifest import FILE_NAME, DamagedManifestError, Entry, Manifest
from ignite_hooks.store.verify import why_unusable
from ignite_hooks.system import host

REPLACED: Final = ".replaced-"

logger = logging.getLogger(__name__)


class CommitLog:
    """Commits and deletes checkpoints so that a crash between two steps leaves the old content or the new one.

    Each step is announced in the manifest before it is taken; `recover` finishes what a crash interrupted.

    Args:
        folder: where the files and the manifest are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = Manifest()

    def read(self) -> Manifest:
        """Return the manifest on disk for a reader, who must not change the folder."""
        return self._settled(Manifest.load(self.folder))

    def commit(self, temporary: Path, entry: Entry) -> None:
        """Give a temporary file or folder the name of its entry, and list it."""
        path, before = self.folder / entry.name, self.manifest.find(entry.name)
        if os.path.lexists(path) and before is None:
            logger.warning("%s was not saved by us, renamed to %s", path, set_aside(path, "not-ours").name)
        elif before is not None and before.kind == "found" and path.is_file():
            kept = keep_beside(path, "found")
            logger.info("%s was found here: it stays as %s, and the run has saved its own", path, kept.name)
        announced = self.manifest.announce(entry)
        # A rename cannot replace a folder that is not empty, nor a file by a folder: the old one moves away first.
        in_two_steps = os.path.lexists(path) and (bool(entry.files) or path.is_dir())
        try:
            announced.save(self.folder)
            if in_two_steps:
                discard(self._replaced(entry.name))
                host.replace(path, self._replaced(entry.name))
            publish(temporary, path)
        except BaseException:
            self._put_back(entry.name)
            self.manifest = self._settled(announced)
            raise
        self.manifest = announced.settle(happened=True)
        self.manifest.save(self.folder)
        if in_two_steps:
            discard(self._replaced(entry.name))

    def delete(self, entries: Iterable[Entry]) -> None:
        """Delete these checkpoints, as far as the manifest lists them."""
        manifest = self.manifest.without(entries)
        if not manifest.deleting:
            return
        manifest.save(self.folder)
        self.manifest = manifest
        for entry in manifest.deleting:
            self._remove(entry)
            self.manifest = self.manifest.deleted(entry)

    def move_to(self, target: Path) -> None:
        """Move every checkpoint, with the manifest, into a new folder; this one lists none afterwards."""
        earlier = self.manifest
        make_folder(target)
        # Listed there before anything moves: wherever a crash comes, every file is listed where it is.
        earlier.save(target)
        for entry in earlier.entries:
            if os.path.lexists(self.folder / entry.name):
                host.replace(self.folder / entry.name, target / entry.name)
        host.sync_folder(target)
        self.manifest = Manifest()
        self.manifest.save(self.folder)

    def recover(self) -> None:
        """Read the manifest and finish what a crash interrupted; a damaged manifest is renamed."""
        try:
            found = Manifest.load(self.folder)
        except DamagedManifestError as error:
            moved = set_aside(self.folder / FILE_NAME, "damaged")
            logger.warning("%s; renamed to %s, starting an empty one", error, moved.name)
            found = Manifest()
        replaced = [path.name.removeprefix(REPLACED) for path in self.folder.glob(f"{REPLACED}*")]
        for name in replaced:
            self._put_back(name)
        self.manifest = self._settled(found)
        for name in replaced:
            entry = self.manifest.find(name)
            if entry is not None and self._is_intact(entry):
                discard(self._replaced(name))
        for entry in self.manifest.deleting:
            # Only what we saved is deleted: somebody may have put another file there since.
            if self._is_intact(entry):
                self._remove(entry)
            self.manifest = self.manifest.deleted(entry)
        if self.manifest != found:
            self.manifest.save(self.folder)

    def adopt(self, found: Sequence[Entry]) -> None:
        """List files that were found in the folder."""
        if found:
            self.manifest = self.manifest.with_found(found)
            self.manifest.save(self.folder)

    def _is_intact(self, entry: Entry) -> bool:
        return why_unusable(self.folder / entry.name, entry) is None

    def _settled(self, manifest: Manifest) -> Manifest:
        if manifest.pending is None:
            return manifest
        return manifest.settle(happened=self._is_intact(manifest.pending))

    def _replaced(self, name: str) -> Path:
        """Return where a checkpoint is while another takes its name."""
        return self.folder / f"{REPLACED}{name}"

    def _put_back(self, name: str) -> None:
        """Give a checkpoint its name back if no other has taken it."""
        path = self.folder / name
        if os.path.lexists(self._replaced(name)) and not os.path.lexists(path):
            host.replace(self._replaced(name), path)
            host.sync_folder(self.folder)

    def _remove(self, entry: Entry) -> None:
        path = self.folder / entry.name
        if not entry.files:
            path.unlink(missing_ok=True)
        elif path.is_dir() and not path.is_symlink():
            ours = {part.name for part in entry.files}
            if strange := sorted({found.name for found in path.iterdir()} - ours):
                logger.warning("%s stays because of files that are not ours: %s", path, ", ".join(strange))
                for name in ours:
                    (path / name).unlink(missing_ok=True)
            else:
                # Renamed first: a part of a folder would not be recognized as ours after a crash.
                going = temporary_path(self.folder, entry.name)
                host.replace(path, going)
                remove_folder(going)
