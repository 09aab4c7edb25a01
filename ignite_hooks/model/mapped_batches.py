"""Batches that are mappings, and models that return more than a tensor: inputs, predictions, targets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ignite_hooks.model.wrapping import unwrapped
from ignite_hooks.system.python import signature_of
from ignite_hooks.text import shown

TARGETS = ("labels", "label", "targets", "target", "y")
"""The names under which a batch holds what is to be learned."""


def target_name(batch: Mapping[Any, Any]) -> str:
    """Return the name of the targets in a batch, or in an item of a data set.

    Example:
        >>> target_name({"input_ids": [1, 2], "labels": 0})
        'labels'
    """
    found = next((name for name in TARGETS if name in batch), None)
    if found is None:
        raise ValueError(f"a batch of {shown(list(batch))} has no targets: name them {', '.join(TARGETS)}")
    return found


def prepare_batch(batch: Any, device: Any = None, non_blocking: bool = False) -> tuple[Any, Any]:
    """Return the inputs and targets of a batch on a device: a pair, or a mapping of inputs with a target among them."""
    from ignite.utils import convert_tensor

    if isinstance(batch, Mapping):
        name = target_name(batch)
        inputs, targets = {key: value for key, value in batch.items() if key != name}, batch[name]
    else:
        inputs, targets = batch
    moved = (convert_tensor(part, device=device, non_blocking=non_blocking) for part in (inputs, targets))
    return next(moved), next(moved)


def call(model: Any, inputs: Any) -> Any:
    """Call a model: with the inputs that its parameters name if they are a mapping."""
    if not isinstance(inputs, Mapping):
        return model(inputs)
    arguments, named = arguments_of(model, inputs)
    return model(*arguments, **named)


def arguments_of(model: Any, inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments with which a model is called on these inputs."""
    if not isinstance(inputs, Mapping):
        return (inputs,), {}
    parameters = signature_of(unwrapped(model).forward).parameters.values()
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return (), dict(inputs)
    names = {each.name for each in parameters if each.kind is not each.VAR_POSITIONAL}
    taken = {name: value for name, value in inputs.items() if name in names}
    if taken:
        return (), taken
    if len(inputs) == 1:
        return (next(iter(inputs.values())),), {}
    raise ValueError(f"the model takes {shown(sorted(names))}, and the batch holds {shown(list(inputs))}: rename one")


def predicted(output: Any) -> Any:
    """Return the predictions in the output of a model: its ``logits`` if it has them.

    Example:
        >>> predicted({"loss": 0.5, "logits": [1.0]}), predicted([1.0])
        ([1.0], [1.0])
    """
    if isinstance(output, Mapping):
        return output.get("logits", output)
    return getattr(output, "logits", output)
