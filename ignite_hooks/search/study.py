"""The study of a search: Optuna with a storage in a folder, which trial comes next, and what each was worth."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ignite_hooks.run.trials import MISSING, Trial, make_pruner, storage_of
from ignite_hooks.text import number as in_words
from ignite_hooks.text import table
from ignite_hooks.trainer.search_section import Dimension, SearchSection

NAME: Final = "search"
FILE: Final = "study.db"
MOST_REPEATS: Final = 2
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
    """A study of Optuna that one process asks; it can be asked again after a kill.

    Args:
        section: What is tried.
        storage: The file of the storage; None for one in memory.
        digest: What makes two searches the same: another one in the same file is refused.
    """

    def __init__(self, section: SearchSection, storage: Path | None = None, digest: str = "") -> None:
        try:
            import optuna
        except ImportError as error:
            raise ImportError(MISSING) from error
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._optuna, self.section = optuna, section
        self.url = None if storage is None else f"sqlite:///{storage}"
        self._study = optuna.create_study(
            study_name=NAME,
            storage=None if self.url is None else storage_of(self.url),
            direction="maximize" if section.greater else "minimize",
            pruner=make_pruner(section.pruner),
            load_if_exists=True,
        )
        known = self._study.user_attrs.get("digest", digest)
        if known != digest:
            raise ValueError("another search was made here, of other values or another configuration")
        self._study.set_user_attr("digest", digest)
        self._dimensions = section.dimensions()
        self._grid = section.grid() if section.sampler == "grid" else None
        self._to_repeat: list[tuple[int, int, dict[str, Any]]] = []
        self._next = 1 + max((row.index for row in self.rows()), default=-1)

    def repeat_interrupted(self) -> int:
        """Let the trials be repeated that were running when their search was killed; return their number."""
        running = [row for row in self.rows() if row.state == "running"]
        for row in running:
            self.end_killed(row.number, "its search was killed")
        return len(running)

    @property
    def has_next(self) -> bool:
        """Whether something is left to try."""
        return bool(self._to_repeat) or self._next < self.section.number

    def ask(self) -> tuple[Trial, int, dict[str, Any]]:
        """Return a new trial, its number, and the values that it tries."""
        repeats = 0
        if self._to_repeat:
            index, repeats, fixed = self._to_repeat.pop(0)
            self._study.enqueue_trial(fixed)
        else:
            index, self._next = self._next, self._next + 1
            if self._grid is not None:
                self._study.enqueue_trial(self._keys(self._grid[index]))
        # A sampler of its own for each: the values do not depend on how often, and where, the search was interrupted.
        self._study.sampler = self._sampler(index)
        trial = self._study.ask({name: self._distribution(one) for name, one in self._dimensions.items()})
        trial.set_user_attr("index", index)
        trial.set_user_attr("repeats", repeats)
        return trial, trial.number, self._values(trial.params)

    def end(self, number: int, value: float | None, *, pruned: bool = False, reason: str = "") -> None:
        """Record how a trial has ended: with a value, pruned, or failed."""
        state = self._optuna.trial.TrialState
        if reason:
            self._study._storage.set_trial_user_attr(self._id(number), "reason", reason)
        if pruned:
            self._study.tell(number, state=state.PRUNED)
        elif value is None or not math.isfinite(value):
            self._study.tell(number, state=state.FAIL)
        else:
            self._study.tell(number, value)

    def end_killed(self, number: int, reason: str) -> None:
        """Record that the process of a trial was killed, and repeat the trial, but not for ever."""
        frozen = next(trial for trial in self._study.trials if trial.number == number)
        repeats = int(frozen.user_attrs.get("repeats", 0))
        again = repeats < MOST_REPEATS and "index" in frozen.user_attrs
        if again:
            self._to_repeat.append((frozen.user_attrs["index"], repeats + 1, dict(frozen.params)))
            self._study._storage.set_trial_user_attr(self._id(number), "repeated", True)
        self.end(number, None, reason=reason)

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
            )
            for trial in self._study.get_trials(deepcopy=False)
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
        with warnings.catch_warnings():
            # Optuna 4 calls this way of measuring experimental.
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            measured = optuna.importance.PedAnovaImportanceEvaluator()
        return dict(optuna.importance.get_param_importances(self._study, evaluator=measured))

    def _id(self, number: int) -> int:
        return int(self._study._storage.get_trial_id_from_study_id_trial_number(self._study._study_id, number))

    def _sampler(self, index: int) -> Any:
        samplers, seed = self._optuna.samplers, (self.section.seed * 1_000_003 + index) % 2**32
        return samplers.TPESampler(seed=seed) if self.section.sampler == "tpe" else samplers.RandomSampler(seed=seed)

    def _distribution(self, one: Dimension) -> Any:
        made = self._optuna.distributions
        if one.choices:
            return made.CategoricalDistribution([_key(choice) for choice in one.choices])
        if one.whole:
            return made.IntDistribution(int(one.low), int(one.high), log=one.log, step=int(one.step or 1))
        return made.FloatDistribution(float(one.low), float(one.high), log=one.log, step=one.step)

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


def _key(choice: Any) -> Any:
    plain = choice is None or isinstance(choice, (bool, int, float, str))
    return choice if plain else json.dumps(choice, sort_keys=True, default=str)


def _last(values: Mapping[int, float]) -> float | None:
    return values[max(values)] if values else None
