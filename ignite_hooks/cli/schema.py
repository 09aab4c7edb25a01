"""The command ``schema``: print a JSON Schema of configurations."""

from __future__ import annotations

import argparse
import json
from typing import Any


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    schema = commands.add_parser("schema", help="print a JSON Schema of configurations, for editors")
    schema.set_defaults(command=_schema)


def _schema(_: argparse.Namespace) -> int:
    from ignite_hooks.trainer.editor_schema import whole_schema

    print(json.dumps(whole_schema(), indent=2))
    return 0
