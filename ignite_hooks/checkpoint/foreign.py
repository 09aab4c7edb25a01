"""Checkpoints of others are read without their code: what a file names and torch does not know becomes inert."""

from __future__ import annotations

import pickle
import threading
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from ignite_hooks.errors import CheckpointError
from ignite_hooks.store.files import open_regular
from ignite_hooks.text import one_line

_ONE_AT_A_TIME = threading.Lock()
"""What torch allows a file to name belongs to the whole process."""
MOST_GLOBALS: Final = 1000


class Inert:
    """Stands for an object of a class that is not ours: it takes whatever it is given, and does nothing."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __setstate__(self, _: Any) -> None: ...


class InertMapping:
    """Stands for a mapping of a class that is not ours."""

    def __new__(cls, *_: Any, **__: Any) -> Any:
        """Return what torch lets a file fill."""
        return OrderedDict()


def read_foreign(path: Path) -> Any:
    """Return what a file of weights holds, of whoever has written it; no code of the file or of its writer runs.

    Args:
        path: A file of `torch.save` or of safetensors; the user has named it, so a link is followed.

    Raises:
        CheckpointError: If it cannot be read so.
    """
    try:
        with open_regular(path, follow_links=True) as file:
            if path.suffix == ".safetensors":
                return _read_safetensors(path)
            return _read_pickled(file)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from error
    except OSError as error:
        raise CheckpointError(f"cannot load {path}: {error.strerror or error}") from error
    except Exception as error:  # a damaged file may fail in any way
        raise CheckpointError(f"{path} is no file of weights that can be read safely: {one_line(error)}") from error


def _read_safetensors(path: Path) -> Any:
    try:
        from safetensors.torch import load_file
    except ImportError as error:
        raise CheckpointError("needs the package safetensors: pip install 'ignite-hooks[safetensors]'") from error
    return load_file(path)


def _read_pickled(file: Any) -> Any:
    import torch
    from torch.serialization import get_unsafe_globals_in_checkpoint, safe_globals

    if not zipfile.is_zipfile(file):
        # In the format of before torch 1.6, which says only while it is read what it names.
        file.seek(0)
        return torch.load(file, map_location="cpu", weights_only=True)
    file.seek(0)
    names = get_unsafe_globals_in_checkpoint(file)
    if len(names) > MOST_GLOBALS:
        raise CheckpointError(f"it names {len(names)} classes")
    error: Exception | None = None
    for stand_in in (Inert, InertMapping):
        file.seek(0)
        # Pairs of a class of ours and the name in the file: nothing of this name is imported. What numpy makes is no
        # mapping.
        known: list[Callable[..., Any] | tuple[Callable[..., Any], str]] = [
            (Inert if name.startswith("numpy.") else stand_in, name) for name in names
        ]
        try:
            with _ONE_AT_A_TIME, safe_globals(known):
                return torch.load(file, map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, TypeError, ValueError) as failed:
            error = failed
    assert error is not None
    raise error
