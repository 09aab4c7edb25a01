"""The model behind its wrappers, and whether this process holds all of it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ignite_hooks.model.parts import by_part, each, is_several, parts_of

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module


def unwrapped(model: Any) -> Any:
    """Return the model inside DataParallel, DistributedDataParallel and ``torch.compile``, in any order.

    Several models become one module that has these as its parts, by name: ``g.0.weight``.
    """
    if is_several(model):
        return joined({name: unwrapped(part) for name, part in parts_of(model).items()})
    from torch.nn import Module

    while isinstance(model, Module) and (inner := _inner(model)) is not None:
        model = inner
    return model


def joined(models: Mapping[str, Any]) -> Module:
    """Return a module whose parts are these models; what is no module is left out."""
    from torch.nn import Module

    whole = Module()
    # Not by add_module, which refuses the names of the module's own attributes, such as "half".
    whole._modules.update({name: model for name, model in models.items() if isinstance(model, Module)})
    return whole


def is_same_model(one: Any, other: Any) -> bool:
    """Return whether two models are the same one, or what `unwrapped` has made twice of the same several."""
    from torch.nn import Module

    if type(one) is Module and type(other) is Module:
        parts = one._modules, other._modules
        return parts[0].keys() == parts[1].keys() and all(parts[0][name] is parts[1][name] for name in parts[0])
    return one is other


def has_buffers(model: Any) -> bool:
    """Return whether a model has buffers, which a forward pass may change."""
    return any(True for one in each(model) if hasattr(one, "buffers") for _ in one.buffers())


def signature_of(model: Any) -> str:
    """Return a short text that tells models of different layers apart; empty without a model.

    Example:
        >>> from torch.nn import Linear
        >>> signature_of(Linear(2, 3)) == signature_of(Linear(2, 3)) != signature_of(Linear(3, 2))
        True
    """
    from torch.nn import Module

    if model is None:
        return ""
    if is_several(model):
        layers = sorted((name, signature_of(part)) for name, part in parts_of(model).items())
    elif isinstance(inner := unwrapped(model), Module):
        layers = sorted((name, _size_in_words(weight)) for name, weight in inner.named_parameters())
    else:
        layers = [(type(model).__name__, "")]
    return hashlib.sha256(repr(layers).encode()).hexdigest()[:16]


def _size_in_words(weight: Tensor) -> str:
    from torch.nn.parameter import is_lazy

    return "lazy" if is_lazy(weight) else str(tuple(weight.shape))


def plain_state(model: Any) -> Any:
    """Return the state of a model under the names that it has without any wrapper, parts wrapped alone included.

    Of several models, the state of each by name.
    """
    if is_several(model):
        return by_part(plain_state, model)
    model = unwrapped(model)
    return named_plainly(model, model.state_dict())


def named_plainly(model: Any, state: Mapping[str, Any]) -> Any:
    """Return a state of a model under the names without wrappers of its parts; the same object if there are none."""
    names = _wrapped_names(model)
    return {_plain_name(key, names): value for key, value in state.items()} if names else state


def load_plain(model: Any, state: Mapping[str, Any]) -> None:
    """Load what `plain_state` returned, or a state under the names of wrapped parts, whatever is wrapped now."""
    model = unwrapped(model)
    model.load_state_dict(named_as_in(model, state) if isinstance(model, _module()) else state)


def named_as_in(model: Any, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state under the names of a model as it is wrapped now, whatever was wrapped when it was saved."""
    names = _wrapped_names(model)
    mine = {_plain_name(key, names): key for key in model.state_dict()}
    found = {}
    for key, value in state.items():
        plain = key if key in mine else _without_wrappers(key)
        found[mine.get(plain, key)] = value
    return found


def _wrapped_names(model: Any) -> dict[str, str]:
    """Return the prefixes of names that belong to wrapped parts, and what they are without the wrapper."""
    if not isinstance(model, _module()):
        return {}
    found = {}
    for name, part in model.named_modules():
        if name and (inner := _inner(part)) is not None:
            word = "module" if inner is getattr(part, "module", None) else "_orig_mod"
            found[f"{name}.{word}."] = f"{name}."
    return found


def _plain_name(key: str, names: Mapping[str, str]) -> str:
    # Inner parts first: the names of outer ones are the beginning of theirs.
    for wrapped in sorted(names, key=len, reverse=True):
        if key.startswith(wrapped):
            key = names[wrapped] + key[len(wrapped) :]
    return key


def _without_wrappers(key: str) -> str:
    return ".".join(word for word in key.split(".") if word not in ("module", "_orig_mod"))


def _module() -> Any:
    from torch.nn import Module

    return Module


def _inner(model: Any) -> Any:
    """Return the module inside a wrapper; None if this is no wrapper."""
    from torch.nn.parallel import DataParallel, DistributedDataParallel

    # By its attribute: importing the class of a compiled model takes longer than everything else here.
    wraps = isinstance(model, (DataParallel, DistributedDataParallel))
    inner = model.module if wraps else getattr(model, "_orig_mod", None)
    return inner if isinstance(inner, _module()) else None


def is_sharded(model: Any) -> bool:
    """Return whether this process has only a part of some weights, as with FSDP2 and tensor parallelism."""
    import torch

    models = [one for one in each(model) if isinstance(one, torch.nn.Module)]
    return any(is_dtensor(tensor) for one in models for tensor in (*one.parameters(), *one.buffers()))


def is_lazy_model(model: Module) -> bool:
    """Return whether there are parameters that have no size before the first forward pass."""
    from torch.nn.parameter import is_lazy

    return any(is_lazy(tensor) for tensor in (*model.parameters(), *model.buffers()))


def is_dtensor(tensor: Tensor) -> bool:
    """Return whether a tensor is a DTensor, of which this process has a part."""
    return hasattr(tensor, "_local_tensor")


def local_part(tensor: Tensor) -> Tensor:
    """Return the part of a tensor that this process has."""
    found: Tensor = getattr(tensor, "_local_tensor", tensor)
    return found


def weights_not_finite(model: Any) -> list[str]:
    """Return the names of the weights of a model that are not finite, waiting once for each device.

    Example:
        >>> import torch
        >>> model = torch.nn.Linear(2, 1)
        >>> weights_not_finite(model)
        []
        >>> _ = model.weight.data.fill_(float("nan"))
        >>> weights_not_finite(model)
        ['weight']
    """
    import torch
    from torch.nn.parameter import is_lazy

    by_device: dict[torch.device, list[tuple[str, torch.Tensor]]] = {}
    for name, weight in unwrapped(model).named_parameters():
        if not is_lazy(weight) and weight.is_floating_point() and not weight.is_meta:
            # Of a sharded weight each rank looks at its part.
            mine = local_part(weight.detach())
            by_device.setdefault(mine.device, []).append((name, mine.isfinite().all()))
    return [
        name
        for flags in by_device.values()
        for (name, _), is_fine in zip(flags, torch.stack([flag for _, flag in flags]).tolist(), strict=True)
        if not is_fine
    ]
