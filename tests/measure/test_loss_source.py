"""The loss is found where it is, or where the script says it is; otherwise one line says what to pass."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from ignite.engine import Engine, Events

from ignite_hooks import ConfigError, Runner, attach_hooks
from ignite_hooks.errors import LossError
from ignite_hooks.measure.loss_source import LossSource, losses_of, suggestion


@pytest.mark.parametrize(
    "value",
    [0.5, numpy.float32(0.5), numpy.float64(0.5), numpy.array(0.5), numpy.array([0.5]), torch.tensor(0.5)],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("wrap", [lambda value: value, lambda value: {"loss": value}], ids=["bare", "mapping"])
def test_every_kind_of_number_is_a_loss(value: Any, wrap: Any) -> None:
    assert {name: float(loss) for name, loss in losses_of(wrap(value)).items()} == {"loss": 0.5}


@pytest.mark.parametrize("value", [numpy.int64(3), 3, numpy.array(3)])
def test_integers_are_losses_too(value: Any) -> None:
    assert losses_of(value) == {"loss": 3}


@pytest.mark.parametrize("value", [numpy.bool_(True), numpy.array("x"), numpy.zeros(2), numpy.array(None)])
def test_what_is_no_number_is_no_loss(value: Any) -> None:
    assert losses_of(value) == {}


@pytest.mark.parametrize(
    ("where", "output", "found"),
    [
        (0, (0.5, "y"), {"loss": 0.5}),
        (-1, ["y", 0.5], {"loss": 0.5}),
        (1, (0.5,), {}),
        (0, 0.5, {}),
        (1, ("y", {"loss": 0.5, "aux": 1.0}), {"loss": 0.5, "aux": 1.0}),
        ("total", {"total": 0.5, "aux": 1.0}, {"loss": 0.5, "aux": 1.0}),
        ("total", {"total": 0.5, "loss": 1.0}, {"loss": 0.5}),
        ("losses", {"losses": {"cls": 0.5, "box": 1.0}}, {"cls": 0.5, "box": 1.0}),
        ("loss", [{"loss": 0.25, "pred": "y"}, {"loss": 0.75}], {"loss": 0.5}),
        ("loss", [{"loss": torch.tensor(0.25)}, {"loss": torch.tensor(0.75)}], {"loss": 0.5}),
        ("nothing", {"loss": 0.5}, {}),
        (lambda output: output[1][0], ("y", [0.5]), {"loss": 0.5}),
        (lambda output: output * 2, 0.25, {"loss": 0.5}),
    ],
)
def test_the_loss_is_taken_from_its_place(where: Any, output: Any, found: dict[str, float]) -> None:
    source = LossSource()
    source.choose(where)
    assert {name: float(loss) for name, loss in source.of(output).items()} == found


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ((0.5, "y"), "loss=0"),
        (["y", torch.tensor(0.5)], "loss=1"),
        ([{"image": 1.0, "loss": 0.5}], "loss='loss'"),
        ({"losses": {"loss": 1.0}}, "loss='losses'"),
        ({"pred": "y"}, "loss=lambda output: ..."),
        (torch.zeros(3), "loss=lambda output: ..."),
    ],
)
def test_the_remedy_can_be_typed(output: Any, expected: str) -> None:
    assert suggestion(output) == expected
    assert expected in LossSource().remedy(output)


# -- in a run ------------------------------------------------------------------------------------------------

OUTPUTS: dict[str, tuple[Any, Any]] = {
    "tuple": (lambda loss: (loss, "y_pred"), 0),
    "list of mappings": (lambda loss: [{"loss": loss, "pred": "y"}] * 2, "loss"),
    "key": (lambda loss: {"total": loss}, "total"),
    "function": (lambda loss: ("y", [loss]), lambda output: output[1][0]),
    "plain float": (lambda loss: loss / 2, lambda output: output * 2),
}


def run(folder: Path, make: Any, hooks: list[Any], **options: Any) -> Runner:
    """Run two epochs of four iterations with the losses 8, 7, ... 1 and an evaluation after each epoch."""
    trainer = Engine(lambda engine, batch: make(float(9 - engine.state.iteration)))
    evaluator = Engine(lambda engine, batch: None)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run([9]))
    runner = attach_hooks(trainer, hooks, evaluators=evaluator, work_dir=folder, **options)
    trainer.run([1, 2, 3, 4], max_epochs=2)
    return runner


@pytest.mark.parametrize("by_hook", [False, True])
@pytest.mark.parametrize("kind", OUTPUTS)
def test_log_file_runner_and_early_stopping_have_the_loss(
    kind: str, by_hook: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    make, where = OUTPUTS[kind]
    logger = {"type": "LoggerHook", "interval": 2} | ({"loss": where} if by_hook else {})
    stopping = {"type": "EarlyStoppingHook", "monitor": "train_loss"}
    runner = run(tmp_path, make, [logger, stopping], **({} if by_hook else {"loss": where}))
    assert runner.loss_dict == {"loss": 1.0}
    assert runner.metrics["loss"] == 1.0
    assert runner.best["train_loss"].score == 1.0
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row["scalars"]["loss"] for row in rows if "loss" in row.get("scalars", {})] == [7.5, 5.5, 3.5, 1.5]
    assert "loss: 7.5" in caplog.text.replace("loss 7.5", "loss: 7.5")
    assert "no loss is found" not in caplog.text


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda loss: (loss, "y"), "the training step returns a tuple of float and str; pass loss=0 to attach_hooks()"),
        (lambda loss: [{"loss": loss}], "returns a list of 1 mappings of loss; pass loss='loss' to attach_hooks()"),
        (lambda loss: None, "the training step returns nothing; return the loss"),
    ],
)
def test_one_line_says_that_there_is_no_loss_and_what_to_pass(
    make: Any, line: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    run(tmp_path, make, [{"type": "LoggerHook", "interval": 2}])
    assert [text for text in caplog.messages if "no loss is found" in text] == [
        text for text in caplog.messages if line in text
    ]
    assert caplog.text.count("no loss is found") == 1


@pytest.mark.parametrize(
    ("options", "hooks", "problem"),
    [
        ({"loss": 1.5}, [], "loss: an index, a key or a function of the output of a step is needed, not 1.5"),
        ({"loss": True}, [], "loss: an index, a key or a function"),
        ({"loss": torch.nn.MSELoss()}, [], "pass a criterion as criterion="),
        ({"loss": 0}, [{"type": "LoggerHook", "loss": 1}], "is 0 elsewhere and 1 here: say it once"),
    ],
)
def test_a_place_that_cannot_be_one_is_refused(options: Any, hooks: Any, problem: str, tmp_path: Path) -> None:
    with pytest.raises((ConfigError, ValueError)) as caught:
        run(tmp_path, lambda loss: loss, hooks, **options)
    assert problem in str(caught.value)


def broken(output: Any) -> Any:
    return output["nothing"]


@pytest.mark.parametrize("passed_to", ["attach_hooks()", "LoggerHook", "mine"])
def test_a_function_that_finds_no_loss_is_named_with_its_place(passed_to: str, tmp_path: Path) -> None:
    trainer = Engine(lambda engine, batch: 0.5)
    logger = {"type": "LoggerHook", **({} if passed_to == "attach_hooks()" else {"loss": broken})}
    logger |= {"name": "mine"} if passed_to == "mine" else {}
    given = {"loss": broken} if passed_to == "attach_hooks()" else {}
    runner = attach_hooks(trainer, [logger, {"type": "CheckpointHook", "save_best": False}], work_dir=tmp_path, **given)
    line = broken.__code__.co_firstlineno
    with pytest.raises(
        LossError, match=rf"loss=broken \(test_loss_source.py, line {line}\), passed to {re.escape(passed_to)}, failed"
    ) as caught:
        trainer.run([1, 2, 3], max_epochs=1)
    assert str(caught.value).endswith("returned, a float: TypeError: 'float' object is not subscriptable")
    assert not runner.report().failures


def test_a_late_failure_of_such_a_function_leaves_the_last_good_state(tmp_path: Path) -> None:
    trainer = Engine(lambda engine, batch: 0.5 if batch < 3 else "text")
    attach_hooks(
        trainer,
        [{"type": "CheckpointHook", "save_best": False}, "LoggerHook"],
        work_dir=tmp_path,
        loss=lambda output: output * 1.0,
        model=torch.nn.Linear(1, 1),
    )
    with pytest.raises(LossError, match="a str: TypeError"):
        trainer.run([1, 2, 3], max_epochs=1)
    assert (tmp_path / "exception_iter_3.pth").exists()
