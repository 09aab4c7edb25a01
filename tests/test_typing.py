"""What type checkers and editors see of the package: every hook is a class with its settings."""

from __future__ import annotations

import ast
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ignite_hooks
from ignite_hooks import EMAHook
from ignite_hooks.registry import HOOKS
from tests.language_server import LanguageServer

ROOT = Path(__file__).parents[1]

USER_CODE = """
from ignite.engine import Engine

from ignite_hooks import BaseHook, CheckpointHook, EMAHook, EvalHook, LoggerHook, LogHook, Priority, attach_hooks
from ignite_hooks import EMAHok  # wrong
from ignite_hooks.hooks.base_hook import settings


@settings
class Snapshot(BaseHook):
    every_layer: bool = False


trainer = Engine(lambda engine, batch: batch)

EMAHook(momentm=0.999)  # wrong
EMAHook(momentum=[0.999])  # wrong
EMAHook(0.999)  # wrong
EMAHook(sync="brodcast")  # wrong
LoggerHook(on_error="ignore")  # wrong
CheckpointHook(priority=Priority.LOWST)  # wrong
Snapshot(evry_layer=True)  # wrong
attach_hooks(trainer, resume=3)  # wrong
attach_hooks(trainer).save_checkpont()  # wrong
attach_hooks(trainer).epoch.upper()  # wrong

momentum: float = EMAHook({"momentum": 0.99}).momentum
EMAHook(momentum=0.99, priority="low", on_error="warn", name="mine", begin=3, every="50 iter")
EvalHook(interval=2, priority={"after_epoch": 20}, start=1)
Snapshot(every_layer=True, interval=3, by_epoch=True)
LogHook(interval=3)
"""
PYRIGHT = {"typeCheckingMode": "standard", "pythonVersion": "3.11", "extraPaths": [str(ROOT)]}
WRONG = [number for number, line in enumerate(USER_CODE.splitlines(), 1) if line.endswith("# wrong")]


def seen_by_type_checkers() -> dict[str, str]:
    """Return the names that the package imports under TYPE_CHECKING, and from which modules."""
    tree = ast.parse(Path(ignite_hooks.__file__).read_text("utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    found = {}
    for node in block.body:
        if isinstance(node, ast.ImportFrom):
            found |= {alias.name: str(node.module) for alias in node.names}
        elif isinstance(node, ast.Assign):
            found[ast.unparse(node.targets[0])] = ast.unparse(node.value)
    return found


def test_type_checkers_see_every_hook_where_it_is() -> None:
    hooks = {name: module for name, module in seen_by_type_checkers().items() if ".hooks." in module}
    del hooks["BaseHook"], hooks["Hook"]
    assert hooks == HOOKS._modules
    aliases = {name: target for name, target in seen_by_type_checkers().items() if "." not in target}
    assert aliases == HOOKS._aliases


def test_all_names_every_public_name() -> None:
    assert sorted(ignite_hooks.__all__) == sorted({*seen_by_type_checkers(), "__version__"})
    assert sorted(seen_by_type_checkers()) == sorted(
        {*ignite_hooks._HOME, *HOOKS._modules, *HOOKS._aliases} - {"testing"}
    )


@pytest.mark.slow
def test_mypy_finds_each_mistake_and_nothing_else(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "user_code.py").write_text(USER_CODE)
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", str(tmp_path / "user_code.py")]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert lines(r"user_code\.py:(\d+): error", said.stdout) == WRONG, said


@pytest.mark.slow
def test_basedpyright_finds_each_mistake_and_nothing_else(tmp_path: Path) -> None:
    pytest.importorskip("basedpyright")
    (tmp_path / "user_code.py").write_text(USER_CODE)
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(PYRIGHT))
    command = [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable, "user_code.py"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert lines(r"user_code\.py:(\d+):\d+ - error", said.stdout) == WRONG, said


@pytest.mark.slow
def test_a_language_server_completes_the_settings_of_hooks_and_their_values(tmp_path: Path) -> None:
    pytest.importorskip("basedpyright")
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(PYRIGHT))
    begin = "from ignite_hooks import EMAHook\n\n"
    with LanguageServer(tmp_path) as server:
        offered = server.completions("settings.py", begin + "EMAHook(")
        assert {f"{name}=" for name in inspect.signature(EMAHook).parameters} <= set(offered)
        assert "switch=" in server.completions("begun.py", begin + "EMAHook(momentum=0.99, sw")
        values = [label.strip("'") for label in server.completions("values.py", begin + "EMAHook(sync=")]
        assert {"broadcast", "average", "none"} <= set(values)
        assert "save_checkpoint" in server.completions("runner.py", "import ignite_hooks as i\n\ni.Runner().sa")


def lines(pattern: str, text: str) -> list[int]:
    """Return the numbers of the lines with an error, in order."""
    return sorted({int(number) for number in re.findall(pattern, text)})
