from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ignite_hooks.errors import ExportError
from ignite_hooks.export.weights import (
    left_out_of,
    read_safetensors,
    read_slim,
    weights_of,
    write_safetensors,
    write_slim,
)
from tests.export.models import Tied


def test_tied_weights_are_written_once_and_load_by_the_real_library(tmp_path: Path) -> None:
    from safetensors import safe_open
    from safetensors.torch import load_model

    model, path = Tied(), tmp_path / "model.safetensors"
    tensors, tied = weights_of(model.state_dict(), None)
    write_safetensors(path, tensors, tied, {"labels": ["a", "b"], "run": "r1"})
    with safe_open(str(path), framework="pt") as file:
        assert list(file.keys()) == ["embedding.weight"]
        assert file.metadata() == {
            "format": "pt",
            "labels": '["a", "b"]',
            "run": "r1",
            "head.weight": "embedding.weight",
        }
    other = Tied()
    assert load_model(other, path) == (set(), [])
    assert torch.equal(other.head.weight, model.head.weight)
    assert read_safetensors(path).keys() == model.state_dict().keys()


def test_views_of_one_memory_that_differ_are_kept_apart(tmp_path: Path) -> None:
    whole = torch.arange(6.0)
    state = {"all": whole, "half": whole[:3], "across": whole.view(2, 3).t()}
    tensors, tied = weights_of(state, None)
    write_safetensors(tmp_path / "x.safetensors", tensors, tied, {})
    assert not tied
    found = read_safetensors(tmp_path / "x.safetensors")
    assert all(torch.equal(found[name], state[name]) for name in state)


def test_a_slim_file_has_plain_types_only(tmp_path: Path) -> None:
    tensors, tied = weights_of(Tied().state_dict(), torch.float16)
    write_slim(tmp_path / "x.pth", tensors, tied, {"labels": ("a",)})
    loaded = torch.load(tmp_path / "x.pth", weights_only=True)
    assert loaded["meta"] == {"labels": ["a"]}
    assert {one.dtype for one in read_slim(tmp_path / "x.pth").values()} == {torch.float16}
    assert loaded["state_dict"]["head.weight"].data_ptr() == loaded["state_dict"]["embedding.weight"].data_ptr()


def test_integers_keep_their_type_and_what_is_no_tensor_is_told() -> None:
    state = {"count": torch.tensor(3), "extra": {"a": 1}}
    tensors, _ = weights_of(state, torch.float16)
    assert tensors["count"].dtype == torch.int64
    assert left_out_of(state) == ["extra"]


def test_tensors_without_ordinary_content_are_refused() -> None:
    for one in (torch.empty(2, device="meta"), torch.eye(2).to_sparse()):
        with pytest.raises(ExportError, match="layer is no ordinary tensor"):
            weights_of({"layer": one}, None)
