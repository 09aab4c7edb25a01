"""`study.py` with a database that several machines share: each is an object of its own here."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from ignite_hooks.search import study as module
from ignite_hooks.search.study import Study
from ignite_hooks.trainer.search_section import SearchSection

pytest.importorskip("optuna", reason="the extra 'search' is not installed")
SPACE = {"x": {"float": [0, 1]}, "n": {"int": [1, 9]}}


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every look be a fresh one."""
    monkeypatch.setattr(module, "LOOK", 0.0)


def shared(folder: Path, **settings: Any) -> SearchSection:
    given = {"trials": 6, "sampler": "random", "seed": 3, "storage": f"sqlite:///{folder}/shared.db", **settings}
    return SearchSection(SPACE, **given)


def tried_alone(section: SearchSection) -> list[Any]:
    alone = SearchSection(section.space, trials=section.trials, sampler=section.sampler, seed=section.seed)
    study, found = Study(alone), []
    while study.has_next:
        asked = study.ask()
        assert asked is not None
        study.end(asked[1], asked[2]["x"])
        found.append(asked[2])
    return found


def try_one(study: Study) -> None:
    asked = study.ask(threads=2)
    if asked is not None:
        study.end(asked[1], asked[2]["x"])


def test_machines_share_the_trials_of_one_machine(tmp_path: Path) -> None:
    section = shared(tmp_path)
    machines = [Study(section, name="mine"), Study(section, name="mine")]
    while any(each.has_next for each in machines):
        for each in machines:
            try_one(each)
    rows = [[row for row in each.rows() if row.state == "finished"] for each in machines]
    assert rows[0] == rows[1]
    assert [row.values for row in rows[0]] == tried_alone(section)
    assert {row.threads for row in rows[0]} == {2}


def test_machines_that_begin_and_ask_at_the_same_time_try_each_value_once(tmp_path: Path) -> None:
    section, problems, begin = shared(tmp_path), [], threading.Barrier(3)

    def search(study: Study) -> None:
        try:
            begin.wait()
            while study.has_next:
                try_one(study)
        except Exception as error:
            problems.append(error)

    machines = [threading.Thread(target=search, args=[Study(section, name="mine")]) for _ in range(3)]
    for each in machines:
        each.start()
    for each in machines:
        each.join()
    assert problems == []
    rows = sorted(Study(section, name="mine").rows(), key=lambda row: row.index)
    assert [row.values for row in rows] == tried_alone(section)


def test_the_trials_of_a_lost_machine_are_repeated_by_another(tmp_path: Path) -> None:
    section = shared(tmp_path, trials=2)
    lost, lives = Study(section, name="mine"), Study(section, name="mine")
    _, number, values = lost.ask() or pytest.fail("nothing to try")
    try_one(lives)
    # Whoever gave its last sign of life before now.
    lives._beats.grace_period = -1
    assert (lives.has_next, lives.elsewhere) == (False, 1)
    assert lives.beat() == 1
    assert (lives.has_next, lives.elsewhere) == (True, 0)
    _, again, repeated = lives.ask() or pytest.fail("nothing to try")
    assert (repeated, lives.rows()[number].repeated) == (values, True)
    lives.end(again, 1.0)
    assert lives.beat() == 0
    # The machine was only slow: what it says now changes nothing.
    lost.end(number, 0.0)
    result = lives.result()
    assert [(row.index, row.value) for row in result.trials if row.number == again] == [(0, 1.0)]
    assert (result.count("finished"), result.count("failed")) == (2, 0)


def test_a_machine_that_lives_keeps_its_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    section = shared(tmp_path)
    one, other = Study(section, name="mine"), Study(section, name="mine")
    monkeypatch.setattr(module, "BEAT", 0)
    one.ask()
    assert [one.beat(), other.beat(), other.repeat_interrupted()] == [0, 0, 0]
    assert (one.elsewhere, other.elsewhere) == (0, 1)


def test_a_trial_too_many_is_given_back(tmp_path: Path) -> None:
    section = shared(tmp_path, trials=1)
    one, other = Study(section, name="mine"), Study(section, name="mine")
    assert (one.has_next, other.has_next) == (True, True)
    one.ask()
    assert other.ask() is None
    assert [row.number for row in other.rows()] == [0]


def test_searches_of_other_names_share_a_database(tmp_path: Path) -> None:
    section = shared(tmp_path)
    try_one(Study(section, digest="one", name="one"))
    assert Study(section, digest="other", name="other").rows() == []


def test_variables_are_put_into_the_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", str(tmp_path))
    Study(shared(tmp_path, storage="sqlite:///$PLACE/with.db"))
    assert (tmp_path / "with.db").exists()


@pytest.mark.parametrize("url", ["sqlite:////nowhere/at/all.db", "nosuch://me:canary-1@host/db"])
def test_a_database_that_cannot_be_used_is_explained_without_its_password(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAUSES", ())
    with pytest.raises((ValueError, ImportError)) as error:
        Study(SearchSection(SPACE, storage=url))
    assert "canary-1" not in str(error.value)
