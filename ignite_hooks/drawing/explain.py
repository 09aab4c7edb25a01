"""Explanations of a model: class activation, attention, gradients, feature maps; as tensors, without changing it."""

from __future__ import annotations

import contextlib
import math
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.conv import _ConvNd
from torch.overrides import TorchFunctionMode

from ignite_hooks.system.devices import generators_in_use
from ignite_hooks.text import did_you_mean, shown

LOGITS = ("logits", "out", "y_pred", "prediction", "predictions", "output", "outputs")
Target = Tensor | Sequence[int] | int | None


class ImpossibleError(ValueError):
    """An explanation that this model or these images can never have."""


@contextlib.contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Set the model to evaluation mode within the context.

    Afterwards modes, buffers and the states of all random number generators are restored.

    Example:
        >>> model = nn.Dropout()
        >>> with undisturbed(model):
        ...     print(model.training)
        False
        >>> model.training
        True
    """
    modules = list(model.modules())
    modes = [module.training for module in modules]
    buffers = [
        (module, name, buffer, None if buffer is None else buffer.detach().clone())
        for module in modules
        for name, buffer in module._buffers.items()
    ]
    python, numpy = random.getstate(), np.random.get_state()
    try:
        # One by one: a model may override `train` to do more.
        for module in modules:
            module.training = False
        with torch.random.fork_rng(**generators_in_use()), _without_compiling():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        for module, mode in zip(modules, modes, strict=True):
            module.training = mode
        with torch.no_grad():
            for module, name, buffer, before in buffers:
                module._buffers[name] = buffer
                if buffer is not None and before is not None and not torch.equal(buffer, before):
                    buffer.copy_(before)


def _without_compiling() -> contextlib.AbstractContextManager[Any]:
    """Run compiled parts eagerly within the context, as compiled code calls no hooks and is bound to its mode."""
    # Compiled code has already imported it; importing it here would take seconds.
    if "torch._dynamo" not in sys.modules:
        return contextlib.nullcontext()
    stance: contextlib.AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
    return stance


def predictions(model: nn.Module, images: Any) -> Any:
    """Return the output of the model for images, without gradients and in evaluation mode, on its device.

    Example:
        >>> predictions(nn.Flatten(), torch.zeros(2, 3, 4, 4)).shape
        torch.Size([2, 48])
    """
    # Not `inference_mode`: tensors that the model caches in this call would fail in the backward pass of the training.
    with undisturbed(model), torch.no_grad():
        return model(_as_taken_by(model, images))


def logits_of(output: Any) -> Tensor:
    """Return the scores in the output of a model: N x C, N x 1 for a single class, the mean over pixels."""
    if isinstance(output, Mapping):
        named = next((output[name] for name in LOGITS if name in output), None)
        output = named if named is not None else next(iter(output.values()), None)
    elif not isinstance(output, Tensor) and isinstance(getattr(output, "logits", None), Tensor):
        output = output.logits
    elif isinstance(output, (tuple, list)) and output:
        output = output[0]
    if not isinstance(output, Tensor):
        raise ImpossibleError(f"the model has to return the scores of classes as a tensor N x C, not {shown(output)}")
    if output.ndim == 1:
        output = output[:, None]
    found: Tensor = output.flatten(2).mean(2) if output.ndim > 2 else output
    return found


def grad_cam(model: nn.Module, images: Tensor, target: Target = None, layer: str | nn.Module | None = None) -> Tensor:
    """Return where the model sees a class (Grad-CAM, Selvaraju et al. 2017): N x H x W from 0 to 1.

    Args:
        model: Network with convolutions, or with a named layer whose output is N x tokens x channels.
        images: N x C x H x W.
        target: Class, one for all or one for each image; None for the predicted one.
        layer: Layer whose output is weighted; None for the last convolution with more than one pixel of output.

    Gradients, modes and random numbers of the model do not change. It also works within ``inference_mode``.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        >>> grad_cam(model, torch.rand(2, 1, 8, 8)).shape
        torch.Size([2, 8, 8])
    """

    def weighted(activation: Tensor, gradient: Tensor) -> Tensor:
        return (gradient.mean((2, 3), keepdim=True) * activation).sum(1)

    return _cam(model, images, target, layer, weighted)


def layer_cam(model: nn.Module, images: Tensor, target: Target = None, layer: str | nn.Module | None = None) -> Tensor:
    """Return finer maps than ``grad_cam``: each place has its own weight (Layer-CAM, Jiang et al. 2021).

    Example:
        >>> model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        >>> layer_cam(model, torch.rand(2, 1, 8, 8), layer="0").shape
        torch.Size([2, 8, 8])
    """

    def weighted(activation: Tensor, gradient: Tensor) -> Tensor:
        return (gradient.relu() * activation).sum(1)

    return _cam(model, images, target, layer, weighted)


def _cam(
    model: nn.Module,
    images: Tensor,
    target: Target,
    layer: str | nn.Module | None,
    weighted: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    model = plain_module(model)
    watched = _layers(model, layer)
    with _with_gradients(model, images) as inputs:
        with _outputs_of(watched) as seen:
            score = _score(logits_of(model(inputs)), target)
        name, activation = _last_with_places(seen, layer)
        gradient = _gradient(score, activation)
        if gradient is None:
            raise ImpossibleError(f"the scores of the classes do not depend on the layer {name!r}: name another layer")
        maps = weighted(_as_planes(activation.detach()), _as_planes(gradient)).relu().float()
        maps = functional.interpolate(maps[:, None], inputs.shape[2:], mode="bilinear", align_corners=False)[:, 0]
    return maps / maps.amax((1, 2), keepdim=True).clamp_min(torch.finfo(maps.dtype).tiny)


def saliency(
    model: nn.Module, images: Tensor, target: Target = None, *, samples: int = 1, noise: float = 0.15, seed: int = 0
) -> Tensor:
    """Return how strongly each pixel affects the score of a class: N x H x W from 0 to 1.

    Args:
        model: Any differentiable model of N x C x H x W.
        images: The images.
        target: Class, one for all or one for each image; None for the predicted one.
        samples: Number of noisy copies to average over (SmoothGrad, Smilkov et al. 2017); 1 for no noise.
        noise: Standard deviation of the noise, as a share of the range of each image.
        seed: Seed of the noise, which has a separate generator.

    Example:
        >>> model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
        >>> saliency(model, torch.rand(2, 1, 4, 4), samples=4).shape
        torch.Size([2, 4, 4])
    """
    if samples < 1:
        raise ValueError(f"samples must be at least 1, not {samples}")
    model = plain_module(model)
    with _with_gradients(model, images) as inputs:
        first = inputs.detach()
        if target is None:
            target = _classes(logits_of(model(first)))
        generator = torch.Generator(first.device).manual_seed(seed)
        spread = (first.amax((1, 2, 3), keepdim=True) - first.amin((1, 2, 3), keepdim=True)) * noise
        total = torch.zeros_like(first)
        for _ in range(samples):
            noisy = first
            if samples > 1:
                drawn = torch.randn(first.shape, generator=generator, device=first.device, dtype=torch.float32)
                noisy = first + spread * drawn.to(first.dtype)
            noisy = noisy.detach().requires_grad_()
            gradient = _gradient(_score(logits_of(model(noisy)), target), noisy)
            if gradient is None:
                raise ImpossibleError("the scores of the classes have no gradient with respect to the images")
            total += gradient.abs()
        maps = total.amax(1).float()
    return maps / maps.amax((1, 2), keepdim=True).clamp_min(torch.finfo(maps.dtype).tiny)


def attention_maps(model: nn.Module, images: Any) -> dict[str, Tensor]:
    """Return the attention of every layer with attention: N x heads x queries x keys by name; rows sum to 1.

    It finds ``nn.MultiheadAttention``, and every call of ``scaled_dot_product_attention``.

    Example:
        >>> layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        >>> {name: tuple(maps.shape) for name, maps in attention_maps(layer, torch.rand(1, 5, 8)).items()}
        {'self_attn': (1, 2, 5, 5)}
    """
    model = plain_module(model)
    with undisturbed(model), torch.no_grad(), _module_names(model) as stack, _AttentionRecorder(stack) as recorder:
        model(_as_taken_by(model, images))
        seen: dict[str, Tensor] = recorder.seen
    return seen


def rollout(maps: Mapping[str, Tensor] | Sequence[Tensor]) -> Tensor:
    """Return the attention through all layers (roll-out, Abnar and Zuidema 2020): N x queries x keys; rows sum to 1.

    Example:
        >>> rollout([torch.full((1, 2, 3, 3), 1 / 3)]).sum(2)
        tensor([[1., 1., 1.]])
    """
    layers = list(maps.values()) if isinstance(maps, Mapping) else list(maps)
    if not layers:
        raise ValueError("there are no attention maps")
    if len({(layer.shape[-2], layer.shape[-1]) for layer in layers}) > 1 or layers[0].shape[-1] != layers[0].shape[-2]:
        raise ValueError("a roll-out needs layers whose attention is between the same tokens")
    own = torch.eye(layers[0].shape[-1], device=layers[0].device)
    through = own.expand(layers[0].shape[0], -1, -1)
    for layer in layers:
        # The residual connection around the attention: half of each token stays.
        step = (layer.float().mean(1) + own) / 2
        through = step / step.sum(-1, keepdim=True) @ through
    return through


def feature_maps(model: nn.Module, images: Any, layers: Sequence[str] | None = None) -> dict[str, Tensor]:
    """Return the outputs of layers, N x C x H x W by name: of the named layers, else of every convolution.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU())
        >>> {name: tuple(maps.shape) for name, maps in feature_maps(model, torch.rand(2, 1, 8, 8)).items()}
        {'0': (2, 4, 6, 6)}
    """
    model = plain_module(model)
    found = dict(model.named_modules())
    if layers is None:
        watched = _convolutions(model)
        if not watched:
            raise ImpossibleError("the model has no convolution: name the layers to show")
    else:
        watched = {name: _named(found, name) for name in layers}
    with undisturbed(model), torch.no_grad(), _outputs_of(watched) as seen:
        model(_as_taken_by(model, images))
    if not seen:
        raise ImpossibleError(
            f"none of the layers {shown(list(watched), 200)} ran and returned a tensor: name other layers"
        )
    return {name: _as_planes(seen[name]) for name in watched if name in seen}


def spread_layers(model: nn.Module, count: int) -> list[str]:
    """Return the names of at most ``count`` convolutions, evenly spread from the first to the last.

    Example:
        >>> spread_layers(nn.Sequential(*[nn.Conv2d(1, 1, 1) for _ in range(9)]), 3)
        ['0', '4', '8']
    """
    names = list(_convolutions(plain_module(model)))
    if not names:
        raise ImpossibleError("the model has no convolution: name the layers to show")
    if len(names) <= count:
        return names
    return [names[round(at)] for at in np.linspace(0, len(names) - 1, count)]


def most_active(maps: Tensor, count: int) -> Tensor:
    """Return the indices of the channels of one C x H x W that are strongest on average, strongest first.

    Example:
        >>> most_active(torch.tensor([[[0.1]], [[-3.0]], [[1.0]]]), 2).tolist()
        [1, 2]
    """
    strength = maps.float().abs().mean((1, 2)).nan_to_num()
    return strength.argsort(descending=True, stable=True)[:count]


def plain_module(model: nn.Module) -> nn.Module:
    """Return the model without its wrappers for several devices or for compiling."""
    while True:
        if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            model = model.module
        # A compiled module keeps its original.
        elif isinstance(compiled_from := getattr(model, "_orig_mod", None), nn.Module):
            model = compiled_from
        else:
            return model


# -- helpers ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _with_gradients(model: nn.Module, images: Tensor) -> Iterator[Tensor]:
    """Enable gradients within the context, even in inference mode; yield the images, ready for gradients."""
    if getattr(images, "ndim", 0) != 4:
        raise ImpossibleError(f"images must be a tensor N x C x H x W, not {shown(getattr(images, 'shape', images))}")
    with torch.inference_mode(False), torch.enable_grad(), undisturbed(model):
        # A clone: tensors created in inference mode cannot have gradients.
        inputs = images.detach().clone()
        yield _as_taken_by(model, inputs if inputs.is_floating_point() else inputs.float()).requires_grad_()


def _as_taken_by(model: nn.Module, images: Any) -> Any:
    """Move images to the device of a model and, if they are floating point, to its precision."""
    first = next((tensor for part in (model.parameters(), model.buffers()) for tensor in part), None)
    if first is None:
        return images

    def moved(image: Any) -> Any:
        if not isinstance(image, Tensor):
            return image
        both = image.is_floating_point() and first.is_floating_point()
        return image.to(first.device, first.dtype if both else image.dtype)

    return [moved(image) for image in images] if isinstance(images, (list, tuple)) else moved(images)


def _gradient(score: Tensor, source: Tensor) -> Tensor | None:
    """Return the gradient of a score, or None where it does not depend on the source."""
    if not (score.requires_grad and source.requires_grad):
        return None
    found: Tensor | None = torch.autograd.grad(score, source, allow_unused=True)[0]
    return found


def _layers(model: nn.Module, layer: str | nn.Module | None) -> dict[str, nn.Module]:
    named = dict(model.named_modules())
    if layer is None:
        found = _convolutions(model)
        if not found:
            raise ImpossibleError("the model has no convolution: name the layer to explain")
        return found
    if isinstance(layer, nn.Module):
        return {next((name for name, module in named.items() if module is layer), type(layer).__name__): layer}
    return {layer: _named(named, layer)}


def _convolutions(model: nn.Module) -> dict[str, nn.Module]:
    return {name: module for name, module in model.named_modules() if isinstance(module, _ConvNd)}


def _named(modules: Mapping[str, nn.Module], name: str) -> nn.Module:
    if name not in modules:
        hint = did_you_mean(name, modules) or f"; it has {shown([n for n in modules if n], 200)}"
        raise ImpossibleError(f"the model has no layer {name!r}{hint}")
    return modules[name]


@contextlib.contextmanager
def _outputs_of(layers: Mapping[str, nn.Module]) -> Iterator[dict[str, Tensor]]:
    """Record the outputs of layers within the context, by name, in the order of their calls."""
    seen: dict[str, Tensor] = {}

    def watch(name: str) -> Callable[..., Any]:
        def keep(_module: nn.Module, _inputs: Any, output: Any) -> Any:
            if not isinstance(output, Tensor):
                first = output[0] if isinstance(output, (tuple, list)) and output else None
                if isinstance(first, Tensor):
                    seen[name] = first
                return None
            seen.pop(name, None)
            seen[name] = output
            # The model continues with a copy, as the next layer may change it in place.
            return output.clone()

        return keep

    handles = [module.register_forward_hook(watch(name)) for name, module in layers.items()]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _last_with_places(seen: Mapping[str, Tensor], layer: Any) -> tuple[str, Tensor]:
    if layer is not None:
        if not seen:
            raise ImpossibleError(f"the layer {shown(layer)} did not run, or returned no tensor: name another layer")
        return list(seen.items())[-1]
    found = [(name, output) for name, output in seen.items() if output.ndim == 4 and math.prod(output.shape[2:]) > 1]
    if not found:
        raise ImpossibleError("no convolution of the model returns maps of more than one pixel: name the layer")
    return found[-1]


def _as_planes(output: Tensor) -> Tensor:
    """Return an output as N x C x H x W; tokens that form a square become a plane, without a class token in front."""
    if output.ndim == 4:
        return output
    if output.ndim == 3:
        for extra in (0, 1):
            side = math.isqrt(output.shape[1] - extra)
            if side * side == output.shape[1] - extra and side > 0:
                return output[:, extra:].transpose(1, 2).reshape(len(output), -1, side, side)
    raise ImpossibleError(f"a layer that returns {tuple(output.shape)} has no places in the image: name another layer")


def _classes(logits: Tensor) -> Tensor:
    return logits.detach().argmax(1)


def _score(logits: Tensor, target: Target) -> Tensor:
    """Return the sum of the scores of the target classes; images do not affect each other."""
    # A clone, as of the images: it may have been created in inference mode.
    wanted = _classes(logits) if target is None else torch.as_tensor(target, device=logits.device).clone()
    wanted = wanted.long().reshape(-1).expand(len(logits)) if wanted.numel() == 1 else wanted.long().reshape(-1)
    if len(wanted) != len(logits):
        raise ValueError(f"{len(logits)} images have {len(wanted)} targets: give one, or one for each")
    if logits.shape[1] > 1 and bool(((wanted < 0) | (wanted >= logits.shape[1])).any()):
        raise ValueError(f"the target {wanted.tolist()} is not a class: the model has {logits.shape[1]} classes")
    return (logits if logits.shape[1] == 1 else logits.gather(1, wanted[:, None])).sum()


@contextlib.contextmanager
def _module_names(model: nn.Module) -> Iterator[list[str]]:
    """Keep a stack of the names of the running modules within the context, the innermost last."""
    stack: list[str] = []
    handles: list[Any] = []

    def entering(name: str) -> Callable[..., None]:
        return lambda *_: stack.append(name)

    def leave(*_: Any) -> None:
        stack.pop()

    try:
        for name, module in model.named_modules():
            handles.append(module.register_forward_pre_hook(entering(name)))
            handles.append(module.register_forward_hook(leave, always_call=True))
        yield stack
    finally:
        for handle in handles:
            handle.remove()


class _AttentionRecorder(TorchFunctionMode):
    """Records attention while it is calculated; under a function mode, torch uses no fused layers."""

    def __init__(self, stack: list[str]) -> None:
        super().__init__()
        self.seen: dict[str, Tensor] = {}
        self._stack = stack

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is functional.multi_head_attention_forward:
            wanted = bool(kwargs.get("need_weights", True))
            average = bool(kwargs.get("average_attn_weights", True))
            output, weights = func(*args, **{**kwargs, "need_weights": True, "average_attn_weights": False})
            assert weights is not None
            # Inputs without a batch dimension are one image.
            self._keep(weights if weights.ndim == 4 else weights[None])
            return output, (weights.mean(-3) if average else weights) if wanted else None
        if func is functional.scaled_dot_product_attention:
            used = {key: value for key, value in kwargs.items() if key not in ("value", "dropout_p")}
            self._keep(_weights(*args, **used))
        return func(*args, **kwargs)

    def _keep(self, weights: Tensor) -> None:
        name = self._stack[-1] if self._stack else "attention"
        names = (name, *(f"{name}#{n}" for n in range(2, len(self.seen) + 2)))
        self.seen[next(free for free in names if free not in self.seen)] = weights.detach()


def _weights(
    query: Tensor,
    key: Tensor,
    _value: Tensor | None = None,
    attn_mask: Tensor | None = None,
    _dropout: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Return the weights of ``scaled_dot_product_attention``: N x heads x queries x keys."""
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
    scores = query.float() @ key.float().transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, -math.inf)
    if attn_mask is not None:
        scores = (
            scores.masked_fill(~attn_mask, -math.inf) if attn_mask.dtype is torch.bool else scores + attn_mask.float()
        )
    # As in torch: a query that may attend to no key has weights of zero.
    weights = scores.softmax(-1).masked_fill(scores.isneginf().all(-1, keepdim=True), 0)
    if weights.ndim > 4:
        return weights.flatten(0, -4)
    return weights if weights.ndim == 4 else weights[:, None] if weights.ndim == 3 else weights[None, None]
