"""`plain.py`: what a state may hold."""

from __future__ import annotations

import datetime
import enum
import io
import subprocess
import sys
from collections import OrderedDict, defaultdict
from pathlib import Path
from threading import Lock
from typing import Any

import numpy
import pytest
import torch

from ignite_hooks.errors import CheckpointError
from ignite_hooks.store import to_plain
from ignite_hooks.store.plain import size_in_bytes


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 30


class Text(str):
    pass


def through_a_file(value: object) -> Any:
    file = io.BytesIO()
    torch.save(to_plain({"value": value}), file)
    file.seek(0)
    return torch.load(file, map_location="cpu", weights_only=True)["value"]


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (None, None),
        (True, True),
        (-3, -3),
        (2**2039 - 1, 2**2039 - 1),
        (1.5, 1.5),
        (float("inf"), float("inf")),
        ("ünïcode\ud800", "ünïcode\ud800"),
        (b"\x00\xff", b"\x00\xff"),
        ([1, [2, []]], [1, [2, []]]),
        ((0.9, 0.999), (0.9, 0.999)),
        ({1, "a"}, {1, "a"}),
        ({1: "a", "b": None, (1, 2): 3.0}, {1: "a", "b": None, (1, 2): 3.0}),
        (OrderedDict(a=1), {"a": 1}),
        (defaultdict(list, a=[1]), {"a": [1]}),
        (torch.Size([2, 3]), torch.Size([2, 3])),
        (torch.float16, torch.float16),
        (torch.device("cpu"), torch.device("cpu")),
        (numpy.float32(0.5), 0.5),
        (numpy.float64(0.1), 0.1),
        (numpy.int64(7), 7),
        (numpy.bool_(True), True),
        (numpy.str_("a"), "a"),
        (Text("a"), "a"),
        (Path("/runs/1"), "/runs/1"),
        (datetime.datetime(2026, 1, 2, 3), "2026-01-02T03:00:00"),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        (Colour.RED, "red"),
        (Level.HIGH, 30),
        ({Colour.RED: 1, numpy.int64(2): 2}, {"red": 1, 2: 2}),
    ],
)
def test_a_value_comes_back_as_plain_type(value: object, plain: object) -> None:
    loaded = through_a_file(value)
    assert loaded == plain
    assert type(loaded) is type(plain)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6.0).reshape(2, 3).T,
        torch.tensor(3),
        torch.zeros(0),
        torch.ones(3, dtype=torch.bfloat16),
        torch.tensor([1 + 2j]).conj(),
        torch.eye(3).to_sparse(),
        torch.zeros(2, dtype=torch.uint16),
        torch.nn.Parameter(torch.ones(2)),
        torch.ones(3).expand(4, 3),
    ],
    ids=lambda tensor: f"{tensor.layout}-{tensor.dtype}-{tuple(tensor.shape)}",
)
@pytest.mark.parametrize("clone", [False, True])
def test_a_tensor_comes_back_detached(tensor: torch.Tensor, clone: bool) -> None:
    loaded = through_a_file(to_plain(tensor, clone=clone))
    assert type(loaded) is torch.Tensor
    assert not loaded.requires_grad
    assert loaded.dtype == tensor.dtype
    assert torch.equal(loaded.to_dense(), tensor.detach().to_dense())


@pytest.mark.parametrize(
    "array",
    [numpy.arange(4)[::-1], numpy.array(2.5), numpy.zeros((2, 2), dtype=numpy.uint32, order="F")],
)
def test_an_array_becomes_a_tensor(array: Any) -> None:
    assert to_plain({"a": array})["a"].tolist() == array.tolist()


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (Lock(), "_thread.lock"),
        (len, "builtin_function_or_method"),
        (int, "type"),
        (object(), "object"),
        (frozenset({1}), "frozenset"),
        (1j, "complex"),
        (b"", "bytes without content"),
        (2**2039, "int of 2040 bits"),
        (torch.zeros(2, device="meta"), "torch.Tensor without data"),
        (numpy.array([object()]), "numpy.ndarray of object"),
        (numpy.array(["a"]), "numpy.ndarray of <U1"),
        (numpy.longdouble(1), "numpy.longdouble"),
        (torch.nn.Linear(1, 1), "torch.nn.modules.linear.Linear"),
    ],
)
def test_anything_else_is_refused_with_its_place_and_type(value: object, name: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        to_plain({"EMAHook": {"models": [0, {"deep": value}]}}, "hooks")
    assert str(caught.value).startswith(f"hooks.EMAHook.models[1].deep: cannot be saved: {name};")


def test_keys_that_become_equal_are_refused() -> None:
    with pytest.raises(CheckpointError, match="two keys become 'red'"):
        to_plain({"a": {Colour.RED: 1, "red": 2}})


def test_a_tensor_is_no_key() -> None:
    with pytest.raises(CheckpointError, match=r"a: cannot be saved: torch\.Tensor as a key"):
        to_plain({"a": {torch.zeros(1): 1}})


def test_a_state_that_contains_itself_is_refused() -> None:
    state: dict[str, Any] = {}
    state["again"] = state
    with pytest.raises(CheckpointError, match="contains itself"):
        to_plain(state)


def test_without_clone_tensors_share_their_memory() -> None:
    weight = torch.ones(3)
    assert to_plain({"w": weight})["w"].data_ptr() == weight.data_ptr()


def test_a_clone_does_not_see_later_changes() -> None:
    state = {"w": torch.ones(3), "array": numpy.ones(2), "sparse": torch.eye(2).to_sparse(), "list": [1]}
    plain = to_plain(state, clone=True)
    state["w"].zero_()  # type: ignore[attr-defined]
    state["array"][:] = 0  # type: ignore[index]
    state["sparse"].values().zero_()  # type: ignore[union-attr]
    state["list"].append(2)  # type: ignore[union-attr]
    assert plain["w"].tolist() == [1, 1, 1]
    assert plain["array"].tolist() == [1, 1]
    assert plain["sparse"].to_dense().tolist() == [[1, 0], [0, 1]]
    assert plain["list"] == [1]


@pytest.mark.parametrize("clone", [False, True])
def test_tied_weights_are_kept_once(clone: bool) -> None:
    embedding, head = torch.nn.Embedding(100, 10), torch.nn.Linear(10, 100, bias=False)
    head.weight = embedding.weight
    plain = to_plain({"embedding": embedding.state_dict(), "head": head.state_dict()}, clone=clone)
    assert plain["embedding"]["weight"].data_ptr() == plain["head"]["weight"].data_ptr()
    assert size_in_bytes(plain) == 4000


def test_a_slice_does_not_save_the_whole_memory_behind_it() -> None:
    plain = to_plain({"seen": torch.zeros(1_000_000)[:3]})
    file = io.BytesIO()
    torch.save(plain, file)
    assert size_in_bytes(plain) == 12
    assert len(file.getvalue()) < 2000


@pytest.mark.parametrize("optimizer_class", [torch.optim.SGD, torch.optim.AdamW])
def test_model_optimizer_and_scheduler_come_back_the_same(optimizer_class: Any) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    optimizer = optimizer_class(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=10)
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()
    scheduler.step()
    loaded = through_a_file([model.state_dict(), optimizer.state_dict(), scheduler.state_dict()])
    torch.testing.assert_close(loaded[0], dict(model.state_dict()), rtol=0, atol=0)
    torch.testing.assert_close(loaded[1]["state"], optimizer.state_dict()["state"], rtol=0, atol=0)
    assert loaded[1]["param_groups"] == optimizer.state_dict()["param_groups"]
    assert loaded[2] == scheduler.state_dict()


def test_importing_the_store_does_not_import_torch() -> None:
    code = "import sys, ignite_hooks.store as s; sys.exit(any(m in sys.modules for m in ('torch', 'numpy')))"
    subprocess.run([sys.executable, "-c", code], check=True)
