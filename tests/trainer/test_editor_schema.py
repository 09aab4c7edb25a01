"""`editor_schema.py`: an editor completes and checks the sections of a trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest

from ignite_hooks.config.files import load_config
from ignite_hooks.trainer.editor_schema import whole_schema
from ignite_hooks.trainer.registries import DATASETS, MODELS

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.fixture(scope="module")
def validator() -> Any:
    return jsonschema.Draft202012Validator(whole_schema())


@pytest.mark.parametrize(
    ("content", "fits"),
    [
        ({"model": "cnn", "dataset": "digits"}, True),
        ({"model": {"type": "cnn", "channels": [4]}, "dataset": "digits", "training": {"epochs": 3}}, True),
        ({"model": {"type": "cnn", "chanels": [4]}, "dataset": "digits"}, False),
        ({"model": {"type": "cnn", "dropout": 3}, "dataset": "digits"}, False),
        ({"model": "cnn", "dataset": {"type": "digits_detection", "size": 3}}, False),
        ({"model": "cnn", "dataset": "digits", "training": {"epochz": 3}}, False),
        ({"model": "cnn", "dataset": "digits", "training": {"optimizer": {"type": "AdamW", "lrr": 1}}}, False),
        ({"model": "cnn", "dataset": "digits", "training": {"scheduler": {"type": "CosineAnnealingLR"}}}, True),
        ({"model": "cnn", "dataset": "digits", "evaluation": {"metrics": ["accuracy", "R2Score"]}}, True),
        ({"model": "cnn", "dataset": "digits", "evaluation": {"metrix": ["accuracy"]}}, False),
        ({"model": "mine:Model", "dataset": {"type": "mine:Data", "root": "x"}, "imports": ["mine"]}, True),
        ({"model": {"layers": 3}, "dataset": 3, "training": {"epochz": 3}}, True),
    ],
)
def test_an_editor_marks_what_a_trainer_refuses(validator: Any, content: dict[str, Any], fits: bool) -> None:
    assert validator.is_valid(content) is fits


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: str(path.name))
def test_every_configuration_of_ours_fits(validator: Any, path: Any) -> None:
    assert not [error.message for error in validator.iter_errors(load_config(path))]


def test_every_model_and_data_set_is_completed() -> None:
    schema = whole_schema()
    assert schema["properties"]["model"]["anyOf"][0]["enum"] == list(MODELS)
    assert schema["properties"]["dataset"]["anyOf"][0]["enum"] == list(DATASETS)
    assert "channels" in schema["$defs"]["model.cnn"]["properties"]
