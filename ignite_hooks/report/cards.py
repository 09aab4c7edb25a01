"""The cards at the top of a page: the best model, the time, the slowest hook, the problems."""

from __future__ import annotations

from typing import Any

from ignite_hooks.report.chart import value
from ignite_hooks.report.data import RunPage, counted_if_any, nonfinite_lines, position, shares
from ignite_hooks.report.markup import Markup, escaped, joined, link, tag
from ignite_hooks.text import calls, duration, percent


def cards(page: RunPage) -> Markup:
    """Return the cards of a page."""
    found = [_best_card(page), _time_card(page), _slowest_card(page), _problems_card(page)]
    return tag("div", *found, class_="cards")


def _card(name: str, big: Any, *lines: Any, kind: str = "") -> Markup:
    head = [tag("div", name, class_="name"), tag("div", big, class_="big")]
    return tag("div", *head, *(tag("p", line) for line in lines if line), class_=f"card {kind}".strip())


def _best_card(page: RunPage) -> Markup:
    if page.delivered and not any(one.file == page.delivered_file for one in page.best):
        # Not the best of a metric, such as a mean of weights.
        saved = link(page.delivered_file) if page.delivered_file else "no file holds them"
        return _card("Delivered model", page.delivered, saved)
    ranked = next((one for one in page.best if one.file), page.best[0] if page.best else None)
    if ranked is not None:
        big = joined([value(ranked.score), " ", tag("small", ranked.metric)])
        saved = link(ranked.file) if ranked.file else "no checkpoint of it was kept"
        delivers = bool(page.delivered) and ranked.file == page.delivered_file
        what = "Best model, delivered" if delivers else "Best model"
        return _card(what, big, f"epoch {ranked.epoch}, iteration {ranked.step:,}", saved)
    known = next((one for one in page.history.evaluated() if one.best is not None), None)
    if known is not None and known.best is not None:
        big = joined([value(known.best.value), " ", tag("small", known.name)])
        return _card(
            "Best value", big, position(known.best.epoch, known.best.step), "no hook of this run keeps the best"
        )
    return _card("Best model", "–", "nothing has been evaluated" + (" yet" if page.state == "running" else ""))


def _time_card(page: RunPage) -> Markup:
    took = f"{duration(page.seconds / page.iteration)} per iteration, all in all" if page.iteration else ""
    left = f"about {duration(page.left)} to go" if page.left is not None and page.state == "running" else ""
    largest = max(shares(page), key=lambda part: part[1], default=None)
    mostly = ""
    if largest:
        name, share = largest
        mostly = f"{name} {'take' if name == 'hooks' else 'takes'} {percent(share)} of an iteration"
    return _card("Duration", duration(page.seconds), left or took, mostly)


def _slowest_card(page: RunPage) -> Markup:
    if not page.costs or not page.seconds:
        return _card("Slowest hook", "–", "no hook was called" if page.state != "running" else "not known yet")
    first, *others = page.costs
    line = f"{percent(first.total / page.seconds, 1)} of the run: {duration(first.total)} in {calls(first.calls)}"
    second = next((one for one in others if one.total), None)
    then = f"then {second.name}, {percent(second.total / page.seconds, 1)}" if second else ""
    return _card(
        "Slowest hook", first.name, line + (", with the evaluations themselves" if first.evaluates else ""), then
    )


def _problems_card(page: RunPage) -> Markup:
    failed, warned = len(page.failures) + (page.state == "failed"), len(page.warnings)
    missing = nonfinite_lines(page.history)
    warned += len(missing)
    words = [counted_if_any(failed, "failure"), counted_if_any(warned, "warning")]
    big = ", ".join(word for word in words if word) or "none"
    lines = [page.reason if page.state == "failed" else "", *page.failures]
    lines += [*(one.text for one in page.warnings), *missing, *page.findings]
    worst = next((text for text in lines if text), "")
    kind = "trouble" if failed else "caution" if warned else ""
    # A finding need not be a problem: beside problems only the number of findings is shown.
    more = ", ".join(
        word for word in ("details" if failed or warned else "", counted_if_any(len(page.findings), "finding")) if word
    )
    return _card("Problems", big, _cut(worst, 110), tag("a", more, href="#warnings") if more else "", kind=kind)


def _cut(text: Any, longest: int) -> Markup:
    text = " ".join(str(text).split())
    if len(text) <= longest:
        return escaped(text)
    whole_words = text[:longest].rpartition(" ")[0]
    return escaped(f"{whole_words or text[:longest]} …")
