"""Text to HTML: everything that comes from a run is escaped here."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from ignite_hooks.report.style import STYLE
from ignite_hooks.text import escaped as _escaped


class Markup(str):
    """A text that is already HTML."""

    __slots__ = ()


def escaped(value: Any) -> Markup:
    """Return a value as HTML; markup stays as it is.

    Example:
        >>> escaped("<b>&\\u202e"), escaped(Markup("<b>"))
        ('&lt;b&gt;&amp;\ufffd', '<b>')
    """
    if isinstance(value, Markup):
        return value
    return Markup(_escaped(str(value)))


def tag(element: str, /, *inside: Any, **attributes: Any) -> Markup:
    """Return an element; ``class_`` becomes ``class``, and attributes that are None are omitted.

    Example:
        >>> tag("p", "a < b", tag("br"), class_="note")
        '<p class="note">a &lt; b<br></p>'
    """
    given = (f' {key.rstrip("_").replace("_", "-")}="{escaped(v)}"' for key, v in attributes.items() if v is not None)
    opening = f"<{element}{''.join(given)}>"
    return Markup(opening if element in _EMPTY else f"{opening}{joined(inside)}</{element}>")


_EMPTY = frozenset({"br", "img", "meta", "col"})


def joined(parts: Iterable[Any], between: str = "") -> Markup:
    """Return several parts as one."""
    return Markup(between.join(escaped(part) for part in parts))


def link(path: str, text: Any = None) -> Markup:
    """Return a link to a file beside the page; a scheme in the path becomes a part of the file name.

    Example:
        >>> link("javascript:alert(1)"), link("a b/c.log")
        ('<a href="./javascript%3Aalert%281%29">javascript:alert(1)</a>', '<a href="./a%20b/c.log">a b/c.log</a>')
    """
    return tag("a", path if text is None else text, href=f"./{quote(path, errors='replace')}")


def link_out(address: str) -> Markup:
    """Return a link to a page elsewhere; what is no address of the web is text.

    Example:
        >>> link_out("https://host/run"), link_out("javascript:alert(1)")
        ('<a href="https://host/run">https://host/run</a>', 'javascript:alert(1)')
    """
    is_web = address.startswith(("http://", "https://"))
    return tag("a", address, href=address) if is_web else escaped(address)


def table(rows: Sequence[Mapping[str, Any]], *, kind: str = "", numbers: Iterable[str] = ()) -> Markup:
    """Return rows as a table that scrolls if it is wider than the page; columns without content are omitted.

    Args:
        rows: Cells by column.
        kind: CSS class of the table.
        numbers: Columns to align to the right.
    """
    names = [name for name in rows[0] if any(row[name] not in ("", None) for row in rows)] if rows else []
    right = set(numbers)
    style = {name: "n" if name in right else None for name in names}
    head = tag("tr", *(tag("th", name, class_=style[name], scope="col") for name in names))
    body = [tag("tr", *(tag("td", row[name], class_=style[name]) for name in names)) for row in rows]
    # With a tabindex, since a keyboard has to reach whatever scrolls.
    return tag(
        "div", tag("table", tag("thead", head), tag("tbody", *body), class_=kind or None), class_="wide", tabindex="0"
    )


def facts(rows: Mapping[str, Any]) -> Markup:
    """Return names and values as a description list."""
    return tag("dl", *(joined([tag("dt", name), tag("dd", value)]) for name, value in rows.items()))


POLICY = (
    "default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
)
"""Nothing is loaded and nothing runs, so markup that escaped the escaping could do no harm."""


def document(title: str, body: Iterable[Any], refresh: int | None = None, script: str = "") -> str:
    """Return a page that needs no other file.

    Args:
        title: Title of the window.
        body: Parts of its body.
        refresh: Seconds after which a browser reloads it.
        script: A script of ours, which alone may run; nothing of a run is ever a part of it.
    """
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"{POLICY}; script-src 'sha256-{digest}'" if script else POLICY
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        *([tag("meta", http_equiv="refresh", content=refresh)] if refresh is not None else []),
        tag("title", title),
        tag("style", Markup(STYLE)),
    ]
    parts = [*body, tag("script", Markup(script))] if script else body
    whole = tag("html", tag("head", *head), "\n", tag("body", joined(parts, "\n")), lang="en")
    return f"<!doctype html>\n{whole}\n"
