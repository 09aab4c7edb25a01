"""Draws beside the training: a thread with a short queue, files, trackers, windows."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

from ignite_hooks.drawing.layout import as_pixels, save

Backend = Literal["matplotlib", "pillow"]

WAITING = 4
"""So many looks wait to be drawn at most; the pictures of each hold its images in memory."""


class Album(Protocol):
    """What takes pictures: the writer of a run."""

    def write_image(self, name: str, image: Any, step: int) -> None: ...
    def write_figure(self, name: str, figure: Any, step: int) -> None: ...


class Studio:
    """Makes pictures of functions that draw them, in a thread of its own that lives until ``close``.

    A picture that comes while the queue is full is left out: training is never held up. The pictures of one look are
    drawn all or left out all. What a drawing raises is raised by the next ``draw``, or by ``close``.

    Args:
        name: Of the thread.
        folder: Where files go; None: no files.
        album: Takes the pictures too, from the thread; None: nobody.
        show: Whether pictures are shown: in a notebook in line, where there is a display in a window.
        backend: What opens windows; pillow hands the file to the viewer of the system.
        logger: Where warnings go.
    """

    def __init__(
        self,
        name: str,
        *,
        folder: Path | None = None,
        album: Album | None = None,
        show: bool = False,
        backend: Backend = "matplotlib",
        logger: logging.Logger | None = None,
    ) -> None:
        self.name, self.folder, self.album, self.backend = name, folder, album, backend
        self.left_out = 0
        """How many pictures were not drawn because the queue was full."""
        self._show = Shown(backend, logger or logging.getLogger("ignite_hooks")) if show else None
        self._logger = logger or logging.getLogger("ignite_hooks")
        # Written in C: putting something into it never hands the interpreter to the thread that waits for it.
        self._queue: queue.SimpleQueue[tuple[object, Callable[[], None]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._errors: list[Exception] = []
        self._told = False
        self._lock = threading.Lock()
        self._newest: dict[str, tuple[int, Callable[[], Any]]] = {}
        self._waiting: dict[object, int] = {}
        """How many pictures of each look wait."""
        self._answered: tuple[object, bool] = (None, False)
        """The look that came last, and whether it was taken."""

    def draw(
        self, name: str, step: int, paint: Callable[[], Any], *, replace: bool = False, look: str | None = None
    ) -> bool:
        """Have a picture, or a figure, drawn and kept as ``name`` of this step; False where it was left out.

        With ``replace`` its file takes the place of the one before, which is not drawn at all if it is still waiting.
        Pictures with the same ``look`` share the fate of its first. With ``show`` a picture is drawn at once: windows
        belong to the main thread.
        """
        if self._show is not None:
            self._make(name, step, paint, replace)
            return True
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=f"{self.name} draws", daemon=True)
            self._thread.start()
        taken = self._enqueue(name, step, paint, replace, look)
        if not taken:
            self.left_out += 1
            if self.left_out == 1:
                self._logger.warning(
                    "%s leaves pictures out, %s of step %d first: they come faster than they can be drawn",
                    self.name,
                    name,
                    step,
                )
        # After the new one has been taken: failures in a row are raised in a row, and switch a hook off.
        self._raise()
        return taken

    def _enqueue(self, name: str, step: int, paint: Callable[[], Any], replace: bool, look: str | None) -> bool:
        task = partial(self._make_newest, name) if replace else partial(self._make, name, step, paint)
        with self._lock:
            waits = replace and name in self._newest
            if replace:
                self._newest[name] = step, paint
            if waits:
                return True
            key: object = look if look is not None else object()
            if self._answered[0] != key:
                self._answered = key, len(self._waiting) < WAITING
            if not self._answered[1]:
                self._newest.pop(name, None)
                return False
            self._waiting[key] = self._waiting.get(key, 0) + 1
        self._queue.put((key, task))
        return True

    def wait(self) -> None:
        """Return when everything that was waiting is drawn."""
        if self._thread is not None:
            done = threading.Event()
            self._queue.put((None, done.set))
            done.wait()

    def nothing_to_draw(self, reason: str) -> None:
        """Say once why there is nothing to draw."""
        if reason and not self._told:
            self._told = True
            self._logger.warning("%s draws nothing: %s", self.name, reason)

    def close(self) -> None:
        """Finish what is waiting, end the thread, and raise what went wrong last."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._queue.put(None)
            thread.join()
        if self.left_out > 1:
            self._logger.warning("%s left %d pictures out", self.name, self.left_out)
        self.left_out = 0
        self._raise()

    def _raise(self) -> None:
        errors, self._errors = self._errors, []
        if errors:
            raise errors[0]

    def _work(self) -> None:
        _never_interrupt_others()
        while (waited := self._queue.get()) is not None:
            look, task = waited
            with self._lock:
                if look in self._waiting:
                    self._waiting[look] -= 1
                    if not self._waiting[look]:
                        del self._waiting[look]
            try:
                task()
            except Exception as error:
                self._errors.append(error)
            del waited, task  # and with them the images they hold

    def _make_newest(self, name: str) -> None:
        with self._lock:
            step, paint = self._newest.pop(name)
        self._make(name, step, paint, replace=True)

    def _make(self, name: str, step: int, paint: Callable[[], Any], replace: bool = False) -> None:
        picture = paint()
        pixels = as_pixels(picture)
        if self.folder is not None:
            save(pixels, self.folder / file_name(name, None if replace else step))
        if self.album is not None:
            if picture is pixels:
                self.album.write_image(name, pixels, step)
            else:
                self.album.write_figure(name, picture, step)
        if self._show is not None:
            self._show(name, pixels)


def _never_interrupt_others() -> None:
    """Let this thread wait for its turn when it wakes; where all cores are busy it would take that of the training."""
    if sys.platform == "linux":
        # Not a lower priority: a thread that is not let go on would keep the interpreter from everybody else.
        with contextlib.suppress(OSError):  # a sandbox may forbid it, and then drawing only starts less politely
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def open_studio(hook: Any, runner: Any) -> Studio:
    """The studio of a hook that has the settings save, show, out_dir, backend: files lie in the work directory."""
    folder = runner.get_service("visualization_dir") if hook.out_dir is None else runner.work_dir / hook.out_dir
    return Studio(
        hook.name or type(hook).__name__,
        folder=Path(folder) if hook.save else None,
        album=runner.writer,
        show=hook.show,
        backend=getattr(hook, "backend", "matplotlib"),
        logger=runner.logger,
    )


def file_name(name: str, step: int | None) -> Path:
    """The place of a picture in the folder: its name is a path, and no more than that.

    Example:
        >>> str(file_name("val/cam", 500)), str(file_name("../layer 1", None))
        ('val/cam_000500.png', 'layer_1.png')
    """
    parts = [
        "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in part) for part in name.split("/")
    ]
    kept = [part for part in parts if part.strip(".")] or ["picture"]
    return Path(*kept[:-1], f"{kept[-1]}.png" if step is None else f"{kept[-1]}_{step:06d}.png")


class Shown:
    """Shows pictures by name, each in its own place, which the next of this name takes over."""

    def __init__(self, backend: Backend, logger: logging.Logger) -> None:
        self._backend, self._logger = backend, logger
        self._handles: dict[str, Any] = {}
        self._warned = False

    def __call__(self, name: str, pixels: Any) -> None:
        """Show a picture: in a notebook, else in a window; where there is neither, say so once."""
        if in_notebook():
            self._in_line(name, pixels)
        elif has_display():
            (self._in_window if self._backend == "matplotlib" else self._in_viewer)(name, pixels)
        else:
            self._warn("there is no display and no notebook here")

    def _warn(self, reason: str) -> None:
        if not self._warned:
            self._warned = True
            self._logger.warning("show: %s, so pictures are not shown", reason)

    def _in_line(self, name: str, pixels: Any) -> None:
        import io

        from IPython.display import Image, display
        from PIL import Image as Pictures

        file = io.BytesIO()
        Pictures.fromarray(pixels).save(file, "PNG")
        shown = Image(data=file.getvalue())  # type: ignore[no-untyped-call]
        # Updated, not cleared: other output of the cell stays, and a saved notebook keeps one picture.
        if name in self._handles:
            self._handles[name].update(shown)
        else:
            self._handles[name] = display(shown, display_id=True)  # type: ignore[no-untyped-call]

    def _in_window(self, name: str, pixels: Any) -> None:
        # A window needs pyplot, and whoever asks for one has its event loop anyway.
        from matplotlib import pyplot
        from matplotlib.backend_bases import NonGuiException

        figure = pyplot.figure(name, figsize=(pixels.shape[1] / 100, pixels.shape[0] / 100), dpi=100)
        figure.clear()
        figure.figimage(pixels)
        try:
            manager: Any = figure.canvas.manager
            manager.show()
        except NonGuiException as error:  # matplotlib was told to do without windows, or the display does not answer
            pyplot.close(figure)
            self._warn(f"matplotlib opens no window here ({error})")
            return
        figure.canvas.draw_idle()
        figure.canvas.flush_events()

    def _in_viewer(self, name: str, pixels: Any) -> None:
        from PIL import Image

        Image.fromarray(pixels).show(name)


def in_notebook() -> bool:
    """Whether a Jupyter kernel runs this."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return getattr(shell, "kernel", None) is not None


def has_display() -> bool:
    """Whether a window can open."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
