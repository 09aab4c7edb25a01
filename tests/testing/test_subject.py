"""The hook that is checked, and the script it is attached to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest
from annotated_types import Ge
from ignite.engine import Events

from ignite_hooks import BaseHook
from ignite_hooks.hooks.base_hook import OnError, settings
from ignite_hooks.testing.observations import compare, traces
from ignite_hooks.testing.subject import Script, Subject, end_early


@settings
class Sized(BaseHook):
    """Has a setting.

    Args:
        size: A number.
    """

    size: Annotated[int, Ge(1)] = 1


class Warns(BaseHook):
    on_error: OnError = "warn"

    def after_epoch(self) -> None:
        raise RuntimeError("only logged")


def test_a_script_evaluates_after_every_epoch() -> None:
    script, evaluations = Script(), []
    script.run.evaluator.add_event_handler(
        Events.COMPLETED, lambda: evaluations.append(script.run.trainer.state.iteration)
    )
    script.train()
    assert evaluations == [3, 6]


def test_restored_weights_train_to_the_same_ones() -> None:
    script = Script()
    before = script.weights()
    script.train()
    trained = script.weights()
    assert compare(before, trained) != ""
    script.restore(before)
    assert compare(before, script.weights()) == ""
    script.train()
    assert compare(trained, script.weights()) == ""


@pytest.mark.parametrize("error", [None, ValueError("of the step")])
def test_a_run_ends_early_in_the_middle_of_an_epoch(error: ValueError | None) -> None:
    script = Script()
    end_early(script.run.trainer, error)
    if error is None:
        script.train()
    else:
        with pytest.raises(ValueError, match="of the step"):
            script.train()
    assert (script.run.trainer.state.epoch, script.run.trainer.state.iteration) == (2, 5)


def test_a_hook_is_attached_only_within_its_context() -> None:
    script = Script()
    before = traces(script.run)
    with Subject(Sized, {}, {"size": 2}).attached(script) as scene:
        folder = Path(scene.runner.work_dir)
        scene.train()
        script.run.model.train()
        assert isinstance(scene.hook, Sized)
        assert (scene.called, scene.hook.size) == ("Sized", 2)
        assert folder.is_dir()
    assert not folder.exists()
    assert traces(script.run) == before


@pytest.mark.parametrize(
    ("make", "given", "message"),
    [
        (Sized, {"size": 0}, "Sized cannot be built: .*size.*not 0"),
        (Sized, {"sise": 1}, "Sized cannot be built: .*did you mean 'size'"),
    ],
)
def test_settings_that_do_not_fit_are_a_broken_promise(make: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        Subject(make, {}, given).build(given)


def test_a_failure_that_is_only_logged_counts() -> None:
    with (
        Subject(Warns, {}, {}).attached(Script()) as scene,
        pytest.raises(AssertionError, match=r"^Warns fails where nothing is wrong: .*only logged"),
    ):
        scene.train()
