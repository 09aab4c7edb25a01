"""Names and settings for ClearML; what is recorded is tested in `tests/hooks/trackers/test_clearml_hook.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from ignite_hooks.writers.trackers.clearml import has_credentials, titled

CREDENTIALS = ("CLEARML_API_ACCESS_KEY", "CLEARML_API_SECRET_KEY", "CLEARML_CONFIG_FILE")


@pytest.mark.parametrize(("name", "both"), [("val/loss", ("val", "loss")), ("lr", ("lr", "lr")), ("/a", ("/a", "/a"))])
def test_a_name_becomes_title_and_series(name: str, both: tuple[str, str]) -> None:
    assert titled(name) == both


@pytest.mark.parametrize(
    ("variables", "file", "known"),
    [
        ({}, None, False),
        ({"CLEARML_API_ACCESS_KEY": "a", "CLEARML_API_SECRET_KEY": "b"}, None, True),
        ({"CLEARML_API_ACCESS_KEY": "a"}, None, False),
        ({}, 'api { credentials { "access_key" = "a" } }', True),
        ({}, "api { }", False),
    ],
)
def test_credentials_are_in_variables_or_in_the_file(
    variables: dict[str, str], file: str | None, known: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in CREDENTIALS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    if file is not None:
        (tmp_path / "clearml.conf").write_text(file)
    assert has_credentials() is known
