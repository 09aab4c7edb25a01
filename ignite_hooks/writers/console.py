"""Numbers as lines of the log, and the writer that logs them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from ignite_hooks.errors import SettingError
from ignite_hooks.text import clock, number, progress, size
from ignite_hooks.writers.convert import fetched
from ignite_hooks.writers.interface import Writer, full_name
from ignite_hooks.writers.media import Media

RATES_SHOWN = 3


class ConsoleWriter(Writer):
    """Logs one line for everything that is written, except for the numbers that LoggerHook logs itself.

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
        """Log nothing: LoggerHook logs these itself."""

    def write_image(self, name: str, image: Any, step: int) -> None:
        """Log the name and the size of a picture."""
        shape = " x ".join(str(side) for side in getattr(image, "shape", ()))
        self._say(f"iter {step}  picture {name} {shape}".rstrip())

    def write_media(self, name: str, media: Media, step: int) -> None:
        """Log the name and the size of a sound or a video."""
        self._say(f"iter {step}  {media.kind} {name} {size(len(media.data))}")

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Log nothing: a configuration is too long for a line."""

    def write_text(self, name: str, text: str, step: int) -> None:
        self._say(f"iter {step}  {name}: {text}")

    def write_artifact(self, path: Any, name: str | None = None, kind: str = "file") -> None:
        self._say(f"{kind} {name or path}")

    def _say(self, words: str) -> None:
        self._logger.log(self.level or logging.INFO, "%s", words)


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


# -- the lines of LoggerHook ------------------------------------------------------------------------------------


def training_line(
    places: Mapping[str, tuple[int, int | None]],
    losses: Mapping[str, float],
    rates: Mapping[str, float],
    memory: Mapping[str, float],
    figures: Mapping[str, float],
) -> str:
    """Return the line of an interval of training.

    Args:
        places: Counts by name with their last ones, as ``(3, 10)``; the one without a name is in brackets.
        losses: The mean losses.
        rates: The learning rates.
        memory: The memory in use, in MB.
        figures: The figures of the timer.

    Example:
        >>> training_line({"Epoch": (3, 10), "": (7, 8)}, {"loss": 0.5}, {"lr": 0.1}, {}, {"time/iter": 0.0124})
        'Epoch  3/10 [7/8]  loss 0.5000  lr 1.00e-01  time  12.4 ms'
    """
    words = [*progress(places, losses), *rates_in_words(rates)]
    words += figures_in_words(figures)
    if memory:
        words += [f"memory {used:.0f} MB" for used in memory.values()]
    return "  ".join(words)


def evaluation_line(name: str, place: str, metrics: Mapping[str, float], best: Mapping[str, tuple[float, int]]) -> str:
    """Return the line of an evaluation.

    Args:
        name: The evaluator.
        place: The place of the line in the run.
        metrics: What the evaluator measured.
        best: The best scores with their epochs.

    Example:
        >>> evaluation_line("val", "epoch 3", {"accuracy": 0.75}, {"accuracy": (0.98, 2)})
        'val    epoch 3  accuracy 0.7500  (best accuracy 0.9800 at epoch 2)'
    """
    words = [f"{name:<5}", place, *(f"{key} {number(value)}" for key, value in metrics.items())]
    words += [f"(best {key} {number(score)} at epoch {epoch})" for key, (score, epoch) in best.items()]
    return "  ".join(words)


def rates_in_words(rates: Mapping[str, float]) -> list[str]:
    """Return a few learning rates one by one, or the range of many."""
    if len(rates) <= RATES_SHOWN:
        return [f"{name} {rate:.2e}" for name, rate in rates.items()]
    return [f"lr {min(rates.values()):.2e} to {max(rates.values()):.2e}"]


def figures_in_words(figures: Mapping[str, float]) -> list[str]:
    """Return the times of an iteration and the time that is left."""
    words = []
    for name, key in (("time", "time/iter"), ("data", "time/data")):
        if (seconds := figures.get(key)) is not None:
            words.append(f"{name} {seconds:6.2f} s" if seconds >= 1 else f"{name} {seconds * 1e3:5.1f} ms")
    return [*words, f"eta {clock(figures['time/eta'])}"] if "time/eta" in figures else words
