"""What averages of weights need in a run: where they come from, which are refused, and when ranks are made equal."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from ignite_hooks.errors import CheckpointError, ConfigError, SettingError
from ignite_hooks.model import averaging_stream
from ignite_hooks.run import averaging
from ignite_hooks.run.averaging import (
    RankSync,
    averages_in,
    check_also,
    check_models,
    flat_averages,
    momentum_at,
    refuse_step,
    update_or_begin,
    updates_beside,
)

LOGGER = logging.getLogger("ignite_hooks.tests")

# -- several ranks ---------------------------------------------------------------------------------------------


class Averages:
    """Averages that record what is done with them."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.copies = SimpleNamespace(tensors=lambda: [torch.ones(1)])

    def broadcast(self) -> None:
        self.calls.append("broadcast")

    def average_over_ranks(self) -> None:
        self.calls.append("mean")

    def digest(self) -> int:
        return 1


def runner_at(step: int, calls: list[str]) -> Any:
    staging = SimpleNamespace(wait_for_staging=lambda: calls.append("wait"))
    return SimpleNamespace(global_step=step, logger=LOGGER, checkpoints=staging)


@pytest.mark.parametrize(
    ("mode", "digests", "calls"),
    [
        ("broadcast", [1, 1], []),
        ("broadcast", [1, 2], ["wait", "broadcast"]),
        ("mean", [1, 2], ["wait", "mean"]),
        ("none", [1, 2], []),
    ],
)
def test_averages_of_ranks_that_drifted_are_made_equal_and_told_once(
    mode: str, digests: list[int], calls: list[str], monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setattr(averaging, "world_size", lambda: 2)
    monkeypatch.setattr(averaging, "all_gather", lambda mine: [[mine[0], digest] for digest in digests])
    sync, averages = RankSync(mode), Averages()
    with caplog.at_level(logging.WARNING, logger=LOGGER.name):
        for step in (3, 5):
            assert sync.is_due(step)
            sync.synchronise(runner_at(step, averages.calls), averages, 7)  # type: ignore[arg-type]
            assert not sync.is_due(step)
    assert averages.calls == calls * 2
    said = f"iteration 3: the averages of rank 1 differ from those of rank 0 (sync: {mode})"
    assert caplog.messages == ([said] if len(set(digests)) > 1 else [])


@pytest.mark.parametrize(("mode", "ranks", "calls"), [("none", 2, []), ("mean", 1, []), ("mean", 2, ["broadcast"])])
def test_ranks_begin_with_the_averages_of_the_first(
    mode: str, ranks: int, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shared: list[int] = []
    monkeypatch.setattr(averaging, "world_size", lambda: ranks)
    monkeypatch.setattr(averaging, "broadcast_tensors", lambda tensors: shared.append(len(tensors)))
    sync, averages = RankSync(mode), Averages()
    sync.begin(averages)  # type: ignore[arg-type]
    sync.share_buffers(averages)  # type: ignore[arg-type]
    assert averages.calls == calls
    assert shared == [1] * len(calls)
    assert sync.is_due(0) == (ranks > 1)


# -- what is refused -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("also", "message"),
    [
        ({}, "also: is empty: name at least one"),
        ({"raw": 0.99}, "also: 'raw' is a part of names of metrics"),
        ({"ema": 0.99}, "also: 'ema' is a part"),
        ({"very slow": 0.99}, "also: 'very slow' is a part"),
        ({"slow": 0.2}, "0.2 is not in"),
        ({"slow": 1.0}, "1 is not in"),
    ],
)
def test_further_averages_need_a_name_and_a_momentum(also: Mapping[str, float], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        check_also(also, "Elsewhere it is the other share")


def test_further_averages_may_be_none() -> None:
    check_also(None, "")
    check_also({"slow": 0.99999}, "")


def test_models_without_a_name_are_a_problem_of_the_configuration() -> None:
    check_models(("g",), ["g", "d"], "hooks[0]")
    with pytest.raises(ConfigError, match=r"hooks\[0\]"):
        check_models(("x",), ["g", "d"], "hooks[0]")


def test_a_step_with_averages_in_the_model_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"leave swap\(\) before it"):
        refuse_step(None, (), {})


# -- averages of a checkpoint ----------------------------------------------------------------------------------

ONE, SEVERAL = {"weight": 1}, {"g": {"weight": 1}, "d": {"weight": 2}}


@pytest.mark.parametrize(
    ("found", "names", "flat"),
    [
        (ONE, None, ONE),
        (SEVERAL, ["g", "d"], {"g.weight": 1, "d.weight": 2}),
        (SEVERAL, ["d"], {"d.weight": 2}),
        ({}, None, {}),
    ],
)
def test_averages_are_those_of_the_named_models(found: Any, names: list[str] | None, flat: Any) -> None:
    assert flat_averages(found, names) == flat


@pytest.mark.parametrize(
    ("found", "names", "message"),
    [
        (ONE, ["g"], "the averages do not fit: it holds one model"),
        (SEVERAL, None, "the averages do not fit: it holds several"),
        (SEVERAL, ["g", "x"], r"averages of g, d, and EMAHook averages g, x: set its models to \['g', 'd'\]"),
    ],
)
def test_averages_of_other_models_say_what_they_are(found: Any, names: list[str] | None, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        flat_averages(found, names)


def holding(content: Mapping[str, Any]) -> Any:
    """Return a run whose store has one checkpoint."""
    return SimpleNamespace(work_dir=Path("runs"), store=lambda folder: SimpleNamespace(load=lambda path: content))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"ema_state_dict": ONE, "state_dict": {"weight": 9}}, (ONE, True)),
        ({"state_dict": ONE}, (ONE, False)),
    ],
)
def test_a_checkpoint_without_averages_begins_them_with_its_weights(content: Any, expected: Any) -> None:
    assert averages_in(holding(content), "a.pth", None) == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "has neither 'ema_state_dict' nor 'state_dict'"),
        ({"state_dict": SEVERAL}, "resume_from: .*a.pth: the averages do not fit"),
    ],
)
def test_a_checkpoint_that_has_none_of_this_run_is_named(content: Any, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        averages_in(holding(content), "a.pth", None)


# -- beside the training ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overlap", "said"),
    [
        (False, []),
        ("auto", []),
        (True, ["overlap is off: no optimizer was given whose steps can be waited for"]),
    ],
)
def test_without_an_optimizer_updates_are_in_line_and_who_asked_is_told(
    overlap: bool | str, said: list[str], caplog: Any
) -> None:
    steps: Any = SimpleNamespace(optimizer=None)
    with caplog.at_level(logging.INFO, logger=LOGGER.name):
        assert updates_beside(runner_at(1, []), nn.Linear(2, 1), steps, overlap, lambda runner: None) is None
    assert caplog.messages == said


@pytest.mark.parametrize("is_on_gpu", [False, True])
def test_what_was_asked_for_is_made_beside_the_training_of_its_device(
    is_on_gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []
    monkeypatch.setattr(averaging, "AveragingThread", lambda: begun.append("thread"))
    monkeypatch.setattr(averaging_stream, "AveragingStream", lambda device: begun.append(f"stream of {device}"))
    monkeypatch.setattr(averaging.Beside, "attach", lambda self, steps, readers, wait: wait())
    model = nn.Linear(2, 1)
    steps: Any = SimpleNamespace(optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    if is_on_gpu:
        there = SimpleNamespace(device=torch.device("cuda", 0), requires_grad=False)
        monkeypatch.setattr(model, "parameters", lambda: iter([there]))
    runner: Any = SimpleNamespace(logger=LOGGER, checkpoints=SimpleNamespace(staging=SimpleNamespace(readers=[])))
    waited: list[Any] = []
    assert updates_beside(runner, model, steps, True, waited.append) is not None
    assert begun == ["stream of cuda:0" if is_on_gpu else "thread"]
    assert waited == [runner]


@pytest.mark.parametrize(
    ("step", "warm_up", "power", "momentum"),
    [
        (0, 0, None, 0.9),
        (0, 100, None, 0.01),
        (98, 100, None, 0.5),
        (10_000, 100, None, 0.9),
        (math.inf, 100, None, 0.9),
        (0, 0, 1, 0.0),
        (1, 0, 1, 0.25),
        (1000, 0, 1, 0.9),
    ],
)
def test_momentum_rises_to_its_value(step: float, warm_up: int, power: float | None, momentum: float) -> None:
    assert momentum_at(step, 0.9, warm_up, power) == pytest.approx(momentum)


def test_a_small_model_is_not_even_tried_beside_the_training(caplog: Any) -> None:
    model = nn.Linear(2, 1)
    steps: Any = SimpleNamespace(optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    with caplog.at_level(logging.INFO, logger=LOGGER.name):
        assert updates_beside(runner_at(1, []), model, steps, "auto", lambda runner: None) is None
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("length", "iteration", "began", "at_end"),
    [(4, 3, 0, False), (4, 4, 0, True), (4, 7, 4, False), (4, 8, 4, True), (None, 3, 0, True)],
)
def test_the_last_update_of_an_epoch_is_not_left_behind(
    length: int | None, iteration: int, began: int, at_end: bool
) -> None:
    asked: list[Any] = []
    beside: Any = SimpleNamespace(update=lambda part, momentum, at_end: asked.append((momentum, at_end)))
    runner: Any = SimpleNamespace(
        trainer_state=SimpleNamespace(epoch_length=length, iteration=iteration),
        state=SimpleNamespace(epoch_began_at=began),
    )
    part: Any = SimpleNamespace(update=lambda momentum: "in line")
    assert update_or_begin(part, 0.9, None, runner) == "in line"
    update_or_begin(part, 0.9, beside, runner)
    assert asked == [(0.9, at_end)]
