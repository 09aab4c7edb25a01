from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine, Events

from ignite_hooks import ConfigError, Runner, attach_hooks
from ignite_hooks.hooks.monitors.throughput_hook import ThroughputHook
from ignite_hooks.writers.memory import MemoryWriter
from tests.tools import straight_and_resumed

SAMPLES, INPUTS, OUTPUTS = 8, 4, 3
# A multiply and an add per weight and sample, forward and for the gradient of the weights, not for that of the inputs.
FLOPS = 2 * 2 * SAMPLES * INPUTS * OUTPUTS


class Hands:
    """A clock that advances only when a test turns it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def a_run(hands: Hands, compute: bool = True) -> tuple[Engine, Any, dict[str, Any]]:
    """Run steps of half a second, with a tenth between epochs."""
    model = torch.nn.Linear(INPUTS, OUTPUTS)

    def step(engine: Engine, batch: torch.Tensor) -> None:
        hands.now += 0.5
        if compute:
            model(batch).sum().backward()

    trainer = Engine(step)
    return trainer, [torch.ones(SAMPLES, INPUTS)] * 6, {"model": model}


def written(folder: Path, evaluate: bool = False, compute: bool = True, **settings: Any) -> tuple[Runner, list[Any]]:
    hands, writer = Hands(), MemoryWriter()
    trainer, data, services = a_run(hands, compute)
    hook = ThroughputHook(**settings)
    hook.clock = hands
    evaluator = Engine(lambda *_: None)
    runner = attach_hooks(
        trainer, {"hooks": [hook], "writers": [writer]}, work_dir=folder, evaluators=evaluator, **services
    )

    def pass_time(seconds: float) -> None:
        hands.now += seconds

    evaluator.add_event_handler(Events.ITERATION_STARTED, pass_time, 100.0)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, pass_time, 100.0)
    if evaluate:
        trainer.add_event_handler(Events.ITERATION_COMPLETED(once=3), lambda: evaluator.run([0]))
    trainer.run(data, max_epochs=2)
    return runner, [(step, found) for found, step, *_ in writer.lines]


@pytest.mark.parametrize("evaluate", [False, True])
def test_samples_and_operations_count_the_time_of_steps_alone(evaluate: bool, tmp_path: Path) -> None:
    runner, found = written(tmp_path, evaluate, interval=4, peak_tflops=FLOPS / 1e12)
    # Iteration 4 is the one in which operations are counted, and belongs to no window.
    expected = {"throughput/samples_per_s": 16.0, "throughput/tflops": 2 * FLOPS / 1e12, "throughput/utilisation": 2.0}
    assert [step for step, _ in found] == [4, 8, 12]
    for _, each in found:
        assert each == pytest.approx(expected)
    (words,) = runner.report().findings["ThroughputHook"]
    assert words == "16 samples/s, 768 FLOP/s, 200.0% of the peak in the mean of the run"


def test_operations_are_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    times, enter = [], FlopCounterMode.__enter__
    monkeypatch.setattr(FlopCounterMode, "__enter__", lambda self: (times.append(1), enter(self))[1])
    runner, _ = written(tmp_path, interval=2)
    assert times == [1]
    assert runner.hooks["ThroughputHook"].state.flops == FLOPS


def test_without_operations_there_are_samples(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    _, found = written(tmp_path / "off", interval=6, flops=False)
    assert [each for _, each in found] == [{"throughput/samples_per_s": 16.0}] * 2
    _, found = written(tmp_path / "none", compute=False, interval=4)
    assert [each for _, each in found] == [{"throughput/samples_per_s": 16.0}] * 3
    assert caplog.text.count("no operations could be counted") == 1


def test_a_run_shorter_than_the_interval_is_written(tmp_path: Path) -> None:
    runner, found = written(tmp_path)
    assert found == [(12, {"throughput/samples_per_s": 16.0})]
    assert runner.report().findings["ThroughputHook"] == ["16 samples/s in the mean of the run"]


def test_a_step_that_fails_leaves_no_counter_behind(tmp_path: Path) -> None:
    def fail(engine: Engine, batch: Any) -> None:
        raise RuntimeError("boom")

    trainer = Engine(fail)
    attach_hooks(trainer, [{"type": "ThroughputHook", "interval": 1}], work_dir=tmp_path)
    with pytest.raises(RuntimeError, match="boom"):
        trainer.run([0])
    assert torch.utils._python_dispatch._get_current_dispatch_mode() is None


@pytest.mark.parametrize("stop", [3, 6, 9])
def test_resuming_equals_never_having_stopped(stop: int, tmp_path: Path) -> None:
    hands = Hands()

    def hook() -> ThroughputHook:
        made = ThroughputHook(interval=2)
        made.clock = hands
        return made

    straight, resumed = straight_and_resumed(tmp_path, lambda: a_run(hands), hook, stop=stop)
    states = [runner.hooks["ThroughputHook"].state_dict() for runner in (straight, resumed)]
    assert states[0] == states[1]
    assert states[0]["iterations"] == 23, "all but the one in which operations were counted"


def test_a_peak_without_operations_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="peak_tflops: needs flops: true"):
        attach_hooks(
            Engine(lambda *_: None),
            [{"type": "ThroughputHook", "flops": False, "peak_tflops": 1.0}],
            work_dir=tmp_path,
        )
