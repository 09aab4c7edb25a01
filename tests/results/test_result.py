"""`result.py`: a file that is written comes back; a file that is not ours is refused with a sentence."""

from __future__ import annotations

import dataclasses
import json
import math
import threading
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from ignite_hooks.errors import ResultError
from ignite_hooks.results.result import (
    FILE_NAME,
    SCHEMA,
    Reached,
    RecordedTest,
    RunResult,
    add_test,
    from_json,
    read_result,
)

WHOLE = RunResult(
    state="stopped",
    reason="时间到",
    run="12ab",
    began=1.0,
    ended=3.5,
    seconds=2.5,
    epochs=2,
    iterations=8,
    max_epochs=3,
    metrics={"loss": Reached(0.5, 8), "val_acc": Reached(0.25, 8, 2, "best_val_acc_epoch_2.pth")},
    best={"val_acc": Reached(0.75, 4, 1, None)},
    delivered="best_val_acc_epoch_2.pth",
    tests={"test/last.pth/raw": RecordedTest({"acc": 0.5}, "last.pth", "raw")},
    iterations_per_second=3.2,
    seed=7,
    bits={"torch threads": 1},
    digests={"weights": "xxh3_128:00"},
    environment={"python": "3.11"},
    configuration={"hooks": [{"type": "EMAHook", "momentum": 0.5}]},
    plan=[{"point": "before_run", "hook": "ema"}],
)


def test_a_written_result_is_read_back_whole(tmp_path: Path) -> None:
    WHOLE.write(tmp_path)
    assert read_result(tmp_path) == WHOLE


def test_a_result_fits_its_schema() -> None:
    jsonschema.validate(WHOLE.to_json(), SCHEMA)
    assert {each.name for each in dataclasses.fields(RunResult)} | {"format"} == set(SCHEMA["properties"])


def test_a_test_is_added_and_what_a_later_version_has_written_stays(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text(json.dumps({**WHOLE.to_json(), "colour": "blue"}))
    added = RecordedTest({"acc": math.inf}, "best.pth", "ema")
    add_test(tmp_path, "test/best.pth/ema", added)
    content = json.loads((tmp_path / FILE_NAME).read_text())
    assert content["colour"] == "blue"
    jsonschema.validate(content, SCHEMA)
    found = read_result(tmp_path)
    assert found is not None
    assert found.tests["test/last.pth/raw"] == WHOLE.tests["test/last.pth/raw"]
    assert math.isnan(found.tests["test/best.pth/ema"].metrics["acc"])
    with pytest.raises(ResultError, match="there is no result"):
        add_test(tmp_path / "none", "test", added)


def test_values_that_are_not_finite_are_null_and_come_back_as_nan(tmp_path: Path) -> None:
    RunResult("finished", metrics={"loss": Reached(math.inf, 1)}).write(tmp_path)
    assert json.loads((tmp_path / FILE_NAME).read_text())["metrics"]["loss"]["value"] is None
    again = read_result(tmp_path)
    assert again is not None
    assert math.isnan(again.metrics["loss"].value)


def test_a_folder_without_a_result_has_none(tmp_path: Path) -> None:
    assert read_result(tmp_path) is None


def test_entries_of_later_versions_are_left_out() -> None:
    assert from_json({**WHOLE.to_json(), "format": 9, "colour": "blue"}) == WHOLE


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[]", "it has no format"),
        ("{", "not a result of a run"),
        ('{"format": 1, "state": "tired"}', "state is 'tired', expected one of finished, stopped, failed"),
        ('{"format": 1, "state": "failed", "epochs": "3"}', "epochs is '3', expected a whole number"),
        ('{"format": 1, "state": "failed", "plan": {}}', "plan is '{}', expected a list of mappings"),
        ('{"format": 1, "state": "failed", "best": {"a": 1}}', "metric 'a' has no value and step"),
        (
            '{"format": 1, "state": "failed", "tests": {"a": {"metrics": {"b": "c"}}}}',
            "'a' has no metrics that are numbers",
        ),
        ('{"format": 1, "state": "failed", "tests": {"a": {"metrics": {}}}}', "'a' has no checkpoint and weights"),
        ("[" * 100_000, "not a result of a run"),
    ],
)
def test_a_file_that_is_no_result_is_refused_by_name(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / FILE_NAME).write_text(content)
    with pytest.raises(ResultError) as error:
        read_result(tmp_path)
    assert str(tmp_path / FILE_NAME) in str(error.value)
    assert words in str(error.value)


def test_a_result_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    WHOLE.write(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / FILE_NAME).symlink_to(tmp_path / FILE_NAME)
    with pytest.raises(ResultError, match="cannot be read"):
        read_result(tmp_path / "other")


def test_each_entry_of_a_result_is_checked() -> None:
    wrong: dict[str, Any] = {each.name: object() for each in dataclasses.fields(RunResult)}
    for name, value in wrong.items():
        with pytest.raises(ValueError, match=f"{name} is|metric"):
            from_json({**WHOLE.to_json(), name: value})


def test_hooks_with_locks_in_a_configuration_do_not_prevent_a_result(tmp_path: Path) -> None:
    RunResult("finished", configuration={"hooks": [threading.Lock()]}).write(tmp_path)
    found = read_result(tmp_path)
    assert found is not None
    assert "lock" in str(found.configuration["hooks"])
