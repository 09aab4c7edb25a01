"""`variables.py`: what a step keeps in variables goes on after a resume, and is told; logs and clocks are not."""

from __future__ import annotations

import dataclasses
import enum
import itertools
import logging
import random
import sys
import time
import types
from collections import ChainMap, OrderedDict, UserDict, defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy
import pytest
import torch
from ignite.engine import Engine, Events
from torch import nn

from ignite_hooks import attach_hooks
from ignite_hooks.checkpoint.script.variables import variables

pytestmark = pytest.mark.usefixtures("quick")

LENGTH, EPOCHS = 3, 3
BETA: float = 0.0
HIDDEN: Any = None

Step = Callable[[Engine, torch.Tensor], Any]


def in_a_closure(made: SimpleNamespace) -> Step:
    beta, hidden = 0.0, None

    def anneal() -> None:
        nonlocal beta
        beta += 1.0

    def step(engine: Engine, batch: torch.Tensor) -> Any:
        nonlocal hidden
        hidden = (batch.mean(), 2 * batch.mean()) if hidden is None else (hidden[0] + beta, hidden[1] + batch.mean())
        return beta + float(hidden[0] * hidden[1])

    made.trainer.add_event_handler(Events.EPOCH_STARTED, anneal)
    return step


def in_globals(made: SimpleNamespace) -> Step:
    global BETA, HIDDEN
    BETA, HIDDEN = 0.0, None

    def deeper(batch: torch.Tensor) -> None:
        global HIDDEN
        HIDDEN = batch.clone() if HIDDEN is None else HIDDEN + batch

    def step(engine: Engine, batch: torch.Tensor) -> Any:
        global BETA
        BETA = min(5.0, BETA + 0.5)
        deeper(batch)
        return BETA + HIDDEN.sum().item()

    return step


class Script:
    def __init__(self) -> None:
        self.average: float | None = None
        self.counts, self.settings = [0, 0], {"kl": 0.0}
        self.latest = deque[float](maxlen=2)
        self.array = numpy.zeros(2, dtype=numpy.float32)
        self.buffer = torch.zeros(2)
        self.inner = SimpleNamespace(phase="warm", on=False)

    def step(self, engine: Engine, batch: torch.Tensor) -> Any:
        value = float(batch.mean())
        self.average = value if self.average is None else 0.5 * self.average + value
        self.counts[1] += 1
        self.settings["kl"] += 0.5
        self.settings.setdefault("late", 0)
        self.settings["late"] += 2
        self.latest.append(value)
        self.array = self.array + value
        self.buffer.add_(value)
        self.inner.phase, self.inner.on = "main" if self.counts[1] > 4 else "warm", self.counts[1] % 2 == 0
        engine.state.mine = getattr(engine.state, "mine", 0) + 1
        numbers = [self.average, *self.counts, *self.settings.values(), *self.latest, engine.state.mine]
        return str([*numbers, *self.array.tolist(), *self.buffer.tolist(), self.inner.phase, self.inner.on])


def in_an_object(made: SimpleNamespace) -> Step:
    return Script().step


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.temperature, self.carried = nn.Linear(2, 2), 1.0, None

    def forward(self, x: torch.Tensor) -> Any:
        self.temperature *= 0.9
        y = self.linear(x) * self.temperature
        self.carried: Any = y.detach() if self.carried is None else (self.carried + y).detach()
        return y + self.carried


def in_the_model(made: SimpleNamespace) -> Step:
    def step(engine: Engine, batch: torch.Tensor) -> Any:
        made.optimizer.zero_grad()
        loss = made.model(batch).square().mean()
        loss.backward()
        made.optimizer.step()
        return loss.item()

    return step


class Counted:
    """A class that counts itself."""

    total: ClassVar[float] = 0.0

    def add(self) -> float:
        type(self).total += 0.5
        return self.total


class Slotted:
    __slots__ = ("number", "seen")

    def __init__(self) -> None:
        self.number, self.seen = 0, [0]


def in_classes_and_slots(made: SimpleNamespace) -> Step:
    counted, slotted = Counted(), Slotted()
    Counted.total = 0.0

    def step(engine: Engine, batch: torch.Tensor) -> Any:
        slotted.number += 1
        slotted.seen[0] += 2
        return str([counted.add(), slotted.number, slotted.seen])

    return step


class Stage(enum.Enum):
    WARM = 1
    MAIN = 2


def in_other_kinds_of_values(made: SimpleNamespace) -> Step:
    by_class, losses = {0: 1.0, 1: 1.0}, defaultdict[str, float](float)
    seen, latest, table = set[int](), [0.0, 0.0], [[1.0, 1.0], [1.0]]
    shadow = {str(number): torch.zeros(2) for number in range(99)}
    counter, stage, phase = itertools.count(1), Stage.WARM, 1 + 0j

    def step(engine: Engine, batch: torch.Tensor) -> Any:
        nonlocal stage, phase
        value = float(batch.mean()) + 1
        by_class[engine.state.iteration % 2] *= value
        losses[str(engine.state.iteration % 3)] += value
        seen.add(engine.state.iteration)
        latest.append(value)
        del latest[:-2]
        table[0][1] *= value
        for average in shadow.values():
            average.add_(value)
        stage, phase = Stage.MAIN if len(seen) > 2 else stage, phase * 1j
        numbers = [by_class, dict(losses), seen, latest, table, float(shadow["98"].sum()), next(counter), stage, phase]
        return str(numbers)

    return step


def on_functions_engines_and_modules_of_the_script(made: SimpleNamespace) -> Step:
    import tests.checkpoint.runs as other

    evaluator = Engine(lambda engine, batch: None)
    evaluator.state.best, made.trainer.rate, other.number = 0.0, 1.0, 0

    def step(engine: Any, batch: torch.Tensor) -> Any:
        evaluator.state.best += 1.0
        made.trainer.rate *= 0.5
        step.calls += 1
        other.number += 3
        return str([evaluator.state.best, engine.rate, step.calls, other.number])

    step.calls = 0
    return step


class Rates(nn.Module):
    """A model with a buffer that its state does not hold, a rate and a frozen layer."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.dropout = nn.Linear(2, 2), nn.Dropout(0.5)
        self.head.bias.requires_grad_(False)
        self.register_buffer("gain", torch.ones(()), persistent=False)

    def forward(self, x: torch.Tensor) -> Any:
        self.gain.mul_(0.9)
        return self.dropout(self.head(x)) * self.gain


def in_rates_and_frozen_weights(made: SimpleNamespace) -> Step:
    model = made.model = Rates()
    made.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def later() -> None:
        if made.trainer.state.epoch == 2:
            model.head.bias.requires_grad_(True)
            model.dropout.p = 0.0

    made.trainer.add_event_handler(Events.EPOCH_STARTED, later)
    step = in_the_model(made)
    return lambda engine, batch: [step(engine, batch), float(model.gain), model.dropout.p]


@dataclasses.dataclass
class Tally:
    count: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Phase:
    number: int = 0


class Kept:
    __slots__ = ("phase",)

    def __init__(self) -> None:
        self.phase = Phase()


def in_mappings_with_keys_of_any_kind(made: SimpleNamespace) -> Step:
    named: dict[str, Any] = {"a": {"b": 0}, "a.b": 0, "": 0, "'q'": 0, "drop": 1, "drop.it": {"too": 1}}
    late = dict[str, Any]()
    mixed: dict[Any, Any] = {1: 0, "1": 0, None: 0, (1, "a"): 0, 2.5: 0, b"x": 0, Stage.WARM: 0, numpy.int64(7): 0}
    objects = {1: Tally(), "1": Tally(), (2, 3): Tally(), "a.b": Tally(), "a": SimpleNamespace(b=Tally()), 0.5: Tally()}
    deep: dict[str, Any] = {"a": {1: {"x.y": {(1, 2): 0}}}}

    def step(engine: Engine, batch: torch.Tensor) -> Any:
        for number, key in enumerate(("a.b", "", "'q'")):
            named[key] += number + 1
            late[key] = late.get(key, 0) + number + 1
        named["a"]["b"] += 10
        for key in ("drop", "drop.it"):
            named.pop(key, None)
        for number, key in enumerate(mixed):
            mixed[key] += number
        for number, value in enumerate(objects.values()):
            getattr(value, "b", value).count += number
        deep["a"][1]["x.y"][1, 2] += 1
        return repr([named, sorted(late.items()), mixed, objects, deep])

    return step


def in_objects_within_collections(made: SimpleNamespace) -> Step:
    mixed, ordered, latest = [0, Tally()], OrderedDict(a=Tally()), deque([Tally()])
    counted = defaultdict(Tally, {0: Tally()})
    phase, kept, best = Phase(), Kept(), (float("inf"), Stage.WARM)
    wrapped, chained = UserDict[int, int]({1: 0}), ChainMap[int, int]({1: 0})

    def step(engine: Engine, batch: torch.Tensor) -> Any:
        nonlocal phase, best
        for tally in (mixed[1], ordered["a"], latest[0], counted[0]):
            tally.count += 1
        phase, kept.phase = Phase(phase.number + 1), Phase(kept.phase.number + 2)
        best = (float("inf"), Stage.MAIN)
        wrapped[1], chained[1] = wrapped[1] + 1, chained[1] + 1
        return repr([wrapped, chained, mixed, ordered, latest, counted, phase, kept.phase, best])

    return step


def in_queues_and_windows(made: SimpleNamespace) -> Step:
    queue, chosen = {"easy": 1.0, "middle": 2.0, "hard": 3.0}, {"a": 1, "b": 2, "c": 3}
    recent: dict[str, list[float]] = {"easy": [], "middle": [], "hard": []}
    by_number: dict[int, list[float]] = {0: [], 1: []}
    single, of_epoch = list[float](), list[float]()
    self = SimpleNamespace(window=[])

    def begin() -> None:
        of_epoch.clear()

    def step(engine: Engine, batch: torch.Tensor) -> Any:
        nonlocal single, chosen
        number, task = engine.state.iteration, next(iter(queue))
        queue[task] = value = queue.pop(task) + number
        recent[task].append(value)
        del recent[task][:-2]
        by_number[number % 2].append(value)
        by_number[number % 2] = by_number[number % 2][-2:]
        single, self.window = [*single, value][-3:], [*self.window[-2:], value]
        of_epoch.append(value)
        if number == 2:
            chosen = {name: one for name, one in chosen.items() if name != "b"}
        if number == 3:
            chosen = dict(reversed(chosen.items()))
        return repr([task, recent, by_number, single, self.window, of_epoch, chosen])

    made.trainer.add_event_handler(Events.EPOCH_STARTED, begin)
    return step


FORMS = {
    form.__name__: form
    for form in (
        *(in_a_closure, in_globals, in_an_object, in_the_model, in_classes_and_slots, in_other_kinds_of_values),
        *(on_functions_engines_and_modules_of_the_script, in_rates_and_frozen_weights),
        *(in_mappings_with_keys_of_any_kind, in_objects_within_collections, in_queues_and_windows),
    )
}


def run(folder: Path, form: Callable[[SimpleNamespace], Step], stop_at: int = -1, resume: str | None = None) -> Any:
    """Return what the step returns in each iteration; it is stopped and saved after one."""
    torch.manual_seed(0)
    model = Recurrent()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trainer = Engine(lambda engine, batch: None)
    made = SimpleNamespace(trainer=trainer, model=model, optimizer=optimizer)
    trainer._process_function = form(made)
    returned: list[Any] = []

    class Notes:
        def after_train_iter(self, runner: Any, outputs: Any) -> None:
            returned.append(outputs)
            if trainer.state.iteration == stop_at:
                runner.stop("stopped here")

    saves = {"type": "CheckpointHook", "save_best": False, "async_save": False}
    services = {"model": made.model, "optimizer": made.optimizer}
    attach_hooks(trainer, [saves, Notes()], work_dir=folder, resume=resume, **services)
    trainer.run([torch.full((3, 2), number / 10) for number in range(LENGTH)], max_epochs=EPOCHS)
    return returned


@pytest.mark.parametrize("form", FORMS)
def test_variables_of_the_script_go_on(form: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole = run(tmp_path / "whole", FORMS[form])
    begun: list[Any] = []
    folder = tmp_path / "stopped"
    caplog.set_level(logging.INFO, logger="ignite_hooks")
    for number, at in enumerate((2, 3, 5, 7, -1)):
        begun += run(folder, FORMS[form], at, resume="auto" if number else None)
    assert begun == whole
    assert "variables of the script are as in last.pth: " in caplog.text
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


def grows(made: SimpleNamespace) -> Step:
    memory, losses, clock = list[Any](), list[float](), 0.0
    batches, bank, cache = (number for number in range(99)), torch.zeros(2**23), dict[int, Any]()

    def plain(value: float) -> float:
        return value

    def halved(value: float) -> float:
        return value / 2

    shaped = plain

    def step(engine: Engine, batch: torch.Tensor) -> Any:
        nonlocal clock, shaped
        bank[next(batches)], shaped = shaped(1.0), halved
        cache[len(cache)] = object()
        memory.append(SimpleNamespace(batch=batch))
        losses.append(1.0)
        clock = time.time() if len(losses) % 2 else time.perf_counter()
        return len(losses) if clock else 0

    return step


def test_what_cannot_be_kept_is_named_and_logs_and_clocks_are_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(tmp_path, grows, 3)
    assert "memory" not in caplog.text
    caplog.clear()
    caplog.set_level(logging.INFO, logger="ignite_hooks")
    assert run(tmp_path, grows, resume="auto") == [1, 2, 3, 4, 5, 6]
    assert [record.getMessage() for record in caplog.records if record.levelno > logging.INFO] == [
        "last.pth does not hold bank, batches, memory, shaped of the script, which had changed: resuming is "
        "approximate; give what keeps it state_dict() and load_state_dict(), and pass it to attach_hooks()"
    ]
    assert "logs of the script, which only become longer, begin anew: losses" in caplog.text


def renamed(made: SimpleNamespace) -> Step:
    other = 0

    def step(engine: Engine, batch: torch.Tensor) -> Any:
        nonlocal other
        other += 1
        return other

    return step


def test_variables_that_are_gone_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(tmp_path, in_a_closure, 3)
    run(tmp_path, renamed, resume="auto")
    assert "last.pth holds variables of the script that are not there now: beta, hidden" in caplog.text


def test_attributes_of_installed_libraries_are_not_the_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    library = types.ModuleType("some_library")
    library.__file__ = "/usr/lib/python3/site-packages/some_library/__init__.py"
    monkeypatch.setitem(sys.modules, "some_library", library)
    kind = type("Client", (), {"__module__": "some_library.client", "__init__": lambda self: setattr(self, "n", 1)})
    client: Any = kind()

    def step(engine: Engine, batch: Any) -> int:
        return int(client.n)

    assert [one.place for one in variables({"step": step}, {}, {}, set())] == ["step.client"]
    own = [one.place for one in variables({"step": step, "own": client}, {}, {}, set())]
    assert "step.client.n" in own


@pytest.mark.parametrize(("freezes", "kept"), [(False, True), (True, False)])
def test_frozen_weights_are_those_of_the_hook_that_freezes(freezes: bool, kept: bool, tmp_path: Path) -> None:
    model = Rates()
    trainer = Engine(lambda engine, batch: str(model.head.bias.requires_grad_(True)))
    hooks = ["CheckpointHook", *([{"type": "FreezeHook", "patterns": ["head.weight"]}] if freezes else [])]
    attach_hooks(trainer, hooks, work_dir=tmp_path, model=model)
    trainer.run([0], max_epochs=1)
    saved = torch.load(tmp_path / "last.pth", weights_only=True).get("script", {}).get("objects", {})
    values = saved.get("trainer.step.variables", {}).get("state", {}).get("values", {})
    assert ("model.Rates.requires_grad" in values) is kept


def test_a_list_of_batches_that_a_script_shuffles_goes_on(tmp_path: Path) -> None:
    def shuffled(folder: Path, stop_at: int = -1, seed: int = 0) -> list[int]:
        random.seed(seed)
        data, seen = [torch.tensor(number) for number in range(4)], list[int]()

        def step(engine: Engine, batch: torch.Tensor) -> None:
            seen.append(int(batch))
            if engine.state.iteration == stop_at:
                runner.stop("stopped here")

        trainer = Engine(step)
        trainer.add_event_handler(Events.EPOCH_STARTED, lambda: random.shuffle(data))
        hook = {"type": "CheckpointHook", "save_best": False, "async_save": False}
        runner = attach_hooks(trainer, [hook], work_dir=folder, resume="auto", model=nn.Linear(1, 1))
        trainer.run(data, max_epochs=3)
        return seen

    whole = shuffled(tmp_path / "whole")
    for at in (4, 6):
        begun = shuffled(tmp_path / str(at), at)
        assert begun + shuffled(tmp_path / str(at), seed=1) == whole
