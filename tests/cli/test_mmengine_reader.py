"""MMEngine configurations are read without being run."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import yaml

from ignite_hooks.cli.mmengine_reader import LARGEST, MMEngineReader, ParsedHook, Unread, parse_module
from ignite_hooks.errors import ConfigError
from tests.cli.test_conversion import text_of
from tests.cli.tools import Write

IMPORTED = """\
from mmengine.config import read_base
from mmengine.hooks import CheckpointHook, LoggerHook
from mmengine.hooks.early_stopping_hook import EarlyStoppingHook as Stopping
from mmdet.engine import hooks
import mmengine.hooks as theirs

with read_base():
    from .._base_.default_runtime import *

default_hooks = dict(logger=dict(type=LoggerHook, interval=50), checkpoint=dict(type=CheckpointHook, max_keep_ckpts=3))
more: list = [dict(type=hooks.NumClassCheckHook)]
custom_hooks = [dict(type=theirs.SyncBuffersHook), dict(type=Stopping, monitor='acc')] + more
"""


def test_types_may_be_imported_names_and_lists_may_be_joined(write: Write) -> None:
    text = text_of(IMPORTED)
    found = yaml.safe_load(text)
    assert found["default_hooks"] == {"logger": {"interval": 50}, "checkpoint": {"max_keep_ckpts": 3}}
    assert [entry["type"] for entry in found["custom_hooks"]] == [
        "SyncBuffersHook",
        "EarlyStoppingHook",
        "NumClassCheckHook",
    ]
    assert "Not read: .._base_.default_runtime (read_base): convert these too" in text


def test_nothing_in_the_file_is_run(write: Write) -> None:
    content = "import pathlib\npathlib.Path('ran').touch()\n"
    content += "custom_hooks = [dict(type='SyncNormHook', interval=open('ran', 'w'))]\n"
    assert "SyncNormHook" in text_of(content)
    assert not Path("ran").exists()


def test_changes_after_the_assignment_are_reported(write: Write) -> None:
    text = text_of("custom_hooks = [dict(type='SyncNormHook')]\ncustom_hooks.append(3)\ncustom_hooks += [4]\n")
    assert "Not followed: line 2 changes custom_hooks once more" in text
    assert "Not followed: line 3 changes custom_hooks once more" in text


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("2 * 5 - 1", 9),
        ("-7 // 2", -4),
        ("above + 1", 4),
        ("[1] + [above]", [1, 3]),
        ("(1, 'a', None)", [1, "a", None]),
        ("dict(a=1, b={'c': True})", {"a": 1, "b": {"c": True}}),
        ("below", Unread("below")),
        ("len(above)", Unread("len(above)")),
        ("-'a'", Unread("-'a'")),
        ("1 / 0", Unread("1 / 0")),
        ("10 ** 9", Unread("10 ** 9")),
        (f"{LARGEST} * {LARGEST}", Unread(f"{LARGEST} * {LARGEST}")),
        ("[open('x')]", [Unread("open('x')")]),
    ],
)
def test_literals_and_arithmetic_are_read_and_nothing_else(written: str, value: object) -> None:
    reader = MMEngineReader(ast.parse(f"above = 3\nfound = {written}\nbelow = 1\n"))
    assert reader.values["found"] == value


def test_a_hook_has_its_line_and_its_imported_name() -> None:
    module = ast.parse("from theirs import Hook as H\n\nhooks = [dict(type=H), dict(type=a.b), 3]\n")
    reader = MMEngineReader(module)
    found = [reader.entry(node) for node in reader.items(reader.nodes["hooks"])]
    assert found == [ParsedHook(3, {"type": "Hook"}), ParsedHook(3, {"type": "a.b"}), None]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "mm.py: cannot be read: No such file"),
        ("a = 1\nb = (\n", "mm.py:2: not valid Python"),
        (" " * 1_000_001, "larger than 1,000,000 bytes"),
    ],
    ids=["missing", "not Python", "too large"],
)
def test_a_file_that_cannot_be_read_says_why(content: str | None, message: str, write: Write) -> None:
    if content is not None:
        write(content, "mm.py")
    with pytest.raises(ConfigError, match=message):
        parse_module("mm.py")
