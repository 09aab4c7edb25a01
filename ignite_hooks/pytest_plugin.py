"""The fixture ``check_hook`` for pytest, which finds it by the entry point of this package.

Every pytest on the machine loads this module: what it offers is imported when a test asks for it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture(scope="session")
def check_hook() -> Callable[..., None]:
    """Check that a hook keeps what every hook promises: ``check_hook(MyHook, interval=2)``."""
    from ignite_hooks import testing

    return testing.check_hook
