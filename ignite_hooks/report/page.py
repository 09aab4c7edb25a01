"""The report of a run as one page: its head, its cards, its sections."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ignite_hooks.report import sections
from ignite_hooks.report.cards import cards
from ignite_hooks.report.data import RunPage, moment, nonfinite_lines
from ignite_hooks.report.evaluation import evaluation
from ignite_hooks.report.late_tests import TITLE as TESTS
from ignite_hooks.report.late_tests import section as tests_section
from ignite_hooks.report.markup import Markup, document, joined, link, link_out, tag
from ignite_hooks.report.media import media
from ignite_hooks.text import duration

REFRESH_SECONDS = 20
"""Seconds after which a browser reloads the page of a running run."""


SECTIONS = (
    ("curves", "Curves", sections.curves),
    ("best", "Best metrics", sections.best_metrics),
    ("evaluation", "Where the model is wrong", evaluation),
    ("hooks", "What the hooks cost", sections.hook_costs),
    ("pictures", "Pictures", sections.pictures),
    ("media", "Sounds and videos", lambda page: media(page.media)),
    ("time", "Time and memory", sections.resources),
    ("plan", "Plan", sections.plan),
    ("configuration", "Configuration", sections.configuration),
    ("environment", "Environment", sections.environment),
    ("warnings", "Warnings and failures", sections.problems),
)
"""The sections in their order: name, title, function of the data. A section without content is omitted."""


def render(page: RunPage) -> str:
    """Return the page as HTML."""
    failed = bool(page.failures) or page.state == "failed"
    order = [SECTIONS[-1], *SECTIONS[:-1]] if failed else SECTIONS
    shown = [(name, title, content) for name, title, section in order if (content := section(page))]
    warned = page.warnings or nonfinite_lines(page.history)
    kinds = {"warnings": "trouble" if failed else "caution" if warned else None}
    body = [
        tag("section", tag("h2", title), content, id=name, class_=kinds.get(name)) for name, title, content in shown
    ]
    # A test may come when nothing but this page is left of the run.
    body.insert(1 if failed else 0, tests_section(page))
    links = [tag("a", TESTS, href="#tests")] if page.tests else []
    links += [tag("a", title, href=f"#{name}") for name, title, _ in shown]
    header = tag("header", *_headline(page), tag("nav", *links, aria_label="sections"))
    refresh = REFRESH_SECONDS if page.state == "running" else None
    title = f"{_SYMBOL[page.state]} {page.name}"
    return document(title, [header, tag("main", cards(page), *body), _footer(page)], refresh)


_SYMBOL = {"running": "▶", "finished": "✓", "stopped": "■", "failed": "✗"}


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
    """Return a number of epochs or iterations, with the planned number if that is larger."""
    plural = "" if (most or number) == 1 else "s"
    return f"{number:,} of {most:,} {what}s" if most and most != number else f"{number:,} {what}{plural}"


def _footer(page: RunPage) -> Markup:
    lines: list[Any] = []
    if page.state == "running":
        lines.append(
            f"Your browser reads this page again every {REFRESH_SECONDS} seconds. If it was last written long ago, "
            "the process was killed, or is in a long epoch without an evaluation."
        )
    if page.files:
        lines.append(joined(["Beside this page: ", joined((link(name) for name in page.files), ", ")]))
    lines += [joined([f"This run in {name}: ", link_out(address)]) for name, address in page.links.items()]
    return tag("footer", *(tag("p", line) for line in lines))
