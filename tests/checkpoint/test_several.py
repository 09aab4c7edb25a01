"""Runs with several models, optimizers, schedulers and scalers: saved, resumed, and refused where they do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ignite_hooks import CheckpointError, ConfigError
from ignite_hooks.checkpoint.capture import weights_of
from ignite_hooks.checkpoint.restore import load_weights
from tests.checkpoint.runs import content, same
from tests.gan import LENGTH, Form, gan

pytestmark = pytest.mark.usefixtures("quick")

SAVING = {"type": "CheckpointHook", "by_epoch": False, "interval": 3, "max_keep_ckpts": -1}
NAMES = {"mapping": ["g", "d"], "list": ["0", "1"]}


@pytest.mark.parametrize("form", ["mapping", "list"])
@pytest.mark.parametrize("background", [True, False])
def test_a_resumed_run_of_several_has_the_same_bits(form: Form, background: bool, tmp_path: Path) -> None:
    saving = {**SAVING, "async_save": background}
    whole = gan(tmp_path / "whole", [saving], form)
    whole.run(3)
    first = gan(tmp_path / "cut", [saving], form, fail_at=8)
    with pytest.raises(ZeroDivisionError):
        first.run(3)
    torch.manual_seed(7)
    second = gan(tmp_path / "cut", [saving], form, resume="iter_3.pth")
    second.run(3)
    assert second.losses == whole.losses[3:]
    assert same(second.states(), whole.states())


@pytest.mark.parametrize("form", ["mapping", "list"])
def test_a_file_holds_each_of_several_by_name(form: Form, tmp_path: Path) -> None:
    run = gan(tmp_path, [SAVING], form)
    run.run(1)
    names, state = NAMES[form], content(tmp_path / "iter_3.pth")
    for key in ("state_dict", "optimizer", "scheduler"):
        assert list(state[key]) == names == state["meta"]["parts"][key]
    assert list(state["services"]["scaler"]) == names
    assert state["state_dict"][names[0]].keys() == run.g.state_dict().keys()
    assert state["optimizer"][names[1]]["param_groups"][0]["momentum"] == 0.9
    # The discriminator has stepped in the iteration, the generator gathers gradients for the next.
    assert list(state["gradients"]) == names[:1]


def test_one_object_is_saved_as_ever(tmp_path: Path) -> None:
    g = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(g.parameters(), 0.1)
    gan(tmp_path, [SAVING], model=g, optimizer=optimizer, scheduler=None, scaler=None).run(1)
    state = content(tmp_path / "iter_3.pth")
    assert list(state["state_dict"]) == ["weight", "bias"]
    assert list(state["optimizer"]) == ["state", "param_groups"]
    assert "parts" not in state["meta"]


ONE = nn.Linear(2, 2)


@pytest.mark.parametrize(
    ("saved", "now", "message"),
    [
        ({}, {"model": ONE}, r"several, model g, d, and this run has one model: pass model=\{\"g\": \.\.\., \"d\""),
        ({"model": ONE}, {}, r"one model, and this run has several, model g, d: pass model=\.\.\. to attach_hooks\(\)"),
        ({}, {"model": {"g": ONE, "e": ONE}}, "several, model g, d, and this run has several, model g, e: pass model="),
        ({}, {"model": [ONE, ONE]}, "several, model g, d, and this run has several, model 0, 1: pass model="),
        (
            {"model": [ONE, ONE]},
            {},
            r"several, model 0, 1, and this run has several, model g, d: pass model=\[\.\.\., ",
        ),
        ({}, {"optimizer": torch.optim.SGD(ONE.parameters(), 0.1)}, "several, optimizer g, d, .* has one optimizer"),
        ({}, {"scaler": torch.amp.GradScaler("cpu")}, "several, scaler g, d, and this run has one scaler: pass scaler"),
        ({"scaler": torch.amp.GradScaler("cpu")}, {}, "one scaler, and this run has several, scaler g, d: pass scaler"),
    ],
)
def test_one_for_several_is_an_error_that_names_both(
    saved: dict[str, Any], now: dict[str, Any], message: str, tmp_path: Path
) -> None:
    gan(tmp_path, [SAVING], **saved).run(1)
    again = gan(tmp_path, [SAVING], resume="auto", **now)
    before = [one.clone() for one in again.g.parameters()]
    with pytest.raises(CheckpointError, match=message) as caught:
        again.run(2)
    assert "last.pth does not fit this run: it holds " in str(caught.value)
    assert all(torch.equal(one, other) for one, other in zip(before, again.g.parameters(), strict=True))


def test_a_part_that_does_not_fit_is_named(tmp_path: Path) -> None:
    gan(tmp_path, [SAVING]).run(1)
    other = gan(tmp_path, [SAVING], resume="auto", model={"g": ONE, "d": ONE})
    with pytest.raises(CheckpointError, match="does not fit the model 'g' of this run"):
        other.run(2)


@pytest.mark.parametrize("form", ["mapping", "list"])
def test_a_changed_rate_of_one_of_several_is_applied_and_told(
    form: Form, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gan(tmp_path, [SAVING], form).run(1)
    again = gan(tmp_path, [SAVING], form, resume="auto")
    _, discriminator = again.optimizers
    discriminator.param_groups[0].update(lr=0.2, initial_lr=0.2)
    rates = []
    again.trainer.add_event_handler("GET_BATCH_STARTED", lambda: rates.append(discriminator.param_groups[0]["lr"]))
    again.run(2)
    assert rates[0] == pytest.approx(0.2 * 0.9**LENGTH)
    assert f"optimizer.{NAMES[form][1]}.param_groups[0].lr 0.1 -> 0.2" in caplog.text


def test_another_kind_of_one_of_several_optimizers_is_an_error(tmp_path: Path) -> None:
    run = gan(tmp_path, [SAVING])
    run.run(1)
    again = gan(tmp_path / "other", [SAVING])
    g, _ = again.optimizers
    other = gan(tmp_path, [SAVING], resume="auto", optimizer={"g": g, "d": torch.optim.Adam(again.d.parameters())})
    with pytest.raises(CheckpointError, match="holds the state of SGD, and this run has Adam"):
        other.run(2)


@pytest.mark.parametrize("name", ["model", "optimizer", "scheduler", "scaler"])
def test_names_that_no_file_can_hold_are_refused_before_the_run(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"{name}: a name of text without dots is needed, not 'a\.b'"):
        gan(tmp_path, [SAVING], **{name: {"a.b": ONE}})
    with pytest.raises(ConfigError, match=f"{name}: is empty: pass at least one"):
        gan(tmp_path, [SAVING], **{name: []})


def test_a_failure_of_several_models_is_saved_to_resume_from(tmp_path: Path) -> None:
    run = gan(tmp_path, [{**SAVING, "interval": 100}], fail_at=LENGTH + 2)
    with pytest.raises(ZeroDivisionError):
        run.run(2)
    assert content(tmp_path / "exception_iter_5.pth")["meta"]["iter"] == LENGTH + 1


def test_weights_of_several_models_are_taken_and_given_back(tmp_path: Path) -> None:
    run = gan(tmp_path, [])
    kept = {
        name: {key: value.clone() for key, value in part.items()}
        for name, part in weights_of(run.runner)["state_dict"].items()
    }
    run.run(1)
    assert not same(weights_of(run.runner)["state_dict"], kept)
    load_weights(run.runner, {"state_dict": kept})
    assert same(weights_of(run.runner)["state_dict"], kept)
    with pytest.raises(CheckpointError, match="one model, and this run has several, model g, d"):
        load_weights(run.runner, {"state_dict": kept["g"]})
