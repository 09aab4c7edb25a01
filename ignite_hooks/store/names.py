"""The names of checkpoints: which are accepted, and how any text becomes a part of one."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable
from typing import Final

from ignite_hooks.errors import CheckpointError

MANIFEST: Final = "manifest.json"
HASH: Final = "{hash}"
SET_ASIDE: Final = "earlier-"
"""How the folders begin in which checkpoints of an earlier run in the same folder are kept."""
HASH_DIGITS: Final = 8
LONGEST: Final = 200
"""In bytes of UTF-8: file systems end at 255, and temporary files have longer names."""
LONGEST_WORD: Final = 120
_PUNCTUATION: Final = frozenset("._=+@-")
_ENCODED: Final = re.compile(r"%[0-9A-F]{2}")


def check_name(name: object) -> str:
    """Return the name if it can only mean a checkpoint in the folder; raise an error otherwise.

    Example:
        >>> check_name("best_精度_epoch_3.pth")
        'best_精度_epoch_3.pth'
    """
    if not isinstance(name, str) or not _is_name(name):
        raise CheckpointError(
            f"{name!r} is not a name for a checkpoint: up to {LONGEST} bytes of letters and digits of any script and "
            f". _ = + @ -, anything else as in %2F, no dot in front, not {MANIFEST}"
        )
    return name


def name_with_hash(name: object, digits: str = "0" * HASH_DIGITS) -> str:
    """Return the checked name, with ``{hash}`` replaced by the first digits of a checksum."""
    return check_name(name.replace(HASH, digits[:HASH_DIGITS], 1) if isinstance(name, str) else name)


def file_word(text: str, others: Iterable[str] = ()) -> str:
    """Return a text as a part of a file name: no two texts have the same, on any file system.

    Letters and digits of any script stay, in the form NFC, and so do ``. _ = + @ -``; all else is percent-encoded.

    Args:
        text: Any text, such as the name of a metric.
        others: The texts that have a file beside this one: if their names differ from it only in case or encoding, a
            short digest is added.

    Example:
        >>> file_word("精度"), file_word("val/acc"), file_word("mAP@50")
        ('精度', 'val%2Facc', 'mAP@50')
        >>> file_word("Acc", ["Acc", "acc"]), file_word("acc", ["Acc", "acc"])
        ('Acc-7bc95149', 'acc-41432230')
    """
    word = _encoded(text)
    alike = _folded(word)
    if len(word.encode()) > LONGEST_WORD:
        return f"{_cut(word)}-{_digest(text)}"
    return f"{word}-{_digest(text)}" if any(_folded(_encoded(o)) == alike for o in others if o != text) else word


def _is_name(name: str) -> bool:
    if name.startswith(MANIFEST) or name[:1] in ("", ".") or not unicodedata.is_normalized("NFC", name):
        return False
    rest = _ENCODED.sub("", name)
    return all(map(_stays, rest)) and len(name.encode()) <= LONGEST


def _stays(character: str) -> bool:
    # Marks are parts of letters: vowels of Indic scripts, for example.
    return character in _PUNCTUATION or unicodedata.category(character)[0] in "LNM"


def _encoded(text: str) -> str:
    normal = unicodedata.normalize("NFC", text)
    kept = (c if _stays(c) else "".join(f"%{b:02X}" for b in c.encode("utf-8", "surrogatepass")) for c in normal)
    return "".join(kept)


def _folded(word: str) -> str:
    return unicodedata.normalize("NFC", word.casefold())


def _cut(word: str) -> str:
    """Return the beginning of a word that is too long, without half a character at its end."""
    return re.sub(r"%[0-9A-F]?$", "", word.encode()[: LONGEST_WORD - 9].decode(errors="ignore"))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
