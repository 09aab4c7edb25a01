"""Draw in a thread beside the training: a short queue, files, trackers, windows."""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

from ignite_hooks.drawing.layout import as_pixels, save
from ignite_hooks.system.host import MACOS, WINDOWS, yield_to_other_threads
from ignite_hooks.terminal import ipython_shell

Backend = Literal["matplotlib", "pillow"]

MAX_WAITING = 4
"""Maximum number of samples that wait to be drawn; the pictures of each hold its images in memory."""

NEEDED_BY_IMAGES = (
    "PIL.ImageDraw",
    "PIL.ImageFont",
    "PIL.BmpImagePlugin",
    "PIL.GifImagePlugin",
    "PIL.JpegImagePlugin",
    "PIL.PngImagePlugin",
    "PIL.PpmImagePlugin",
    "ignite_hooks.drawing.explain",
    "ignite_hooks.drawing.figures",
    "ignite_hooks.drawing.samples",
)
NEEDED_BY_CURVES = (
    "matplotlib.figure",
    "matplotlib.backends.backend_agg",
    "ignite_hooks.drawing.training_curves",
    *NEEDED_BY_IMAGES,
)
"""The modules that threads draw with, to be imported before the first iteration."""
CLOSES_WITHIN = 20.0
"""Seconds for which ``close`` waits by default."""


class PictureSink(Protocol):
    """A receiver of pictures, such as the writer of a run."""

    def write_image(self, name: str, image: Any, step: int) -> None: ...
    def write_figure(self, name: str, figure: Any, step: int) -> None: ...


class DrawingThread:
    """A thread that calls functions which draw pictures, and saves, sends and shows the pictures.

    The thread starts with the first picture and lives until ``close``. A picture that arrives while the queue is full
    is dropped, so that drawing never delays the training; the pictures of one sample are all drawn or all dropped.
    An exception of a drawing is raised by the next ``draw``, or by ``close``.

    Args:
        name: Name of the thread.
        folder: Folder of the files; None for no files.
        sink: Receives the pictures too, in the thread; None for no receiver.
        show: Whether to show pictures: inline in a notebook, in a window if there is a display.
        backend: What opens windows; pillow hands the file to the viewer of the system.
        logger: Receives warnings.
    """

    def __init__(
        self,
        name: str,
        *,
        folder: Path | None = None,
        sink: PictureSink | None = None,
        show: bool = False,
        backend: Backend = "matplotlib",
        logger: logging.Logger | None = None,
    ) -> None:
        self.name, self.folder, self.sink, self.backend = name, folder, sink, backend
        self.dropped = 0
        """Number of pictures that were not drawn because the queue was full."""
        self._display = PictureDisplay(backend, logger or logging.getLogger("ignite_hooks")) if show else None
        self._logger = logger or logging.getLogger("ignite_hooks")
        # Implemented in C: `put` never hands the interpreter to the thread that waits for it.
        self._queue: queue.SimpleQueue[tuple[object, Callable[[], None]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._errors: list[Exception] = []
        self._warned_about_nothing = False
        self._lock = threading.Lock()
        self._newest: dict[str, tuple[int, Callable[[], Any]]] = {}
        self._unfinished = 0
        """Number of pictures that wait or are being drawn."""
        self._given_up = False
        """Whether the end of the run has stopped waiting, so that nothing more is written."""
        self._waiting: dict[object, int] = {}
        """Number of waiting pictures of each sample."""
        self._last_sample: tuple[object, bool] = (None, False)
        """The sample that arrived last, and whether it was accepted."""

    def draw(
        self, name: str, step: int, paint: Callable[[], Any], *, replace: bool = False, sample: str | None = None
    ) -> bool:
        """Queue a picture or a figure to be drawn; return False if it was dropped.

        With ``show`` the picture is drawn at once, because windows belong to the main thread.

        Args:
            name: Name of the picture.
            step: Iteration it belongs to.
            paint: Draws it.
            replace: Whether its file replaces the one before, which is not drawn at all if it is still waiting.
            sample: Pictures of the same sample are all drawn if its first one is, and else all dropped.
        """
        if self._display is not None:
            self._make(name, step, paint, replace)
            return True
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=f"{self.name} draws", daemon=True)
            self._thread.start()
        accepted = self._enqueue(name, step, paint, replace, sample)
        if not accepted:
            self.dropped += 1
            if self.dropped == 1:
                self._logger.warning(
                    "%s drops pictures, first %s of step %d: they arrive faster than they can be drawn",
                    self.name,
                    name,
                    step,
                )
        # After the new one is queued: each failure is raised by the next call, so repeated ones disable the hook.
        self._raise()
        return accepted

    def _enqueue(self, name: str, step: int, paint: Callable[[], Any], replace: bool, sample: str | None) -> bool:
        task = partial(self._make_newest, name) if replace else partial(self._make, name, step, paint)
        with self._lock:
            waits = replace and name in self._newest
            if replace:
                self._newest[name] = step, paint
            if waits:
                return True
            key: object = sample if sample is not None else object()
            if self._last_sample[0] != key:
                self._last_sample = key, len(self._waiting) < MAX_WAITING
            if not self._last_sample[1]:
                self._newest.pop(name, None)
                return False
            self._waiting[key] = self._waiting.get(key, 0) + 1
            self._unfinished += 1
        self._queue.put((key, task))
        return True

    def wait(self) -> None:
        """Wait until everything in the queue is drawn."""
        if self._thread is not None:
            done = threading.Event()
            self._queue.put((None, done.set))
            done.wait()

    def warn_nothing_to_draw(self, reason: str) -> None:
        """Warn once that there is nothing to draw, with the reason."""
        if reason and not self._warned_about_nothing:
            self._warned_about_nothing = True
            self._logger.warning("%s draws nothing: %s", self.name, reason)

    def close(self, within: float = CLOSES_WITHIN) -> None:
        """Draw what is waiting, end the thread, and raise the first exception that was not raised yet.

        Args:
            within: Seconds to wait. Pictures that are not drawn by then are left out, and counted in one line.
        """
        thread, self._thread = self._thread, None
        if thread is not None:
            self._queue.put(None)
            thread.join(within)
            if thread.is_alive():
                self._give_up(within)
        if self.dropped > 1:
            self._logger.warning("%s dropped %d pictures", self.name, self.dropped)
        self.dropped = 0
        self._raise()

    def _give_up(self, waited: float) -> None:
        """Write nothing more, and say how many pictures are left out."""
        with self._lock:
            self._given_up = True
            left = self._unfinished
        self._logger.warning(
            "%s: %s not drawn after %.0f s at the end of the run, so %s left out",
            self.name,
            "1 picture is" if left == 1 else f"{left} pictures are",
            waited,
            "it is" if left == 1 else "they are",
        )

    def _raise(self) -> None:
        errors, self._errors = self._errors, []
        if errors:
            raise errors[0]

    def _work(self) -> None:
        yield_to_other_threads()
        while (waited := self._queue.get()) is not None:
            sample, task = waited
            with self._lock:
                if sample in self._waiting:
                    self._waiting[sample] -= 1
                    if not self._waiting[sample]:
                        del self._waiting[sample]
            try:
                if not self._given_up:
                    task()
            except Exception as error:
                self._errors.append(error)
            with self._lock:
                self._unfinished -= sample is not None
            del waited, task  # they hold images

    def _make_newest(self, name: str) -> None:
        with self._lock:
            step, paint = self._newest.pop(name)
        self._make(name, step, paint, replace=True)

    def _make(self, name: str, step: int, paint: Callable[[], Any], replace: bool = False) -> None:
        picture = paint()
        pixels = as_pixels(picture)
        if self._given_up:
            return
        if self.folder is not None:
            save(pixels, self.folder / file_name(name, None if replace else step))
        if self.sink is not None:
            if picture is pixels:
                self.sink.write_image(name, pixels, step)
            else:
                self.sink.write_figure(name, picture, step)
        if self._display is not None:
            self._display(name, pixels)


def file_name(name: str, step: int | None) -> Path:
    """Return the path of a picture within the folder, which no name can leave.

    Example:
        >>> str(file_name("val/cam", 500)), str(file_name("../layer 1", None))
        ('val/cam_000500.png', 'layer_1.png')
    """
    parts = [
        "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in part) for part in name.split("/")
    ]
    kept = [part for part in parts if part.strip(".")] or ["picture"]
    return Path(*kept[:-1], f"{kept[-1]}.png" if step is None else f"{kept[-1]}_{step:06d}.png")


class PictureDisplay:
    """A display of pictures by name: a picture replaces the one before of the same name."""

    def __init__(self, backend: Backend, logger: logging.Logger) -> None:
        self._backend, self._logger = backend, logger
        self._handles: dict[str, Any] = {}
        self._warned = False

    def __call__(self, name: str, pixels: Any) -> None:
        """Show a picture inline in a notebook, else in a window; if neither is possible, warn once."""
        if in_notebook():
            self._in_line(name, pixels)
        elif has_display():
            (self._in_window if self._backend == "matplotlib" else self._in_viewer)(name, pixels)
        else:
            self._warn("there is neither a display nor a notebook")

    def _warn(self, reason: str) -> None:
        if not self._warned:
            self._warned = True
            self._logger.warning("show: pictures are not shown: %s", reason)

    def _in_line(self, name: str, pixels: Any) -> None:
        import io

        from IPython.display import Image, display
        from PIL import Image as Pictures

        file = io.BytesIO()
        Pictures.fromarray(pixels).save(file, "PNG")
        shown = Image(data=file.getvalue())  # type: ignore[no-untyped-call]
        # Update, do not clear: other output of the cell stays, and a saved notebook keeps one picture.
        if name in self._handles:
            self._handles[name].update(shown)
        else:
            self._handles[name] = display(shown, display_id=True)  # type: ignore[no-untyped-call]

    def _in_window(self, name: str, pixels: Any) -> None:
        # A window needs pyplot; a user who asks for windows has its event loop running.
        from matplotlib import pyplot
        from matplotlib.backend_bases import NonGuiException

        figure = pyplot.figure(name, figsize=(pixels.shape[1] / 100, pixels.shape[0] / 100), dpi=100)
        figure.clear()
        figure.figimage(pixels)
        try:
            manager: Any = figure.canvas.manager
            manager.show()
        except NonGuiException as error:  # matplotlib has a backend without windows, or the display does not answer
            pyplot.close(figure)
            self._warn(f"matplotlib cannot open a window ({error})")
            return
        figure.canvas.draw_idle()
        figure.canvas.flush_events()

    def _in_viewer(self, name: str, pixels: Any) -> None:
        from PIL import Image

        Image.fromarray(pixels).show(name)


def in_notebook() -> bool:
    """Return whether this code runs in a Jupyter kernel."""
    return getattr(ipython_shell(), "kernel", None) is not None


def has_display() -> bool:
    """Return whether a window can be opened."""
    return MACOS or WINDOWS or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
