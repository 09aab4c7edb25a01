"""`ending.py`: every run that writes anything leaves a result that says how it ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch
from ignite.engine import Engine

from ignite_hooks import BaseHook, attach_hooks
from ignite_hooks.engine.ending import OF_TRAINING, weights_digest
from ignite_hooks.results.result import SCHEMA, RecordedTest, add_test
from ignite_hooks.testing import tiny_trainer

pytestmark = pytest.mark.usefixtures("quick")
LOGS = {"type": "LoggerHook", "interval": 2}


def pruned() -> Exception:
    """Return an exception that has the name of Optuna's."""
    return type("TrialPruned", (Exception,), {"__module__": "optuna.exceptions"})("no hope")  # type: ignore[no-any-return]


class Ends(BaseHook):
    """Ends the run in its second iteration."""

    def __init__(self, how: Any) -> None:
        super().__init__()
        self.how = how

    def after_train_iter(self, runner: Any) -> None:
        if runner.global_step == 2:
            self.how(runner)


def fail(runner: Any) -> None:
    raise ValueError("no more")


def interrupt(runner: Any) -> None:
    raise KeyboardInterrupt


def leave(runner: Any) -> None:
    raise SystemExit(0)


def give_up(runner: Any) -> None:
    raise pruned()


@pytest.mark.parametrize(
    ("how", "state", "reason"),
    [
        (lambda runner: None, "finished", ""),
        (lambda runner: runner.stop("enough"), "stopped", "enough"),
        (lambda runner: runner.trainer.terminate(), "stopped", "the script ended it by terminate()"),
        (fail, "failed", "no more"),
        (interrupt, "stopped", "KeyboardInterrupt"),
        (leave, "stopped", "SystemExit"),
        (give_up, "stopped", "no hope"),
        (lambda runner: runner.stop("no hope", kind="pruned"), "stopped", "no hope"),
    ],
)
def test_a_result_says_how_the_run_ended(tmp_path: Path, how: Any, state: str, reason: str) -> None:
    trainer, data = tiny_trainer()
    attach_hooks(trainer, [LOGS, Ends(how)], work_dir=tmp_path)
    try:
        trainer.run(data, max_epochs=2)
    except BaseException:
        assert how in (fail, interrupt, leave, give_up)
    result = json.loads((tmp_path / "result.json").read_text())
    jsonschema.validate(result, SCHEMA)
    assert result["state"] == state
    assert reason in result["reason"]
    assert result["kind"] == ("pruned" if reason == "no hope" else "")


def test_a_run_that_writes_nothing_leaves_no_result(tmp_path: Path) -> None:
    trainer, data = tiny_trainer()
    attach_hooks(trainer, [Ends(lambda runner: None)], work_dir=tmp_path)
    trainer.run(data, max_epochs=1)
    assert not (tmp_path / "result.json").exists()


def test_secrets_of_the_configuration_are_in_no_result(tmp_path: Path) -> None:
    trainer, data = tiny_trainer()
    attach_hooks(trainer, {"hooks": [LOGS], "tracker": {"api_key": "k-secret-1"}}, work_dir=tmp_path)
    trainer.run(data, max_epochs=1)
    text = (tmp_path / "result.json").read_text()
    assert "k-secret-1" not in text
    assert json.loads(text)["configuration"]["tracker"]["api_key"] == "***"


def test_a_result_that_cannot_be_written_is_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    trainer, data = tiny_trainer()
    attach_hooks(trainer, [LOGS], work_dir=tmp_path)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ignite_hooks.results.result.write_whole", full)
    trainer.run(data, max_epochs=1)
    said = [record.getMessage() for record in caplog.records if "result of the run" in record.getMessage()]
    assert len(said) == 1
    assert "is not written" in said[0]


def test_a_resumed_run_counts_its_own_iterations_in_its_rate(tmp_path: Path) -> None:
    model = torch.nn.Linear(1, 1)
    for epochs in (1, 2):
        trainer = Engine(lambda engine, batch: 0.5)
        runner = attach_hooks(
            trainer, [LOGS, {"type": "CheckpointHook"}], work_dir=tmp_path, resume="auto", model=model
        )
        trainer.run(range(4), max_epochs=epochs)
        result = json.loads((tmp_path / "result.json").read_text())
        done = round(result["iterations_per_second"] * result["seconds"])
        assert (result["iterations"], done, runner.state.first_iteration) == (4 * epochs, 4, 4 * (epochs - 1))


def test_digests_of_weights_tell_names_types_and_shapes_apart() -> None:
    class Of(torch.nn.Module):
        def __init__(self, name: str, value: torch.Tensor) -> None:
            super().__init__()
            self.register_buffer(name, value)

    zeros = torch.zeros(2, 3)
    kinds = [Of("a", zeros), Of("b", zeros), Of("a", zeros.reshape(3, 2)), Of("a", zeros.half()), Of("a", zeros + 1)]
    assert len({weights_digest({"": each}) for each in kinds}) == len(kinds)
    assert weights_digest({"": kinds[0]}) == weights_digest({"": Of("a", torch.zeros(2, 3))})


def test_a_run_with_nothing_left_to_train_keeps_what_its_training_took(tmp_path: Path) -> None:
    found: list[dict[str, Any]] = []
    for epochs in (1, 1, 2):
        trainer = Engine(lambda engine, batch: 0.5)
        hooks = [LOGS, {"type": "CheckpointHook"}]
        attach_hooks(trainer, hooks, work_dir=tmp_path, resume="auto", model=torch.nn.Linear(1, 1))
        trainer.run(range(4), max_epochs=epochs)
        found.append(json.loads((tmp_path / "result.json").read_text()))
        add_test(tmp_path, "test", RecordedTest({"accuracy": 0.5}, "last.pth", "raw"))
    first, again, longer = ({name: one[name] for name in OF_TRAINING} for one in found)
    assert again == {
        **first,
        "tests": {"test": {"metrics": {"accuracy": 0.5}, "checkpoint": "last.pth", "weights": "raw"}},
    }
    assert longer["began"] > first["began"]
    assert (longer["resumed_from"], longer["tests"]) == ("last.pth", {})
