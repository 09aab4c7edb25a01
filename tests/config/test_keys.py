"""Keys at top level are ours, nearly ours, or the script's."""

from __future__ import annotations

import pytest

from ignite_hooks.config.keys import OURS, SCRIPTS, is_ours, misspelt_key


@pytest.mark.parametrize(
    ("key", "meant"),
    [("hoks", "hooks"), ("wrk_dir", "work_dir"), ("resmue", "resume"), ("lr", None), (3, None), ("", None)],
)
def test_a_key_that_is_nearly_ours_is_recognized(key: object, meant: str | None) -> None:
    assert misspelt_key(key) == meant
    assert not is_ours(key)


def test_no_key_of_ours_or_a_script_counts_as_misspelt() -> None:
    assert [key for key in (*OURS, *SCRIPTS) if misspelt_key(key)] == []
    assert all(map(is_ours, OURS))
