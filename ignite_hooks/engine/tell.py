"""``ignite-hooks tell``: an order to a run that is going on, by a file in its work directory, and the answer."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ignite_hooks.store.files import open_regular, write_whole

WORDS = ("save", "stop", "evaluate")

ORDER, ANSWER = ".tell", ".told"
"""The files in the work directory: the order, which the run removes when it takes it, and what it says about it."""

PERIOD = 1.0
"""Seconds between two looks for an order."""

LARGEST = 4096

Take = Callable[[str], str | None]
"""Passes an order on to the run; returns why that cannot obey it, or None."""


class NotTold(RuntimeError):
    """An order that no run has taken, or that it could not obey."""


@dataclass(frozen=True)
class Told:
    """An order that a run has taken and not obeyed yet."""

    number: str
    word: str


class Listener:
    """Looks for orders in a thread, for the time of a run, and answers them.

    Args:
        folder: The work directory.
        take: Returns what takes an order, or None once the run is gone.
        logger: Receives a line for each order.
        period: Seconds between two looks.
    """

    def __init__(
        self, folder: Path, take: Callable[[], Take | None], logger: logging.Logger, period: float = PERIOD
    ) -> None:
        self._folder, self._take, self._logger, self._period = folder, take, logger, period
        self._ended = threading.Event()
        self._waiting: list[Told] = []
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._listen, name="ignite_hooks tell", daemon=True)

    def begin(self) -> None:
        """Ignore an order from before this run, and listen from now on."""
        if (told := self._taken()) is not None:
            self._logger.warning("told to %s before this run began: ignored", told.word)
            self._say(told, "refused", "the order is older than the run that is going on now")
        self._thread.start()

    def end(self, why: str) -> None:
        """Stop listening; answer what was not obeyed."""
        self._ended.set()
        self._thread.join()
        for word in WORDS:
            self.answer(word, why, state="refused")

    def answer(self, word: str, text: str, *, state: str = "done") -> None:
        """Answer all orders of this kind that have been taken."""
        with self._lock:
            answered = [told for told in self._waiting if told.word == word]
            self._waiting = [told for told in self._waiting if told.word != word]
        for told in answered:
            self._say(told, state, text)

    def look(self) -> bool:
        """Take an order if there is one; return whether the run is still there."""
        take = self._take()
        if take is None or (told := self._taken()) is None:
            return take is not None
        with self._lock:
            self._waiting.append(told)
        self._say(told, "taken", "")
        self._logger.info("told to %s, by the file %s", told.word, self._folder / ORDER)
        if (reason := take(told.word)) is not None:
            self._logger.warning("cannot %s: %s", told.word, reason)
            self.answer(told.word, reason, state="refused")
        return True

    def _listen(self) -> None:
        while not self._ended.wait(self._period):
            if not self.look():
                return

    def _taken(self) -> Told | None:
        """Return the order in the folder, which is removed: it is obeyed once."""
        path = self._folder / ORDER
        try:
            os.lstat(path)
        except OSError:
            return None
        try:
            content = _read(path)
            os.unlink(path)
            told = Told(str(content["number"]), str(content["word"]))
            if told.word not in WORDS or not told.number.isalnum():
                raise ValueError(f"no order: {content}"[:200])
        except (OSError, ValueError, TypeError, KeyError) as error:
            with contextlib.suppress(OSError):
                os.unlink(path)
            self._logger.warning("%s holds no order: %s", path, error)
            return None
        return told

    def _say(self, told: Told, state: str, text: str) -> None:
        answer = {"number": told.number, "word": told.word, "state": state, "text": text}
        try:
            write_whole(self._folder / ANSWER, json.dumps(answer).encode())
        except OSError as error:
            self._logger.warning("cannot answer the order to %s: %s", told.word, error)


def tell(
    folder: Path,
    word: str,
    *,
    patience: float = 5.0,
    timeout: float | None = None,
    pause: float = 0.1,
    on_taken: Callable[[], None] = lambda: None,
) -> str:
    """Give an order to the run in a folder; return its answer once the order is obeyed.

    Args:
        folder: The work directory of a run that is going on.
        word: ``save``, ``stop`` or ``evaluate``.
        patience: Seconds in which a run has to take the order.
        timeout: Seconds to wait for its answer after that; None for as long as it takes.
        pause: Seconds between two looks for the answer.
        on_taken: Called once the run has taken the order.

    Raises:
        NotTold: If no run takes the order, or if the run cannot obey it.
    """
    order = folder / ORDER
    number = secrets.token_hex(8)
    began = time.monotonic()
    while os.path.lexists(order):
        # Another order, which the run takes first.
        if time.monotonic() - began > patience:
            raise NotTold(f"{order} waits already, and no run takes it: remove it if nothing is running in {folder}")
        time.sleep(pause)
    write_whole(order, json.dumps({"word": word, "number": number}).encode())
    taken_at: float | None = None
    while True:
        answer = _answer(folder)
        now = time.monotonic()
        if answer.get("number") == number:
            if answer.get("state") == "done":
                return str(answer.get("text"))
            if answer.get("state") == "refused":
                raise NotTold(f"cannot {word}: {answer.get('text')}")
            if taken_at is None:
                taken_at = now
                on_taken()
        if taken_at is None and now - began > patience and _withdrawn(order):
            raise NotTold(f"no run is going on in {folder}: nothing took the order within {patience:.0f} s")
        if taken_at is not None and timeout is not None and now - taken_at > timeout:
            raise NotTold(f"the run has taken the order to {word}, but has not obeyed it within {timeout:.0f} s")
        time.sleep(pause)


def _withdrawn(order: Path) -> bool:
    """Return whether an order could be taken back; False if a run has just taken it."""
    try:
        os.unlink(order)
    except FileNotFoundError:
        return False
    return True


def _answer(folder: Path) -> dict[str, Any]:
    try:
        return _read(folder / ANSWER)
    except (OSError, ValueError):
        return {}


def _read(path: Path) -> dict[str, Any]:
    with open_regular(path) as file:
        content = json.loads(file.read(LARGEST))
    if not isinstance(content, dict):
        raise ValueError("a mapping is needed")
    return content
