"""Numbers, pictures and configurations in the forms that backends take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def fetched(scalars: Mapping[str, Any]) -> dict[str, Any]:
    """Return the scalars with one-element tensors as numbers; waits once per device and type, not once per tensor."""
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
    """Return a value as a number, or None if it is something else."""
    if type(value) is float:
        return value
    value = value.item() if hasattr(type(value), "item") and getattr(value, "size", 1) in (1,) else value
    return value if isinstance(value, (int, float)) else None


def finite(values: Any) -> Any:
    """Return the finite values of an array, a list or a tensor as one row; of a sharded tensor the local part."""
    import numpy

    if hasattr(type(values), "to_local"):
        values = values.to_local()
    if hasattr(type(values), "detach"):
        dense = values.detach().to_dense() if values.is_sparse else values.detach()
        values = dense.cpu().float()
    array = numpy.asarray(values).ravel()
    return array[numpy.isfinite(array)]


PICTURE = "data:image/png;base64,"
"""The beginning of a cell of a table that is a picture."""


def shown_cell(value: Any) -> str:
    """Return a cell of a table as text.

    Example:
        >>> [shown_cell(one) for one in ("cat", 0.123456, 3, None, "data:image/png;base64,AAAA")]
        ['cat', '0.1235', '3', '', '(picture)']
    """
    if isinstance(value, str):
        return "(picture)" if value.startswith(PICTURE) else " ".join(value.split())
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def without_pictures(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result whose table has no pictures, which files of numbers do not hold."""
    if result["kind"] != "table":
        return dict(result)
    rows = [["" if isinstance(c, str) and c.startswith(PICTURE) else c for c in row] for row in result["rows"]]
    return {**result, "rows": rows}


def picture_in(cell: Any) -> Any:
    """Return the picture in a cell of a table as an array; None if it is none."""
    if not isinstance(cell, str) or not cell.startswith(PICTURE):
        return None
    import base64
    import io

    import numpy
    from PIL import Image

    return numpy.asarray(Image.open(io.BytesIO(base64.b64decode(cell.removeprefix(PICTURE)))).convert("RGB"))


def as_picture(image: Any) -> Any:
    """Return a picture as an array of bytes, height x width x 3 or 4; a tensor may have its channels first."""
    import numpy

    first = hasattr(type(image), "detach") and image.ndim == 3 and image.shape[0] in (1, 3, 4)
    array = numpy.asarray(image.detach().cpu() if hasattr(type(image), "detach") else image)
    if first and array.shape[2] not in (3, 4):
        array = array.transpose(1, 2, 0)
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim != 3 or array.shape[2] not in (1, 3, 4):
        raise ValueError(f"a picture is height x width x channels, with 1, 3 or 4 channels, not {array.shape}")
    if array.dtype != numpy.uint8:
        # As in matplotlib: floats range from 0.0 to 1.0, integers to 255.
        scale = 255 if array.dtype.kind in "fb" else 1
        array = (array * scale).round() if scale == 255 else array
        array = numpy.nan_to_num(array).clip(0, 255).astype(numpy.uint8)
    return numpy.repeat(array, 3, axis=2) if array.shape[2] == 1 else array


def rendered(figure: Any) -> Any:
    """Return a matplotlib figure as an RGBA array (height x width x 4, uint8) without changing the figure."""
    import numpy
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    # A figure of this package may have its pixels already.
    if (drawn := getattr(figure, "pixels_of_ignite_hooks", None)) is not None:
        return drawn.copy()
    canvas = figure.canvas
    try:
        # Not `savefig`: ClearML captures it and would upload the picture a second time.
        agg: Any = FigureCanvasAgg(figure)
        agg.draw()
        return numpy.array(agg.buffer_rgba())
    finally:
        figure.set_canvas(canvas)


def binned(values: Any, bins: int = 64) -> tuple[list[int], list[float]]:
    """Return the counts and edges of a histogram of the finite values."""
    import numpy

    counts, edges = numpy.histogram(finite(values), bins=bins)
    return [int(count) for count in counts], [float(edge) for edge in edges]


def plain(value: Any) -> Any:
    """Return a configuration as every tracker accepts it: other objects as text, and all names as text."""
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value if value is None or isinstance(value, (str, int, float)) else str(value)


def flattened(config: Mapping[str, Any], above: str = "") -> list[tuple[str, Any]]:
    """Return every value of nested mappings and lists with its path, joined by dots.

    Example:
        >>> flattened({"hooks": [{"type": "LoggerHook"}], "seed": 1})
        [('hooks.0.type', 'LoggerHook'), ('seed', 1)]
    """
    found: list[tuple[str, Any]] = []
    for key, value in config.items():
        name = f"{above}{key}"
        if isinstance(value, (list, tuple)):
            value = {str(index): item for index, item in enumerate(value)} or str(value)
        found += flattened(value, f"{name}.") if isinstance(value, Mapping) and value else [(name, value)]
    return found
