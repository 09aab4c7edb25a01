"""``check_hook`` finds every broken promise, and passes hooks that keep theirs."""

from __future__ import annotations

import logging
import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
import torch
from annotated_types import Ge
from ignite.engine import Engine, Events

from ignite_hooks import BaseHook, scheduled
from ignite_hooks.checkpoint.rng_state import random_state
from ignite_hooks.engine.dispatch import Dispatcher
from ignite_hooks.hooks.base_hook import settings
from ignite_hooks.testing import (
    RecordingHook,
    check_hook,
    promises,
)


@dataclass
class Count:
    calls: int = 0


@settings
class Counter(BaseHook):
    """Counts epochs."""

    interval: Annotated[int, Ge(1)] = 1
    sizes: tuple[int, ...] = (1, 2)
    on_error: Any = "warn"
    state: Count = field(init=False, default_factory=Count)

    def before_run(self, runner: Any) -> None:
        if runner.global_step == 0:
            self.state = Count()

    @scheduled
    def after_train_iter(self, outputs: Any) -> None:
        float(outputs)

    @scheduled
    def after_epoch(self) -> None:
        self.state.calls += 1


class WithConfig(BaseHook):
    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        self.metrics = config.get("metrics", ["loss"])

    def after_epoch(self, runner: Any) -> None:
        self.metrics[0]


class Plain:
    """Not a BaseHook at all."""

    def __init__(self, prefix: str = "train") -> None:
        self.prefix = prefix

    def after_train_iter(self, trainer: Engine, outputs: Any) -> None: ...


class AsksForAService(BaseHook):
    def before_run(self, runner: Any, mlflow: Any) -> None:
        assert mlflow == "the service"


class Noise(BaseHook):
    """Changes training, and says so."""

    changes_training = True

    def before_train_iter(self, model: torch.nn.Module) -> None:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter))


def test_a_hook_that_keeps_its_promises_passes() -> None:
    assert check_hook(Counter) is None  # type: ignore[func-returns-value]
    check_hook(Counter, interval=2, sizes=(3,), on_error="disable", priority="HIGH")
    check_hook(Counter, every="1 iter")


def test_hooks_of_every_make_can_be_checked() -> None:
    check_hook(WithConfig, metrics=["loss", "accuracy"])
    check_hook(Plain, prefix="val")
    check_hook(lambda: Counter(interval=3))
    check_hook(RecordingHook, points=["before_epoch"])


def test_a_hook_can_be_given_the_services_it_asks_for() -> None:
    check_hook(AsksForAService, {"mlflow": "the service"})
    with pytest.raises(AssertionError, match=r"AsksForAService cannot run: .*'mlflow'"):
        check_hook(AsksForAService)


def test_a_hook_that_says_it_changes_training_may() -> None:
    check_hook(Noise)


def test_checking_leaves_random_state_threads_and_stderr_alone(capfd: pytest.CaptureFixture[str]) -> None:
    before, threads = random_state(), torch.get_num_threads()
    with pytest.raises(AssertionError):
        check_hook(DrawsFromTorch)
    check_hook(Counter)
    assert torch.equal(before["torch"], random_state()["torch"])
    assert torch.get_num_threads() == threads
    assert capfd.readouterr() == ("", "")


# -- hooks that break one --------------------------------------------------------------------------------------

LEFT = ExitStack()


@pytest.fixture
def tidy() -> Iterator[None]:
    """Clean up what the broken hooks of a test have left behind."""
    yield
    LEFT.pop_all().close()


Check = Callable[..., None]
BROKEN: list[tuple[type, Check, str, dict[str, Any]]] = []


def broken(check: Check, message: str, **given: Any) -> Callable[[type], type]:
    """Note which check has to find what is wrong with a class, and its words."""

    def note(cls: type) -> type:
        BROKEN.append((cls, check, message, given))
        return cls

    return note


@broken(promises.builds_again_from_its_settings, "cannot be built: .*interval.*not 0", interval=0)
@settings
class RefusesItsSettings(BaseHook):
    interval: Annotated[int, Ge(1)] = 1


@broken(promises.builds_again_from_its_settings, "cannot be built: .*interval")
@settings
class RefusesItsDefault(BaseHook):
    interval: Annotated[int, Ge(1)] = 0


@broken(promises.builds_again_from_its_settings, "cannot be built: .*on_error.*'ignore'")
class UnknownOnError(BaseHook):
    on_error = "ignore"  # type: ignore[assignment]


@broken(promises.builds_again_from_its_settings, "is another when built from its own settings: size was 2 and is 4")
@settings
class GrowsEachTimeItIsBuilt(BaseHook):
    size: int = 1

    def __post_init__(self) -> None:
        self.size *= 2


@broken(promises.keeps_its_settings_in_a_run, "cannot run: .*needs the service 'scheduler'")
class AsksForWhatIsNotThere(BaseHook):
    def after_epoch(self, scheduler: Any) -> None: ...


@broken(promises.keeps_its_settings_in_a_run, "fails where nothing is wrong: .*ZeroDivisionError")
class Fails(BaseHook):
    def after_epoch(self) -> None:
        1 / 0


@broken(promises.keeps_its_settings_in_a_run, "fails where nothing is wrong: .*ZeroDivisionError")
class FailsWithAWarning(Fails):
    on_error = "warn"


@broken(promises.keeps_its_settings_in_a_run, "changes its settings during a run: patience was 3 and is 2")
@settings
class CountsInASetting(BaseHook):
    patience: int = 3

    def after_run(self) -> None:
        self.patience -= 1


@broken(
    promises.keeps_its_settings_in_a_run,
    r"changes its settings during a run: metrics\[1\] was nothing and is 'loss'",
    metrics=["accuracy"],
)
@settings
class AppendsToASetting(BaseHook):
    metrics: Any = None

    def after_run(self) -> None:
        self.metrics.append("loss")


@broken(promises.keeps_its_settings_in_a_run, "changes its settings during a run: save_best was True and is False")
@settings
class SwitchesASettingOffWithoutMetrics(BaseHook):
    save_best: bool = True

    def after_val_epoch(self, metrics: Any) -> None:
        if "accuracy" not in metrics:
            self.save_best = False


@broken(
    promises.leaves_engines_and_model_as_they_were,
    "leaves something behind: a handler of EPOCH_COMPLETED on the trainer",
)
class LeavesAHandler(BaseHook):
    def before_run(self, trainer: Engine) -> None:
        trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: None)


@broken(
    promises.leaves_engines_and_model_as_they_were,
    "leaves something behind: a handler of EPOCH_COMPLETED on the evaluator",
)
class LeavesAHandlerOnTheEvaluator(BaseHook):
    def before_run(self, runner: Any) -> None:
        runner.evaluators["val"].add_event_handler(Events.EPOCH_COMPLETED, lambda: None)


@broken(promises.leaves_engines_and_model_as_they_were, "leaves something behind: the event my_event of the evaluator")
class LeavesAnEvent(BaseHook):
    def before_run(self) -> None:
        self.runner.evaluators["val"].register_events("my_event")


@broken(
    promises.leaves_engines_and_model_as_they_were, "leaves something behind: the attribute 'my_state' of the trainer"
)
class LeavesAnAttribute(BaseHook):
    def before_run(self, trainer: Engine) -> None:
        trainer.my_state = 1  # type: ignore[attr-defined]


@broken(promises.leaves_engines_and_model_as_they_were, "leaves something behind: the step .* of the trainer")
class WrapsTheStep(BaseHook):
    def before_run(self, trainer: Engine) -> None:
        step = trainer._process_function
        trainer._process_function = lambda engine, batch: step(engine, batch)


@broken(
    promises.leaves_engines_and_model_as_they_were, "leaves something behind: an entry of _forward_hooks of the model"
)
class LeavesAForwardHook(BaseHook):
    def attached(self) -> None:
        self.runner.model.register_forward_hook(lambda *_: None)


@broken(promises.leaves_engines_and_model_as_they_were, "leaves something behind: the mode training=True of the model")
class LeavesTheModelInAnotherMode(BaseHook):
    def after_run(self, model: torch.nn.Module) -> None:
        model.train(not model.training)


@broken(
    promises.leaves_engines_and_model_as_they_were, "leaves something behind: the attribute 'step' of the optimizer"
)
class WrapsTheOptimizer(BaseHook):
    def before_run(self, optimizer: Any) -> None:
        optimizer.step = optimizer.step


@broken(
    promises.leaves_engines_and_model_as_they_were, "takes something away: a handler of EPOCH_COMPLETED on the trainer"
)
class TakesAHandlerAway(BaseHook):
    def after_run(self, trainer: Engine) -> None:
        trainer._event_handlers[Events.EPOCH_COMPLETED] = []


@broken(promises.does_not_change_training, "changes training: events.* was .* and is ")
class ChangesWeights(BaseHook):
    def after_train_iter(self, model: torch.nn.Linear) -> None:
        with torch.no_grad():
            model.bias.add_(1)


@broken(promises.does_not_change_training, "changes training: model.bias has other values")
class ChangesWeightsAtTheEnd(BaseHook):
    def after_run(self, model: torch.nn.Linear) -> None:
        with torch.no_grad():
            model.bias.add_(1)


@broken(promises.does_not_change_training, "changes training: optimizer.param_groups.*lr was 0.1 and is 0.2")
class ChangesTheLearningRateAtTheEnd(BaseHook):
    def after_run(self, optimizer: Any) -> None:
        optimizer.param_groups[0]["lr"] = 0.2


@broken(
    promises.does_not_change_training,
    "changes training: events.* was nothing and is 'GET_BATCH_STARTED at epoch 2, iteration 6",
)
class FiresAnEventOfIgnite(BaseHook):
    def after_run(self, trainer: Engine) -> None:
        trainer.fire_event(Events.GET_BATCH_STARTED)


@broken(
    promises.does_not_change_training,
    "changes training: events.* was 'EPOCH_STARTED .*last event EPOCH_STARTED' and is .*last event STARTED'",
)
class OverwritesTheLastEvent(BaseHook):
    def before_epoch(self, trainer: Engine) -> None:
        trainer.last_event_name = Events.STARTED


@broken(promises.does_not_change_training, "changes training: events")
class StopsTheRun(BaseHook):
    def after_epoch(self, runner: Any) -> None:
        runner.stop("enough")


@broken(promises.does_not_change_training, "changes the global random state of torch")
class DrawsFromTorch(BaseHook):
    def before_train(self) -> None:
        torch.rand(1)


@broken(promises.does_not_change_training, "changes the global random state of python")
class DrawsFromPython(BaseHook):
    def cleanup(self) -> None:
        random.random()


@broken(promises.does_not_change_training, "changes the global random state of numpy")
class DrawsFromNumpy(BaseHook):
    def cleanup(self) -> None:
        np.random.rand()


@broken(promises.has_plain_state_that_comes_back, "has a state that cannot be saved: thing: .*object")
class HasAStateThatIsNotPlain(BaseHook):
    def state_dict(self) -> dict[str, Any]:
        return {"thing": object()}


@broken(promises.has_plain_state_that_comes_back, "does not take up its own state: count was 2 and is 0")
class DoesNotLoadItsState(BaseHook):
    def before_run(self) -> None:
        self.count = 0

    def after_epoch(self) -> None:
        self.count += 1

    def state_dict(self) -> dict[str, Any]:
        return {"count": getattr(self, "count", 0)}

    def load_state_dict(self, state: Any) -> None: ...


@broken(
    promises.makes_a_second_run_as_the_first, "begins a second run with the state of the first: calls was 0 and is 2"
)
@settings
class GoesOnCounting(BaseHook):
    state: Count = field(init=False, default_factory=Count)

    def after_epoch(self) -> None:
        self.state.calls += 1


@broken(
    promises.makes_a_second_run_as_the_first, "makes a second run go otherwise than the first: .*before_save_checkpoint"
)
class SavesOnce(BaseHook):
    saved = False

    def after_epoch(self, runner: Any) -> None:
        if not self.saved:
            self.saved = True
            runner.call_hook("before_save_checkpoint", checkpoint={})


@broken(
    promises.is_cleaned_up_however_a_run_ends,
    "leaves something behind when a run ends by completion: the thread 'forgotten'",
)
class LeavesAThread(BaseHook):
    def before_run(self) -> None:
        done = threading.Event()
        thread = threading.Thread(target=done.wait, name="forgotten")
        thread.start()
        LEFT.callback(thread.join)
        LEFT.callback(done.set)


@broken(
    promises.is_cleaned_up_however_a_run_ends,
    "leaves something behind when a run ends by an exception: the open file .*setup.cfg",
)
class ClosesItsFileOnlyAfterAGoodRun(BaseHook):
    def before_run(self) -> None:
        self.file = Path("setup.cfg").open()  # noqa: SIM115
        LEFT.callback(self.file.close)

    def after_run(self) -> None:
        self.file.close()


@broken(
    promises.is_cleaned_up_however_a_run_ends,
    "leaves something behind when a run ends by terminate: .*NullHandler.* of logger 'some.logger'",
)
class LeavesALoggingHandlerWhenTerminated(BaseHook):
    def before_run(self) -> None:
        self.handler, logger = logging.NullHandler(), logging.getLogger("some.logger")
        logger.addHandler(self.handler)
        LEFT.callback(logger.removeHandler, self.handler)

    def after_run(self, runner: Any) -> None:
        if runner.state.epoch_complete:
            logging.getLogger("some.logger").removeHandler(self.handler)


@broken(
    promises.is_cleaned_up_however_a_run_ends,
    "leaves something behind when a run ends by Ctrl-C: the handler .*of SIGTERM",
)
class LeavesASignalHandlerAfterCtrlC(BaseHook):
    def on_exception(self, exception: BaseException) -> None:
        if isinstance(exception, KeyboardInterrupt):
            LEFT.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, signal.SIG_IGN))


@broken(promises.is_cleaned_up_however_a_run_ends, "is cleaned up 0 times, not once, when a run ends by completion")
class CleansUpOnSchedule(BaseHook):
    interval = 1000

    @scheduled
    def cleanup(self) -> None: ...


@broken(promises.is_cleaned_up_however_a_run_ends, "fails when a run ends by an exception: .*AttributeError.*'results'")
class CleansUpOnlyWhatAGoodRunMade(BaseHook):
    def after_run(self) -> None:
        self.results = 1

    def cleanup(self) -> None:
        del self.results


@broken(promises.is_cleaned_up_however_a_run_ends, "keeps an exception of the step from leaving trainer.run")
class ListensToExceptions(BaseHook):
    def before_run(self, trainer: Engine) -> None:
        trainer.add_event_handler(Events.EXCEPTION_RAISED, lambda error: None)

    def cleanup(self, trainer: Engine) -> None:
        del trainer._event_handlers[Events.EXCEPTION_RAISED]


@broken(
    promises.never_waits_for_the_device_when_not_due,
    "waits for the device in after_train_iter in iterations where it is not due",
)
class WaitsEveryIteration(BaseHook):
    total = 0.0

    def before_run(self) -> None:
        self.total = 0.0

    def after_train_iter(self, outputs: Any) -> None:
        self.total += float(outputs)

    @scheduled
    def after_step(self) -> None:
        assert self.total


@broken(
    promises.never_waits_for_the_device_when_not_due,
    "waits for the device in before_train_iter in iterations where it is not due",
)
class LooksIntoTheBatch(BaseHook):
    def before_train_iter(self, data_batch: Any) -> None:
        data_batch[0].isnan().nonzero()

    @scheduled
    def after_epoch(self) -> None: ...


@broken(
    promises.never_waits_for_the_device_when_not_due,
    "waits for the device in should_trigger in iterations where it is not due",
)
class WaitsToDecide(BaseHook):
    def should_trigger(self, step: int) -> bool:
        return self.runner.metrics["loss"] > 1e9  # type: ignore[no-any-return]

    def after_train_iter(self) -> None: ...


@broken(
    promises.never_waits_for_the_device_when_not_due, "fails in after_train_iter on tensors without values: TypeError"
)
class WritesANumber(BaseHook):
    def after_train_iter(self, outputs: Any) -> None:
        assert f"{outputs:.3f}"

    @scheduled
    def after_step(self) -> None: ...


@broken(
    promises.does_not_end_training_by_failing_if_it_only_observes,
    "ends the training by a failure, though its on_error is warn",
)
class CallsItselfFromAHandlerOfItsOwn(BaseHook):
    on_error = "warn"

    def attached(self) -> None:
        self.runner.trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: self.after_epoch())

    def after_epoch(self) -> None: ...


@pytest.mark.usefixtures("tidy")
@pytest.mark.parametrize(
    ("cls", "check", "message", "given"), [pytest.param(*case, id=case[0].__name__) for case in BROKEN]
)
def test_a_broken_promise_is_found_and_named(
    cls: type, check: Check, message: str, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(promises, "CHECKS", (check,))
    with pytest.raises(AssertionError, match=f"^{cls.__name__} {message}"):
        check_hook(cls, **given)


def test_every_check_has_a_hook_that_fails_it() -> None:
    assert {check for _, check, *_ in BROKEN} == set(promises.CHECKS)


@pytest.mark.usefixtures("tidy")
@pytest.mark.parametrize("cls", [RefusesItsDefault, DoesNotLoadItsState, CallsItselfFromAHandlerOfItsOwn])
def test_check_hook_makes_every_check(cls: type) -> None:
    with pytest.raises(AssertionError):
        check_hook(cls)


def test_an_observer_whose_failure_ends_training_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_always(self: Dispatcher, call: Any, error: Exception, *, quietly: bool = False) -> None:
        raise error

    monkeypatch.setattr(Dispatcher, "fail", raise_always)
    with pytest.raises(AssertionError, match="ends the training by a failure"):
        check_hook(Counter)


def test_ctrl_c_of_the_user_is_no_broken_promise() -> None:
    class Interrupted(BaseHook):
        def after_epoch(self) -> None:
            raise KeyboardInterrupt("of the user")

    with pytest.raises(KeyboardInterrupt, match="of the user"):
        check_hook(Interrupted)
