"""Every error raised on purpose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from ignite_hooks.text import shortened


class Problem(NamedTuple):
    """One thing that is wrong in a configuration: where it stands and what would have worked."""

    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" if self.place else self.message


class RunInterrupted(KeyboardInterrupt):
    """Ctrl-C, or the stop button of a notebook, has ended a run in order; IPython shows the message in one line."""

    explains_itself: ClassVar[bool] = True

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


class ConfigError(ValueError):
    """A configuration that cannot work; lists every problem found, not just the first.

    Example:
        >>> print(ConfigError([Problem("hooks[1].monitr", "not a setting, did you mean 'monitor'?")]))
        hooks[1].monitr: not a setting, did you mean 'monitor'?
    """

    explains_itself: ClassVar[bool] = True
    """A message that quotes this error needs no name of its class."""

    def __init__(self, problems: Sequence[Problem] | str, source: str = "") -> None:
        if isinstance(problems, str):
            self.problems: tuple[Problem, ...] = (Problem("", problems),)
        else:
            # A message quotes what a user wrote, which may have many lines.
            self.problems = tuple(Problem(place, shortened(message, 300)) for place, message in problems)
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

    explains_itself: ClassVar[bool] = True

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


class LossError(RuntimeError):
    """The function that finds the loss in what a step returns has failed; what it raised is the cause."""


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be written, or a file that cannot be trusted."""


class ExportError(RuntimeError):
    """A model that cannot be exported as asked, or an exported one that does not do what the original does."""


class ResultError(RuntimeError):
    """A ``result.json`` that cannot be read."""


class RankError(RuntimeError):
    """The processes of a run do not do the same."""


class MetricError(LookupError):
    """A metric that a hook watches does not exist."""


def refuse_other_momentum(momentum: float, average: str, elsewhere: str) -> None:
    """Refuse a momentum that is not the share that is kept of an average, and say what was probably meant.

    Example:
        >>> try:
        ...     refuse_other_momentum(0.2, "mean", "Others differ")
        ... except SettingError as error:
        ...     print(error)
        momentum: 0.2 is not in [0.5, 1). It is the share of the mean that is kept. Others differ; write 0.8
    """
    if not 0.5 <= momentum < 1:  # NaN is refused too
        likely = f"; write {1 - momentum:g}" if 0 < momentum < 0.5 else ""
        share = f"It is the share of the {average} that is kept. {elsewhere}{likely}"
        raise SettingError("momentum", f"{momentum:g} is not in [0.5, 1). {share}")
