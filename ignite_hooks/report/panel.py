"""The panel of a run in a notebook: table markup and inline styles alone, so that a notebook nobody trusts shows it."""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ignite_hooks.drawing.small_curves import COLOURS, HEIGHT, WIDTH, small_curves, sparkline
from ignite_hooks.report.curves import CurveSet, Series
from ignite_hooks.report.data import BestScore, LoggedWarning
from ignite_hooks.report.markup import Markup, joined, link, tag
from ignite_hooks.text import clock, counted, duration, number, out_of, percent
from ignite_hooks.text import table as text_table
from ignite_hooks.writers.interface import full_name

MAX_ROWS = 30
"""Maximum number of epochs in the table: the first ones, the best, the last."""
FIRST_ROWS = 3
MAX_COLUMNS = 8
MAX_CHARTS = 4
MAX_LINES = 6
"""Maximum number of findings, of failures and of warnings."""
MAX_LINE_LENGTH = 300
KEPT = 120
"""The epochs that the table remembers besides the first ones and the best."""
BAR = 24
"""Characters of the bar."""

# Neither dark nor light: legible on both kinds of page, which the panel does not colour itself.
STATE_COLOURS = {
    "running": "#2b7fc4",
    "finished": "#2e8b57",
    "stopped": "#b07a1e",
    "interrupted": "#b07a1e",
    "failed": "#d2453d",
}


class EpochTable:
    """The numbers of each epoch; of a long run the first epochs, the best and the last ones.

    Example:
        >>> table = EpochTable()
        >>> table.add([{"step": 4, "epoch": 1, "kind": "val", "scalars": {"loss": 0.5}}])
        >>> table.rows
        {1: {'val/loss': 0.5}}
    """

    def __init__(self) -> None:
        self.rows: dict[int, dict[str, float]] = {}
        self._dropped = 0

    def add(self, lines: Iterable[Mapping[str, Any]], best: Collection[int] = ()) -> None:
        """Add lines of ``metrics.jsonl``; the last value of an epoch counts."""
        for line in lines:
            epoch, scalars = line.get("epoch"), line.get("scalars")
            if not isinstance(epoch, int) or not isinstance(scalars, Mapping):
                continue
            kind = str(line.get("kind", "train"))
            row = self.rows.setdefault(epoch, {})
            for name in line.get("nonfinite", ()):
                row[full_name(str(name), kind)] = float("nan")
            for name, value in scalars.items():
                if isinstance(value, (int, float)) and not isinstance(value, bool):
                    row[full_name(str(name), kind)] = float(value)
        if len(self.rows) > 2 * KEPT:
            kept = _chosen(list(self.rows), best, KEPT)
            self._dropped += len(self.rows) - len(kept)
            self.rows = {epoch: row for epoch, row in self.rows.items() if epoch in kept}

    def shown(self, best: Collection[int] = ()) -> tuple[list[tuple[int, dict[str, float]]], int]:
        """Return at most `MAX_ROWS` rows, and the number of those left out."""
        kept = _chosen(list(self.rows), best, MAX_ROWS)
        return sorted((e, self.rows[e]) for e in kept), self._dropped + len(self.rows) - len(kept)


def _chosen(epochs: list[int], best: Collection[int], most: int) -> set[int]:
    """Return the first epochs, the best and the last, at most so many."""
    if len(epochs) <= most:
        return set(epochs)
    epochs = sorted(epochs)
    found = {*epochs[:FIRST_ROWS], *sorted(set(best) & set(epochs))[-most // 3 :]}
    for epoch in reversed(epochs):
        if len(found) >= most:
            break
        found.add(epoch)
    return found


@dataclass(frozen=True)
class Panel:
    """All data of the panel of a run; secrets are masked already, and ``markup`` escapes texts for HTML."""

    name: str
    state: str = "running"
    reason: str = ""
    """The reason why the run stopped or failed, and what was saved."""
    doing: str = ""
    """What the run does besides training, such as an evaluation."""
    epoch: int = 0
    max_epochs: int | None = None
    iteration: int = 0
    max_iters: int | None = None
    seconds: float = 0.0
    left: float | None = None
    """Seconds until the end of the run, if known."""
    speed: str = ""
    history: CurveSet = field(default_factory=CurveSet)
    rows: Sequence[tuple[int, Mapping[str, float]]] = ()
    """The numbers of the epochs that are shown."""
    left_out: int = 0
    """The number of epochs that are not shown."""
    best: Sequence[BestScore] = ()
    findings: Sequence[str] = ()
    failures: Sequence[str] = ()
    warnings: Sequence[LoggedWarning] = ()
    links: Mapping[str, str] = field(default_factory=dict)
    """Paths relative to the notebook, by what they are."""
    pages: Mapping[str, str] = field(default_factory=dict)
    """The addresses of the run's pages in trackers, by tracker."""
    folder: str = ""


def panel_html(panel: Panel) -> str:
    """Return the panel as HTML.

    It has no script, no ``<style>`` and no ``<svg>``: JupyterLab drops them in a notebook that somebody else has run.

    Example:
        >>> print(panel_html(Panel("run", "finished", epoch=2, max_epochs=2))[:80])
        <div style="font-family:system-ui,sans-serif;font-size:13px;line-height:1.5;max-
    """
    parts = [_head(panel), _epochs(panel), _charts(panel), *_notes(panel), _foot(panel)]
    style = "font-family:system-ui,sans-serif;font-size:13px;line-height:1.5;max-width:64em"
    return tag("div", *(part for part in parts if part), style=style)


def panel_text(panel: Panel) -> str:
    """Return the panel as plain text, for what shows no HTML.

    Example:
        >>> print(panel_text(Panel("run", "finished", epoch=2, max_epochs=2, seconds=3)))
        run: finished, epoch 2/2, 0:00:03
    """
    best = {one.epoch for one in panel.best}
    columns = _columns(panel)
    cells = [
        {
            "epoch": f"{epoch}{' *' if epoch in best else ''}",
            **{name: number(values[name]) if name in values else "" for name in columns},
        }
        for epoch, values in panel.rows
    ]
    lines = [": ".join([panel.name, ", ".join(_words(panel))]), *([panel.reason] if panel.reason else [])]
    return "\n".join([*lines, *([text_table(cells, 100)] if cells and columns else [])])


def _words(panel: Panel) -> list[str]:
    words = [panel.state, f"epoch {out_of(panel.epoch, panel.max_epochs).strip()}"]
    words += [f"iteration {out_of(panel.iteration, panel.max_iters).strip()}"] if panel.iteration else []
    words += [panel.doing] if panel.doing else []
    if panel.state == "running" and panel.left is not None:
        words.append(f"{clock(panel.left)} left")
    else:
        words.append(clock(panel.seconds))
    return [*words, *([panel.speed] if panel.speed else [])]


def _head(panel: Panel) -> Markup:
    state, *others = _words(panel)
    colour = STATE_COLOURS.get(state, STATE_COLOURS["stopped"])
    cells = [tag("td", tag("b", panel.name), style=_CELL), tag("td", tag("b", state), style=f"{_CELL};color:{colour}")]
    cells += [tag("td", word, style=_CELL) for word in others]
    parts = [tag("table", tag("tr", *cells), style=_TABLE)]
    if panel.max_iters:
        share = min(1.0, panel.iteration / panel.max_iters)
        full = int(share * BAR)
        # A bar of characters: pages that drop <progress> and styles show it too.
        bar = tag("span", "█" * full, style=f"color:{colour}") + tag("span", "░" * (BAR - full), style="opacity:0.45")
        parts.append(tag("div", Markup(bar), f" {percent(share)}", style="font-family:monospace;margin:2px 6px"))
    if panel.reason:
        parts.append(tag("div", _cut(panel.reason), style=f"margin:2px 6px;color:{colour}"))
    return joined(parts)


def _epochs(panel: Panel) -> Markup:
    columns = _columns(panel)
    if not panel.rows or not columns:
        return Markup("")
    best = {one.epoch for one in panel.best}
    head = tag("tr", tag("th", "epoch", style=_HEAD), *(tag("th", name, style=_HEAD) for name in columns))
    lines, before = [head], None
    for epoch, values in panel.rows:
        if panel.left_out and before is not None and epoch > before + 1:
            between = counted(epoch - before - 1, "epoch")
            lines.append(tag("tr", tag("td", f"… {between}", colspan=len(columns) + 1, style=f"{_NUMBER};opacity:0.7")))
        weight = f"{_NUMBER};font-weight:bold" if epoch in best else _NUMBER
        cells = [number(values[name]) if name in values else "" for name in columns]
        place = f"{'★ ' if epoch in best else ''}{epoch}"
        lines.append(tag("tr", tag("td", place, style=weight), *(tag("td", cell, style=weight) for cell in cells)))
        before = epoch
    return tag("table", *lines, style=_TABLE)


def _columns(panel: Panel) -> list[str]:
    names = {name for _, values in panel.rows for name in values}
    learnt = [series.name for _, group in _quantities(panel) for series in group]
    return [name for name in learnt if name in names][:MAX_COLUMNS]


def _quantities(panel: Panel) -> list[tuple[str, list[Series]]]:
    """Return the series of each quantity, those of the training first."""
    groups = panel.history.learning().items()
    ordered = [(name, sorted(group, key=lambda series: series.kind != "train")) for name, group in groups]
    return sorted(ordered, key=lambda one: one[1][0].kind != "train")


def _charts(panel: Panel) -> Markup:
    """Return the curves, each as a picture with the same in block characters, for pages that drop pictures."""
    cells = []
    for name, group in _quantities(panel)[:MAX_CHARTS]:
        drawn = [series for series in group if series.size > 1][: len(COLOURS)]
        if drawn:
            cells.append(tag("td", _chart(name, drawn), style=f"{_CELL};vertical-align:top"))
    rows = [tag("tr", *cells[i : i + 2]) for i in range(0, len(cells), 2)]
    return tag("table", *rows, style=_TABLE) if rows else Markup("")


def _chart(name: str, group: Sequence[Series]) -> Markup:
    picture = base64.b64encode(small_curves([[(p.step, p.value) for p in one.points] for one in group])).decode()
    image = tag("img", src=f"data:image/png;base64,{picture}", alt=name, width=WIDTH, height=HEIGHT)
    lines = []
    for series, colour in zip(group, COLOURS, strict=False):
        last = "" if series.last is None else number(series.last.value)
        blocks = tag(
            "span", sparkline([p.value for p in series.points]), style=f"font-family:monospace;color:rgb{colour}"
        )
        lines.append(tag("div", blocks, f" {series.name} {last}"))
    return joined([image, *lines])


def _notes(panel: Panel) -> Iterable[Markup]:
    told = [
        ("failure", list(panel.failures), STATE_COLOURS["failed"]),
        ("warning", [_warning(one) for one in panel.warnings], STATE_COLOURS["stopped"]),
        ("finding", list(panel.findings), ""),
    ]
    rows = []
    for what, lines, colour in told:
        shown = lines[-MAX_LINES:]
        style = f"{_CELL};vertical-align:top" + (f";color:{colour}" if colour else "")
        more = len(lines) - len(shown)
        shown = [f"{counted(more, what)} before these, in the log", *shown] if more else shown
        rows += [
            tag(
                "tr", tag("td", tag("b", what), style=style), tag("td", _cut(line), style=f"{_CELL};white-space:normal")
            )
            for line in shown
        ]
    if rows:
        yield tag("table", *rows, style=_TABLE)


def _warning(one: LoggedWarning) -> str:
    return one.text if one.times == 1 else f"{one.text} ({one.times} times)"


def _foot(panel: Panel) -> Markup:
    words: list[Any] = [f"best {one.metric} {number(one.score)} at epoch {one.epoch}" for one in panel.best[:3]]
    words += [link(path, name) for name, path in panel.links.items()]
    # An address of another scheme is shown, but leads nowhere.
    words += [
        tag("a", name, href=page) if page.startswith(("https://", "http://")) else f"{name}: {page}"
        for name, page in panel.pages.items()
    ]
    words += [panel.folder] if panel.folder else []
    words += [f"took {duration(panel.seconds)}"] if panel.state != "running" else []
    return tag("div", joined(words, " · "), style="margin:2px 6px;opacity:0.8") if words else Markup("")


def _cut(line: str) -> str:
    line = " ".join(line.split())
    return line if len(line) <= MAX_LINE_LENGTH else f"{line[: MAX_LINE_LENGTH - 1]}…"


_TABLE = "border-collapse:collapse;margin:2px 0"
_CELL = "padding:2px 6px;text-align:left;white-space:nowrap"
_HEAD = "padding:2px 8px;text-align:right;white-space:nowrap"
_NUMBER = "padding:1px 8px;text-align:right;white-space:nowrap"
