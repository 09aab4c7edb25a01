"""The study of a search: Optuna with a storage in a folder, which trial comes next, and what each was worth."""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ignite_hooks.run.trials import MISSING, Trial, close_storage, make_pruner, storage_of
from ignite_hooks.secrets import masked
from ignite_hooks.text import number as in_words
from ignite_hooks.text import one_line, table
from ignite_hooks.trainer.search_section import Dimension, SearchSection

NAME: Final = "search"
FILE: Final = "study.db"
MOST_REPEATS: Final = 2
BEAT: Final = 30
"""Seconds between two signs of life of a trial in a database that machines share."""
LOST_AFTER: Final = 120
"""Seconds without a sign of life after which a machine is taken for lost."""
LOOK: Final = 1.0
"""Seconds between two looks at what other machines have done."""
PAUSES: Final = (0.5, 1.0, 2.0)
"""Seconds before a study is opened again that could not be opened."""
FEW: Final = 10
"""With fewer finished trials nothing is said of what matters."""
STATES: Final = {
    "COMPLETE": "finished",
    "PRUNED": "pruned",
    "FAIL": "failed",
    "RUNNING": "running",
    "WAITING": "waiting",
}


@dataclass(frozen=True)
class TrialRow:
    """One trial as data."""

    number: int
    index: int
    """Its place among what is tried; a trial that was killed and its repetition have the same."""
    state: str
    value: float | None
    values: Mapping[str, Any]
    """The settings that were tried."""
    reports: int = 0
    repeated: bool = False
    """Whether the trial was killed, and tried again as another."""
    reason: str = ""
    threads: int | None = None
    """The threads that it has, which differ between machines."""


@dataclass(frozen=True)
class SearchResult:
    """What a search has found; it prints as a table."""

    metric: str
    greater: bool
    trials: Sequence[TrialRow] = ()
    folder: Path | None = None
    best_config: Path | None = None
    """The configuration of the best trial, which trains as it is."""
    problems: Sequence[str] = field(default=())

    @property
    def ranked(self) -> list[TrialRow]:
        """The finished trials, best first; of equal ones the earlier."""
        finished = [row for row in self.trials if row.state == "finished" and row.value is not None]
        sign = -1 if self.greater else 1
        return sorted(finished, key=lambda row: (sign * (row.value or 0.0), row.number))

    @property
    def best(self) -> TrialRow | None:
        """The best finished trial."""
        return next(iter(self.ranked), None)

    def count(self, state: str) -> int:
        """Return the number of trials in a state, without those that were repeated."""
        return sum(row.state == state and not row.repeated for row in self.trials)

    def rows(self) -> list[dict[str, str]]:
        """Return a row for each trial: the finished ones best first, then the others."""
        ranked = self.ranked
        return [self.row(row) for row in (*ranked, *(row for row in self.trials if row not in ranked))]

    def row(self, row: TrialRow) -> dict[str, str]:
        """Return a trial as a row of the table."""
        state = "killed, repeated" if row.repeated else row.state
        cells = {
            "trial": str(row.number),
            "state": state,
            self.metric: "–" if row.value is None else in_words(row.value),
        }
        cells["reports"] = str(row.reports)
        for name, value in row.values.items():
            cells[name] = in_words(value) if isinstance(value, float) else str(value)
        return cells

    def __repr__(self) -> str:
        counts = ", ".join(f"{self.count(state)} {state}" for state in STATES.values() if self.count(state))
        return "\n".join([table(self.rows()) if self.trials else "no trials", counts or "nothing was tried"])


class Study:
    """A study of Optuna that one process asks, or one on each of several machines; it can be asked again after a kill.

    Args:
        section: What is tried.
        storage: The file of the storage; None for one in memory, or for the address in the section.
        digest: What makes two searches the same: another one in the same file is refused.
        name: The name of the study, where several machines share it.
    """

    def __init__(self, section: SearchSection, storage: Path | None = None, digest: str = "", name: str = NAME) -> None:
        try:
            import optuna
        except ImportError as error:
            raise ImportError(MISSING) from error
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._optuna, self.section, self.name = optuna, section, name
        self.url = None if storage is None else f"sqlite:///{storage}"
        self.shared = section.storage is not None
        if section.storage is not None:
            self.url = os.path.expandvars(section.storage)
        self._beats: Any = None
        self._dimensions = section.dimensions()
        self._grid = section.grid() if section.sampler == "grid" else None
        self._study = self._open()
        known = self._study.user_attrs.get("digest", digest)
        if known != digest:
            raise ValueError("another search was made here, of other values or another configuration")
        self._study.set_user_attr("digest", digest)
        self._mine: set[int] = set()
        """The trials of this process that are running."""
        self._next_beat = self._next_look = 0.0
        self._left = self._elsewhere = 0
        self._look()

    def _open(self) -> Any:
        """Return the study; machines that begin at the same time may make its tables at the same time."""
        for pause in (*PAUSES, None):
            try:
                if self.shared and self.url is not None:
                    # A storage of its own: Optuna would do this itself, in a thread, in searches that it runs.
                    with self._experimental():
                        self._beats = storage_of(self.url, BEAT, LOST_AFTER)
                return self._optuna.create_study(
                    study_name=self.name,
                    storage=None if self.url is None else storage_of(self.url),
                    direction="maximize" if self.section.greater else "minimize",
                    pruner=make_pruner(self.section.pruner),
                    load_if_exists=True,
                )
            except Exception as error:
                if type(error).__module__.partition(".")[0] not in ("sqlalchemy", "optuna"):
                    raise
                if pause is None:
                    words = f"the database of the search cannot be used: {one_line(error)}"
                    raise ValueError(masked(words)) from None
                time.sleep(pause)
        raise AssertionError

    def close(self) -> None:
        """Close the connections to the database; a later question opens new ones."""
        for storage in (self._study._storage, self._beats):
            close_storage(storage)

    def repeat_interrupted(self) -> int:
        """Let the trials be repeated whose search was killed; return their number.

        Those of other machines are so once they have given no sign of life for a while, here and in `beat`.
        """
        if self.shared:
            return self._repeat_lost()
        running = [row for row in self.rows() if row.state == "running"]
        for row in running:
            self.end_killed(row.number, "its search was killed")
        return len(running)

    def beat(self) -> int:
        """Say that the trials of this process live, and let those of lost machines be repeated; return their number."""
        now = time.monotonic()
        if not self.shared or now < self._next_beat:
            return 0
        self._next_beat = now + BEAT
        for number in self._mine:
            self._beats.record_heartbeat(self._id(number))
        return self._repeat_lost()

    def _repeat_lost(self) -> int:
        lost = set(self._beats._get_stale_trial_ids(self._study._study_id))
        numbers = [trial.number for trial in self._study.get_trials(deepcopy=False) if trial._trial_id in lost]
        return sum(self.end_killed(number, "its machine is lost") for number in numbers)

    @property
    def has_next(self) -> bool:
        """Whether something is left to try."""
        self._look_again()
        return self._left > 0

    @property
    def elsewhere(self) -> int:
        """The number of trials that other machines are running: one may have to be repeated here."""
        self._look_again()
        return self._elsewhere

    def _look_again(self) -> None:
        if self.shared and time.monotonic() >= self._next_look:
            self._look()

    def _look(self) -> None:
        """Count what is left to try, and what is running on other machines."""
        self._next_look = time.monotonic() + LOOK
        trials = self._study.get_trials(deepcopy=False)
        waiting = sum(trial.state.name == "WAITING" for trial in trials)
        begun = sum(_is_new(trial) for trial in trials)
        self._left = waiting + max(0, self.section.number - begun)
        self._elsewhere = sum(trial.state.name == "RUNNING" and trial.number not in self._mine for trial in trials)

    def ask(self, threads: int | None = None) -> tuple[Trial, int, dict[str, Any]] | None:
        """Return a new trial, its number, and the values that it tries; None if another machine has taken the last."""
        # A sampler is found once it is known which trial this is: until then nothing may be drawn.
        self._study.sampler = self._optuna.samplers.RandomSampler()
        trial = self._study.ask()
        if self.shared:
            self._beats.record_heartbeat(trial._trial_id)
        attributes = trial.user_attrs
        if (index := attributes.get("index")) is None:
            # Nothing that can change: of two that begin at the same time each has its own number.
            earlier = self._study.get_trials(deepcopy=False)
            index = sum(_is_new(other) for other in earlier if other.number < trial.number)
            trial.set_user_attr("index", index)
        if self.shared and index >= self.section.number:
            trial.set_user_attr("surplus", True)
            self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
            self._look()
            return None
        # A sampler of its own for each: the values do not depend on how often, and where, the search was interrupted.
        self._study.sampler = self._sampler(index)
        for name, one in self._dimensions.items():
            self._draw(trial, name, one)
        if threads is not None:
            trial.set_user_attr("threads", threads)
        self._mine.add(trial.number)
        self._look()
        return trial, trial.number, self._values(trial.params)

    def end(self, number: int, value: float | None, *, pruned: bool = False, reason: str = "") -> None:
        """Record how a trial has ended: with a value, pruned, or failed."""
        self._mine.discard(number)
        state = self._optuna.trial.TrialState
        if reason:
            with contextlib.suppress(self._optuna.exceptions.UpdateFinishedTrialError):
                self._study._storage.set_trial_user_attr(self._id(number), "reason", reason)
        # Other machines may have given it up.
        told = {"skip_if_finished": self.shared}
        if pruned:
            self._study.tell(number, state=state.PRUNED, **told)
        elif value is None or not math.isfinite(value):
            self._study.tell(number, state=state.FAIL, **told)
        else:
            self._study.tell(number, value, **told)
        self._look()

    def end_killed(self, number: int, reason: str) -> bool:
        """Record that the process of a trial was killed, and repeat the trial, but not for ever; return whether so."""
        frozen = next(trial for trial in self._study.trials if trial.number == number)
        repeats = int(frozen.user_attrs.get("repeats", 0))
        again = repeats < MOST_REPEATS and "index" in frozen.user_attrs
        storage, failed = self._study._storage, self._optuna.trial.TrialState.FAIL
        try:
            storage.set_trial_user_attr(frozen._trial_id, "reason", reason)
            if again:
                storage.set_trial_user_attr(frozen._trial_id, "repeated", True)
            storage.set_trial_state_values(frozen._trial_id, state=failed)
        except self._optuna.exceptions.UpdateFinishedTrialError:
            # Another machine has seen it, and repeats it.
            again = False
        if again:
            attributes = {"index": frozen.user_attrs["index"], "repeats": repeats + 1}
            self._study.enqueue_trial(dict(frozen.params), user_attrs=attributes)
        self._mine.discard(number)
        self._look()
        return again

    def rows(self) -> list[TrialRow]:
        """Return every trial so far."""
        return [
            TrialRow(
                trial.number,
                int(trial.user_attrs.get("index", trial.number)),
                STATES[trial.state.name],
                trial.value if trial.state.name == "COMPLETE" else _last(trial.intermediate_values),
                self._values(trial.params),
                len(trial.intermediate_values),
                bool(trial.user_attrs.get("repeated")),
                str(trial.user_attrs.get("reason", "")),
                trial.user_attrs.get("threads"),
            )
            for trial in self._study.get_trials(deepcopy=False)
            if "surplus" not in trial.user_attrs
        ]

    def result(self, **given: Any) -> SearchResult:
        """Return what was found so far."""
        return SearchResult(self.section.metric, self.section.greater, self.rows(), **given)

    def importance(self) -> dict[str, float]:
        """Return how well each setting tells the best trials from the others; of few trials it says nothing."""
        finished = [row for row in self.rows() if row.state == "finished"]
        if len(finished) < FEW or len(self._dimensions) < 2:
            return {}
        optuna = self._optuna
        with self._experimental():
            measured = optuna.importance.PedAnovaImportanceEvaluator()
        return dict(optuna.importance.get_param_importances(self._study, evaluator=measured))

    @contextlib.contextmanager
    def _experimental(self) -> Iterator[None]:
        """Let Optuna not warn of what it calls experimental."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", self._optuna.exceptions.ExperimentalWarning)
            yield

    def _id(self, number: int) -> int:
        return int(self._study._storage.get_trial_id_from_study_id_trial_number(self._study._study_id, number))

    def _sampler(self, index: int) -> Any:
        samplers, seed = self._optuna.samplers, (self.section.seed * 1_000_003 + index) % 2**32
        if self._grid is not None:
            with self._experimental():
                return samplers.PartialFixedSampler(self._keys(self._grid[index]), samplers.RandomSampler(seed=seed))
        return samplers.TPESampler(seed=seed) if self.section.sampler == "tpe" else samplers.RandomSampler(seed=seed)

    def _draw(self, trial: Any, name: str, one: Dimension) -> None:
        """Let the sampler choose a value; the trial then has it."""
        if one.choices:
            trial.suggest_categorical(name, [_key(choice) for choice in one.choices])
        elif one.whole:
            trial.suggest_int(name, int(one.low), int(one.high), log=one.log, step=int(one.step or 1))
        else:
            trial.suggest_float(name, float(one.low), float(one.high), log=one.log, step=one.step)

    def _keys(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: _key(value) if self._dimensions[name].choices else value for name, value in values.items()}

    def _values(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values that are meant: choices may be lists and mappings, which Optuna takes only as text."""
        found = {}
        for name, one in self._dimensions.items():
            if name in params:
                by_key = {_key(choice): choice for choice in one.choices}
                found[name] = by_key.get(params[name], params[name]) if one.choices else params[name]
        return found


def _is_new(trial: Any) -> bool:
    """Return whether a trial was the first of its values: a repetition says from its beginning that it is one."""
    return not trial.user_attrs.get("repeats")


def _key(choice: Any) -> Any:
    plain = choice is None or isinstance(choice, (bool, int, float, str))
    return choice if plain else json.dumps(choice, sort_keys=True, default=str)


def _last(values: Mapping[int, float]) -> float | None:
    return values[max(values)] if values else None
