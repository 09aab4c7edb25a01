"""Hooks outside compiled code; measure/test_phases.py and model/test_rollback.py have them on models and optimizers."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import torch
from torch import nn

from ignite_hooks.measure.eager_hook import EagerHook


def test_compiled_code_does_not_call_it() -> None:
    called: list[Any] = []
    model = nn.Linear(2, 2)
    model.register_forward_hook(EagerHook(lambda *arguments: called.append(arguments)))
    model(torch.ones(1, 2))
    assert len(called) == 1
    compiled: Any = torch.compile(model, backend="eager", fullgraph=True)
    compiled(torch.ones(1, 2))
    assert len(called) == 1


def test_a_copy_of_a_model_calls_nothing() -> None:
    called: list[Any] = []
    model = nn.Linear(2, 2)
    model.register_forward_hook(EagerHook(lambda *arguments: called.append(arguments)))
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        other(torch.ones(1, 2))
    assert called == []
