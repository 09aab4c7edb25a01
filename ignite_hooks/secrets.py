"""Secrets: values that must not reach a writer, a log, a message or a checkpoint."""

from __future__ import annotations

import logging
import re
import weakref
from collections.abc import Mapping
from typing import Any

MASK = "***"
VAULTS = frozenset({"secret", "secrets", "password", "passwords", "credentials"})
"""Names of mappings in which every value is secret."""
SECRET_WORDS = VAULTS | {"key", "apikey", "token", "passwd", "webhook", "apprise"}
SHORTEST = 8
"""Shorter texts are masked under a secret name, but not searched for elsewhere."""
_MASKED = re.compile(rf"{re.escape(MASK)}|.*([^\s*]{re.escape(MASK)}|{re.escape(MASK)}[^\s*]).*", re.DOTALL)
"""A mask alone, or one within an address; what stands between blanks is decoration."""
_CREDENTIALS = re.compile(r"(?<=://)[^/\s@]+:[^/\s@]+(?=@)")


class Secret:
    """A value that is masked wherever it is shown.

    Args:
        value: The secret.

    Example:
        >>> from ignite_hooks import Secret
        >>> key = Secret("a1b2c3")
        >>> print(key), key.reveal()
        ***
        (None, 'a1b2c3')
    """

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the value."""
        return self._value

    def __repr__(self) -> str:
        return f"Secret({MASK!r})"

    def __str__(self) -> str:
        return MASK

    def __format__(self, form: str) -> str:
        return MASK

    def __deepcopy__(self, _: Any) -> Secret:
        return self

    def __reduce__(self) -> Any:
        raise TypeError("a Secret cannot be saved: call reveal() where its value is used")


class Masks:
    """The secrets of one run: found by their names in a configuration, and masked wherever their values occur.

    Example:
        >>> masks = Masks({"wandb": {"api_key": "k-1234567890"}, "monitor": "accuracy"})
        >>> masks.tree({"url": "http://host/?k-1234567890", "api_key": "x"})
        {'url': 'http://host/?***', 'api_key': '***'}
        >>> masks.text("cannot reach http://user:word@host")
        'cannot reach http://***@host'
    """

    def __init__(self, *configs: Any) -> None:
        self._values: list[str] = []
        for config in configs:
            self._learn(config)
        # The longest first, as one may be a part of another.
        self._values.sort(key=len, reverse=True)
        _LIVE.add(self)

    def text(self, text: str) -> str:
        """Return a text with its secrets masked."""
        for value in self._values:
            text = text.replace(value, MASK)
            head = value[:24]
            # Messages may show only the beginning of a long value.
            while len(value) > len(head) and head in text:
                at = text.index(head)
                same = next((i for i, pair in enumerate(zip(value, text[at:], strict=False)) if pair[0] != pair[1]), 0)
                text = text[:at] + MASK + text[at + (same or len(text) - at) :]
        return _CREDENTIALS.sub(MASK, text) if "://" in text else text

    def tree(self, value: Any, name: str = "", *, by_name: bool = True) -> Any:
        """Return nested mappings and lists with their secrets masked; other objects are not changed."""
        if isinstance(value, Secret) or (by_name and is_secret(name) and _can_be_secret(name, value)):
            return MASK
        if isinstance(value, str):
            clean = self.text(value)
            return value if clean == value else clean
        if isinstance(value, Mapping):
            masked = {
                key: self.tree(item, _within(name, key) if by_name else "", by_name=by_name)
                for key, item in value.items()
            }
            return masked if any(masked[key] is not item for key, item in value.items()) else value
        if isinstance(value, (list, tuple)):
            items = [self.tree(item, name, by_name=by_name) for item in value]
            same = all(new is old for new, old in zip(items, value, strict=True))
            return value if same else items if isinstance(value, list) else tuple(items)
        return value

    def _learn(self, value: Any, name: str = "") -> None:
        if isinstance(value, Secret):
            self._note(value.reveal(), certain=True)
        elif isinstance(value, Mapping):
            for key, item in value.items():
                self._learn(item, _within(name, key))
        elif isinstance(value, (list, tuple)):
            for item in value:
                self._learn(item, name)
        elif isinstance(value, str) and is_secret(name):
            self._note(value)

    def _note(self, value: str, certain: bool = False) -> None:
        # `best_key: accuracy` is not a secret, and the word must not vanish from every line.
        is_secret_value = certain or (len(value) >= SHORTEST and not re.fullmatch(r"[A-Za-z_/ ]+", value))
        if is_secret_value and value and value not in self._values:
            self._values.append(value)


_LIVE: weakref.WeakSet[Masks] = weakref.WeakSet()


def is_secret(name: str) -> bool:
    """Return whether a name says that its value is a secret, by whole words.

    Example:
        >>> [is_secret(name) for name in ("api_key", "apiKey", "PASSWORD", "monkey", "num_tokens", "keep_best")]
        [True, True, True, False, False, False]
    """
    return not SECRET_WORDS.isdisjoint(_words(name))


def is_masked(text: str) -> bool:
    """Return whether a text stands for a secret that was masked.

    Example:
        >>> [is_masked(text) for text in ("***", "http://***@host", "a *** b")]
        [True, True, False]
    """
    return _MASKED.fullmatch(text) is not None


def _words(name: str) -> list[str]:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().replace("-", "_").split("_")


def _within(above: str, key: object) -> str:
    """Return the name of a value in a mapping: that of the mapping if all of it is secret."""
    return str(key) if VAULTS.isdisjoint(_words(above)) else above


def _can_be_secret(name: str, value: Any) -> bool:
    """Return whether a value can be a secret: a number only as a password, as `pad_token: 0` is none."""
    if isinstance(value, (str, bytes)):
        return bool(value)
    return isinstance(value, int) and not isinstance(value, bool) and "password" in name.lower()


def masked(text: str) -> str:
    """Return a text with the secrets of all runs of this process masked."""
    for masks in list(_LIVE):
        text = masks.text(text)
    return text


class MaskingFilter(logging.Filter):
    """Masks secrets in log records and their tracebacks."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Mask the secrets of a record, and keep the record."""
        if len(_LIVE):
            message = record.getMessage()
            clean = masked(message)
            if clean != message:
                record.msg, record.args = clean, None
            if record.exc_info and not record.exc_text:
                traceback = logging.Formatter().formatException(record.exc_info)
                clean = masked(traceback)
                if clean != traceback:
                    record.exc_text, record.exc_info = clean, None
        return True


MASKING = MaskingFilter()
