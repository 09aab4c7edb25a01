"""Several writers as one; a failure of one does not disturb the others."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ignite_hooks.secrets import Masks
from ignite_hooks.text import one_line
from ignite_hooks.writers.adapt import AdaptedWriter, adapt
from ignite_hooks.writers.destination import Destination
from ignite_hooks.writers.interface import Writer
from ignite_hooks.writers.media import Media, sound_of, video_of

logger = logging.getLogger("ignite_hooks")

PRODUCERS_WAIT = 20.0
"""Seconds for which the end of a run waits for threads that draw."""


class ManyWriters(Writer):
    """Passes everything on to each writer, in order, without secrets.

    A writer that fails does not disturb the others, nor training; ``failures()`` says what was lost. A writer
    added by ``join`` belongs to a hook that measures at its own interval; it gets every call but ``write_measured``.
    """

    def __init__(self, writers: Sequence[Any], masks: Masks | None = None) -> None:
        self.masks = masks or Masks()
        adapted = [adapt(writer) for writer in writers]
        named = zip(adapted, _names(adapted), strict=True)
        self._destinations = [Destination(writer, name, self.masks) for writer, name in named]
        self._close_at: float | None = None
        self._pages: dict[str, str] = {}
        self._told: set[tuple[str, str]] = set()
        """The writers that take no sounds or videos, and why, as far as it was said."""

    @property
    def writers(self) -> list[Writer]:
        """The writers, in order."""
        return [destination.writer for destination in self._destinations]

    def pages(self) -> dict[str, str]:
        """Return the addresses of the run's pages in trackers, as far as they are known, by tracker."""
        for writer in self.writers:
            if page := getattr(writer, "page", ""):
                self._pages[str(getattr(writer, "kind", type(writer).__name__))] = str(page)
        return dict(self._pages)

    def join(self, writer: Any, *, pictures: bool = True, pictures_every: int = 1) -> ManyWriters:
        """Add a writer that has its own hook, and return what writes to this one alone.

        Args:
            writer: The writer.
            pictures: Whether it gets pictures.
            pictures_every: The least number of steps between two pictures of one name.
        """
        adapted = adapt(writer)
        destination = Destination(
            adapted,
            _names([*self.writers, adapted])[-1],
            self.masks,
            has_own_schedule=True,
            takes_pictures=pictures,
            pictures_every=pictures_every,
        )
        joined = ManyWriters([], self.masks)
        joined._destinations = [destination]
        self._destinations.append(destination)
        return joined

    def leave(self, joined: ManyWriters) -> None:
        """Close a writer that joined, and write nothing more to it; its failures are still reported.

        At the end of a run this happens in ``close``, because other hooks and their threads have yet to deliver.
        """
        if self._close_at is None:
            self._leave(joined._destinations)

    def leave_out(self, kind: type) -> None:
        """Write nothing to the writers of a class, which have been given nothing yet."""
        self._destinations = [one for one in self._destinations if not isinstance(one.writer, kind)]

    def prepare_to_close(self) -> None:
        """Begin the end of a run: hooks deliver their last pictures, for at most ``seconds_left``."""
        self._close_at = time.monotonic() + PRODUCERS_WAIT

    @property
    def seconds_left(self) -> float:
        """The seconds for which a thread that draws is waited for."""
        return PRODUCERS_WAIT if self._close_at is None else max(0.0, self._close_at - time.monotonic())

    def _leave(self, leaving: Sequence[Destination]) -> None:
        for destination in leaving:
            destination.leave()
            self.pages()
            if not destination.failures:
                # Another list, as threads that draw may be going through this one.
                self._destinations = [one for one in self._destinations if one is not destination]

    def write_scalar(self, name: str, value: Any, step: int) -> None:
        self._pass_on("write_scalar", name, value, step)

    def write_scalars(
        self, scalars: Mapping[str, Any], step: int, *, kind: str = "train", epoch: int | None = None
    ) -> None:
        self._pass_on("write_scalars", scalars, step, kind=kind, epoch=epoch)

    def write_measured(
        self, scalars: Mapping[str, Any], step: int, *, kind: str = "train", epoch: int | None = None
    ) -> None:
        for destination in self._destinations:
            if not destination.has_own_schedule:
                destination.call("write_measured", scalars, step, kind=kind, epoch=epoch)

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
        self._pass_result(self._destinations, name, result, step, kind, epoch, draw)

    def write_measured_result(
        self,
        name: str,
        result: Mapping[str, Any],
        step: int,
        *,
        kind: str = "val",
        epoch: int | None = None,
        draw: Callable[[], Any] | None = None,
    ) -> None:
        """Write a result; a writer whose own hook measures for it does not get it."""
        mine = [one for one in self._destinations if not one.has_own_schedule]
        self._pass_result(mine, name, result, step, kind, epoch, draw)

    def _pass_result(
        self,
        destinations: Sequence[Destination],
        name: str,
        result: Mapping[str, Any],
        step: int,
        kind: str,
        epoch: int | None,
        draw: Callable[[], Any] | None,
    ) -> None:
        """Write a result to some writers; it is drawn once, if one of them wants that."""
        once = None if draw is None else functools.cache(draw)
        for one in destinations:
            drawn = once if one.takes_pictures else None
            one.call("write_result", name, result, step, kind=kind, epoch=epoch, draw=drawn)

    def write_table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], step: int) -> None:
        masked = [[self.masks.text(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
        self._pass_on("write_table", name, columns, masked, step)

    def write_image(self, name: str, image: Any, step: int) -> None:
        for destination in self._destinations:
            destination.show("write_image", name, image, step)

    def write_figure(self, name: str, figure: Any, step: int) -> None:
        for destination in self._destinations:
            destination.show("write_figure", name, figure, step)

    def write_audio(self, name: str, samples: Any, step: int, *, rate: int | None = None) -> None:
        self._make_media("audio", name, step, lambda: sound_of(samples, rate))

    def write_video(self, name: str, frames: Any, step: int, *, fps: float = 4.0) -> None:
        self._make_media("video", name, step, lambda: video_of(frames, fps))

    def write_media(self, name: str, media: Media, step: int) -> None:
        for destination in self._destinations:
            if reason := destination.writer.why_no_media(media):
                if (destination.name, reason) not in self._told:
                    self._told.add((destination.name, reason))
                    logger.warning("%s does not get %s %r: %s", destination.name, media.kind, name, reason)
            else:
                destination.show("write_media", name, media, step)

    def _make_media(self, kind: str, name: str, step: int, make: Callable[[], Media]) -> None:
        """Make it once for all writers; what is none is told, and does not end a run."""
        try:
            media = make()
        except (ValueError, TypeError, OSError) as error:
            logger.warning("%s %s of iteration %d is not written: %s", kind, name, step, one_line(error))
        else:
            self.write_media(name, media, step)

    def write_config(self, config: Mapping[str, Any]) -> None:
        self._pass_on("write_config", self.masks.tree(dict(config)))

    def write_text(self, name: str, text: str, step: int) -> None:
        self._pass_on("write_text", name, self.masks.text(text), step)

    def write_histogram(self, name: str, values: Any, step: int) -> None:
        self._pass_on("write_histogram", name, values, step)

    def write_graph(self, model: Any, inputs: Any) -> None:
        self._pass_on("write_graph", model, inputs)

    def write_artifact(self, path: str | Path, name: str | None = None, kind: str = "file") -> None:
        self._pass_on("write_artifact", path, name, kind)

    def awaits_resume(self) -> None:
        self._pass_on("awaits_resume")

    def state_dict(self) -> dict[str, Any]:
        states = {destination.name: destination.writer.state_dict() for destination in self._destinations}
        return {name: state for name, state in states.items() if state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for destination in self._destinations:
            if isinstance(own := state.get(destination.name), Mapping):
                destination.call("load_state_dict", own)

    def resumed(self, step: int) -> None:
        self._pass_on("resumed", step)

    def began_anew(self) -> None:
        self._pages = {}
        self._pass_on("began_anew")

    def flush(self) -> None:
        self._pass_on("flush")

    def close(self) -> None:
        """Close every writer, disabled ones too: they may hold files and connections. Those that joined leave."""
        self._close_at = None
        self._leave([one for one in self._destinations if one.has_own_schedule and not one.has_left])
        for destination in self._destinations:
            if not destination.has_own_schedule:
                destination.show_last()
                destination.call("close", even_if_disabled=True)

    def failures(self) -> dict[str, dict[str, Any]]:
        """Return the writers that failed: how often, the last failure, and whether they are disabled."""
        return {
            destination.name: {
                "count": destination.failures,
                "last": destination.last_failure,
                "off": destination.disabled,
            }
            for destination in self._destinations
            if destination.failures
        }

    def problem_lines(self) -> list[str]:
        """Return a line for each writer that failed, and for each tracker that got no numbers."""
        lines = []
        for name, one in self.failures().items():
            times = "once" if one["count"] == 1 else f"{one['count']} times"
            lines.append(f"writer {name} failed {times}{', switched off' if one['off'] else ''}: {one['last']}")
        empty = [one for one in self._destinations if one.has_own_schedule and not one.numbers and not one.failures]
        return lines + [f"writer {one.name} got no numbers" for one in empty]

    @property
    def pictures(self) -> int:
        """The number of pictures that were offered."""
        return sum(one.pictures for one in self._destinations)

    def _pass_on(self, method: str, *args: Any, **kwargs: Any) -> None:
        for destination in self._destinations:
            destination.call(method, *args, **kwargs)


def _names(writers: Sequence[Writer]) -> list[str]:
    """Return the class names; the second of a class is ``Name#2``."""
    classes = [type(writer.writer if isinstance(writer, AdaptedWriter) else writer).__name__ for writer in writers]
    counts = [classes[: index + 1].count(name) for index, name in enumerate(classes)]
    return [name if count == 1 else f"{name}#{count}" for name, count in zip(classes, counts, strict=True)]
