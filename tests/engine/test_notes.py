"""Lines at the start say what the script may not have meant."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ignite.engine import Engine, Events

from ignite_hooks import attach_hooks
from ignite_hooks.testing import TinyRun, tiny_run
from ignite_hooks.writers.memory import MemoryWriter


def closure(tiny: TinyRun) -> Any:
    evaluator, data = tiny.evaluator, tiny.val_data

    def validate() -> None:
        evaluator.run(data)

    return validate


def nested(tiny: TinyRun) -> Any:
    validate = closure(tiny)
    return lambda: validate()


def method(tiny: TinyRun) -> Any:
    class Script:
        def __init__(self) -> None:
            self.evaluator, self.data = tiny.evaluator, tiny.val_data

        def at_end(self) -> None:
            self.validate()

        def validate(self) -> None:
            self.evaluator.run(self.data)

    return Script().at_end


def run_it(evaluator: Any, data: Any) -> None:
    evaluator.run(data)


def partial(tiny: TinyRun) -> Any:
    return functools.partial(run_it, tiny.evaluator, tiny.val_data)


def other_work(tiny: TinyRun) -> Any:
    evaluator = tiny.evaluator
    return lambda: str(evaluator)


@pytest.mark.parametrize("event", [Events.EPOCH_COMPLETED, Events.EPOCH_COMPLETED(every=1)])
@pytest.mark.parametrize(
    ("script", "passed", "lines"),
    [
        (closure, False, 1),
        (closure, True, 1),
        (nested, False, 1),
        (method, False, 1),
        (partial, True, 1),
        (other_work, True, 0),
    ],
)
def test_evaluating_twice_per_epoch_is_said_once(
    script: Callable[[TinyRun], Any],
    passed: bool,
    lines: int,
    event: Any,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    tiny = tiny_run()
    tiny.trainer.add_event_handler(event, script(tiny))
    engines = {"evaluators": tiny.evaluator} if passed else {}
    attach_hooks(tiny.trainer, None, model=tiny.model, val_loader=tiny.val_data, work_dir=tmp_path, **engines)
    tiny.trainer.run(tiny.data, max_epochs=2)
    said = [line for line in caplog.messages if "of the script evaluates after an epoch, and so does" in line]
    assert len(said) == lines


def test_without_a_hook_that_evaluates_nothing_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    tiny = tiny_run()
    tiny.trainer.add_event_handler(Events.EPOCH_COMPLETED, closure(tiny))
    attach_hooks(tiny.trainer, None, model=tiny.model, evaluators=tiny.evaluator, work_dir=tmp_path)
    tiny.trainer.run(tiny.data, max_epochs=1)
    assert "of the script evaluates" not in caplog.text


def test_another_evaluation_beside_the_hook_is_not_mentioned(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    tiny, other = tiny_run(), tiny_run()
    tiny.trainer.add_event_handler(Events.EPOCH_COMPLETED, closure(other))
    engines = {"evaluators": {"val": tiny.evaluator, "hard": other.evaluator}}
    attach_hooks(tiny.trainer, None, model=tiny.model, val_loader=tiny.val_data, work_dir=tmp_path, **engines)
    tiny.trainer.run(tiny.data, max_epochs=1)
    assert "of the script evaluates" not in caplog.text


@pytest.mark.parametrize("given", [False, True])
def test_without_a_model_the_hooks_that_do_without_it_are_named(
    given: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    model = {"model": tiny_run().model} if given else {}
    trainer = Engine(lambda engine, batch: 0.5)
    attach_hooks(trainer, ["CheckpointHook", "LoggerHook"], work_dir=tmp_path, **model)
    trainer.run([1], max_epochs=1)
    line = "no model was found in the trainer: CheckpointHook does without it; pass model=... to attach_hooks()"
    assert caplog.messages.count(line) == (not given)
    assert caplog.text.count("pass model=...") == (not given)


def of_idle(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "nothing runs" in record.getMessage()]


def test_an_evaluator_with_data_that_nothing_runs_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tiny, idle = tiny_run(), Engine(lambda engine, batch: None)
    data: dict[str, Any] = {"train_loader": [1], "val_loader": tiny.val_data, "test_loader": [1]}
    engines = {"val": tiny.evaluator, "train": idle, "test": Engine(lambda engine, batch: None)}
    caplog.set_level("INFO", logger="ignite_hooks")
    attach_hooks(tiny.trainer, ["EvalHook"], evaluators=engines, work_dir=tmp_path, model=tiny.model, **data)
    tiny.trainer.run(tiny.data, max_epochs=2)
    assert of_idle(caplog) == [
        "nothing runs the evaluator 'train' on train_loader: add {type: EvalHook, name: train, save_best: false} to "
        "the hooks, as one of custom_hooks beside the default ones, or run it in a handler"
    ]


@pytest.mark.parametrize("kind", ["by a hook", "by the script", "later by the script", "has no data"])
def test_an_evaluator_that_runs_is_not_called_idle(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tiny, evaluator = tiny_run(), Engine(lambda engine, batch: None)
    hooks = [{"type": "EvalHook", "name": "train", "save_best": False}] if kind == "by a hook" else []
    if "script" in kind:
        event = Events.EPOCH_COMPLETED(every=2) if kind.startswith("later") else Events.EPOCH_COMPLETED
        tiny.trainer.add_event_handler(event, lambda: evaluator.run([1]) and None)
    caplog.set_level("INFO", logger="ignite_hooks")
    given = {} if kind == "has no data" else {"train_loader": [1]}
    attach_hooks(tiny.trainer, hooks, evaluators={"train": evaluator}, work_dir=tmp_path, **given)
    tiny.trainer.run(tiny.data, max_epochs=1)
    assert of_idle(caplog) == []


@pytest.mark.parametrize("given", ["hooks", "default_hooks"])
def test_writers_get_the_configuration_once_with_any_hooks(given: str, tmp_path: Path) -> None:
    tiny, writer = tiny_run(), MemoryWriter()
    hooks: dict[str, Any] = {"hooks": ["LoggerHook"]} if given == "hooks" else {"default_hooks": {}}
    seen: list[Any] = []
    writer.write_config = seen.append  # type: ignore[method-assign,assignment]
    attach_hooks(tiny.trainer, {**hooks, "writers": [writer]}, work_dir=tmp_path, config={"lr": 0.5}, **tiny.services)
    tiny.trainer.run(tiny.data, max_epochs=1)
    assert seen == [{"lr": 0.5}]
