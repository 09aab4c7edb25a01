"""What the fault tests share."""

from __future__ import annotations

import random

import pytest

from tests.faults.tools import drawn


def test_a_seed_is_another_one_each_time_whatever_a_script_has_seeded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("IGNITE_HOOKS_SEED", raising=False)
    found = []
    for _ in range(2):
        random.seed(0)
        found.append(drawn().random())
    assert found[0] != found[1]
    printed = capsys.readouterr().out.splitlines()[0].partition("=")[2]
    monkeypatch.setenv("IGNITE_HOOKS_SEED", printed)
    assert drawn().random() == found[0]
