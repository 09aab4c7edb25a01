"""Runs a part of two runs again, with digests of each iteration, to find where they part."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ignite_hooks.config.files import load_config
from ignite_hooks.errors import CheckpointError, ConfigError, ResultError
from ignite_hooks.results.checkpoint_table import CheckpointTable
from ignite_hooks.results.parting import (
    DIGESTS,
    RUN,
    TENSORS,
    Difference,
    Parting,
    check_runs,
    differences,
    part,
    read_lines,
    settings_that_differ,
)
from ignite_hooks.results.result import read_result

ALONE = ("model", "dataset")
"""The sections of a configuration that trains by itself."""


@dataclass(frozen=True)
class Stretch:
    """A part of a run, as the process that runs it again is told.

    Args:
        config: The configuration of the run.
        folder: Where files go.
        until: The last iteration.
        resume: The checkpoint to begin with; None for the beginning of the run.
        threads: The number of threads of torch; None leaves it alone.
    """

    config: str
    folder: str
    until: int
    resume: str | None = None
    threads: int | None = None


def part_with_replay(one: Path, other: Path) -> Parting:
    """Return where two runs part, to the iteration; what lies between two digests is run again.

    Where a run has kept no digests its checkpoints are compared, which says between which of them the runs part.

    Raises:
        ResultError: If nothing can be compared, or a run cannot be run again, or does other things then.
    """
    check_runs(one, other)
    both = all(read_lines(folder / DIGESTS) for folder in (one, other))
    rough = part(one, other) if both else part_by_checkpoints(one, other)
    if rough.iteration is None or rough.iteration - (rough.equal_until or 0) <= 1:
        return rough
    since = rough.equal_until or 0
    with tempfile.TemporaryDirectory(prefix="ignite-hooks-", ignore_cleanup_errors=True) as scratch:
        folders = []
        for name, run in (("one", one), ("other", other)):
            folder = Path(scratch) / name
            from_checkpoint = again(run, rough.equal_until or 0, rough.iteration, folder)
            found = _unlike(run, folder, rough.iteration)
            if found and from_checkpoint:
                # Workers of data loaders that stay from epoch to epoch draw other random numbers after a resume.
                since, folder = 0, Path(scratch) / f"{name}_from_its_beginning"
                again(run, 0, rough.iteration, folder)
                found = _unlike(run, folder, rough.iteration)
            if found:
                raise ResultError(
                    f"{run}: run again to iteration {rough.iteration} it differs from what it was, first in: "
                    f"{found[0]}; what it did does not follow from its configuration alone"
                )
            folders.append(folder)
        fine = part(*folders)
    if fine.iteration is None:
        stretch = f"from iteration {since} to {rough.iteration}"
        raise ResultError(
            f"run again {stretch} the two runs are equal: what made them part is not in their configurations"
        )
    equal = rough.equal_until if fine.equal_until is None else fine.equal_until
    return replace(
        fine,
        compared=rough.compared,
        last=rough.last,
        equal_until=equal,
        settings=rough.settings,
        replayed=(since, rough.iteration),
    )


def part_by_checkpoints(one: Path, other: Path) -> Parting:
    """Return between which checkpoints two runs part.

    They are halved again and again: runs that have parted do not meet again.

    Raises:
        ResultError: If the runs have no checkpoints of the same iteration.
    """
    tables = [CheckpointTable.of(folder) for folder in (one, other)]
    names = [{entry.iteration: entry.name for entry in table} for table in tables]
    common = sorted(names[0].keys() & names[1].keys())
    if not common:
        raise ResultError(
            f"{one}, {other}: there are no {DIGESTS} and no checkpoints of the same iteration: "
            "add {type: DeterminismHook} to both runs"
        )

    def differ(iteration: int) -> tuple[Difference, ...]:
        return tuple(differences(*_states(tables, (name[iteration] for name in names))))

    settings = settings_that_differ(one, other)
    equal, parted, found = -1, len(common) - 1, differ(common[-1])
    if not found:
        return Parting(len(common), common[-1], settings=settings)
    while parted - equal > 1:
        middle = (equal + parted) // 2
        if there := differ(common[middle]):
            parted, found = middle, there
        else:
            equal = middle
    return Parting(
        len(common), common[-1], common[parted], common[equal] if equal >= 0 else None, found, settings=settings
    )


def digests_of_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the digests of a checkpoint, as `DeterminismHook` writes them for an iteration."""
    from ignite_hooks.hooks.training.determinism_hook import digest_of, tensor_digests

    weights = state.get("state_dict")
    saved = state.get("optimizer")
    parts = [saved] if isinstance(saved, Mapping) and "state" in saved else list((saved or {}).values())
    # Rates are left out: at the end of an epoch a scheduler has changed them for the next one.
    moments = [part.get("state") for part in parts if isinstance(part, Mapping)]
    content: dict[str, Any] = {"all": digest_of(weights), RUN: {"optimizer": digest_of(moments)}}
    if isinstance(weights, Mapping) and (tensors := tensor_digests(weights)):
        content[TENSORS] = tensors
    return content


def again(run: Path, after: int, until: int, folder: Path) -> bool:
    """Run a part of a run again in a process of its own, from its newest checkpoint that is not after an iteration.

    Returns:
        Whether there was such a checkpoint; else the part is from the beginning.

    Raises:
        ResultError: If that cannot be done.
    """
    config = run / "config.yaml"
    try:
        content = load_config(config)
    except (ConfigError, OSError) as error:
        raise ResultError(f"{run} cannot be run again: {error}") from error
    if not all(name in content for name in ALONE):
        raise ResultError(
            f"{run} cannot be run again: a script has made it, and it does not come from a configuration alone"
        )
    result = read_result(run)
    if result is not None and result.environment.get("processes", "one") != "one":
        raise ResultError(f"{run} cannot be run again: it had several processes")
    bits = {} if result is None else result.bits
    table = CheckpointTable.of(run)
    paths = {entry.name: path for path, entry in table.paths.items()}
    before = [paths[entry.name] for entry in table if entry.iteration <= after]
    threads = bits.get("torch threads")
    wanted = Stretch(
        str(config.absolute()),
        str(folder),
        until,
        str(before[-1].absolute()) if before else None,
        threads if isinstance(threads, int) else None,
    )
    done = subprocess.run(
        [sys.executable, "-m", __name__, json.dumps(vars(wanted))], capture_output=True, text=True, check=False
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise ResultError(f"{run} cannot be run again: {lines[-1]}")
    return wanted.resume is not None


def _unlike(run: Path, folder: Path, iteration: int) -> list[Difference]:
    """Return how the end of a part that was run again differs from what the run has recorded, or else saved."""
    then, now = (read_lines(place / DIGESTS).get(iteration) for place in (run, folder))
    if then is not None and now is not None:
        return list(differences(then, now))
    tables = [CheckpointTable.of(place) for place in (run, folder)]
    mine, theirs = ({entry.name for entry in table if entry.iteration == iteration} for table in tables)
    # Those of one name are saved at the same point of the iteration.
    for name in sorted(mine & theirs)[:1]:
        return list(differences(*_states(tables, (name, name))))
    return []


def _states(tables: Iterable[CheckpointTable], names: Iterable[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the digests of two checkpoints."""
    try:
        one, other = (digests_of_state(table.load(name)) for table, name in zip(tables, names, strict=True))
    except CheckpointError as error:
        raise ResultError(str(error)) from error
    return one, other


def train(wanted: Stretch) -> None:
    """Train a part of a run, with digests of each iteration."""
    import torch

    from ignite_hooks.hooks.training.lambda_hook import LambdaHook
    from ignite_hooks.trainer.base_trainer import CommandTrainer

    if wanted.threads is not None:
        torch.set_num_threads(wanted.threads)
    trainer = CommandTrainer(
        config_of_replay(load_config(wanted.config), begins=wanted.resume is None),
        work_dir=wanted.folder,
        resume=wanted.resume,
    )

    def stop(runner: Any) -> None:
        if runner.global_step >= wanted.until:
            runner.stop("this part was run again", kind="planned")

    trainer.register_hook(LambdaHook(name="end_of_replay", after_train_iter=stop))
    trainer.train()


def config_of_replay(content: Mapping[str, Any], begins: bool) -> dict[str, Any]:
    """Return a configuration without what only observes a training, with digests of each iteration.

    Args:
        content: The configuration of the run.
        begins: Whether it starts at the beginning, with the weights the run had then.

    Example:
        >>> config_of_replay({"hooks": [{"type": "LoggerHook"}, {"type": "EMAHook"}]}, begins=False)["hooks"]
        [{'type': 'EMAHook'}]
    """
    from ignite_hooks.trainer.tested_run import config_of_test

    changed = config_of_test(content)
    if begins:
        changed |= {name: content[name] for name in ("load_from",) if name in content}
        changed["training"] = content.get("training", {})
    digests: dict[str, Any] = {"type": "DeterminismHook", "seed": None, "deterministic": False}
    for section in ("hooks", "custom_hooks"):
        listed = changed.get(section) or []
        if isinstance(listed, list):
            mine = [one for one in listed if isinstance(one, Mapping) and one.get("type") == "DeterminismHook"]
            digests = {**digests, **mine[0]} if mine else digests
            changed |= {section: [one for one in listed if one not in mine]} if mine else {}
    digests = {name: value for name, value in digests.items() if name not in ("every", "frequency", "compare_with")}
    changed["custom_hooks"] = [*(changed.get("custom_hooks") or []), {**digests, "interval": 1}]
    return changed


if __name__ == "__main__":
    train(Stretch(**json.loads(sys.argv[1])))
