"""`foreign.py`: files of others are read, and nothing that they name is imported or run."""

from __future__ import annotations

import contextlib
import enum
import os
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ignite_hooks.checkpoint.foreign import Inert, read_foreign
from ignite_hooks.errors import CheckpointError


@pytest.fixture
def foreign(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """Return a module that is gone by the time when a file is read."""
    module = types.ModuleType("foreign_library")
    monkeypatch.setitem(sys.modules, "foreign_library", module)
    for base, name in ((object, "Buffer"), (dict, "Settings"), (enum.Enum, "Stage")):
        members: dict[str, Any] = {"RUN": 1} if base is enum.Enum else {}
        made = enum.Enum(name, members) if base is enum.Enum else type(name, (base,), {})
        made.__module__ = "foreign_library"
        setattr(module, name, made)
    return module


def test_unknown_classes_become_inert_and_are_not_imported(
    tmp_path: Path, foreign: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer = foreign.Buffer()
    buffer.history = np.arange(3.0)
    content = {
        "state_dict": {"w": torch.ones(2)},
        "hub": {"loss": buffer},
        "stage": foreign.Stage.RUN,
        "best": np.float64(0.5),
        "settings": foreign.Settings(lr=0.1),
    }
    torch.save(content, tmp_path / "theirs.pth")
    monkeypatch.delitem(sys.modules, "foreign_library")
    allowed = {*torch.serialization.get_safe_globals()}
    found = read_foreign(tmp_path / "theirs.pth")
    assert torch.equal(found["state_dict"]["w"], torch.ones(2))
    assert "foreign_library" not in sys.modules
    assert {*torch.serialization.get_safe_globals()} == allowed


class _Bomb:
    def __reduce__(self) -> Any:
        return os.system, ("touch exploded",)


class _Evil:
    def __reduce__(self) -> Any:
        return eval, ("open('exploded', 'w')",)


@pytest.mark.parametrize("bomb", [_Bomb(), _Evil()])
@pytest.mark.parametrize("new", [True, False])
def test_a_file_that_names_code_runs_none_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bomb: object, new: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"state_dict": {"w": torch.ones(1)}, "x": bomb}, "bomb.pth", _use_new_zipfile_serialization=new)
    # Either it is refused, or what it names is inert.
    with contextlib.suppress(CheckpointError):
        assert isinstance(read_foreign(Path("bomb.pth"))["x"], Inert)
    assert not Path("exploded").exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 and no more", b"\x80\x02}q\x00."])
def test_a_file_that_is_none_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "w.pth"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"w\.pth"):
        read_foreign(path)
    with pytest.raises(CheckpointError, match="cannot load"):
        read_foreign(tmp_path / "none.pth")


def test_safetensors_are_read(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    safetensors.save_file({"w": torch.arange(3.0)}, tmp_path / "w.safetensors")
    assert torch.equal(read_foreign(tmp_path / "w.safetensors")["w"], torch.arange(3.0))
