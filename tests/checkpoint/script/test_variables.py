"""`variables.py`: what a step keeps in variables goes on after a resume, and is told; logs and clocks are not."""

from __future__ import annotations

import logging
import sys
import time
import types
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from ignite.engine import Engine, Events
from torch import nn

from ignite_hooks import attach_hooks
from ignite_hooks.checkpoint.script.variables import CANNOT, as_before, mark_of, plain_of, variables

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


FORMS = {form.__name__: form for form in (in_a_closure, in_globals, in_an_object, in_the_model)}


def run(folder: Path, form: Callable[[SimpleNamespace], Step], stop_at: int = -1, resume: str | None = None) -> Any:
    """Return what the step returns in each iteration; it is stopped and saved after one."""
    torch.manual_seed(0)
    model = Recurrent()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trainer = Engine(lambda engine, batch: None)
    trainer._process_function = form(SimpleNamespace(trainer=trainer, model=model, optimizer=optimizer))
    returned: list[Any] = []

    class Notes:
        def after_train_iter(self, runner: Any, outputs: Any) -> None:
            returned.append(outputs)
            if trainer.state.iteration == stop_at:
                runner.stop("stopped here")

    saves = {"type": "CheckpointHook", "save_best": False, "async_save": False}
    services = {"model": model, "optimizer": optimizer}
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

    def step(engine: Engine, batch: torch.Tensor) -> Any:
        nonlocal clock
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
    assert run(tmp_path, grows, resume="auto") == [1, 2, 3, 4, 5, 6]
    assert [record.getMessage() for record in caplog.records if record.levelno > logging.INFO] == [
        "last.pth does not hold memory of the script, which had changed: resuming is approximate; give what keeps it "
        "state_dict() and load_state_dict(), and pass it to attach_hooks()"
    ]


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


@pytest.mark.parametrize(
    "value",
    [1, 0.5, True, None, "text", (1, (2.0, None)), [1, 2], deque([1, 2]), numpy.float32(0.5)],
    ids=str,
)
def test_plain_values_come_back_as_they_were(value: Any) -> None:
    again = as_before(plain_of(value), None)
    assert again == value
    assert type(again) is (float if isinstance(value, numpy.generic) else type(value))


@pytest.mark.parametrize(
    "value",
    [object(), nn.Parameter(torch.zeros(1)), time.time(), torch.zeros(2**23), [object()], {"a": 1}],
    ids=lambda value: type(value).__name__,
)
def test_other_values_are_not_kept(value: Any) -> None:
    assert plain_of(value) is CANNOT


def test_a_tensor_that_points_into_the_model_is_not_copied() -> None:
    model = nn.Linear(2, 2)
    assert plain_of(model.weight.detach()[0], {model.weight.untyped_storage().data_ptr()}) is CANNOT


def test_a_tensor_is_changed_where_it_is_another_or_was_written_to() -> None:
    tensor = torch.zeros(2)
    mark = mark_of(tensor)
    assert mark.is_of(tensor)
    assert not mark.is_of(torch.zeros(2))
    tensor.add_(1)
    assert not mark.is_of(tensor)
