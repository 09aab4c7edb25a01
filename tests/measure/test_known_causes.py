"""What explains the time of operators."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from ignite_hooks.measure.findings import profile_findings
from ignite_hooks.measure.known_causes import circumstances_of
from ignite_hooks.measure.profile import Circumstances, Operator, Profile


@pytest.fixture
def _as_before() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = True


FILL = Operator("aten::fill_", 910, 0.2)
COPY = Operator("Memcpy HtoD (Pageable -> Device)", 10, device=0.1)
PINNED_COPY = Operator("Memcpy HtoD (Pinned -> Device)", 10, device=0.1)
CASTS = Operator("aten::copy_", 900, 0.01, device=0.2)
SHORT = Operator("aten::mul", 60_000, 0.6)
ALONE = "the optimizer takes 20 % of the iteration with foreach=False, which updates each tensor alone: "
ON_CPU = f"{ALONE}set fused=True"


@pytest.mark.parametrize(
    ("circumstances", "operator", "seconds", "said"),
    [
        (Circumstances(fills=True), FILL, {}, "aten::fill_ takes 20 % of the iteration, 91 calls in each: determ"),
        (Circumstances(fills=True), Operator("aten::fill_", 910, 0.04), {}, None),
        (Circumstances(fills=False), FILL, {}, None),
        (Circumstances(foreach_off=True, fusable=True), FILL, {"optimizer": 0.2}, ON_CPU),
        (
            Circumstances(foreach_off=True, fusable=True),
            CASTS,
            {"optimizer": 0.2},
            f"{ALONE}leave foreach out, or set f",
        ),
        (Circumstances(foreach_off=True), CASTS, {"optimizer": 0.2}, f"{ALONE}leave foreach out"),
        (Circumstances(foreach_off=True), FILL, {"optimizer": 0.2}, None),
        (
            Circumstances(by_default=True),
            FILL,
            {"optimizer": 0.3},
            "the optimizer takes 30 % of the iteration: on a CPU",
        ),
        (Circumstances(by_default=True), FILL, {"optimizer": 0.2}, None),
        (Circumstances(by_default=True), CASTS, {"optimizer": 0.3}, None),
        (Circumstances(foreach_off=False), FILL, {"optimizer": 0.2}, None),
        (
            Circumstances(pinned=False),
            COPY,
            {},
            "copies from memory that is not pinned take 10 % of the iteration: set",
        ),
        (Circumstances(), COPY, {}, "copies from memory that is not pinned take 10 % of the iteration: set pin_memory"),
        (Circumstances(pinned=True), COPY, {}, None),
        (Circumstances(pinned=False), PINNED_COPY, {}, None),
        (Circumstances(pinned=False), CASTS, {}, None),
        (Circumstances(samples=1), SHORT, {}, "batches have 1 sample, so starting operators takes longer"),
        (Circumstances(samples=64), SHORT, {}, None),
    ],
)
def test_a_known_cause_is_named(
    circumstances: Circumstances, operator: Operator, seconds: dict[str, float], said: str | None
) -> None:
    profile = Profile(circumstances=circumstances)
    profile.add(10, {"other": 1.0 - sum(seconds.values()), **seconds}, [operator])
    found = [text for text in profile_findings(profile) if "operators per iteration" not in text]
    if said is None:
        assert not any(text.startswith(("aten::fill_", "the optimizer", "batches", "copies")) for text in found), found
    else:
        assert any(text.startswith(said) for text in found), found


@pytest.mark.parametrize("name", ["aten::fill_", "Optimizer.step#AdamW.step"])
def test_a_large_operator_with_a_known_cause_is_named_once(name: str) -> None:
    profile = Profile(circumstances=Circumstances(fills=True, by_default=True))
    phases = {"other": 1.0} if "fill" in name else {"other": 0.6, "optimizer": 0.4}
    profile.add(10, phases, [Operator(name, 910, 0.4)])
    assert len(profile_findings(profile)) == 1


@pytest.mark.usefixtures("_as_before")
def test_the_circumstances_are_those_of_torch_optimizer_and_loader() -> None:
    weights = nn.Linear(2, 1)
    loader = DataLoader([torch.zeros(2)] * 4, batch_size=4)
    plain = circumstances_of(torch.zeros(4, 2), [torch.optim.SGD(weights.parameters())], loader)
    assert plain == Circumstances(fills=False, foreach_off=False, samples=4, pinned=False, by_default=True)
    assert not circumstances_of(None, [torch.optim.SGD(weights.parameters(), fused=True)], None).by_default
    assert not circumstances_of(None, [torch.optim.RMSprop(weights.parameters())], None).by_default
    torch.use_deterministic_algorithms(True)
    one_by_one = torch.optim.SGD(weights.parameters(), foreach=False)
    assert circumstances_of(None, [one_by_one], None) == Circumstances(fills=True, foreach_off=True, fusable=True)
    no_fused = torch.optim.RMSprop(weights.parameters(), foreach=False)
    assert not circumstances_of(None, [no_fused], None).fusable
    torch.utils.deterministic.fill_uninitialized_memory = False
    assert not circumstances_of(None, [], None).fills


def test_phases_that_were_delayed_once_hide_no_cause() -> None:
    """Another program had the processor during one of six iterations."""
    usual = {"forward": 0.004, "backward": 0.004, "optimizer": 0.002}
    each = [usual | {"forward": 0.5}, *[usual] * 5]
    profile = Profile(circumstances=Circumstances(foreach_off=True, fusable=True, samples=1))
    sums = {name: sum(one[name] for one in each) for name in usual}
    profile.add(6, sums, [Operator("aten::add", 6000, 0.02)], each=each)
    assert [text[:28] for text in profile_findings(profile)[:2]] == [ON_CPU[:28], "batches have 1 sample, so st"]
