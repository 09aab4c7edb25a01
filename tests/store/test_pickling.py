"""`pickling.py`: pickles like those of `torch.save`; `test_archive.py` compares what comes back for every type."""

from __future__ import annotations

import pickle
import pickletools
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from ignite_hooks.store.pickling import pickle_state
from tests.properties import ANY_TEXT, tried

LEAVES = st.one_of(
    st.sampled_from([None, True, False, 0, 255, 256, 2**31 - 1, -(2**31), 2**31, 2**32 - 1, 2**32, 2**900]),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.sampled_from(["text", "精度\ud800", "", b"ab"]),
    ANY_TEXT,
    st.sampled_from([{1, 2}, set()]),
)
KEYS = st.integers(0, 300) | ANY_TEXT | st.tuples(st.integers(0, 9), ANY_TEXT)
STATES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4) | st.lists(inner, max_size=4).map(tuple) | st.dictionaries(KEYS, inner, max_size=4)
    ),
    max_leaves=15,
)


@tried(200)
@given(first=STATES, again=STATES)
def test_plain_types_come_back(first: Any, again: Any) -> None:
    value = {"first": first, "again": again, "both": [first, again], "first too": "first"}
    found = pickle.loads(pickle_state(value, lambda storage: ("0", 0)))
    assert repr(found) == repr(value), "of the same types too"


def test_what_tensors_have_in_common_is_written_once() -> None:
    state = {f"layer.{number}": torch.zeros(3, 4) for number in range(100)}
    names = iter(range(100))
    data = pickle_state(state, lambda storage: (str(next(names)), storage.nbytes()))
    written = [argument for operation, argument, _ in pickletools.genops(data) if operation.name == "GLOBAL"]
    assert written == ["torch._utils _rebuild_tensor_v2", "torch FloatStorage", "collections OrderedDict"]
