"""What a sweep of W&B sets, read before anything is built."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ignite_hooks.config.files import parse_yaml

VARIABLE = "WANDB_SWEEP_PARAM_PATH"
"""The variable in which the agent of W&B names the file with what it tries in this run."""


def of_sweep(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the settings that a sweep tries in this run, as overrides; an empty list outside of sweeps.

    W&B shows them as the run's whether the command of the sweep passes them on or not.
    """
    path = Path(environment.get(VARIABLE) or os.devnull)
    if not path.is_file():
        return []
    content = parse_yaml(path.read_text(encoding="utf-8"), str(path))
    # Beside the parameters there is the version of the format.
    tried = {name: item["value"] for name, item in content.items() if isinstance(item, dict) and "value" in item}
    return [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in _flat(tried)]


def _flat(tried: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield parameters by their whole names: a sweep may nest them."""
    for name, value in tried.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value
