"""Runs with several models, optimizers, schedulers and scalers are killed, and end with the same bits."""

from __future__ import annotations

import hashlib
import os
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from ignite_hooks.checkpoint.capture import weights_of
from tests.faults.test_exact_resume import drawn_deaths, flat, whole_life
from tests.faults.tools import drawn, times
from tests.gan import LENGTH, Form, gan

pytestmark = [pytest.mark.faults, pytest.mark.timeout(times(900, 3600))]

EPOCHS = 3
HOOKS = [
    {"type": "CheckpointHook", "by_epoch": False, "interval": 3, "max_keep_ckpts": 2},
    {"type": "EMAHook", "momentum": 0.8, "warm_up": 3},
    {"type": "GradClipHook", "max_norm": 0.5},
]


def script(folder: Path, form: Form) -> SimpleNamespace:
    """Return a GAN of which all that there are several of is passed in this form; it resumes with another seed."""
    made = gan(folder, HOOKS, form, seed=os.getpid() if any(folder.glob("*.pth")) else 0, resume="auto")

    def digest() -> str:
        found = hashlib.sha256()
        for value in flat([weights_of(made.runner), made.states(), made.losses[-1:]]):
            found.update(value)
        return found.hexdigest()

    return SimpleNamespace(trainer=made.trainer, run=lambda: made.run(EPOCHS), digest=digest, length=LENGTH * EPOCHS)


@pytest.fixture(scope="module", autouse=True)
def imported(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Import what a script imports late, once, before the lives are forked."""
    script(tmp_path_factory.mktemp("imported"), "mapping").run()


@pytest.mark.parametrize("form", ["mapping", "list"])
def test_a_killed_run_of_several_ends_with_the_same_bits(form: Form, tmp_path: Path) -> None:
    draw, make = drawn(), partial(script, form=form)
    wanted, _ = whole_life(tmp_path / "whole", make, [])
    for number in range(times(3, 50)):
        deaths = drawn_deaths(draw)
        found, began = whole_life(tmp_path / str(number), make, deaths)
        assert found == wanted, (deaths, began)
        assert any(began), (deaths, began)
