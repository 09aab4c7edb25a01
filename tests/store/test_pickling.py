"""`pickling.py`: pickles like those of `torch.save`; `test_archive.py` compares what comes back for every type."""

from __future__ import annotations

import pickle
import pickletools
import random
from typing import Any

import torch

from ignite_hooks.store.pickling import pickle_state


def drawn(draw: random.Random, depth: int = 0) -> Any:
    kind = draw.randrange(12 if depth < 4 else 8)
    if kind < 8:
        numbers = [draw.randrange(256), -draw.randrange(2**40), 2**31 - 1, -(2**31), 2**31, 2**32 - 1, 2**32, 2**900]
        return draw.choice([None, True, False, *numbers, draw.random(), "text", "精度\ud800", "", {1, 2}, b"ab"])
    items = [drawn(draw, depth + 1) for _ in range(draw.randrange(5))]
    if kind == 8:
        return tuple(items)
    keys = [draw.choice([number, str(number), (number, "x")]) for number in range(len(items))]
    return items if kind == 9 else dict(zip(keys, items, strict=True))


def test_plain_types_come_back() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    for _ in range(200):
        value = {"first": drawn(draw), "again": drawn(draw), "first too": "first"}
        assert pickle.loads(pickle_state(value, lambda storage: ("0", 0))) == value


def test_what_tensors_have_in_common_is_written_once() -> None:
    state = {f"layer.{number}": torch.zeros(3, 4) for number in range(100)}
    names = iter(range(100))
    data = pickle_state(state, lambda storage: (str(next(names)), storage.nbytes()))
    written = [argument for operation, argument, _ in pickletools.genops(data) if operation.name == "GLOBAL"]
    assert written == ["torch._utils _rebuild_tensor_v2", "torch FloatStorage", "collections OrderedDict"]
