"""Checkpoints of ours that no manifest lists, such as files that were copied without it."""

from __future__ import annotations

import logging
import os
import pickle
import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

from ignite_hooks.errors import CheckpointError
from ignite_hooks.store.checksums import checksum_of
from ignite_hooks.store.files import open_regular
from ignite_hooks.store.manifest import FILE_NAME, Entry, Kind, is_run_id
from ignite_hooks.store.names import check_name
from ignite_hooks.store.verify import loaded

SUFFIXES: Final = (".pth", ".pt")
# The first records that `write_archive` writes; files of `torch.save` have others.
OURS: Final = ("archive/data.pkl", "archive/.format_version", "archive/.storage_alignment")

logger = logging.getLogger(__name__)


def find_unlisted(folder: Path, listed: Collection[str]) -> list[Entry]:
    """Return the checkpoints of ours in a folder that are not listed, each verified by the checksums in its archive.

    Where a manifest was damaged, nothing is found: its files may be damaged too.

    Args:
        folder: The folder.
        listed: The names that the manifest lists.
    """
    if any(folder.glob(f"{FILE_NAME}.damaged-*")):
        return []
    paths = sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES and path.name not in listed)
    found = [entry for path in paths if (entry := _read(path)) is not None]
    if found:
        names = ", ".join(entry.name for entry in found)
        logger.warning("%s: no manifest lists %s: verified, and listed as found; they are never deleted", folder, names)
    return sorted(found, key=lambda entry: entry.iteration)


def _read(path: Path) -> Entry | None:
    """Return the entry of a file, or None if it is not ours or is damaged."""
    try:
        check_name(path.name)
        with open_regular(path) as file:
            with zipfile.ZipFile(file) as archive:
                if tuple(archive.namelist()[: len(OURS)]) != OURS or not (meta := _meta(path)):
                    return None
                damaged = archive.testzip()
            if damaged is not None:
                logger.warning("%s is not listed: the checksum of %s in it is wrong", path, damaged)
                return None
            file.seek(0)
            size, checksum = os.fstat(file.fileno()).st_size, checksum_of(file)
        run = meta["run"] if is_run_id(meta.get("run")) else ""
        kind: Kind = "delivered" if "delivered" in meta else "found"
        return Entry(path.name, size, checksum, meta["epoch"], meta["iter"], {}, kind, run=run)
    except (OSError, zipfile.BadZipFile, NotImplementedError, CheckpointError):
        return None


def _meta(path: Path) -> dict[str, Any] | None:
    """Return what a checkpoint says about itself, without reading its tensors; None if it is none of ours."""
    try:
        state = loaded(path, mmap=True)
    except (OSError, RuntimeError, ValueError, EOFError, KeyError, pickle.UnpicklingError):
        return None
    meta = state.get("meta") if isinstance(state, dict) else None
    numbers = [meta.get(name) for name in ("format", "epoch", "iter")] if isinstance(meta, dict) else [None]
    return meta if all(type(number) is int and number >= 0 for number in numbers) else None
