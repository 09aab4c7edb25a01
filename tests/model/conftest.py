from __future__ import annotations

import pytest

from ignite_hooks.model import averaging_kernels


@pytest.fixture(params=["small ones packed", "small ones alone"])
def layouts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the few small tensors of a model packed, as many would be, or not."""
    if request.param == "small ones packed":
        monkeypatch.setattr(averaging_kernels, "TOO_FEW", 0)
