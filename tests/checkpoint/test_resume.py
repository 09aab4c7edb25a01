"""`resume.py`: resuming equals never having stopped, with real engines and real files."""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from ignite.engine import Engine, Events
from torch import nn

from ignite_hooks import CheckpointError, ConfigError
from tests.checkpoint.runs import CHECKPOINT, LENGTH, STOPPING, content, names, same, script

pytestmark = pytest.mark.usefixtures("quick")


@pytest.mark.parametrize("own_evaluation", [False, True], ids=["EvalHook", "evaluation by the script"])
@pytest.mark.parametrize("crash", [1, 4, 8, 11, 20])
def test_a_resumed_crashed_run_equals_one_that_never_crashed(crash: int, own_evaluation: bool, tmp_path: Path) -> None:
    # What a failing run saves is good but not exact: a run resumes from it only where there is nothing else.
    hooks = [CHECKPOINT | {"save_on_exception": crash > LENGTH}, STOPPING]
    whole = script(tmp_path / "whole", hooks, own_evaluation=own_evaluation)
    whole.run(5)
    crashed = script(tmp_path / "crashed", hooks, own_evaluation=own_evaluation, fail_at=crash)
    with pytest.raises(ZeroDivisionError):
        crashed.run(5)
    assert "last.pth" not in names(tmp_path / "crashed")
    resumed = script(tmp_path / "crashed", hooks, own_evaluation=own_evaluation, resume="auto")
    resumed.run(5)
    assert same(content(tmp_path / "whole/last.pth"), content(tmp_path / "crashed/last.pth"))
    assert names(tmp_path / "whole") == names(tmp_path / "crashed")
    for name in names(tmp_path / "whole"):
        assert same(content(tmp_path / "whole" / name), content(tmp_path / "crashed" / name)), name
    assert resumed.counter.seen == [0, 1, 2, 3, 4]
    assert dict(whole.runner.best) == dict(resumed.runner.best)


@pytest.mark.parametrize("interval", [1, 2, 3])
def test_a_finished_run_with_more_epochs_equals_a_longer_run(interval: int, tmp_path: Path) -> None:
    hooks = [{**CHECKPOINT, "interval": interval}]

    def epochs_of(made: SimpleNamespace, last: int) -> list[int]:
        epochs: list[int] = []
        made.trainer.add_event_handler(Events.EPOCH_STARTED, lambda: epochs.append(made.trainer.state.epoch))
        made.run(last)
        return epochs

    assert epochs_of(script(tmp_path / "whole", hooks), 6) == [1, 2, 3, 4, 5, 6]
    assert epochs_of(script(tmp_path / "parts", hooks), 3) == [1, 2, 3]
    assert epochs_of(script(tmp_path / "parts", hooks, resume="auto"), 6) == [4, 5, 6]
    assert same(content(tmp_path / "whole/last.pth"), content(tmp_path / "parts/last.pth"))


def test_a_finished_run_resumed_unchanged_only_completes(tmp_path: Path) -> None:
    script(tmp_path).run(3)
    before = content(tmp_path / "last.pth")
    fired: list[str] = []
    for _ in range(2):
        resumed = script(tmp_path, resume="auto")
        for event in (Events.EPOCH_STARTED, Events.ITERATION_STARTED, Events.COMPLETED):
            resumed.trainer.add_event_handler(event, lambda engine: fired.append(engine.last_event_name.name))
        resumed.evaluator.add_event_handler(Events.STARTED, lambda: fired.append("evaluation"))
        state = resumed.run(3)
        assert (state.epoch, state.iteration) == (3, 3 * LENGTH)
        assert same(content(tmp_path / "last.pth"), before)
    assert fired == ["COMPLETED", "COMPLETED"]


@pytest.mark.parametrize("resume", ["auto", True])
def test_resuming_without_checkpoints_starts_from_the_beginning_and_logs_it(
    resume: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    state = script(tmp_path, resume=resume).run(1)
    assert state.iteration == LENGTH
    assert f"nothing to resume from in {tmp_path}: starting from the beginning" in caplog.text


@pytest.mark.parametrize("damage", ["truncated", "bit flipped", "missing"])
def test_a_damaged_newest_file_is_skipped_with_a_warning(
    damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    script(tmp_path, [{**CHECKPOINT, "save_best": False}]).run(3)
    for name in ("last.pth", "epoch_3.pth"):
        whole = (tmp_path / name).read_bytes()
        broken = whole[:-100] if damage == "truncated" else whole[:500] + bytes([whole[500] ^ 1]) + whole[501:]
        (tmp_path / name).write_bytes(broken)
        if damage == "missing":
            (tmp_path / name).unlink()
    resumed = script(tmp_path, resume="auto")
    resumed.run(4)
    assert resumed.runner.state.resumed_from == tmp_path / "epoch_2.pth"
    assert f"last.pth in {tmp_path} cannot be used" in caplog.text
    assert f"epoch_3.pth in {tmp_path} cannot be used" in caplog.text


def test_a_run_with_only_damaged_files_does_not_start(tmp_path: Path) -> None:
    script(tmp_path).run(1)
    for path in tmp_path.glob("*.pth"):
        path.write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"no checkpoint in .* can be used: last\.pth: 0 bytes instead of"):
        script(tmp_path, resume="auto").run(2)


def test_the_newest_of_several_folders_is_resumed_from(tmp_path: Path) -> None:
    hooks = [
        {**CHECKPOINT, "name": "often", "by_epoch": False, "interval": 3, "out_dir": "often", "save_last": False},
        {**CHECKPOINT, "name": "rarely", "interval": 3, "out_dir": "rarely", "save_last": False, "save_best": False},
    ]
    script(tmp_path, hooks).run(3)
    resumed = script(tmp_path, hooks, resume="auto")
    resumed.run(4)
    assert resumed.runner.state.resumed_from == tmp_path / "often/iter_12.pth"
    for path in (tmp_path / "often").glob("*.pth"):
        path.unlink()
    resumed = script(tmp_path, hooks, resume="auto")
    resumed.run(4)
    assert resumed.runner.state.resumed_from == tmp_path / "rarely/epoch_3.pth"


def test_a_checkpoint_saved_manually_is_found(tmp_path: Path) -> None:
    hooks = [{**CHECKPOINT, "out_dir": "deep/er", "save_last": False}]
    done = script(tmp_path, hooks)
    done.trainer.add_event_handler(
        Events.ITERATION_COMPLETED(once=6), lambda: done.runner.save_checkpoint() and done.runner.stop("enough")
    )
    done.run(2)
    resumed = script(tmp_path, hooks, resume="auto")
    resumed.run(2)
    assert resumed.runner.state.resumed_from == tmp_path / "iter_6.pth"


@pytest.mark.parametrize("given", ["epoch_2.pth", "absolute", "relative"])
def test_a_named_file_is_resumed_from(given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path / "run").run(3)
    monkeypatch.chdir(tmp_path)
    path = {"absolute": tmp_path / "run/epoch_2.pth", "relative": Path("run/epoch_2.pth")}.get(given, given)
    resumed = script(tmp_path / "run", resume=path)
    epochs: list[int] = []
    resumed.trainer.add_event_handler(Events.EPOCH_STARTED, lambda: epochs.append(resumed.trainer.state.epoch))
    resumed.run(4)
    assert epochs == [3, 4]


def test_a_named_file_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"resume: there is no checkpoint 'epoch_9\.pth', neither in "):
        script(tmp_path, resume="epoch_9.pth")


@pytest.mark.parametrize("where", ["last iteration", "evaluation", "handler of the script"])
def test_a_run_stopped_between_epochs_resumes_exactly_with_its_evaluation(where: str, tmp_path: Path) -> None:
    script(tmp_path / "whole").run(4)
    stopped = script(tmp_path / "stopped")
    trainer, evaluator = stopped.trainer, stopped.evaluator

    def kill() -> None:
        if trainer.state.epoch == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    if where == "evaluation":
        evaluator.add_event_handler(Events.ITERATION_COMPLETED(once=1), kill)
    elif where == "last iteration":
        trainer.add_event_handler(Events.ITERATION_COMPLETED(once=2 * LENGTH), kill)
    else:
        trainer.add_event_handler(Events.EPOCH_COMPLETED, kill)
    with pytest.raises(SystemExit):
        stopped.run(4)
    assert (trainer.state.epoch, trainer.state.iteration) == (2, 2 * LENGTH)
    assert content(tmp_path / "stopped/last.pth")["trainer"]["epoch"] == 2
    script(tmp_path / "stopped", resume="auto").run(4)
    assert same(content(tmp_path / "whole/last.pth"), content(tmp_path / "stopped/last.pth"))
    assert names(tmp_path / "whole") == names(tmp_path / "stopped")


@pytest.mark.parametrize("at", [5, 6, 7])
def test_resuming_within_an_epoch_evaluates_at_the_usual_times(at: int, tmp_path: Path) -> None:
    stopped = script(tmp_path)
    stopped.trainer.add_event_handler(Events.ITERATION_COMPLETED(once=at), lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(SystemExit):
        stopped.run(3)
    resumed = script(tmp_path, resume="auto")
    epochs: list[int] = []
    resumed.evaluator.add_event_handler(Events.STARTED, lambda: epochs.append(resumed.trainer.state.epoch))
    resumed.run(3)
    assert epochs == [2, 3]
    assert resumed.runner.hooks["EarlyStoppingHook"].state.judged_step == resumed.trainer.state.iteration


@pytest.mark.parametrize("at", [LENGTH, LENGTH + 2])
@pytest.mark.parametrize("buffers", [True, False])
def test_a_step_that_fails_after_its_forward_pass_is_not_exact_where_it_changed_buffers(
    at: int, buffers: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hooks = [CHECKPOINT | {"save_best": False, "interval": 5, "save_last": False}]

    def make(**options: Any) -> Any:
        made = script(tmp_path, hooks, **options)
        if not buffers:
            model = nn.Linear(4, 2)
            given = {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1), "scheduler": None}
            for name, thing in given.items():
                made.runner.register_service(name, thing)
        return made

    made = make()
    step = made.trainer._process_function

    def failing(engine: Engine, batch: Any) -> Any:
        if engine.state.iteration == at + 1:
            made.runner.model(batch[0])
            raise ZeroDivisionError
        return step(engine, batch)

    made.trainer._process_function = failing
    with pytest.raises(ZeroDivisionError):
        made.run(2)
    caplog.clear()
    make(resume=f"exception_iter_{at}.pth").run(2)
    # In mid-epoch the random numbers are not those of before the step either.
    assert ("is approximate: it was saved" in caplog.text) == (buffers or at != LENGTH)
    if at == LENGTH:
        assert ("changed buffers such as the statistics of BatchNorm" in caplog.text) == buffers


@pytest.mark.parametrize("exact_is_left", [True, False])
def test_a_best_file_from_before_the_scripts_end_of_an_epoch_comes_last(
    exact_is_left: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint = {"type": "CheckpointHook", "best_metric": "count", "rule": "greater", "interval": 2,
                  "save_last": False, "save_on_exception": False}  # fmt: skip
    stopped = script(tmp_path, [checkpoint], fail_at=3 * LENGTH + 1)
    evaluator, trainer = stopped.evaluator, stopped.trainer
    evaluator.add_event_handler(Events.EPOCH_STARTED, lambda: evaluator.state.metrics.update(count=trainer.state.epoch))
    with pytest.raises(ZeroDivisionError):
        stopped.run(4)
    (best,) = [entry for entry in stopped.runner.store(tmp_path).entries() if entry.kind == "best"]
    assert best.iteration == 3 * LENGTH
    if not exact_is_left:
        (tmp_path / "epoch_2.pth").unlink()
    resumed = script(tmp_path, [checkpoint], resume="auto")
    resumed.evaluator.add_event_handler(Events.EPOCH_STARTED, lambda: resumed.evaluator.state.metrics.update(count=1))
    resumed.run(4)
    if exact_is_left:
        assert resumed.runner.resumed_from == tmp_path / "epoch_2.pth"
        assert f"{best.name} is {LENGTH} iterations further than epoch_2.pth" in caplog.text
    else:
        assert resumed.runner.resumed_from == tmp_path / best.name
        assert "is approximate: it was saved" in caplog.text


@pytest.mark.parametrize("epochs", [1, 2, 3])
def test_a_run_that_the_script_terminated_says_that_it_goes_on(
    epochs: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ended = script(tmp_path, [CHECKPOINT])
    ended.trainer.add_event_handler(Events.EPOCH_COMPLETED(once=2), lambda: ended.trainer.terminate())
    ended.run(3)
    script(tmp_path, [CHECKPOINT], resume="auto").run(epochs)
    words = f"had ended this run by terminate() at iteration {2 * LENGTH}, and it goes on"
    assert (words in caplog.text) is (epochs == 3)


def test_required_fails_unless_a_checkpoint_verifies(tmp_path: Path) -> None:
    first = script(tmp_path, resume="required")
    with pytest.raises(CheckpointError, match=r"resume: required: .* has no checkpoint that verifies"):
        first.run(1)
    assert not list(tmp_path.glob("*.pth")), "nothing was trained"
    script(tmp_path).run(1)
    script(tmp_path, resume="required").run(2)
    assert content(tmp_path / "last.pth")["meta"]["epoch"] == 2
    for path in tmp_path.glob("*.pth"):
        path.write_bytes(b"torn")
    with pytest.raises(CheckpointError):
        script(tmp_path, resume="required").run(3)


@pytest.mark.parametrize("name", [Path("required"), "./required", Path("auto")])
def test_a_file_that_is_called_like_a_word_is_a_path(name: Path | str, tmp_path: Path) -> None:
    script(tmp_path).run(1)
    (tmp_path / "last.pth").rename(tmp_path / name)
    script(tmp_path, resume=name).run(2)
    assert content(tmp_path / "last.pth")["meta"]["epoch"] == 2


@pytest.mark.parametrize("variable", ["TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"])
def test_auto_warns_where_a_restarted_run_finds_nothing(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for count, level in (("0", logging.INFO), ("2", logging.WARNING)):
        monkeypatch.setenv(variable, count)
        caplog.clear()
        with caplog.at_level(logging.INFO):
            script(tmp_path / count, resume="auto").run(1)
        (said,) = [record for record in caplog.records if record.message.startswith("nothing to resume from")]
        assert said.levelno == level
        assert (f"{variable}=2 says that this run has been restarted" in said.message) == (count == "2")
