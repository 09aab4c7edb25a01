"""Numbers, times, sizes, tables and places in words, for logs, messages and pages."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from difflib import get_close_matches
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Any

# -- numbers, times and sizes -----------------------------------------------------------------------------------


def number(value: float) -> str:
    """Return a number in six characters wherever that is possible.

    Example:
        >>> [number(value) for value in (0.43210, 12.3456, 1234.5, 0.00012, 7, float("nan"))]
        ['0.4321', '12.346', '1234.5', '1.20e-04', '7', 'nan']
    """
    if isinstance(value, int) or not math.isfinite(value):
        return str(value)
    magnitude = abs(value)
    if magnitude != 0 and not 1e-3 <= magnitude < 1e5:
        return f"{value:.2e}"
    return f"{value:.{max(0, 5 - len(str(int(magnitude))))}f}"


def plain_number(value: Any) -> Any:
    """Return a number of NumPy as one of Python; every other object stays the very same.

    Example:
        >>> import numpy
        >>> plain_number(numpy.int64(5)), plain_number(numpy.bool_(True)), plain_number([1])
        (5, True, [1])
    """
    if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        return value.item()
    return value


def padded(now: int, last: int | None) -> str:
    """Return a number padded to the width of the last one, so that lines stay aligned.

    Example:
        >>> padded(3, 100), padded(3, None)
        ('  3', '3')
    """
    return str(now).rjust(len(str(last)) if last is not None else 0)


def out_of(now: int, last: int | None) -> str:
    """Return ``  3/100``, or ``3`` where the last number is not known."""
    return padded(now, last) if last is None else f"{padded(now, last)}/{last}"


def progress(counts: Mapping[str, tuple[int, int | None]], numbers: Mapping[str, float]) -> list[str]:
    """Return the words of a line of a log: counts with their last ones, then numbers.

    Args:
        counts: Counts by name; the one without a name is in brackets.
        numbers: Numbers by name.

    Example:
        >>> progress({"Epoch": (3, 10), "": (7, 8)}, {"loss": 0.5})
        ['Epoch  3/10 [7/8]', 'loss 0.5000']
    """
    place = [f"{name} {out_of(*count)}" if name else f"[{out_of(*count)}]" for name, count in counts.items()]
    return [" ".join(place), *[f"{name} {number(value)}" for name, value in numbers.items()]]


def percent(share: float, digits: int = 0) -> str:
    """Return a share in percent.

    Example:
        >>> percent(0.431), percent(0.431, 1)
        ('43 %', '43.1 %')
    """
    return f"{share:.{digits}%}".replace("%", " %")


def counted(count: int, thing: str) -> str:
    """Return a number of things.

    Example:
        >>> counted(1, "epoch"), counted(2, "epoch")
        ('1 epoch', '2 epochs')
    """
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def calls(count: int) -> str:
    """Return a number of calls.

    Example:
        >>> calls(1), calls(3), calls(12000)
        ('one call', '3 calls', '12,000 calls')
    """
    return "one call" if count == 1 else f"{count:,} calls"


def clock(seconds: float) -> str:
    """Return a time as a clock shows it.

    Example:
        >>> clock(83.4), clock(183845)
        ('0:01:23', '2 days, 3:04:05')
    """
    return str(timedelta(seconds=round(seconds)))


def duration(seconds: float, *, precise: bool = False) -> str:
    """Return a time with the units that suit it.

    Args:
        seconds: The time.
        precise: Whether it gets one more decimal, and at least one.

    Example:
        >>> [duration(seconds) for seconds in (0.0000042, 0.0312, 2.34, 75, 7384, 200000)]
        ['4.2 µs', '31 ms', '2.3 s', '1 min 15 s', '2 h 3 min', '2 d 7 h']
        >>> [duration(seconds, precise=True) for seconds in (0.000042, 0.0123, 2.5)]
        ['42.0 µs', '12.3 ms', '2.50 s']
    """
    if seconds < 0.9995:
        amount, unit = (seconds * 1e3, "ms") if seconds >= 0.9995e-3 else (seconds * 1e6, "µs")
        return f"{amount:.1f} {unit}" if precise or 0 < amount < 10 else f"{amount:.0f} {unit}"
    if seconds < 59.95:
        return f"{seconds:.{2 if precise else 1}f} s"
    whole = timedelta(seconds=round(seconds))
    hours, rest = divmod(whole.seconds, 3600)
    if whole.days:
        return f"{whole.days} d {hours} h"
    return f"{hours} h {rest // 60} min" if hours else f"{rest // 60} min {rest % 60} s"


def size(count: float) -> str:
    """Return a number of bytes with the unit that suits it.

    Example:
        >>> size(1536), size(3 * 2**20), size(-(2**30)), size(0)
        ('1.5 KB', '3.0 MB', '-1.0 GB', '0 B')
    """
    for power, unit in ((3, "GB"), (2, "MB"), (1, "KB")):
        if abs(count) >= 1024**power:
            return f"{count / 1024**power:.1f} {unit}"
    return f"{count:.0f} B"


# -- tables -----------------------------------------------------------------------------------------------------


def operations(count: float) -> str:
    """Return a number of floating-point operations with the unit that suits it; in a second, append ``/s``.

    Example:
        >>> [operations(count) for count in (6, 49200, 2.41e8, 1.98e9, 7.68e12)]
        ['6 FLOP', '49.2 kFLOP', '241 MFLOP', '1.98 GFLOP', '7.68 TFLOP']
    """
    factor, unit = next(((10.0**at, unit) for at, unit in _OPERATIONS if count >= 0.9995 * 10.0**at), (1.0, ""))
    return f"{count / factor:.3g} {unit}FLOP"


_OPERATIONS = ((15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k"))


def columns(lines: Sequence[Sequence[str]], numbers: Collection[int] = ()) -> list[str]:
    """Align the cells of lines, those of the columns in ``numbers`` to the right.

    Example:
        >>> columns([("took", "0:01:23"), ("failures", "none")])
        ['took      0:01:23', 'failures  none']
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if at in numbers else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


def table(rows: Sequence[Mapping[str, str]], width: int | None = None) -> str:
    """Return rows as aligned text below the names of their columns; empty columns are left out.

    Args:
        rows: The rows, all with the same columns.
        width: The longest line: the last column is cut first, and left out where little of it would remain.

    Example:
        >>> print(table([{"hook": "EvalHook", "reads": "model, val_loader"}], 20))
        hook      reads
        EvalHook  model,...
    """
    names = [name for name in rows[0] if any(row[name] for row in rows)] if rows else []
    if not names:
        return ""
    lines = [names, *([row[name] for name in names] for row in rows)]
    return "\n".join(columns(lines if width is None else _cut(lines, width)))


LEAST = 8
"""A column that is cut has at least this width."""


def _cut(lines: list[list[str]], width: int) -> list[list[str]]:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    while sum(widths) + 2 * (len(widths) - 1) > width:
        room = width - sum(widths[:-1]) - 2 * (len(widths) - 1)
        if room >= LEAST or len(widths) == 1:
            return [[*line[: len(widths) - 1], shortened(line[len(widths) - 1], max(room, LEAST))] for line in lines]
        widths.pop()
    return [line[: len(widths)] for line in lines]


def table_width(text: str) -> int:
    """Return the length of the longest line of a text.

    Example:
        >>> table_width("ab\\nabc"), table_width("")
        (3, 0)
    """
    return max(map(len, text.splitlines()), default=0)


def html_table(rows: Sequence[Mapping[str, str]], wide: Collection[str] = ()) -> str:
    """Return rows as a table for a notebook; only the cells of the columns in ``wide`` break their lines."""
    plain = "padding:2px 10px;text-align:left;vertical-align:top"
    style = {name: plain if name in wide else f"{plain};white-space:nowrap" for name in rows[0]}
    head = "".join(f"<th style='{style[name]}'>{escaped(name)}</th>" for name in rows[0])
    cells = ("".join(f"<td style='{style[name]}'>{escaped(row[name])}</td>" for name in rows[0]) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in cells)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def labelled(text: str, labels: Iterable[str]) -> dict[str, str]:
    """Return what stands after each label in the lines of a text, or an empty text.

    Example:
        >>> labelled("Reads: outputs, metrics.", ("reads", "writes"))
        {'reads': 'outputs, metrics', 'writes': ''}
    """
    found = dict.fromkeys(labels, "")
    for line in text.splitlines():
        word, colon, rest = line.strip().partition(":")
        if colon and word.lower() in found:
            found[word.lower()] = rest.strip().rstrip(".")
    return found


# Control characters, and those that turn the direction of what follows them.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def escaped(text: str) -> str:
    """Return a text as HTML that shows it as it is.

    Example:
        >>> escaped("<b>&\\u202e")
        '&lt;b&gt;&amp;\ufffd'
    """
    # Most of a page are numbers.
    return text if text.isalnum() and text.isascii() else html.escape(_UNSEEN.sub("\ufffd", text))


# -- what a user wrote ------------------------------------------------------------------------------------------


def nearest(word: object, words: Iterable[object], cutoff: float = 0.6) -> str | None:
    """Return the known word that a misspelt one resembles most.

    Example:
        >>> nearest("monitr", ["patience", "monitor"])
        'monitor'
    """
    by_lower = {str(known).lower(): str(known) for known in words}
    found = get_close_matches(str(word).lower()[:100], by_lower, n=1, cutoff=cutoff) if isinstance(word, str) else []
    return by_lower[found[0]] if found else None


def indented_json(value: object, *, ensure_ascii: bool = True, allow_nan: bool = True) -> str:
    """Return JSON with an indent of one, as `json.dumps` does, which takes half as long again.

    Args:
        value: Plain types.
        ensure_ascii: Whether other characters are escaped.
        allow_nan: Whether NaN and infinities may be among them; if not, they raise a ``ValueError``.

    Example:
        >>> print(indented_json({"seeds": [1, 2], "none": {}}))
        {
         "seeds": [
          1,
          2
         ],
         "none": {}
        }
    """
    text = encode_basestring_ascii if ensure_ascii else encode_basestring
    encode = json.JSONEncoder(ensure_ascii=ensure_ascii, allow_nan=allow_nan).encode

    def written(value: Any, outer: str) -> str:
        kind, inner = type(value), f"{outer} "
        if kind is str:
            return text(value)
        if kind is dict and value:
            keys = [text(key) if type(key) is str else encode({key: 0})[1:-4] for key in value]
            items = [f"{key}: {written(item, inner)}" for key, item in zip(keys, value.values(), strict=True)]
            return f"{{{inner}{f',{inner}'.join(items)}{outer}}}"
        if (kind is list or kind is tuple) and value:
            return f"[{inner}{f',{inner}'.join([written(item, inner) for item in value])}{outer}]"
        return repr(value) if kind is int else encode(value)

    return written(value, "\n")


def did_you_mean(word: object, words: Iterable[object]) -> str:
    """Return ``, did you mean 'monitor'?``, or nothing where no known word is near."""
    found = nearest(word, words)
    return f", did you mean {found!r}?" if found else ""


def shown(value: object, longest: int = 60) -> str:
    """Return a value for a message: on one line and not too long.

    Example:
        >>> shown("a\\nb"), shown(list(range(100)), 20)
        ("'a\\\\nb'", '[0, 1, 2, 3, 4, 5...')
    """
    try:
        return shortened(repr(value), longest)
    except Exception:  # a repr of someone else's; a whole number of thousands of digits has none either
        return f"<{type(value).__name__}>"


def below(place: str, key: object) -> str:
    """Return the place of a key in a mapping.

    Example:
        >>> below("hooks[0]", "interval"), below("hooks[0]", "two words")
        ('hooks[0].interval', "hooks[0]['two words']")
    """
    if not isinstance(key, str) or not key.replace("-", "_").isidentifier() or len(key) > 60:
        return f"{place}[{shown(key)}]"
    return f"{place}.{key}" if place else key


def setting_place(place: str, setting: str) -> str:
    """Return the place of a setting of a hook; an empty name means the hook itself, and a dotted one is a path.

    Example:
        >>> (
        ...     setting_place("hooks[0]", "interval"),
        ...     setting_place("hooks[0]", ""),
        ...     setting_place("hooks[0]", "metrics.f1"),
        ... )
        ('hooks[0].interval', 'hooks[0]', 'hooks[0].metrics.f1')
    """
    for key in setting.split(".") if setting else ():
        place = below(place, key)
    return place


def one_line(error: BaseException) -> str:
    """Return the message of any error, with its kind where the message alone says too little."""
    text = shortened(str(error.args[0] if type(error) is KeyError and error.args else error), 200)
    known = isinstance(error, ImportError) or type(error) in (ValueError, TypeError)
    explains_itself = known or getattr(error, "explains_itself", False)
    return text if explains_itself and text else f"{type(error).__name__}: {text}".rstrip(": ")


def shortened(text: str, longest: int) -> str:
    """Return a text on one line, cut where it is too long."""
    text = " ".join(text.split()) if len(text.splitlines()) > 1 else text
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
