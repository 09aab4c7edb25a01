"""Differences between hooks, engines and processes are seen and named."""

from __future__ import annotations

import logging
import math
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Events

from ignite_hooks import BaseHook
from ignite_hooks.hooks.base_hook import settings
from ignite_hooks.testing import tiny_run
from ignite_hooks.testing.observations import compare, process_resources, record_events, settings_of, traces


@settings
class Sized(BaseHook):
    """Has settings.

    Args:
        sizes: Some numbers.
        model: Any object.
    """

    sizes: Any = None
    model: Any = None


@pytest.mark.parametrize(
    ("one", "other", "difference"),
    [
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}, "a[1].b was 2 and is 3"),
        ([1, 2], [1, 2, 5], "[2] was nothing and is 5"),
        ([1, 2, 3], [1, 4], "[1] was 2 and is 4"),
        ({"a": 1}, {"b": 1}, "it was {'a': 1} and is {'b': 1}"),
        ({"w": torch.ones(2)}, {"w": torch.zeros(2)}, "w has other values"),
        (torch.ones(2), torch.ones(2, dtype=torch.float64), "a tensor has other values"),
        (torch.ones(2), torch.ones(1, 2), "a tensor has other values"),
        ("a", "b", "it was 'a' and is 'b'"),
    ],
)
def test_the_first_difference_is_named_with_its_place(one: Any, other: Any, difference: str) -> None:
    assert compare(one, other) == difference


@pytest.mark.parametrize(
    "value", [math.nan, [math.nan, (1, {"a": None})], {"w": torch.tensor([1.0, math.nan])}, {}, "text"], ids=str
)
def test_equal_values_have_no_difference(value: Any) -> None:
    again = torch.tensor([1.0, math.nan])
    assert compare(value, {"w": again} if isinstance(value, dict) and value else value) == ""


def test_settings_keep_objects_and_copy_containers() -> None:
    model = torch.nn.Linear(1, 1)
    hook = Sized(sizes=[1, 2], model=model, name="mine")
    before = settings_of(hook)
    hook.sizes.append(3)
    assert before["sizes"] == [1, 2]
    assert before["model"] is model
    assert before["name"] == "mine"
    assert compare(before, settings_of(hook)) == "sizes[2] was nothing and is 3"


def test_what_is_left_on_engines_and_model_is_described() -> None:
    run = tiny_run()
    before = traces(run)
    run.trainer.add_event_handler(Events.STARTED, lambda: None)
    run.evaluator.board = 1  # type: ignore[attr-defined]
    run.model.register_forward_hook(lambda *_: None)
    after = traces(run)
    assert {what for what in after if after[what] != before.get(what, 0)} == {
        "a handler of STARTED on the trainer",
        "the attribute 'board' of the evaluator",
        "an entry of _forward_hooks of the model",
    }


def test_recorded_events_of_equal_runs_are_equal() -> None:
    seen = []
    for seed in (0, 0, 1):
        run = tiny_run(seed=seed)
        events = record_events(run.trainer)
        run.trainer.run(run.data, max_epochs=1)
        seen.append(events)
    assert compare(seen[0], seen[1]) == ""
    assert compare(seen[0], seen[2]) != ""
    assert seen[0][0] == "STARTED at epoch 0, iteration 0, output None, last event STARTED"
    assert [line.partition(" ")[0] for line in seen[0]].count("ITERATION_COMPLETED") == 3


def test_threads_files_and_logging_handlers_are_described(tmp_path: Path) -> None:
    before, done = process_resources(), threading.Event()
    handler, logger = logging.NullHandler(), logging.getLogger("tests.observed")
    thread = threading.Thread(target=done.wait, name="observed")
    with (tmp_path / "observed.txt").open("w"):
        thread.start()
        logger.addHandler(handler)
        new = process_resources() - before
    done.set()
    thread.join()
    logger.removeHandler(handler)
    for word in ("NullHandler", "observed.txt", "'observed'"):
        assert len([line for line in new if word in line]) == 1, word
    assert not [line for line in process_resources() if "observed" in line]


def test_fonts_that_matplotlib_keeps_open_belong_to_no_hook(tmp_path: Path) -> None:
    with (tmp_path / "any.ttf").open("w"), (tmp_path / "any.txt").open("w"):
        opened = [line for line in process_resources() if str(tmp_path) in line]
    assert len(opened) == 1
    assert "any.txt" in opened[0]
