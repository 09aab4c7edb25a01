"""`objects.py`: what a script attached is found once, under a name that a resumed run finds again."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.contrib.handlers import ProgressBar
from ignite.engine import Engine, Events, create_supervised_trainer
from ignite.handlers import FastaiLRFinder, HandlersTimeProfiler, LinearCyclicalScheduler, LRScheduler
from ignite.metrics import Accuracy
from torch import nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader

from ignite_hooks import BaseHook, attach_hooks
from ignite_hooks.checkpoint.script.objects import in_words, script_objects, script_schedulers

pytestmark = pytest.mark.usefixtures("quick")


class Run:
    """A trainer with a model, and what the script adds."""

    def __init__(self, folder: Path, **services: Any) -> None:
        self.model = nn.Linear(2, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.trainer, self.evaluator = Engine(lambda engine, batch: None), Engine(lambda engine, batch: None)
        self.folder, self.services = folder, services

    def keys(self, *hooks: Any) -> list[str]:
        services = {"model": self.model, "optimizer": self.optimizer, **self.services}
        runner = attach_hooks(self.trainer, list(hooks), evaluators=self.evaluator, work_dir=self.folder, **services)
        self.trainer.run([0], max_epochs=1)
        return [found.key for found in script_objects(runner)]


def test_nothing_is_found_that_is_saved_already(tmp_path: Path) -> None:
    made = Run(tmp_path)
    scheduler = made.services["scheduler"] = lr_scheduler.ExponentialLR(made.optimizer, 0.9)
    other = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    foreign = lr_scheduler.ExponentialLR(other, 0.9)

    class Hook(BaseHook):
        def attached(self) -> None:
            self.runner.trainer.add_event_handler(Events.STARTED, self.note)

        def note(self) -> None: ...

    made.trainer.add_event_handler(Events.EPOCH_STARTED, made.model.zero_grad)
    made.evaluator.add_event_handler(Events.EPOCH_STARTED, made.model.eval)
    made.trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: (scheduler, foreign, made.optimizer, made.trainer))
    Accuracy(lambda output: output).attach(made.evaluator, "accuracy")
    assert made.keys(Hook()) == []


def test_other_handlers_do_not_change_a_key(tmp_path: Path) -> None:
    keys = []
    for more in (False, True):
        made = Run(tmp_path / str(more))
        if more:
            made.trainer.add_event_handler(Events.ITERATION_STARTED, lambda: None)
            made.evaluator.add_event_handler(Events.COMPLETED, print, "")
            ProgressBar().attach(made.trainer)
        for _ in range(2):
            made.trainer.add_event_handler(
                Events.ITERATION_STARTED, LinearCyclicalScheduler(made.optimizer, "lr", 1.0, 0.0, 8)
            )
        keys.append(made.keys())
    place = "trainer.ITERATION_STARTED.LinearCyclicalScheduler"
    assert keys == [[place, f"{place}#1"]] * 2
    assert in_words(place) == "LinearCyclicalScheduler (trainer, ITERATION_STARTED)"


def test_schedulers_are_found_without_their_wrappers(tmp_path: Path) -> None:
    made = Run(tmp_path)
    inner = lr_scheduler.ExponentialLR(made.optimizer, 0.9)
    cyclic = LinearCyclicalScheduler(made.optimizer, "lr", 1.0, 0.0, 8)
    made.trainer.add_event_handler(Events.ITERATION_STARTED, LRScheduler(inner))
    made.trainer.add_event_handler(Events.EPOCH_STARTED, cyclic)
    runner = attach_hooks(made.trainer, [], model=made.model, optimizer=made.optimizer, work_dir=tmp_path)
    assert script_schedulers(runner) == [cyclic, inner]


def test_an_object_that_several_handlers_hold_is_found_once(tmp_path: Path) -> None:
    made = Run(tmp_path)
    scheduler = lr_scheduler.ExponentialLR(made.optimizer, 0.9)
    numbers: Any = range(4)
    loader = DataLoader(numbers, generator=torch.Generator())
    for event in (Events.EPOCH_COMPLETED, Events.ITERATION_COMPLETED(every=2)):
        made.trainer.add_event_handler(event, lambda: (loader, scheduler, None)[2])
    assert made.keys() == [
        "trainer.EPOCH_COMPLETED.DataLoader:loader",
        "trainer.EPOCH_COMPLETED.ExponentialLR:scheduler",
    ]


def test_a_handler_that_a_profiler_times_keeps_its_key(tmp_path: Path) -> None:
    made, seen = Run(tmp_path), list[str]()
    profiler = HandlersTimeProfiler()
    profiler.attach(made.trainer)
    made.trainer.add_event_handler(Events.ITERATION_STARTED, LinearCyclicalScheduler(made.optimizer, "lr", 1.0, 0.0, 8))
    runner = attach_hooks(made.trainer, [], model=made.model, optimizer=made.optimizer, work_dir=tmp_path)
    made.trainer.add_event_handler(
        Events.ITERATION_COMPLETED, lambda: seen.extend(found.key for found in script_objects(runner))
    )
    made.trainer.run([0], max_epochs=1)
    assert seen == ["trainer.ITERATION_STARTED.LinearCyclicalScheduler"]


class Scene:
    """Networks and optimizers of a script, of which some are passed to the hooks, and a step that trains them."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.passed: dict[str, Any] = {}
        self.state: Callable[[], list[Any]] = list
        self.step: Callable[[Any], Any] = lambda batch: None

    def train(self, loss: Any, *optimizers: Any) -> None:
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()


def adam(*things: Any) -> torch.optim.Adam:
    return torch.optim.Adam([w for one in things for w in ([one] if torch.is_tensor(one) else one.parameters())], 0.05)


def values(*things: Any) -> list[Any]:
    states = [{"": one} if torch.is_tensor(one) else one.state_dict() for one in things]
    return [value.tolist() for state in states for value in state.values()]


def gan(scene: Scene, *, passes_any: bool = True) -> None:
    g, d = nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 1))
    of_g, of_d = adam(g), adam(d)

    def step(batch: Any) -> None:
        scene.train(d(batch).square().mean() - d(g(batch).detach()).mean(), of_d)
        scene.train(d(g(batch)).mean(), of_g)

    scene.passed = {"model": g, "optimizer": of_g} if passes_any else {}
    scene.step, scene.state = step, lambda: values(g, d)


def gan_of_one_class(scene: Scene) -> None:
    class Gan(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.g, self.d = nn.Linear(2, 2), nn.Linear(2, 1)
            self.of_g, self.of_d = adam(self.g), adam(self.d)

        def learn(self, batch: Any) -> None:
            scene.train(self.d(batch).square().mean() - self.d(self.g(batch).detach()).mean(), self.of_d)
            scene.train(self.d(self.g(batch)).mean(), self.of_g)

    made = Gan()
    scene.passed = {"model": made.g, "optimizer": made.of_g}
    scene.step, scene.state = made.learn, lambda: values(made)


def two_optimizers(scene: Scene) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    first, second = adam(model[0]), adam(model[1])
    scene.passed = {"model": model, "optimizer": first}
    scene.step, scene.state = lambda batch: scene.train(model(batch).mean(), first, second), lambda: values(model)


def bare_parameter(scene: Scene) -> None:
    model, alone = nn.Linear(2, 2), nn.Parameter(torch.zeros(2))
    optimizer = adam(model, alone)
    scene.passed = {"model": model, "optimizer": optimizer}
    scene.step = lambda batch: scene.train((model(batch) + alone).square().mean(), optimizer)
    scene.state = lambda: values(model, alone)


def second_head(scene: Scene) -> None:
    model, head = nn.Linear(2, 2), nn.Linear(2, 1)
    optimizer = adam(model, head)
    scene.passed = {"model": model, "optimizer": optimizer}
    scene.step = lambda batch: scene.train(head(model(batch)).square().mean(), optimizer)
    scene.state = lambda: values(model, head)


def teacher(scene: Scene, *, by_data: bool = False, passed: bool = False) -> None:
    model = nn.Linear(2, 2)
    teaches = copy.deepcopy(model).requires_grad_(False)
    optimizer = adam(model)

    def step(batch: Any) -> None:
        scene.train((model(batch) - teaches(batch) + 1.0).square().mean(), optimizer)
        with torch.no_grad():
            for mine, its in zip(teaches.parameters(), model.parameters(), strict=True):
                (mine.data if by_data else mine).mul_(0.9).add_(its, alpha=0.1)

    scene.passed = {"model": model, "optimizer": optimizer} | ({"teacher": teaches} if passed else {})
    scene.step, scene.state = step, lambda: values(model, teaches)


TRAINED: dict[str, Callable[[Scene], None]] = {
    "a discriminator": gan,
    "two networks, none passed": functools.partial(gan, passes_any=False),
    "networks of one class": gan_of_one_class,
    "two optimizers of one model": two_optimizers,
    "a parameter of no module": bare_parameter,
    "a second head": second_head,
    "a teacher": teacher,
    "a teacher changed by .data": functools.partial(teacher, by_data=True),
    "a frozen teacher that is passed": functools.partial(teacher, passed=True),
}

BATCHES = [torch.tensor([[0.1 * i, 1.0], [1.0, -0.2 * i]]) for i in range(3)]


def run_scene(folder: Path, build: Callable[[Scene], None], epochs: int, interval: int = 1) -> list[Any]:
    scene = Scene()
    build(scene)
    trainer = Engine(lambda engine, batch: scene.step(batch))
    hook = {"type": "CheckpointHook", "by_epoch": False, "save_best": False, "async_save": False}
    attach_hooks(trainer, [{**hook, "interval": interval}], work_dir=folder, resume="auto", **scene.passed)
    trainer.run(BATCHES, max_epochs=epochs)
    return scene.state()


@pytest.mark.parametrize("name", TRAINED)
def test_what_the_step_trains_goes_on_after_a_resume(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = run_scene(tmp_path / "whole", TRAINED[name], 3)
    assert run_scene(tmp_path / "parts", TRAINED[name], 1) != wanted
    assert run_scene(tmp_path / "parts", TRAINED[name], 3) == wanted
    assert "script" not in caplog.text
    assert "holds no weights" not in caplog.text


def test_what_is_saved_already_or_frozen_is_not_saved_again(tmp_path: Path) -> None:
    scene = Scene()
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    frozen, wrapped, optimizer = nn.Linear(2, 2).requires_grad_(False), nn.DataParallel(model), adam(model)
    untrained = nn.Linear(2, 2)
    scene.passed = {"model": model, "optimizer": optimizer}
    scene.step = lambda batch: scene.train((wrapped(untrained(frozen(batch))) + model[1](batch)).mean(), optimizer)
    run_scene(tmp_path, lambda made: made.__dict__.update(vars(scene)), 1)
    objects = torch.load(tmp_path / "last.pth", weights_only=True)["script"]["objects"]
    assert {saved["kind"] for saved in objects.values()} == {"unchanged"}


def test_a_module_that_is_not_saved_and_another_after_a_resume_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def build(scene: Scene, seed: int) -> None:
        model = nn.Linear(2, 1)
        torch.manual_seed(seed)
        target = nn.Linear(2, 1).requires_grad_(False)
        scene.passed = {"model": model, "optimizer": adam(model)}
        scene.step = lambda batch: scene.train(
            (model(batch) - target(batch)).square().mean(), scene.passed["optimizer"]
        )
        scene.state = list

    for epochs, seed in ((1, 1), (2, 1), (3, 2)):
        assert "does not hold" not in caplog.text
        run_scene(tmp_path, functools.partial(build, seed=seed), epochs)
    assert (
        caplog.text.count(
            "last.pth does not hold Linear (scene.step.target; trainer, step) of the script, which had not"
        )
        == 1
    )


def test_a_container_is_saved_without_the_model_in_it(tmp_path: Path) -> None:
    run_scene(tmp_path, gan_of_one_class, 1)
    objects = torch.load(tmp_path / "last.pth", weights_only=True)["script"]["objects"]
    modules = [saved["state"] for saved in objects.values() if saved["kind"] == "module"]
    assert sum(value.numel() for state in modules for value in state.values()) == 3


def test_a_file_that_holds_no_weights_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def hidden(scene: Scene) -> None: ...

    for epochs in (1, 2):
        run_scene(tmp_path, hidden, epochs)
    assert caplog.text.count("last.pth holds no weights: those of this run are as the script has made them") == 1


def test_what_a_file_does_not_hold_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def before(scene: Scene) -> None:
        gan(scene)
        alone = scene.passed["model"]
        scene.step = lambda batch: scene.train(alone(batch).mean(), scene.passed["optimizer"])

    run_scene(tmp_path, before, 1)
    run_scene(tmp_path, gan, 2)
    assert "holds no state of Adam (" in caplog.text
    assert "holds no state of Sequential (" in caplog.text


def test_a_scheduler_that_is_gone_is_not_missed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trainer = create_supervised_trainer(model, optimizer, nn.MSELoss())
    finder, data = FastaiLRFinder(), [(torch.ones(1, 2), torch.ones(1, 2))] * 4
    named = {"model": model, "optimizer": optimizer}
    diverges = pytest.warns(UserWarning, match="Run completed without loss diverging")
    with diverges, finder.attach(trainer, named, num_iter=3, end_lr=0.2) as searching:
        searching.run(data)
    scheduler = lr_scheduler.ExponentialLR(optimizer, 0.9)
    del scheduler
    attach_hooks(trainer, [{"type": "CheckpointHook", "save_best": False}], model=model, work_dir=tmp_path)
    trainer.run(data, max_epochs=1)
    assert "scheduler" not in caplog.text


@pytest.mark.parametrize(("call", "is_saved"), [(3, True), (4, False)])
def test_a_run_that_fails_between_two_optimizers_has_no_state_to_resume_from(
    call: int, is_saved: bool, tmp_path: Path
) -> None:
    def failing(scene: Scene) -> None:
        gan(scene)
        calls: list[int] = []

        def count(module: nn.Module, arguments: Any) -> None:
            calls.append(1)
            if len(calls) == call:
                raise ZeroDivisionError

        scene.passed["model"].register_forward_pre_hook(count)

    with pytest.raises(ZeroDivisionError):
        run_scene(tmp_path, failing, 1, interval=3)
    assert [path.name for path in tmp_path.glob("exception*")] == ["exception_iter_1.pth"] * is_saved
