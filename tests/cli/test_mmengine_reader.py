"""MMEngine configurations are read without being run."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import yaml

from ignite_hooks.cli.mmengine_reader import LARGEST, MMEngineReader, parse_module, plainly
from ignite_hooks.cli.mmengine_values import Unread
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
    assert "Not read: .._base_.default_runtime (read_base): it is not there: convert it too" in text


def test_nothing_in_the_file_is_run(write: Write) -> None:
    content = "import pathlib\npathlib.Path('ran').touch()\n"
    content += "custom_hooks = [dict(type='SyncNormHook', interval=open('ran', 'w'))]\n"
    assert "SyncNormHook" in text_of(content)
    assert not Path("ran").exists()


CHANGES = {
    "update": ("default_hooks.update(dict(checkpoint=dict(interval=4)))", {"interval": 4, "keep": [1]}),
    "update by name": ("default_hooks.update(checkpoint=dict(interval=4))", {"interval": 4, "keep": [1]}),
    "another type": ("default_hooks.update(checkpoint=dict(_delete_=True, a=1))", {"a": 1}),
    "an attribute": ("default_hooks.checkpoint = dict(a=1)", {"a": 1}),
    "an attribute inside": ("default_hooks.checkpoint.interval = 9", {"interval": 9, "keep": [1]}),
    "an item": ("default_hooks['checkpoint']['keep'][0] = 2", {"interval": 1, "keep": [2]}),
    "append": ("default_hooks.checkpoint.keep.append(2)", {"interval": 1, "keep": [1, 2]}),
    "extend": ("default_hooks.checkpoint.keep.extend([2])", {"interval": 1, "keep": [1, 2]}),
    "insert": ("default_hooks.checkpoint.keep.insert(0, 2)", {"interval": 1, "keep": [2, 1]}),
    "pop": ("default_hooks.checkpoint.keep.pop()", {"interval": 1, "keep": []}),
    "pop a key": ("default_hooks.checkpoint.pop('keep')", {"interval": 1}),
    "delete": ("del default_hooks.checkpoint.keep", {"interval": 1}),
    "setdefault": ("default_hooks.checkpoint.setdefault('interval', 3)", {"interval": 1, "keep": [1]}),
    "unpacking": ("default_hooks = dict(checkpoint=dict(**default_hooks['checkpoint'], a=1))", None),
}


@pytest.mark.parametrize(("change", "value"), CHANGES.values(), ids=CHANGES)
def test_changes_after_the_assignment_are_followed(change: str, value: object) -> None:
    text = f"default_hooks = dict(checkpoint=dict(interval=1, keep=[1]))\n{change}\n"
    reader = MMEngineReader(ast.parse(text))
    assert reader.values["default_hooks"]["checkpoint"] == (value or {"interval": 1, "keep": [1], "a": 1})
    assert reader.not_followed == []


@pytest.mark.parametrize(
    "change",
    [
        "custom_hooks.sort(key=f)",
        "custom_hooks[i] = 3",
        "if flag:\n    custom_hooks.append(3)",
        "custom_hooks -= 1",
        "_base_.custom_hooks.append(3)",
        "for hook in custom_hooks: hook.x = 3",
    ],
)
def test_changes_that_are_not_understood_are_reported(change: str, write: Write) -> None:
    text = text_of(f"custom_hooks = [dict(type='SyncNormHook')]\n{change}\n")
    assert "Not followed: line 2 changes custom_hooks once more" in text


def test_a_small_file_cannot_grow_without_bound() -> None:
    lines = ["a = [1, 1]", *("a = [a, a]" for _ in range(60))]
    with pytest.raises(ConfigError, match="too large once its names are replaced"):
        MMEngineReader(ast.parse("\n".join(lines)))


BASE = "default_hooks = dict(logger=dict(type='LoggerHook', interval=10), checkpoint=dict(type='CheckpointHook'))\n"


def folder(root: Path, files: dict[str, str]) -> MMEngineReader:
    """Write files, and read the last of them."""
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    path = root / list(files)[-1]
    return MMEngineReader(parse_module(str(path)), path)


OVER = "default_hooks = dict(logger=dict(interval=50))\n"
BASES = {
    "a file": {"base/b.py": BASE, "c/d.py": "_base_ = '../base/b.py'\n" + OVER},
    "files": {"b.py": BASE, "e.py": "x = 1\n", "d.py": "_base_ = ['b.py', 'e.py']\n" + OVER},
    "a base of a base": {"b.py": BASE, "m.py": "_base_ = 'b.py'\n", "d.py": "_base_ = ['./m.py']\n" + OVER},
    "another library": {"configs/b.py": BASE, "projects/d.py": "_base_ = ['mmdet::b.py']\n" + OVER},
    "what is changed": {"b.py": BASE, "d.py": "_base_ = 'b.py'\n_base_.default_hooks.logger.interval = 50\n"},
    "what is named": {
        "b.py": BASE + "every = 50\n",
        "d.py": "_base_ = 'b.py'\ndefault_hooks = dict(logger=dict(interval=_base_.every))\n",
    },
    "what is named in text": {
        "b.py": BASE + "every = 50\n",
        "d.py": "_base_ = 'b.py'\ndefault_hooks = dict(logger=dict(interval='{{_base_.every}}'))\n",
    },
    "what is named in braces": {
        "b.py": BASE + "every = 50\n",
        "d.py": "_base_ = 'b.py'\ndefault_hooks = dict(logger=dict(interval={{_base_.every}}))\n",
    },
    "an import": {
        "b.py": BASE,
        "d.py": "with read_base():\n    from .b import *\ndefault_hooks.update(dict(logger=dict(interval=50)))\n",
    },
    "an import of a name": {
        "base/b.py": BASE,
        "c/d.py": "with read_base():\n    from ..base.b import default_hooks\ndefault_hooks.logger.interval = 50\n",
    },
    "an import from the root": {
        "mm/configs/b.py": BASE,
        "mm/d.py": "with read_base():\n    from mm.configs.b import *\ndefault_hooks.logger.interval = 50\n",
    },
}


@pytest.mark.parametrize("files", BASES.values(), ids=BASES)
def test_base_files_are_followed(files: dict[str, str], tmp_path: Path) -> None:
    reader = folder(tmp_path, files)
    wanted = {"logger": {"type": "LoggerHook", "interval": 50}, "checkpoint": {"type": "CheckpointHook"}}
    assert reader.values["default_hooks"] == wanted
    assert reader.not_read == reader.not_followed == []


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"d.py": "_base_ = 'b.py'\n"}, "'b.py' (_base_): it is not there"),
        ({"d.py": "_base_ = '/etc/hostname'\n"}, "'/etc/hostname' (_base_): it is not there"),
        ({"b.txt": BASE, "d.py": "_base_ = 'b.txt'\n"}, "'b.txt' (_base_): it is not there"),
        ({"d.py": "_base_ = 'd.py'\n"}, "'d.py' (_base_): it builds on itself"),
        ({"b.py": "_base_ = 'd.py'\n", "d.py": "_base_ = 'b.py'\n"}, "'d.py' (_base_): it builds on itself"),
        ({"b.py": "a = (\n", "d.py": "_base_ = 'b.py'\n"}, "'b.py' (_base_): not valid Python"),
        ({"d.py": "_base_ = [f()]\n"}, "f() (_base_): it is not there"),
    ],
    ids=["missing", "absolute", "no Python file", "itself", "a circle", "not Python", "computed"],
)
def test_a_base_file_that_is_not_read_is_named(files: dict[str, str], why: str, tmp_path: Path) -> None:
    assert [what[: len(why)] for what in folder(tmp_path, files).not_read] == [why]


def test_a_hook_of_a_base_file_has_its_place(tmp_path: Path) -> None:
    reader = folder(tmp_path, {"b.py": "\ncustom_hooks = [dict(type='A')]\n", "d.py": "_base_ = 'b.py'\n"})
    assert reader.values["custom_hooks"][0].place == "line 2 of b.py"


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
    one, other, number = MMEngineReader(module).values["hooks"]
    assert (one, one.place) == ({"type": Unread("Hook")}, "line 3")
    assert (other, number) == ({"type": Unread("a.b")}, 3)


def test_a_value_is_shown_as_it_is_written() -> None:
    value = MMEngineReader(ast.parse("a = dict(b=[f(x), 'c'], **{280: None})\n")).values["a"]
    assert plainly(value) == "{'b': [f(x), 'c'], 280: None}"


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
