"""What a sweep of W&B sets; that it is trained is tested with the agent of W&B, in `tests/hooks/trackers`."""

from __future__ import annotations

from pathlib import Path

import pytest

from ignite_hooks.config.connected.sweep import VARIABLE, of_sweep
from ignite_hooks.config.overrides import with_overrides
from ignite_hooks.errors import ConfigError

FILE = """
wandb_version: 1

training.optimizer.lr:
  value: 1.0e-05
training.epochs:
  value: 3
model:
  value:
    hidden: [8, 4]
    act: null
hooks.0.name:
  value: 'yes'
"""


def in_a_sweep(text: str, folder: Path) -> list[str]:
    path = folder / "config-3f.yaml"
    path.write_text(text)
    return of_sweep({VARIABLE: str(path)})


def test_what_a_sweep_tries_becomes_settings_of_their_types(tmp_path: Path) -> None:
    content = {"model": {"type": "mlp"}, "hooks": [{"type": "A"}], "training": {"optimizer": {"lr": 0.1}}}
    problems: list[object] = []
    assert with_overrides(content, in_a_sweep(FILE, tmp_path), problems) == {  # type: ignore[arg-type]
        "model": {"type": "mlp", "hidden": [8, 4], "act": None},
        "hooks": [{"type": "A", "name": "yes"}],
        "training": {"optimizer": {"lr": 1e-05}, "epochs": 3},
    }
    assert problems == []


def test_outside_of_a_sweep_nothing_is_set(tmp_path: Path) -> None:
    assert of_sweep({}) == of_sweep({VARIABLE: str(tmp_path / "gone.yaml")}) == []
    assert in_a_sweep("wandb_version: 1\n", tmp_path) == []


@pytest.mark.parametrize(
    "text", ["a: !!python/object/apply:os.system ['true']", "a: {value: !!python/name:os.system }"]
)
def test_nothing_in_the_file_becomes_code(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        in_a_sweep(text, tmp_path)
