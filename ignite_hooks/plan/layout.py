"""The rows of a plan as text that fits a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ignite_hooks.text import table, table_width

NOTES = ("reads", "writes", "saves")
"""What the docstring of a hook says besides its settings; a table says it once for each hook."""


def fitted_plan(rows: Sequence[Mapping[str, str]], width: int | None) -> tuple[str, list[str]]:
    """Return the rows as a table of at most ``width`` columns, and what of them it does not show whole.

    First what hooks read, write and save is left out, then the points become headings, at last the last column is
    cut.

    Example:
        >>> row = {"point": "after_epoch", "order": "1", "hook": "LoggerHook", "next": "", "reads": "metrics"}
        >>> print(*fitted_plan([row], None))
        point        order  hook        reads
        after_epoch  1      LoggerHook  metrics []
        >>> print(*fitted_plan([row], 24))
          order  hook
        after_epoch
          1      LoggerHook ['reads']
    """
    whole = table(rows) or "no hooks"
    if width is None or table_width(whole) <= width:
        return whole, []
    hidden = [name for name in NOTES if any(row.get(name) for row in rows)]
    core = [{name: text for name, text in row.items() if name not in NOTES} for row in rows]
    text = table(core)
    if table_width(text) <= width:
        return text, hidden
    narrow = [{name: text for name, text in row.items() if name != "point"} for row in core]
    head, *lines = table(narrow, width - 2).splitlines()
    if [head, *lines] != table(narrow).splitlines():
        names = [name for name in narrow[0] if any(row[name] for row in narrow)]
        kept = head.split("  ")
        gone = [name for name in names if name not in [word.strip() for word in kept]]
        hidden = [*(gone or names[-1:]), *hidden]
    found = [f"  {head}"]
    for row, line in zip(rows, lines, strict=True):
        found += [row["point"]] if row["point"] else []
        found.append(f"  {line}")
    return "\n".join(found), hidden
