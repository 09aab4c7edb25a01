"""A package of hooks tests them with a fixture, and pays for it only there."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest

from ignite_hooks import BaseHook

NAME = "ignite_hooks.pytest_plugin"


class Good(BaseHook):
    interval = 2

    def after_train_iter(self, runner: Any) -> None:
        assert runner.global_step


class Bad(BaseHook):
    def before_run(self, model: Any) -> None:
        model.register_forward_hook(lambda *_: None)


def test_a_hook_is_checked_by_the_fixture(check_hook: Callable[..., None]) -> None:
    check_hook(Good, interval=3)
    with pytest.raises(AssertionError, match=r"Bad leaves something behind: .*_forward_hooks of the model"):
        check_hook(Bad)


def test_it_is_found_by_its_entry_point_and_loads_nothing() -> None:
    setup = ConfigParser()
    setup.read(Path(__file__).parents[1] / "setup.cfg", encoding="utf-8")
    assert f"ignite_hooks = {NAME}" in setup["options.entry_points"]["pytest11"].splitlines()
    code = f"import {NAME}, json, sys; print(json.dumps([*sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    loaded = {name for name in json.loads(done.stdout) if name.startswith(("ignite", "torch", "numpy"))}
    assert loaded <= {"ignite_hooks", "ignite_hooks.version", NAME}
