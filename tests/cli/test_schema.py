"""The command ``schema``."""

from __future__ import annotations

import json

import pytest

from ignite_hooks.cli.app import main
from tests.cli.tools import Ask


def test_the_schema_is_printed_as_json(ask: Ask) -> None:
    code, out, _ = ask("schema")
    assert code == 0
    assert json.loads(out)["title"] == "ignite_hooks configuration"


def test_the_schema_knows_every_hook_and_writer(ask: Ask) -> None:
    _, out, _ = ask("schema")
    for name in ("CheckpointHook", "TensorBoardHook", "JsonlWriter"):
        assert f'"{name}"' in out, name


def test_the_schema_takes_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["schema", "x.yaml"])
    assert stopped.value.code == 2
    assert "unrecognized arguments: x.yaml" in capsys.readouterr().err
