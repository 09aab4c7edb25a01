"""Secrets: what must not reach a writer, a log, a message or a checkpoint."""

from __future__ import annotations

import logging
import re
import weakref
from collections.abc import Mapping
from typing import Any

MASK = "***"
VAULTS = frozenset({"secret", "secrets", "password", "passwords", "credentials"})
"""All that stands under such a name is secret, however it is called there."""
SECRET_WORDS = VAULTS | {"key", "apikey", "token", "passwd", "webhook"}
SHORTEST = 8
"""Texts shorter than this are masked where they stand under a secret name, but not looked for elsewhere."""
_CREDENTIALS = re.compile(r"(?<=://)[^/\s@]+:[^/\s@]+(?=@)")


class Secret:
    """A value that no sink shows: in a configuration it is masked wherever it stands.

    Args:
        value: What is secret.

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
        """The value itself."""
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
        raise TypeError("a Secret is not written anywhere: reveal() its value where it is used")


class Masks:
    """The secrets of one run: known by their names in a configuration, then masked wherever their values turn up.

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
        # The longest first: one may be a part of another.
        self._values.sort(key=len, reverse=True)
        _LIVE.add(self)

    def text(self, text: str) -> str:
        """A text without any secret in it."""
        for value in self._values:
            text = text.replace(value, MASK)
            head = value[:24]
            # Messages show the beginning of what is long.
            while len(value) > len(head) and head in text:
                at = text.index(head)
                same = next((i for i, pair in enumerate(zip(value, text[at:], strict=False)) if pair[0] != pair[1]), 0)
                text = text[:at] + MASK + text[at + (same or len(text) - at) :]
        return _CREDENTIALS.sub(MASK, text) if "://" in text else text

    def tree(self, value: Any, name: str = "", *, by_name: bool = True) -> Any:
        """Nested mappings and lists without any secret in them; other objects are left as they are."""
        if isinstance(value, Secret) or (by_name and is_secret(name) and _can_be_secret(name, value)):
            return MASK
        if isinstance(value, str):
            clean = self.text(value)
            return value if clean == value else clean
        if isinstance(value, Mapping):
            masked = {key: self.tree(item, _within(name, key), by_name=by_name) for key, item in value.items()}
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
        # `best_key: accuracy` is no secret, and the word must not vanish from every line.
        telling = certain or (len(value) >= SHORTEST and not re.fullmatch(r"[A-Za-z_/ ]+", value))
        if telling and value and value not in self._values:
            self._values.append(value)


_LIVE: weakref.WeakSet[Masks] = weakref.WeakSet()


def is_secret(name: str) -> bool:
    """Whether a name says that its value is a secret, by whole words.

    Example:
        >>> [is_secret(name) for name in ("api_key", "apiKey", "PASSWORD", "monkey", "num_tokens", "keep_best")]
        [True, True, True, False, False, False]
    """
    return not SECRET_WORDS.isdisjoint(_words(name))


def _words(name: str) -> list[str]:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().replace("-", "_").split("_")


def _within(above: str, key: object) -> str:
    """What something in a mapping is called: as the mapping, where all of that is secret."""
    return str(key) if VAULTS.isdisjoint(_words(above)) else above


def _can_be_secret(name: str, value: Any) -> bool:
    """Numbers are secret as passwords only: `pad_token: 0` is none."""
    if isinstance(value, (str, bytes)):
        return bool(value)
    return isinstance(value, int) and not isinstance(value, bool) and "password" in name.lower()


def masked(text: str) -> str:
    """A text without the secrets of any run of this process."""
    for masks in list(_LIVE):
        text = masks.text(text)
    return text


class MaskingFilter(logging.Filter):
    """Takes secrets out of what is logged, tracebacks included."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Mask it, and let it through."""
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
