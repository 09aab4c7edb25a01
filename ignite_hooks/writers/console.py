"""Numbers as lines of the log."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from ignite_hooks.errors import SettingError
from ignite_hooks.writers.interface import Writer, fetched, full_name


class ConsoleWriter(Writer):
    """Logs what hooks and scripts write by themselves, one line each; what LoggerHook shows is not shown twice.

    Args:
        level: The level of the lines: debug, info or warning.
    """

    def __init__(self, level: str = "info") -> None:
        self.level = logging.getLevelNamesMapping().get(str(level).upper())
        if self.level is None:
            raise SettingError("level", f"debug, info or warning is needed, not {level!r}")
        self._logger = logging.getLogger("ignite_hooks")

    def write_scalar(self, name: str, value: Any, step: int) -> None:
        self.write_scalars({name: value}, step)

    def write_scalars(
        self, scalars: Mapping[str, Any], step: int, *, kind: str = "train", epoch: int | None = None
    ) -> None:
        words = [f"{full_name(name, kind)} {_short(value)}" for name, value in fetched(scalars).items()]
        self._say("  ".join([f"iter {step}", *words]))

    def write_measured(
        self, scalars: Mapping[str, Any], step: int, *, kind: str = "train", epoch: int | None = None
    ) -> None:
        """Nothing: the hook that has measured says so itself."""

    def write_image(self, name: str, image: Any, step: int) -> None:
        """Say that there is one, and how large."""
        size = " x ".join(str(side) for side in getattr(image, "shape", ()))
        self._say(f"iter {step}  picture {name} {size}".rstrip())

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Nothing: a configuration is no line."""

    def write_text(self, name: str, text: str, step: int) -> None:
        self._say(f"iter {step}  {name}: {text}")

    def write_artifact(self, path: Any, name: str | None = None, kind: str = "file") -> None:
        self._say(f"{kind} {name or path}")

    def _say(self, words: str) -> None:
        self._logger.log(self.level or logging.INFO, "%s", words)


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
