"""MMEngine configurations are read without being run."""

from __future__ import annotations

from pathlib import Path

import yaml

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


def test_changes_after_the_assignment_are_told(write: Write) -> None:
    text = text_of("custom_hooks = [dict(type='SyncNormHook')]\ncustom_hooks.append(3)\ncustom_hooks += [4]\n")
    assert "Not followed: line 2 changes custom_hooks once more" in text
    assert "Not followed: line 3 changes custom_hooks once more" in text
