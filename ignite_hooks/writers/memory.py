"""A writer that keeps everything in memory, for tests and notebooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ignite_hooks.writers.interface import Writer
from ignite_hooks.writers.media import Media


@dataclass
class MemoryWriter(Writer):
    """Keeps everything as it is given, in the order of the calls."""

    scalars: list[tuple[str, Any, int]] = field(default_factory=list)
    lines: list[tuple[dict[str, Any], int, str, int | None]] = field(default_factory=list)
    images: list[tuple[str, Any, int]] = field(default_factory=list)
    texts: list[tuple[str, str, int]] = field(default_factory=list)
    tables: list[tuple[str, list[str], list[list[Any]], int]] = field(default_factory=list)
    results: list[tuple[str, dict[str, Any], int, str]] = field(default_factory=list)
    media: list[tuple[str, Media, int]] = field(default_factory=list)
    config: dict[str, Any] | None = None
    artifacts: list[tuple[str | Path, str | None, str]] = field(default_factory=list)
    resumed_at: list[int] = field(default_factory=list)
    closed: bool = False

    def write_scalar(self, name: str, value: Any, step: int) -> None:
        self.scalars.append((name, value, step))

    def write_scalars(
        self, scalars: Mapping[str, Any], step: int, *, kind: str = "train", epoch: int | None = None
    ) -> None:
        self.lines.append((dict(scalars), step, kind, epoch))
        super().write_scalars(scalars, step, kind=kind, epoch=epoch)

    def write_image(self, name: str, image: Any, step: int) -> None:
        self.images.append((name, image, step))

    def write_text(self, name: str, text: str, step: int) -> None:
        self.texts.append((name, text, step))

    def write_table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], step: int) -> None:
        self.tables.append((name, list(columns), [list(row) for row in rows], step))

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
        self.results.append((name, dict(result), step, kind))
        super().write_result(name, result, step, kind=kind, epoch=epoch, draw=draw)

    def write_media(self, name: str, media: Media, step: int) -> None:
        self.media.append((name, media, step))

    def write_config(self, config: Mapping[str, Any]) -> None:
        self.config = dict(config)

    def write_artifact(self, path: str | Path, name: str | None = None, kind: str = "file") -> None:
        self.artifacts.append((path, name, kind))

    def resumed(self, step: int) -> None:
        self.resumed_at.append(step)

    def close(self) -> None:
        self.closed = True
