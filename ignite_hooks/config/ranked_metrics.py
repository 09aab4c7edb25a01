"""Check the names of metrics that hooks rank, as far as they can be known before a run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ignite_hooks.hooks.base_hook import BaseHook, Situation
from ignite_hooks.text import did_you_mean, shown

SETTINGS = ("metric", "best_metric", "save_best", "monitor")
"""The settings in which hooks name what they rank."""


def impossible_metrics(hook: BaseHook, known: Collection[str] | None) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the metrics that a hook ranks, as (setting, message).

    Args:
        hook: The hook.
        known: Every metric that there will be; None if a script may add more.
    """
    for metric in hook.monitors():
        if _setting_of(hook, metric) not in hook.given:
            # A default that nothing measures is not ranked.
            continue
        if not metric.strip() or not metric.isprintable():
            yield _setting_of(hook, metric), f"the name of a metric is needed, not {shown(metric)}"
        elif known is not None and not metric.startswith("train") and not {*_meant(metric)} & {*map(_plain, known)}:
            hint = did_you_mean(metric, known) or f": there are {', '.join(known)}"
            yield _setting_of(hook, metric), f"no metric is called {shown(metric)}{hint}"


def known_metrics(situation: Situation, trainer: Any) -> list[str] | None:
    """Return the names of all metrics of a run, or None if they cannot be known before it.

    They are known if the configuration lists those of every evaluation, and nothing of the script could add more.
    """
    hooks = situation.hooks.values()
    evaluating = [hook for hook in hooks if getattr(hook, "evaluates", None) is not None]
    listed = [getattr(hook, "metrics", None) for hook in evaluating]
    scripts = [hook for hook in hooks if not type(hook).__module__.startswith("ignite_hooks.")]
    handlers = any(getattr(trainer, "_event_handlers", {}).values())
    if not situation.complete or situation.evaluators or scripts or handlers or not evaluating:
        return None
    if any(getattr(hook, "test_fn", None) is not None for hook in evaluating):
        return None
    if not all(isinstance(metrics, Mapping) for metrics in listed):
        return None
    names = [(hook.evaluates, name) for hook in evaluating for name in hook.metrics]  # type: ignore[attr-defined]
    return [*dict.fromkeys(name for _, name in names), *(f"{evaluator}_{name}" for evaluator, name in names)]


def _meant(metric: str) -> Iterator[str]:
    """Yield the names that a metric may be published by; ``iou/3`` may be an element of ``iou``."""
    yield _plain(metric)
    vector, _, element = metric.rpartition("/")
    if vector and element.isdecimal():
        yield _plain(vector)


def _plain(name: str) -> str:
    return name.replace("/", "_")


def _setting_of(hook: BaseHook, metric: str) -> str:
    """Return the setting in which a hook names a metric."""
    for setting in SETTINGS:
        value = getattr(hook, setting, None)
        if value == metric or (isinstance(value, (list, tuple)) and metric in value):
            return setting
    return ""
