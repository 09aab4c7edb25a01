"""The checkpoint that a user has named: where it is, and what there is where it is not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ignite_hooks.errors import CheckpointError
from ignite_hooks.text import did_you_mean

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner

MOST_LISTED = 12


def find_checkpoint(runner: Runner, wanted: str | Path) -> Path:
    """Return the path of a checkpoint that was named by its path or by its bare name.

    A name is looked up below the working directory, the work directory of the run, its folder of checkpoints, and the
    folders in which its hooks save. A link is followed: the user has named it.

    Raises:
        CheckpointError: If there is no such file, with what there is.
    """
    folders = checkpoint_folders(runner)
    paths = [Path(wanted), *(folder / wanted for folder in folders)]
    for path in paths:
        if path.exists():
            return path.resolve() if path.is_symlink() else path
    for path in paths:
        # A store need not keep files.
        if any(entry.name == path.name for entry in runner.store(path.parent.absolute()).entries()):
            return path
    given = Path(wanted)
    if given.is_symlink():
        raise CheckpointError(f"cannot load {given}: it is a link to {given.readlink()}, which is not there")
    if given.is_absolute():
        folders = [given.parent]
    there = sorted({path.name for folder in folders if folder.is_dir() for path in folder.glob("*.pth")})
    listed = ", ".join(there[:MOST_LISTED]) + (f" and {len(there) - MOST_LISTED} more" if there[MOST_LISTED:] else "")
    places = " and ".join(map(str, folders))
    raise CheckpointError(
        f"cannot load {given}: No such file; {places} {'holds' if len(folders) == 1 else 'hold'} {listed or 'none'}"
        + did_you_mean(given.name, there)
    )


def checkpoint_folders(runner: Runner) -> list[Path]:
    """Return the folders in which this run may have checkpoints, the work directory first."""
    savers = [hook for hook in runner.hooks.registered.values() if hasattr(type(hook), "out_dir")]
    named = [runner.work_dir / (getattr(hook, "out_dir", None) or "") for hook in savers]
    return list(dict.fromkeys([runner.work_dir, *named, runner.services.path_of("checkpoints_dir")]))
