from __future__ import annotations

import io
import itertools
import logging
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from ignite.engine import Engine

from benchmarks.meter import Cost, cost_of
from ignite_hooks import BaseHook, LambdaHook, attach_hooks
from ignite_hooks.errors import RunInterrupted
from ignite_hooks.hooks.monitors.notebook_hook import NotebookHook
from ignite_hooks.testing import MemoryWriter, tiny_run

Shown = list[tuple[Mapping[str, str], str, bool]]


def panel(**settings: Any) -> tuple[NotebookHook, Shown]:
    """Return a hook, and the list of what it shows."""
    hook, shown = NotebookHook(**settings), []
    hook.show = lambda content, display_id, is_new: shown.append((content, display_id, is_new))
    return hook, shown


def last(shown: Shown, form: str = "text/plain") -> str:
    return shown[-1][0][form]


def screen_of(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Return what stands for the screen; not a fixture, because pytest replaces stderr after those."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(logging.getLogger("ignite_hooks"), "propagate", False)
    return stream


class At(BaseHook):
    """Does something in one iteration."""

    def __init__(self, iteration: int, act: Callable[[], Any]) -> None:
        super().__init__()
        self.iteration, self.act = iteration, act

    def after_train_iter(self, runner: Any) -> None:
        if runner.global_step == self.iteration:
            self.act()


def test_a_run_has_one_panel_and_no_lines_on_the_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = screen_of(monkeypatch)
    hook, shown = panel()
    run = tiny_run(batches=5)
    hooks = [{"type": "LoggerHook", "interval": 1}, "EvalHook", "RuntimeInfoHook", "CheckpointHook", hook]
    runner = attach_hooks(run.trainer, hooks, work_dir=tmp_path, **run.services)
    run.trainer.run(run.data, max_epochs=3)
    assert [is_new for *_, is_new in shown] == [True] + [False] * (len(shown) - 1)
    assert len({display_id for _, display_id, _ in shown}) == 1
    assert last(shown).splitlines()[0].startswith(f"{tmp_path.name}: finished, epoch 3/3, iteration 15/15")
    assert ["val/loss" in last(shown), "val/accuracy" in last(shown)] == [True, True]
    assert screen.getvalue() == ""
    [log] = (tmp_path / "logs").iterdir()
    assert "Epoch 3/3 [5/5]" in log.read_text()
    run.trainer.run(run.data, max_epochs=4)
    assert shown[-1][1] != shown[0][1], "another run, another panel"
    assert runner.report().failures == {}


def test_it_is_updated_at_most_twice_a_second(tmp_path: Path) -> None:
    hook, shown = panel()
    ticks = itertools.count(0.0, 0.01)
    times: list[float] = []
    hook.clock = lambda: next(ticks)
    hook.show = lambda *_: times.append(hook.clock())
    run = tiny_run(batches=2)
    attach_hooks(run.trainer, ["EvalHook", hook], work_dir=tmp_path, **run.services)
    run.trainer.run(run.data, max_epochs=40)
    gaps = [after - before for before, after in itertools.pairwise(times[:-1])]
    assert gaps != []
    assert min(gaps) >= 0.49
    assert shown == []


def test_warnings_of_the_run_are_in_the_panel_and_those_of_the_script_on_the_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = screen_of(monkeypatch)
    hook, shown = panel()
    handler = logging.StreamHandler(screen)
    own = logging.getLogger("a.script")
    own.addHandler(handler)
    logging.getLogger("ignite_hooks").addHandler(handler)
    try:
        run = tiny_run()
        warn = At(1, lambda: runner.logger.warning("look at this"))
        runner = attach_hooks(run.trainer, ["LoggerHook", warn, hook], work_dir=tmp_path, **run.services)
        run.trainer.run(run.data, max_epochs=1)
        own.warning("mine")
        runner.logger.warning("after the run")
    finally:
        own.removeHandler(handler)
        logging.getLogger("ignite_hooks").removeHandler(handler)
    assert "look at this" in last(shown, "text/html")
    assert screen.getvalue().splitlines() == ["mine", "after the run"]


class Late(MemoryWriter):
    """A tracker that knows its page only when everything has arrived."""

    kind, page = "tracker", ""

    def close(self) -> None:
        self.page = "https://tracker/runs/1"


def test_the_pages_of_trackers_are_links_also_if_known_late(tmp_path: Path) -> None:
    hook, shown = panel()
    run = tiny_run()
    attach_hooks(run.trainer, {"hooks": [hook], "writers": [Late()]}, work_dir=tmp_path, **run.services)
    run.trainer.run(run.data, max_epochs=1)
    assert '<a href="https://tracker/runs/1">tracker</a>' in last(shown, "text/html")


def test_a_failure_closes_the_panel(tmp_path: Path) -> None:
    hook, shown = panel()
    run = tiny_run()

    def fail() -> None:
        raise ValueError("no such thing")

    attach_hooks(run.trainer, [At(2, fail), hook], work_dir=tmp_path, **run.services)
    with pytest.raises(Exception, match="no such thing"):
        run.trainer.run(run.data, max_epochs=1)
    assert last(shown).startswith(f"{tmp_path.name}: failed, epoch 1/1, iteration 2/")
    assert "no such thing" in last(shown, "text/html")


def test_without_a_logger_the_table_has_evaluations_and_last_losses(tmp_path: Path) -> None:
    hook, shown = panel()
    run = tiny_run()
    attach_hooks(run.trainer, ["EvalHook", hook], work_dir=tmp_path, **run.services)
    run.trainer.run(run.data, max_epochs=2)
    assert last(shown).splitlines()[1].split() == ["epoch", "loss", "val/loss", "val/accuracy"]
    assert [line.split()[0] for line in last(shown).splitlines()[2:]] == ["1", "2"]


def test_outside_of_a_notebook_the_lines_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = screen_of(monkeypatch)
    run = tiny_run()
    attach_hooks(run.trainer, ["LoggerHook", "NotebookHook"], work_dir=tmp_path, **run.services)
    run.trainer.run(run.data, max_epochs=1)
    assert "Epoch 1/1" in screen.getvalue()


class ZMQInteractiveShell: ...


class Shell(ZMQInteractiveShell):
    """As Colab's."""


class TerminalInteractiveShell: ...


@pytest.mark.parametrize(
    ("shell", "has_it"), [(Shell, True), (ZMQInteractiveShell, True), (TerminalInteractiveShell, False)]
)
def test_a_kernel_has_it_by_default(shell: type, has_it: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ignite_hooks.terminal.ipython_shell", shell)
    run = tiny_run()
    runner = attach_hooks(run.trainer, work_dir=tmp_path / "one", **run.services)
    assert ("notebook" in runner.hooks) is has_it
    runner.detach()
    without = attach_hooks(run.trainer, ["LoggerHook"], work_dir=tmp_path / "two", **run.services)
    assert list(without.hooks) == ["LoggerHook"]


# -- the stop button ---------------------------------------------------------------------------------------------


def interrupted(folder: Path, **settings: Any) -> tuple[Any, Any, Shown]:
    hook, shown = panel(**settings)
    run = tiny_run(batches=4)
    press = At(6, lambda: signal.raise_signal(signal.SIGINT))
    runner = attach_hooks(
        run.trainer, ["LoggerHook", "EvalHook", "CheckpointHook", press, hook], work_dir=folder, **run.services
    )
    return run, runner, shown


def test_the_stop_button_saves_and_leaves_one_line(tmp_path: Path) -> None:
    run, runner, shown = interrupted(tmp_path)
    with pytest.raises(KeyboardInterrupt) as caught:
        run.trainer.run(run.data, max_epochs=3)
    line = "interrupted at epoch 2, iteration 6; saved as last.pth"
    assert isinstance(caught.value, RunInterrupted)
    assert caught.value._render_traceback_() == [line]
    assert last(shown).splitlines()[:2][1] == line
    assert ": interrupted, epoch 2/3, iteration 6/12" in last(shown)
    assert (tmp_path / "last.pth").exists()
    # The runner is usable, and the run goes on.
    assert runner.validate().keys() >= {"loss"}
    run.trainer.run(run.data, max_epochs=3)
    assert ": finished, epoch 3/3, iteration 10/10" in last(shown), "its second epoch had two iterations"
    rows = [line.split()[0] for line in last(shown).splitlines()[2:]]
    assert rows == ["1", "2", "3"], "a run that goes on shows the epochs before"


@pytest.mark.parametrize(
    ("hooks", "press", "words"),
    [
        ([{"type": "CheckpointHook", "async_save": False}], 2, "stopped at once, so nothing was saved"),
        ([{"type": "CheckpointHook", "async_save": False}], 6, "the last save is epoch_1.pth, of iteration 4"),
        ([], 2, "nothing was saved: no CheckpointHook"),
    ],
)
def test_pressed_twice_it_says_what_is_saved(hooks: list[Any], press: int, words: str, tmp_path: Path) -> None:
    hook, shown = panel()
    run = tiny_run(batches=4)

    def twice() -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    attach_hooks(run.trainer, [*hooks, At(press, twice), hook], work_dir=tmp_path, **run.services)
    with pytest.raises(KeyboardInterrupt):
        run.trainer.run(run.data, max_epochs=3)
    assert last(shown).splitlines()[1] == f"interrupted at epoch {1 + press // 5}, iteration {press}; {words}"


def test_the_speed_counts_from_the_start_of_the_run(tmp_path: Path) -> None:
    hook, shown = panel()
    run = tiny_run(batches=4)
    run.trainer.run(run.data, max_epochs=1)
    hook.clock = itertools.count(1000.0, 1.0).__next__
    early = LambdaHook(before_train=lambda runner: runner.validate(), name="early", priority=0)
    attach_hooks(run.trainer, ["EvalHook", early, hook], work_dir=tmp_path, **run.services)
    run.trainer.run(run.data, max_epochs=2)
    assert "it/s" not in shown[0][0]["text/plain"], "no iteration has run yet"


def test_the_next_cells_run_where_that_is_asked_for(tmp_path: Path) -> None:
    run, _, shown = interrupted(tmp_path, interrupt="return")
    state = run.trainer.run(run.data, max_epochs=3)
    assert state.iteration == 6
    assert ": interrupted, epoch 2/3" in last(shown)


def test_a_script_keeps_its_keyboard_interrupt(tmp_path: Path) -> None:
    run = tiny_run(batches=4)
    press = At(2, lambda: signal.raise_signal(signal.SIGINT))
    attach_hooks(run.trainer, [press, "NotebookHook"], work_dir=tmp_path, **run.services)
    with pytest.raises(KeyboardInterrupt) as caught:
        run.trainer.run(run.data, max_epochs=1)
    assert type(caught.value) is KeyboardInterrupt


# -- what it costs -----------------------------------------------------------------------------------------------


def test_an_iteration_in_which_it_is_not_due_costs_what_an_idle_hook_costs(tmp_path: Path) -> None:
    def cost(hooks: list[Any]) -> Cost:
        trainer = Engine(lambda engine, batch: 0.5)
        runner = attach_hooks(trainer, hooks, work_dir=tmp_path)
        # Iterations without end in a second: the time is read in the first of them alone.
        runner.installation.dispatcher._clocks["iter"]._now = itertools.count(0.0, 1e-9).__next__
        return cost_of(trainer)

    class Idle(BaseHook):
        def after_train_iter(self) -> None: ...

    hook, shown = panel()
    assert cost([hook]) == cost([Idle(every="1 h")])
    assert shown != []
