"""`engines.py`: what a trial may have, and how the end of its process is told."""

from __future__ import annotations

import pytest

from ignite_hooks.search.engines import Ended, ended_with, environment_of
from ignite_hooks.search.makers import MAKERS
from ignite_hooks.trainer.search_section import ENGINES, SearchSection


def test_every_engine_that_can_be_named_can_be_made() -> None:
    assert list(MAKERS) == list(ENGINES)


def test_trials_share_the_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    section = SearchSection({"a": [1]}, jobs=2, gpus=2, cpus=3)
    assert [environment_of(section, place)["CUDA_VISIBLE_DEVICES"] for place in (0, 1)] == ["4,5", "6,7"]
    assert environment_of(section, 0)["OMP_NUM_THREADS"] == "3"


@pytest.mark.parametrize(("code", "ended"), [(-9, Ended(7, killed="killed by SIGKILL")), (1, Ended(7, 1))])
def test_a_process_that_a_signal_has_ended_was_killed(code: int, ended: Ended) -> None:
    assert ended_with(7, code) == ended
