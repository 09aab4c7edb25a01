"""The report of a run: its data, and the page they make."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ignite_hooks.report.chart import bar, chart, value
from ignite_hooks.report.curves import History, Series, is_resource, shares
from ignite_hooks.report.markup import Markup, document, escaped, facts, joined, link, table, tag
from ignite_hooks.report.pictures import Shown
from ignite_hooks.report.style import COLOURS
from ignite_hooks.text import calls, counted, duration

State = Literal["running", "finished", "stopped", "failed"]

MOST_CHARTS = 48
AT_ONCE = 12
"""So many charts of one section are shown, and those beyond them after a click."""
MOST_LINES = 6
"""Of one chart."""
LONGEST_TEXT = 200_000
"""Of a configuration, in characters."""
REFRESHED = 20
"""Seconds after which a browser reads the page of a running run again."""


@dataclass(frozen=True)
class BestScore:
    """The best score of a metric that the run ranks, and the file that holds it."""

    metric: str
    score: float
    epoch: int
    step: int
    file: str | None = None


@dataclass(frozen=True)
class HookCost:
    """What a hook has taken of the time of a run; in seconds."""

    name: str
    calls: int
    total: float
    mean: float
    p99: float
    worst: float
    evaluates: bool = False
    """Whether evaluations are a part of it."""


@dataclass(frozen=True)
class Said:
    """A warning or an error, and how often it was said."""

    text: str
    at: float = 0.0
    level: str = "WARNING"
    times: int = 1


@dataclass(frozen=True)
class RunPage:
    """All that the report of a run shows; texts are masked already, and escaped only here."""

    name: str
    state: State = "running"
    reason: str = ""
    """Why it has stopped or failed."""
    trace: str = ""
    began: float = 0.0
    written: float = 0.0
    seconds: float = 0.0
    left: float | None = None
    """The seconds it will still take, where that is known."""
    epoch: int = 0
    """How many have finished."""
    max_epochs: int | None = None
    iteration: int = 0
    max_iters: int | None = None
    resumed_from: str = ""
    best: Sequence[BestScore] = ()
    history: History = field(default_factory=History)
    costs: Sequence[HookCost] = ()
    """The dearest first."""
    plan: Sequence[Mapping[str, str]] = ()
    pictures: Sequence[Shown] = ()
    pictures_besides: int = 0
    config: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    memory: Mapping[str, str] = field(default_factory=dict)
    files: Sequence[str] = ()
    """Names of files beside the page."""
    failures: Sequence[str] = ()
    findings: Sequence[str] = ()
    warnings: Sequence[Said] = ()


def render(page: RunPage) -> str:
    """The page."""
    sections = [
        ("curves", "Curves", _curves(page)),
        ("best", "Best metrics", _best(page)),
        ("hooks", "What the hooks cost", _costs(page)),
        ("pictures", "Pictures", _pictures(page)),
        ("time", "Time and memory", _resources(page)),
        ("plan", "Plan", _plan(page)),
        ("configuration", "Configuration", _config(page)),
        ("environment", "Environment", _environment(page)),
    ]
    trouble = ("warnings", "Warnings and failures", _trouble(page))
    sections.insert(0 if page.failures or page.state == "failed" else len(sections), trouble)
    kinds = {
        "warnings": "trouble"
        if page.failures or page.state == "failed"
        else "caution"
        if page.warnings or _missing(page.history)
        else None
    }
    body = [
        tag("section", tag("h2", title), inside, id=name, class_=kinds.get(name))
        for name, title, inside in sections
        if inside
    ]
    names = [(name, title) for name, title, inside in sections if inside]
    contents = tag("nav", *(tag("a", title, href=f"#{name}") for name, title in names), aria_label="sections")
    whole = [tag("header", *_headline(page), contents), tag("main", _cards(page), *body), _footer(page)]
    refresh = REFRESHED if page.state == "running" else None
    return document(f"{_SYMBOL[page.state]} {page.name}", whole, refresh)


_SYMBOL = {"running": "▶", "finished": "✓", "stopped": "■", "failed": "✗"}


# -- the head --------------------------------------------------------------------------------------------------


def _headline(page: RunPage) -> Iterator[Markup]:
    state = tag("span", f"{_SYMBOL[page.state]} {page.state}", class_=f"pill {page.state}")
    yield tag("div", tag("h1", page.name), state, class_="title")
    words = [_of(page.epoch, page.max_epochs, "epoch"), _of(page.iteration, page.max_iters, "iteration")]
    when = f"{'last written' if page.state == 'running' else 'ended'} {moment(page.written)}"
    yield tag("p", f"{', '.join(words)} in {duration(page.seconds)}, {when}", class_="sub")
    if page.reason:
        yield tag("p", page.reason)
    if page.resumed_from:
        yield tag("p", "resumed from ", tag("code", page.resumed_from), class_="sub")
    if page.state == "running" and page.max_iters:
        yield tag("progress", value=page.iteration, max=page.max_iters, aria_label="iterations done")


def _of(number: int, most: int | None, what: str) -> str:
    """So many epochs, out of how many where there were to be more."""
    plural = "" if (most or number) == 1 else "s"
    return f"{number:,} of {most:,} {what}s" if most and most != number else f"{number:,} {what}{plural}"


def _cards(page: RunPage) -> Markup:
    found = [_best_card(page), _time_card(page), _slowest_card(page), _problems_card(page)]
    return tag("div", *found, class_="cards")


def _card(name: str, big: Any, *lines: Any, kind: str = "") -> Markup:
    said = [tag("p", line) for line in lines if line]
    return tag(
        "div", tag("div", name, class_="name"), tag("div", big, class_="big"), *said, class_=f"card {kind}".strip()
    )


def _best_card(page: RunPage) -> Markup:
    ranked = next((one for one in page.best if one.file), page.best[0] if page.best else None)
    if ranked is not None:
        big = joined([value(ranked.score), " ", tag("small", ranked.metric)])
        saved = link(ranked.file) if ranked.file else "no checkpoint of it was kept"
        return _card("Best model", big, f"epoch {ranked.epoch}, iteration {ranked.step:,}", saved)
    known = next((one for one in page.history.evaluated() if one.best is not None), None)
    if known is not None and known.best is not None:
        big = joined([value(known.best.value), " ", tag("small", known.name)])
        return _card("Best value", big, _where(known.best.epoch, known.best.step), "no hook of this run keeps the best")
    return _card("Best model", "–", "nothing has been evaluated" + (" yet" if page.state == "running" else ""))


def _time_card(page: RunPage) -> Markup:
    took = f"{duration(page.seconds / page.iteration)} per iteration, all in all" if page.iteration else ""
    left = f"about {duration(page.left)} to go" if page.left is not None and page.state == "running" else ""
    largest = max(shares(page.history), key=lambda part: part[1], default=None)
    mostly = ""
    if largest:
        name, share = largest
        mostly = f"{name} {'take' if name == 'hooks' else 'takes'} {share:.0%} of an iteration"
    return _card("Duration", duration(page.seconds), left or took, mostly)


def _slowest_card(page: RunPage) -> Markup:
    if not page.costs or not page.seconds:
        return _card("Slowest hook", "–", "no hook was called" if page.state != "running" else "not known yet")
    first, *others = page.costs
    line = f"{first.total / page.seconds:.1%} of the run: {duration(first.total)} in {calls(first.calls)}"
    second = next((one for one in others if one.total), None)
    then = f"then {second.name}, {second.total / page.seconds:.1%}" if second else ""
    return _card(
        "Slowest hook", first.name, line + (", with the evaluations themselves" if first.evaluates else ""), then
    )


def _problems_card(page: RunPage) -> Markup:
    failed, warned = len(page.failures) + (page.state == "failed"), len(page.warnings)
    missing = _missing(page.history)
    warned += len(missing)
    words = [_many(failed, "failure"), _many(warned, "warning")]
    big = ", ".join(word for word in words if word) or "none"
    said = [page.reason if page.state == "failed" else "", *page.failures]
    said += [*(one.text for one in page.warnings), *missing, *page.findings]
    worst = next((text for text in said if text), "")
    kind = "trouble" if failed else "caution" if warned else ""
    # Hooks also find what is no problem: only the number of it stands beside one.
    more = ", ".join(
        word for word in ("details" if failed or warned else "", _many(len(page.findings), "finding")) if word
    )
    return _card("Problems", big, _cut(worst, 110), tag("a", more, href="#warnings") if more else "", kind=kind)


def _missing(history: History) -> list[str]:
    """What is to be said of values that were no numbers."""
    return [
        f"{one.name}: {one.not_finite:,} of {one.not_finite + one.size:,} values are NaN or infinite"
        for one in history.series.values()
        if one.not_finite and not is_resource(one)
    ]


def _many(number: int, what: str) -> str:
    return counted(number, what) if number else ""


def _footer(page: RunPage) -> Markup:
    lines: list[Any] = []
    if page.state == "running":
        lines.append(
            f"Your browser reads this page again every {REFRESHED} seconds. If it was last written long ago, "
            "the process was killed, or is in a long epoch without an evaluation."
        )
    if page.files:
        lines.append(joined(["Beside this page: ", joined((link(name) for name in page.files), ", ")]))
    return tag("footer", *(tag("p", line) for line in lines))


# -- the sections ----------------------------------------------------------------------------------------------


def _curves(page: RunPage) -> Markup | str:
    groups = page.history.learning()
    if not groups:
        return tag(
            "p", "No numbers yet: LoggerHook writes them to metrics.jsonl, which this page reads.", class_="faint"
        )
    # First what evaluations have measured, then losses, then whole families of numbers.
    order = sorted(
        groups,
        key=lambda name: (all(s.kind == "train" for s in groups[name]), _is_family(name, groups[name])),
    )
    shown = [_figure(name, groups[name], page) for name in order[:MOST_CHARTS]]
    besides = len(order) - len(shown)
    parts = [tag("div", *shown[:AT_ONCE], class_="charts")]
    if shown[AT_ONCE:]:
        summary = tag("summary", f"{_many(len(shown) - AT_ONCE, 'more chart')}")
        parts.append(tag("details", summary, tag("div", *shown[AT_ONCE:], class_="charts small")))
    if any(point.size > 1 for group in groups.values() for one in group for point in one.points):
        parts.append(
            tag(
                "p", "Of a long run lines are means; the values they are made of lie in what is shaded.", class_="faint"
            )
        )
    if besides:
        parts.append(tag("p", f"{_many(besides, 'number')} more in metrics.jsonl.", class_="faint"))
    return joined(parts)


def _is_family(name: str, group: Sequence[Series]) -> bool:
    """Whether a group is all of the numbers below a name, as ``grad_norm/...``, and not that of the name itself."""
    return all(name in one.name.split("/")[:-1] for one in group)


def _figure(title: str, group: Sequence[Series], page: RunPage, *, stars: bool = True) -> Markup:
    lines = group[:MOST_LINES]
    marks = [one.best if stars and one.kind != "train" and len(one.points) > 1 else None for one in lines]
    legend = []
    for number, (one, mark) in enumerate(zip(lines, marks, strict=True)):
        words: list[Any] = []
        # A line alone has its name above it.
        words += [one.name, " "] if len(lines) > 1 or one.name != title else []
        words += ["last ", tag("b", value(one.last.value))] if one.last else []
        words += [f", best ★ {value(mark.value)}"] if mark else []
        many = f"{', ' if one.last else ''}{_many(one.not_finite, 'value')} not finite"
        odd = tag("span", many, class_="odd") if one.not_finite else ""
        legend.append(tag("li", tag("i", class_=f"key s{number % COLOURS}"), tag("span", *words, odd)))
    if len(group) > len(lines):
        legend.append(tag("li", f"and {len(group) - len(lines)} more"))
    drawing = chart(lines, page.history.last_step, marks, label=f"{title} over iterations")
    return tag("figure", tag("h3", title), drawing, tag("ul", *legend, class_="legend"))


def _best(page: RunPage) -> Markup | str:
    rows: list[dict[str, Any]] = []
    ranked = set()
    for one in sorted(page.best, key=lambda one: one.file is None):
        series = _series_of(one.metric, page.history)
        ranked.add(series.name if series else "")
        file = link(one.file) if one.file else "–"
        last = value(series.last.value) if series and series.last else ""
        where = _where(one.epoch, one.step)
        rows.append({"metric": one.metric, "best": value(one.score), "where": where, "checkpoint": file, "last": last})
    for other in page.history.evaluated():
        if other.name in ranked or other.last is None:
            continue
        mark = other.best
        best, where = (value(mark.value), _where(mark.epoch, mark.step)) if mark else ("", "")
        rows.append(
            {"metric": other.name, "best": best, "where": where, "checkpoint": "", "last": value(other.last.value)}
        )
    return table(rows, kind="best", numbers=("best", "last")) if rows else ""


def _series_of(metric: str, history: History) -> Series | None:
    """The series of a metric that is ranked: ``accuracy`` and ``val_accuracy`` are both ``val/accuracy``."""
    wanted = metric.replace("/", "_")
    names = {name.replace("/", "_"): one for name, one in history.series.items()}
    return next((names[name] for name in (wanted, f"val_{wanted}", f"test_{wanted}") if name in names), None)


def _where(epoch: int | None, step: int) -> str:
    return f"iteration {step:,}" if epoch is None else f"epoch {epoch}, iteration {step:,}"


def _costs(page: RunPage) -> Markup | str:
    if not page.costs:
        return ""
    most = max(one.total for one in page.costs) or 1.0
    rows = []
    for one in page.costs:
        share = f"{one.total / page.seconds:.2%}" if page.seconds else ""
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
    said = f"All of them took {duration(whole)}, {whole / page.seconds:.1%} of the run." if page.seconds else ""
    numbers = ("share of the run", "total", "calls", "mean", "99 % within", "longest")
    return joined([tag("p", said, class_="faint"), table(rows, kind="costs", numbers=numbers)])


def _pictures(page: RunPage) -> Markup | str:
    shown = [
        tag(
            "figure",
            tag("img", src=one.data, alt=f"{one.name}, drawn by a hook", loading="lazy"),
            tag(
                "figcaption",
                one.name,
                "" if one.step is None else f", iteration {one.step:,}",
                " · " if one.file else "",
                link(one.file, "file") if one.file else "",
            ),
        )
        for one in page.pictures
    ]
    if not shown and not page.pictures_besides:
        return ""
    more = (
        f"The newest of each kind; {_many(page.pictures_besides, 'more picture')} in the folder."
        if page.pictures_besides
        else ""
    )
    return joined([tag("div", *shown, class_="pictures"), tag("p", more, class_="faint") if more else ""])


def _resources(page: RunPage) -> Markup | str:
    parts: list[Markup] = []
    found = list(shares(page.history))
    if found:
        parts += [tag("h3", "An iteration"), bar(found)]
    rates = page.history.rates()
    groups = [
        (name, group) for name, group in page.history.resources().items() if not name.startswith(("share/", "time/eta"))
    ]
    if page.memory:
        parts += [facts(page.memory)]
    figures = [_figure("learning rate", rates, page, stars=False)] if rates else []
    chosen = [item for item in groups if item[0] in ("time/iter", "samples_per_s", "memory/process_mb", "memory_mb")]
    figures += [_figure(_TITLES.get(name, name), group, page, stars=False) for name, group in chosen]
    if figures:
        parts.append(tag("div", *figures, class_="charts"))
    others = [item for item in groups if item not in chosen][:MOST_CHARTS]
    if others:
        inside = [_figure(name, group, page, stars=False) for name, group in others]
        parts.append(
            tag("details", tag("summary", _many(len(others), "more chart")), tag("div", *inside, class_="charts small"))
        )
    return tag("div", *(tag("div", part) for part in parts), class_="stack") if parts else ""


_TITLES = {
    "time/iter": "seconds per iteration",
    "samples_per_s": "samples per second",
    "memory/process_mb": "memory of the process, MB",
    "memory_mb": "peak memory of the GPU, MB",
}


def _plan(page: RunPage) -> Markup | str:
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


def _config(page: RunPage) -> Markup | str:
    text = page.config
    cut = (
        ""
        if len(text) <= LONGEST_TEXT
        else tag("p", f"… and {len(text) - LONGEST_TEXT:,} characters more.", class_="faint")
    )
    return joined([tag("pre", text[:LONGEST_TEXT], tabindex="0"), cut]) if text else ""


def _environment(page: RunPage) -> Markup | str:
    return facts(page.environment) if page.environment else ""


def _trouble(page: RunPage) -> Markup:
    parts: list[Markup] = []
    if page.state == "failed":
        parts.append(tag("p", tag("b", page.reason or "the run has failed")))
        if page.trace:
            parts.append(tag("details", tag("summary", "Traceback"), tag("pre", page.trace, tabindex="0")))
    if page.failures:
        parts += [tag("h3", "Hooks and writers that failed"), _list(page.failures)]
    if page.findings:
        parts += [tag("h3", "What hooks have found"), _list(page.findings)]
    if lines := [*map(_said, page.warnings), *_missing(page.history)]:
        parts += [tag("h3", "Warnings"), _list(lines)]
    return joined(parts) if parts else tag("p", "None.", class_="faint")


def _said(one: Said) -> Markup:
    head, _, rest = one.text.strip().partition("\n")
    times = f" ({one.times} times)" if one.times > 1 else ""
    more = tag("details", tag("summary", "more"), tag("pre", rest, tabindex="0")) if rest else ""
    return joined([tag("span", moment(one.at, day=False), class_="times"), head, times, more])


def _list(lines: Sequence[Any]) -> Markup:
    return tag("ul", *(tag("li", line) for line in lines), class_="said")


# -- words -----------------------------------------------------------------------------------------------------


def moment(at: float, *, day: bool = True) -> str:
    """A point in time as a clock and a calendar show it."""
    return time.strftime("%d %b %Y, %H:%M:%S" if day else "%H:%M:%S", time.localtime(at))


def _cut(text: Any, longest: int) -> Markup:
    text = " ".join(str(text).split())
    return escaped(text if len(text) <= longest else f"{text[: longest - 1]}…")
