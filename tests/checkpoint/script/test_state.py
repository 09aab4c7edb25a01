"""`state.py`: what a script attaches itself goes on after a resume as if nothing had happened."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from ignite.engine import Engine, Events
from ignite.handlers import (
    Checkpoint,
    CosineAnnealingScheduler,
    DiskSaver,
    EarlyStopping,
    EMAHandler,
    LinearCyclicalScheduler,
    LRScheduler,
    PiecewiseLinear,
    create_lr_scheduler_with_warmup,
)
from ignite.metrics import Accuracy, Average, EpochMetric, Metric, MetricsLambda, Precision, RunningAverage
from ignite.metrics.metric_group import MetricGroup
from torch import nn
from torch.optim import lr_scheduler
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader

from ignite_hooks import HookEvents, attach_hooks
from tests.checkpoint.runs import Remembers
from tests.ranks import run_ranks

pytestmark = pytest.mark.usefixtures("quick")

LENGTH, EPOCHS = 4, 4
Log = list[Any]
Build = Callable[[SimpleNamespace], Callable[[], Any]]


class Hidden:
    """Holds a function where no search for the script's objects finds it."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function


def script(folder: Path, build: Build, stop_at: int = -1) -> Log:
    """Return what a run logs in each iteration after its resume; it is stopped after an iteration.

    A run that is to be stopped saves after each of its iterations, which must not change what comes back.
    """
    torch.manual_seed(0), random.seed(0), numpy.random.seed(0)
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    log: Log = []

    def step(engine: Engine, batch: Any) -> Any:
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        made.seen = (batch[:, 0] * 10).round().long() % 2
        return made.seen, torch.ones(len(batch), dtype=torch.long), loss.item()

    trainer, evaluator = Engine(step), Engine(lambda engine, batch: None)
    made = SimpleNamespace(
        trainer=trainer,
        evaluator=evaluator,
        model=model,
        optimizer=optimizer,
        folder=folder,
        seen=None,
        services={},
        log=log,
    )
    look = Hidden(build(made))

    @trainer.on(Events.EPOCH_COMPLETED)
    def evaluate() -> None:
        evaluator.run([0])

    @trainer.on(Events.ITERATION_COMPLETED)
    def note() -> None:
        log.append((trainer.state.iteration, optimizer.param_groups[0]["lr"], str(look.function())))

    often = {"by_epoch": False, "interval": 1 if stop_at >= 0 else LENGTH * EPOCHS}
    entries = [{"type": "CheckpointHook", **often, "save_best": False, "async_save": False}]
    services = {"model": model, "optimizer": optimizer, **made.services}
    runner = attach_hooks(trainer, entries, evaluators=evaluator, work_dir=folder, resume="auto", **services)

    class Stop:
        def after_train_iter(self) -> None:
            if trainer.state.iteration == stop_at:
                runner.stop("killed")

    runner.register_hook(Stop())
    data = [torch.full((3, 2), float(number)) / 10 for number in range(LENGTH)]
    trainer.run(data, max_epochs=EPOCHS)
    return log


def ignite_scheduler(event: Events) -> Build:
    def build(made: SimpleNamespace) -> Callable[[], Any]:
        scheduler = LinearCyclicalScheduler(made.optimizer, "lr", 1.0, 0.0, 8)
        made.trainer.add_event_handler(event, scheduler)
        return lambda: scheduler.event_index

    return build


late = pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step:UserWarning")


def torch_scheduler(event: Any, make: Callable[[Any], Any] = lambda o: lr_scheduler.ExponentialLR(o, 0.9)) -> Build:
    def build(made: SimpleNamespace) -> Callable[[], Any]:
        scheduler = make(made.optimizer)
        made.trainer.add_event_handler(event, lambda: scheduler.step())
        return lambda: scheduler.last_epoch

    return build


def in_an_object(made: SimpleNamespace) -> Callable[[], Any]:
    class Script:
        def __init__(self) -> None:
            self.schedulers = {"main": lr_scheduler.StepLR(made.optimizer, 2, 0.5)}

        def end_of_epoch(self) -> None:
            self.schedulers["main"].step()

    mine = Script()
    made.trainer.add_event_handler(Events.EPOCH_COMPLETED, mine.end_of_epoch)
    return lambda: mine.schedulers["main"].last_epoch


def in_the_step(made: SimpleNamespace) -> Callable[[], Any]:
    scheduler, plain = lr_scheduler.CosineAnnealingLR(made.optimizer, 16), made.trainer._process_function

    def step(engine: Engine, batch: Any) -> Any:
        found = plain(engine, batch)
        scheduler.step()
        return found

    made.trainer._process_function = step
    return lambda: scheduler.last_epoch


def as_an_argument(made: SimpleNamespace) -> Callable[[], Any]:
    scheduler = lr_scheduler.ExponentialLR(made.optimizer, 0.9)
    made.trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda engine, one: one.step(), scheduler)
    return lambda: scheduler.last_epoch


def warm_up(made: SimpleNamespace) -> Callable[[], Any]:
    after = lr_scheduler.ExponentialLR(made.optimizer, 0.8)
    scheduler = create_lr_scheduler_with_warmup(after, warmup_start_value=0.0, warmup_duration=3)
    made.trainer.add_event_handler(Events.ITERATION_STARTED, scheduler)
    return lambda: scheduler.event_index


def filtered(made: SimpleNamespace) -> Callable[[], Any]:
    scheduler = CosineAnnealingScheduler(made.optimizer, "lr", 1.0, 0.1, 8)
    made.trainer.add_event_handler(Events.ITERATION_STARTED(every=2), scheduler)
    other = PiecewiseLinear(made.optimizer, "weight_decay", [(0, 0.1), (5, 0.5)])
    made.trainer.add_event_handler(Events.ITERATION_COMPLETED, other)
    return lambda: (scheduler.event_index, other.event_index, made.optimizer.param_groups[0]["weight_decay"])


def wrapped_by_ignite(made: SimpleNamespace) -> Callable[[], Any]:
    scheduler = LRScheduler(lr_scheduler.MultiStepLR(made.optimizer, [3, 6, 9], 0.5))
    made.trainer.add_event_handler(Events.ITERATION_COMPLETED, scheduler)
    return lambda: scheduler.lr_scheduler.last_epoch


def early_stopping(reset: bool) -> Build:
    def build(made: SimpleNamespace) -> Callable[[], Any]:
        scores = {1: 0.1, 2: 0.5, 3: 0.4, 4: 0.3}
        stopping = EarlyStopping(9, lambda engine: scores[made.trainer.state.epoch], made.trainer)
        if reset:
            stopping.attach(made.evaluator, reset_engine=made.trainer)
        else:
            made.evaluator.add_event_handler(Events.COMPLETED, stopping)
        return lambda: (stopping.counter, stopping.best_score)

    return build


def bound_method(made: SimpleNamespace) -> Callable[[], Any]:
    class Meter(Remembers):
        def add(self) -> None:
            self.count += 1

    meters = Meter(), Meter()
    for meter in meters:
        made.trainer.add_event_handler(Events.ITERATION_COMPLETED, meter.add)
    made.trainer.add_event_handler(Events.EPOCH_COMPLETED, meters[0].add)
    return lambda: [meter.count for meter in meters]


def own_files(made: SimpleNamespace) -> Callable[[], Any]:
    saver = DiskSaver(str(made.folder / "mine"), require_empty=False)
    handler = Checkpoint({"model": made.model}, saver, n_saved=2, global_step_transform=lambda *_: iteration())
    made.trainer.add_event_handler(Events.ITERATION_COMPLETED, handler)

    def iteration() -> int:
        return int(made.trainer.state.iteration)

    return lambda: sorted(path.name for path in (made.folder / "mine").glob("*.pt"))


def averages(made: SimpleNamespace) -> Callable[[], Any]:
    average = AveragedModel(made.model)
    made.trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda: average.update_parameters(made.model))
    return lambda: [weight.tolist() for weight in average.parameters()]


def ignite_averages(made: SimpleNamespace) -> Callable[[], Any]:
    handler = EMAHandler(made.model, momentum=0.2)
    handler.attach(made.trainer)
    return lambda: [weight.tolist() for weight in handler.ema_model.parameters()]


def generators(made: SimpleNamespace) -> Callable[[], Any]:
    rngs = {"numpy": numpy.random.default_rng(1)}
    mine = random.Random(2)
    drawn: list[float] = []
    made.trainer.add_event_handler(
        Events.ITERATION_STARTED, lambda: drawn.append(mine.random() + float(rngs["numpy"].random()))
    )
    return lambda: drawn[-1]


def second_loader(made: SimpleNamespace) -> Callable[[], Any]:
    numbers: Any = range(6)
    other = DataLoader(numbers, 2, shuffle=True, generator=torch.Generator().manual_seed(3))
    seen: list[Any] = [None]

    @made.trainer.on(Events.ITERATION_COMPLETED(every=3))
    def iterate() -> None:
        seen[0] = [batch.tolist() for batch in other]

    return lambda: seen[0] if made.trainer.state.iteration % 3 == 0 else None


def user_keys(made: SimpleNamespace) -> Callable[[], Any]:
    trainer = made.trainer
    trainer.state_dict_user_keys.append("in_epoch")
    trainer.state.in_epoch = 0
    trainer.add_event_handler(Events.EPOCH_STARTED, lambda: setattr(trainer.state, "in_epoch", 0))
    trainer.add_event_handler(
        Events.ITERATION_COMPLETED, lambda: setattr(trainer.state, "in_epoch", trainer.state.in_epoch + 1)
    )
    return lambda: trainer.state.in_epoch


def late_user_keys(made: SimpleNamespace) -> Callable[[], Any]:
    trainer = made.trainer
    trainer.state_dict_user_keys.append("total")
    trainer.add_event_handler(Events.STARTED, lambda: setattr(trainer.state, "total", [0]))
    trainer.add_event_handler(
        Events.ITERATION_COMPLETED, lambda: setattr(trainer.state, "total", [trainer.state.total[0] + 1])
    )
    return lambda: trainer.state.total


class Last(Metric):
    """A metric of the script, which declares nothing."""

    def __init__(self, weight: float = 2.0) -> None:
        self.weight = weight
        super().__init__(lambda output: output[2])

    def reset(self) -> None:
        self.total, self.history = 0.0, list[float]()

    def update(self, output: float) -> None:
        self.total += self.weight * output
        self.history = [*self.history, output]

    def compute(self) -> Any:
        return self.total, self.history


def metrics(made: SimpleNamespace) -> Callable[[], Any]:
    pick = lambda output: output[:2]  # noqa: E731
    found: dict[str, Any] = {
        "accuracy": Accuracy(pick),
        "running": RunningAverage(output_transform=lambda output: output[2]),
        "of accuracy": RunningAverage(Accuracy(pick)),
        "over epochs": RunningAverage(output_transform=lambda output: output[2], alpha=0.5),
        "average": Average(lambda output: output[2]),
        "lambda": MetricsLambda(lambda one: one * 2, Precision(pick, average=True)),
        "all": EpochMetric(lambda pred, y: float((pred == y).float().sum()), pick, check_compute_fn=False),
        "group": MetricGroup({"accuracy": Accuracy(), "again": Accuracy()}, output_transform=pick),
        "mine": Last(),
    }
    for name, metric in found.items():
        if name == "over epochs":
            from ignite.metrics.metric import RunningEpochWise

            metric.attach(made.trainer, name, RunningEpochWise())
        else:
            metric.attach(made.trainer, name)

    @made.trainer.on(Events.EPOCH_COMPLETED)
    def keep() -> None:
        made.log.append({name: str(made.trainer.state.metrics[name]) for name in found})

    def look() -> Any:
        state = made.trainer.state
        rest = [found["accuracy"]._num_correct, found["accuracy"]._num_examples, found["mine"].compute()]
        return [state.metrics["running"], state.metrics["of accuracy"], rest]

    return look


ATTACHED: dict[str, Build] = {
    "Ignite's scheduler, ITERATION_STARTED": ignite_scheduler(Events.ITERATION_STARTED),
    "Ignite's scheduler, EPOCH_STARTED": ignite_scheduler(Events.EPOCH_STARTED),
    "Ignite's scheduler, filtered, and another": filtered,
    "Ignite's scheduler, with a warm-up": warm_up,
    "Ignite's wrapper of torch's scheduler": wrapped_by_ignite,
    "torch's scheduler, EPOCH_COMPLETED": torch_scheduler(Events.EPOCH_COMPLETED),
    "torch's scheduler, ITERATION_COMPLETED": torch_scheduler(Events.ITERATION_COMPLETED(every=2)),
    "torch's scheduler, EPOCH_STARTED": torch_scheduler(Events.EPOCH_STARTED),
    "torch's scheduler, of lambdas": torch_scheduler(
        Events.ITERATION_COMPLETED, lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 0.9**epoch)
    ),
    "torch's scheduler, in an object": in_an_object,
    "torch's scheduler, in the step": in_the_step,
    "torch's scheduler, as an argument": as_an_argument,
    "EarlyStopping on the evaluator": early_stopping(False),
    "EarlyStopping that a start resets": early_stopping(True),
    "bound methods": bound_method,
    "Ignite's Checkpoint": own_files,
    "AveragedModel": averages,
    "EMAHandler": ignite_averages,
    "generators": generators,
    "a second loader": second_loader,
    "user keys that an epoch resets": user_keys,
    "user keys that come at the start": late_user_keys,
    "metrics": metrics,
}


@late
@pytest.mark.parametrize("name", ATTACHED)
def test_what_the_script_attached_goes_on(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    wanted = script(tmp_path / "whole", ATTACHED[name])
    for stop in (1, 4, 6, 11):
        folder = tmp_path / str(stop)
        found = script(folder, ATTACHED[name], stop_at=stop)
        caplog.clear()
        found += script(folder, ATTACHED[name])
        assert found == wanted, stop
        if name != "EarlyStopping that a start resets":
            assert "approximate" not in caplog.text
            assert "script" not in caplog.text


@late
def test_a_scheduler_that_is_passed_is_not_stepped_twice(tmp_path: Path) -> None:
    def build(made: SimpleNamespace) -> Callable[[], Any]:
        scheduler = made.services["scheduler"] = lr_scheduler.ExponentialLR(made.optimizer, 0.5)
        made.trainer.add_event_handler(Events.EPOCH_STARTED, lambda: scheduler.step())
        return lambda: scheduler.last_epoch

    wanted = script(tmp_path / "whole", build)
    assert script(tmp_path / "parts", build, 6) + script(tmp_path / "parts", build) == wanted


@pytest.mark.parametrize("at", [6, 8])
def test_what_is_changed_after_loading_stays(at: int, tmp_path: Path) -> None:
    def build(made: SimpleNamespace) -> Callable[[], Any]:
        scheduler = lr_scheduler.LambdaLR(made.optimizer, lambda epoch: 1.0)
        made.trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: scheduler.step())
        made.trainer.register_events(*HookEvents)

        @made.trainer.on(HookEvents.AFTER_LOAD_CHECKPOINT)
        def change() -> None:
            scheduler.base_lrs = [0.5]

        return lambda: scheduler.base_lrs

    script(tmp_path, build, stop_at=at)
    assert {entry[2] for entry in script(tmp_path, build)} == {"[0.5]"}


def nothing(made: SimpleNamespace) -> Callable[[], Any]:
    return lambda: None


def hidden(made: SimpleNamespace) -> Callable[[], Any]:
    """Keep a scheduler where nobody looks for it."""
    HIDDEN[id(made)] = lr_scheduler.ExponentialLR(made.optimizer, 0.9)
    made.trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: HIDDEN[id(made)].step())
    HIDDEN.update(dict.fromkeys(range(1000)))
    return lambda: None


HIDDEN: dict[int, Any] = {}


def drawing_by_hand(made: SimpleNamespace) -> Callable[[], Any]:
    numbers: Any = range(100)
    batches = iter(DataLoader(numbers, 2))
    made.trainer.add_event_handler(Events.ITERATION_STARTED, lambda: next(batches))
    return lambda: None


def drawing_from_a_generator(made: SimpleNamespace) -> Callable[[], Any]:
    def endless(loader: Any) -> Iterator[Any]:
        while True:
            yield from loader

    numbers: Any = range(100)
    batches = endless(DataLoader(numbers, 2))
    made.trainer.add_event_handler(Events.ITERATION_STARTED, lambda: next(batches))
    return lambda: None


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        (
            ignite_scheduler(Events.ITERATION_STARTED),
            nothing,
            "holds the state of LinearCyclicalScheduler (trainer, ITERATION_STARTED) of the script, which is not there "
            "now: pass scheduler=... to attach_hooks()",
        ),
        (
            nothing,
            ignite_scheduler(Events.ITERATION_STARTED),
            "holds no state of LinearCyclicalScheduler (trainer, ITERATION_STARTED) of the script, which begins anew: "
            "pass scheduler=... to attach_hooks()",
        ),
        (
            ignite_scheduler(Events.ITERATION_STARTED),
            ignite_scheduler(Events.EPOCH_STARTED),
            "holds no state of LinearCyclicalScheduler (trainer, EPOCH_STARTED)",
        ),
        (hidden, hidden, "checkpoints do not hold the scheduler of this optimizer: pass scheduler=... to attach_hooks"),
        (drawing_by_hand, drawing_by_hand, "the script was drawing from 'batches' (trainer, ITERATION_STARTED) itself"),
        (drawing_from_a_generator, drawing_from_a_generator, "was drawing from 'batches' (trainer, ITERATION_STARTED)"),
        (
            lambda made: with_state(made, {"count": 3}),
            lambda made: with_state(made, {"other": 3}),
            "the state of Mine (trainer, ITERATION_STARTED) in last.pth does not fit the script, where it begins anew: "
            "KeyError: 'other'",
        ),
    ],
)
def test_what_cannot_go_on_is_named(
    before: Build, now: Build, words: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    script(tmp_path, before, stop_at=6)
    caplog.clear()
    script(tmp_path, now)
    assert caplog.text.count(words) == 1


def with_state(made: SimpleNamespace, state: dict[str, int]) -> Callable[[], Any]:
    class Mine:
        def __call__(self, engine: Engine) -> None: ...

        def state_dict(self) -> dict[str, int]:
            return dict(state)

        def load_state_dict(self, saved: Mapping[str, int]) -> None:
            assert [saved[name] for name in state]

    made.trainer.add_event_handler(Events.ITERATION_STARTED, Mine())
    return lambda: None


def test_a_script_without_such_objects_saves_nothing_more(tmp_path: Path) -> None:
    script(tmp_path, nothing, stop_at=2)
    objects = torch.load(tmp_path / "last.pth", weights_only=True)["script"]["objects"]
    # What the step keeps of its last batch.
    assert {key: [*saved["state"]["values"]] for key, saved in objects.items()} == {
        "trainer.step.variables": ["trainer.step.made.seen"]
    }


def test_what_is_reset_is_not_saved_between_epochs(tmp_path: Path) -> None:
    script(tmp_path, metrics, stop_at=4)
    assert any(path.name == "iter_4.pth" for path in tmp_path.iterdir())
    saved = torch.load(tmp_path / "iter_4.pth", weights_only=True)["script"]["objects"]
    names = sorted(key.rpartition(".")[2] for key in saved if saved[key]["kind"] != "variables")
    assert names == ["RunningAverage", "RunningAverage", "RunningAverage#1"]


def on_each_rank(folder: str) -> list[Log]:
    import ignite.distributed as idist

    rank = idist.get_rank()

    def build(made: SimpleNamespace) -> Callable[[], Any]:
        mine, metric = random.Random(rank), Last(weight=1.0 + rank)
        metric.attach(made.trainer, "mine")
        made.trainer.add_event_handler(Events.ITERATION_STARTED, lambda: made.drawn.append(mine.random()))
        made.drawn = []
        return lambda: (made.drawn[-1], metric.compute())

    whole = script(Path(folder) / "whole", build)
    parts = script(Path(folder) / "parts", build, stop_at=6)
    return [whole, parts + script(Path(folder) / "parts", build)]


@pytest.mark.slow
def test_each_rank_has_its_own_metrics_and_generators_back(tmp_path: Path) -> None:
    ranks = run_ranks(on_each_rank, str(tmp_path))
    for whole, parts in ranks:
        assert parts == whole
    assert ranks[0] != ranks[1]


class Noise(nn.Module):
    """A module that draws from a generator of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.source = nn.Parameter(torch.zeros(1)), torch.Generator().manual_seed(4)

    def forward(self) -> torch.Tensor:
        return torch.rand(1, generator=self.source) * self.weight.exp()


def test_a_generator_that_a_module_holds_goes_on(tmp_path: Path) -> None:
    def run(epochs: int, folder: str) -> list[float]:
        seen = list[float]()
        model = nn.Sequential(Noise())

        def step(engine: Engine, batch: Any) -> None:
            seen.append(model[0]().item())

        trainer = Engine(step)
        config = [{"type": "CheckpointHook", "save_best": False}]
        attach_hooks(trainer, config, work_dir=tmp_path / folder, resume="auto", model=model)
        trainer.run(range(2), max_epochs=epochs)
        return seen

    assert run(1, "parts") + run(3, "parts") == run(3, "whole")
