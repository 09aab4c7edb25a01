"""The interface of all writers."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ignite_hooks.text import table
from ignite_hooks.writers.convert import rendered, shown_cell
from ignite_hooks.writers.media import Media, sound_of, video_of


class Writer:
    """Base of all writers. Three methods are required; every other one falls back on them or does nothing.

    >>> class Printer(Writer):
    ...     def write_scalar(self, name, value, step):
    ...         print(step, name, value)
    >>> Printer().write_scalars({"loss": 0.5, "lr": 0.1}, step=50)
    50 loss 0.5
    50 lr 0.1
    """

    imported_ahead: Sequence[str] = ()
    """The modules that it needs during a run; they are imported before the first iteration."""

    def write_scalar(self, name: str, value: Any, step: int) -> None:
        """Write one number."""
        raise self._missing("write_scalar")

    def write_image(self, name: str, image: Any, step: int) -> None:
        """Write a picture: height x width x channels, 0 to 255 or 0.0 to 1.0."""
        raise self._missing("write_image")

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Write the configuration of the run."""
        raise self._missing("write_config")

    def write_scalars(
        self, scalars: Mapping[str, Any], step: int, *, kind: str = "train", epoch: int | None = None
    ) -> None:
        """Write numbers that belong together; ``kind`` is train, val, test or system."""
        for name, value in scalars.items():
            self.write_scalar(full_name(name, kind), value, step)

    def write_measured(
        self, scalars: Mapping[str, Any], step: int, *, kind: str = "train", epoch: int | None = None
    ) -> None:
        """Write the losses and metrics of the run; a writer whose own hook measures for it does not get these."""
        self.write_scalars(scalars, step, kind=kind, epoch=epoch)

    def write_figure(self, name: str, figure: Any, step: int) -> None:
        """Write a matplotlib figure, as a picture unless the writer knows better."""
        if getattr(figure, "canvas", None) is not None:
            self.write_image(name, rendered(figure), step)

    def write_histogram(self, name: str, values: Any, step: int) -> None:
        """Write the distribution of values; does nothing by default."""

    def write_text(self, name: str, text: str, step: int) -> None:
        """Write a text; does nothing by default."""

    def write_table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], step: int) -> None:
        """Write a table, as a text unless the writer knows better; a cell may be a picture as a data URI."""
        lines = [dict(zip(columns, map(shown_cell, row), strict=True)) for row in rows]
        self.write_text(name, table(lines), step)

    def write_result(
        self,
        name: str,
        result: Mapping[str, Any],
        step: int,
        *,
        kind: str = "val",
        epoch: int | None = None,
        draw: Callable[[], Any] | None = None,
    ) -> None:
        """Write what an evaluation found beside numbers; as a table, or as the picture of it, by default.

        Args:
            name: Its name.
            result: Plain data with ``kind``: matrix, vector, curves or table.
            step: The iteration.
            kind: val, test or train.
            epoch: The epoch.
            draw: Returns a picture or a figure of it; None where pictures are not wanted.
        """
        whole = full_name(name, kind)
        if result["kind"] == "table":
            self.write_table(whole, result["columns"], result["rows"], step)
        elif draw is not None and (picture := draw()) is not None:
            write = self.write_figure if getattr(picture, "canvas", None) is not None else self.write_image
            write(whole, picture, step)

    def write_audio(self, name: str, samples: Any, step: int, *, rate: int | None = None) -> None:
        """Write a sound, as a file that browsers play: one row of samples, or a row for each channel.

        Args:
            name: Its name.
            samples: Floats from -1.0 to 1.0, integers over the whole of their range, or the path of a file.
            step: The iteration.
            rate: Samples in a second.
        """
        self._write_if_taken(name, sound_of(samples, rate), step)

    def write_video(self, name: str, frames: Any, step: int, *, fps: float = 4.0) -> None:
        """Write a video, as an animated picture that browsers play.

        Args:
            name: Its name.
            frames: Pictures of one size, as ``write_image`` takes them, or an array of them: frames x height x width x
                channels, or frames x channels x height x width. Or the path of a file, such as an MP4.
            step: The iteration.
            fps: Frames in a second.
        """
        self._write_if_taken(name, video_of(frames, fps), step)

    def _write_if_taken(self, name: str, media: Media, step: int) -> None:
        if not self.why_no_media(media):
            self.write_media(name, media, step)

    def write_media(self, name: str, media: Media, step: int) -> None:
        """Write a sound or a video that is the content of a file; does nothing by default."""

    def why_no_media(self, media: Media) -> str:
        """Return why this writer does not take a sound or a video; empty where it takes it."""
        own = getattr(self.write_media, "__func__", self.write_media)
        return "it has no method write_media" if own is Writer.write_media else ""

    def write_graph(self, model: Any, inputs: Any) -> None:
        """Write the graph of a model; does nothing by default."""

    def write_artifact(self, path: str | Path, name: str | None = None, kind: str = "file") -> None:
        """Write a file; does nothing by default."""

    def awaits_resume(self) -> None:
        """Prepare for a checkpoint to be chosen: ``resumed`` or ``began_anew`` follows."""

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint keeps of this writer, such as the run of a tracker."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what a checkpoint has kept; ``resumed`` follows."""

    def resumed(self, step: int) -> None:
        """Prepare for a run that resumes at a step: later steps will be written again."""

    def began_anew(self) -> None:
        """Prepare for a new run: what was written before belongs to another one."""

    def flush(self) -> None:
        """Write out what is buffered."""

    def close(self) -> None:
        """Flush, and close files and connections; may be called twice."""

    def _missing(self, method: str) -> NotImplementedError:
        return NotImplementedError(f"{type(self).__name__}.{method}: implement it: every writer needs it")


def full_name(name: str, kind: str) -> str:
    """Return the name of a number among numbers of all kinds.

    Example:
        >>> full_name("loss", "train"), full_name("loss", "val"), full_name("val_loss", "val")
        ('loss', 'val/loss', 'val_loss')
        >>> full_name("memory/process_mb", "system")
        'memory/process_mb'
    """
    return name if kind in ("train", "system") or name.startswith((f"{kind}/", f"{kind}_")) else f"{kind}/{name}"


def missing(module: str, extra: str | None = None) -> str:
    """Return how to install a package that is missing, or nothing if it is installed."""
    if importlib.util.find_spec(module) is not None:
        return ""
    package = module if extra is None else f"'ignite-hooks[{extra}]'"
    return f"{module} is not installed: pip install {package}"


def installed(module: str, extra: str | None = None) -> None:
    """Raise an error that says how to install a package, if it is missing."""
    if problem := missing(module, extra):
        raise ImportError(problem)
