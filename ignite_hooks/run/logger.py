"""The logger of a run, which also has the methods of its writer."""

from __future__ import annotations

import contextlib
import itertools
import logging
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import IO, TYPE_CHECKING, Any

from ignite_hooks.secrets import MASKING
from ignite_hooks.terminal import ColouredLines, in_notebook, takes_colour

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner
    from ignite_hooks.writers.interface import Writer

LOGGER_NAME = "ignite_hooks"
LINE = "%(asctime)s  %(levelname)-7s  %(message)s"
_NUMBERS = itertools.count(1)


class RunLogger(logging.Logger):
    """A standard logger that also carries the methods of the run's writer."""

    def __init__(self, parent: logging.Logger, writer: Writer) -> None:
        super().__init__(f"{parent.name}.run")
        self.parent = parent
        self.writer = writer
        self.number = next(_NUMBERS)
        """Marks its records, so that the log file of another run leaves them out."""
        self.addFilter(MASKING)

    def makeRecord(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        """Return a record that names its run."""
        record = super().makeRecord(*args, **kwargs)
        record.ignite_hooks_run = self.number
        return record

    def isEnabledFor(self, level: int) -> bool:
        """Return whether a level is logged, without the cache.

        Python clears only the caches of loggers in its own table, and this one is not in it.
        """
        self._cache.clear()
        return super().isEnabledFor(level)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("write_"):
            return getattr(self.writer, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class OwnLines(logging.Filter):
    """Passes the records of one run, and those that name none while it is the innermost run of their thread.

    Records of threads in which no run was opened, such as those that save and deliver, pass everywhere.

    Args:
        number: The number of the run's logger; None for a logger of the script that does not mark its records.
    """

    def __init__(self, number: int | None) -> None:
        super().__init__()
        self._number = number

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Be the innermost run of this thread."""
        entry = (threading.get_ident(), self)
        _OPEN.append(entry)
        try:
            yield
        finally:
            _OPEN.remove(entry)

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is one of this run."""
        run = getattr(record, "ignite_hooks_run", None)
        if run is not None:
            return bool(run == self._number)
        here = threading.get_ident()
        innermost = next((lines for thread, lines in reversed(_OPEN) if thread == here), self)
        return innermost is self


_OPEN: list[tuple[int, OwnLines]] = []
"""The runs that log to a file, in the order in which they began, each with its thread."""


class SharedLogger:
    """Lets the logger of the package be heard while any run logs, if the script has not set up logging."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._undo = contextlib.ExitStack()

    @contextlib.contextmanager
    def heard(self) -> Iterator[None]:
        """Add a console and a level, unless there are any; the last run that logs takes them away."""
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._set_up(logging.getLogger(LOGGER_NAME))
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._undo.close()

    def _set_up(self, logger: logging.Logger) -> None:
        if not is_heard(logger):
            self._undo.enter_context(_consoles(logger))
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.INFO)
            self._undo.callback(logger.setLevel, logging.NOTSET)


SHARED = SharedLogger()


@contextlib.contextmanager
def _consoles(logger: logging.Logger) -> Iterator[None]:
    """Show the lines of a logger on the screen; in a notebook, which paints stderr red, only errors go there."""
    consoles: list[logging.Handler] = [logging.StreamHandler()]
    if in_notebook():
        consoles[0].setLevel(logging.ERROR)
        consoles.append(logging.StreamHandler(sys.stdout))
        consoles[1].addFilter(lambda record: record.levelno < logging.ERROR)
    for console in consoles:
        logger.addHandler(formatted(console))
    try:
        yield
    finally:
        for console in consoles:
            logger.removeHandler(console)
            console.close()


class LastResort(logging.Handler):
    """Shows warnings on the screen where no other handler does, in a notebook as plain text.

    Python's own last resort writes them to stderr, which a notebook paints red, and is not asked where a handler only
    collects what a run says.

    Args:
        logger: The logger to which it belongs.
    """

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__(logging.WARNING)
        self._logger = logger

    @property
    def stream(self) -> IO[str] | None:
        """The screen."""
        return sys.stderr

    def emit(self, record: logging.LogRecord) -> None:
        """Show it, unless somebody else does."""
        last = [handler for handler in _handlers_of(self._logger) if isinstance(handler, LastResort)][-1:]
        if is_heard(self._logger) or last != [self]:
            return
        screen = sys.stdout if in_notebook() and record.levelno < logging.ERROR else sys.stderr
        try:
            if screen is not None:
                screen.write(f"{self.format(record)}\n")
                screen.flush()
        except Exception:
            self.handleError(record)


@contextlib.contextmanager
def warnings_on_screen(loggers: Iterable[logging.Logger] = ()) -> Iterator[None]:
    """Show the warnings of these loggers on the screen, that of the package unless they are named."""
    with contextlib.ExitStack() as undo:
        for logger in loggers or [logging.getLogger(LOGGER_NAME)]:
            handler = LastResort(logger)
            logger.addHandler(handler)
            undo.callback(logger.removeHandler, handler)
        yield


class OffScreen(logging.Filter):
    """Keeps the lines of one run from the screen, because something else shows them; its log file has them all.

    Args:
        number: The number of the run's logger.
    """

    def __init__(self, number: int | None) -> None:
        super().__init__()
        self._number = number
        self._handlers: list[logging.Handler] = []

    def begin(self, logger: logging.Logger) -> None:
        """Filter what this logger and those above it write to the screen."""
        for handler in _handlers_of(logger):
            if _writes_to_screen(handler) and self not in handler.filters:
                handler.addFilter(self)
                self._handlers.append(handler)

    def end(self) -> None:
        """Let all lines through again."""
        while self._handlers:
            self._handlers.pop().removeFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is of another run, or of the script."""
        run = getattr(record, "ignite_hooks_run", None)
        ours = record.name.partition(".")[0] == LOGGER_NAME if run is None else run == self._number
        return not ours


def _writes_to_screen(handler: logging.Handler) -> bool:
    stream: IO[str] | None = getattr(handler, "stream", None)
    return not isinstance(handler, logging.FileHandler) and stream is not None and stream in (sys.stderr, sys.stdout)


def loggers_of(runner: Runner) -> list[logging.Logger]:
    """Return the loggers that receive warnings of a run: that of the runner, and that of the package."""
    logger = runner.logger
    behind = (logger.parent or logger) if isinstance(logger, logging.Logger) else None
    return list(dict.fromkeys([*([behind] if behind is not None else []), logging.getLogger(LOGGER_NAME)]))


def formatted(handler: logging.Handler) -> logging.Handler:
    """Give a handler the form of our lines, in colours where its stream shows them."""
    lines = ColouredLines if takes_colour(getattr(handler, "stream", None)) else logging.Formatter
    handler.setFormatter(lines(LINE, "%Y-%m-%d %H:%M:%S"))
    return handler


def is_heard(logger: logging.Logger) -> bool:
    """Return whether the script has set up logging for a logger."""
    silent = (logging.NullHandler, LastResort)
    return any(not isinstance(one, silent) and not hasattr(one, "only_collects") for one in _handlers_of(logger))


def _handlers_of(logger: logging.Logger) -> Iterator[logging.Handler]:
    """Yield the handlers that get what a logger logs."""
    current: logging.Logger | None = logger
    while current is not None:
        yield from current.handlers
        current = current.parent if current.propagate else None
