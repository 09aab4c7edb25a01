from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine, Events

from ignite_hooks import HookError, attach_hooks
from ignite_hooks.distributed.collectives import rank
from ignite_hooks.hooks.training.determinism_hook import WORKSPACE, digests_of
from tests.ranks import run_ranks
from tests.tools import straight_and_resumed

FILE = "weights_digests.jsonl"


def a_run() -> tuple[Engine, Any, dict[str, Any]]:
    """Return a run whose steps draw random numbers."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.5), torch.nn.Linear(2, 1))
    with torch.no_grad():
        for weight in model.parameters():
            weight.fill_(0.5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(engine: Engine, batch: Any) -> float:
        optimizer.zero_grad()
        loss = model(torch.rand(4, 2)).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    return Engine(step), range(3), {"model": model, "optimizer": optimizer}


def digests(folder: Path, **settings: Any) -> list[dict[str, Any]]:
    trainer, data, services = a_run()
    entry = {"type": "DeterminismHook", "interval": 2, **settings}
    attach_hooks(trainer, [entry], work_dir=folder, **services)
    trainer.run(data, max_epochs=3)
    return read(folder)


def read(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / FILE).read_text().splitlines()]


def test_two_runs_of_one_seed_have_the_same_digests(tmp_path: Path) -> None:
    torch.manual_seed(1)
    one = digests(tmp_path / "one", seed=3)
    torch.manual_seed(2)
    other = digests(tmp_path / "other", seed=3)
    assert [line["iteration"] for line in one] == [0, 2, 4, 6, 8, 9]
    assert one == other
    assert len({line["all"] for line in one}) == 6


def test_first_difference_to_another_run_is_reported_with_its_place(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    digests(tmp_path / "one")
    digests(tmp_path / "same", compare_with=tmp_path / "one")
    assert "differ" not in caplog.text
    digests(tmp_path / "other", seed=1, compare_with=tmp_path / "one")
    words = f"iteration 2: the weights differ from those in {tmp_path / 'one'}, in 0, 2 (equal until iteration 0)"
    assert [message for message in caplog.messages if "differ" in message] == [words]


def test_a_run_that_was_not_seeded_keeps_its_random_numbers(tmp_path: Path) -> None:
    torch.manual_seed(1)
    expected = torch.rand(2)
    torch.manual_seed(1)
    trainer = Engine(lambda *_: None)
    attach_hooks(trainer, [{"type": "DeterminismHook", "seed": None}], work_dir=tmp_path)
    trainer.run([0])
    assert torch.equal(torch.rand(2), expected)


@pytest.mark.parametrize("how", ["ends", "fails"])
@pytest.mark.parametrize("before", [False, True])
def test_flags_are_set_for_the_run_and_put_back(
    how: str, before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(WORKSPACE, raising=False)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    torch.use_deterministic_algorithms(before, warn_only=before)

    def flags() -> list[Any]:
        return [
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
            torch.backends.cudnn.benchmark,
            os.environ.get(WORKSPACE),
        ]

    seen: list[Any] = []

    def step(engine: Engine, batch: Any) -> None:
        seen.extend(flags())
        if how == "fails":
            raise RuntimeError("boom")

    trainer, found = Engine(step), flags()
    attach_hooks(trainer, ["DeterminismHook"], work_dir=tmp_path)
    try:
        if how == "fails":
            with pytest.raises(RuntimeError, match="boom"):
                trainer.run([0])
        else:
            trainer.run([0])
        assert seen == [True, False, False, ":4096:8"]
        assert flags() == found == [before, before, True, None]
    finally:
        torch.use_deterministic_algorithms(False)


def test_what_is_not_deterministic_is_an_error(tmp_path: Path) -> None:
    def step(engine: Engine, batch: Any) -> None:
        # One of the operations for which the CPU has no deterministic way.
        torch.zeros(3).put_(torch.tensor([0, 0]), torch.ones(2), accumulate=False)

    trainer = Engine(step)
    attach_hooks(trainer, ["DeterminismHook"], work_dir=tmp_path)
    with pytest.raises(RuntimeError, match="does not have a deterministic implementation"):
        trainer.run([0])


@pytest.mark.parametrize("stop", [3, 4, 7])
def test_resuming_equals_never_having_stopped(stop: int, tmp_path: Path) -> None:
    straight_and_resumed(tmp_path, a_run, {"type": "DeterminismHook", "interval": 2}, stop=stop)
    straight, stopped = read(tmp_path / "straight"), read(tmp_path / "stopped")
    # Where a run ends there is a digest too.
    assert [line for line in stopped if line["iteration"] != stop or stop % 2 == 0] == straight


def test_unfinished_line_of_a_killed_process_does_not_fail_resume(tmp_path: Path) -> None:
    for epochs, resume in ((1, None), (2, "auto")):
        trainer, data, services = a_run()
        entries = [{"type": "DeterminismHook", "interval": 3}, "CheckpointHook"]
        attach_hooks(trainer, entries, work_dir=tmp_path, resume=resume, **services)
        trainer.run(data, max_epochs=epochs)
        lines = read(tmp_path)
        with (tmp_path / FILE).open("a") as file:
            file.write('{"iteration": 6, "all": "ab')
    assert [line["iteration"] for line in lines] == [0, 3, 6]


def test_lazy_model_has_digests_after_its_first_forward(tmp_path: Path) -> None:
    model = torch.nn.LazyLinear(3)
    trainer = Engine(lambda engine, batch: model(batch).sum().item())
    attach_hooks(trainer, [{"type": "DeterminismHook", "interval": 1}], work_dir=tmp_path, model=model)
    trainer.run([torch.ones(2, 4)] * 2, max_epochs=1)
    assert [line["iteration"] for line in read(tmp_path)] == [1, 2]


def test_another_run_without_digests_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(HookError, match="give the work directory of a run with DeterminismHook"):
        digests(tmp_path, compare_with=tmp_path / "nowhere")


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.complex64])
def test_one_changed_value_changes_only_the_digest_of_its_part(dtype: torch.dtype) -> None:
    model = torch.nn.ModuleDict({"a": torch.nn.Module(), "b": torch.nn.Module()})
    for part in model.values():
        part.register_buffer("numbers", torch.zeros(5, 3, dtype=dtype).t())
    before = digests_of(model.state_dict())
    model["b"].numbers[1, 2] = 1
    after = digests_of(model.state_dict())
    assert [part for part in before if before[part] != after[part]] == ["all", "b"]


def in_each_process(folder: str) -> Any:
    trainer, data, services = a_run()
    attach_hooks(trainer, [{"type": "DeterminismHook", "interval": 2}], work_dir=folder, **services)
    messages: list[str] = []

    @trainer.on(Events.ITERATION_COMPLETED(once=3))
    def drift() -> None:
        if rank() == 1:
            with torch.no_grad():
                services["model"][2].weight.zero_()

    # As the running statistics of a batch norm, which each rank has of its own batches.
    services["model"].register_buffer("seen", torch.tensor(float(rank())))

    import logging

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    logging.getLogger("ignite_hooks").addHandler(Keep())
    trainer._process_function = lambda engine, batch: None
    trainer.run(data, max_epochs=2)
    return [torch.initial_seed(), [message for message in messages if "differ" in message]]


@pytest.mark.slow
def test_drifting_rank_is_named_and_ranks_have_separate_seeds(tmp_path: Path) -> None:
    found = run_ranks(in_each_process, str(tmp_path))
    assert [seed for seed, _ in found] == [0, 1]
    words = ["iteration 4: the weights of rank 1 differ from those of rank 0, in 2"]
    assert found[0][1] == words
    assert [line["iteration"] for line in read(tmp_path)] == [0, 2, 4, 6]
