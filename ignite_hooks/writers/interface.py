"""What a writer can be asked to write."""

from __future__ import annotations

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
            self.write_scalar(name, value, step)

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

    def flush(self) -> None:
        """Bring what was written to where it goes."""

    def close(self) -> None:
        """Flush and let go of files and connections; may be called twice."""

    def _missing(self, method: str) -> NotImplementedError:
        return NotImplementedError(f"{type(self).__name__}.{method}: every writer has to implement it")


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
