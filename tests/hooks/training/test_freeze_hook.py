from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine, Events
from torch.nn.parallel import DistributedDataParallel

from ignite_hooks import HookError, attach_hooks
from tests.ranks import run_ranks
from tests.tools import straight_and_resumed


def a_run(wrap: Any = lambda model: model) -> tuple[Engine, Any, dict[str, Any]]:
    torch.manual_seed(0)
    inner = torch.nn.Sequential()
    inner.add_module("backbone", torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3)))
    inner.add_module("head", torch.nn.Linear(3, 1))
    model = wrap(inner)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)

    def step(engine: Engine, batch: torch.Tensor) -> float:
        model.train()
        optimizer.zero_grad(set_to_none=False)
        loss = (model(batch) - 1).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    data = [torch.randn(4, 3, generator=torch.Generator().manual_seed(n)) for n in range(3)]
    return Engine(step), data, {"model": model, "optimizer": optimizer}


def weights(model: torch.nn.Module, part: str) -> list[torch.Tensor]:
    return [value.clone() for name, value in model.state_dict().items() if part in name]


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def epochs_in_which_it_changes(settings: dict[str, Any], folder: Path, part: str, wrap: Any = None) -> list[int]:
    trainer, data, services = a_run() if wrap is None else a_run(wrap)
    # Momentum of steps before the run would move a parameter without any gradient.
    trainer._process_function(trainer, data[0])
    runner = attach_hooks(trainer, [{"type": "FreezeHook", **settings}], work_dir=folder, **services)
    changed, before = [], weights(services["model"], part)

    @trainer.on(Events.EPOCH_COMPLETED)
    def look() -> None:
        nonlocal before
        now = weights(services["model"], part)
        if not same(before, now):
            changed.append(trainer.state.epoch)
        before = now

    trainer.run(data, max_epochs=4)
    assert all(parameter.requires_grad for parameter in services["model"].parameters()), "all is as it was afterwards"
    assert runner.report().failures == {}
    return changed


@pytest.mark.parametrize(
    ("settings", "part", "epochs"),
    [
        ({"patterns": ["backbone"]}, "backbone", []),
        ({"patterns": ["backbone"]}, "head", [1, 2, 3, 4]),
        ({"patterns": ["backbone.*"], "unfreeze_epoch": 2}, "backbone", [3, 4]),
        ({"patterns": ["backbone"], "unfreeze_epoch": 0}, "backbone", [1, 2, 3, 4]),
        ({"patterns": ["*.bias", "head"]}, "head", []),
        ({"patterns": ["backbone"], "norm_eval": False}, "running_mean", [1, 2, 3, 4]),
        ({"patterns": ["backbone.0"]}, "running_mean", [1, 2, 3, 4]),
    ],
    ids=str,
)
def test_what_matches_stays_to_the_bit_until_it_is_trained(
    settings: dict[str, Any], part: str, epochs: list[int], tmp_path: Path
) -> None:
    assert epochs_in_which_it_changes(settings, tmp_path, part) == epochs


def compiled(model: torch.nn.Module) -> Any:
    return torch.compile(model, backend="eager")


def test_compiled_model_is_frozen_by_names_of_the_original(tmp_path: Path) -> None:
    settings = {"patterns": ["backbone"], "unfreeze_epoch": 2}
    for part, epochs in {"backbone.0": [3, 4], "running_mean": [3, 4], "head": [1, 2, 3, 4]}.items():
        assert epochs_in_which_it_changes(settings, tmp_path / part, part, compiled) == epochs


def test_only_a_distributed_model_takes_the_optimizer(tmp_path: Path) -> None:
    trainer, data, services = a_run(compiled)
    attach_hooks(trainer, [{"type": "FreezeHook", "patterns": ["head"]}], work_dir=tmp_path, model=services["model"])
    before = weights(services["model"], "head")
    services["optimizer"].zero_grad(set_to_none=True)
    trainer.run(data)
    assert same(before, weights(services["model"], "head"))


@pytest.mark.parametrize("stop", [2, 5, 6, 8])
def test_resuming_equals_never_having_stopped(stop: int, tmp_path: Path) -> None:
    entry = {"type": "FreezeHook", "patterns": ["backbone"], "unfreeze_epoch": 2}
    straight, resumed = straight_and_resumed(tmp_path, a_run, entry, stop=stop)
    assert same(weights(straight.model, ""), weights(resumed.model, ""))


def test_pattern_without_match_is_an_error_with_a_hint(tmp_path: Path) -> None:
    trainer, data, services = a_run()
    attach_hooks(trainer, [{"type": "FreezeHook", "patterns": ["head.wieght"]}], work_dir=tmp_path, **services)
    with pytest.raises(HookError, match=r"no parameter matches 'head.wieght', did you mean 'head.weight'"):
        trainer.run(data)
    assert all(parameter.requires_grad for parameter in services["model"].parameters())


def test_what_has_no_size_yet_cannot_be_frozen(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.LazyLinear(3))
    attach_hooks(
        trainer := Engine(lambda *_: None), [{"type": "FreezeHook", "patterns": ["0"]}], model=model, work_dir=tmp_path
    )
    with pytest.raises(HookError, match=r"0\.weight has no size before its first forward: make one before the run"):
        trainer.run([0])


def test_optimizer_without_later_trained_parameters_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer, data, services = a_run()
    optimizer = torch.optim.SGD(services["model"].head.parameters(), lr=0.1)
    entry = {"type": "FreezeHook", "patterns": ["backbone"], "unfreeze_epoch": 1}
    attach_hooks(trainer, [entry], work_dir=tmp_path, model=services["model"], optimizer=optimizer)
    trainer.run(data)
    assert "the optimizer does not have all that is frozen" in caplog.text


def in_each_process(folder: str, is_compiled: bool) -> list[Any]:
    settings = {"patterns": ["backbone"], "unfreeze_epoch": 2}

    def wrap(model: torch.nn.Module) -> Any:
        return DistributedDataParallel(compiled(model) if is_compiled else model)

    parts = ("0.weight", "running_mean", "head")
    return [epochs_in_which_it_changes(settings, Path(folder), part, wrap) for part in parts]


@pytest.mark.slow
@pytest.mark.parametrize("is_compiled", [False, True])
def test_a_distributed_model_is_frozen_and_trained_later_too(is_compiled: bool, tmp_path: Path) -> None:
    assert run_ranks(in_each_process, str(tmp_path), is_compiled) == [[[3, 4], [3, 4], [1, 2, 3, 4]]] * 2


def test_norms_have_the_mode_they_would_have_afterwards(tmp_path: Path) -> None:
    trainer, data, services = a_run()
    norm = services["model"].backbone[1]
    for before, after in ((True, True), (False, False)):
        services["model"].train(before)
        trainer._process_function = lambda engine, batch: services["model"](batch).sum().item()
        entry = {"type": "FreezeHook", "patterns": ["backbone"]}
        runner = attach_hooks(trainer, [entry], work_dir=tmp_path, **services)
        trainer.run(data)
        assert (norm.training, "train" in vars(norm)) == (after, False)
        runner.detach()
