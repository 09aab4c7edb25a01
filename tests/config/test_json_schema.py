"""The JSON Schema of configurations says what ``validate`` says, as far as a schema can."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pydantic
import pytest

from ignite_hooks.config.build import build_all
from ignite_hooks.config.files import load_config
from ignite_hooks.config.json_schema import configuration_schema
from ignite_hooks.config.read import default_set, read_config
from ignite_hooks.errors import Problem
from ignite_hooks.hooks.base_hook import Situation
from ignite_hooks.registry import HOOKS, WRITERS

CONFIGS = Path(__file__).parents[2] / "configs"
FILES = sorted(CONFIGS.rglob("*.yaml"))


@pytest.fixture(scope="module")
def printed() -> str:
    """Return what a new process prints: in this one, tests register more hooks."""
    command = [sys.executable, "-m", "ignite_hooks", "schema"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=240).stdout


@pytest.fixture(scope="module")
def validator(printed: str) -> jsonschema.Draft202012Validator:
    schema = json.loads(printed)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def is_accepted_by_validate(content: Any) -> bool:
    problems: list[Problem] = []
    settings = read_config(content, defaults=default_set(), problems=problems)
    _, wrong = build_all(settings.entries, {}, Situation(complete=False))
    return not problems and not wrong


PINNED = f"pydantic=={pydantic.VERSION}" in (CONFIGS.parent / "constraints.txt").read_text("utf-8").splitlines()


@pytest.mark.skipif(not PINNED, reason="another pydantic writes the same schema in other words")
def test_the_file_is_what_the_command_prints(printed: str) -> None:
    file = CONFIGS / "schema.json"
    is_current = file.exists() and file.read_text() == printed
    assert is_current, "configs/schema.json is what `ignite-hooks schema` prints: run make schema"


def test_the_same_is_printed_in_every_process(printed: str) -> None:
    again = subprocess.run(
        [sys.executable, "-m", "ignite_hooks", "schema"],
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
        env={"PYTHONHASHSEED": "7"},
    )
    assert again.stdout == printed


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(CONFIGS)))
def test_every_file_in_configs_fits(validator: jsonschema.Draft202012Validator, path: Path) -> None:
    assert [error.message for error in validator.iter_errors(load_config(path))] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(CONFIGS)))
def test_every_file_in_configs_names_the_schema(path: Path) -> None:
    named = re.match(r"# yaml-language-server: \$schema=(\S+)\n", path.read_text())
    assert named, f"{path.name} begins with the line: # yaml-language-server: $schema=schema.json"
    assert (path.parent / named[1]).resolve() == CONFIGS / "schema.json"


@pytest.mark.parametrize(
    "content",
    [
        {},
        [],
        None,
        {"hooks": None, "custom_hooks": None, "writers": None, "seed": None, "resume": None, "work_dir": None},
        {"model": {"type": "MLP"}, "dataset": "digits", "anything": [1, 2]},
        ["LoggerHook", {"type": "CheckpointHook"}],
        {"hooks": [{"type": "LogHook", "interval": 10}]},
        {"hooks": [{"type": "EarlyStoppingHook", "min_delta": 0, "baseline": None, "mode": "max"}]},
        {"hooks": [{"type": "EvalHook", "dataloader": "@my_loader", "metrics": "@measured", "test_fn": "@test"}]},
        {"hooks": [{"type": "EvalHook", "metrics": {"accuracy": "Accuracy", "loss": {"type": "Loss"}}}]},
        {"hooks": [{"type": "CheckpointHook", "every": "10 min", "priority": "below_normal", "on_error": "warn"}]},
        {"hooks": [{"type": "CheckpointHook", "frequency": 2, "begin": 3, "priority": {"after_train": 95}}]},
        {"hooks": [{"type": "ignite.handlers.TimeLimit", "limit_sec": 3600, "priority": 10}]},
        {"default_hooks": {"logger": {"interval": 10}, "timer": None, "eval": {"name": "val"}}},
        {"default_hooks": {"logger": {"type": "IterTimerHook"}, "stopper": {"type": "EarlyStoppingHook"}}},
        {"default_hooks": None, "custom_hooks": ["EvalHook"]},
        {"resume": True, "seed": 0, "experiment_dir": "out", "rank_timeout": 2.5},
        {"resume": "auto", "writer": {"type": "JsonlWriter", "path": "a.jsonl"}},
        {"writers": ["MemoryWriter", {"type": "MemoryWriter"}]},
    ],
    ids=lambda content: json.dumps(content)[:50],
)
def test_a_good_configuration_fits(validator: jsonschema.Draft202012Validator, content: Any) -> None:
    assert is_accepted_by_validate(content)
    if content is not None:
        assert [error.message for error in validator.iter_errors(content)] == []


@pytest.mark.parametrize(
    "content",
    [
        ["MyHook", {"type": "ExitHook", "anything": 3}],
        {"hooks": [{"type": "my_package.Sampler"}], "custom_hooks": ["MyHook"]},
        {"default_hooks": {"mine": {"type": "MyHook", "interval": 3}}},
        {"hooks": [{"type": name.replace("Hook", "er")} for name in HOOKS]},
    ],
)
def test_a_hook_that_a_script_registers_fits(validator: jsonschema.Draft202012Validator, content: Any) -> None:
    assert [error.message for error in validator.iter_errors(content)] == []


@pytest.mark.parametrize(
    "content",
    [
        {"hooks": [{"type": "EarlyStoppingHook", "monitr": "loss"}]},
        {"hooks": [{"type": "LoggersHook"}]},
        {"default_hooks": {"mine": {"type": "CheckpontHook"}}},
        {"hooks": [{"type": "EarlyStopingHook"}]},
        {"hooks": ["LogerHook"]},
        {"hooks": [{"interval": 3}]},
        {"hooks": {"type": "LoggerHook"}},
        {"hooks": [{"type": "EarlyStoppingHook", "patience": 0}]},
        {"hooks": [{"type": "EarlyStoppingHook", "patience": "many"}]},
        {"hooks": [{"type": "EarlyStoppingHook", "patience": True}]},
        {"hooks": [{"type": "EarlyStoppingHook", "mode": "bigger"}]},
        {"hooks": [{"type": "EarlyStoppingHook", "interval": 3}]},
        {"hooks": [{"type": "CheckpointHook", "every": "often"}]},
        {"hooks": [{"type": "CheckpointHook", "priority": "HIHG"}]},
        {"hooks": [{"type": "CheckpointHook", "priority": 101}]},
        {"hooks": [{"type": "CheckpointHook", "on_error": "ignore"}]},
        {"hooks": [{"type": "EvalHook", "test_fn": "my_function"}]},
        {"hooks": [], "default_hooks": {}},
        {"default_hooks": {"logger": {"intervall": 3}}},
        {"default_hooks": {"stopper": {"patience": 3}}},
        {"default_hooks": {"stopper": None}},
        {"custom_hooks": [{"type": "LoggerHook", "intervall": 3}]},
        {"writers": [{"type": "JsonlWrtier", "path": "a"}]},
        {"writers": [3]},
        {"seed": -1},
        {"rank_timeout": -1},
        {"seed": "1"},
        {"resume": 3},
        {"work_dir": ""},
    ],
    ids=lambda content: json.dumps(content)[:60],
)
def test_a_bad_configuration_does_not_fit(validator: jsonschema.Draft202012Validator, content: Any) -> None:
    assert not validator.is_valid(content)
    if "writers" not in content or content["writers"] == [3]:
        assert not is_accepted_by_validate(content)


@pytest.mark.parametrize("name", [*HOOKS, *WRITERS])
def test_every_setting_is_described_for_editors(printed: str, name: str) -> None:
    definition = json.loads(printed)["$defs"][name]
    assert definition["description"]
    own = {key: value for key, value in definition["properties"].items() if key not in ("type", "priority", "on_error")}
    undescribed = [key for key, value in own.items() if not value.get("description")]
    assert undescribed == [] or name in WRITERS


def test_a_registered_hook_is_part_of_the_schema() -> None:
    from ignite_hooks.hooks.base_hook import BaseHook, settings

    @settings
    class Confetti(BaseHook):
        """Throw confetti.

        Args:
            colour: Which.
        """

        colour: str
        places: tuple[int, int] = (1, 2)

        def after_run(self) -> None: ...

    HOOKS.register(Confetti)
    try:
        made = configuration_schema()["$defs"]["Confetti"]
    finally:
        del HOOKS._classes["Confetti"]
    assert made["required"] == ["type", "colour"]
    assert made["properties"]["colour"] == {"description": "Which.", "type": "string"}
    assert made["properties"]["places"]["default"] == [1, 2]
