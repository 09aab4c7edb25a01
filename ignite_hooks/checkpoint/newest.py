"""The newest checkpoint of a run that verifies: on any of its machines, or in its mirror."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ignite_hooks.checkpoint.find import checkpoint_folders
from ignite_hooks.checkpoint.machines import Machines, hand_over
from ignite_hooks.distributed.collectives import all_gather, fail_on_all_ranks, is_main_process, rank
from ignite_hooks.errors import CheckpointError
from ignite_hooks.store.files import temporary_path
from ignite_hooks.store.manifest import NOT_FOR_RESUMING, Entry, entry_as_json, entry_from_json, resuming_order
from ignite_hooks.store.mirror.remote import MirrorError
from ignite_hooks.text import counted

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner
    from ignite_hooks.store.mirror.mirror import Mirror

PAUSE = 1.0
"""Seconds before a mirror that does not answer is asked again."""
INEXACT = ("best", "exception", *NOT_FOR_RESUMING)


@dataclass(frozen=True)
class Source:
    """A place that holds checkpoints.

    Args:
        rank: The first rank of the machine; rank 0 for a mirror.
        folder: The folder there, or the URL of the mirror.
        is_mirror: Whether it is a mirror.
        run: The id of the run that saved there last; empty if unknown.
    """

    rank: int
    folder: str
    is_mirror: bool = False
    run: str = ""


@dataclass
class Candidate:
    """A checkpoint, and where it is."""

    entry: Entry
    sources: list[Source]


@dataclass
class Chosen:
    """What a run continues from.

    Args:
        path: Where it is on this machine.
        entry: What the manifest says about it.
        temporary: A folder that is removed once it is loaded.
    """

    path: Path
    entry: Entry
    temporary: Path | None = None

    def discard(self) -> None:
        """Remove what is on this machine for the moment only."""
        if self.temporary is not None:
            shutil.rmtree(self.temporary, ignore_errors=True)


@dataclass
class _Told:
    """What one rank knows."""

    sources: list[tuple[Source, list[Entry]]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    mirror_error: str = ""

    def plain(self) -> dict[str, Any]:
        return {
            "sources": [
                [[s.rank, s.folder, s.is_mirror, s.run], [entry_as_json(entry) for entry in entries]]
                for s, entries in self.sources
            ],
            "errors": self.errors,
            "mirror_error": self.mirror_error,
        }


class Search:
    """The search for the newest checkpoint; all ranks make it and call its methods together.

    Args:
        runner: The run, before its first iteration.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._machines = Machines.of_all_ranks()
        self._mirrors: dict[str, Mirror] = {}

    def newest(self) -> Chosen | None:
        """Return the newest checkpoint of one run that verifies on any machine, once all machines have it."""
        found = self._gather()
        entries = [entry for _, listed in found for entry in listed]
        if not entries:
            return None
        run = self._one_run([source for source, listed in found if listed])
        candidates = _grouped((s, [entry for entry in listed if entry.run in ("", run)]) for s, listed in found)
        foreign = sum(entry.run not in ("", run) for entry in entries)
        if foreign:
            self._info("%s of another run: left out", counted(foreign, "checkpoint"))
        reasons: list[str] = []
        chosen: tuple[Candidate, list[str]] | None = None
        for candidate in candidates:
            if chosen is not None and candidate.entry.kind in INEXACT:
                continue
            paths = self._verified(candidate, reasons)
            if paths is None:
                continue
            if chosen is not None:
                self._say_inexact(chosen[0].entry, candidate.entry)
                chosen = candidate, paths
                break
            chosen = candidate, paths
            if candidate.entry.kind != "best" or not self._has_doubt(paths):
                break
        if chosen is None:
            place = " and ".join(dict.fromkeys(source.folder for source, listed in found if listed))
            raise CheckpointError(f"no checkpoint in {place} can be used: {'; '.join(reasons)}")
        best, paths = chosen
        for other in dict.fromkeys(entry for entry in entries if entry.kind == "exception"):
            if other.iteration > best.entry.iteration and other.run in ("", run):
                self._info(
                    "%s is %d iterations further than %s, but a failing run saved it: name it to resume from it",
                    other.name,
                    other.iteration - best.entry.iteration,
                    best.entry.name,
                )
        return self._everywhere(best.entry, paths)

    # -- what there is ----------------------------------------------------------------------------------------

    def _gather(self) -> list[tuple[Source, list[Entry]]]:
        told = all_gather(self._look().plain())
        mirror_error = told[0]["mirror_error"]
        nothing = not any(entries for one in told for _, entries in one["sources"])
        if mirror_error and nothing:
            # Nothing here, and what is there is not known: to begin anew would be the wrong answer.
            told = all_gather(fail_on_all_ranks(lambda: self._look(patient=True).plain()))
        elif mirror_error:
            self._warn("%s; what is on %s competes alone", mirror_error, "these machines" if _many(told) else "disk")
        found = [
            (Source(*source), [entry_from_json(entry) for entry in entries])
            for one in told
            for source, entries in one["sources"]
        ]
        # Mirrors last: what is on a machine need not be fetched.
        found.sort(key=lambda item: item[0].is_mirror)
        errors = [error for one in told for error in one["errors"]]
        if errors and not any(entries for _, entries in found):
            raise CheckpointError(errors[0])
        for error in errors:
            self._warn("%s", error)
        return found

    def _look(self, *, patient: bool = False) -> _Told:
        told = _Told()
        if not self._machines.is_first:
            return told
        folders = checkpoint_folders(self._runner)
        for folder in folders:
            try:
                entries = self._runner.checkpoints.store(folder).candidates()
            except CheckpointError as error:
                told.errors.append(str(error))
                continue
            run = next((entry.run for entry in entries if entry.run), "")
            told.sources.append((Source(rank(), str(folder), run=run), entries))
        for mirror in self._runner.checkpoints.homes.mirrors.values():
            self._mirrors[mirror.shown] = mirror
            try:
                entries = self._ask(mirror.replica.candidates, mirror, patient)
            except MirrorError as error:
                if patient:
                    raise CheckpointError(
                        f"nothing is here to resume from, and the mirror cannot be read: {error}: start again once it "
                        "can be reached, or name the checkpoint to resume from"
                    ) from error
                told.mirror_error = str(error)
                continue
            except CheckpointError as error:
                told.errors.append(str(error))
                continue
            run = next((entry.run for entry in entries if entry.run), "")
            told.sources.append((Source(rank(), mirror.shown, True, run), entries))
        return told

    @staticmethod
    def _ask(question: Any, mirror: Mirror, patient: bool) -> Any:
        until = time.monotonic() + (mirror.timeout if patient else 0)
        while True:
            try:
                return question()
            except MirrorError:
                if time.monotonic() >= until:
                    raise
                time.sleep(PAUSE)

    def _one_run(self, sources: list[Source]) -> str:
        """Return the id of the run; files of several on different machines are an error."""
        places: dict[str, Source] = {}
        seen: dict[tuple[int, bool], str] = {}
        for source in sources:
            # On one machine the work directory decides.
            run = seen.setdefault((source.rank, source.is_mirror), source.run) or source.run
            seen[source.rank, source.is_mirror] = run
            if run:
                places.setdefault(run, source)
        own = [run for run, source in places.items() if seen[source.rank, source.is_mirror] == run]
        if len(own) > 1:
            words = "; ".join(
                f"run {run} in {places[run].folder}"
                + ("" if places[run].is_mirror else self._machines.on(places[run].rank))
                for run in own
            )
            raise CheckpointError(
                f"these are checkpoints of different runs: {words}: move all but one away, or name the checkpoint to "
                "resume from"
            )
        return own[0] if own else ""

    # -- which of them ----------------------------------------------------------------------------------------

    def _verified(self, candidate: Candidate, reasons: list[str]) -> list[str] | None:
        """Return the path of a checkpoint on each machine, by rank, empty where it is not; None if it is nowhere."""
        here = [source for source in candidate.sources if source.rank == rank() and not source.is_mirror]
        mine: dict[str, Any] = {"path": "", "wrong": []}
        for source in here if self._machines.is_first else ():
            reason = self._runner.checkpoints.store(Path(source.folder)).verify(candidate.entry)
            if reason is None:
                mine["path"] = str(Path(source.folder) / candidate.entry.name)
                break
            mine["wrong"].append([candidate.entry.name, f"{source.folder}{self._where()}", reason])
        gathered = all_gather(mine)
        mirror = next((source for source in candidate.sources if source.is_mirror), None)
        if mirror is not None and not any(one["path"] for one in gathered):
            gathered = all_gather(fail_on_all_ranks(lambda: self._fetched(candidate.entry, mirror, gathered[rank()])))
        for name, place, reason in (wrong for one in gathered for wrong in one["wrong"]):
            self._warn("%s in %s cannot be used: %s", name, place, reason)
            reasons.append(f"{name}: {reason}")
        paths = [str(one["path"]) for one in gathered]
        return paths if any(paths) else None

    def _fetched(self, entry: Entry, source: Source, mine: dict[str, Any]) -> dict[str, Any]:
        """Fetch a checkpoint from a mirror, on rank 0, and return where it is now."""
        if not is_main_process():
            return mine
        mirror, checkpoints = self._mirrors[source.folder], self._runner.checkpoints
        is_open = mirror.folder in checkpoints.homes.opened
        folder = mirror.folder if is_open else Path(tempfile.mkdtemp(prefix="ignite-hooks-"))
        temporary = temporary_path(folder, entry.name)
        try:
            reason = self._ask(lambda: mirror.replica.fetch(entry, temporary), mirror, True)
        except MirrorError as error:
            raise CheckpointError(f"cannot fetch {entry.name}: {error}") from error
        if reason is not None:
            _remove(temporary)
            return {"path": "", "wrong": [*mine["wrong"], [entry.name, mirror.shown, reason]]}
        store: Any = checkpoints.store(folder)
        path = store.accept(temporary, entry) if is_open else temporary.replace(folder / entry.name)
        self._info("fetched %s from %s", entry.name, mirror.shown)
        try:
            self._ask(mirror.restore_files, mirror, True)
        except (MirrorError, OSError) as error:
            self._warn("what was measured before is not fetched from the mirror: %s", error)
        return {"path": str(path), "wrong": mine["wrong"]}

    def _has_doubt(self, paths: list[str]) -> bool:
        """Return whether a resume from this file is approximate: it was written in the middle of an epoch's end."""
        holder = next(number for number, path in enumerate(paths) if path)
        doubt = False
        if rank() == holder:
            path = Path(paths[holder])
            try:
                data = self._runner.checkpoints.store(path.parent).load(path).get("data")
            except CheckpointError:
                data = None
            doubt = isinstance(data, dict) and data.get("doubt") is not None
        return bool(all_gather(doubt)[holder])

    def _say_inexact(self, best: Entry, exact: Entry) -> None:
        self._warn(
            "%s is %d iterations further than %s, but was saved in the middle of the end of its epoch, and a resume "
            "from it is approximate: name it to resume from it",
            best.name,
            best.iteration - exact.iteration,
            exact.name,
        )

    # -- to every machine -------------------------------------------------------------------------------------

    def _everywhere(self, entry: Entry, paths: list[str]) -> Chosen:
        """Hand a checkpoint to the machines that lack it."""
        machines = self._machines
        sender = next(number for number, path in enumerate(paths) if path)
        lacking = [number for number, first in enumerate(machines.firsts) if first == number and not paths[number]]
        if not lacking:
            return Chosen(Path(paths[machines.mine]), entry)
        words = ", ".join(dict.fromkeys(machines.hosts[number] for number in lacking))
        self._warn("%s comes from rank %d%s: %s lacks it", entry.name, sender, machines.on(sender), words)
        temporary, target, accepts = None, None, False
        opened = [
            folder for folder in checkpoint_folders(self._runner) if folder in self._runner.checkpoints.homes.opened
        ]
        folder = opened[0] if opened else self._runner.work_dir
        if rank() in lacking:
            accepts = bool(opened)
            temporary = folder if accepts else Path(tempfile.mkdtemp(prefix="ignite-hooks-"))
            target = temporary_path(folder, entry.name) if accepts else temporary / entry.name
        hand_over(entry, Path(paths[sender]) if rank() == sender else None, target, sender)

        def settle() -> str:
            if target is None:
                return paths[rank()]
            store: Any = self._runner.checkpoints.store(folder)
            return str(store.accept(target, entry) if accepts else target)

        received = all_gather(fail_on_all_ranks(settle))
        is_temporary = rank() in lacking and not accepts
        return Chosen(Path(received[machines.mine]), entry, temporary if is_temporary else None)

    def _where(self) -> str:
        return self._machines.on(rank())

    def _warn(self, words: str, *args: Any) -> None:
        if is_main_process():
            self._runner.logger.warning(words, *args)

    def _info(self, words: str, *args: Any) -> None:
        if is_main_process():
            self._runner.logger.info(words, *args)


def _grouped(found: Iterable[tuple[Source, list[Entry]]]) -> list[Candidate]:
    """Return what may be resumed from, best first; the same content in several places is one."""
    groups: dict[tuple[str, str], Candidate] = {}
    for source, entries in found:
        for entry in entries:
            group = groups.setdefault((entry.name, entry.checksum), Candidate(entry, []))
            group.sources.append(source)
    return sorted(groups.values(), key=lambda group: resuming_order(group.entry))


def _many(told: list[dict[str, Any]]) -> bool:
    return sum(bool(one["sources"]) for one in told) > 1


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
