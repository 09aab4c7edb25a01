"""Resuming equals never having stopped, with real engines and real files."""

from __future__ import annotations

import logging
import os
import random
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.metrics import Accuracy, Loss
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ignite_hooks import BaseHook, CheckpointError, HookError, HookEvents, attach_hooks
from ignite_hooks.store import FolderStore

LENGTH = 4
"""Iterations of an epoch."""
EMA = {"type": "EMAHook", "momentum": 0.9, "warm_up": 0}
CHECKPOINT = {"type": "CheckpointHook", "best_metric": "val_loss", "max_keep_ckpts": -1}
STOPPING = {"type": "EarlyStoppingHook", "monitor": "val_loss", "patience": 50}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing here survives the machine, and threads only slow down models as small as these."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Counter(BaseHook):
    """A hook of a user: default priority, progress of its own, and a taste for random numbers."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.sum = 0.0

    def after_train_iter(self) -> None:
        self.sum += random.random() + float(numpy.random.rand())

    def after_epoch(self, epoch: int) -> None:
        self.seen = [*self.seen, epoch]

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen, "sum": self.sum}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.seen, self.sum = list(state["seen"]), state["sum"]


def script(
    folder: Path,
    hooks: list[Any] | None = None,
    *,
    own_evaluation: bool = False,
    width: int = 8,
    fail_at: int = -1,
    **options: Any,
) -> SimpleNamespace:
    """A script with all that makes resuming hard: shuffling, dropout, statistics, momentum, its own handlers."""
    random.seed(1), numpy.random.seed(1), torch.manual_seed(1)
    x = torch.randn(32, 4)
    data = TensorDataset(x, (x.sum(1) > 0).long())
    loader, val_loader = DataLoader(data, batch_size=8, shuffle=True), DataLoader(data, batch_size=16, shuffle=True)
    model = nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width), nn.Dropout(0.3), nn.Linear(width, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    criterion = nn.CrossEntropyLoss()
    trainer = create_supervised_trainer(model, optimizer, criterion)
    evaluator = create_supervised_evaluator(model, {"accuracy": Accuracy(), "loss": Loss(criterion)})
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: scheduler.step())

    @trainer.on(Events.ITERATION_COMPLETED)
    def fail() -> None:
        if trainer.state.iteration == fail_at:
            raise ZeroDivisionError("crash")

    counter = Counter()
    entries = [CHECKPOINT, STOPPING, counter] if hooks is None else [*hooks, counter]
    if own_evaluation:
        trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run(val_loader))
    else:
        entries.append("EvalHook")
    services = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "val_loader": val_loader, **options}
    runner = attach_hooks(trainer, entries, evaluators=evaluator, work_dir=folder, **services)
    return SimpleNamespace(
        runner=runner, trainer=trainer, evaluator=evaluator, loader=loader, model=model, optimizer=optimizer,
        counter=counter, run=lambda epochs: trainer.run(loader, max_epochs=epochs),
    )  # fmt: skip


def content(path: Path) -> dict[str, Any]:
    state = torch.load(path, weights_only=True)
    assert isinstance(state, dict)
    del state["meta"]["time"]
    return state


def same(one: Any, other: Any) -> bool:
    """Equal to the bit, tensors and NaN included."""
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other or (one != one and other != other))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("**/*.pth"))


@pytest.mark.parametrize("own_evaluation", [False, True], ids=["EvalHook", "evaluation by the script"])
@pytest.mark.parametrize("crash", [1, 4, 8, 11, 20])
def test_a_crashed_run_that_is_resumed_equals_one_that_never_crashed(
    crash: int, own_evaluation: bool, tmp_path: Path
) -> None:
    # What a failing run saves is good but not exact: it is gone on from only where there is nothing else.
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
def test_a_finished_run_that_is_resumed_with_more_epochs_goes_on_as_if_it_had_not_finished(
    interval: int, tmp_path: Path
) -> None:
    hooks = [{**CHECKPOINT, "interval": interval}]
    script(tmp_path / "whole", hooks).run(6)
    script(tmp_path / "parts", hooks).run(3)
    resumed = script(tmp_path / "parts", hooks, resume="auto")
    epochs: list[int] = []
    resumed.trainer.add_event_handler(Events.EPOCH_STARTED, lambda: epochs.append(resumed.trainer.state.epoch))
    resumed.run(6)
    assert epochs == [4, 5, 6]
    assert same(content(tmp_path / "whole/last.pth"), content(tmp_path / "parts/last.pth"))


def test_a_finished_run_that_is_resumed_as_it_was_iterates_and_evaluates_no_more_and_completes(tmp_path: Path) -> None:
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
def test_resuming_where_nothing_was_saved_starts_anew_and_says_so(
    resume: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    state = script(tmp_path, resume=resume).run(1)
    assert state.iteration == LENGTH
    assert f"nothing to resume from in {tmp_path}: starting anew" in caplog.text


@pytest.mark.parametrize("damage", ["truncated", "bit flipped", "missing"])
def test_a_damaged_newest_file_is_passed_over_with_a_warning(
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


def test_when_every_file_is_damaged_the_run_does_not_start_anew(tmp_path: Path) -> None:
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


def test_what_was_saved_by_hand_in_the_work_directory_is_found(tmp_path: Path) -> None:
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
    with pytest.raises(CheckpointError, match=r"cannot load .*epoch_9\.pth: No such file"):
        script(tmp_path, resume="epoch_9.pth").run(1)


def test_a_difference_in_shape_is_an_error_that_names_file_and_weight(tmp_path: Path) -> None:
    script(tmp_path).run(1)
    with pytest.raises(CheckpointError) as caught:
        script(tmp_path, width=9, resume="auto").run(2)
    assert f"{tmp_path / 'last.pth'} does not fit the model of this run" in str(caught.value)
    assert "size mismatch for 0.weight" in str(caught.value)


def test_an_optimizer_of_another_shape_is_an_error_that_names_it(tmp_path: Path) -> None:
    script(tmp_path).run(1)
    other = script(tmp_path, resume="auto")
    other.optimizer.add_param_group({"params": [torch.zeros(1, requires_grad=True)]})
    with pytest.raises(CheckpointError, match=r"last\.pth does not fit the optimizer of this run: .*parameter group"):
        other.run(2)


def test_a_file_of_another_make_is_an_error_that_says_what_it_holds(tmp_path: Path) -> None:
    tmp_path.mkdir(exist_ok=True)
    torch.save({"model": {}, "epoch": 3}, tmp_path / "mine.pth")
    with pytest.raises(CheckpointError, match=r"mine\.pth has no 'state_dict' for the model: it holds model, epoch"):
        script(tmp_path, resume="mine.pth").run(1)


def test_weights_that_nobody_would_take_are_an_error(tmp_path: Path) -> None:
    script(tmp_path).run(1)
    from ignite.engine import Engine

    trainer = Engine(lambda engine, batch: None)
    attach_hooks(trainer, [], work_dir=tmp_path, resume="auto")
    with pytest.raises(CheckpointError, match=r"holds a model and this run has none: give attach_hooks model=\.\.\."):
        trainer.run([1])


@pytest.mark.parametrize(
    ("saved", "resumed", "message"),
    [
        ({}, {"scheduler": None}, "holds a scheduler and this run has none: it is left out"),
        ({"scheduler": None}, {}, "holds no scheduler: the one of this run stays as it is"),
    ],
)
def test_what_only_the_file_or_only_the_run_has_is_told(
    saved: dict[str, Any], resumed: dict[str, Any], message: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    script(tmp_path, **saved).run(1)
    assert "holds" not in caplog.text
    script(tmp_path, resume="auto", **resumed).run(2)
    assert message in caplog.text


def test_progress_of_hooks_that_are_gone_and_another_length_of_epochs_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    script(tmp_path).run(2)
    resumed = script(tmp_path, [CHECKPOINT], resume="auto")
    resumed.trainer.run(resumed.loader, max_epochs=3, epoch_length=LENGTH - 1)
    assert "holds the progress of hooks this run does not have: EarlyStoppingHook" in caplog.text
    assert f"an epoch had 4 iterations in {tmp_path / 'last.pth'} and has 3 now" in caplog.text


def test_settings_that_have_changed_are_told_in_one_line_and_texts_only_by_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    script(tmp_path, [CHECKPOINT, EMA]).run(2)
    changed = [CHECKPOINT | {"max_keep_ckpts": 3, "filename_tmpl": "secret_{}.pth"}, EMA | {"momentum": 0.99}]
    script(tmp_path, changed, resume="auto").run(3)
    told = [message for message in caplog.messages if message.startswith("settings differ")]
    assert told == [
        "settings differ from those of last.pth: CheckpointHook.filename_tmpl, CheckpointHook.max_keep_ckpts -1 -> 3, "
        "EMAHook.momentum 0.9 -> 0.99"
    ]
    assert b"secret" not in (tmp_path / "last.pth").read_bytes()
    caplog.clear()
    script(tmp_path, changed, resume="auto").run(4)
    assert "settings differ" not in caplog.text


class Remembers:
    """An object of the script with progress of its own."""

    def __init__(self) -> None:
        self.count = 0

    def state_dict(self) -> dict[str, int]:
        return {"count": self.count}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        self.count = state["count"]


def test_services_with_progress_of_their_own_come_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, again, frozen = Remembers(), Remembers(), nn.Linear(1, 1).requires_grad_(False)
    made = script(tmp_path, [CHECKPOINT], scaler=first, teacher=frozen, student=nn.Linear(1, 1))
    made.trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda: setattr(first, "count", first.count + 1))
    made.run(1)
    assert {*content(tmp_path / "last.pth")["services"]} == {"scaler", "student"}
    script(tmp_path, [CHECKPOINT], resume="auto", scaler=again, teacher=frozen).run(2)
    assert again.count == LENGTH
    assert "holds the state of 'student', which was not given to this run" in caplog.text


def test_a_service_whose_state_cannot_be_saved_is_told_once_and_prevents_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    strange = type("Strange", (Remembers,), {"state_dict": lambda self: {"lock": object()}})()
    script(tmp_path, [CHECKPOINT], strange=strange).run(3)
    told = [message for message in caplog.messages if "do without the state of the service 'strange'" in message]
    assert len(told) == 1
    assert "services.strange.lock: cannot be saved: object" in told[0]
    assert {"epoch_1.pth", "epoch_3.pth", "last.pth"} <= {*names(tmp_path)}


def test_a_checkpoint_holds_plain_types_and_what_the_specification_names(tmp_path: Path) -> None:
    made = script(tmp_path)
    made.run(2)
    state = torch.load(tmp_path / "epoch_2.pth", weights_only=True)
    named = {"meta", "state_dict", "optimizer", "scheduler"}
    assert named | {"trainer", "data", "hooks", "services", "best", "metrics", "random"} == {*state}
    assert (state["meta"]["epoch"], state["meta"]["iter"]) == (2, 2 * LENGTH)
    assert state["meta"]["time"][:2] == "20"
    assert {"python", "numpy", "torch"} <= {*state["random"]}
    assert same(dict(made.model.state_dict()), state["state_dict"])


def compiled(model: nn.Module) -> Any:
    return torch.compile(model, backend="eager")


@pytest.mark.parametrize(
    "wrap", [nn.DataParallel, compiled, lambda model: compiled(nn.DataParallel(model))], ids=["DP", "compiled", "both"]
)
def test_names_of_weights_are_those_of_the_unwrapped_model(wrap: Any, tmp_path: Path) -> None:
    made = script(tmp_path)
    inner = nn.Linear(4, 2)
    made.runner.register_service("model", wrap(inner))
    made.runner.register_service("optimizer", None)
    path = made.runner.save_checkpoint("wrapped.pth")
    assert {*torch.load(path, weights_only=True)["state_dict"]} == {"weight", "bias"}
    with torch.no_grad():
        inner.weight.zero_()
    made.runner.load_checkpoint(path)
    assert inner.weight.any()


def test_the_size_of_a_checkpoint_does_not_grow_with_the_run(tmp_path: Path) -> None:
    script(tmp_path, [CHECKPOINT, STOPPING]).run(30)
    sizes = [(tmp_path / f"epoch_{epoch}.pth").stat().st_size for epoch in (5, 30)]
    # `Counter.seen` of this test grows, by a few bytes for each epoch; names and numbers vary in length.
    assert abs(sizes[1] - sizes[0]) < 500


def test_handlers_of_the_script_see_and_edit_the_checkpoint_and_the_name_of_the_last_event_stays(
    tmp_path: Path,
) -> None:
    made = script(tmp_path, [CHECKPOINT | {"async_save": False}, STOPPING])
    seen: list[Any] = []

    @made.trainer.on(HookEvents.BEFORE_SAVE_CHECKPOINT)
    def before() -> None:
        made.runner.checkpoint["mine"] = made.trainer.state.epoch
        seen.append(sorted(made.runner.checkpoint)[:2])

    @made.trainer.on(HookEvents.AFTER_SAVE_CHECKPOINT)
    def after() -> None:
        seen.append(made.runner.checkpoint["mine"])

    made.run(1)
    assert torch.load(tmp_path / "last.pth", weights_only=True)["mine"] == 1
    assert seen[:2] == [["best", "data"], 1]
    assert made.runner.checkpoint is None
    assert made.trainer.last_event_name == Events.COMPLETED


def test_hooks_edit_the_checkpoint_learn_its_path_and_get_it_back(tmp_path: Path) -> None:
    class Config(BaseHook):
        paths: list[Path] = []
        loaded: list[tuple[Any, Path]] = []

        def before_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
            checkpoint["config"] = {"depth": 3}
            checkpoint["state_dict"] = {
                name.upper(): value for name, value in checkpoint["state_dict"].items() if "num" not in name
            }

        def after_save_checkpoint(self, checkpoint: Any, path: Path) -> None:
            assert path.exists()
            assert checkpoint["config"]
            self.paths.append(path)

        def after_load_checkpoint(self, checkpoint: Any, path: Path) -> None:
            self.loaded.append((checkpoint["config"], path))

    hook = Config()
    made = script(tmp_path, [{**CHECKPOINT, "save_best": False}, hook])
    made.run(2)
    assert [path.name for path in hook.paths] == ["epoch_1.pth", "epoch_2.pth", "last.pth"]
    state = torch.load(tmp_path / "last.pth", weights_only=True)
    assert state["config"] == {"depth": 3}
    assert "0.WEIGHT" in state["state_dict"]
    assert hook.loaded == []


def test_after_load_checkpoint_gets_the_checkpoint_and_its_path(tmp_path: Path) -> None:
    class Reader(BaseHook):
        def after_load_checkpoint(self, runner: Any, checkpoint: Any, path: Path) -> None:
            self.seen = (checkpoint["meta"]["epoch"], path, runner.checkpoint is checkpoint)

    script(tmp_path).run(2)
    reader, fired = Reader(), []
    resumed = script(tmp_path, [CHECKPOINT, STOPPING, reader], resume="auto")
    resumed.trainer.add_event_handler(HookEvents.AFTER_LOAD_CHECKPOINT, lambda: fired.append(1))
    resumed.run(2)
    assert reader.seen == (2, tmp_path / "last.pth", True)
    assert fired == [1]


@pytest.mark.parametrize("at", [1, 5, 6, 7])
def test_sigterm_in_an_epoch_leaves_last_and_no_file_of_the_unfinished_epoch(at: int, tmp_path: Path) -> None:
    made = script(tmp_path, [{**CHECKPOINT, "save_best": False}])
    made.trainer.add_event_handler(Events.ITERATION_COMPLETED(once=at), lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(SystemExit) as caught:
        made.run(5)
    assert caught.value.code == 143
    assert names(tmp_path) == [f"epoch_{n + 1}.pth" for n in range(at // LENGTH)] + ["last.pth"]
    state = content(tmp_path / "last.pth")
    assert (state["meta"]["epoch"], state["meta"]["iter"]) == (at // LENGTH, at)


@pytest.mark.parametrize("where", ["last iteration", "evaluation", "handler of the script"])
def test_a_run_that_sigterm_stops_between_two_epochs_is_resumed_exactly_evaluation_included(
    where: str, tmp_path: Path
) -> None:
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
def test_resuming_in_the_middle_of_an_epoch_evaluates_nothing_out_of_turn(at: int, tmp_path: Path) -> None:
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


def test_saving_by_hand_after_a_run_leaves_the_folder_free_for_the_next(tmp_path: Path) -> None:
    made = script(tmp_path)
    made.run(1)
    made.runner.save_checkpoint("mine.pth")
    FolderStore(tmp_path).open().close()
    assert content(tmp_path / "mine.pth")["meta"]["epoch"] == 1


def test_saving_by_hand_in_every_place_of_a_run_notes_the_epochs_that_are_finished(tmp_path: Path) -> None:
    made = script(tmp_path)
    for event in (Events.STARTED, Events.EPOCH_STARTED, Events.ITERATION_COMPLETED, Events.EPOCH_COMPLETED):
        made.trainer.add_event_handler(
            event,
            lambda engine, name: made.runner.save_checkpoint(f"{name}-{engine.state.iteration}.pth"),
            event.name,
        )
    made.run(2)
    found = {
        name: content(tmp_path / f"{name}.pth")["meta"]["epoch"]
        for name in ("STARTED-0", "EPOCH_STARTED-0", "ITERATION_COMPLETED-1", "ITERATION_COMPLETED-3")
    }
    assert set(found.values()) == {0}
    for name in ("EPOCH_COMPLETED-4", "EPOCH_STARTED-4", "ITERATION_COMPLETED-5"):
        assert content(tmp_path / f"{name}.pth")["meta"]["epoch"] == 1, name


def test_an_error_in_a_hook_that_edits_the_checkpoint_says_which_hook(tmp_path: Path) -> None:
    class Breaks(BaseHook):
        def before_save_checkpoint(self) -> None:
            raise KeyError("nothing")

    with pytest.raises(HookError, match=r"Breaks\.before_save_checkpoint failed at epoch 1, iteration 4: KeyError"):
        script(tmp_path, [{**CHECKPOINT, "save_best": False}, Breaks()]).run(1)


def test_an_epoch_whose_length_is_not_known_is_not_finished_before_its_end(tmp_path: Path) -> None:
    made = script(tmp_path, [{**CHECKPOINT, "save_best": False}])
    made.trainer.add_event_handler(Events.ITERATION_COMPLETED(once=2), lambda: made.runner.stop("enough"))
    made.trainer.run(iter(list(made.loader)), max_epochs=2)
    assert names(tmp_path) == ["last.pth"]
    assert content(tmp_path / "last.pth")["meta"]["epoch"] == 0


# -- ties between the hooks ----------------------------------------------------------------------------------------


def averages_of(run: SimpleNamespace) -> dict[str, Any]:
    return {name: value.clone() for name, value in run.runner.hooks["EMAHook"].weights()["ema_state_dict"].items()}


def test_the_checkpoint_of_an_iteration_holds_the_averages_of_this_iteration(tmp_path: Path) -> None:
    saving = {"type": "CheckpointHook", "by_epoch": False, "interval": 1, "max_keep_ckpts": -1, "save_best": False}
    made = script(tmp_path, [saving, EMA])
    seen: dict[int, dict[str, Any]] = {}
    made.trainer.add_event_handler(
        Events.GET_BATCH_STARTED, lambda: seen.setdefault(made.trainer.state.iteration, averages_of(made))
    )
    made.run(2)
    for iteration in (1, 2, 3, 5, 6, 7):
        assert same(content(tmp_path / f"iter_{iteration}.pth")["ema_state_dict"], seen[iteration]), iteration


@pytest.mark.parametrize("evaluate", ["ema", "raw"])
def test_the_best_file_the_restored_weights_and_the_reported_metric_belong_together(
    evaluate: str, tmp_path: Path
) -> None:
    best = {"type": "CheckpointHook", "best_metric": "val_loss", "interval": 100}
    stopping = {"type": "EarlyStoppingHook", "monitor": "val_loss", "patience": 3}
    made = script(tmp_path, [best, stopping, EMA | {"evaluate": evaluate}])
    trainer, model = made.trainer, made.model

    @trainer.on(Events.EPOCH_STARTED(event_filter=lambda engine, epoch: epoch > 3))
    def spoil() -> None:
        with torch.no_grad():
            for weight in model.parameters():
                weight.mul_(-2.0)

    made.run(20)
    record = made.runner.best["val_loss"]
    assert record.epoch == 3
    assert trainer.state.epoch < 20
    assert trainer.state.epoch >= 6
    saved = content(tmp_path / record.file)
    assert same(dict(model.state_dict()), saved["state_dict"])
    assert same(averages_of(made), saved["ema_state_dict"])
    model.load_state_dict(saved["ema_state_dict" if evaluate == "ema" else "state_dict"])
    loss = create_supervised_evaluator(model, {"loss": Loss(nn.CrossEntropyLoss())}).run(made.loader).metrics["loss"]
    assert loss == pytest.approx(record.score, rel=1e-5)


def test_both_ways_of_evaluating_are_published(tmp_path: Path) -> None:
    made = script(tmp_path, [EMA | {"evaluate": "both"}])
    made.run(2)
    metrics = made.runner.metrics
    assert {"val_loss", "val_raw_loss", "val_accuracy", "val_raw_accuracy"} <= {*metrics}
    assert metrics["val_loss"] != metrics["val_raw_loss"]
    raw = create_supervised_evaluator(made.model, {"loss": Loss(nn.CrossEntropyLoss())}).run(made.loader)
    assert raw.metrics["loss"] == pytest.approx(metrics["val_raw_loss"], rel=1e-5)
    assert made.runner.evaluation_options.extra == {}
