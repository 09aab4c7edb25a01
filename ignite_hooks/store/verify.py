"""Read files and compare them with the manifest."""

from __future__ import annotations

import os
import pickle
import warnings
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

from ignite_hooks.errors import CheckpointError
from ignite_hooks.store.checksums import algorithm_of, checksum_of
from ignite_hooks.store.files import open_regular
from ignite_hooks.store.manifest import CheckpointFile, Entry


def loaded(file: IO[bytes] | Path, *, mmap: bool = False) -> Any:
    """Return what a file holds on the CPU, if that is plain types and tensors."""
    import torch

    with warnings.catch_warnings():
        # torch 2.15 says that it checks sparse tensors, and that this takes a while. It should.
        warnings.filterwarnings("ignore", "Validating sparse tensor invariants")
        return torch.load(file, map_location="cpu", weights_only=True, mmap=mmap)


def read_state(file: BufferedReader, path: Path) -> dict[str, Any]:
    """Read the plain state in an open file, from its beginning."""
    file.seek(0)
    try:
        state = loaded(file)
    except pickle.UnpicklingError as error:
        # The message of torch recommends switching the protection off.
        reason = "is damaged, or holds more than plain types and tensors"
        raise CheckpointError(f"cannot load {path}: {reason}") from error
    if not isinstance(state, dict):
        raise CheckpointError(f"cannot load {path}: holds a {type(state).__name__}, expected a dict")
    return state


def describe_file(path: Path) -> CheckpointFile:
    """Return the name, size and checksum of a file, for the manifest."""
    with open_regular(path) as file:
        return CheckpointFile(path.name, os.fstat(file.fileno()).st_size, checksum_of(file))


def why_unusable(path: Path, entry: Entry, share: tuple[int, int] = (0, 1)) -> str | None:
    """Return why a file or folder differs from its entry, or None; of a folder, check one rank's share of the files."""
    if not entry.files:
        return why_unusable_file(path, entry)
    if path.is_symlink():
        return "is a symbolic link, which is not followed"
    if not path.is_dir():
        return "missing"
    first, step = share
    reasons = ((part.name, why_unusable_file(path / part.name, part)) for part in entry.files[first::step])
    return next((f"{name}: {reason}" for name, reason in reasons if reason), None)


def why_unusable_file(path: Path, entry: Entry | CheckpointFile) -> str | None:
    """Return why a file differs from its entry, or None."""
    try:
        with open_regular(path) as file:
            return mismatch(file, entry)
    except FileNotFoundError:
        return "missing"
    except OSError as error:
        return error.strerror or str(error)


def mismatch(file: BufferedReader, entry: Entry | CheckpointFile) -> str | None:
    """Return how an open file differs from its entry, or None."""
    size = os.fstat(file.fileno()).st_size
    if size != entry.size:
        return f"{size} bytes instead of {entry.size}"
    if checksum_of(file, algorithm_of(entry.checksum)) != entry.checksum:
        return "wrong checksum"
    return None
