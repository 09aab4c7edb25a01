from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from ignite_hooks.drawing.explain import (
    attention_maps,
    feature_maps,
    grad_cam,
    layer_cam,
    logits_of,
    most_active,
    plain_module,
    predictions,
    rollout,
    saliency,
    undisturbed,
)


def small_cnn(inplace: bool = False) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.ReLU(inplace),
        nn.Dropout(0.5),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 2),
    )


class Keeping(nn.Module):
    """A model that caches a tensor per image shape, as models cache position encodings."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = small_cnn()
        self.kept: dict[Any, Tensor] = {}

    def forward(self, images: Tensor) -> Tensor:
        found: Tensor = self.inner(images)
        return found * self.kept.setdefault(images.shape, torch.ones_like(found.detach()))


class Idle(nn.Module):
    """A model with a convolution that never runs."""

    def __init__(self) -> None:
        super().__init__()
        self.idle = nn.Conv2d(1, 1, 1)

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1)


class Drawing(nn.Module):
    """A model that draws random numbers, counts its calls and replaces a buffer, even in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = small_cnn()
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("last", torch.zeros(()))

    def forward(self, images: Tensor) -> Tensor:
        self.calls += 1
        self.last = images.mean().detach()
        random.random(), np.random.random()
        return self.inner(images + torch.randn_like(images) * 0)  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def square_net() -> tuple[nn.Module, Tensor, list[tuple[int, int]]]:
    """Return a trained net that distinguishes noise with a bright square from noise without."""
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(256, 1, 24, 24, generator=generator) * 0.5
    corners = torch.randint(0, 17, (256, 2), generator=generator).tolist()
    labels = torch.arange(256) % 2
    for image, (y, x), label in zip(images, corners, labels, strict=True):
        image[0, y : y + 8, x : x + 8] += 0.5 * label
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(*[layer for layer in small_cnn() if not isinstance(layer, nn.Dropout)])
        optimizer = torch.optim.Adam(net.parameters(), 0.01)
        for step in range(60):
            chosen = slice(step % 4 * 64, step % 4 * 64 + 64)
            loss = functional.cross_entropy(net(images[chosen]), labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    optimizer.zero_grad()
    return net, images[1::2][:16], [tuple(corner) for corner in corners[1::2][:16]]


@pytest.mark.parametrize("cam", [grad_cam, layer_cam])
def test_cam_highlights_the_square_that_defines_the_class(square_net: Any, cam: Any) -> None:
    net, images, corners = square_net
    maps = cam(net, images, target=1)
    inside = [(m[y : y + 8, x : x + 8].sum() / m.sum()).item() for m, (y, x) in zip(maps, corners, strict=True)]
    assert np.mean(inside) > 0.5, inside
    assert np.median(inside) > 0.5, inside
    assert maps.amax((1, 2)).tolist() == pytest.approx([1.0] * 16)
    assert maps.amin() >= 0


def test_gradients_highlight_the_square_too(square_net: Any) -> None:
    net, images, corners = square_net
    for samples in (1, 8):
        maps = saliency(net, images, target=1, samples=samples)
        inside = [(m[y : y + 8, x : x + 8].mean() / m.mean()).item() for m, (y, x) in zip(maps, corners, strict=True)]
        assert np.mean(inside) > 1.5, "more than proportional to its area"


def test_grad_cam_is_what_its_formula_says() -> None:
    """A linear head after a mean: the gradient of a channel is its weight divided by the number of places."""
    conv, head = nn.Conv2d(3, 4, 3, padding=1), nn.Linear(4, 5)
    model = nn.Sequential(conv, nn.AdaptiveAvgPool2d(1), nn.Flatten(), head)
    images = torch.randn(2, 3, 6, 6)
    found = grad_cam(model, images, target=[1, 4])
    with torch.no_grad():
        weights = head.weight[[1, 4]] / 36
        expected = (weights[:, :, None, None] * conv(images)).sum(1).relu()
    expected = expected / expected.amax((1, 2), keepdim=True)
    torch.testing.assert_close(found, expected)


def test_layer_cam_is_what_its_formula_says() -> None:
    conv, head = nn.Conv2d(3, 4, 3, padding=1), nn.Linear(4 * 36, 5)
    model = nn.Sequential(conv, nn.Flatten(), head)
    images = torch.randn(2, 3, 6, 6)
    with torch.no_grad():
        weights = head.weight[2].view(1, 4, 6, 6).relu()
        expected = (weights * conv(images)).sum(1).relu()
    expected = expected / expected.amax((1, 2), keepdim=True)
    torch.testing.assert_close(layer_cam(model, images, 2), expected)


def test_saliency_of_a_linear_model_is_its_absolute_weights() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(2 * 16, 3))
    expected = model[1].weight[2].detach().view(2, 4, 4).abs().amax(0)
    found = saliency(model, torch.rand(1, 2, 4, 4), target=2)[0]
    torch.testing.assert_close(found, expected / expected.max())


@pytest.mark.parametrize("target", [0, 1])
def test_captum_finds_the_same(square_net: Any, target: int) -> None:
    captum_attr = pytest.importorskip("captum.attr")
    net, images, _ = square_net
    net.eval()
    last = [module for module in net.modules() if isinstance(module, nn.Conv2d)][-1]
    theirs = captum_attr.LayerGradCam(net, last).attribute(images, target, relu_attributions=True)
    theirs = functional.interpolate(theirs.detach(), images.shape[2:], mode="bilinear", align_corners=False)[:, 0]
    scale = theirs.amax((1, 2), keepdim=True).clamp_min(1e-30)
    torch.testing.assert_close(grad_cam(net, images, target, layer=last), theirs / scale)
    theirs = captum_attr.Saliency(net).attribute(images.clone().requires_grad_(), target).amax(1)
    torch.testing.assert_close(saliency(net, images, target), theirs / theirs.amax((1, 2), keepdim=True))


def explanations() -> dict[str, Any]:
    return {
        "grad_cam": grad_cam,
        "layer_cam": layer_cam,
        "saliency": saliency,
        "smoothgrad": lambda model, images: saliency(model, images, samples=3),
        "feature_maps": feature_maps,
        "attention_maps": attention_maps,
        "predictions": predictions,
    }


@pytest.mark.parametrize("name", explanations())
@pytest.mark.parametrize("around", ["plain", "no_grad", "inference_mode"])
def test_explanations_leave_the_model_unchanged(name: str, around: str) -> None:
    explain = explanations()[name]
    model = Drawing()
    model.inner[0].eval()
    model.inner[0].weight.requires_grad_(False)
    model.inner[3].weight.grad = torch.ones_like(model.inner[3].weight)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    grads = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    flags = [p.requires_grad for p in model.parameters()]
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks) for m in model.modules()]
    images = torch.rand(2, 1, 8, 8)
    pixels = images.clone()
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()
    context = {"plain": torch.enable_grad, "no_grad": torch.no_grad, "inference_mode": torch.inference_mode}[around]
    with context():
        if around == "inference_mode":
            images = images.clone()
        explain(model, images)
        assert torch.is_inference_mode_enabled() == (around == "inference_mode")
    assert random.getstate() == states[0]
    assert np.random.get_state()[1].tolist() == states[1]
    assert torch.equal(torch.get_rng_state(), states[2])
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert [module.training for module in model.modules()] == modes
    assert [p.requires_grad for p in model.parameters()] == flags
    assert all(
        a is None if b is None else torch.equal(a, b)
        for a, b in ((p.grad, g) for p, g in zip(model.parameters(), grads, strict=True))
    )
    assert hooks == [
        len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks) for m in model.modules()
    ]
    assert torch.equal(images, pixels)
    assert not images.requires_grad


def test_a_failing_model_is_left_unchanged() -> None:
    model = small_cnn()
    with pytest.raises(RuntimeError, match="expected input"):
        grad_cam(model, torch.rand(1, 3, 8, 8))
    assert model.training
    assert not any(module._forward_hooks for module in model.modules())


def test_in_place_layers_do_not_change_the_result() -> None:
    torch.manual_seed(0)
    plain, inplace = small_cnn(), small_cnn(inplace=True)
    inplace.load_state_dict(plain.state_dict())
    images = torch.rand(2, 1, 8, 8)
    for cam in (grad_cam, layer_cam):
        torch.testing.assert_close(cam(plain, images, 1), cam(inplace, images, 1))
    torch.testing.assert_close(feature_maps(plain, images)["0"], feature_maps(inplace, images)["0"])


class WithTokens(nn.Module):
    """A model of patches, an attention of one of two usual kinds, and a mean."""

    def __init__(self, kind: str, side: int = 4) -> None:
        super().__init__()
        self.kind = kind
        self.cut = nn.Conv2d(1, 8, 2, 2)
        self.one = nn.MultiheadAttention(8, 2, batch_first=True) if kind == "module" else nn.Linear(8, 24)
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True) if kind == "layer" else nn.Identity()
        self.head = nn.Linear(8, 3)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.cut(images).flatten(2).transpose(1, 2)
        if self.kind == "module":
            mixed, weights = self.one(tokens, tokens, tokens, need_weights=False)
            assert weights is None, "the model still gets what it requested"
        elif self.kind == "function":
            q, k, v = (part.unflatten(2, (2, 4)).transpose(1, 2) for part in self.one(tokens).chunk(3, 2))
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        else:
            mixed = tokens
        return self.head(self.encoder(mixed).mean(1))  # type: ignore[no-any-return]


@pytest.mark.parametrize(("kind", "name"), [("module", "one"), ("function", ""), ("layer", "encoder.self_attn")])
def test_attention_of_every_usual_kind_is_recorded(kind: str, name: str) -> None:
    model = WithTokens(kind)
    images = torch.rand(3, 1, 8, 8)
    before = predictions(model, images)
    maps = attention_maps(model, images)
    assert {key: tuple(value.shape) for key, value in maps.items()} == {name: (3, 2, 16, 16)}
    torch.testing.assert_close(maps[name].sum(-1), torch.ones(3, 2, 16))
    torch.testing.assert_close(rollout(maps).sum(-1), torch.ones(3, 16))
    torch.testing.assert_close(predictions(model, images), before)


@pytest.mark.parametrize("masked", ["no mask", "causal", "booleans", "numbers", "scaled", "grouped"])
def test_attention_weights_equal_those_of_torch(masked: str) -> None:
    query, value = torch.randn(2, 4, 5, 8), torch.randn(2, 4, 5, 6)
    key = torch.randn(2, 4, 5, 8)
    how: dict[str, Any] = {}
    if masked == "causal":
        how = {"is_causal": True}
    elif masked == "booleans":
        how = {"attn_mask": torch.rand(5, 5) > 0.3}
        how["attn_mask"].fill_diagonal_(True)
    elif masked == "numbers":
        how = {"attn_mask": torch.randn(5, 5)}
    elif masked == "scaled":
        how = {"scale": 0.1}
    elif masked == "grouped":
        key, value, how = key[:, :2], value[:, :2], {"enable_gqa": True}

    class Block(nn.Module):
        def forward(self, query: Tensor) -> Tensor:
            return functional.scaled_dot_product_attention(query, key, value, **how)

    found = attention_maps(Block(), query)[""]
    values = value.repeat_interleave(2, 1) if masked == "grouped" else value
    torch.testing.assert_close(found @ values, functional.scaled_dot_product_attention(query, key, value, **how))


def test_windows_count_as_images() -> None:
    class Windows(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return functional.scaled_dot_product_attention(x, x, x)

    found = attention_maps(Windows(), torch.rand(2, 3, 4, 5, 8))[""]
    assert found.shape == (6, 4, 5, 5)
    torch.testing.assert_close(found.sum(-1), torch.ones(6, 4, 5))


def test_a_fully_masked_query_has_zero_attention() -> None:
    seen = torch.ones(5, 5, dtype=torch.bool)
    seen[2] = False

    class Block(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return functional.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], attn_mask=seen)

    maps = attention_maps(Block(), torch.rand(2, 5, 8))
    (weights,) = maps.values()
    assert weights.sum(-1)[:, :, 2].eq(0).all()
    torch.testing.assert_close(weights.sum(-1)[:, :, [0, 1, 3, 4]], torch.ones(*weights.shape[:2], 4))
    torch.testing.assert_close(rollout(maps).sum(-1), torch.ones(2, 5))


def test_a_layer_called_twice_has_two_maps() -> None:
    class Twice(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return sum(functional.scaled_dot_product_attention(x, x, x) for _ in range(2))  # type: ignore[return-value]

    assert list(attention_maps(Twice(), torch.rand(1, 2, 3, 4))) == ["", "#2"]


@pytest.mark.parametrize("explain", [predictions, grad_cam, saliency, attention_maps, feature_maps])
def test_tensors_cached_by_a_model_can_be_trained_with(explain: Any) -> None:
    model, images = Keeping(), torch.rand(2, 1, 8, 8)
    explain(model, images)
    assert len(model.kept) == 1
    model(images).sum().backward()


@pytest.mark.parametrize("explain", [grad_cam, layer_cam, saliency])
def test_explanations_work_within_inference_mode(explain: Any) -> None:
    model, images = small_cnn(), torch.rand(2, 1, 8, 8)
    expected = explain(model, images, target=torch.tensor([1, 0]))
    with torch.inference_mode():
        found = explain(model, images.clone(), target=torch.tensor([1, 0]))
    assert torch.equal(found, expected)


@pytest.mark.parametrize("given", [torch.uint8, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.float32])
def test_images_get_the_precision_of_the_model(dtype: torch.dtype, given: torch.dtype) -> None:
    model, images = small_cnn().to(dtype), (torch.rand(2, 1, 8, 8) * 3).to(given)
    assert grad_cam(model, images).dtype == torch.float32 or dtype == torch.float64
    assert saliency(model, images, samples=2).isfinite().all()
    if given != torch.uint8:
        assert predictions(model, images).dtype == dtype
        assert {maps.dtype for maps in feature_maps(model, images).values()} == {dtype}


def test_a_named_token_layer_has_a_cam() -> None:
    model = WithTokens("layer")
    assert grad_cam(model, torch.rand(2, 1, 8, 8), layer="encoder").shape == (2, 8, 8)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: grad_cam(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), torch.rand(1, 1, 2, 2)), "has no convolution"),
        (lambda: grad_cam(small_cnn(), torch.rand(1, 1, 8, 8), layer="33"), "has no layer '33', did you mean '3'"),
        (lambda: grad_cam(small_cnn(), torch.rand(8, 8)), "images must be a tensor N x C x H x W, not"),
        (lambda: grad_cam(small_cnn(), torch.rand(2, 1, 8, 8), target=2), r"\[2, 2\] is not a class: the model has 2"),
        (lambda: grad_cam(small_cnn(), torch.rand(2, 1, 8, 8), target=[0, 1, 0]), "2 images have 3 targets"),
        (lambda: grad_cam(small_cnn(), torch.rand(1, 1, 8, 8), layer="8"), "has no places in the image"),
        (lambda: saliency(small_cnn(), torch.rand(1, 1, 8, 8), samples=0), "samples must be at least 1"),
        (lambda: rollout({}), "no attention maps"),
        (lambda: feature_maps(nn.Linear(2, 2), torch.rand(1, 2)), "has no convolution: name the layers"),
        (lambda: feature_maps(Idle(), torch.rand(1, 1, 8, 8)), r"none of the layers \['idle'\] ran"),
    ],
)
def test_invalid_explanations_raise_a_clear_error(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    "output", [lambda x: x, lambda x: {"logits": x}, lambda x: (x, "aux"), lambda x: x[:, :, None, None]]
)
def test_scores_are_found_in_outputs_of_models(output: Any) -> None:
    scores = torch.rand(2, 3)
    assert torch.equal(logits_of(output(scores)), scores)
    assert logits_of(torch.rand(4)).shape == (4, 1)


def test_the_most_active_channels_come_first_whatever_their_sign() -> None:
    maps = torch.stack([torch.full((2, 2), value) for value in (0.5, -2.0, 1.0, float("nan"))])
    assert most_active(maps, 3).tolist() == [1, 2, 0]


def test_wrapped_models_are_unwrapped() -> None:
    model = small_cnn()
    assert plain_module(nn.DataParallel(model)) is model
    assert plain_module(torch.compile(model, backend="eager")) is model
    assert plain_module(torch.compile(nn.DataParallel(model), backend="eager")) is model


class Compiled(nn.Module):
    """A model with a compiled part, which ignores hooks registered later."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = torch.compile(body, backend="eager")

    def forward(self, images: Tensor) -> Tensor:
        found: Tensor = self.body(images)
        return found


def test_a_partly_compiled_model_is_explained_without_recompiling() -> None:
    model, images = small_cnn().eval(), torch.rand(2, 1, 8, 8)
    compiled = Compiled(model)
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            compiled(images)
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    assert torch.equal(grad_cam(compiled, images), grad_cam(model, images))
    assert torch.equal(saliency(compiled, images), saliency(model, images))
    assert len(feature_maps(compiled, images)) == 2
    assert torch.equal(predictions(compiled, images), predictions(model, images))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == before

    model.compile(backend="eager")
    assert torch.equal(grad_cam(compiled, images), grad_cam(model, images))


def test_undisturbed_restores_after_a_failure() -> None:
    model = nn.Dropout()
    state = torch.get_rng_state()
    with pytest.raises(RuntimeError, match="stack expects"), undisturbed(model):
        torch.stack([torch.rand(1), torch.rand(2)])
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
