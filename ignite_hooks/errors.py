"""Every error raised on purpose."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import NamedTuple


class Problem(NamedTuple):
    """One thing that is wrong in a configuration: where it stands and what would have worked."""

    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" if self.place else self.message


class ConfigError(ValueError):
    """A configuration that cannot work; lists every problem found, not just the first.

    Example:
        >>> print(ConfigError([Problem("hooks[1].monitr", "not a setting, did you mean 'monitor'?")]))
        hooks[1].monitr: not a setting, did you mean 'monitor'?
    """

    def __init__(self, problems: Sequence[Problem] | str, source: str = "") -> None:
        self.problems = (Problem("", problems),) if isinstance(problems, str) else tuple(problems)
        self.source = source
        super().__init__(self._text())

    def _text(self) -> str:
        if len(self.problems) == 1:
            return (f"{self.source}: " if self.source else "") + str(self.problems[0])
        head = f"{len(self.problems)} problems" + (f" in {self.source}" if self.source else "")
        return "\n".join([f"{head}:", *(f"  {problem}" for problem in self.problems)])


class HookError(RuntimeError):
    """A hook failed during a run; the original exception is the cause."""

    def __init__(self, hook: str, point: str, epoch: int, iteration: int, cause: BaseException) -> None:
        self.hook, self.point, self.epoch, self.iteration = hook, point, epoch, iteration
        place = f"epoch {epoch}, iteration {iteration}"
        super().__init__(f"{hook}.{point} failed at {place}: {type(cause).__name__}: {cause}")


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be written, or a file that cannot be trusted."""


class MetricError(LookupError):
    """A metric that a hook watches does not exist."""


def nearest(word: str, words: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known word that looks most like a misspelt one.

    Example:
        >>> nearest("monitr", ["patience", "monitor"])
        'monitor'
    """
    by_lower = {known.lower(): known for known in words}
    found = get_close_matches(word.lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[found[0]] if found else None


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """``, did you mean 'monitor'?``, or nothing where no known word is near."""
    found = nearest(word, words)
    return f", did you mean {found!r}?" if found else ""
