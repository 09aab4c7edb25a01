"""Several writers as one: a failing one does not take the others along."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ignite_hooks.secrets import Masks
from ignite_hooks.writers.interface import Writer

REQUIRED = ("write_scalar", "write_image", "write_config")
OPTIONAL = (
    "write_figure",
    "write_histogram",
    "write_text",
    "write_graph",
    "write_artifact",
    "resumed",
    "began_anew",
    "flush",
    "close",
)
FAILURES_ALLOWED = 3

logger = logging.getLogger("ignite_hooks")


@dataclass
class _Member:
    writer: Writer
    name: str
    paced: bool = False
    """Whether a hook of its own decides how often the measures of the run go there."""
    pictures_every: int | None = 1
    """How many steps lie between pictures at least; None for no pictures."""
    pictures_at: int | None = None
    failures: int = 0
    in_a_row: int = 0
    last_failure: str = ""
    off: bool = False


def takes_picture(member: _Member, step: int) -> bool:
    """All pictures of a step, or none of them."""
    every, last = member.pictures_every, member.pictures_at
    return every is not None and (last is None or step == last or abs(step - last) >= every)


class ManyWriters(Writer):
    """Passes everything on to each writer, in order.

    The first failure of a writer is logged with its traceback, the next ones with a line each; after three in
    a row it is switched off. `failures()` tells what was lost. Training never notices.
    """

    def __init__(self, writers: Sequence[Any], masks: Masks | None = None) -> None:
        self.masks = masks or Masks()
        adapted = [adapt(writer) for writer in writers]
        self._members = [_Member(writer, name) for writer, name in zip(adapted, _names(adapted), strict=True)]

    @property
    def writers(self) -> list[Writer]:
        return [member.writer for member in self._members]

    def join(self, writer: Any, *, pictures_every: int | None = 1) -> ManyWriters:
        """Add a writer whose own hook measures for it; the answer writes to this one alone.

        Args:
            writer: The writer.
            pictures_every: How many steps lie between pictures at least; None for no pictures.
        """
        adapted = adapt(writer)
        name = _names([*self.writers, adapted])[-1]
        place = ManyWriters([], self.masks)
        place._members = [_Member(adapted, name, paced=True, pictures_every=pictures_every)]
        self._members += place._members
        return place

    def leave(self, place: ManyWriters) -> None:
        """Close what has joined, and write there no more; its failures stay known."""
        place.close()
        for member in place._members:
            member.off = True
            if not member.failures:
                self._members.remove(member)

    def write_scalar(self, name: str, value: Any, step: int) -> None:
        self._pass_on("write_scalar", name, value, step)

    def write_image(self, name: str, image: Any, step: int) -> None:
        for member in self._showing(step):
            self._call(member, "write_image", name, image, step)

    def write_config(self, config: Mapping[str, Any]) -> None:
        self._pass_on("write_config", self.masks.tree(dict(config)))

    def write_scalars(
        self, scalars: Mapping[str, Any], step: int, *, kind: str = "train", epoch: int | None = None
    ) -> None:
        self._pass_on("write_scalars", scalars, step, kind=kind, epoch=epoch)

    def write_measured(
        self, scalars: Mapping[str, Any], step: int, *, kind: str = "train", epoch: int | None = None
    ) -> None:
        for member in self._members:
            if not member.off and not member.paced:
                self._call(member, "write_measured", scalars, step, kind=kind, epoch=epoch)

    def write_figure(self, name: str, figure: Any, step: int) -> None:
        for member in self._showing(step):
            self._call(member, "write_figure", name, figure, step)

    def write_histogram(self, name: str, values: Any, step: int) -> None:
        self._pass_on("write_histogram", name, values, step)

    def write_text(self, name: str, text: str, step: int) -> None:
        self._pass_on("write_text", name, self.masks.text(text), step)

    def write_graph(self, model: Any, inputs: Any) -> None:
        self._pass_on("write_graph", model, inputs)

    def write_artifact(self, path: str | Path, name: str | None = None, kind: str = "file") -> None:
        self._pass_on("write_artifact", path, name, kind)

    def resumed(self, step: int) -> None:
        self._pass_on("resumed", step)

    def began_anew(self) -> None:
        self._pass_on("began_anew")

    def flush(self) -> None:
        self._pass_on("flush")

    def close(self) -> None:
        """Close every writer, those switched off too: they may hold files and connections."""
        for member in self._members:
            self._call(member, "close")

    def failures(self) -> dict[str, dict[str, Any]]:
        """The writers that failed: how often, the last failure, and whether they are switched off."""
        return {
            member.name: {"count": member.failures, "last": member.last_failure, "off": member.off}
            for member in self._members
            if member.failures
        }

    def _showing(self, step: int) -> list[_Member]:
        """Who takes pictures of this step."""
        found = [member for member in self._members if not member.off and takes_picture(member, step)]
        for member in found:
            member.pictures_at = step
        return found

    def _pass_on(self, method: str, *args: Any, **kwargs: Any) -> None:
        for member in self._members:
            if not member.off:
                self._call(member, method, *args, **kwargs)

    def _call(self, member: _Member, method: str, *args: Any, **kwargs: Any) -> None:
        try:
            getattr(member.writer, method)(*args, **kwargs)
        except Exception as error:
            self._note(member, method, error)
        else:
            # Flushing nothing always works and says nothing about the next write.
            if method.startswith("write_"):
                member.in_a_row = 0

    def _note(self, member: _Member, method: str, error: Exception) -> None:
        member.failures += 1
        member.in_a_row += 1
        # Errors of torch and of servers run over many lines.
        member.last_failure = self.masks.text(f"{method}: {type(error).__name__}: {error}".partition("\n")[0])
        traceback = error if member.failures == 1 else None
        logger.warning("writer %s failed in %s", member.name, member.last_failure, exc_info=traceback)
        if member.in_a_row >= FAILURES_ALLOWED and not member.off:
            member.off = True
            logger.warning("writer %s is switched off: %d failures in a row", member.name, FAILURES_ALLOWED)


class _Adapted(Writer):
    """A writer object of another family, asked only for what it has."""

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
    """`writer` itself, or what makes a `Writer` of any object with the three required methods."""
    if isinstance(writer, Writer):
        return writer
    missing = [method for method in REQUIRED if not callable(getattr(writer, method, None))]
    if missing:
        raise TypeError(f"{type(writer).__name__} is not a writer: it has no {', '.join(missing)}")
    return _Adapted(writer)


def _takes_kind_and_epoch(method: Any) -> bool:
    if not callable(method):
        return False
    try:
        inspect.signature(method).bind({}, 0, kind="train", epoch=None)
    except (TypeError, ValueError):
        # The numbers then go one by one through `write_scalar`, which it must have.
        return False
    return True


def _names(writers: Sequence[Writer]) -> list[str]:
    """The class names; the second of a class is `Name#2`."""
    classes = [type(writer.writer if isinstance(writer, _Adapted) else writer).__name__ for writer in writers]
    counts = [classes[: index + 1].count(name) for index, name in enumerate(classes)]
    return [name if count == 1 else f"{name}#{count}" for name, count in zip(classes, counts, strict=True)]
