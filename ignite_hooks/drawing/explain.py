"""What a model looks at: class activation, attention, gradients, feature maps; as tensors, without disturbing it."""

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

from ignite_hooks.text import did_you_mean, shown

LOGITS = ("logits", "out", "y_pred", "prediction", "predictions", "output", "outputs")
Target = Tensor | Sequence[int] | int | None


@contextlib.contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """The model in evaluation mode, for as long as the context lasts.

    Afterwards modes, buffers and the states of all generators of random numbers are what they were.

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
    devices = list(range(torch.cuda.device_count())) if _cuda_is_in_use() else []
    python, numpy = random.getstate(), np.random.get_state()
    try:
        # One by one: a model may have a `train` of its own that does more.
        for module in modules:
            module.training = False
        with torch.random.fork_rng(devices=devices), _without_compiling():
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
    """Within: compiled parts run as they were written, since their code calls no hooks and fits no other mode."""
    # What compiles has imported it, which takes seconds.
    if "torch._dynamo" not in sys.modules:
        return contextlib.nullcontext()
    stance: contextlib.AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
    return stance


def predictions(model: nn.Module, images: Any) -> Any:
    """What the model makes of images, without gradients and in evaluation mode, moved to its device.

    Example:
        >>> predictions(nn.Flatten(), torch.zeros(2, 3, 4, 4)).shape
        torch.Size([2, 48])
    """
    # Not `inference_mode`: what a model keeps of this call, as positions, would fail in the backward of the training.
    with undisturbed(model), torch.no_grad():
        return model(_as_taken_by(model, images))


def logits_of(output: Any) -> Tensor:
    """The scores in what a model returned: N x C, of a single class N x 1, of pixels their mean."""
    if isinstance(output, Mapping):
        named = next((output[name] for name in LOGITS if name in output), None)
        output = named if named is not None else next(iter(output.values()), None)
    elif not isinstance(output, Tensor) and isinstance(getattr(output, "logits", None), Tensor):
        output = output.logits
    elif isinstance(output, (tuple, list)) and output:
        output = output[0]
    if not isinstance(output, Tensor):
        raise ValueError(f"the scores of classes, as a tensor of N x C, are needed, not {shown(output)}")
    if output.ndim == 1:
        output = output[:, None]
    found: Tensor = output.flatten(2).mean(2) if output.ndim > 2 else output
    return found


def grad_cam(model: nn.Module, images: Tensor, target: Target = None, layer: str | nn.Module | None = None) -> Tensor:
    """Where the model sees a class (Grad-CAM, Selvaraju et al. 2017): N x H x W from 0 to 1.

    Args:
        model: A network with convolutions, or with a named layer whose output is N x tokens x channels.
        images: N x C x H x W.
        target: The class, one for all or one for each image; None: the one that is predicted.
        layer: The layer whose output is weighed; None: the last convolution that still has a place in its output.

    Neither gradients nor modes nor random numbers of the model change; works within ``inference_mode`` too.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        >>> grad_cam(model, torch.rand(2, 1, 8, 8)).shape
        torch.Size([2, 8, 8])
    """

    def weigh(activation: Tensor, gradient: Tensor) -> Tensor:
        return (gradient.mean((2, 3), keepdim=True) * activation).sum(1)

    return _cam(model, images, target, layer, weigh)


def layer_cam(model: nn.Module, images: Tensor, target: Target = None, layer: str | nn.Module | None = None) -> Tensor:
    """As ``grad_cam``, but each place is weighed by its own gradient (Layer-CAM, Jiang et al. 2021): finer maps.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        >>> layer_cam(model, torch.rand(2, 1, 8, 8), layer="0").shape
        torch.Size([2, 8, 8])
    """

    def weigh(activation: Tensor, gradient: Tensor) -> Tensor:
        return (gradient.relu() * activation).sum(1)

    return _cam(model, images, target, layer, weigh)


def _cam(
    model: nn.Module,
    images: Tensor,
    target: Target,
    layer: str | nn.Module | None,
    weigh: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    model = plain_module(model)
    watched = _layers(model, layer)
    with _with_gradients(model, images) as inputs:
        with _outputs_of(watched) as seen:
            score = _score(logits_of(model(inputs)), target)
        name, activation = _last_with_places(seen, layer)
        gradient = torch.autograd.grad(score, activation, allow_unused=True)[0]
        if gradient is None:
            raise ValueError(f"the scores of the classes do not depend on the layer {name!r}: name another one")
        maps = weigh(_as_planes(activation.detach()), _as_planes(gradient)).relu().float()
        maps = functional.interpolate(maps[:, None], inputs.shape[2:], mode="bilinear", align_corners=False)[:, 0]
    return maps / maps.amax((1, 2), keepdim=True).clamp_min(torch.finfo(maps.dtype).tiny)


def saliency(
    model: nn.Module, images: Tensor, target: Target = None, *, samples: int = 1, noise: float = 0.15, seed: int = 0
) -> Tensor:
    """How strongly each pixel acts on the score of a class: N x H x W from 0 to 1.

    Args:
        model: Any model of N x C x H x W that can be differentiated.
        images: The images.
        target: The class, one for all or one for each image; None: the one that is predicted.
        samples: More than 1: the mean over so many noisy copies (SmoothGrad, Smilkov et al. 2017).
        noise: The standard deviation of the noise, as a share of the range of each image.
        seed: Of the noise, which comes from a generator of its own.

    Example:
        >>> model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
        >>> saliency(model, torch.rand(2, 1, 4, 4), samples=4).shape
        torch.Size([2, 4, 4])
    """
    if samples < 1:
        raise ValueError(f"samples is a whole number of at least 1, not {samples}")
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
            total += torch.autograd.grad(_score(logits_of(model(noisy)), target), noisy)[0].abs()
        maps = total.amax(1).float()
    return maps / maps.amax((1, 2), keepdim=True).clamp_min(torch.finfo(maps.dtype).tiny)


def attention_maps(model: nn.Module, images: Any) -> dict[str, Tensor]:
    """The attention of every layer that has any: N x heads x queries x keys by the name of the layer; rows sum to 1.

    Seen are ``nn.MultiheadAttention``, and whatever calls ``scaled_dot_product_attention``.

    Example:
        >>> layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        >>> {name: tuple(maps.shape) for name, maps in attention_maps(layer, torch.rand(1, 5, 8)).items()}
        {'self_attn': (1, 2, 5, 5)}
    """
    model = plain_module(model)
    with undisturbed(model), torch.no_grad(), _module_names(model) as stack, _AttentionWatch(stack) as watch:
        model(_as_taken_by(model, images))
        seen: dict[str, Tensor] = watch.seen
    return seen


def rollout(maps: Mapping[str, Tensor] | Sequence[Tensor]) -> Tensor:
    """The attention through all layers together (Abnar and Zuidema 2020): N x queries x keys; rows sum to 1.

    Example:
        >>> rollout([torch.full((1, 2, 3, 3), 1 / 3)]).sum(2)
        tensor([[1., 1., 1.]])
    """
    layers = list(maps.values()) if isinstance(maps, Mapping) else list(maps)
    if not layers:
        raise ValueError("there are no attention maps to go through")
    if len({(layer.shape[-2], layer.shape[-1]) for layer in layers}) > 1 or layers[0].shape[-1] != layers[0].shape[-2]:
        raise ValueError("a roll-out needs layers that all look from the same tokens to the same tokens")
    own = torch.eye(layers[0].shape[-1], device=layers[0].device)
    through = own.expand(layers[0].shape[0], -1, -1)
    for layer in layers:
        # Half of what a token becomes is what it was: the way around the attention.
        step = (layer.float().mean(1) + own) / 2
        through = step / step.sum(-1, keepdim=True) @ through
    return through


def feature_maps(model: nn.Module, images: Any, layers: Sequence[str] | None = None) -> dict[str, Tensor]:
    """The outputs of layers, N x C x H x W by name: those that are named, else every convolution.

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
            raise ValueError("the model has no convolution: name the layers whose output is to be shown")
    else:
        watched = {name: _named(found, name) for name in layers}
    with undisturbed(model), torch.no_grad(), _outputs_of(watched) as seen:
        model(_as_taken_by(model, images))
    if not seen:
        raise ValueError(f"none of the layers {shown(list(watched), 200)} took part, or put out a tensor: name others")
    return {name: _as_planes(seen[name]) for name in watched if name in seen}


def spread_layers(model: nn.Module, count: int) -> list[str]:
    """The names of so many convolutions at most, evenly taken from the first to the last.

    Example:
        >>> spread_layers(nn.Sequential(*[nn.Conv2d(1, 1, 1) for _ in range(9)]), 3)
        ['0', '4', '8']
    """
    names = list(_convolutions(plain_module(model)))
    if not names:
        raise ValueError("the model has no convolution: name the layers whose output is to be shown")
    if len(names) <= count:
        return names
    return [names[round(at)] for at in np.linspace(0, len(names) - 1, count)]


def most_active(maps: Tensor, count: int) -> Tensor:
    """The indices of the channels of one C x H x W that are strongest on average, strongest first.

    Example:
        >>> most_active(torch.tensor([[[0.1]], [[-3.0]], [[1.0]]]), 2).tolist()
        [1, 2]
    """
    strength = maps.float().abs().mean((1, 2)).nan_to_num()
    return strength.argsort(descending=True, stable=True)[:count]


def plain_module(model: nn.Module) -> nn.Module:
    """The model itself, where it is wrapped for several devices, which a look at a few images is not for."""
    while True:
        if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            model = model.module
        # What torch.compile made keeps the module it was made from.
        elif isinstance(compiled_from := getattr(model, "_orig_mod", None), nn.Module):
            model = compiled_from
        else:
            return model


def _cuda_is_in_use() -> bool:
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


# -- helpers ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _with_gradients(model: nn.Module, images: Tensor) -> Iterator[Tensor]:
    """Within: gradients, also where the caller has none; the images on the device of the model, ready for them."""
    if getattr(images, "ndim", 0) != 4:
        raise ValueError(f"images are a tensor of N x C x H x W, not {shown(getattr(images, 'shape', images))}")
    with torch.inference_mode(False), torch.enable_grad(), undisturbed(model):
        # A clone: tensors made in inference mode can have no gradient.
        inputs = images.detach().clone()
        yield _as_taken_by(model, inputs if inputs.is_floating_point() else inputs.float()).requires_grad_()


def _as_taken_by(model: nn.Module, images: Any) -> Any:
    """The images on the device and, where they are no whole numbers, in the precision of a model."""
    first = next((tensor for part in (model.parameters(), model.buffers()) for tensor in part), None)
    if first is None:
        return images

    def moved(image: Any) -> Any:
        if not isinstance(image, Tensor):
            return image
        both = image.is_floating_point() and first.is_floating_point()
        return image.to(first.device, first.dtype if both else image.dtype)

    return [moved(image) for image in images] if isinstance(images, (list, tuple)) else moved(images)


def _layers(model: nn.Module, layer: str | nn.Module | None) -> dict[str, nn.Module]:
    named = dict(model.named_modules())
    if layer is None:
        found = _convolutions(model)
        if not found:
            raise ValueError("the model has no convolution: name the layer that is to be looked at")
        return found
    if isinstance(layer, nn.Module):
        return {next((name for name, module in named.items() if module is layer), type(layer).__name__): layer}
    return {layer: _named(named, layer)}


def _convolutions(model: nn.Module) -> dict[str, nn.Module]:
    return {name: module for name, module in model.named_modules() if isinstance(module, _ConvNd)}


def _named(modules: Mapping[str, nn.Module], name: str) -> nn.Module:
    if name not in modules:
        hint = did_you_mean(name, modules) or f"; it has {shown([n for n in modules if n], 200)}"
        raise ValueError(f"the model has no layer {name!r}{hint}")
    return modules[name]


@contextlib.contextmanager
def _outputs_of(layers: Mapping[str, nn.Module]) -> Iterator[dict[str, Tensor]]:
    """What the layers put out, by name, in the order in which they did."""
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
            # The model goes on with a copy: what comes next may change it in place.
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
            raise ValueError(f"the layer {shown(layer)} took no part, or put out no tensor: name another one")
        return list(seen.items())[-1]
    found = [(name, output) for name, output in seen.items() if output.ndim == 4 and math.prod(output.shape[2:]) > 1]
    if not found:
        raise ValueError("no convolution of the model puts out maps of more than one pixel: name the layer")
    return found[-1]


def _as_planes(output: Tensor) -> Tensor:
    """N x C x H x W; tokens that form a square, with or without one in front, become a plane."""
    if output.ndim == 4:
        return output
    if output.ndim == 3:
        for extra in (0, 1):
            side = math.isqrt(output.shape[1] - extra)
            if side * side == output.shape[1] - extra and side > 0:
                return output[:, extra:].transpose(1, 2).reshape(len(output), -1, side, side)
    raise ValueError(f"a layer that puts out {tuple(output.shape)} has no places in the image: name another one")


def _classes(logits: Tensor) -> Tensor:
    return logits.detach().argmax(1)


def _score(logits: Tensor, target: Target) -> Tensor:
    """The sum of the scores of the wanted classes: images do not act on each other."""
    # A clone, as of the images: it may have been made in inference mode.
    wanted = _classes(logits) if target is None else torch.as_tensor(target, device=logits.device).clone()
    wanted = wanted.long().reshape(-1).expand(len(logits)) if wanted.numel() == 1 else wanted.long().reshape(-1)
    if len(wanted) != len(logits):
        raise ValueError(f"{len(logits)} images have {len(wanted)} targets: give one, or one for each")
    if logits.shape[1] > 1 and bool(((wanted < 0) | (wanted >= logits.shape[1])).any()):
        raise ValueError(f"the target {wanted.tolist()} is not a class: the model has {logits.shape[1]}")
    return (logits if logits.shape[1] == 1 else logits.gather(1, wanted[:, None])).sum()


@contextlib.contextmanager
def _module_names(model: nn.Module) -> Iterator[list[str]]:
    """The names of the modules that are at work, the innermost last."""
    stack: list[str] = []
    handles: list[Any] = []

    def enter(name: str) -> Callable[..., None]:
        return lambda *_: stack.append(name)

    def leave(*_: Any) -> None:
        stack.pop()

    try:
        for name, module in model.named_modules():
            handles.append(module.register_forward_pre_hook(enter(name)))
            handles.append(module.register_forward_hook(leave, always_call=True))
        yield stack
    finally:
        for handle in handles:
            handle.remove()


class _AttentionWatch(TorchFunctionMode):
    """Looks on while attention is calculated; while it does, torch does without its fused layers."""

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
            # Without a batch there is one image.
            assert weights is not None
            self._keep(weights if weights.ndim == 4 else weights[None])
            return output, (weights.mean(-3) if average else weights) if wanted else None
        if func is functional.scaled_dot_product_attention:
            told = {key: value for key, value in kwargs.items() if key not in ("value", "dropout_p")}
            self._keep(_weights(*args, **told))
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
    """What ``scaled_dot_product_attention`` weighs the values with: N x heads x queries x keys."""
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
    # As torch does: what may look at nothing takes nothing.
    weights = scores.softmax(-1).masked_fill(scores.isneginf().all(-1, keepdim=True), 0)
    if weights.ndim > 4:
        return weights.flatten(0, -4)
    return weights if weights.ndim == 4 else weights[:, None] if weights.ndim == 3 else weights[None, None]
