"""Several ranks do the same, or hear that they do not."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine, Events
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from ignite_hooks import BaseHook, HookEvents, attach_hooks
from ignite_hooks.distributed import watchdog as vigil
from ignite_hooks.distributed.collectives import broadcast_object, rank
from ignite_hooks.engine.tell import ANSWER, ORDER
from tests.faults.tools import drawn, times, until
from tests.ranks import SECONDS, Ranks, run_ranks

pytestmark = [pytest.mark.slow, pytest.mark.faults]

MESSAGES_TO_FIND_OUT = 2
"""Of each rank: the digest of its plan, and the plan where digests differ."""


class StopsOn(BaseHook):
    """Wants the run to end, on one rank, in one iteration."""

    def __init__(self, which: int, iteration: int) -> None:
        super().__init__()
        self.which, self.iteration = which, iteration

    def after_train_iter(self, runner: Any) -> None:
        if rank() == self.which and runner.global_step == self.iteration:
            runner.stop("enough")


class EveryMoment(BaseHook):
    """Notes when a schedule in seconds fires."""

    every = "0.02 s"

    def __init__(self) -> None:
        super().__init__(every="0.02 s")
        self.fired: list[int] = []

    def after_train_iter(self, runner: Any) -> None:
        self.fired.append(runner.global_step)


def attached(hooks: list[Any], work_dir: str | None = None, **services: Any) -> tuple[Engine, Any]:
    trainer = Engine(lambda engine, batch: 0.5)
    return trainer, attach_hooks(trainer, hooks, work_dir=work_dir or broadcast_object(tempfile.mkdtemp()), **services)


def raised(action: Any) -> str:
    try:
        action()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


@contextlib.contextmanager
def counted_messages() -> Iterator[list[int]]:
    """Yield the sizes of the messages that the ranks exchange meanwhile."""
    sizes: list[int] = []
    gather = torch.distributed.all_gather

    def counted(heard: Any, said: torch.Tensor, *arguments: Any, **more: Any) -> Any:
        sizes.append(len(said))
        return gather(heard, said, *arguments, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.distributed, "all_gather", counted)
        yield sizes


def seen_in_an_evaluation(runner: Any, model: torch.nn.Module) -> Any:
    """Return the buffer that an evaluation of the script sees."""
    seen: list[Any] = []
    evaluator = Engine(lambda engine, batch: seen.append(model.get_buffer("count").tolist()))
    runner.installation.add_evaluator("val", evaluator)
    runner.trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run([1]))
    runner.trainer.run(range(3), max_epochs=2)
    return seen[-1]


def everything() -> dict[str, Any]:
    found: dict[str, Any] = {}

    trainer, runner = attached([StopsOn(1, 7)])
    trainer.run(range(10), max_epochs=3)
    found["stop"] = [trainer.state.iteration, runner.stop_reason]

    trainer, runner = attached(["RuntimeInfoHook"])
    found["votes of hooks that cannot stop"] = runner.installation.stopping.vote.needed
    trainer.run(range(3))
    found["votes of hooks that cannot stop"] |= runner.installation.stopping.vote.needed

    extra = [{"type": "LoggerHook"}] if rank() == 0 else []
    trainer, runner = attached(["RuntimeInfoHook", *extra])
    with counted_messages() as messages:
        found["hook missing"] = raised(lambda: trainer.run(range(3)))
    found["messages to find out"] = [len(messages), trainer.state.iteration]

    trainer, runner = attached([{"type": "EMAHook", "momentum": 0.9 + rank() / 100}], model=torch.nn.Linear(1, 1))
    found["setting differs"] = raised(lambda: trainer.run(range(3)))

    found["wrong on rank 1"] = raised(lambda: attached([{"type": "LoggerHook" if rank() == 0 else "LogerHook"}]))

    moments = EveryMoment()
    trainer, runner = attached([moments])
    trainer.add_event_handler(Events.ITERATION_STARTED, lambda: time.sleep(random.random() * 0.01))
    trainer.run(range(40))
    found["moments"] = moments.fired

    trainer, runner = attached([BaseHook(), StopsOn(0, 1000)])
    found["uneven"] = raised(lambda: trainer.run(range(4 + rank()), max_epochs=2))

    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2).half())
    model.register_buffer("count", torch.tensor([3, rank()]))
    with torch.no_grad():
        for weight in model.parameters():
            weight.fill_(rank() + 1)
    for sync in ("broadcast", "average", "none"):
        trainer, runner = attached(
            [{"type": "EMAHook", "momentum": 0.5, "warm_up": 0, "sync": sync, "sync_interval": 3}], model=model
        )

        def grow() -> None:
            with torch.no_grad():
                for weight in model.parameters():
                    weight.add_(rank() + 1)

        trainer.add_event_handler(Events.ITERATION_STARTED, grow)
        trainer.run(range(3))
        average = runner.hooks["EMAHook"].weights()["ema_state_dict"]
        found[f"ema {sync}"] = [average["0.weight"][0, 0].item(), average["1.bias"][0].item()]
        found[f"buffers {sync}"] = [seen_in_an_evaluation(runner, model), model.get_buffer("count").tolist()]
        runner.detach()
    return found


@pytest.fixture(scope="module")
def found() -> list[dict[str, Any]]:
    return run_ranks(everything)


def test_all_stop_where_one_wants_to_and_say_why(found: list[dict[str, Any]]) -> None:
    assert [each["stop"] for each in found] == [[7, "enough on rank 1"]] * 2


def test_no_vote_without_a_hook_that_can_end_the_run(found: list[dict[str, Any]]) -> None:
    assert [each["votes of hooks that cannot stop"] for each in found] == [False, False]


def test_a_hook_on_only_one_rank_is_refused_on_both(found: list[dict[str, Any]]) -> None:
    for each in found:
        assert each["hook missing"].startswith(
            "RankError: the ranks of this run have different hooks: rank 1 has no 'LoggerHook', which rank 0 has"
        )
        assert each["messages to find out"] == [MESSAGES_TO_FIND_OUT, 0]


def test_another_setting_on_one_rank_is_named(found: list[dict[str, Any]]) -> None:
    for each in found:
        assert "EMAHook.momentum is 0.9 on rank 0 and 0.91 on rank 1" in each["setting differs"]


def test_a_configuration_wrong_on_one_rank_is_refused_on_both(found: list[dict[str, Any]]) -> None:
    assert found[0]["wrong on rank 1"].startswith("RankError: rank 1 has failed: ConfigError: ")
    assert "did you mean 'LoggerHook'?" in found[1]["wrong on rank 1"]


def test_a_schedule_in_seconds_fires_in_the_same_iterations(found: list[dict[str, Any]]) -> None:
    assert found[0]["moments"] == found[1]["moments"]
    assert len(found[0]["moments"]) > 2


def test_ranks_with_different_numbers_of_batches_are_warned(found: list[dict[str, Any]]) -> None:
    for each in found:
        assert each["uneven"].startswith("RankError: the ranks of this run are at different places: rank 0 ")
        assert "the same number of batches" in each["uneven"]


def test_averages_are_broadcast_averaged_or_left_as_they_are(found: list[dict[str, Any]]) -> None:
    first, second = found
    assert first["ema broadcast"] == second["ema broadcast"]
    assert first["ema average"] == second["ema average"]
    assert first["ema none"] != second["ema none"]


@pytest.mark.parametrize(("sync", "of"), [("broadcast", [0, 0]), ("average", [0, 0]), ("none", [0, 1])])
def test_ranks_evaluate_with_the_same_buffers_and_train_with_their_own(
    sync: str, of: list[int], found: list[dict[str, Any]]
) -> None:
    for number, each in enumerate(found):
        assert each[f"buffers {sync}"] == [[3, of[number]], [3, number]]


# -- signals ------------------------------------------------------------------------------------------------------


def trained_until_stopped(folder: str) -> list[Any]:
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(engine: Engine, batch: Any) -> float:
        optimizer.zero_grad()
        loss = model(batch[0]).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    trainer = Engine(step)
    loader = DataLoader(TensorDataset(torch.ones(60, 2)), batch_size=2)
    hooks = [
        {"type": "CheckpointHook", "save_best": False, "max_keep_ckpts": 1},
        {"type": "EvalHook", "metric": "loss", "save_best": False},
    ]
    attach_hooks(
        trainer,
        hooks,
        work_dir=folder,
        model=model,
        optimizer=optimizer,
        val_loader=DataLoader(TensorDataset(torch.ones(60, 2), torch.ones(60, 1)), batch_size=2),
        criterion=torch.nn.functional.mse_loss,
    )

    @trainer.on(Events.ITERATION_COMPLETED(once=3))
    def tell() -> None:
        (Path(folder) / f"pid{rank()}").write_text(str(os.getpid()))

    code: Any = None
    try:
        trainer.run(loader, max_epochs=100000)
    except SystemExit as end:
        code = end.code
    return [code, trainer.state.iteration]


def pids_in(folder: Path) -> list[int]:
    files = [folder / f"pid{number}" for number in range(2)]
    until(lambda: all(file.exists() and file.read_text() for file in files))
    return [int(file.read_text()) for file in files]


@pytest.mark.parametrize("number", range(times(2, 30)))
def test_sigterm_on_one_rank_stops_and_saves_all_together(number: int, tmp_path: Path) -> None:
    dice = drawn()
    ranks = Ranks(trained_until_stopped, str(tmp_path))
    told = pids_in(tmp_path)
    time.sleep(dice.random() * 0.3)
    os.kill(dice.choice(told), signal.SIGTERM)
    (code, iteration), other = ranks.results()
    assert other == [code, iteration]
    assert code == 143
    saved = torch.load(tmp_path / "last.pth", weights_only=True)
    assert saved["meta"]["iter"] == iteration


def obeys_orders(folder: str) -> list[Any]:
    signal.signal(signal.SIGUSR1, lambda number, frame: called.append(trainer.state.iteration))
    called: list[int] = []
    saved: list[int] = []
    trainer = Engine(lambda engine, batch: 0.5)
    checkpoint = {"type": "CheckpointHook", "save_best": False, "interval": 9, "save_last": False}
    config = {"hooks": [checkpoint], "signals": {"USR1": "save"}}
    runner = attach_hooks(trainer, config, model=torch.nn.Linear(2, 1), work_dir=folder)
    trainer.add_event_handler(HookEvents.BEFORE_SAVE_CHECKPOINT, lambda: saved.append(trainer.state.iteration))

    @trainer.on(Events.ITERATION_STARTED(once=5))
    def signalled() -> None:
        if rank() == 1:
            os.kill(os.getpid(), signal.SIGUSR1)

    @trainer.on(Events.ITERATION_STARTED(once=5000))
    def told() -> None:
        if rank() == 0:
            (Path(folder) / ORDER).write_text(json.dumps({"word": "stop", "number": "1"}))

    trainer.run([0] * 10_000, max_epochs=1000)
    return [saved, called, runner.stop_reason, trainer.state.iteration]


def test_orders_on_one_rank_are_obeyed_by_all_in_the_same_iteration(tmp_path: Path) -> None:
    first, second = run_ranks(obeys_orders, str(tmp_path))
    (saved,), _, reason, iteration = first
    assert saved >= 5
    assert second[0] == [saved]
    assert (first[1], second[1]) == ([], [saved]), "the script's handler is called where the signal came"
    assert reason == second[2]
    assert reason.startswith("told to stop")
    assert second[3] == iteration >= 5000
    assert torch.load(tmp_path / "last.pth", weights_only=True)["meta"]["iter"] == saved
    assert json.loads((tmp_path / ANSWER).read_text())["text"] == f"stopped after iteration {iteration}"


# -- ranks that are gone ------------------------------------------------------------------------------------------


class Slow(torch.utils.data.Dataset[Any]):
    """Data whose evaluation takes much longer than the test: many short batches, or a very long one."""

    def __init__(self, folder: str, seconds: float) -> None:
        self.folder, self.seconds = folder, seconds

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> Any:
        # The first of each rank is the place where a test finds it; ranks may wait for each other after it.
        if index < 2:
            (Path(self.folder) / f"pid{rank()}").write_text(str(os.getpid()))
        time.sleep(self.seconds)
        return torch.ones(2), torch.ones(1)


def evaluates_for_ever(folder: str, limit: float, seconds: float, grace: float = vigil.GRACE) -> None:
    vigil.GRACE = grace
    model = torch.nn.Linear(2, 1)
    trainer = Engine(lambda engine, batch: 0.5)
    attach_hooks(
        trainer,
        {"hooks": [{"type": "EvalHook", "metric": "loss", "save_best": False}], "rank_timeout": limit},
        work_dir=folder,
        model=model,
        criterion=torch.nn.functional.mse_loss,
        val_loader=DataLoader(Slow(folder, seconds), batch_size=1),
    )
    trainer.run(range(2))


@pytest.mark.parametrize("gone", [0, 1])
@pytest.mark.parametrize(("batch", "code"), [(0.01, 1), (600, 17)])
def test_a_rank_killed_in_an_evaluation_is_named(batch: float, code: int, gone: int, tmp_path: Path) -> None:
    # One that can end by itself is given the time to, however busy the machine is.
    grace = SECONDS if code == 1 else vigil.GRACE
    with Ranks(evaluates_for_ever, str(tmp_path), 2 * SECONDS, batch, grace) as ranks:
        told = pids_in(tmp_path)
        os.kill(told[gone], signal.SIGKILL)
        survivor = ranks.processes[1 - gone]
        survivor.wait()
        printed = ranks.printed_by(1 - gone).read_text()
    assert f"rank {gone} (process {told[gone]}) has died: this rank cannot go on without it" in printed
    # An error of its own, where it was about to talk to the other; else it is ended, and says what it was doing.
    assert survivor.poll() == code
    assert "in __getitem__" in printed or code == 1


def test_a_waiting_rank_ends_soon_after_the_death_of_another() -> None:
    """It checks the others at most one period after the death, and gives up after the grace period."""
    assert vigil.PERIOD + vigil.GRACE <= 1


@pytest.mark.parametrize("hanging", [0, 1])
def test_a_rank_that_is_stopped_is_named_within_the_limit(hanging: int, tmp_path: Path) -> None:
    with Ranks(evaluates_for_ever, str(tmp_path), 3, 0.01) as ranks:
        told = pids_in(tmp_path)
        os.kill(told[hanging], signal.SIGSTOP)
        survivor = ranks.processes[1 - hanging]
        survivor.wait()
        printed = ranks.printed_by(1 - hanging).read_text()
    # It gives up in the first check after the limit, and checks are at most two periods apart by its own account.
    assert f"rank {hanging} (process {told[hanging]}) has sent no heartbeat for 3 s" in printed
    assert survivor.poll() == 17
    assert "all_reduce" in printed  # where it waited


def cleans_up_slowly(folder: str, seconds: float) -> list[Any]:
    class Slowly(BaseHook):
        def cleanup(self) -> None:
            time.sleep(seconds if rank() == 1 else 0)

    trainer, runner = attached([Slowly()], folder)
    trainer.run(range(3))
    return [runner.stop_reason, threading.active_count()]


def test_a_rank_that_ends_first_is_not_taken_for_dead(tmp_path: Path) -> None:
    before = run_ranks(cleans_up_slowly, str(tmp_path / "at once"), 0)
    assert run_ranks(cleans_up_slowly, str(tmp_path / "slowly"), 2.5) == before == [[None, 1], [None, 1]]


def fails_on_one_rank(folder: str) -> list[str]:
    class Fails(BaseHook):
        def after_train_iter(self, runner: Any) -> None:
            if rank() == 1 and runner.global_step == 2:
                raise ValueError("boom")

        def cleanup(self) -> None:
            time.sleep(1.5)

    trainer, _ = attached([Fails()], folder)
    try:
        trainer.run(range(30))
    except Exception as error:
        if rank() == 1:
            os._exit(5)
        return [str(error), *error.__notes__]
    return []


def test_a_failed_rank_is_named_with_its_last_message(tmp_path: Path) -> None:
    with Ranks(fails_on_one_rank, str(tmp_path)) as ranks:
        assert ranks.wait(30) == [0, 5]
        printed = ranks.printed_by(0).read_text()
        pid = ranks.processes[1].pid
    why = "HookError: Fails.after_train_iter failed at epoch 1, iteration 2: ValueError: boom"
    how = ("has left the run", "has died; its last message")
    assert any(f"rank 1 (process {pid}) {said}: {why}" in printed for said in how), "as soon as it is known"


def fails_and_lives_on(folder: str) -> list[str]:
    class Fails(BaseHook):
        def after_train_iter(self, runner: Any) -> None:
            if rank() == 1 and runner.global_step == 2:
                raise ValueError("boom")

    trainer = Engine(lambda engine, batch: 0.5)
    attach_hooks(trainer, {"hooks": [Fails()], "rank_timeout": 1000}, work_dir=folder)
    try:
        trainer.run(range(3))
    except Exception as error:
        # Rank 1 goes on until rank 0 has left its run.
        with open(f"{folder}/pipe", "w" if rank() == 0 else "r", encoding="utf-8") as pipe:
            return [str(error), *getattr(error, "__notes__", []), pipe.read() if rank() == 1 else ""]
    return []


def test_a_rank_does_not_wait_for_one_that_failed_and_lives_on(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with Ranks(fails_and_lives_on, str(tmp_path)) as ranks:
        pid = ranks.processes[1].pid
        assert ranks.wait(60) == [0, 0]
        told, failed = (json.loads(ranks.result_of(number).read_text()) for number in range(2))
    why = "HookError: Fails.after_train_iter failed at epoch 1, iteration 2: ValueError: boom"
    said = f"rank 1 (process {pid}) has left the run: {why}"
    assert any(said in note and "this rank cannot go on without it" in note for note in told), told
    assert "boom" in failed[0]
