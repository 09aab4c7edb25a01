"""The sections of a page, one function each: data in, markup out, empty if there is nothing to show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ignite_hooks.report.chart import bar, chart, value
from ignite_hooks.report.curves import CurveSet, Series
from ignite_hooks.report.data import LoggedWarning, RunPage, counted_if_any, moment, nonfinite_lines, position, shares
from ignite_hooks.report.markup import Markup, facts, joined, link, table, tag
from ignite_hooks.report.style import COLOURS
from ignite_hooks.text import duration, percent

MAX_CHARTS = 48
CHARTS_AT_ONCE = 12
"""Number of charts of one section that are shown at once; the others are shown after a click."""
MAX_LINES = 6
"""Maximum number of lines of a chart."""
MAX_CONFIG_LENGTH = 200_000
"""Maximum number of characters of a configuration."""


def curves(page: RunPage) -> Markup | str:
    """Return the charts of what the run learns and evaluates."""
    groups = page.history.learning()
    if not groups:
        return tag(
            "p", "No numbers yet: LoggerHook writes them to metrics.jsonl, which this page reads.", class_="faint"
        )
    # First metrics of evaluations, then losses, then families of numbers.
    order = sorted(
        groups,
        key=lambda name: (all(s.kind == "train" for s in groups[name]), _is_family(name, groups[name])),
    )
    shown = [_chart(name, groups[name], page) for name in order[:MAX_CHARTS]]
    besides = len(order) - len(shown)
    parts = [tag("div", *shown[:CHARTS_AT_ONCE], class_="charts")]
    if shown[CHARTS_AT_ONCE:]:
        summary = tag("summary", f"{counted_if_any(len(shown) - CHARTS_AT_ONCE, 'more chart')}")
        parts.append(tag("details", summary, tag("div", *shown[CHARTS_AT_ONCE:], class_="charts small")))
    if any(point.size > 1 for group in groups.values() for one in group for point in one.points):
        parts.append(
            tag(
                "p", "Of a long run lines are means; the values they are made of lie in what is shaded.", class_="faint"
            )
        )
    if besides:
        parts.append(tag("p", f"{counted_if_any(besides, 'number')} more in metrics.jsonl.", class_="faint"))
    return joined(parts)


def _is_family(name: str, group: Sequence[Series]) -> bool:
    """Return whether a group holds the numbers below a name, such as ``grad_norm/...``, but none of that name."""
    return all(name in one.name.split("/")[:-1] for one in group)


def _chart(title: str, group: Sequence[Series], page: RunPage, *, stars: bool = True) -> Markup:
    lines = group[:MAX_LINES]
    marks = [one.best if stars and one.kind != "train" and len(one.points) > 1 else None for one in lines]
    legend = []
    for number, (one, mark) in enumerate(zip(lines, marks, strict=True)):
        words: list[Any] = []
        # The name of a single line is already the title of its chart.
        words += [one.name, " "] if len(lines) > 1 or one.name != title else []
        words += ["last ", tag("b", value(one.last.value))] if one.last else []
        words += [f", best ★ {value(mark.value)}"] if mark else []
        many = f"{', ' if one.last else ''}{counted_if_any(one.not_finite, 'value')} not finite"
        odd = tag("span", many, class_="odd") if one.not_finite else ""
        legend.append(tag("li", tag("i", class_=f"key s{number % COLOURS}"), tag("span", *words, odd)))
    if len(group) > len(lines):
        legend.append(tag("li", f"and {len(group) - len(lines)} more"))
    drawing = chart(lines, page.history.last_step, marks, label=f"{title} over iterations")
    return tag("figure", tag("h3", title), drawing, tag("ul", *legend, class_="legend"))


def best_metrics(page: RunPage) -> Markup | str:
    """Return a table of the best and the last value of each metric."""
    rows: list[dict[str, Any]] = []
    ranked = set()
    for one in sorted(page.best, key=lambda one: one.file is None):
        series = _series_of(one.metric, page.history)
        ranked.add(series.name if series else "")
        file = link(one.file) if one.file else "–"
        last = value(series.last.value) if series and series.last else ""
        where = position(one.epoch, one.step)
        rows.append({"metric": one.metric, "best": value(one.score), "where": where, "checkpoint": file, "last": last})
    for other in page.history.evaluated():
        if other.name in ranked or other.last is None:
            continue
        mark = other.best
        best, where = (value(mark.value), position(mark.epoch, mark.step)) if mark else ("", "")
        rows.append(
            {"metric": other.name, "best": best, "where": where, "checkpoint": "", "last": value(other.last.value)}
        )
    return table(rows, kind="best", numbers=("best", "last")) if rows else ""


def _series_of(metric: str, history: CurveSet) -> Series | None:
    """Return the series of a ranked metric: ``accuracy`` and ``val_accuracy`` are both ``val/accuracy``."""
    wanted = metric.replace("/", "_")
    names = {name.replace("/", "_"): one for name, one in history.series.items()}
    return next((names[name] for name in (wanted, f"val_{wanted}", f"test_{wanted}") if name in names), None)


def hook_costs(page: RunPage) -> Markup | str:
    """Return a table of the time that each hook has taken."""
    if not page.costs:
        return ""
    most = max(one.total for one in page.costs) or 1.0
    rows = []
    for one in page.costs:
        share = percent(one.total / page.seconds, 2) if page.seconds else ""
        length = tag("span", class_="share", style=f"width:{100 * one.total / most:.0f}%")
        rows.append(
            {
                "hook": joined([one.name, " (with the evaluations)"]) if one.evaluates else one.name,
                "share of the run": joined([share, tag("span", length, class_="room")]),
                "total": duration(one.total),
                "calls": f"{one.calls:,}",
                "mean": duration(one.mean),
                "99 % within": duration(one.p99),
                "longest": duration(one.worst),
            }
        )
    whole = sum(one.total for one in page.costs)
    inside = dict(shares(page)).get("hooks")
    summary = (
        f"All of them took {duration(whole)}, {percent(whole / page.seconds, 1)} of the run" if page.seconds else ""
    )
    if summary and inside is not None:
        # The run is more than its iterations.
        summary += f", evaluations and the ends of epochs included; of an iteration hooks take {percent(inside)}"
    summary += "." if summary else ""
    numbers = ("share of the run", "total", "calls", "mean", "99 % within", "longest")
    return joined([tag("p", summary, class_="faint"), table(rows, kind="costs", numbers=numbers)])


def pictures(page: RunPage) -> Markup | str:
    """Return the newest pictures of hooks."""
    shown = [
        tag(
            "figure",
            tag("img", src=one.data, alt=f"{one.name}, drawn by a hook", width=one.width, height=one.height),
            tag(
                "figcaption",
                one.name,
                "" if one.step is None else f", iteration {one.step:,}",
                " · " if one.file else "",
                link(one.file, "file") if one.file else "",
            ),
            class_="broad" if one.is_broad else None,
        )
        for one in page.pictures
    ]
    if not shown and not page.pictures_besides:
        return ""
    more = (
        f"The newest of each kind; {counted_if_any(page.pictures_besides, 'more picture')} in the folder."
        if page.pictures_besides
        else ""
    )
    return joined([tag("div", *shown, class_="pictures"), tag("p", more, class_="faint") if more else ""])


def resources(page: RunPage) -> Markup | str:
    """Return the parts of an iteration, the memory, the learning rate and the load of the machine."""
    parts: list[Markup] = []
    found = shares(page)
    if found:
        parts += [tag("h3", "An iteration"), bar(found)]
    rates = page.history.rates()
    groups = [
        (name, group) for name, group in page.history.resources().items() if not name.startswith(("share/", "time/eta"))
    ]
    if page.memory:
        parts += [facts(page.memory)]
    figures = [_chart("learning rate", rates, page, stars=False)] if rates else []
    chosen = [item for item in groups if item[0] in ("time/iter", "samples_per_s", "memory/process_mb", "memory_mb")]
    figures += [_chart(_TITLES.get(name, name), group, page, stars=False) for name, group in chosen]
    if figures:
        parts.append(tag("div", *figures, class_="charts"))
    others = [item for item in groups if item not in chosen][:MAX_CHARTS]
    if others:
        inside = [_chart(name, group, page, stars=False) for name, group in others]
        summary = tag("summary", counted_if_any(len(others), "more chart"))
        parts.append(tag("details", summary, tag("div", *inside, class_="charts small")))
    return tag("div", *(tag("div", part) for part in parts), class_="stack") if parts else ""


_TITLES = {
    "time/iter": "seconds per iteration",
    "samples_per_s": "samples per second",
    "memory/process_mb": "memory of the process, MB",
    "memory_mb": "peak memory of the GPU, MB",
}


def plan(page: RunPage) -> Markup | str:
    """Return tables of the hooks at each point, and of what each hook reads, writes and saves."""
    if not page.plan:
        return ""
    points: dict[str, list[Markup]] = {}
    for row in page.plan:
        # A row without a point belongs to the point above.
        point = row["point"] or next(reversed(points), "")
        rarely = tag("small", row["how often"]) if row["how often"] != "always" else ""
        chip = tag("li", row["hook"], " ", rarely, title=f"priority {row['priority']}")
        points.setdefault(point, []).append(chip)
    rows = [{"point": point, "hooks in order": tag("ol", *chips, class_="chips")} for point, chips in points.items()]
    notes = [{name: row.get(name, "") for name in ("hook", "reads", "writes", "saves")} for row in page.plan]
    notes = [row for row in notes if row["reads"] or row["writes"] or row["saves"]]
    parts = [
        tag(
            "p",
            "Which hook runs at which point, from left to right; every time where nothing else is said.",
            class_="faint",
        ),
        table(rows, kind="plan"),
    ]
    if notes:
        summary = tag("summary", "What each hook reads, writes and saves")
        parts.append(tag("details", summary, table(notes, kind="notes")))
    return joined(parts)


def configuration(page: RunPage) -> Markup | str:
    """Return the configuration, cut if it is too long."""
    text = page.config
    cut = (
        ""
        if len(text) <= MAX_CONFIG_LENGTH
        else tag("p", f"… and {len(text) - MAX_CONFIG_LENGTH:,} characters more.", class_="faint")
    )
    return joined([tag("pre", text[:MAX_CONFIG_LENGTH], tabindex="0"), cut]) if text else ""


def environment(page: RunPage) -> Markup | str:
    """Return the facts of the machine and the software."""
    return facts(page.environment) if page.environment else ""


def problems(page: RunPage) -> Markup:
    """Return the failure, failures of hooks, findings and warnings."""
    parts: list[Markup] = []
    if page.state == "failed":
        parts.append(tag("p", tag("b", page.reason or "the run has failed")))
        if page.trace:
            parts.append(tag("details", tag("summary", "Traceback"), tag("pre", page.trace, tabindex="0")))
    if page.failures:
        parts += [tag("h3", "Hooks and writers that failed"), _list(page.failures)]
    if page.findings:
        parts += [tag("h3", "What hooks have found"), _list(page.findings)]
    if lines := [*map(_warning, page.warnings), *nonfinite_lines(page.history)]:
        parts += [tag("h3", "Warnings"), _list(lines)]
    return joined(parts) if parts else tag("p", "None.", class_="faint")


def _warning(one: LoggedWarning) -> Markup:
    head, _, rest = one.text.strip().partition("\n")
    times = f" ({one.times} times)" if one.times > 1 else ""
    more = tag("details", tag("summary", "more"), tag("pre", rest, tabindex="0")) if rest else ""
    return joined([tag("span", moment(one.at, day=False), class_="times"), head, times, more])


def _list(lines: Sequence[Any]) -> Markup:
    return tag("ul", *(tag("li", line) for line in lines), class_="said")
