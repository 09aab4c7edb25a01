"""A callback for hooks of modules, tensors and optimizers that compiled code leaves out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class EagerHook:
    """Call a function, but never in compiled code, so that it does not become a part of a compiled graph.

    A copy of it does nothing: a script may copy or save a whole model in the middle of a run.
    """

    __slots__ = ("call", "is_compiling")

    def __init__(self, call: Callable[..., None]) -> None:
        import torch

        self.call, self.is_compiling = call, torch.compiler.is_compiling

    def __call__(self, *arguments: Any) -> None:
        if not self.is_compiling():
            self.call(*arguments)

    def __reduce__(self) -> tuple[Callable[[], Any], tuple[()]]:
        return _copy_of_hook, ()


def _copy_of_hook() -> Callable[..., None]:
    return do_nothing


def do_nothing(*_: Any) -> None:
    """Stand in for the hook in a copy of a model."""
