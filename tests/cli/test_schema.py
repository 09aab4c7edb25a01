"""The command ``schema``."""

from __future__ import annotations

import json

from tests.cli.tools import Ask


def test_the_schema_is_printed_as_json(ask: Ask) -> None:
    code, out, _ = ask("schema")
    assert code == 0
    assert json.loads(out)["title"] == "ignite_hooks configuration"
