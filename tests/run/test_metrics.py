from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from ignite.engine import Engine, Events

from ignite_hooks import attach_hooks
from ignite_hooks.errors import MetricError
from ignite_hooks.measure.results import vector
from ignite_hooks.run.metrics import NAMES_SHOWN, Evaluated, Metrics, not_shown, numbers_of
from ignite_hooks.testing import tiny_run


def published(step: int = 1, **values: Any) -> Metrics:
    return with_values(values, step)


def with_values(values: Mapping[str, Any], step: int = 1) -> Metrics:
    metrics = Metrics()
    metrics.publish(values, step)
    return metrics


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (torch.tensor(0.5), 0.5),
        (torch.tensor([0.5]), 0.5),
        (torch.tensor([[3]]), 3),
        (torch.tensor(True), True),
        (torch.tensor(0.5, dtype=torch.bfloat16), 0.5),
        (torch.nn.Parameter(torch.tensor(2.0)), 2.0),
        (numpy.float32(0.5), 0.5),
        (numpy.float64(0.5), 0.5),
        (numpy.int64(3), 3),
        (numpy.array(0.5), 0.5),
        (numpy.array([7]), 7),
        (0.0, 0.0),
        (3, 3),
        (False, False),
    ],
)
def test_a_single_value_is_read_as_a_python_number(value: Any, expected: float) -> None:
    read = published(m=value)["m"]
    assert read == expected
    assert type(read) is type(expected)


@pytest.mark.parametrize(
    "value",
    [
        torch.tensor([1.0, 2.0]),
        torch.empty(0),
        numpy.array([1.0, 2.0]),
        {"cat": {"precision": 0.5}},
        [1, 2],
        "text",
        None,
    ],
)
def test_other_values_stay_as_they_are(value: Any) -> None:
    read = published(m=value)["m"]
    assert type(read) is type(value)
    assert repr(read) == repr(value)


def test_publishing_and_looking_up_never_wait_for_a_device() -> None:
    # A tensor without data: reading it is an error, so whatever passes did not read it.
    metrics = published(loss=torch.empty((), device="meta"))
    metrics.publish_evaluation("val", {"acc": torch.empty(1, device="meta")}, 1, plain=True, taken=metrics)
    assert set(metrics) == {"loss", "val_acc", "acc"}
    assert "loss" in metrics
    assert (metrics.find("val/acc"), metrics.step("loss"), metrics.fresh("loss", 2)) == ("val_acc", 1, None)
    with pytest.raises(RuntimeError, match="meta"):
        metrics["loss"]


def test_a_tensor_is_converted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[torch.Tensor] = []
    item = torch.Tensor.item

    def counted(tensor: torch.Tensor) -> Any:
        calls.append(tensor)
        return item(tensor)

    monkeypatch.setattr(torch.Tensor, "item", counted)
    metrics = published(loss=torch.tensor(0.5))
    assert calls == []
    assert [metrics["loss"], metrics["loss"], metrics.number("loss")] == [0.5] * 3
    assert len(calls) == 1


def test_a_published_loss_does_not_keep_its_graph() -> None:
    weight = torch.ones(3, requires_grad=True)
    metrics = published(loss=weight.sum(), vector=weight * 2)
    assert metrics["vector"].grad_fn is None
    assert metrics._values["loss"].grad_fn is None


def test_an_ignite_metric_object_is_not_taken_for_a_tensor() -> None:
    from ignite.metrics import Accuracy

    accuracy = Accuracy()
    assert published(accuracy=accuracy)["accuracy"] is accuracy


def test_each_value_keeps_its_own_step() -> None:
    metrics = published(step=10, loss=0.5, acc=0.9)
    metrics.publish({"loss": 0.4}, 11)
    assert {name: metrics.step(name) for name in metrics} == {"loss": 11, "acc": 10}
    assert dict(metrics) == {"loss": 0.4, "acc": 0.9}
    assert metrics.get("nothing", "default") == "default"


@pytest.mark.parametrize(
    ("first", "taken", "expected"),
    [
        (True, [], {"val_loss": 0.3, "val_acc": 0.9, "loss": 0.3, "acc": 0.9}),
        (True, ["loss"], {"val_loss": 0.3, "val_acc": 0.9, "acc": 0.9}),
        (False, [], {"val_loss": 0.3, "val_acc": 0.9}),
    ],
)
def test_only_the_first_evaluator_publishes_plain_names(
    first: bool, taken: list[str], expected: dict[str, float]
) -> None:
    metrics = Metrics()
    metrics.publish_evaluation("val", {"loss": 0.3, "acc": 0.9}, 5, plain=first, taken=taken)
    assert dict(metrics) == expected
    assert {metrics.step(name) for name in metrics} == {5}


def test_the_trainers_own_metric_is_not_overwritten() -> None:
    metrics = published(step=5, loss=0.7)
    metrics.publish_evaluation("val", {"loss": 0.3}, 5, plain=True, taken={"loss"})
    assert (metrics["loss"], metrics["val_loss"]) == (0.7, 0.3)


def test_a_prefixed_name_wins_over_an_identical_plain_one() -> None:
    metrics = Metrics()
    metrics.publish_evaluation("val", {"acc": 0.9, "val_acc": 0.1}, 5, plain=True, taken=[])
    assert dict(metrics) == {"acc": 0.9, "val_acc": 0.9, "val_val_acc": 0.1}


@pytest.mark.parametrize(
    ("names", "wanted", "found"),
    [
        (["val_acc"], "val_acc", "val_acc"),
        (["val_acc"], "val/acc", "val_acc"),
        (["val/acc"], "val_acc", "val/acc"),
        (["val/bbox_mAP_50"], "val/bbox/mAP/50", "val/bbox_mAP_50"),
        (["val_acc", "val/acc"], "val/acc", "val/acc"),
        (["val/acc", "val_acc"], "val_acc", "val_acc"),
    ],
)
def test_names_match_exactly_then_with_slash_and_underscore_exchanged(
    names: list[str], wanted: str, found: str
) -> None:
    metrics = with_values(dict.fromkeys(names, 0.5))
    assert metrics.find(wanted) == found
    assert metrics.number(wanted) == 0.5


@pytest.mark.parametrize(
    ("names", "wanted", "message"),
    [
        (
            ["val_acc", "val_loss", "loss"],
            "val_accuracy",
            "no metric 'val_accuracy': there are val_acc, val_loss, loss (did you mean 'val_acc'?)",
        ),
        (["loss"], "zzz", "no metric 'zzz': there are loss"),
        ([], "loss", "no metric 'loss': nothing has been published yet"),
        (["a/b_c", "a_b/c"], "a_b_c", "metric 'a_b_c' could be any of a/b_c, a_b/c: use one of these names"),
        (["Val_acc"], "val_acc", "no metric 'val_acc': there are Val_acc (did you mean 'Val_acc'?)"),
    ],
)
def test_a_missing_metric_says_what_there_is(names: list[str], wanted: str, message: str) -> None:
    metrics = with_values(dict.fromkeys(names, 0.5))
    for ask in (metrics.find, metrics.step, metrics.number, lambda name: metrics.fresh(name, 1)):
        with pytest.raises(MetricError) as caught:
            ask(wanted)
        assert str(caught.value) == message


def test_a_message_does_not_list_a_thousand_names() -> None:
    metrics = with_values({f"metric{n}": n for n in range(1000)})
    with pytest.raises(MetricError, match=rf"metric19 and {1000 - NAMES_SHOWN} more$"):
        metrics.find("!")


@pytest.mark.parametrize("value", [torch.ones(2), {"a": 1}, "0.5", None, [0.5], 1j])
def test_what_is_not_a_number_cannot_be_ranked(value: Any) -> None:
    with pytest.raises(MetricError, match=f"metric 'm' is not a number but a {type(value).__name__}"):
        published(m=value).number("m")


@pytest.mark.parametrize(
    ("value", "expected"), [(torch.tensor(2), 2.0), (True, 1.0), (numpy.float32(0.5), 0.5), (0, 0.0)]
)
def test_a_number_is_a_float(value: Any, expected: float) -> None:
    number = published(m=value).number("m")
    assert number == expected
    assert type(number) is float


def test_a_value_is_fresh_at_its_own_step_only() -> None:
    metrics = published(step=10, acc=torch.tensor(0.0))
    assert [metrics.fresh("acc", step) for step in (9, 10, 11)] == [None, 0.0, None]


@pytest.mark.parametrize("vector", [[0.25, 0.5], torch.tensor([0.25, 0.5]), numpy.array([0.25, 0.5])])
@pytest.mark.parametrize("name", ["val_iou/1", "val/iou/1"])
def test_an_element_of_a_vector_is_a_number_with_a_step(vector: Any, name: str) -> None:
    metrics = Metrics()
    metrics.publish({"val_iou": vector}, step=20)
    assert metrics.find(name) == "val_iou/1"
    assert metrics.number(name) == 0.5
    assert (metrics.step(name), metrics.fresh(name, 20), metrics.fresh(name, 30)) == (20, 0.5, None)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("iou/2", "no metric 'iou/2': 'iou' has the entries 0, 1"),
        ("iou/x", "no metric 'iou/x': 'iou' has the entries 0, 1"),
        ("accuracy/0", "no metric 'accuracy/0': there are"),
        ("iou", "'iou' is not a number but a list: name one of its entries, such as iou/0"),
    ],
)
def test_what_is_no_element_says_what_there_is(name: str, words: str) -> None:
    metrics = Metrics()
    metrics.publish({"iou": [0.25, 0.5], "accuracy": 0.5}, step=20)
    with pytest.raises(MetricError, match=re.escape(words)):
        metrics.number(name)


def test_an_element_of_a_vector_can_be_ranked(tmp_path: Path) -> None:
    values = iter([0.1, 0.75, 0.5])
    run = tiny_run()
    run.evaluator.add_event_handler(
        Events.EPOCH_COMPLETED, lambda engine: engine.state.metrics.update(iou=torch.tensor([0.5, next(values)]))
    )
    hooks = [
        {"type": "EvalHook"},
        {"type": "CheckpointHook", "save_best": "iou/1", "rule": "greater"},
        {"type": "EarlyStoppingHook", "monitor": "iou/1", "rule": "greater", "patience": 10},
    ]
    runner = attach_hooks(run.trainer, hooks, work_dir=tmp_path, evaluators={"val": run.evaluator}, **run.services)
    run.trainer.run(run.data, max_epochs=3)
    assert (runner.best["iou/1"].score, runner.best["iou/1"].epoch) == (0.75, 2)
    assert [path.name for path in tmp_path.glob("best*")] == ["best_iou%2F1_epoch_2.pth"]


def test_the_state_holds_numbers_with_their_steps() -> None:
    metrics = published(step=10, loss=torch.tensor(0.5), vector=torch.ones(2), report={"cat": 1}, count=3)
    metrics.publish({"acc": 0.9}, 20)
    state = metrics.state_dict()
    assert state == {
        "loss": {"value": 0.5, "step": 10},
        "count": {"value": 3, "step": 10},
        "acc": {"value": 0.9, "step": 20},
    }
    loaded = published(step=99, old=1.0)
    loaded.load_state_dict(state)
    assert dict(loaded) == {"loss": 0.5, "count": 3, "acc": 0.9}
    assert loaded.state_dict() == state
    assert loaded.fresh("acc", 20) == 0.9


def test_nan_is_kept() -> None:
    metrics = Metrics()
    metrics.load_state_dict(published(loss=torch.tensor(math.nan)).state_dict())
    assert math.isnan(metrics.number("loss"))


def test_clear_forgets_everything() -> None:
    metrics = published(loss=0.5)
    metrics.clear()
    assert (len(metrics), metrics.state_dict()) == (0, {})


def test_it_prints_like_the_mapping_it_is() -> None:
    assert repr(published(loss=torch.tensor(0.5), n=3)) == "{'loss': 0.5, 'n': 3}"


def test_only_single_numbers_are_numbers() -> None:
    given: dict[str, Any] = {
        "float": 0.5,
        "int": 3,
        "tensor": torch.tensor([2.0]),
        "numpy": numpy.float32(0.25),
        "bool": True,
        "matrix": torch.zeros(2, 3),
        "array": numpy.zeros((2, 2, 2)),
        "text": "t",
        "none": None,
    }
    assert numbers_of(given) == {"float": 0.5, "int": 3, "tensor": 2.0, "numpy": 0.25}


@pytest.mark.parametrize(
    "vector",
    [torch.tensor([0.5, 1.0]), numpy.array([0.5, 1.0], "float32"), [0.5, 1.0], (numpy.float32(0.5), torch.ones(1))],
)
def test_a_short_vector_is_shown_entry_by_entry(vector: Any) -> None:
    assert numbers_of({"iou": vector}) == {"iou/0": 0.5, "iou/1": 1.0}
    assert numbers_of({"iou": vector}, ["cat", "a/b"]) == {"iou/cat": 0.5, "iou/a%2Fb": 1.0}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (torch.zeros(2, 3), "m (Tensor of 2 x 3)"),
        (numpy.zeros((2, 2, 2)), "m (ndarray of 2 x 2 x 2)"),
        ("report", "m (str)"),
        (["a", 1.0], "m (list)"),
        ({"cat": "a"}, "m (dict)"),
        (torch.tensor([True, False]), "m (Tensor of 2)"),
    ],
)
def test_what_cannot_be_shown_is_named(value: Any, words: str) -> None:
    assert numbers_of({"m": value}) == {}
    assert not_shown({"m": value}) == [words]


def test_a_mapping_whose_entries_are_metrics_is_not_named() -> None:
    assert not_shown({"m": {"cat": 0.5}, "cat": 0.5, "none": None}) == []


def test_a_vector_and_a_matrix_reach_log_and_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    tiny = tiny_run()
    found = {"iou": torch.tensor([0.25, 0.75]), "confusion": torch.zeros(2, 2), "odd": torch.zeros(2, 3)}
    evaluator = Engine(lambda engine, batch: engine.state.metrics.update(found))
    tiny.trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run([0]))
    attach_hooks(tiny.trainer, ["LoggerHook"], evaluators=evaluator, work_dir=tmp_path, class_names=["cat", "dog"])
    tiny.trainer.run(tiny.data, max_epochs=2)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["scalars"]["iou/dog"] for line in lines if "iou/dog" in line.get("scalars", {})] == [0.75, 0.75]
    matrix = {"kind": "matrix", "values": [[0.0, 0.0], [0.0, 0.0]], "labels": ["cat", "dog"]}
    assert [line["result"] for line in lines if line.get("name") == "confusion"] == [matrix] * 2
    assert "iou/dog" in caplog.text
    said = [line for line in caplog.messages if "do not show" in line]
    assert said == ["metrics of val that log, files and trackers do not show: odd (Tensor of 2 x 3)"]


@pytest.mark.parametrize("name", ["iou/dog", "iou/1", "val_iou/dog"])
def test_a_class_is_ranked_by_its_name(tmp_path: Path, name: str) -> None:
    values = iter([0.1, 0.75, 0.5])
    run = tiny_run()
    run.evaluator.add_event_handler(
        Events.EPOCH_COMPLETED, lambda engine: engine.state.metrics.update(iou=torch.tensor([0.9, next(values)]))
    )
    runner = attach_hooks(
        run.trainer,
        [{"type": "EvalHook"}, {"type": "CheckpointHook", "save_best": name, "rule": "greater"}],
        work_dir=tmp_path,
        evaluators={"val": run.evaluator},
        class_names=["cat", "dog"],
        **run.services,
    )
    run.trainer.run(run.data, max_epochs=3)
    assert (runner.best[name].score, runner.best[name].epoch) == (0.75, 2)


def test_two_classes_of_one_name_are_an_error(tmp_path: Path) -> None:
    run = tiny_run()
    run.evaluator.add_event_handler(
        Events.EPOCH_COMPLETED, lambda engine: engine.state.metrics.update(iou=torch.tensor([0.9, 0.5]))
    )
    attach_hooks(
        run.trainer,
        [{"type": "EvalHook"}],
        work_dir=tmp_path,
        evaluators={"val": run.evaluator},
        class_names=["cat", "cat"],
        **run.services,
    )
    with pytest.raises(Exception, match="class_names: the classes 0, 1 are all called 'cat'"):
        run.trainer.run(run.data)


def test_a_long_result_leaves_the_line_of_an_evaluation_short() -> None:
    metrics = {"accuracy": 0.5, **{f"iou/{place}": 0.1 for place in range(9)}, "two/a": 1.0, "two/b": 2.0}
    results = {"hard_iou": vector([0.1] * 9), "hard_two": vector([1.0, 2.0], ["a", "b"])}
    found = Evaluated(1, 1, "hard", metrics, {}, results)
    assert found.short == {"accuracy": 0.5, "two/a": 1.0, "two/b": 2.0}
