"""`rehearsal.py` and `left_out.py`: state that can never be saved does not cost the run its checkpoints."""

from __future__ import annotations

import logging
import re
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import create_supervised_trainer

from ignite_hooks import BaseHook, attach_hooks
from ignite_hooks.checkpoint import rehearsal
from ignite_hooks.checkpoint.rehearsal import description, gradients_to_come, state_to_come
from tests.checkpoint.runs import CHECKPOINT, LENGTH, Remembers, content, same, script

pytestmark = pytest.mark.usefixtures("quick")

QUIET = {**CHECKPOINT, "save_best": False}


class Holding(BaseHook):
    """A hook of a user whose state holds anything."""

    def __init__(self, **state: Any) -> None:
        self.held: dict[str, Any] = state
        self.loaded: Mapping[str, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        return dict(self.held)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.loaded = state
        self.held = {name: state[name] for name in self.held}


def own() -> None: ...


def ring() -> dict[str, Any]:
    found: dict[str, Any] = {}
    found["self"] = found
    return found


@pytest.mark.parametrize(
    ("state", "place", "reason"),
    [
        ({"f": own}, "hooks.Holding.f", "function"),
        ({"deep": {"kept": 1, "list": [{"g": own}]}}, "hooks.Holding.deep.list[0].g", "function"),
        ({"items": [1, own]}, "hooks.Holding.items", "function"),
        ({"ring": ring()}, "hooks.Holding.ring", "too deep, or contains itself"),
        ({"keys": {object: 1, "kept": 2}}, "hooks.Holding.keys", "type"),
        ({"fine": {1: 1, torch.int8: 3}}, None, None),
    ],
)
def test_a_part_that_cannot_be_saved_is_named_before_training(
    state: dict[str, Any], place: str | None, reason: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    steps: list[int] = []
    made = script(tmp_path, [QUIET, Holding(kept=5, **state)])
    caplog.handler.addFilter(lambda record: not record.__dict__.update(step=len(steps)))
    made.trainer._process_function = (lambda step: lambda *args: (steps.append(1), step(*args))[1])(
        made.trainer._process_function
    )
    made.run(2)
    told = [record for record in caplog.records if "checkpoints do without" in record.getMessage()]
    saved = content(tmp_path / "last.pth")
    assert saved["hooks"]["Holding"]["kept"] == 5
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    if place is None:
        assert not told
        assert "missing" not in saved["meta"]
        return
    assert len(told) == 1
    assert told[0].__dict__["step"] == 0
    assert f"checkpoints do without {place}" in told[0].getMessage()
    assert f"cannot be saved: {reason}" in told[0].getMessage()
    (missing,) = saved["meta"]["missing"]
    assert missing.startswith(place)


def with_function(made: Any) -> None:
    """Put a function into a parameter group, as LARS does."""
    made.optimizer.param_groups[0]["f"] = own


def test_a_function_in_a_parameter_group_is_that_of_the_resumed_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = script(tmp_path, [QUIET])
    with_function(made)
    made.run(1)
    saved = content(tmp_path / "last.pth")
    assert saved["meta"]["missing"] == ["optimizer.param_groups[0].f"]
    assert "f" not in saved["optimizer"]["param_groups"][0]
    assert same(saved["state_dict"], dict(made.model.state_dict()))
    caplog.clear()
    resumed = script(tmp_path, [QUIET], resume="auto")
    with_function(resumed)
    resumed.run(2)
    assert resumed.optimizer.param_groups[0]["f"] is own
    words = "resuming from last.pth is approximate: it does without optimizer.param_groups[0].f, which no checkpoint"
    assert caplog.text.count(words) == 1


def test_what_is_left_out_of_a_hook_is_loaded_from_itself(tmp_path: Path) -> None:
    script(tmp_path, [QUIET, Holding(f=own, count=3)]).run(1)
    hook = Holding(f=print, count=0)
    script(tmp_path, [QUIET, hook], resume="auto").run(2)
    assert (hook.held["f"], hook.held["count"]) == (print, 3)


@pytest.mark.parametrize("options", [{}, {"async_save": False}])
def test_what_becomes_unsavable_later_is_named_once(
    options: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Changing(Holding):
        def after_train_iter(self, runner: Any) -> None:
            if runner.global_step == LENGTH + 1:
                self.held["late"] = own

    script(tmp_path, [{**QUIET, **options}, Changing(kept=1)]).run(4)
    assert caplog.text.count("checkpoints do without hooks.Changing.late") == 1
    assert "ERROR" not in [record.levelname for record in caplog.records]
    assert "missing" not in content(tmp_path / "epoch_1.pth")["meta"]
    for name in ("epoch_2.pth", "epoch_4.pth", "last.pth"):
        assert content(tmp_path / name)["meta"]["missing"] == ["hooks.Changing.late"]


def test_what_a_hook_adds_to_a_checkpoint_is_left_out_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Adding(BaseHook):
        def before_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
            checkpoint["mine"] = {"good": 1, "bad": own}

    script(tmp_path, [QUIET, Adding()]).run(2)
    assert content(tmp_path / "epoch_1.pth")["mine"] == {"good": 1}
    assert caplog.text.count("checkpoints do without mine.bad") == 1


def test_a_handler_of_the_script_loses_only_the_part(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Mine(Remembers):
        def state_dict(self) -> dict[str, Any]:
            return {"count": self.count, "f": own}

        def load_state_dict(self, state: Mapping[str, Any]) -> None:
            assert state["f"] is own
            self.count = state["count"]

        def add(self) -> None:
            self.count += 1

    from ignite.engine import Events

    meters = []
    for epochs, resume in ((1, None), (2, "auto")):
        made = script(tmp_path, [QUIET], resume=resume)
        meters.append(Mine())
        made.trainer.add_event_handler(Events.ITERATION_COMPLETED, meters[-1].add)
        made.run(epochs)
    assert [meter.count for meter in meters] == [LENGTH, 2 * LENGTH]
    missing = ["script.trainer.ITERATION_COMPLETED.Mine.f"]
    assert content(tmp_path / "last.pth")["meta"]["missing"] == missing
    assert f"is approximate: it does without {missing[0]}" in caplog.text


def test_a_handler_that_cannot_tell_its_state_costs_only_that(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from ignite.engine import Events

    class Broken(Remembers):
        def state_dict(self) -> Any:
            raise ValueError("not now")

        def add(self) -> None: ...

    made = script(tmp_path, [QUIET], service=Broken())
    made.trainer.add_event_handler(Events.ITERATION_COMPLETED, Broken().add)
    made.run(1)
    missing = ["script.trainer.ITERATION_COMPLETED.Broken", "services.service"]
    assert content(tmp_path / "last.pth")["meta"]["missing"] == missing
    for place in missing:
        assert f"{place}: cannot be saved: ValueError: not now" in caplog.text


@dataclass
class Kept:
    recent: deque[int] = field(default_factory=lambda: deque(maxlen=3))
    ordered: OrderedDict[str, int] = field(default_factory=OrderedDict)
    names: tuple[str, ...] = ()


class Recent(BaseHook):
    def __init__(self) -> None:
        self.state = Kept()

    def after_train_iter(self, runner: Any) -> None:
        self.state.recent.append(runner.global_step)
        self.state.ordered[str(runner.global_step)] = 1
        self.state.ordered.move_to_end(next(iter(self.state.ordered)))


def test_a_deque_and_an_ordered_dict_come_back_as_such(tmp_path: Path) -> None:
    script(tmp_path, [QUIET, Recent()]).run(1)
    assert content(tmp_path / "last.pth")["hooks"]["Recent"]["recent"] == [2, 3, 4]
    hook = Recent()
    script(tmp_path, [QUIET, hook], resume="auto").run(2)
    assert hook.state.recent == deque([6, 7, 8])
    assert hook.state.recent.maxlen == 3
    assert isinstance(hook.state.ordered, OrderedDict)
    assert len(hook.state.ordered) == 2 * LENGTH


def test_a_run_that_saves_nothing_rehearses_nothing(tmp_path: Path) -> None:
    class Refusing(BaseHook):
        def state_dict(self) -> Any:
            raise AssertionError("not asked")

    made: Callable[[int], Any] = script(tmp_path, [Refusing()]).run
    made(1)


# -- what a save takes ---------

SIDE = 500
MB = 2**20

OPTIMIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    "SGD": ("SGD", {}),
    "SGD with momentum": ("SGD", {"momentum": 0.9}),
    "Adam": ("Adam", {}),
    "Adam with amsgrad": ("Adam", {"amsgrad": True}),
    "AdamW": ("AdamW", {}),
    "RMSprop": ("RMSprop", {"momentum": 0.9, "centered": True}),
    "Adagrad": ("Adagrad", {}),
    "ASGD": ("ASGD", {}),
    "Adadelta": ("Adadelta", {}),
    "Adamax": ("Adamax", {}),
    "NAdam": ("NAdam", {}),
    "RAdam": ("RAdam", {}),
    "Rprop": ("Rprop", {}),
}


def make(kind: str, settings: dict[str, Any]) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = torch.nn.Linear(SIDE, SIDE, bias=False)
    optimizer: torch.optim.Optimizer = getattr(torch.optim, kind)(model.parameters(), **{"lr": 1e-3, **settings})
    return model, optimizer


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_state_of_an_optimizer_is_known_before_its_first_step(name: str) -> None:
    model, optimizer = make(*OPTIMIZERS[name])
    expected, gradients = state_to_come(optimizer), gradients_to_come(optimizer)
    before = sum(value.nbytes for state in optimizer.state.values() for value in state.values())
    model(torch.ones(1, SIDE)).sum().backward()
    optimizer.step()
    held = [value for state in optimizer.state.values() for value in state.values() if isinstance(value, torch.Tensor)]
    large = sum(value.nbytes for value in held if value.numel() > 1)
    assert expected == max(0, large - before)
    assert gradients == SIDE * SIDE * 4
    assert (state_to_come(optimizer), gradients_to_come(optimizer)) == (0, 0)


class Homemade(torch.optim.SGD):
    pass


@pytest.mark.parametrize("kind", ["Adam", "Homemade", "EMAHook"])
def test_the_start_of_a_run_says_what_a_save_takes(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model, optimizer = make("Adam", {})
    if kind == "Homemade":
        optimizer = Homemade(model.parameters(), lr=0.1)
    trainer = create_supervised_trainer(model, optimizer, torch.nn.functional.mse_loss)
    hooks = [{"type": "CheckpointHook", "save_best": False}, *(["EMAHook"] if kind == "EMAHook" else [])]
    attach_hooks(trainer, hooks, model=model, optimizer=optimizer, work_dir=tmp_path)
    with caplog.at_level(logging.INFO):
        trainer.run([(torch.ones(1, SIDE), torch.ones(1, SIDE))])
    (line,) = [record.getMessage() for record in caplog.records if "a save takes" in record.getMessage()]
    assert ("at least" in line) is (kind != "Adam")
    number = re.search(r"(\d+\.\d) .B on disk", line)
    assert number, line
    if kind == "Adam":
        assert float(number[1]) == pytest.approx((tmp_path / "last.pth").stat().st_size / MB, abs=0.1)


@pytest.mark.parametrize("name", ["SGD", "SGD with momentum", "AdamW", "RMSprop"])
def test_what_is_said_of_a_tiny_model_is_the_size_of_its_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    monkeypatch.setattr(rehearsal, "description", lambda size, *_, **__: str(sizes.append(size)))
    model = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(10)))
    kind, settings = OPTIMIZERS[name]
    optimizer = getattr(torch.optim, kind)(model.parameters(), **{"lr": 1e-3, **settings})
    trainer = create_supervised_trainer(model, optimizer, torch.nn.functional.mse_loss)
    attach_hooks(trainer, [QUIET], model=model, optimizer=optimizer, work_dir=tmp_path)
    trainer.run([(torch.ones(1, 4), torch.ones(1, 4))] * 2)
    assert sizes == [pytest.approx((tmp_path / "last.pth").stat().st_size, rel=0.05)]


def test_a_run_that_saves_nothing_says_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model, optimizer = make("SGD", {})
    trainer = create_supervised_trainer(model, optimizer, torch.nn.functional.mse_loss)
    attach_hooks(trainer, [{"type": "EMAHook"}], model=model, optimizer=optimizer, work_dir=tmp_path)
    with caplog.at_level(logging.INFO):
        trainer.run([(torch.ones(1, SIDE), torch.ones(1, SIDE))])
    assert "a save takes" not in caplog.text


@pytest.mark.parametrize(
    ("room", "background", "words"),
    [
        (300, True, "100.0 MB on disk and, beside training, up to 200.0 MB of memory"),
        (199, True, "100.0 MB on disk and, beside training, 100.0 MB of memory for one copy"),
        (99, True, "too little is left for a copy (some), so training waits"),
        (999, False, "no memory: training waits while it is written (async_save: false)"),
    ],
)
def test_the_line_says_how_many_copies_there_is_room_for(room: int, background: bool, words: str) -> None:
    assert words in description(100 * MB, room * MB, "some", background=background)


@pytest.mark.parametrize(("room", "prepared"), [(3, 0), (4, 1)])
def test_memory_for_copies_is_made_beside_the_first_iterations_where_there_is_plenty(
    room: int, prepared: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, optimizer = make("SGD", {})
    trainer = create_supervised_trainer(model, optimizer, torch.nn.functional.mse_loss)
    runner = attach_hooks(trainer, [{"type": "CheckpointHook"}], model=model, optimizer=optimizer, work_dir=tmp_path)
    sizes: list[int] = []
    monkeypatch.setattr(runner.checkpoints, "prepare", sizes.append)
    monkeypatch.setattr(rehearsal, "copies_that_fit", lambda size, left, most=2: min(most, room))
    trainer.run([(torch.ones(1, SIDE), torch.ones(1, SIDE))])
    assert len(sizes) == prepared
    assert all(size > SIDE * SIDE * 4 for size in sizes)
