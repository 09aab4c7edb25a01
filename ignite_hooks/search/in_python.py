"""A search over a function of one's own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ignite_hooks.errors import ConfigError, Problem
from ignite_hooks.results.outcome import is_pruning
from ignite_hooks.run.runner import Runner
from ignite_hooks.run.trials import running_trial
from ignite_hooks.search.study import SearchResult, Study
from ignite_hooks.text import one_line
from ignite_hooks.trainer.search_section import read_search

MOST_FAILURES_FIRST = 3
"""Number of trials at the beginning that may fail; where all of them do, the rest would too."""


def search(
    build: Callable[[dict[str, Any]], Runner | float],
    space: Mapping[str, Any],
    *,
    metric: str = "val_loss",
    direction: str = "auto",
    trials: int | None = None,
    sampler: str = "tpe",
    pruner: str | Mapping[str, Any] | None = None,
    seed: int = 0,
    folder: str | Path | None = None,
) -> SearchResult:
    """Try values with a function, one after the other in this process, and return what was found.

    Args:
        build: Trains with these values, and returns the runner, or the value of the metric. A `PruningHook` within asks
            the trial by itself.
        space: What to try, by name: a list of choices, or a mapping with log, float, int, choices or seeds.
        metric: The metric by which trials are ranked, by its best value in a run.
        direction: ``"maximize"``, ``"minimize"``, or ``"auto"``: by the name of the metric.
        trials: Number of trials; of a grid at most as many as there are combinations.
        sampler: ``"tpe"``, ``"random"`` or ``"grid"``.
        pruner: A pruner of Optuna, such as ``"median"``, or a mapping of type and settings.
        seed: Seed of the sampler.
        folder: Where the study is kept, so that it can be continued; by default nowhere.

    Raises:
        ConfigError: With everything that is wrong with the arguments.
        RuntimeError: If the first three trials all fail; the failure of the last is its cause.
    """
    given = {"space": dict(space), "metric": metric, "direction": direction, "trials": trials, "sampler": sampler}
    problems: list[Problem] = []
    section = read_search(given | {"pruner": pruner, "seed": seed}, problems, "search()")
    if section is None:
        raise ConfigError(problems)
    path = None if folder is None else Path(folder)
    if path is not None:
        path.mkdir(parents=True, exist_ok=True)
    digest = repr((sorted(space.items()), metric, sampler, seed))
    with contextlib.closing(Study(section, path and path / "study.db", digest)) as study:
        study.repeat_interrupted()
        while study.has_next:
            asked = study.ask()
            assert asked is not None
            trial, number, values = asked
            failure: Exception | None = None
            try:
                with running_trial(trial):
                    made = build(dict(values))
            except Exception as error:
                failure = None if is_pruning(error) else error
                study.end(number, None, pruned=failure is None, reason="" if failure is None else one_line(failure))
            else:
                pruned = isinstance(made, Runner) and made.state.stop_kind == "pruned"
                study.end(number, value_of(made, metric), pruned=pruned)
            result = study.result(folder=path)
            if failure is not None and len(result.trials) == MOST_FAILURES_FIRST == result.count("failed"):
                raise RuntimeError(
                    f"the first {MOST_FAILURES_FIRST} trials have failed: {one_line(failure)}"
                ) from failure
        return study.result(folder=path)


def value_of(made: Runner | float, metric: str) -> float | None:
    """Return the best value of a metric in a run, or the value itself; None where there is none."""
    if not isinstance(made, Runner):
        return float(made)
    names = (metric, metric.replace("/", "_"), f"val_{metric}")
    return next((made.best[name].score for name in names if name in made.best), None)
