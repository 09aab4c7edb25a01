"""What a writer can be asked to write."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any


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


def fetched(scalars: Mapping[str, Any]) -> dict[str, Any]:
    """The scalars with one-element tensors as numbers: one wait per device and type, not one per tensor."""
    plain = dict(scalars)
    groups: dict[tuple[str, str], list[str]] = {}
    for name, value in plain.items():
        # The class is asked because an instance of an Ignite `Metric` answers any name.
        if hasattr(type(value), "numel") and value.numel() == 1:
            groups.setdefault((str(value.device), str(value.dtype)), []).append(name)
    for names in groups.values():
        import torch

        together = torch.stack([plain[name].detach().reshape(()) for name in names])
        plain.update(zip(names, together.tolist(), strict=True))
    return plain


def number_of(value: Any) -> float | int | None:
    """A number for a place that takes nothing else; anything else is none."""
    if type(value) is float:
        return value
    value = value.item() if hasattr(type(value), "item") and getattr(value, "size", 1) in (1,) else value
    return value if isinstance(value, (int, float)) else None


def finite(values: Any) -> Any:
    """What is finite of an array, a list or a tensor, in one row; of a sharded tensor the part that is here."""
    import numpy

    if hasattr(type(values), "to_local"):
        values = values.to_local()
    if hasattr(type(values), "detach"):
        dense = values.detach().to_dense() if values.is_sparse else values.detach()
        values = dense.cpu().float()
    array = numpy.asarray(values).ravel()
    return array[numpy.isfinite(array)]


def as_picture(image: Any) -> Any:
    """A picture as an array of bytes, height x width x 3 or 4; a tensor may have its channels first."""
    import numpy

    first = hasattr(type(image), "detach") and image.ndim == 3 and image.shape[0] in (1, 3, 4)
    array = numpy.asarray(image.detach().cpu() if hasattr(type(image), "detach") else image)
    if first and array.shape[2] not in (3, 4):
        array = array.transpose(1, 2, 0)
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim != 3 or array.shape[2] not in (1, 3, 4):
        raise ValueError(f"a picture is height x width x channels, with 1, 3 or 4 of these, not {array.shape}")
    if array.dtype != numpy.uint8:
        # As in matplotlib: numbers with a fraction reach from 0.0 to 1.0, whole ones to 255.
        scale = 255 if array.dtype.kind in "fb" else 1
        array = (array * scale).round() if scale == 255 else array
        array = numpy.nan_to_num(array).clip(0, 255).astype(numpy.uint8)
    return numpy.repeat(array, 3, axis=2) if array.shape[2] == 1 else array


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


def rendered(figure: Any) -> Any:
    """A matplotlib figure as an RGBA array (height x width x 4, uint8); the figure stays as it was."""
    import numpy
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = figure.canvas
    try:
        # Not `savefig`: ClearML captures it and would upload the picture a second time.
        agg: Any = FigureCanvasAgg(figure)
        agg.draw()
        return numpy.array(agg.buffer_rgba())
    finally:
        figure.set_canvas(canvas)
