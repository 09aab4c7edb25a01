"""What a writer can be asked to write."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ignite_hooks.writers.convert import rendered


class Writer:
    """Base of all writers. Three methods are required; every other one falls back on them or does nothing.

    >>> class Printer(Writer):
    ...     def write_scalar(self, name, value, step):
    ...         print(step, name, value)
    >>> Printer().write_scalars({"loss": 0.5, "lr": 0.1}, step=50)
    50 loss 0.5
    50 lr 0.1
    """

    def write_scalar(self, name: str, value: Any, step: int) -> None:
        raise self._missing("write_scalar")

    def write_image(self, name: str, image: Any, step: int) -> None:
        """Write a picture: height x width x channels, 0 to 255 or 0.0 to 1.0."""
        raise self._missing("write_image")

    def write_config(self, config: Mapping[str, Any]) -> None:
        raise self._missing("write_config")

    def write_scalars(
        self, scalars: Mapping[str, Any], step: int, *, kind: str = "train", epoch: int | None = None
    ) -> None:
        """Write numbers that belong together; `kind` is train, val, test or system."""
        for name, value in scalars.items():
            self.write_scalar(full_name(name, kind), value, step)

    def write_measured(
        self, scalars: Mapping[str, Any], step: int, *, kind: str = "train", epoch: int | None = None
    ) -> None:
        """Write what a run is measured by; a place whose own hook measures at its own interval leaves it out."""
        self.write_scalars(scalars, step, kind=kind, epoch=epoch)

    def write_figure(self, name: str, figure: Any, step: int) -> None:
        """Write a matplotlib figure, as a picture unless the writer knows better."""
        if getattr(figure, "canvas", None) is not None:
            self.write_image(name, rendered(figure), step)

    def write_histogram(self, name: str, values: Any, step: int) -> None:
        """Nothing, unless the writer can."""

    def write_text(self, name: str, text: str, step: int) -> None:
        """Nothing, unless the writer can."""

    def write_graph(self, model: Any, inputs: Any) -> None:
        """Nothing, unless the writer can."""

    def write_artifact(self, path: str | Path, name: str | None = None, kind: str = "file") -> None:
        """Nothing, unless the writer can."""

    def resumed(self, step: int) -> None:
        """Told that the run goes on from this step: what was written of later ones will be written again."""

    def began_anew(self) -> None:
        """Told that a run begins that goes on from none: what is there already is of another one."""

    def flush(self) -> None:
        """Bring what was written to where it goes."""

    def close(self) -> None:
        """Flush and let go of files and connections; may be called twice."""

    def _missing(self, method: str) -> NotImplementedError:
        return NotImplementedError(f"{type(self).__name__}.{method}: every writer has to implement it")


def full_name(name: str, kind: str) -> str:
    """The name of a number where numbers of all kinds lie side by side.

    Example:
        >>> full_name("loss", "train"), full_name("loss", "val"), full_name("val_loss", "val")
        ('loss', 'val/loss', 'val_loss')
    """
    return name if kind == "train" or name.startswith((f"{kind}/", f"{kind}_")) else f"{kind}/{name}"


def missing(module: str, extra: str | None = None) -> str:
    """What to do where a package is not installed; nothing where it is."""
    if importlib.util.find_spec(module) is not None:
        return ""
    package = module if extra is None else f"'ignite-hooks[{extra}]'"
    return f"{module} is not installed: pip install {package}"


def installed(module: str, extra: str | None = None) -> None:
    """Raise an error that says how to install what a writer needs, where it is not there."""
    if problem := missing(module, extra):
        raise ImportError(problem)
