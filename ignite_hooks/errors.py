"""Every error raised on purpose."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple


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
        if isinstance(problems, str):
            self.problems: tuple[Problem, ...] = (Problem("", problems),)
        else:
            # What a user wrote stands in a message, and may have many lines.
            self.problems = tuple(Problem(place, _on_one_line(message, 300)) for place, message in problems)
        self.source = source
        super().__init__(self._text())

    def _text(self) -> str:
        if len(self.problems) == 1:
            return (f"{self.source}: " if self.source else "") + str(self.problems[0])
        head = f"{len(self.problems)} problems" + (f" in {self.source}" if self.source else "")
        return "\n".join([f"{head}:", *(f"  {problem}" for problem in self.problems)])


class SettingError(ValueError):
    """A setting whose value cannot work; names the setting, so that nobody has to read it out of the text.

    Args:
        setting: The name of the setting.
        message: What is wrong with its value, and what would have worked.
        text: What ``str()`` returns, where the message is a sentence that names the setting itself.

    Example:
        >>> error = SettingError("momentum", "0.2 is not in [0.5, 1)")
        >>> str(error), error.setting, error.message
        ('momentum: 0.2 is not in [0.5, 1)', 'momentum', '0.2 is not in [0.5, 1)')
    """

    def __init__(self, setting: str, message: str, text: str = "") -> None:
        self.setting, self.message = setting, message
        super().__init__(text or f"{setting}: {message}")

    def __reduce__(self) -> tuple[Any, ...]:
        # An error of a worker process arrives pickled; the text is no argument of `__init__`.
        return (type(self).__new__, (type(self), *self.args), vars(self))


class HookError(RuntimeError):
    """A hook failed during a run; the original exception is the cause."""

    def __init__(self, hook: str, point: str, epoch: int, iteration: int, cause: BaseException) -> None:
        self.hook, self.point, self.epoch, self.iteration = hook, point, epoch, iteration
        place = f"epoch {epoch}, iteration {iteration}"
        super().__init__(f"{hook}.{point} failed at {place}: {type(cause).__name__}: {cause}")

    def __reduce__(self) -> tuple[Any, ...]:
        # An error of a worker process arrives pickled; its cause may not be, and its message says enough.
        return (type(self).__new__, (type(self), *self.args), vars(self))


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be written, or a file that cannot be trusted."""


class RankError(RuntimeError):
    """The processes of a run do not do the same."""


class MetricError(LookupError):
    """A metric that a hook watches does not exist."""


def nearest(word: object, words: Iterable[object], cutoff: float = 0.6) -> str | None:
    """The known word that looks most like a misspelt one.

    Example:
        >>> nearest("monitr", ["patience", "monitor"])
        'monitor'
    """
    by_lower = {str(known).lower(): str(known) for known in words}
    found = get_close_matches(str(word).lower()[:100], by_lower, n=1, cutoff=cutoff) if isinstance(word, str) else []
    return by_lower[found[0]] if found else None


def did_you_mean(word: object, words: Iterable[object]) -> str:
    """``, did you mean 'monitor'?``, or nothing where no known word is near."""
    found = nearest(word, words)
    return f", did you mean {found!r}?" if found else ""


def shown(value: object, longest: int = 60) -> str:
    """A value in a message: on one line and not longer than it has to be.

    Example:
        >>> shown("a\\nb"), shown(list(range(100)), 20)
        ("'a\\\\nb'", '[0, 1, 2, 3, 4, 5...')
    """
    try:
        text = _on_one_line(repr(value), longest)
    except Exception:  # a repr of someone else's; a whole number of thousands of digits has none either
        text = f"<{type(value).__name__}>"
    return text


def below(place: str, key: object) -> str:
    """The place of a key in a mapping.

    Example:
        >>> below("hooks[0]", "interval"), below("hooks[0]", "two words")
        ('hooks[0].interval', "hooks[0]['two words']")
    """
    if not isinstance(key, str) or not key.replace("-", "_").isidentifier() or len(key) > 60:
        return f"{place}[{shown(key)}]"
    return f"{place}.{key}" if place else key


def one_line(error: BaseException) -> str:
    """The message of someone else's error, with its kind where the message alone would say too little."""
    text = _on_one_line(str(error.args[0] if type(error) is KeyError and error.args else error), 200)
    known = isinstance(error, (ConfigError, ImportError)) or type(error) in (ValueError, TypeError, SettingError)
    return text if known and text else f"{type(error).__name__}: {text}".rstrip(": ")


def _on_one_line(text: str, longest: int) -> str:
    text = " ".join(text.split()) if len(text.splitlines()) > 1 else text
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def refuse_other_momentum(momentum: float, average: str, elsewhere: str) -> None:
    """Refuse a momentum that is not the share that is kept of an average, and say what was probably meant.

    Example:
        >>> try:
        ...     refuse_other_momentum(0.2, "mean", "others do not")
        ... except SettingError as error:
        ...     print(error)
        momentum: 0.2 is not in [0.5, 1). It is the share of the mean that is kept; others do not: write 0.8
    """
    if not 0.5 <= momentum < 1:  # NaN is refused too
        likely = f": write {1 - momentum:g}" if 0 < momentum < 0.5 else ""
        share = f"It is the share of the {average} that is kept; {elsewhere}{likely}"
        raise SettingError("momentum", f"{momentum:g} is not in [0.5, 1). {share}")
