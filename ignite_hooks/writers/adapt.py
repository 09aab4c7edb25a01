"""Adapts objects of other libraries that have the three required methods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ignite_hooks.system.python import signature_of
from ignite_hooks.writers.interface import Writer

REQUIRED = ("write_scalar", "write_image", "write_config")
OPTIONAL = (
    "write_figure",
    "write_histogram",
    "write_text",
    "write_table",
    "write_result",
    "write_media",
    "write_graph",
    "write_artifact",
    "awaits_resume",
    "resumed",
    "began_anew",
    "flush",
    "close",
)


class AdaptedWriter(Writer):
    """Wraps an object of another library; only the methods it has are called."""

    def __init__(self, writer: Any) -> None:
        self.writer = writer
        methods = [method for method in OPTIONAL if callable(getattr(writer, method, None))]
        if _takes_kind_and_epoch(getattr(writer, "write_scalars", None)):
            methods.append("write_scalars")
        for method in methods:
            setattr(self, method, getattr(writer, method))

    def write_scalar(self, name: str, value: Any, step: int) -> None:
        self.writer.write_scalar(name, value, step)

    def write_image(self, name: str, image: Any, step: int) -> None:
        self.writer.write_image(name, image, step)

    def write_config(self, config: Mapping[str, Any]) -> None:
        self.writer.write_config(config)


def adapt(writer: Any) -> Writer:
    """Return a writer as it is, and any other object with the three required methods as a ``Writer``."""
    if isinstance(writer, Writer):
        return writer
    missing = [method for method in REQUIRED if not callable(getattr(writer, method, None))]
    if missing:
        raise TypeError(f"{type(writer).__name__} is not a writer: it has no {', '.join(missing)}")
    return AdaptedWriter(writer)


def _takes_kind_and_epoch(method: Any) -> bool:
    if not callable(method):
        return False
    try:
        signature_of(method).bind({}, 0, kind="train", epoch=None)
    except (TypeError, ValueError):
        # Then the numbers go through `write_scalar` one by one.
        return False
    return True
