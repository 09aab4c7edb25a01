"""A search over a configuration: trials in processes of their own, which survive a kill of the search."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from ignite_hooks.config.connected.yaml_text import as_yaml
from ignite_hooks.config.files import load_config
from ignite_hooks.config.overrides import with_overrides
from ignite_hooks.errors import CheckpointError, ConfigError, Problem, ResultError
from ignite_hooks.report.compare_page import write_comparison
from ignite_hooks.report.search_page import SearchPage, Tried, parts
from ignite_hooks.results.comparison import MOST_RUNS, read_runs
from ignite_hooks.results.result import FILE_NAME as RESULT
from ignite_hooks.results.result import RunResult, read_result
from ignite_hooks.search.engines import Ended, Engine, Job, threads_of
from ignite_hooks.search.in_python import MOST_FAILURES_FIRST
from ignite_hooks.search.makers import MAKERS, problems_of_engine
from ignite_hooks.search.study import FILE, SearchResult, Study
from ignite_hooks.secrets import masked
from ignite_hooks.store.files import make_folder, write_whole
from ignite_hooks.store.folder import FolderStore
from ignite_hooks.store.lock import FolderLock
from ignite_hooks.store.names import MANIFEST
from ignite_hooks.text import counted
from ignite_hooks.trainer.search_section import SearchSection, read_search
from ignite_hooks.trainer.sections import read_sections

LOCK: Final = ".search.lock"
BEST: Final = "best.yaml"
PAGE: Final = "search.html"
GOES_ON: Final = ("running", "waiting")
NEVER: Final = 1_000_000_000
"""An interval that no run reaches."""


class ConfigSearch:
    """The search that a configuration file describes.

    Args:
        source: The file.
        overrides: Values that replace those of the file.
        folder: The work directory; by default that of the configuration, else one named after the file.
        say: Receives a line for each trial that has ended.

    Raises:
        ConfigError: With every problem of the configuration.
    """

    def __init__(
        self,
        source: str,
        overrides: Sequence[str] = (),
        folder: str | Path | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        problems: list[Problem] = []
        content = with_overrides(load_config(source), overrides, problems)
        wanted = content.pop("search", None)
        if wanted is None:
            problems.append(Problem("search", "missing: what to try, as search: {space: {training.optimizer.lr: ...}}"))
        section = None if wanted is None else read_search(wanted, problems)
        given = content.pop("work_dir", None) or content.pop("experiment_dir", None)
        # A trial begins anew: what it may continue is found by the search.
        content.pop("resume", None)
        self.folder = Path(folder or given or Path("work_dirs") / f"{Path(source).stem}_search").absolute()
        self._content = content
        if section is not None:
            problems += problems_of_engine(section, content)
            first = {name: one.first for name, one in section.dimensions().items()}
            read_sections(self._with(first, section, problems), problems)
        if problems or section is None:
            raise ConfigError(problems, source)
        self.section: SearchSection = section
        self._say, self._running, self._source = say, set[int](), source
        self._left: list[Path] = []

    # -- the whole search ---------------------------------------------------------------------------------------

    def run(self) -> SearchResult:
        """Try until everything is tried or the time is up; return what was found."""
        make_folder(self.folder / "trials")
        lock = FolderLock(self.folder, LOCK)
        try:
            lock.acquire()
        except CheckpointError as error:
            raise ConfigError([Problem("work_dir", str(error))], self._source) from None
        try:
            with contextlib.closing(self._open_study()) as self.study:
                self.engine = self._make_engine()
                if again := self.study.repeat_interrupted():
                    self._say(f"{counted(again, 'trial')} of a search that was killed will be repeated")
                try:
                    self._try_all()
                finally:
                    self.engine.close()
                self._thin_out()
                return self._result()
        finally:
            lock.release()

    def _open_study(self) -> Study:
        try:
            if self.section.storage is not None:
                name = self.section.study or Path(self._source).stem
                return Study(self.section, digest=self._digest(), name=name)
            return Study(self.section, self.folder / FILE, self._digest())
        except (ImportError, ValueError) as error:
            raise ConfigError([Problem("search", masked(f"{error} ({self.folder})"))], self._source) from None

    def _make_engine(self) -> Engine:
        try:
            return MAKERS[self.section.engine_name](self.section)
        except (ImportError, ValueError) as error:
            raise ConfigError([Problem("search.engine", str(error))], self._source) from error

    def _try_all(self) -> None:
        until, said = time.monotonic() + (self.section.timeout or float("inf")), False
        while True:
            while len(self._running) < self.section.jobs and self.study.has_next and time.monotonic() < until:
                self._start()
            if not self._running:
                if not (elsewhere := self.study.elsewhere) or time.monotonic() >= until:
                    return
                if not said:
                    self._say(f"waiting for {counted(elsewhere, 'trial')} of other machines")
                    said = True
            if lost := self.study.beat():
                self._say(f"{counted(lost, 'trial')} of a lost machine will be repeated")
            for each in self.engine.ended():
                self._running.discard(each.number)
                self._end(each)
            time.sleep(0.05)

    # -- one trial ----------------------------------------------------------------------------------------------

    def _start(self) -> None:
        asked = self.study.ask(threads_of(self.section))
        if asked is None:
            return
        _, number, values = asked
        config, folder = self.folder / "trials" / f"{number:04}.yaml", self.folder / "trials" / f"{number:04}"
        write_whole(config, self._text(values))
        pruning = {
            "monitor": self.section.metric,
            "mode": "max" if self.section.greater else "min",
            "storage": self.study.url,
            "study": self.study.name,
            "number": number,
            "pruner": self.section.pruner,
        }
        self.engine.start(Job(number, config, folder, config.with_suffix(".log"), pruning, self._source))
        self._running.add(number)

    def _end(self, ended: Ended) -> None:
        number, code, study = ended.number, ended.code, self.study
        folder = self.folder / "trials" / f"{number:04}"
        try:
            result, problem = read_result(folder) if folder.is_dir() else None, ""
        except ResultError as error:
            result, problem = None, str(error)
        value = None if result is None else best_of(result, self.section.metric)
        value = ended.value if value is None else value
        if ended.killed:
            study.end_killed(number, ended.killed)
        elif ended.pruned:
            study.end(number, value, pruned=True, reason=ended.pruned)
        elif code or result is None or result.state == "failed":
            reason = (result.reason if result is not None else problem) or ended.reason or f"exit code {code}"
            study.end(number, None, reason=reason)
        elif result.kind == "pruned":
            study.end(number, value, pruned=True, reason=result.reason)
        else:
            missing = f"{self.section.metric} has no finite value"
            study.end(number, value, reason="" if value is not None else missing)
        self._tell(number)
        self._thin_out()

    def _tell(self, number: int) -> None:
        found = self.study.result()
        row = next(each for each in found.trials if each.number == number)
        cells = found.row(row)
        words = [f"trial {number}: {cells.pop('state')}", *(f"{n} {v}" for n, v in list(cells.items())[1:])]
        best = "" if found.best is None else f"; best {cells_of_best(found)}"
        done = sum(not each.repeated and each.state in ("finished", "pruned", "failed") for each in found.trials)
        self._say(f"[{done}/{self.section.number}] {', '.join(words)}{f' ({row.reason})' if row.reason else ''}{best}")
        tried = [each for each in found.trials if not each.repeated]
        failed = [each for each in tried if each.state == "failed"]
        if len(failed) == MOST_FAILURES_FIRST == sum(each.state in ("finished", "pruned", "failed") for each in tried):
            log = self.folder / "trials" / f"{number:04}.log"
            raise RuntimeError(
                f"the first {MOST_FAILURES_FIRST} trials have failed, the last with: {row.reason}: see {log}"
            )

    def _thin_out(self) -> None:
        """Delete the checkpoints of ended trials that are not among the best."""
        found = self.study.result()
        kept = {row.number for row in found.ranked[: self.section.keep]}
        for row in found.trials:
            folder = self.folder / "trials" / f"{row.number:04}"
            if row.number in kept or row.number in self._running or row.state in GOES_ON or folder in self._left:
                continue
            if delete_checkpoints(folder):
                self._left.append(folder)

    # -- the configurations -------------------------------------------------------------------------------------

    def _text(self, values: Mapping[str, Any], threads: int | None = None) -> bytes:
        """Return the file of a configuration with these values."""
        return as_yaml(self._with(values, self.section, [], threads)).encode()

    def _with(
        self, values: Mapping[str, Any], section: SearchSection, problems: list[Problem], threads: int | None = None
    ) -> dict[str, Any]:
        """Return the configuration of a trial, which trains as it is: with its values, a seed and its threads."""
        overrides = [f"{name}={json.dumps(value)}" for name, value in values.items()]
        content = with_overrides(self._content, overrides, problems, said="search.space")
        training = content.get("training")
        if (
            content.get("seed") is None
            and isinstance(training, Mapping | None)
            and (training or {}).get("seed") is None
        ):
            content["training"] = {**(training or {}), "seed": section.seed}
        hooks = content.get("custom_hooks") or []
        named = [*(content.get("hooks") or []), *hooks] if isinstance(hooks, list) else []
        if any(isinstance(hook, Mapping) and hook.get("type") == "DeterminismHook" for hook in named):
            return content
        # The bits depend on the threads: whoever trains this configuration again has the same number.
        fixed = {
            "type": "DeterminismHook",
            "seed": None,
            "deterministic": False,
            "threads": threads_of(section),
            "interval": NEVER,
        }
        content["custom_hooks"] = [*hooks, fixed]
        return content

    def _digest(self) -> str:
        """Return what makes two searches the same; how many trials there are and who makes them may change."""
        wanted = {name: getattr(self.section, name) for name in ("space", "metric", "sampler", "seed", "direction")}
        return json.dumps([self._content, wanted], sort_keys=True, default=str)

    def _result(self) -> SearchResult:
        found = self.study.result(folder=self.folder)
        if found.best is None:
            return found
        made = self.folder / "trials" / f"{found.best.number:04}.yaml"
        head = f"# The best of {len(found.trials)} trials: {cells_of_best(found)}\n"
        # It may have been tried on another machine.
        content = made.read_bytes() if made.is_file() else self._text(found.best.values, found.best.threads)
        write_whole(self.folder / BEST, head.encode() + content)
        self._write_page(found)
        return self.study.result(folder=self.folder, best_config=self.folder / BEST)

    def _write_page(self, found: SearchResult) -> None:
        """Write the page of the trials that have a result, the best ones first."""
        rows = [*found.ranked, *(row for row in found.trials if row.state == "pruned")]
        folders = [self.folder / "trials" / f"{row.number:04}" for row in rows]
        have = [folder for folder in folders if (folder / RESULT).is_file()][:MOST_RUNS]
        if len(have) > 1:
            tried = [Tried(row.number, row.state, row.value, row.values) for row in found.trials if not row.repeated]
            numbers = {name: one for name, one in self.section.dimensions().items() if not one.choices}
            scales = {name: "log" if one.log else "linear" for name, one in numbers.items()}
            page = SearchPage(found.metric, found.greater, tried, self.study.importance(), scales)
            title = f"{counted(len(tried), 'trial')} of {Path(self._source).name}"
            path = self.folder / PAGE
            write_comparison(read_runs(have), path, leave_out=("command",), above=parts(page), title=title)


def cells_of_best(found: SearchResult) -> str:
    """Return the best trial in words."""
    best = found.best
    assert best is not None
    return f"{found.metric} {found.row(best)[found.metric]} in trial {best.number}"


def best_of(result: RunResult, metric: str) -> float | None:
    """Return the best value of a metric in a run; None where there is none."""
    names = (metric, metric.replace("/", "_"), f"val_{metric}")
    return next((result.best[name].value for name in names if name in result.best), None)


def delete_checkpoints(folder: Path) -> bool:
    """Delete the checkpoints that the manifests in a folder, and in the folders in it, list; return whether all are.

    A process of a machine that is lost may hold its folder for a while.
    """
    deleted = True
    if not folder.is_dir():
        return deleted
    for place in (folder, *(child for child in folder.iterdir() if child.is_dir() and not child.is_symlink())):
        if not (place / MANIFEST).is_file():
            continue
        try:
            with closing(FolderStore(place).open()) as store:
                store.retire(list)
        except (CheckpointError, OSError):
            deleted = False
    return deleted
