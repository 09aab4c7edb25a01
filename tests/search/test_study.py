"""`study.py`: which trial comes next, also after a kill, and what each was worth."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import psutil
import pytest

from ignite_hooks.search.study import FEW, MOST_REPEATS, SearchResult, Study, TrialRow
from ignite_hooks.trainer.search_section import SearchSection

pytest.importorskip("optuna", reason="the extra 'search' is not installed")

SPACE = {"x": {"float": [0, 1]}, "hidden": [[16], [32]], "n": {"int": [1, 9]}}


def tried(study: Study, most: int = 99) -> list[Any]:
    """Return the values that a study tries, as many as it still may."""
    found = []
    while study.has_next and len(found) < most:
        _, number, values = study.ask()
        found.append(values)
        study.end(number, values["x"])
    return found


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_closed_study_holds_no_connection_and_can_be_asked_again(is_shared: bool, tmp_path: Path) -> None:
    file = tmp_path / "study.db"

    def held() -> list[str]:
        return [each.path for each in psutil.Process().open_files() if each.path == str(file)]

    storage: dict[str, Any] = {"storage": f"sqlite:///{file}", "study": "one"} if is_shared else {}
    study = Study(SearchSection(SPACE, trials=2, sampler="random", **storage), None if is_shared else file)
    assert len(tried(study, 1)) == 1
    assert held()
    study.close()
    assert held() == []
    assert len(tried(study)) == 1
    study.close()
    assert held() == []


def test_random_trials_are_the_same_however_often_the_search_is_interrupted(tmp_path: Path) -> None:
    section = SearchSection(SPACE, trials=6, sampler="random", seed=3)
    at_once = tried(Study(section))
    first = Study(section, tmp_path / "study.db")
    begun = tried(first, 2)
    first.ask()
    first.ask()
    second = Study(section, tmp_path / "study.db")
    assert second.repeat_interrupted() == 2
    begun += tried(second)
    assert begun == at_once
    assert [row.state for row in second.rows()] == ["finished"] * 2 + ["failed"] * 2 + ["finished"] * 4
    assert [row.index for row in second.rows()] == [0, 1, 2, 3, 2, 3, 4, 5]


def test_what_matters_is_said_of_enough_trials_only() -> None:
    study = Study(SearchSection(SPACE, trials=FEW, sampler="random"))
    tried(study, FEW - 1)
    assert study.importance() == {}
    tried(study)
    shares = study.importance()
    assert sum(shares.values()) == pytest.approx(1.0)
    assert max(shares, key=shares.__getitem__) == "x"


def test_values_may_be_lists(tmp_path: Path) -> None:
    section = SearchSection(SPACE, trials=4, sampler="random")
    assert {type(values["hidden"]) for values in tried(Study(section, tmp_path / "s.db"))} == {list}


def test_a_grid_is_tried_once_whole(tmp_path: Path) -> None:
    section = SearchSection({"x": [0.0, 1.0], "hidden": [[16], [32]]}, sampler="grid")
    found = tried(Study(section, tmp_path / "s.db"), 3) + tried(Study(section, tmp_path / "s.db"))
    assert found == section.grid()


def test_another_search_in_the_same_file_is_refused(tmp_path: Path) -> None:
    section = SearchSection(SPACE)
    Study(section, tmp_path / "s.db", "one")
    with pytest.raises(ValueError, match="another search"):
        Study(section, tmp_path / "s.db", "other")


def test_a_trial_that_is_killed_each_time_is_not_repeated_for_ever() -> None:
    study = Study(SearchSection(SPACE, trials=1))
    killed = 0
    while study.has_next:
        _, number, _ = study.ask()
        study.end_killed(number, "killed by SIGKILL")
        killed += 1
    assert killed == 1 + MOST_REPEATS
    result = study.result()
    assert (result.count("failed"), len({str(row.values) for row in result.trials})) == (1, 1)


def test_ends_are_counted_and_ranked() -> None:
    study = Study(SearchSection(SPACE, trials=5))
    for value, pruned in ((0.3, False), (0.1, False), (0.01, True), (math.nan, False), (None, False)):
        _, number, _ = study.ask()
        study.end(number, value, pruned=pruned)
    result = study.result()
    assert [row.value for row in result.ranked] == [0.1, 0.3]
    assert [result.count(state) for state in ("finished", "pruned", "failed")] == [2, 1, 2]
    assert repr(result).endswith("2 finished, 1 pruned, 2 failed")


def test_the_best_of_equal_ones_is_the_earlier() -> None:
    rows = [TrialRow(n, n, "finished", 1.0, {}) for n in (1, 0)]
    best = SearchResult("accuracy", True, rows).best
    assert best is not None
    assert best.number == 0
