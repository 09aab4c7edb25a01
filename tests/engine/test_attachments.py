"""Attaching again: earlier runners are replaced whole, or named in an error."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ignite.engine import Engine, Events
from torch import nn

from ignite_hooks import BaseHook, ConfigError, Runner, attach_hooks
from ignite_hooks.engine.attachments import runner_of
from ignite_hooks.testing import RecordingHook, tiny_run
from tests.faults.tools import times
from tests.tools import Log, echo_trainer


def attached(tmp_path: Path, **options: Any) -> tuple[Any, Runner, Log]:
    """Attach a hook that records to a trainer and its evaluator."""
    tiny, log = tiny_run(), []
    hooks = [RecordingHook(log=log, name="recorder")]
    runner = attach_hooks(tiny.trainer, hooks, evaluators=tiny.evaluator, work_dir=tmp_path, **options)
    return tiny, runner, log


def test_replace_detaches_the_earlier_runner_whole(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tiny, first, log = attached(tmp_path)
    second = attach_hooks(tiny.trainer, [], work_dir=tmp_path, replace=True)
    (said,) = [record.getMessage() for record in caplog.records if "replaced" in record.getMessage()]
    assert said == "replaced the hooks of an earlier attach_hooks(): recorder on the trainer, evaluator 'val'"
    assert (runner_of(tiny.trainer), runner_of(tiny.evaluator)) == (second, None)
    tiny.trainer.run(tiny.data)
    tiny.evaluator.run(tiny.val_data)
    assert log == []
    first.detach()
    assert runner_of(tiny.trainer) is second


def test_hooks_of_another_trainer_are_replaced_by_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tiny, _, _ = attached(tmp_path)
    other = tiny_run()
    attach_hooks(other.trainer, [], evaluators=tiny.evaluator, work_dir=tmp_path / "other", replace=True)
    assert "recorder on another trainer, which has none now, evaluator 'val'" in caplog.text
    assert runner_of(tiny.trainer) is None


def test_a_refused_configuration_replaces_nothing(tmp_path: Path) -> None:
    tiny, first, log = attached(tmp_path)
    with pytest.raises(ConfigError, match="CheckpontHook"):
        attach_hooks(tiny.trainer, ["CheckpontHook"], work_dir=tmp_path, replace=True)
    tiny.trainer.run(tiny.data)
    assert log
    assert runner_of(tiny.evaluator) is first


@pytest.mark.parametrize("replace", [None, False])
def test_a_script_is_told_how_to_replace(replace: bool | None, tmp_path: Path) -> None:
    tiny, _, _ = attached(tmp_path)
    with pytest.raises(ConfigError, match=r"the trainer and evaluator 'val' already has hooks.*replace=True"):
        attach_hooks(tiny.trainer, [], evaluators=tiny.evaluator, work_dir=tmp_path, replace=replace)
    with pytest.raises(ConfigError, match=r"the evaluator 'val' already has hooks.*replace=True"):
        attach_hooks(echo_trainer(), [], evaluators=tiny.evaluator, work_dir=tmp_path, replace=replace)


@pytest.mark.parametrize("where", ["in the run", "in an evaluation"])
def test_what_is_running_is_never_replaced(where: str, tmp_path: Path) -> None:
    tiny, _, _ = attached(tmp_path)
    engine, data = (tiny.trainer, tiny.data) if where == "in the run" else (tiny.evaluator, tiny.val_data)

    @engine.on(Events.ITERATION_COMPLETED(once=1))
    def again() -> None:
        with pytest.raises(ConfigError, match="they are running: let the run end"):
            attach_hooks(engine, [], work_dir=tmp_path, replace=True)

    assert engine.run(data).iteration == len(data)


def test_an_interrupted_run_is_closed_and_replaced(tmp_path: Path) -> None:
    tiny, _, log = attached(tmp_path)
    tiny.trainer.add_event_handler(Events.ITERATION_COMPLETED(once=1), tiny.trainer.interrupt)
    tiny.trainer.run(tiny.data)
    attach_hooks(tiny.trainer, [], work_dir=tmp_path, replace=True)
    assert [at for _, at, *_ in log][-1] == "cleanup"
    tiny.trainer._internal_run_generator.close()


def test_an_evaluator_is_taken_over_from_a_trainer_made_anew(tmp_path: Path) -> None:
    tiny, first, log = attached(tmp_path)
    tiny.trainer = None
    assert not first.has_trainer
    trainer = echo_trainer()
    second = attach_hooks(trainer, [], evaluators=tiny.evaluator, work_dir=tmp_path, replace=True)
    assert runner_of(tiny.evaluator) is second
    tiny.evaluator.run(tiny.val_data)
    assert log == []


def test_an_evaluator_whose_runner_is_gone_is_free(tmp_path: Path) -> None:
    tiny, first, _ = attached(tmp_path)
    tiny.trainer = None
    del first
    trainer = echo_trainer()
    runner = attach_hooks(trainer, [], evaluators=tiny.evaluator, work_dir=tmp_path, replace=False)
    assert runner_of(tiny.evaluator) is runner


class Looker(BaseHook):
    def after_train_iter(self, model: Any) -> None: ...


def by_list(trainer: Engine, hook: Any, work_dir: Path) -> Runner:
    return attach_hooks(trainer, [hook], work_dir=work_dir, model=nn.Linear(1, 1))


def by_registering(trainer: Engine, hook: Any, work_dir: Path) -> Runner:
    runner = attach_hooks(trainer, [], work_dir=work_dir, model=nn.Linear(1, 1))
    runner.register_hook(hook)
    return runner


@pytest.mark.parametrize("attach", [by_list, by_registering])
def test_one_hook_on_two_trainers_is_refused_with_both_names(
    attach: Callable[..., Runner], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    a, b, hook = echo_trainer(), echo_trainer(), Looker(name="looker")
    first = attach_hooks(a, [hook], work_dir=tmp_path / "a", model=nn.Linear(1, 1))
    hook.name = "another"
    with pytest.raises(
        ConfigError, match=r"another: this hook belongs to another trainer already.*'looker'.*detach\(\)"
    ):
        attach(b, hook, tmp_path / "b")
    assert hook.runner is first
    first.detach()
    if runner_of(b) is None:
        assert attach(b, hook, tmp_path / "b").hooks["another"] is hook


def test_a_removed_hook_may_go_to_another_trainer(tmp_path: Path) -> None:
    a, b, hook = echo_trainer(), echo_trainer(), Looker(name="looker")
    first = attach_hooks(a, [hook], work_dir=tmp_path / "a", model=nn.Linear(1, 1))
    first.remove_hook("looker")
    assert attach_hooks(b, [hook], work_dir=tmp_path / "b", model=nn.Linear(1, 1)).hooks["looker"] is hook


def test_the_hook_of_a_cell_is_taken_over_when_its_trainer_is_gone(tmp_path: Path) -> None:
    a, b, hook = echo_trainer(), echo_trainer(), Looker(name="looker")
    first = attach_hooks(a, [hook], work_dir=tmp_path / "a", model=nn.Linear(1, 1))
    del a
    with pytest.raises(ConfigError, match="belongs to another trainer"):
        attach_hooks(b, [hook], work_dir=tmp_path / "b", model=nn.Linear(1, 1), replace=False)
    second = attach_hooks(b, [hook], work_dir=tmp_path / "b", model=nn.Linear(1, 1), replace=True)
    assert hook.runner is second is not first


@pytest.mark.slow
def test_many_cycles_leave_no_memory_thread_or_open_file(tmp_path: Path) -> None:
    evaluator, hooks = tiny_run().evaluator, ["EMAHook", "CheckpointHook", "EvalHook", "LoggerHook"]

    def cycle(ending: str) -> weakref.ref[Runner]:
        tiny = tiny_run()
        options = {"work_dir": tmp_path / ending, "replace": True, "val_loader": tiny.val_data, "model": tiny.model}
        runner = attach_hooks(tiny.trainer, hooks, evaluators=evaluator, **options)
        tiny.trainer.run(tiny.data, max_epochs=1)
        if ending == "detached":
            runner.detach()
        return weakref.ref(runner)

    def left() -> tuple[int, list[str], int]:
        gc.collect()
        names = sorted(thread.name for thread in threading.enumerate())
        runners = sum(type(thing) is Runner for thing in gc.get_objects())
        return runners, names, len(list(Path("/dev/fd").iterdir()))

    for ending in ("detached", "left"):
        cycle(ending)
    before = left()
    runners = [cycle(("detached", "left")[i % 2]) for i in range(times(20, 200))]
    assert left() == before
    assert [runner() for runner in runners] == [None] * len(runners)


def test_threads_may_attach_at_the_same_time(tmp_path: Path) -> None:
    failures: list[BaseException] = []
    ready, before = threading.Barrier(4), sys.getswitchinterval()

    def attach(number: int) -> None:
        runners = []
        ready.wait()
        try:
            for i in range(20):
                trainer = echo_trainer()
                runners.append(
                    attach_hooks(trainer, [Looker()], work_dir=tmp_path / f"{number}_{i}", model=nn.Linear(1, 1))
                )
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=attach, args=[number]) for number in range(4)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert failures == []
